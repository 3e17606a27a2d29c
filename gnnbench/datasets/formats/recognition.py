"""Which format a file has, by its ending, what it begins with, and what its archive holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.content import choose_weights
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
from gnnbench.datasets.npz import read_npz
from gnnbench.datasets.raw import RawGraph
from gnnbench.datasets.scipy_files import holds_scipy
from gnnbench.datasets.texts import strip_compression
from gnnbench.errors import DatasetError


def _planetoid(file: Path, *, weighted: bool) -> RawGraph:
    found = find_planetoid(file)
    assert found is not None
    return read_planetoid(*found, weighted=weighted)


def _ogb(file: Path, *, weighted: bool) -> RawGraph:
    home = find_ogb(file)
    assert home is not None
    return read_ogb(home, weighted=weighted)


def _stored(file: Path, *, weighted: bool) -> RawGraph:
    found = read_npz(file)
    if weighted:
        choose_weights(str(file), found.weights, weighted=True)
    return found


@dataclass(frozen=True, slots=True)
class Format:
    """What a file of a format is called, what reads it whole, and how its name ends.

    Files without a reader are read by :mod:`gnnbench.datasets.imports`; texts may be compressed.
    """

    description: str
    read: Callable[..., RawGraph] | None = None
    endings: tuple[str, ...] = ()


FORMATS = {
    "matrix-market": Format(
        "an adjacency matrix in Matrix Market's coordinates (.mtx)", read_matrix_market, (".mtx",)
    ),
    "markup": Format(
        "a graph as NetworkX reads it (.graphml, .gexf, .gml)",
        *(read_markup, (".graphml", ".gexf", ".gml")),
    ),
    "metis": Format(
        "a graph as METIS writes it (.graph, .metis)", read_metis, (".graph", ".metis")
    ),
    "matlab": Format("an adjacency matrix of MATLAB (.mat)", read_matlab, (".mat",)),
    "dgl": Format("a graph of dgl.save_graphs (.bin)", read_dgl_file, (".bin",)),
    "scipy": Format(
        "an adjacency matrix of scipy.sparse.save_npz: it has format, shape and data",
        read_scipy_graph,
    ),
    "benchmark": Format(
        "a graph of shchur/gnn-benchmark: it has adj_data and others", read_benchmark
    ),
    "planetoid": Format("a dataset of planetoid: there is ind.NAME.graph", _planetoid),
    "ogb": Format("a dataset of OGB: there is raw/edge.csv", _ogb),
    "gnnbench": Format("a graph of gnnbench (.npz): it has indptr and indices", _stored),
    "array": Format("an array of edges (.npy)", endings=(".npy",)),
    "torch": Format("tensors or a graph of PyTorch Geometric (.pt)", endings=(".pt",)),
    "edges": Format("a text of edges"),
}


def recognise(file: Path) -> str:
    """Return the format of ``file``, by its ending and by the contents of its folder or archive.

    ``edges`` is a text of edges or a Parquet table. Raises :class:`DatasetError` for a folder of
    another kind.
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
    ending = strip_compression(file).suffix.lower()
    return next((name for name, each in FORMATS.items() if ending in each.endings), "edges")
