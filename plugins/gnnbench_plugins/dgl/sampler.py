"""DGL's own neighbour sampler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from gnnbench.datasets.dgl_library import load_dgl
from gnnbench.machines.costs import Library, read_library
from gnnbench.parts import UNIFORM, MiniBatchSampler, Setting, option
from gnnbench.records import Block, IntArray, Loading
from gnnbench_plugins.dgl.kernel import LIBRARY
from gnnbench_plugins.reference.loader import LoaderOptions
from gnnbench_plugins.reference.sampler import draw_neighbours

if TYPE_CHECKING:
    from dgl import DGLGraph
    from dgl.dataloading import NeighborSampler


def as_block(drawn: DGLGraph, source_ids: torch.Tensor) -> Block:
    """Convert a DGL block, which lists its destinations first among its sources."""
    indptr, indices, _ = drawn.adj_tensors("csc")
    return Block(
        src_ids=source_ids.numpy(),
        num_dst=drawn.num_dst_nodes(),
        indptr=indptr.numpy(),
        indices=indices.numpy().astype(np.int32),
    )


@dataclass
class DGLSampler(LoaderOptions, MiniBatchSampler):
    """``dgl.dataloading.NeighborSampler``, seeded for every batch.

    The seed comes from the workload's seed, the epoch and the batch's first vertex, which is unique
    in the epoch.

    The draws depend on the whole batch, so they are not split-invariant.
    """

    name: ClassVar[str] = "dgl"
    summary: ClassVar[str] = "Deep Graph Library's NeighborSampler"
    law: ClassVar[str] = UNIFORM
    split_invariant: ClassVar[bool] = False
    library: ClassVar[Library] = read_library(LIBRARY)
    loading: ClassVar[Loading] = "staged"

    repeatable: bool = option(True, "draw on one thread, so that every run draws the same")

    _graph: DGLGraph = field(init=False, repr=False, compare=False)
    _drawer: NeighborSampler = field(init=False, repr=False, compare=False)

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        dgl = load_dgl()
        graph = setting.dataset.graph
        csc = (torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices).long())
        self._graph = dgl.graph(
            ("csc", (*csc, torch.empty(0, dtype=torch.int64))), num_nodes=graph.num_vertices
        )
        # Our fan-outs run from the seeds outwards with 0 for every neighbour; DGL's run inwards
        # with -1.
        fanouts = [fanout or -1 for fanout in reversed(setting.workload.fanouts)]
        self._drawer = dgl.dataloading.NeighborSampler(fanouts, fused=False)

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        dgl = load_dgl()
        key = np.random.SeedSequence((self._setting.workload.seed, epoch, *seeds[:1].tolist()))
        with one_thread() if self.repeatable else nullcontext():
            dgl.seed(int(key.generate_state(1)[0]) & 0x7FFFFFFF)
            drawn = self._drawer.sample_blocks(self._graph, torch.from_numpy(seeds))[2]
        return tuple(as_block(block, block.srcdata[dgl.NID]) for block in drawn)

    def notes(self) -> tuple[str, ...]:
        if not self.repeatable:
            return ("DGL's draws differ from run to run.",)
        return (
            "DGL drew the neighbours on one thread: with more, its draws differ from run to run.",
        )


@dataclass
class DGLLoader(LoaderOptions, MiniBatchSampler):
    """Mini-batches of gnnbench's own draws, at what DGL's loader takes for them.

    The draws do not depend on how a round is split, so that several devices may share it.
    """

    name: ClassVar[str] = "dgl-loader"
    summary: ClassVar[str] = "gnnbench's neighbour sampling, priced as DGL's loader"
    law: ClassVar[str] = UNIFORM
    library: ClassVar[Library] = DGLSampler.library
    loading: ClassVar[Loading] = "staged"

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        return draw_neighbours(self._setting, seeds, epoch, threads)

    def notes(self) -> tuple[str, ...]:
        return (
            "gnnbench's own sampler drew the neighbours; modelled times are those of DGL's loader.",
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run DGL on one thread in the body, then restore the thread count, which torch shares.

    Each DGL thread has its own generator, seeded by the order in which threads started.
    """
    threads = load_dgl().utils
    before = threads.get_num_threads()
    threads.set_num_threads(1)
    try:
        yield
    finally:
        threads.set_num_threads(before)
