"""Which format a file has, by its ending, what it begins with, and what its archive holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.formats.folders import find_ogb, find_planetoid, read_ogb, read_planetoid
from gnnbench.datasets.formats.graph_files import read_markup, read_metis
from gnnbench.datasets.formats.libraries import read_dgl_file
from gnnbench.datasets.formats.matrices import (
    holds_benchmark,
    read_benchmark,
    read_matlab,
    read_matrix_market,
    read_scipy_graph,
)
from gnnbench.datasets.raw import RawGraph
from gnnbench.datasets.scipy_files import holds_scipy
from gnnbench.datasets.texts import open_text, readable, strip_compression
from gnnbench.errors import DatasetError

#: By ending, the format of a file. Texts among them may be compressed.
_ENDINGS = {
    ".mtx": "matrix-market",
    ".graphml": "markup",
    ".gexf": "markup",
    ".gml": "markup",
    ".graph": "metis",
    ".metis": "metis",
    ".mat": "matlab",
    ".npy": "array",
    ".pt": "torch",
    ".bin": "dgl",
}
#: By what files begin with, what they are and how their names end: none of them is an edge list.
_BEGINNINGS = {
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a zip archive (.npz or .pt)",
    b"\x1f\x8b": "compressed by gzip (.gz)",
    b"BZh": "compressed by bzip2 (.bz2)",
    b"\xfd7zXZ": "compressed by xz (.xz)",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard, which is not read; compress it by gzip (.gz)",
    b"PAR1": "a Parquet table, which is not read; write it as CSV",
    b"\x89HDF": "an HDF5 file, which is not read; write it as CSV",
    b"MATLAB": "a MATLAB file (.mat)",
    b"%%MatrixMarket": "a Matrix Market file (.mtx)",
    b"<?xml": "an XML file (.graphml or .gexf)",
    b"<graphml": "a GraphML file (.graphml)",
    b"\x80": "a pickle, which is not read since it could run code; write it as .npz",
    b"{": "JSON, which is not read; write it as an edge list",
    b"[": "JSON, which is not read; write it as an edge list",
}


def _planetoid(file: Path, *, weighted: bool) -> RawGraph:
    found = find_planetoid(file)
    assert found is not None
    return read_planetoid(*found, weighted=weighted)


def _ogb(file: Path, *, weighted: bool) -> RawGraph:
    home = find_ogb(file)
    assert home is not None
    return read_ogb(home, weighted=weighted)


#: By format, what reads it whole. Others are read by :mod:`gnnbench.datasets.imports`.
READERS: dict[str, Callable[..., RawGraph]] = {
    "matrix-market": read_matrix_market,
    "markup": read_markup,
    "metis": read_metis,
    "matlab": read_matlab,
    "dgl": read_dgl_file,
    "scipy": read_scipy_graph,
    "benchmark": read_benchmark,
    "planetoid": _planetoid,
    "ogb": _ogb,
}


#: By format, what a file of it is called.
DESCRIPTIONS = {
    "matrix-market": "an adjacency matrix in Matrix Market's coordinates (.mtx)",
    "markup": "a graph as NetworkX reads it (.graphml, .gexf, .gml)",
    "metis": "a graph as METIS writes it (.graph, .metis)",
    "matlab": "an adjacency matrix of MATLAB (.mat)",
    "dgl": "a graph of dgl.save_graphs (.bin)",
    "scipy": "an adjacency matrix of scipy.sparse.save_npz: it has format, shape and data",
    "benchmark": "a graph of shchur/gnn-benchmark: it has adj_data and others",
    "planetoid": "a dataset of planetoid: there is ind.NAME.graph",
    "ogb": "a dataset of OGB: there is raw/edge.csv",
    "gnnbench": "a graph of gnnbench (.npz): it has indptr and indices",
    "array": "an array of edges (.npy)",
    "torch": "tensors or a graph of PyTorch Geometric (.pt)",
    "edges": "a text of edges",
}


def recognise(file: Path) -> str:
    """Return the format of ``file``: one of :data:`READERS`, or ``gnnbench``, ``array``, ``torch``,
    or ``edges``, a text of edges.

    Raises :class:`DatasetError` for a folder of another kind, and for a file that is known to be
    something else than its ending says.
    """
    if find_ogb(file) is not None:
        return "ogb"
    if find_planetoid(file) is not None:
        return "planetoid"
    if os.path.isdir(file):
        raise DatasetError(
            f"{file}: this folder holds neither one planetoid dataset (ind.NAME.*) nor one of OGB "
            f"(raw/edge.csv.gz); give the path of a graph to import."
        )
    if file.suffix == ".npz":
        with Archive(file) as archive:
            names = archive.names
        if holds_benchmark(names):
            return "benchmark"
        return "scipy" if holds_scipy(names) else "gnnbench"
    found = _ENDINGS.get(strip_compression(file).suffix.lower(), "edges")
    if found == "edges":
        _refuse_others(file)
    return found


def _refuse_others(file: Path) -> None:
    """Refuse what is no text of edges, and say what it is."""
    with readable(file), open_text(file) as stream:
        begins = stream.read(16).removeprefix(b"\xef\xbb\xbf").lstrip()
    for beginning, what in _BEGINNINGS.items():
        if begins.startswith(beginning):
            raise DatasetError(
                f"{file}: this is {what}, not an edge list; give it under the ending of its format."
            )
