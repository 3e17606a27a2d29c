"""Every format x what its files differ in, held to the edge against the graph that was written."""

from itertools import cycle

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from pyarrow import parquet

from gnnbench import datasets
from gnnbench.errors import DatasetError
from tests.datasets.written_graphs import (
    GRAPHS,
    MATRICES,
    PACKERS,
    PAIRS,
    Drawn,
    mirrored,
    put,
    write_metis,
    write_parquet,
    write_text,
)

#: Vertex 6 has no edge, nor has the last; 1 and 2 have edges both ways.
SIMPLE = Drawn(
    9, ((0, 1, 0.5), (1, 2, 2.0), (2, 1, 1.0), (5, 3, 4.0), (4, 0, 0.25), (3, 5, 8.0), (7, 4, 3.0))
)
#: With loops, edges that come twice and three times, and weights of zero.
MANIFOLD = Drawn(
    9, (*SIMPLE.edges, (3, 3, 1.0), (0, 1, 2.0), (7, 4, 0.5), (7, 4, 0.0), (0, 7, 0.0), (8, 8, 1.0))
)
#: What lists of edges differ in, but for what divides the columns.
LISTS = {
    "bare": {},
    "headed": {"heading": ("source", "target", "weight")},
    "turned": {"heading": ("w", "dst", "src"), "order": (2, 1, 0)},
    "unknown": {"heading": ("a", "b", "c")},
    "quoted": {"quote": '"', "heading": ("From Node", "To Node", "Weight")},
    "padded": {"pad": "  ", "comment": "% by hand\n"},
    "from one": {"first": 1, "comment": "# SNAP"},
    "far": {"first": 10**12},
}
#: Names of a Parquet table's columns, and which these are.
TABLES = (
    (("source", "target", "weight"), (0, 1, 2)),
    (("a", "b", "c"), (0, 1, 2)),
    (("w", "To Node", "From Node"), (2, 1, 0)),
)
ENDS = cycle(("\n", "\r\n", "\r"))
ENDINGS = cycle(f"{kind}{pack}" for kind in (".txt", ".csv", ".tsv") for pack in PACKERS)


def list_cells():
    for delimiter in "\t,;| ":
        for kind, options in LISTS.items():
            if (delimiter, kind) == (" ", "quoted"):
                continue
            name, end = f"e{next(ENDINGS)}", next(ENDS)
            write = write_text(delimiter, end=end, **options)
            yield f"{delimiter!r}-{kind}-{end!r}-{name}", name, write, MANIFOLD, options
    for compression, kind in (("none", np.int32), ("snappy", np.uint8), ("zstd", np.int64)):
        for names, order in TABLES:
            write = write_parquet(names, kind, order, compression=compression)
            yield f"{compression}-{kind.__name__}-{names[0]}", "e.parquet", write, MANIFOLD, {}
    for name, write in {**MATRICES, **GRAPHS}.items():
        yield f"simple-{name}", name, write, SIMPLE, {}
        if name != "a.bin":
            yield f"manifold-{name}", name, write, MANIFOLD, {}
    for name in ("a.graph", "a.metis.xz"):
        yield name, name, write_metis, mirrored(SIMPLE), {}
    for name, write in PAIRS.items():
        yield name, name, write, MANIFOLD, {}


#: Every third is made symmetric.
CELLS = [(*cell, number % 3 > 0) for number, cell in enumerate(list_cells())]


def edges_of(made, first=0):
    """Edges and their weights, source first, by the ids that vertices have in the source."""
    graph = made.dataset.graph
    ids = np.arange(graph.num_vertices) + first if made.ids is None else made.ids
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    weights = np.ones(graph.num_edges) if graph.weights is None else graph.weights
    pairs = zip(ids[graph.indices].tolist(), ids[rows].tolist(), strict=True)
    return dict(zip(pairs, weights.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "write", "drawn", "options", "directed"),
    [cell[1:] for cell in CELLS],
    ids=[cell[0] for cell in CELLS],
)
def test_what_is_written_is_read_to_the_edge_and_its_repairs_are_counted(
    name, write, drawn, options, directed, tmp_path
):
    write(tmp_path / name, drawn)
    weighted, first = name not in PAIRS, options.get("first", 0)
    listed = name.startswith(("e.", "index"))
    extras = datasets.Extras(
        directed=directed, weighted=weighted, keep_isolated=listed and first < 2
    )
    made = datasets.import_graph(tmp_path / name, extras)
    expected = {(u + first, v + first): w for (u, v), w in drawn.sums().items()}
    given = len(expected)
    assert made.dataset.graph.directed == (directed or name == "raw.npz")
    if not made.dataset.graph.directed:
        expected = {(v, u): w for (u, v), w in expected.items()} | expected
    assert edges_of(made) == (expected if weighted else dict.fromkeys(expected, 1.0))
    known = len(np.unique(drawn.ends)) if first > 1 else drawn.count
    assert made.dataset.graph.num_vertices == known + (first == 1)
    merged = "added up" if weighted else "removed"
    zeros = int(np.count_nonzero(drawn.weights == 0))
    said = {
        "self loops removed": drawn.loops,
        f"duplicate edges {merged}": drawn.duplicates,
        "missing reverse edges added": len(expected) - given,
        "zeros stored in the adjacency matrix are edges": zeros
        if (name in MATRICES and name != "raw.npz") or name == "adjacency.pt"
        else 0,
        "vertices without a row in the files have features of zero and no label": 0,
    }
    for words, count in said.items():
        found = [note for note in made.dataset.notes if note.startswith(words)]
        assert found == ([f"{words}: {count:,}"] if count else [])


FEATURES = np.arange(18, dtype=np.float32).reshape(9, 2)
LABELS, WORDS = np.arange(9) % 3, ["train", "val", "test"] * 3
SHUFFLED = np.random.default_rng(0).permutation(9)


def write_rows(file, ids, columns):
    """Rows of a text or a Parquet table, or, without ids, of arrays."""
    named = {"id": ids} if ids is not None else {}
    named |= {f"c{n}": column for n, column in enumerate(columns)}
    if file.suffix == ".parquet":
        parquet.write_table(pa.table(named), file)
    else:
        lines = [",".join(map(str, row)) for row in zip(*named.values(), strict=True)]
        put(file, "\n".join([",".join(named), *lines]))
    return file


def attach(folder, kind):
    """Features, labels and a split of vertices 0 to 8 in files of one kind."""
    order = SHUFFLED if kind in (".csv", ".csv.zst", ".parquet") else np.arange(9)
    words = np.array(WORDS)
    if kind in (".csv", ".csv.zst", ".parquet", "rows.parquet"):
        ids = order if kind != "rows.parquet" else None
        held = {"x": FEATURES[order].T, "y": [LABELS[order]], "s": [words[order]]}
        return [write_rows(folder / f"{n}{kind}", ids, c) for n, c in held.items()]
    if kind == "lists.parquet":
        table = pa.table({"node": order, "embedding": FEATURES.tolist()})
        parquet.write_table(table, folder / "x.parquet")
        rest = attach(folder, "rows.parquet")
        return [folder / "x.parquet", *rest[1:]]
    names = [folder / f"{n}{kind}" for n in "xys"]
    share = {name: np.flatnonzero(words == name) for name in WORDS[:3]}
    if kind == ".pt":
        torch.save(torch.from_numpy(FEATURES), names[0])
        torch.save(torch.from_numpy(LABELS), names[1])
        torch.save({key: torch.from_numpy(words == key).int() for key in share}, names[2])
        return names
    sp.save_npz(folder / "x.npz", sp.csc_matrix(FEATURES))
    np.save(folder / "y.npy", LABELS.astype(np.float64))
    np.savez(folder / "s.npz", **share, seed=np.array(7), about=np.array("drawn by hand"))
    return [folder / "x.npz", folder / "y.npy", folder / "s.npz"]


KINDS = [".csv", ".csv.zst", ".parquet", "rows.parquet", "lists.parquet", ".pt", ".npz"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["csr.npz", "e.csv", "e.parquet"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_what_is_attached_belongs_to_its_vertices(kind, name, in_folder, tmp_path):
    write = {**MATRICES, "e.csv": write_text(","), "e.parquet": write_parquet()}[name]
    write(tmp_path / name, SIMPLE)
    extras = datasets.Extras(*attach(tmp_path, kind), keep_isolated=True)
    if in_folder:
        made = datasets.import_folder(tmp_path / name, tmp_path / "made", extras, scaling="none")
    else:
        made = datasets.import_graph(tmp_path / name, extras)
    dataset = made.dataset
    dense = dataset.features.toarray() if kind == ".npz" else dataset.features
    assert np.array_equal(dense, FEATURES)
    assert np.array_equal(dataset.labels, LABELS)
    for share in WORDS[:3]:
        mask = getattr(dataset, f"{share}_mask")
        assert np.flatnonzero(mask).tolist() == [v for v in range(9) if WORDS[v] == share]
    assert not any("made up" in note for note in dataset.notes)


@pytest.mark.parametrize("kind", [".csv", ".parquet", "rows.parquet"])
def test_rows_of_vertices_that_a_matrix_does_not_have_are_refused(kind, tmp_path):
    small = Drawn(8, SIMPLE.edges)
    MATRICES["csr.npz"](tmp_path / "a.npz", small)
    for extras, words in zip(
        ({"features": 0}, {"labels": 1}, {"split": 2}),
        ("rows", "rows", "names vertices|mask"),
        strict=True,
    ):
        paths = {key: attach(tmp_path, kind)[place] for key, place in extras.items()}
        with pytest.raises(DatasetError, match=words):
            datasets.import_graph(tmp_path / "a.npz", datasets.Extras(**paths))


def test_labels_that_a_file_lacks_are_counted(tmp_path):
    MATRICES["csr.npz"](tmp_path / "a.npz", SIMPLE)
    labels = write_rows(tmp_path / "y.parquet", np.arange(7), [LABELS[:7]])
    made = datasets.import_graph(tmp_path / "a.npz", datasets.Extras(labels=labels)).dataset
    assert made.labels.tolist() == [*LABELS[:7], -1, -1]
    assert "vertices without a line in y.parquet have no label: 2" in made.notes


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"source": [0, None], "target": [1, 2]}, "'source' has an empty cell in row 2"),
        ({"source": [0.0, 1.5], "target": [1, 2]}, "'source' is of double; give whole numbers"),
        ({"source": ["a", "b"], "target": [1, 2]}, "'source' is of string; give whole numbers"),
        ({"source": [0, 1]}, "give an edge of two integer ids"),
        ({"source": [0], "target": [1], "weight": ["x"]}, "'weight' is of string; give numbers"),
        ({"source": [0], "target": [1], "weight": [[1.0, 2.0]]}, "edge weights have shape"),
    ],
)  # fmt: skip
def test_a_parquet_table_of_something_else_is_refused(columns, words, tmp_path):
    parquet.write_table(pa.table(columns), tmp_path / "e.parquet")
    extras = datasets.Extras(weighted="weight" in columns)
    with pytest.raises(DatasetError, match=words):
        datasets.import_graph(tmp_path / "e.parquet", extras)
