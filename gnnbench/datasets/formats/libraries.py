"""Graphs that PyTorch Geometric and DGL have saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnbench.datasets import dgl_library
from gnnbench.datasets.formats.apart import read_apart
from gnnbench.datasets.objects import HeteroFrame, read_dgl, read_pyg
from gnnbench.datasets.raw import RawGraph
from gnnbench.datasets.topology import AnyArray
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


@dataclass(slots=True)
class _Saved:
    """A graph as DGL has saved it: one of :class:`gnnbench.datasets.objects.DGLGraph`."""

    count: int
    ends: tuple[AnyArray, AnyArray]
    ndata: HeteroFrame
    edata: HeteroFrame
    is_homogeneous: bool = True

    def num_nodes(self) -> int:
        return self.count

    def edges(self) -> tuple[AnyArray, AnyArray]:
        return self.ends


def read_dgl_file(file: Path, *, weighted: bool) -> RawGraph:
    """Read the only graph of a file of ``dgl.save_graphs``."""
    dgl_library.find_dgl()
    held = read_apart("dgl", file)
    ndata, edata = (
        {name[2:]: each for name, each in held.items() if name.startswith(kind)}
        for kind in ("n/", "e/")
    )
    graph = _Saved(int(held["count"]), (held["source"], held["target"]), ndata, edata)
    return read_dgl(graph, str(file), origin=f"imported from {file.name}", weighted=weighted)
