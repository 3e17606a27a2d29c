"""Graphs written by other libraries, or by hand, are read to the edge, or refused."""

import gzip
import io
import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import to_undirected

from gnnbench import datasets
from gnnbench.errors import DatasetError

#: A directed graph with an isolated vertex, 6, an edge in both directions, and no loop.
EDGES = np.array([[0, 1, 2, 5, 4, 3, 1], [1, 2, 0, 3, 0, 5, 4]])
WEIGHTS = np.array([0.5, 2.0, 1.0, 4.0, 0.25, 8.0, 3.0])
COUNT = 7
MATRIX = sp.coo_matrix((WEIGHTS, tuple(EDGES)), shape=(COUNT, COUNT))


def edges_of(dataset):
    """Edges and their weights, source first."""
    graph = dataset.graph
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    weights = np.ones(graph.num_edges) if graph.weights is None else graph.weights
    return dict(zip(zip(graph.indices.tolist(), rows.tolist(), strict=True), weights, strict=True))


EXPECTED = dict(zip(zip(*EDGES.tolist(), strict=True), WEIGHTS, strict=True))


def test_an_undirected_metis_graph_is_read_with_weights_and_comments(tmp_path):
    """The manual's figure 3: 7 vertices, 11 edges; (c) has weights of vertices and edges."""
    plain = "% 7 and 11\n7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n"
    weighted = (
        "7 11 011 3\n1 2 0 5 1 3 2 2 1\n0 2 2 1 1 3 2 4 1\n4 1 1 5 3 4 2 2 2 1 2\n"
        "2 2 3 2 1 3 2 6 2 7 5\n1 1 1 1 1 3 3 6 2\n2 2 1 5 2 4 2 7 6\n1 2 1 6 6 4 5\n"
    )
    pairs = {(1, 5): 1, (1, 3): 2, (1, 2): 1, (2, 3): 2, (2, 4): 1, (3, 5): 3, (3, 4): 2}
    pairs |= {(4, 6): 2, (4, 7): 5, (5, 6): 2, (6, 7): 6}
    expected = {(a - 1, b - 1): w for (a, b), w in pairs.items()}
    expected |= {(b, a): w for (a, b), w in expected.items()}
    for text, extras in ((plain, {}), (weighted, {"weighted": True, "directed": True})):
        file = tmp_path / "figure.graph"
        file.write_text(text)
        made = datasets.import_graph(file, datasets.Extras(**extras)).dataset
        found = edges_of(made)
        assert found == (expected if extras else dict.fromkeys(expected, 1.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 3\n2 3\n1 3\n", "lines for 2 vertices, and says that there are 3"),
        ("3 2\n2 3\n1\n2\n", "names each edge|lists each edge once at both"),
        ("3 3\n2 3\n1 3\n1 4\n", "line 4: it has a neighbour outside 1 to 3"),
        ("3 3\n2 3\n1 3\n1 2\n1\n", "line 5: it is of a vertex beyond the 3"),
        ("3 3 1\n2 3\n1 3 1\n1 2\n", "line 3: it lacks a weight"),
        ("3 3\n2 x\n1 3\n1 2\n", "line 2: it has something else than whole numbers"),
        ("3\n2 3\n", "line 1: it does not say how many vertices and edges"),
    ],
)
def test_what_is_no_metis_graph_is_refused(text, words, tmp_path):
    file = tmp_path / "x.graph"
    file.write_text(text)
    with pytest.raises(DatasetError, match=words):
        datasets.import_graph(file)


def test_planetoid_is_what_pyg_reads_of_it(tmp_path):
    """Vertex 508 is in no file but the graph's, as some of CiteSeer's are."""
    rng = np.random.default_rng(3)
    x, y = sp.csr_matrix(rng.random((509, 4)).round(1)), np.eye(3)[rng.integers(0, 3, 509)]
    order = np.array([509, 506, 507])
    parts = {"x": x[:2], "allx": x[:506], "tx": x[506:], "y": y[:2], "ally": y[:506], "ty": y[506:]}
    parts["graph"] = {v: [(v + 1) % 510, (v + 3) % 510] for v in range(510)}
    for name, part in parts.items():
        (tmp_path / f"ind.citeseer.{name}").write_bytes(pickle.dumps(part, protocol=2))
    (tmp_path / "ind.citeseer.test.index").write_text("".join(f"{each}\n" for each in order))
    theirs = read_planetoid_data(str(tmp_path), "citeseer")
    for path in (tmp_path, tmp_path / "ind.citeseer.graph"):
        ours = datasets.import_graph(path, name="citeseer").dataset
        edges = to_undirected(theirs.edge_index)
        loops = edges[0] == edges[1]
        assert set(edges_of(ours)) == set(zip(*edges[:, ~loops].tolist(), strict=True))
        known = np.delete(np.arange(510), 508)
        assert np.array_equal(ours.features.toarray(), theirs.x.numpy())
        assert np.array_equal(ours.labels[known], theirs.y.numpy()[known])
        assert ours.labels[508] == -1
        assert np.array_equal(ours.train_mask, theirs.train_mask.numpy())
        assert np.array_equal(ours.val_mask, theirs.val_mask.numpy())
        assert np.flatnonzero(ours.test_mask).tolist() == [506, 507, 509]


def test_ogbs_folder_has_its_features_labels_and_split(tmp_path):
    raw, split = tmp_path / "arxiv" / "raw", tmp_path / "arxiv" / "split" / "time"
    raw.mkdir(parents=True)
    split.mkdir(parents=True)

    def write(folder, name, rows):
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))

    x = np.arange(2.0 * COUNT).reshape(COUNT, 2)
    write(raw, "edge", EDGES.T.tolist())
    write(raw, "num-node-list", [[COUNT]])
    write(raw, "node-feat", x.tolist())
    write(raw, "node-label", [[0.0], [1.0], [2.0], ["nan"], [0.0], [1.0], [2.0]])
    for name, ids in (("train", [0, 4]), ("valid", [1]), ("test", [2, 5])):
        write(split, name, [[each] for each in ids])
    made = datasets.import_graph(tmp_path / "arxiv", datasets.Extras(directed=True)).dataset
    assert set(edges_of(made)) == set(EXPECTED)
    assert np.array_equal(made.features, x)
    assert made.labels.tolist() == [0, 1, 2, -1, 0, 1, 2]
    masks = (made.train_mask, made.val_mask, made.test_mask)
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [[0, 4], [1], [2, 5]]


def test_facebooks_people_are_classed_by_gender(tmp_path):
    about = np.array([[1, 2, 5], [1, 1, 5], [2, 0, 7]])
    links = sp.csc_matrix(([1.0, 1.0], ([0, 1], [1, 2])), shape=(3, 3))
    scipy.io.savemat(tmp_path / "Rice31.mat", {"A": links, "local_info": about})
    made = datasets.import_graph(tmp_path / "Rice31.mat").dataset
    assert made.labels.tolist() == [1, 0, -1]
    # Status 1 or 2, and the last column 5 or 7.
    assert made.features.toarray().tolist() == [[1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]]


def write_quoted(cells, delimiter):
    return delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in cells)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_text_is_read_to_the_edge_or_refused_where_a_line_has_another_width(
    tmp_path_factory, data
):
    """Each delimiter x names or numbers x heading x line ends x blank lines and comments; then a
    line that has lost or won a column."""
    delimiter = data.draw(st.sampled_from("\t,;| "))
    named = data.draw(st.booleans())
    inner = "ab #%é'" + ("" if delimiter == " " else ",;| ")
    if delimiter == " ":
        inner = inner.replace(" ", "")
    name = (
        st.text(inner, min_size=1, max_size=5)
        .map(str.strip)
        .filter(lambda text: text and text[0] not in "#%'\"")
    )
    ids = st.integers(-5, 10**12).map(str)
    edge = st.tuples(*[name if named else ids] * 2)
    edges = data.draw(
        st.lists(edge, min_size=2, max_size=8).filter(lambda e: any(a != b for a, b in e))
    )
    lines = [write_quoted(edge, delimiter) for edge in edges]
    heading = data.draw(st.booleans())
    if heading:
        lines.insert(0, write_quoted(("source", "target"), delimiter))
    for extra in data.draw(
        st.lists(st.sampled_from(["", "# a comment", "% one, more"]), max_size=2)
    ):
        lines.insert(data.draw(st.integers(0, len(lines))), extra)
    text = data.draw(st.sampled_from(["\n", "\r\n"])).join(lines) + "\n"
    file = tmp_path_factory.mktemp("texts") / "graph.csv"
    ambiguous = len(set("".join(map("".join, edges))) & set("\t,;|")) > 0
    told = delimiter if ambiguous else None
    extras = datasets.Extras(directed=True, string_ids=named, delimiter=told)
    expected = {(a, b) for a, b in edges if a != b}

    def read():
        made = datasets.import_graph(file, extras)
        count = made.dataset.graph.num_vertices
        called = [str(each) for each in (range(count) if made.ids is None else made.ids.tolist())]
        return {(called[one], called[other]) for one, other in edges_of(made.dataset)}, made

    file.write_text(text, encoding="utf-8", newline="")
    assert read()[0] == expected
    at = data.draw(st.integers(0, len(edges) - 1))
    broken = data.draw(st.sampled_from(["7", "", "x" + delimiter + "7"]))
    kept = [line for line in lines if line and line[0] not in "#%"]
    kept[at + heading] = kept[at + heading] + delimiter + broken if broken else "x"
    file.write_text("\n".join(kept) + "\n", encoding="utf-8")
    with pytest.raises(DatasetError):
        read()


@pytest.mark.parametrize(
    ("text", "names", "edges", "note"),
    [
        ("A Lee,Bo Ray\nCy,A Lee\n", True, {("A Lee", "Bo Ray"), ("Cy", "A Lee")}, "names"),
        ('"Xi, Y","Zed, W"\n"Xi, Y",Q\n', True, {("Xi, Y", "Zed, W"), ("Xi, Y", "Q")}, ""),
        ("C# F%\nF% C\n", True, {("C#", "F%"), ("F%", "C")}, ""),
        ("id_1,id_2\n0,1\n1,2\n", False, {("0", "1"), ("1", "2")}, "a heading: id_1, id_2"),
        ("n,source,target\n9,0,1\n8,1,2\n", False, {("0", "1"), ("1", "2")}, "a heading"),
        ("person,friend\nann,bo\n", True, {("person", "friend"), ("ann", "bo")}, "--heading"),
        ("4 2\n0 1\n1 2\n", False, {tuple("42"), tuple("01"), tuple("12")}, "--heading"),
        ("9223372036854775807 1\n1 2\n", False, {("9223372036854775807", "1"), ("1", "2")}, ""),
    ],
)  # fmt: skip
def test_headings_names_and_large_ids(text, names, edges, note, tmp_path):
    file = tmp_path / "e.csv"
    file.write_text(text)
    made = datasets.import_graph(file, datasets.Extras(string_ids=names, directed=True))
    count = made.dataset.graph.num_vertices
    called = [str(each) for each in (range(count) if made.ids is None else made.ids.tolist())]
    assert {(called[a], called[b]) for a, b in edges_of(made.dataset)} == edges
    assert note in " ".join(made.dataset.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0_1 1\n1 2_0\n", "line 1: '0_1 1' is not an edge"),
        ("1,2,0.5\n3,,4\n", "line 2: '3,,4' is not an edge.*empty cell in column 2"),
        ("1 2\n2 3 # a note\n", "line 2: .* it has 5 columns where 2"),
        ("3 3\n2 3\n1 3\n1 2\n", "this is a METIS graph"),
        ("1 2 3\n4 5\n", "line 2: '4 5' is not an edge.* it has 2 columns where 3"),
        ("9223372036854775808 1\n", "no whole number of 64 bits"),
        ('{"nodes": []}\n', "this is JSON"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n", "Matrix Market file"),
    ],
)
def test_what_is_no_edge_list_is_refused(text, words, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(text)
    with pytest.raises(DatasetError, match=words):
        datasets.import_graph(file)


def test_tables_of_vertices_keep_their_columns(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 0\n")

    def read(**beside):
        for name, text in beside.items():
            (tmp_path / name).write_text(text)
        paths = {name: tmp_path / name for name in beside}
        return datasets.import_graph(tmp_path / "e.txt", datasets.Extras(**paths)).dataset

    made = read(features="id,a,b\n2,5,6\n0,1,2\n1,3,4\n", labels="0 1_1\n1 1_2\n2 11\n")
    assert made.features.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert made.labels.tolist() == [1, 2, 0]
    assert "0 11, 1 1_1, 2 1_2" in made.notes[-3]
    made = read(split="0,Training\n1,Validation\n2,Test\n")
    assert [made.train_mask.tolist(), made.val_mask.tolist()] == [[1, 0, 0], [0, 1, 0]]
    made = read(labels="class\n2\n0\n1\n", split="train\ntest\nval\n")
    assert made.labels.tolist() == [2, 0, 1]
    assert [made.train_mask.tolist(), made.test_mask.tolist()] == [[1, 0, 0], [0, 1, 0]]
    assert read(labels="blue\nash\nblue\n").labels.tolist() == [1, 0, 1]
    with pytest.raises(DatasetError, match="it has 2 rows, for vertices 0 to 1, but vertices go"):
        read(labels="2\n0\n")
    with pytest.raises(DatasetError, match="line 1: '0' is not an id and a class"):
        read(labels="0\n1 4\n2 5\n")
    with pytest.raises(DatasetError, match=r"line 1: .*empty cell in column 3"):
        read(features="0,1.0,,3.0\n1,,2.0,3.0\n2,1.0,2.0,\n")
    with pytest.raises(DatasetError, match="'unseen' is no share of a split"):
        read(split="0 train\n1 unseen\n2 test\n")


def test_a_matrix_and_an_array_of_its_rows_belong_together(tmp_path):
    scipy.io.mmwrite(tmp_path / "A.mtx", MATRIX)
    np.save(tmp_path / "X.npy", np.arange(14.0).reshape(COUNT, 2))
    sp.save_npz(tmp_path / "X.npz", sp.csc_matrix(np.arange(14.0).reshape(COUNT, 2)))
    (tmp_path / "y.txt").write_text("".join(f"{v + 1} {v % 3}\n" for v in range(COUNT)))
    for name in ("X.npy", "X.npz"):
        extras = datasets.Extras(features=tmp_path / name, labels=tmp_path / "y.txt")
        made = datasets.import_graph(tmp_path / "A.mtx", extras).dataset
        dense = made.features if name == "X.npy" else made.features.toarray()
        assert dense[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12]
        assert made.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.graphml", b"<graphml><graph>", "not a readable graphml file"),
        ("x.gml", b"graph [ node [", "not a readable gml file"),
        ("x.mat", b"MATLAB 5.0 MAT-file" + bytes(200), "not a readable MATLAB file"),
        ("x.pt", b"no tensor", "it holds no tensors and no graph"),
        ("x.edges", b"PAR1....", "this is a Parquet table"),
    ],
)
def test_damaged_files_of_other_libraries_are_one_sentence(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=words) as caught:
        datasets.import_graph(tmp_path / name)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('<edge source="1"', '<arc source="1"', "no element 'arc' in the format"),
        ('<edge source="1"', '<edge source="9"', "another end than its vertices"),
        ('<edge source="1"', '<edge sauce="1"', "'edge' lacks source or target"),
        ('<node id="6" />', 'node id="6" />', "text in an element 'graph'"),
        ('edgedefault="directed"', 'edgedefault="direct"', "its edgedefault is 'direct'"),
    ],
)
def test_graphml_that_networkx_would_read_in_part_is_refused(old, new, words, tmp_path):
    nx.write_graphml(nx.DiGraph([(0, 1), (1, 2), (6, 2)]), tmp_path / "a.graphml")
    text = (tmp_path / "a.graphml").read_text()
    assert text.count(old) == 1
    (tmp_path / "a.graphml").write_text(text.replace(old, new))
    with pytest.raises(DatasetError, match=words):
        datasets.import_graph(tmp_path / "a.graphml")


def test_a_file_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    torch.save({"edge_index": Evil()}, tmp_path / "x.pt")
    with pytest.raises(DatasetError, match="without running code"):
        datasets.import_graph(tmp_path / "x.pt")
    buffer = io.BytesIO()
    pickle.dump(Evil(), buffer)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        (tmp_path / f"ind.evil.{part}").write_bytes(buffer.getvalue())
    with pytest.raises(DatasetError, match="which could run code"):
        datasets.import_graph(tmp_path / "ind.evil.graph")


def test_the_lower_half_of_a_skew_symmetric_matrix_is_mirrored_with_the_other_sign(tmp_path):
    file = tmp_path / "skew.mtx"
    head = "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n"
    file.write_text(head + "2 1 5\n3 1 2\n")
    with pytest.raises(DatasetError, match="contain -5"):
        datasets.import_graph(file, datasets.Extras(weighted=True, directed=True))


def test_columns_that_two_delimiters_divide_are_refused(tmp_path):
    file = tmp_path / "names.csv"
    file.write_text("a;b,c\nd;e,f\n")
    with pytest.raises(DatasetError, match="divided by comma, semicolon; say which"):
        datasets.import_graph(file, datasets.Extras(string_ids=True))
