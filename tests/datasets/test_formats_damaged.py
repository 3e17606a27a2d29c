"""A file of any format that is changed in one place is the same graph, or refused in one sentence.

Some changes make another file of the same format, which nobody can tell from what was meant. They
are left out below, by where a change may be:

- Formats with checksums (zip, gzip, bzip2, xz, Parquet pages, compressed MATLAB) and METIS, which
  names each edge at both ends: anywhere.
- Lists of edges: what divides columns, and cells that become words or empty. A digit for another, a
  lost line or the end of the text is another list.
- Matrix Market: the banner, the line of sizes, and the end before the last entry.
- XML: marks and the names of elements; the names of attributes only in GraphML, whose schema needs
  them. Values are what they are. GML takes any key: brackets alone.
- ``.npy``: the header, but for the mark of the byte order; and the end.
- Zstandard has a checksum only where its writer asks for one, and pickles have none: the end.
"""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnbench import datasets
from gnnbench.errors import DatasetError
from tests.datasets.test_formats_grid import edges_of
from tests.datasets.written_graphs import (
    GRAPHS,
    MATRICES,
    PAIRS,
    Drawn,
    mirrored,
    put,
    write_parquet,
    write_text,
)


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 7))
    vertex = st.integers(0, count - 1)
    edge = st.tuples(vertex, vertex, st.sampled_from((0.5, 1.0, 2.0, 7.0)))
    return Drawn(count, (*draw(st.lists(edge, max_size=9)), (0, count - 1, 3.0), (1, 0, 0.5)))


def write_plain_metis(file, drawn):
    rows = [[v + 1 for u, v, _ in drawn.edges if u == vertex] for vertex in range(drawn.count)]
    lines = [f"{drawn.count} {len(drawn.edges) // 2}", *(" ".join(map(str, row)) for row in rows)]
    put(file, "\n".join(lines) + "\n")


def anywhere(whole):
    return range(len(whole))


def nowhere(_):
    return ()


def find(pattern):
    """The places of a pattern's first group, or of all of it."""
    found = re.compile(pattern)

    def list_places(whole):
        return [at for each in found.finditer(whole) for at in range(*each.span(found.groups))]

    return list_places


def find_sizes(whole):
    """The first line, and the first that is no comment."""
    lines = whole.split(b"\n")
    begin = sum(len(line) + 1 for line in lines if line.startswith(b"%"))
    size = next(len(line) for line in lines if not line.startswith(b"%"))
    return [*range(len(lines[0])), *range(begin, begin + size)]


def up_to(pattern):
    """The length of what is before the last of a pattern."""
    return lambda whole: [each.start() for each in re.finditer(pattern, whole)][-1]


LIST = write_text(",", heading=("source", "target", "weight"))
#: By file: what writes it, which bytes may change, and how much may be left where it is cut.
CHECKED = {
    **{name: (MATRICES[name], anywhere, len) for name in MATRICES if name.endswith(".npz")},
    "problem.mat": (MATRICES["problem.mat"], anywhere, len),
    "data.pt": (GRAPHS["data.pt"], anywhere, len),
    "index.pt": (PAIRS["index.pt"], anywhere, len),
    "e.parquet": (write_parquet(), anywhere, len),
    **{f"e.csv.{pack}": (LIST, anywhere, len) for pack in ("gz", "bz2", "xz")},
    "a.graph": (write_plain_metis, anywhere, len),
    "e.csv": (LIST, find(rb","), None),
    "a.mtx": (MATRICES["a.mtx"], find_sizes, up_to(rb"\n[^\n]+\n$")),
    "a.graphml": (GRAPHS["a.graphml"], find(rb"[<>=\"/]|</?(\w+)| (id|source|target)="), len),
    "a.gexf": (GRAPHS["a.gexf"], find(rb"[<>=\"/]|</?(\w+)"), len),
    "a.gml": (GRAPHS["a.gml"], find(rb"[\[\]]"), up_to(rb"\]")),
    "index.npy": (PAIRS["index.npy"], find(rb"(?s)\A.{10}[^\n<]+\n"), len),
    "e.csv.zst": (LIST, nowhere, len),
    "ind.small.graph": (PAIRS["ind.small.graph"], nowhere, len),
}  # fmt: skip


def read(file, extras):
    """The edges in a file, or None, and what was said of it."""
    try:
        return edges_of(datasets.import_graph(file, extras)), ""
    except DatasetError as error:
        return None, str(error)


@pytest.mark.parametrize("name", CHECKED)
def test_a_damaged_file_is_the_same_graph_or_refused(name, tmp_path_factory):
    write, list_places, limit = CHECKED[name]
    weighted = name not in (*PAIRS, "a.graph")
    extras = datasets.Extras(directed=True, weighted=weighted)

    @settings(
        max_examples=4 if name.endswith(".mat") else 40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(), st.data())
    def damage(drawn, data):
        file = tmp_path_factory.mktemp("damaged") / name
        drawn = mirrored(drawn) if name == "a.graph" else drawn
        write(file, drawn)
        whole = file.read_bytes()
        expected = drawn.sums() if weighted else dict.fromkeys(drawn.sums(), 1.0)
        assert edges_of(datasets.import_graph(file, extras)) == expected
        places = list_places(whole)
        if limit is not None and (not places or data.draw(st.booleans())):
            changed = whole[: data.draw(st.integers(0, limit(whole) - 1))]
        else:
            at = data.draw(st.sampled_from(places))
            given_byte = st.integers(0, 255) if name != "e.csv" else st.sampled_from(b"x\0;")
            changed = whole[:at] + bytes([data.draw(given_byte)]) + whole[at + 1 :]
        file.write_bytes(changed)
        found, said = read(file, extras)
        assert found == expected or (found is None and re.fullmatch(r"[^\n]+\.", said))

    damage()


def find_pages(whole):
    """What is behind the pages ends with its own length and a mark, 8 bytes."""
    return range(4, len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"))


def find_tensor(whole):
    place = whole.index(np.array([0, 4, 1, 2, 2, 3, 3, 1], dtype=np.int64).tobytes())
    return range(place, place + 64)


@pytest.mark.parametrize(
    ("name", "write", "list_places"),
    [
        ("e.parquet", write_parquet(compression="none"), find_pages),
        ("index.pt", PAIRS["index.pt"], find_tensor),
    ],
)
def test_every_byte_of_the_data_is_checked(name, write, list_places, tmp_path):
    drawn = Drawn(5, ((0, 4, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 1, 1.0)))
    file, extras = tmp_path / name, datasets.Extras(directed=True, weighted="parquet" in name)
    write(file, drawn)
    whole = file.read_bytes()
    for at in list_places(whole):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read(file, extras)[0] in (None, drawn.sums()), at


@pytest.mark.parametrize("cell", [b"", b"x", b"1_0", b"nan", b"1e3", b"0x1"])
@settings(max_examples=12, deadline=None)
@given(drawn=graphs(), data=st.data())
def test_a_cell_that_is_no_id_is_refused(cell, tmp_path_factory, drawn, data):
    file = tmp_path_factory.mktemp("cells") / "e.csv"
    LIST(file, drawn)
    lines = [line.split(b",") for line in file.read_bytes().splitlines()]
    row = data.draw(st.integers(1, len(lines) - 1))
    lines[row][data.draw(st.integers(0, 1))] = cell
    file.write_bytes(b"\n".join(map(b",".join, lines)))
    with pytest.raises(DatasetError, match=rf"line {row + 1}: .* in column"):
        datasets.import_graph(file, datasets.Extras(weighted=True))


def test_a_file_that_its_library_crashes_on_is_one_sentence(tmp_path):
    """Both libraries end the process that reads these."""
    drawn = Drawn(7, ((0, 1, 0.5), (1, 2, 2.0), (2, 0, 1.0)))
    matlab, dgl = tmp_path / "a.mat", tmp_path / "a.bin"
    MATRICES["a.mat"](matlab, drawn)
    GRAPHS["a.bin"](dgl, drawn)
    whole = bytearray(matlab.read_bytes())
    place = whole.find(np.int32(7).tobytes() * 2)
    whole[place : place + 4] = np.int32(2**30).tobytes()
    matlab.write_bytes(whole)
    whole = bytearray(dgl.read_bytes())
    place = whole.rfind(np.int64(2).tobytes() + b"_E")
    whole[place + 6] = 201
    dgl.write_bytes(whole)
    for file in (matlab, dgl):
        with pytest.raises(DatasetError, match="is not a readable") as caught:
            datasets.import_graph(file)
        assert re.fullmatch(r"[^\n]+\.", str(caught.value))
