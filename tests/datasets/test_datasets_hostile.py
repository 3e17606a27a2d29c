"""Dataset files that are broken or made to harm: each is one sentence that names what is wrong, and
none takes memory that is not there."""

import bz2
import gzip
import io
import lzma
import re
import resource
import struct
import zipfile

import numpy as np
import pyarrow
import pytest

import gnnbench.datasets.memory as memory
from gnnbench.datasets import build, import_file, load_npz
from gnnbench.errors import DatasetError


def small():
    """Every array of the format: a ring of six vertices with two features and two classes."""
    indptr = np.arange(0, 13, 2, dtype=np.int64)
    indices = np.array([1, 5, 0, 2, 1, 3, 2, 4, 3, 5, 0, 4], dtype=np.int32)
    return {
        "indptr": indptr,
        "indices": indices,
        "x": np.arange(12, dtype=np.float32).reshape(6, 2),
        "y": np.array([0, 1, 0, 1, -1, 0]),
        "train_mask": np.array([1, 1, 0, 0, 0, 0], dtype=bool),
        "val_mask": np.array([0, 0, 1, 0, 0, 0], dtype=bool),
        "test_mask": np.array([0, 0, 0, 1, 0, 0], dtype=bool),
        "notes": np.array(["a ring"]),
    }


def members(arrays):
    """The arrays as ``.npy`` files by name."""
    made = {}
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array)
        made[f"{name}.npy"] = stream.getvalue()
    return made


def put(path, content, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def npy(header, data=b"", version=b"\x01\x00"):
    """A ``.npy`` file with any header."""
    text = header.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + data


def header(shape, descr="'<f4'", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def with_member(name, data):
    return lambda path: put(path, members(small()) | {f"{name}.npy": data})


def with_array(**arrays):
    return lambda path: put(path, members(small() | arrays))


def patched(change, central=True):
    """The headers of the member ``x.npy`` changed, in the list of members and before its data."""

    def make(path):
        put(path, members(small()))
        data = bytearray(path.read_bytes())
        for magic, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
            start = -1
            while (start := data.find(magic, start + 1)) >= 0:
                name = start + (46 if magic == b"PK\x01\x02" else 30)
                if data[name : name + 5] == b"x.npy":
                    change(data, start + offset)
        path.write_bytes(data)
        return path

    return make


def set_bits(data, at):
    data[at] |= 1


def set_method(data, at):
    data[at + 2 : at + 4] = struct.pack("<H", 97)


def spoil_data(path):
    put(path, members(small()))
    data = bytearray(path.read_bytes())
    place = data.find(small()["x"].tobytes())
    data[place + 4] ^= 0xFF
    path.write_bytes(data)
    return path


def spoil_compressed(path):
    noise = np.random.default_rng(0).random((6, 400)).astype(np.float32)
    put(path, members(small() | {"x": noise}), zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("x.npy").header_offset
    data[start + 3000 : start + 3100] = bytes(100)
    path.write_bytes(data)
    return path


def cut(share):
    def make(path):
        put(path, members(small()))
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])
        return path

    return make


def twice(path):
    put(path, members(small()))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", members(small())["x.npy"])
    return path


def lying_about_its_size(path):
    """Two gigabytes, says the list of members; the file has a few hundred bytes."""
    put(path, members(small()))
    data = bytearray(path.read_bytes())
    place = data.find(b"x.npy", data.find(b"PK\x01\x02"))
    data[place - 46 + 24 : place - 46 + 28] = struct.pack("<I", 2**31)
    path.write_bytes(data)
    return path


def renamed(path):
    """The list of members calls the features by a name that the format does not know."""
    put(path, members(small()))
    data = bytearray(path.read_bytes())
    data[data.rfind(b"x.npy")] = ord("z")
    path.write_bytes(data)
    return path


def bare(data):
    def make(path):
        path.write_bytes(data)
        return path

    return make


RAGGED = np.array([{}], dtype=object)
DAMAGED = {
    "pickled": (with_array(x=RAGGED), "x.npy", "pickled Python objects, which are never loaded"),
    "pickled field": (
        with_array(x=np.zeros(6, dtype=[("a", "f4"), ("b", "O")])), "x.npy", "never loaded",
    ),
    "fields": (with_array(x=np.zeros((6, 2), dtype=[("a", "f4")])), "x", "not numbers"),
    "dates": (with_array(y=np.zeros(6, dtype="M8[s]")), "y", "not numbers"),
    "no array": (lambda p: put(p, members(small()) | {"READ.txt": b"x"}), "READ.txt", "no array"),
    "text in it": (with_member("x", b"1 2\n3 4\n"), "x.npy", "cannot be read"),
    "empty member": (with_member("x", b""), "x.npy", "cannot be read"),
    "later version": (with_member("x", npy(header("(6, 2)"), version=b"\x09\x00")), "x.npy",
                      "version 9.0 of the format is not known"),
    "header is code": (
        with_member("x", npy("__import__('os').getpid()")), "x.npy", "cannot be read",
    ),
    "header is deep": (with_member("x", npy("[" * 9000)), "x.npy", "cannot be read"),
    "header is long": (with_member("x", npy(" " * 60_000)), "x.npy", "(60001) is large"),
    "no shape": (with_member("x", npy(header("(6, 'two')"))), "x.npy", "cannot be read"),
    "negative shape": (with_member("x", npy(header("(-6, 2)"))), "x.npy", "impossible shape"),
    "no order": (with_member("x", npy(header("(6, 2)", order="7"))), "x.npy", "cannot be read"),
    "no data": (with_member("x", npy(header("(6, 2)"))), "x.npy", "holds 0 bytes of data"),
    "half the data": (
        with_member("x", npy(header("(6, 2)"), bytes(24))), "x.npy", "asks for 48",
    ),
    "more data": (with_member("x", npy(header("(6, 2)"), bytes(99))), "x.npy", "holds 99 bytes"),
    "huge shape": (
        with_member("x", npy(header("(1000000000000, 2)"))), "x.npy", "asks for 8,000,000,000,000",
    ),
    "shape beyond 64 bits": (
        with_member("x", npy(header(f"({2**62}, {2**62})"))), "x.npy", "holds 0 bytes of data",
    ),
    "huge item": (
        with_member("notes", npy(header("(1,)", "'<U500000000'"))), "notes.npy", "asks for 2,000",
    ),
    "checksum": (spoil_data, "x.npy", "Bad CRC-32"),
    "compressed data": (spoil_compressed, "x.npy", "cannot be read"),
    "encrypted": (patched(set_bits), "x.npy", "is encrypted"),
    "compression": (patched(set_method), "x.npy", "compression method is not supported"),
    "twice": (twice, "x.npy", "is there twice"),
    "renamed": (renamed, "z.npy", "cannot be read"),
    "wrong size": (lying_about_its_size, "x.npy", "holds 2,147,483,"),
    "cut in the middle": (cut(0.5), "", "it may have been cut off"),
    "cut at the end": (cut(0.99), "", "it may have been cut off"),
    "one array": (bare(members(small())["x.npy"]), "", "it holds a single array"),
    "a pickle": (bare(b"\x80\x04K\x01."), "", "it is no zip archive of arrays"),
    "empty": (bare(b""), "", "it is empty"),
    "no members": (lambda p: put(p, {}), "indptr", "is missing (found none)"),
    "notes of numbers": (with_array(notes=np.arange(3)), "notes", "store a list of texts"),
    "notes in a table": (with_array(notes=np.array([["a"]])), "notes", "2 dimensions"),
    "indptr scalar": (with_array(indptr=np.int64(7)), "indptr", "0 dimensions"),
    "masks in a table": (with_array(val_mask=np.zeros((6, 1), bool)), "val_mask", "(6, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_npz_is_one_sentence_that_names_the_member(tmp_path, kind):
    make, member, reason = DAMAGED[kind]
    path = make(tmp_path / "small.npz")
    for read in (load_npz, import_file):
        with pytest.raises(DatasetError) as caught:
            read(path)
        said = str(caught.value)
        assert "\n" not in said
        assert said.endswith(".")
        assert member in said
        assert reason in said
        # NumPy's own advice would be to load them.
        assert "allow_pickle" not in said


@pytest.mark.parametrize(
    "compression", [0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_the_undamaged_file_is_read(tmp_path, compression):
    dataset = load_npz(put(tmp_path / "small.npz", members(small()), compression))
    assert dataset.graph.num_edges == 12
    assert dataset.notes == ("a ring",)
    np.testing.assert_array_equal(dataset.features, small()["x"])


def test_arrays_in_the_other_order_and_byte_order_are_read(tmp_path):
    arrays = {
        name: np.asfortranarray(array).astype(array.dtype.newbyteorder(">"))
        for name, array in small().items()
    }
    swapped, plain = (
        load_npz(put(tmp_path / f"{name}.npz", members(each)))
        for name, each in (("a", arrays), ("b", small()))
    )
    assert swapped.digest() == plain.digest()


def test_what_the_format_does_not_know_is_not_even_read(tmp_path):
    extra = members({"extra": RAGGED}) | {"more.npy": b"no array"}
    dataset = load_npz(put(tmp_path / "small.npz", members(small()) | extra))
    assert any("ignored: extra, more" in note for note in dataset.notes)


@pytest.fixture
def little_memory(monkeypatch):
    """Ten megabytes are free, as far as anybody can tell."""
    for module in ("memory", "formats.graph_files"):
        monkeypatch.setattr(f"gnnbench.datasets.{module}.find_available_bytes", lambda: 10**7)


def zstandard(data):
    return pyarrow.compress(data, "zstd", asbytes=True)


def refuse(path):
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DatasetError) as caught:
        import_file(path) if path.suffix != ".npz" else load_npz(path)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began
    assert taken < 200_000  # KiB
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_memory_that_is_free_is_counted_as_the_system_does():
    assert 0 < memory.find_available_bytes() < 2**50


def test_a_control_groups_limit_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path)
    free = memory.find_available_bytes()
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\nfile 200\nfile_mapped 90\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.find_available_bytes() == pytest.approx(free, rel=0.2)
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory.find_available_bytes() == 1000 - 700 + 200
    (tmp_path / "memory.current").write_text("5000\n")
    assert memory.find_available_bytes() == 0


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("bomb.txt.gz", b"0 1\n", "of memory and 10.0 MB are free here"),
        ("bomb.txt.gz", b"\n", "it has no lines of data"),
        ("bomb.txt.bz2", b"# comment\n", "it has no lines of data"),
        ("bomb.txt.xz", b"0 1\r", "of memory and 10.0 MB are free here"),
        ("bomb.txt.zst", b"0 1\n", "of memory and 10.0 MB are free here"),
        ("bomb.mtx.gz", b"0 1\n", "does not begin with"),
        ("bomb.graphml.gz", b"<node/>\n", "of memory and 10.0 MB are free here"),
        ("plain.txt", b"0 1\r", "of memory and 10.0 MB are free here"),
        ("endless.txt.gz", b"0 1\n", "line 2 is longer than 1,048,576 bytes"),
        ("endless.mtx.bz2", b"", "does not begin with %%MatrixMarket"),
        ("endless.txt", b"0 1\n", "line 2 is longer than 1,048,576 bytes"),
    ],
)
def test_a_text_of_too_much_is_refused_while_it_is_read(tmp_path, name, line, reason):
    """Too many lines, or after the first one a line without an end."""
    path = tmp_path / name
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard}
    data = line * 20_000_000 if name == "bomb.txt.gz" and line == b"\n" else line * 200_000
    if name.startswith("endless"):
        data = line + b"1" * 30_000_000
    path.write_bytes(pack.get(path.suffix, bytes)(data))
    assert reason in refuse(path)


PATTERN = "%%MatrixMarket matrix coordinate pattern general\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{PATTERN}3 3 1000000000000\n2 1\n", "1,000,000,000,000 entries would take 120 TB of me"),
        (f"{PATTERN}2000000000 2000000000 1\n2 1\n", "would take"),
        (f"{PATTERN}9000000000 9000000000 1\n2 1\n", "vertices is outside 1 to 2,147,483,647"),
        (f"{PATTERN}3 3 99999999999999999999999\n", "does not say how many rows, columns and ent"),
        (f"{PATTERN}3 3 -1\n2 1\n", "does not say how many"),
        (f"{PATTERN}3 3\n2 1\n", "does not say how many"),
        (f"{PATTERN}3 3 2\n2 1\n", "it has 1 entries and says it has 2"),
        (f"{PATTERN}0 0 1\n2 1\n", "a row is 2 and they go from 1 to 0"),
        (f"{PATTERN}2 3 1\n1 3\n", "square"),
        (f"{PATTERN}2 2 0\n", "no entries"),
        ("%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0\n", "dense"),
        ("", "does not begin with"),
        ("%%MatrixMarket matrix coordinate\n", "does not begin with"),
        ("%%MatrixMarket matrix coordinate real general\n", "does not say how many rows"),
        ("%%MatrixMarket matrix coordinate quaternion general\n1 1 1\n", "'quaternion', not"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2\n", "line 3: '1 2'"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n", "no lines of data"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2.5 1\n", "line 3: '1 2.5 1'"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 3 1\n", "a column is 3"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 1\n", "a row is 0"),
    ],
)
def test_a_matrix_that_cannot_be_says_what_is_wrong(tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr("gnnbench.datasets.memory.find_available_bytes", lambda: 10**9)
    for name, data in (("toy.mtx", text.encode()), ("toy.mtx.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DatasetError, match=re.escape(reason)) as caught:
            import_file(tmp_path / name)
        assert "toy" in str(caught.value)


def test_complex_integer_and_skew_matrices_are_read(tmp_path):
    for field, value in (("complex", "1 0"), ("integer", "7"), ("real", "-1e3"), ("pattern", "")):
        for symmetry in ("general", "symmetric", "skew-symmetric", "hermitian"):
            path = tmp_path / "toy.mtx"
            head = f"%%MatrixMarket MATRIX Coordinate {field} {symmetry}\n% by hand\n\n3 3 2\n"
            path.write_text(f"{head}2 1 {value}\n% more\n3 2 {value}\n")
            dataset = import_file(path)
            assert dataset.graph.indices.tolist() == [1, 0, 2, 1]
            weighted = field != "pattern"
            assert ("edge weights were ignored" in dataset.notes) == weighted
            added = any("reverse edges added: 2" in note for note in dataset.notes)
            assert added == (symmetry == "general")


def test_an_archive_that_unpacks_to_more_than_there_is(tmp_path, monkeypatch):
    """A hundred megabytes of zeros, in a hundred kilobytes."""
    zeros = npy(header("(25000000, 1)"), bytes(100_000_000))
    content = members(small()) | {"x.npy": zeros}
    path = put(tmp_path / "bomb.npz", content, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 200_000
    del zeros, content
    monkeypatch.setattr("gnnbench.datasets.memory.find_available_bytes", lambda: 10**7)
    assert "reading its arrays would take 200 MB of memory and 10.0 MB" in refuse(path)


def test_features_that_are_made_up_must_fit(monkeypatch):
    monkeypatch.setattr("gnnbench.datasets.memory.find_available_bytes", lambda: 10**7)
    with pytest.raises(DatasetError, match=r"making up its features would take 51\.2 MB"):
        build("wide", np.array([[0], [1]]), num_vertices=100_000)
    monkeypatch.setattr("gnnbench.datasets.memory.find_available_bytes", lambda: 10**3)
    with pytest.raises(DatasetError, match="its graph would take"):
        build("wide", np.zeros((2, 100), dtype=np.int64))


def mutate(data, rng):
    """A few random changes: bytes, runs of them, cuts, repetitions, numbers at their limits."""
    spoiled = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        if not spoiled:
            break
        at = int(rng.integers(len(spoiled)))
        length = int(rng.integers(1, 40))
        kind = rng.integers(6)
        if kind == 0:
            spoiled[at] = int(rng.integers(256))
        elif kind == 1:
            spoiled[at : at + length] = rng.bytes(length)
        elif kind == 2:
            del spoiled[at : at + length]
        elif kind == 3:
            spoiled[at:at] = spoiled[at : at + length]
        elif kind == 4:
            del spoiled[at:]
        else:
            limits = (b"\xff" * 4, b"\x00" * 8, b"-1", b"9" * 25, b"\xff\xff\xff\x7f", b"nan")
            limit = limits[rng.integers(len(limits))]
            spoiled[at : at + len(limit)] = limit
    return bytes(spoiled)


EDGES = b"# a head\n" + b"".join(b"%d %d 1.5\n" % (i, (i * 7 + 1) % 40) for i in range(40))
MATRIX = b"%%MatrixMarket matrix coordinate real general\n% by hand\n40 40 40\n" + b"".join(
    b"%d %d 1.5\n" % (i + 1, (i * 7 + 1) % 40 + 1) for i in range(40)
)


def valid(kind, folder):
    if kind.endswith("npz"):
        compression = zipfile.ZIP_DEFLATED if kind == "packed.npz" else zipfile.ZIP_STORED
        return put(folder / "valid", members(small()), compression).read_bytes()
    data = MATRIX if "mtx" in kind else EDGES
    return gzip.compress(data, mtime=0) if kind.endswith("gz") else data


@pytest.mark.parametrize(
    "kind", ["stored.npz", "packed.npz", "edges.txt", "edges.txt.gz", "toy.mtx", "toy.mtx.gz"]
)
def test_whatever_happens_to_a_file_is_read_or_refused(tmp_path, kind):
    whole, path = valid(kind, tmp_path), tmp_path / kind
    refused = 0
    for seed in range(40):
        path.write_bytes(mutate(whole, np.random.default_rng(seed)))
        try:
            import_file(path)
        except DatasetError as error:
            refused += 1
            message = str(error)
            assert message.endswith("."), message
            assert "\n" not in message, message
            assert "allow_pickle" not in message
    assert refused > 12
