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
from gnnbench.datasets.texts import strip_compression
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
    or ``edges``, a text of edges or a Parquet table.

    Raises :class:`DatasetError` for a folder of another kind.
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
    return _ENDINGS.get(strip_compression(file).suffix.lower(), "edges")
