"""Two-level partitioning into chunks, and their order: HongTu §4.1 and §5.3."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gnnbench.constants import Bound
from gnnbench.datasets.partitioning import choose_partitioner, cut_ranges, partition
from gnnbench.kernels.dispatch import edge_cut, induce_block
from gnnbench.parts import Chunks, DeviceCapacity, FullGraphSampler, Setting, option
from gnnbench.records import Block, Graph, IntArray, Round, Unit
from gnnbench.units import format_si
from gnnbench_plugins.hongtu.search import MAX_SWEEPS, bound_sweeps, descend
from gnnbench_plugins.hongtu.volumes import (
    NeighbourSets,
    Order,
    Throughputs,
    cost_s,
    mark_chunks,
    regroup,
    volumes_of,
)

#: Limit of ``chunks_per_partition = 0``; HongTu's Table 3 ends at 512 chunks in all.
MOST_CHUNKS: Bound[int] = 1024
#: The local search looks at every pair of batches; this many take a few seconds.
SEARCHED_CHUNKS: Bound[int] = 256


@dataclass(frozen=True)
class TwoLevelPartition:
    """The options of samplers that cut m partitions into n chunks each, and the cut."""

    chunks_per_partition: int
    search: Literal["none", "greedy", "local", "full"] = option(
        "local",
        "batches of chunks: ranges as cut, Algorithm 4, after it a local search that is bounded, "
        "or one that goes on until no move helps",
    )
    partitioner: Literal["auto", "metis", "ldg", "fennel", "range"] = option(
        "auto",
        "how vertices go to devices; auto is metis, or ldg above 20 M stored edges, or above 1 M "
        "where most would be cut anyway",
        tried=("auto", "range"),
    )

    def refuses(self, bundle: object, setting: Setting) -> str | None:
        if self.chunks_per_partition < 0:
            return (
                f"sampler.chunks_per_partition is {self.chunks_per_partition}; "
                f"give each partition at least 1 chunk, or 0 for the least that fit."
            )
        most = max(setting.dataset.graph.num_vertices, MOST_CHUNKS)
        if self.chunks_per_partition > most:
            return (
                f"sampler.chunks_per_partition is {self.chunks_per_partition:,}, and graph "
                f"{setting.dataset.name} has {setting.dataset.graph.num_vertices:,} vertices; give "
                f"at most {most:,}, or 0 for the least that fit."
            )
        return None

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        graph = setting.dataset.graph
        named = choose_partitioner(graph) if self.partitioner == "auto" else self.partitioner
        owner = partition(graph, num_slots, named, setting.workload.seed)

        def holds(rounds: tuple[Round, ...]) -> bool:
            """Return whether the devices can hold the chunks, if their capacity is known."""
            return capacity is None or capacity.holds(rounds, owner)

        members = [np.flatnonzero(owner == slot) for slot in range(num_slots)]
        n = self.chunks_per_partition or find_least_chunks(graph, members, holds)
        blocks = cut_blocks(graph, members, n, setting.keep)
        sets = read_sets(blocks)
        notes = [describe_partition(graph, owner, named, sets)]
        order = [list(range(n)) for _ in range(num_slots)]
        as_cut = group(blocks, order)
        if not self.chunks_per_partition:
            notes.append(describe_least(as_cut, capacity, fits=holds(as_cut)))
        best, why = self._reorganise(setting, sets, order)
        rounds = group(blocks, best)
        notes += why
        # Rows fetched for peers depend on the order, and so does a device's memory.
        if not self.chunks_per_partition and holds(as_cut) and not holds(rounds):
            notes.append("in that order chunks would not fit, so the range order was kept")
            rounds = as_cut
        return Chunks(rounds, owner, tuple(notes))

    def _reorganise(
        self, setting: Setting, sets: NeighbourSets, order: Order
    ) -> tuple[Order, tuple[str, ...]]:
        """Return the cheapest order found, and the cost of each candidate."""
        n, count = len(sets[0]), setting.dataset.graph.num_vertices
        if self.search == "none" or n == 1:
            return order, ()
        rates = throughputs(setting)

        marks = mark_chunks(sets, count)

        def price(candidate: Order) -> float:
            return cost_s(volumes_of(marks, candidate), rates)

        best, cost = order, price(order)
        stages = [("range order", cost)]
        candidate = regroup(marks)
        stages.append(("Algorithm 4", price(candidate)))
        if stages[-1][1] < cost:
            best, cost = candidate, stages[-1][1]
        if self.search in ("local", "full") and n <= SEARCHED_CHUNKS:
            sweeps = MAX_SWEEPS if self.search == "full" else bound_sweeps(marks)
            candidate = descend(marks, best, rates, sweeps)
            stages.append(("local search", price(candidate)))
            if stages[-1][1] < cost:
                best, cost = candidate, stages[-1][1]
        told = ", ".join(f"{name} {format_si(seconds, 's')}" for name, seconds in stages)
        kept = next(name for name, seconds in stages if seconds == cost)
        return best, (f"Equation 4: {told} a layer; kept: {kept}",)


@dataclass(frozen=True)
class HongTuSampler(TwoLevelPartition, FullGraphSampler):
    """A sampler that cuts m partitions, with few edges between them, into n chunks each.

    Chunks are consecutive vertices with balanced edges, regrouped into batches so that Equation 4
    costs least. Two orders are candidates: the ranges', and Algorithm 4's, which is greedy and can
    be worse. The cheaper one is kept, and a local search continues from it.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "two-level partition: METIS, then ranges of balanced edges"

    chunks_per_partition: int = option(
        4,
        "n: chunks that each device works through; 0 = the least that fit its memory",
        tried=(0, 1, 2, 4, 8, 16),
    )


@dataclass(frozen=True)
class WholePartitionSampler(TwoLevelPartition, FullGraphSampler):
    """A one-level partition, unless more chunks are asked for.

    HongTu-IM (§7.1) holds a whole partition on its device anyway, and chunks would only read some
    rows twice.
    """

    name: ClassVar[str] = "hongtu-im"
    summary: ClassVar[str] = "one-level partition: a chunk a device, few edges between them"

    chunks_per_partition: int = option(
        1,
        "n: chunks that each device works through; 0 = the least that fit its memory",
        tried=(1, 2, 4),
    )


def find_least_chunks(
    graph: Graph, members: list[IntArray], holds: Callable[[tuple[Round, ...]], bool]
) -> int:
    """Return the least n that makes chunks fit in the ranges' order: by doubling, then bisection.

    One chunk less does not fit; far fewer might, if chunks happen to be even. If none fits, the
    result is ``MOST_CHUNKS``, or the number of vertices of the largest partition.
    """
    most = max(1, min(max(len(ids) for ids in members), MOST_CHUNKS))

    def fits(n: int) -> bool:
        order = [list(range(n)) for _ in members]
        return holds(group(cut_blocks(graph, members, n), order))

    too_few, n = 0, 1
    while not fits(n):
        if n == most:
            return most
        too_few, n = n, min(2 * n, most)
    while n - too_few > 1:
        middle = (n + too_few) // 2
        if fits(middle):
            n = middle
        else:
            too_few = middle
    return n


def describe_least(
    rounds: tuple[Round, ...], capacity: DeviceCapacity | None, *, fits: bool
) -> str:
    """Describe the number of chunks that were cut, and whether they fit."""
    n, m = len(rounds), len(rounds[0].units)
    what = f"{m} partition{'s' * (m > 1)} of {n} chunk{'s' * (n > 1)}"
    if capacity is None:
        return f"{what}: nothing is known of the devices' memories"
    size = format_si(capacity.device_bytes, "B")
    if fits:
        return f"{what}: the least that fit {size} a device"
    return f"{what} do not fit {size} a device, and are the most that are tried"


def describe_partition(graph: Graph, owner: IntArray, partitioner: str, sets: NeighbourSets) -> str:
    """Describe edge cut and replication factor, the average number of chunks that read a vertex.

    The factor is defined in §2.4.
    """
    cut = edge_cut(graph.indptr, graph.indices, owner.astype(np.int32))
    read = sum(len(ids) for row in sets for ids in row)
    n = len(sets[0])
    made = (
        f"{partitioner} partitions cut {100 * cut / max(graph.num_edges, 1):.2g} % of the edges"
        if len(sets) > 1
        else "1 partition"
    )
    return (
        f"{made}; with {n} chunk{'s' * (n > 1)} each the replication factor is "
        f"{read / max(graph.num_vertices, 1):.2f}"
    )


def cut_blocks(
    graph: Graph,
    members: list[IntArray],
    chunks: int,
    keep: Callable[[Block], Block] = lambda block: block,
) -> list[list[Block]]:
    """Cut the second level: ``chunks`` blocks of each partition, each filtered by ``keep``."""
    return [
        [
            keep(induce_block(graph.indptr, graph.indices, part))
            for part in cut_ranges(graph, ids, chunks)
        ]
        for ids in members
    ]


def read_sets(blocks: list[list[Block]]) -> NeighbourSets:
    """Return N_ij of every chunk: the vertices that it reads, its own among them."""
    return [[block.src_ids for block in row] for row in blocks]


def group(blocks: list[list[Block]], order: Order) -> tuple[Round, ...]:
    """Return the batches that an order makes of chunks."""
    return tuple(
        Round(j, tuple(Unit(i, (row[order[i][j]],)) for i, row in enumerate(blocks)))
        for j in range(len(order[0]))
    )


def throughputs(setting: Setting) -> Throughputs:
    """Return T_hd, T_dd and T_ru of the platform, in rows of the input features per second."""
    platform = setting.platform
    row = setting.dataset.num_features * setting.workload.itemsize
    if not platform.accelerators:
        memory = platform.host.hardware.memory_bandwidth_bytes_per_s / row
        return Throughputs(memory, memory, memory)
    first = platform.accelerators[0]
    host = 1.0 / platform.link(platform.host.name, first.name).crossing_s(row)
    peers = host
    if len(platform.accelerators) > 1:
        peers = 1.0 / platform.link(first.name, platform.accelerators[1].name).crossing_s(row)
    return Throughputs(host, peers, first.hardware.memory_bandwidth_bytes_per_s / row)
