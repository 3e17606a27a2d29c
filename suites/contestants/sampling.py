"""Drawing the neighbours of 1,024 fresh seeds, with vertices renumbered: one mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnbench.datasets.dgl_library import load_dgl
from gnnbench.kernels import dispatch
from gnnbench.records import Block, Graph, IntArray
from gnnbench_plugins.dgl.sampler import as_block
from gnnbench_plugins.pyg.sampler import blocks_of
from suites.contestants import Scope
from suites.contestants.libraries import load_torch_sparse
from suites.race import OURS, Case, Contestant, Target, WrongResultError

if TYPE_CHECKING:
    from dgl import DGLGraph

SEEDS = 1024
FANOUTS = ((25, 10), (15, 10, 5))
#: Different batches; a race of more calls starts over.
BATCHES = 32


@dataclass(frozen=True, eq=False)
class Task:
    """Batches of seeds, to be drawn with these fan-outs, the seeds' first."""

    graph: Graph
    fanouts: tuple[int, ...]

    def seeds(self, turn: int) -> IntArray:
        return _draw_seeds(self.graph)[turn % BATCHES]

    def check(self, drawn: Drawn, ours: Drawn) -> None:
        check_drawn(self, drawn)
        if drawn.rule == ours.rule and abs(drawn.num_edges - ours.num_edges) > ours.num_edges / 20:
            raise WrongResultError(
                f"drew {drawn.num_edges:,} edges where ours has {ours.num_edges:,}."
            )


@dataclass(frozen=True, slots=True)
class Drawn:
    """A mini-batch as blocks, input layer first, and when a vertex's neighbours are drawn.

    ``"layer"`` means in every layer in which it is a destination, with that layer's fan-out.
    ``"once"`` means when it is first reached.
    """

    blocks: tuple[Block, ...]
    rule: str = "layer"

    @property
    def num_edges(self) -> int:
        return sum(block.num_edges for block in self.blocks)


# --------------------------------------------------------------------------- contestants


def draw_ours(task: Task) -> Contestant:
    graph, threads = task.graph, torch.get_num_threads()

    def call(turn: int) -> tuple[Block, ...]:
        return dispatch.sample_neighbours(
            graph.indptr,
            graph.indices,
            task.seeds(turn),
            task.fanouts,
            seed=0,
            epoch=turn,
            threads=threads,
        )

    return Contestant(call, Drawn)


def draw_dgl(task: Task, *, fused: bool, ids: torch.dtype = torch.int64) -> Contestant:
    """Prepare DGL's sampler, by default with 64-bit ids.

    With 32-bit ids the fused sampler of DGL 2.1 omits most edges of the outer layers.
    """
    dgl = load_dgl()
    graph = _dgl_graph(task.graph, ids)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(task.fanouts)), fused=fused)

    def call(turn: int) -> Any:
        return sampler.sample_blocks(graph, torch.from_numpy(task.seeds(turn)).to(ids))[2]

    def read(blocks: Any) -> Drawn:
        return Drawn(tuple(as_block(block, block.srcdata[dgl.NID].long()) for block in blocks))

    return Contestant(call, read)


def draw_torch_sparse(task: Task) -> Contestant:
    """Prepare the routine behind PyG's ``NeighborSampler`` without pyg-lib."""
    ops = load_torch_sparse("neighbor_sample")
    indptr = torch.from_numpy(task.graph.indptr)
    indices = torch.from_numpy(task.graph.indices).long()

    def call(turn: int) -> Any:
        seeds = torch.from_numpy(task.seeds(turn))
        return ops.neighbor_sample(indptr, indices, seeds, list(task.fanouts), False, True)

    def read(result: Any) -> Drawn:
        return Drawn(blocks_of(_Output(*result), SEEDS, len(task.fanouts)), "once")

    return Contestant(call, read)


CONTESTANTS: dict[str, Callable[[Task], Contestant]] = {
    OURS: draw_ours,
    "dgl": partial(draw_dgl, fused=False),
    "dgl fused": partial(draw_dgl, fused=True),
    "dgl int32": partial(draw_dgl, fused=False, ids=torch.int32),
    "torch-sparse": draw_torch_sparse,
}
TARGETS = (Target("dgl", 2.0), Target("torch-sparse", 25.0))


def race_cases(scope: Scope) -> Iterator[Case]:
    for name, graph in scope.graphs:
        for fanouts in FANOUTS:
            task = Task(graph, fanouts)
            yield Case(
                "sampling",
                name,
                "fan-outs " + ",".join(map(str, fanouts)),
                {who: partial(make, task) for who, make in CONTESTANTS.items()},
                task.check,
                TARGETS,
            )


# --------------------------------------------------------------------------- checks


def check_drawn(task: Task, drawn: Drawn) -> None:
    """Check that every row has its fan-out or degree of distinct real neighbours."""
    graph, known = task.graph, _edge_keys(task.graph)
    ids = task.seeds(0)
    fanouts = np.empty(0, dtype=np.int64)
    for block, fanout in zip(reversed(drawn.blocks), task.fanouts, strict=True):
        if not np.array_equal(block.dst_ids, ids):
            raise WrongResultError(
                "a block's destinations are not the sources of the next inner one."
            )
        fresh = np.full(block.num_dst - len(fanouts), fanout)
        kept = fanouts if drawn.rule == "once" else np.full_like(fanouts, fanout)
        fanouts = np.concatenate((kept, fresh))
        if not np.array_equal(np.diff(block.indptr), np.minimum(graph.find_degrees(ids), fanouts)):
            raise WrongResultError(
                "a row has more or fewer neighbours than its fan-out and degree say."
            )
        picked = np.repeat(ids, np.diff(block.indptr)) * graph.num_vertices
        picked += block.src_ids[block.indices]
        places = np.searchsorted(known, picked)
        if len(picked) and (places.max() >= len(known) or (known[places] != picked).any()):
            raise WrongResultError("a row has a source that is not its neighbour.")
        if len(np.unique(picked)) != len(picked):
            raise WrongResultError("a row has a neighbour twice.")
        ids = block.src_ids


@lru_cache(maxsize=1)
def _edge_keys(graph: Graph) -> IntArray:
    """Return row x V + column of every edge, ascending."""
    keys = np.repeat(np.arange(graph.num_vertices) * graph.num_vertices, graph.degrees)
    keys += graph.indices
    return keys


# --------------------------------------------------------------------------- inputs


class _Output:
    """The output of torch-sparse, with the names of PyG's ``SamplerOutput``."""

    def __init__(self, node: Any, row: Any, col: Any, edge: Any) -> None:
        self.node, self.row, self.col, self.edge = node, row, col, edge


@lru_cache(maxsize=1)
def _draw_seeds(graph: Graph) -> tuple[IntArray, ...]:
    rng = np.random.default_rng(0)
    return tuple(
        rng.choice(graph.num_vertices, SEEDS, replace=False).astype(np.int64)
        for _ in range(BATCHES)
    )


@lru_cache(maxsize=2)
def _dgl_graph(graph: Graph, ids: torch.dtype) -> DGLGraph:
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)
    csc = (indptr.to(ids), indices.to(ids), torch.empty(0, dtype=ids))
    return load_dgl().graph(("csc", csc), num_nodes=graph.num_vertices)
