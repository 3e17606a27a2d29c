"""Graphs that PyTorch Geometric and DGL have saved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from gnnbench.datasets import dgl_library
from gnnbench.datasets.formats.apart import read_apart
from gnnbench.datasets.objects import DGLGraph, read_dgl, read_pyg
from gnnbench.datasets.raw import RawGraph
from gnnbench.errors import DatasetError


def read_data(file: Path, held: object, *, weighted: bool) -> RawGraph:
    """Read a ``Data`` of PyG, or what its ``InMemoryDataset`` keeps: ``(data, slices, class)``."""
    if isinstance(held, tuple) and held and len(held) <= 3:
        if len(held) > 1 and held[1]:
            raise DatasetError(f"{file}: it holds several graphs; save a single one.")
        held = held[0]
    if isinstance(held, dict) and not {"edge_index", "adj_t"}.isdisjoint(held):
        from torch_geometric.data import Data

        held = Data.from_dict(held)
    if not hasattr(held, "edge_index"):
        raise DatasetError(
            f"{file}: it holds a {type(held).__name__}; save a tensor of shape (2, E), or one "
            f"homogeneous Data of PyTorch Geometric."
        )
    where = str(file)
    return read_pyg(held, where, origin=f"imported from {file.name}", weighted=weighted)


def read_dgl_file(file: Path, *, weighted: bool) -> RawGraph:
    """Read the only graph of a file of ``dgl.save_graphs``."""
    dgl_library.find_dgl()
    held = read_apart("dgl", file)
    ndata, edata = (
        {name[2:]: each for name, each in held.items() if name.startswith(kind)}
        for kind in ("n/", "e/")
    )
    saved = SimpleNamespace(
        is_homogeneous=True,
        ndata=ndata,
        edata=edata,
        num_nodes=lambda: int(held["count"]),
        edges=lambda: (held["source"], held["target"]),
    )
    graph = cast("DGLGraph", saved)
    return read_dgl(graph, str(file), origin=f"imported from {file.name}", weighted=weighted)
