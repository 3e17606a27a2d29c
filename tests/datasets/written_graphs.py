"""Graphs written in every format that is read, by other libraries where there is one."""

import bz2
import gzip
import io
import lzma
import pickle
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pyarrow as pa
import scipy.io
import scipy.sparse as sp
import torch
from pyarrow import parquet
from torch_geometric.data import Data

from gnnbench.datasets.dgl_library import load_dgl

PACKERS = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@dataclass(frozen=True)
class Drawn:
    """Edges ``(u, v, weight)`` between vertices 0 to ``count`` - 1."""

    count: int
    edges: tuple

    @property
    def ends(self):
        return np.array([edge[:2] for edge in self.edges], dtype=np.int64).T

    @property
    def weights(self):
        return np.array([edge[2] for edge in self.edges], dtype=np.float64)

    @property
    def matrix(self):
        return sp.coo_matrix((self.weights, tuple(self.ends)), shape=(self.count,) * 2)

    @property
    def networkx(self):
        graph = nx.DiGraph() if len(self.sums(True)) == len(self.edges) else nx.MultiDiGraph()
        graph.add_nodes_from(range(self.count))
        graph.add_weighted_edges_from(self.edges)
        return graph

    def sums(self, loops=False):
        """By their ends, the weights of edges that come several times, added up."""
        found = {}
        for one, other, weight in self.edges:
            if loops or one != other:
                found[one, other] = found.get((one, other), 0) + weight
        return found

    @property
    def loops(self):
        return sum(one == other for one, other, _ in self.edges)

    @property
    def duplicates(self):
        return len(self.edges) - self.loops - len(self.sums())


def put(file, text):
    data = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(PACKERS.get(file.suffix, bytes)(data))


def write_text(
    delimiter, heading=(), quote="", pad="", comment="", first=0, end="\n", order=(0, 1, 2)
):
    """A writer of lists; ``order`` has the columns' places, and a heading their names."""

    def write(file, drawn):
        rows = [(str(u + first), str(v + first), repr(w)) for u, v, w in drawn.edges]
        cells = [*([heading] if heading else []), *([row[at] for at in order] for row in rows)]
        lines = [pad + delimiter.join(f"{quote}{cell}{quote}" for cell in row) for row in cells]
        put(file, end.join([*([comment] if comment else []), *lines]) + end)

    return write


def write_parquet(names=("source", "target", "weight"), kind=np.int64, order=(0, 1, 2), **options):
    """A writer of tables; ``order`` has the columns' places, and ``names`` are in that order."""

    def write(file, drawn):
        held = (*drawn.ends.astype(kind), drawn.weights)
        columns = dict(zip(names, (held[at] for at in order), strict=True))
        parquet.write_table(pa.table(columns), file, write_page_checksum=True, **options)

    return write


def compress(drawn, by_columns=False):
    """The matrix in CSR or CSC, with entries that come twice."""
    rows, columns = drawn.ends[::-1] if by_columns else drawn.ends
    order = np.argsort(rows, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(rows, minlength=drawn.count)))
    kind = sp.csc_matrix if by_columns else sp.csr_matrix
    return kind((drawn.weights[order], columns[order], offsets), shape=(drawn.count,) * 2)


def write_benchmark(file, drawn):
    csr = compress(drawn)
    arrays = {"adj_data": csr.data, "adj_indices": csr.indices, "adj_indptr": csr.indptr}
    np.savez(file, **arrays, adj_shape=csr.shape)


def write_raw(file, drawn):
    """An in-neighbour CSR as it comes, with its weights."""
    held = compress(drawn, by_columns=True)
    arrays = {"indptr": held.indptr, "indices": held.indices, "weights": held.data}
    np.savez(file, **arrays, directed=np.array(True))


def write_data(key, processed=False):
    def write(file, drawn):
        data = Data(edge_index=torch.from_numpy(drawn.ends), num_nodes=drawn.count)
        data[key] = torch.from_numpy(drawn.weights)
        torch.save((data.to_dict(), None, Data) if processed else data, file)

    return write


def write_adjacency(file, drawn):
    entries = torch.sparse_coo_tensor(drawn.ends[::-1].copy(), drawn.weights, (drawn.count,) * 2)
    torch.save(Data(adj_t=entries, num_nodes=drawn.count), file)


def write_dgl(file, drawn):
    dgl = load_dgl()
    graph = dgl.graph(tuple(map(torch.from_numpy, drawn.ends)), num_nodes=drawn.count)
    graph.edata["w"] = torch.from_numpy(drawn.weights)
    dgl.save_graphs(str(file), [graph])


def write_metis(file, drawn):
    """Each edge at both ends, as :func:`mirrored` has it."""
    rows = [[] for _ in range(drawn.count)]
    for one, other, weight in drawn.edges:
        rows[one] += [other + 1, round(weight)]
    lines = [" ".join(map(str, row)) for row in rows]
    put(file, "\n".join([f"{drawn.count} {len(drawn.edges) // 2} 001", *lines]) + "\n")


def mirrored(drawn):
    """The simple graph with every edge both ways, of whole weights."""
    pairs = {(min(u, v), max(u, v)): round(w) for (u, v), w in drawn.sums().items()}
    edges = [(*ends, w) for (u, v), w in pairs.items() for ends in ((u, v), (v, u))]
    return Drawn(drawn.count, tuple(edges))


def write_planetoid(file, drawn):
    graph = {vertex: [v for u, v, _ in drawn.edges if u == vertex] for vertex in range(drawn.count)}
    rows = sp.csr_matrix(np.ones((drawn.count, 3)))
    classes = np.eye(2)[np.arange(drawn.count) % 2]
    last = drawn.count - 1
    parts = {"x": rows[:1], "allx": rows[:last], "tx": rows[last:], "graph": graph}
    parts |= {"y": classes[:1], "ally": classes[:last], "ty": classes[last:]}
    for name, part in parts.items():
        held = pickle.dumps(part, protocol=2)
        file.with_name(f"ind.{file.name.split('.')[1]}.{name}").write_bytes(held)
    file.with_name(f"ind.{file.name.split('.')[1]}.test.index").write_text(f"{last}\n")


def write_ogb(file, drawn):
    raw = file / "raw"
    raw.mkdir(parents=True)
    put(raw / "edge.csv.gz", "".join(f"{u},{v}\n" for u, v, _ in drawn.edges))
    put(raw / "num-node-list.csv.gz", f"{drawn.count}\n")


def mark(write, **options):
    """A writer of NetworkX's, for a name that may be compressed."""

    def write_marked(file, drawn):
        write(drawn.networkx, file, **options)

    return write_marked


#: By name of the file, what writes it: with any edges and weights, and vertices without edges.
MATRICES = {
    "a.mtx": lambda file, drawn: scipy.io.mmwrite(file, drawn.matrix, symmetry="general"),
    "a.mtx.zst": lambda file, drawn: put(file, dump(scipy.io.mmwrite, drawn.matrix)),
    "csr.npz": lambda file, drawn: sp.save_npz(file, compress(drawn)),
    "csc.npz": lambda file, drawn: sp.save_npz(file, compress(drawn, by_columns=True)),
    "coo.npz": lambda file, drawn: sp.save_npz(file, drawn.matrix),
    "shchur.npz": write_benchmark,
    "raw.npz": write_raw,
    "a.mat": lambda file, drawn: scipy.io.savemat(file, {"A": compress(drawn, by_columns=True)}),
    "problem.mat": lambda file, drawn: scipy.io.savemat(
        file, {"Problem": {"A": compress(drawn, by_columns=True)}}, do_compression=True
    ),
}  # fmt: skip
GRAPHS = {
    "data.pt": write_data("edge_weight"),
    "attributes.pt": write_data("edge_attr"),
    "processed.pt": write_data("edge_weight", processed=True),
    "adjacency.pt": write_adjacency,
    "a.bin": write_dgl,
    "a.graphml": mark(nx.write_graphml),
    "a.graphml.gz": mark(nx.write_graphml),
    "a.gexf": mark(nx.write_gexf),
    "a.gml": mark(nx.write_gml),
}
#: Which have no weights.
PAIRS = {
    "index.npy": lambda file, drawn: np.save(file, drawn.ends),
    "index.pt": lambda file, drawn: torch.save(torch.from_numpy(drawn.ends), file),
    "ind.small.graph": write_planetoid,
    "ogb": write_ogb,
}


def dump(write, *given):
    """What a library writes to a file, as bytes."""
    stream = io.BytesIO()
    write(stream, *given)
    return stream.getvalue()
