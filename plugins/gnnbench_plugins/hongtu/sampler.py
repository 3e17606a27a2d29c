"""Two-level partitioning into chunks, and their order: HongTu §4.1 and Algorithm 4."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gnnbench.kernels.dispatch import induce_block
from gnnbench.parts import FullGraphSampler, Setting, option
from gnnbench.records import Block, Graph, IntArray, Round, Unit
from gnnbench_plugins.hongtu.volumes import Throughputs, cost_s, count_volumes, reorganise


def partition_metis(graph: Graph, parts: int, seed: int) -> IntArray:
    """METIS edge-cut partition, int64 ``(V,)``; everything is part 0 when one part is asked for."""
    if parts == 1 or graph.num_vertices < parts:
        return np.arange(graph.num_vertices, dtype=np.int64) % parts
    import pymetis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _, membership = pymetis.part_graph(
            parts,
            xadj=graph.indptr,
            adjncy=graph.indices,
            options=pymetis.Options(seed=seed),
        )
    return np.asarray(membership, dtype=np.int64)


def cut_ranges(graph: Graph, members: IntArray, chunks: int) -> list[IntArray]:
    """Consecutive ranges of ``members`` with about equal numbers of in-edges; some may be empty."""
    weight = np.cumsum(graph.degrees[members] + 1)
    total = int(weight[-1]) if len(weight) else 0
    cuts = np.searchsorted(weight, [total * c // chunks for c in range(1, chunks)], side="right")
    return np.split(members, cuts)


@dataclass
class HongTuSampler(FullGraphSampler):
    """m partitions by METIS, each cut into n chunks of consecutive vertices with balanced edges.

    With ``reorganise`` the chunks are regrouped into batches by Algorithm 4, when Equation 4 says
    that it pays: the greedy order can be worse than the one it started from.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "two-level partition: METIS, then ranges of balanced edges"

    chunks_per_partition: int = option(4, "n: chunks that each device works through")
    reorganise: bool = option(True, "regroup chunks into batches by Algorithm 4")

    _owner: IntArray = field(
        default_factory=lambda: np.empty(0, dtype=np.int64), init=False, repr=False
    )
    _note: str = field(default="", init=False, repr=False)

    def refuses(self, bundle: object, setting: Setting) -> str | None:
        if self.chunks_per_partition < 1:
            return (
                f"sampler.chunks_per_partition is {self.chunks_per_partition}; "
                f"give each partition at least 1 chunk."
            )
        return None

    def chunks(self, setting: Setting, num_slots: int) -> tuple[Round, ...]:
        graph, n = setting.dataset.graph, self.chunks_per_partition
        self._owner = partition_metis(graph, num_slots, setting.workload.seed)
        blocks: list[list[Block]] = []
        for slot in range(num_slots):
            members = np.flatnonzero(self._owner == slot).astype(np.int64)
            blocks.append(
                [
                    induce_block(graph.indptr, graph.indices, part)
                    for part in cut_ranges(graph, members, n)
                ]
            )
        order = [list(range(n)) for _ in range(num_slots)]
        if self.reorganise and n > 1:
            order = self._reorganise(setting, blocks, order)
        return tuple(
            Round(j, tuple(Unit(i, (blocks[i][order[i][j]],)) for i in range(num_slots)))
            for j in range(n)
        )

    def _reorganise(
        self, setting: Setting, blocks: list[list[Block]], order: list[list[int]]
    ) -> list[list[int]]:
        count = setting.dataset.graph.num_vertices
        sets = [[np.sort(block.src_ids) for block in row] for row in blocks]
        rates = throughputs(setting)
        found = reorganise(sets, count)
        moved = [[row[k] for k in found[i]] for i, row in enumerate(sets)]
        before = cost_s(count_volumes(sets, count), rates)
        after = cost_s(count_volumes(moved, count), rates)
        if after < before:
            gain = 100 * (1 - after / before)
            self._note = f"Algorithm 4 lowered the cost of Equation 4 by {gain:.2g} %"
            return found
        if after == before:
            return order
        self._note = (
            f"Algorithm 4's order would cost {100 * (after / before - 1):.2g} % more "
            f"by Equation 4, so the range order was kept"
        )
        return order

    def owner(self) -> IntArray:
        return self._owner

    def notes(self) -> tuple[str, ...]:
        return (self._note,) if self._note else ()


def throughputs(setting: Setting) -> Throughputs:
    """T_hd, T_dd and T_ru of the platform, in rows of the input features per second."""
    platform = setting.platform
    row = setting.dataset.num_features * setting.workload.itemsize
    if not platform.accelerators:
        memory = platform.host.memory_bandwidth_bytes_per_s / row
        return Throughputs(memory, memory, memory)
    first = platform.accelerators[0]
    host = platform.link(platform.host.name, first.name).bandwidth_bytes_per_s
    peers = host
    if len(platform.accelerators) > 1:
        peers = platform.link(first.name, platform.accelerators[1].name).bandwidth_bytes_per_s
    return Throughputs(host / row, peers / row, first.memory_bandwidth_bytes_per_s / row)
