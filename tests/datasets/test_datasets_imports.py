"""Importing edge lists, Matrix Market and files that are not canonical; the constructor."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.datasets import build, import_file
from gnnbench.datasets.topology import find_fault, symmetrise
from gnnbench.errors import DatasetError


def rows(dataset):
    graph = dataset.graph
    return [row.tolist() for row in np.split(graph.indices, graph.indptr[1:-1])]


def put(folder, text, name="toy.txt"):
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


# Worked out by hand: 10->20, 20->10 and 20->30 twice, 30->30, 10->40: four vertices, three edges.
TOY = "10 20\n20 10\n20 30\n20 30\n30 30\n10 40\n"
TOY_ROWS = [[1, 3], [0, 2], [1], [0]]
TOY_NOTES = (
    "vertex ids (10 to 40) were numbered anew, 0 to 3",
    "self loops removed: 1",
    "duplicate edges removed: 1",
    "missing reverse edges added: 2",
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (TOY, "toy.txt"),
        (TOY, "toy.edges.gz"),
        (TOY.replace(" ", ","), "toy.csv"),
        (TOY.replace(" ", ", "), "toy.csv"),
        (TOY.replace(" ", "\t"), "toy.tsv"),
        (TOY.replace("\n", "\r\n"), "toy.txt"),
        ("# SNAP\n# FromNodeId ToNodeId\n" + TOY, "toy.txt.gz"),
        ("% KONECT\n" + TOY, "toy"),
        ("% one\n# other\n\n" + TOY + "\n% end", "toy.txt"),
        ("\ufeff" + TOY, "toy.txt"),
    ],
)
def test_edge_list_becomes_a_symmetric_graph(tmp_path, text, name):
    path = tmp_path / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    dataset = import_file(path)
    assert dataset.name == "toy"
    assert rows(dataset) == TOY_ROWS
    assert dataset.notes[:4] == TOY_NOTES
    assert "made up at random" in dataset.notes[4]


def test_one_based_and_negative_ids_are_numbered_anew(tmp_path):
    dataset = import_file(put(tmp_path, "-5 1\n1 7000000000\n"))
    assert rows(dataset) == [[1], [0, 2], [1]]
    assert "vertex ids (-5 to 7,000,000,000) were numbered anew, 0 to 2" in dataset.notes


@pytest.mark.parametrize("bad", ["1 x", "3", "1.5 2", "1;2", "99999999999999999999 1", "a,b"])
def test_malformed_line_is_named(tmp_path, bad):
    suffix = "txt.gz" if bad == "3" else "txt"
    path = put(tmp_path, f"# head\n0 1\n\n{bad}\n1 2\n", f"toy.{suffix}")
    with pytest.raises(DatasetError) as caught:
        import_file(path)
    assert str(caught.value).startswith(f"{path}, line 4: ")
    assert bad in str(caught.value)


def test_files_without_edges_are_refused(tmp_path):
    for text in ("", "# nothing\n\n"):
        with pytest.raises(DatasetError, match="no lines of data"):
            import_file(put(tmp_path, text))
    with pytest.raises(DatasetError, match="self loop"):
        import_file(put(tmp_path, "3 3\n"))
    with pytest.raises(DatasetError, match="no such file"):
        import_file(tmp_path / "absent.txt")


def test_unreadable_files_are_refused(tmp_path):
    path = tmp_path / "toy.txt.gz"
    path.write_bytes(gzip.compress(TOY.encode() * 1000)[:-30])
    with pytest.raises(DatasetError, match="not a readable text file"):
        import_file(path)
    path.write_bytes(b"plain")
    with pytest.raises(DatasetError, match="not a readable text file"):
        import_file(path)
    binary = tmp_path / "toy.edges"
    binary.write_bytes(b"\xff\xfe\x00\x01\n")
    with pytest.raises(DatasetError, match="not a readable text file"):
        import_file(binary)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 12).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1),
        )
    )
)
def test_symmetrise_equals_the_set_definition(case):
    vertices, pairs = case
    src, dst = np.array(pairs, dtype=np.int64).T
    graph, repairs = symmetrise(src, dst, vertices)
    directed = {(a, b) for a, b in pairs if a != b}
    both = directed | {(b, a) for a, b in directed}
    found = np.repeat(np.arange(vertices), graph.degrees)
    assert list(zip(found.tolist(), graph.indices.tolist(), strict=True)) == sorted(both)
    assert repairs.self_loops == sum(a == b for a, b in pairs)
    assert repairs.duplicates == len(pairs) - repairs.self_loops - len(directed)
    assert repairs.reverses == len(both) - len(directed)
    assert find_fault(graph.indptr, graph.indices) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_fault_is_found_exactly_where_the_matrix_is_not_symmetric(seed):
    rng = np.random.default_rng(seed)
    matrix = np.triu(rng.random((6, 6)) < 0.4, 1)
    matrix |= matrix.T
    if rng.random() < 0.5:
        i, j = rng.choice(6, 2, replace=False)
        matrix[i, j] = not matrix[i, j]
    csr = sp.csr_matrix(matrix)
    fault = find_fault(csr.indptr.astype(np.int64), csr.indices.astype(np.int32))
    assert (fault is None) == bool((matrix == matrix.T).all())
    assert fault is None or "directed" in fault


@pytest.mark.parametrize(
    ("edges", "options", "reason"),
    [
        (np.zeros((2, 0), dtype=np.int64), {}, "no edges"),
        (np.array([[0.5], [1.0]]), {}, "integers"),
        (np.array([0, 1]), {}, "shape"),
        (np.array([[0], [5]]), {"num_vertices": 3}, "outside 0 to 2"),
        (np.array([[0], [-1]]), {}, "contains -1"),
        (np.array([[0], [1]]), {"num_vertices": 0}, "0 vertices"),
        (np.array([[0], [2**31]]), {}, "2,147,483,649 vertices"),
        (np.array([[0], [1]]), {"features": np.ones((3, 2)), "num_vertices": 2}, "x says 3 rows"),
    ],
)
def test_build_refuses_bad_arrays(edges, options, reason):
    with pytest.raises(DatasetError, match=reason) as caught:
        build("mine", edges, **options)
    assert str(caught.value).startswith("mine: ")


def test_build_takes_edges_or_csr():
    edges = np.array([[0, 1, 3], [1, 2, 0]])
    csr = sp.csr_matrix((np.ones(3), edges), shape=(4, 4))
    from_edges = build("mine", edges)
    from_csr = build("mine", (csr.indptr.astype(np.int64), csr.indices))
    assert rows(from_edges) == [[1, 3], [0, 2], [1], [0]]
    assert from_edges.digest() == from_csr.digest()
    assert "missing reverse edges added: 3" in from_edges.notes
    assert build("mine", edges, features=np.ones((9, 2))).graph.num_vertices == 9
