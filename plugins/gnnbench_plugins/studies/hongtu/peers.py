"""HongTu's peers in its Tables 5, 6 and 7, predicted by the parts that stand for them.

The ledger of others' measurements has these cells. Where the paper ran out of memory, the same
epoch is asked for and has to be refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal

from gnnbench.constants import Bound, Constant
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.records import Cell
from gnnbench_plugins.studies.hongtu.quoted import PARTITIONS, PaperGraph
from gnnbench_plugins.studies.validation.groups import list_fits
from gnnbench_plugins.studies.validation.prediction import predict, predict_epoch_s
from gnnbench_plugins.studies.validation.published import (
    FullGraphEpoch,
    PublishedCell,
    read_sources,
)

OVERFLOW = "out of memory"
#: Where the peers' cells count.
IN_LEDGER = "counted in validation"
#: Where the paper ran its peers, the kernel that stands for theirs, and the ledger's word for them.
MACHINES: Mapping[str, tuple[str, str, Literal["library", "sancus", "distgnn"]]] = {
    "Sancus": ("epyc7543x4-4xa100", "torch", "sancus"),
    "DGL": ("epyc7543x4-4xa100", "dgl", "library"),
    "DistGNN": ("ecs-r5x16", "dgl", "distgnn"),
}
NODES: Annotated[int, Constant("", "quoted", "HongTu, section 7.1")] = 16
#: The share of a graph, on as large a share of the memories, that is asked for.
SCALE: Bound[float] = 0.01

PEERS_NOTE = (
    "peers are the ledger's (`reproduce validation`), on the machines that the paper names. Where "
    "the paper ran out of memory, the same epoch is gone through on a hundredth of the graph and "
    "of the memories. DistDGL's out of memory, and its 8 layers, are quoted alone: their "
    "mini-batches are as large as the graph"
)


@cache
def _find_published(identity: str) -> PublishedCell | None:
    """Return the ledger's cell, or None where it has none of that id."""
    cells = (cell for source in read_sources() for cell in source.cell)
    return next((cell for cell in cells if cell.id == identity), None)


def predict_peer(
    table: str, system: str, model: str, graph: PaperGraph, layers: int, quoted: float | None
) -> Cell:
    """Predict a peer's cell beside the paper's; ``table`` is ``"t5"``, ``"t6"`` or ``"t7"``."""
    ending = {"t5": "", "t6": f"-{PARTITIONS}g", "t7": f"-{NODES}n"}[table]
    name = f"{system}-{model}-{graph.label}-{layers}l".lower()
    if quoted is not None:
        cell = _find_published(f"hongtu-{table}-{name}{ending}")
        if cell is None:
            return Cell(quoted, "s", "quoted")
        return Cell(
            predict(cell), "s", quoted=quoted, fitted_on=list_fits(cell), uncounted=IN_LEDGER
        )
    if system not in MACHINES:
        return Cell(provenance="quoted", text=OVERFLOW)
    return _predict_overflow(system, model, graph, layers)


@cache
def _predict_overflow(system: str, model: str, graph: PaperGraph, layers: int) -> Cell:
    """Return words where memory is full, as in the paper, and else a time."""
    machine, kernel, known_as = MACHINES[system]
    task = FullGraphEpoch(
        graph=graph.name,
        model=model,
        dims=graph.dims(layers),
        vertices=graph.vertices,
        edges=graph.edges,
        system=known_as,
        devices={"Sancus": PARTITIONS, "DGL": 1, "DistGNN": NODES}[system],
        replication=graph.replication(NODES) if system == "DistGNN" else 1.0,
        scale=SCALE,
    )
    try:
        return Cell(predict_epoch_s(machine, kernel, task), "s", quoted_text=OVERFLOW)
    except DeviceOutOfMemoryError:
        return Cell(text=OVERFLOW, quoted_text=OVERFLOW)
