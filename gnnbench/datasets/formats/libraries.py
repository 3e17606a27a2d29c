"""Graphs that PyTorch Geometric and DGL have saved."""

from __future__ import annotations

from pathlib import Path

from gnnbench.datasets import dgl_library
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.objects import read_dgl, read_pyg
from gnnbench.datasets.raw import RawGraph
from gnnbench.errors import DatasetError, reason_of
from gnnbench.files import FileRefused, open_input

#: What a file of ``dgl.save_graphs`` begins with.
_DGL_BEGINS = (0xDD2E4FF046B4A13F).to_bytes(8, "little")


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
    try:
        with open_input(file) as stream:
            begins = stream.read(len(_DGL_BEGINS))
    except FileRefused as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a graph.") from error
    if begins != _DGL_BEGINS:
        raise DatasetError(
            f"{file}: this is not a file of dgl.save_graphs; give one, or a graph of another "
            f"format under its own ending."
        )
    check_memory(str(file), "its graph", 4 * file.stat().st_size)
    dgl = dgl_library.load_dgl()
    try:
        graphs, _ = dgl.load_graphs(str(file))
    except Exception as error:  # whatever a damaged file makes DGL raise
        raise DatasetError(
            f"{file}: DGL does not read it ({reason_of(error)}); save it with dgl.save_graphs."
        ) from error
    if len(graphs) != 1:
        raise DatasetError(f"{file}: it holds {len(graphs):,} graphs; save a single one.")
    return read_dgl(graphs[0], str(file), origin=f"imported from {file.name}", weighted=weighted)
