"""A graph cut into a grid: chunks of destinations by chunks of sources."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gnnbench.constants import Bound
from gnnbench.datasets.partitioning import choose_partitioner, cut_ranges, partition
from gnnbench.kernels.dispatch import edge_cut, induce_block
from gnnbench.parts import Chunks, DeviceCapacity, FullGraphSampler, Setting, option
from gnnbench.records import Block, Graph, IndexArray, IntArray, Round, Unit

#: The most chunks that ``chunks_per_device = 0`` tries, by doubling.
MOST_CHUNKS: Bound[int] = 256


@dataclass(frozen=True)
class NeuGraphSampler(FullGraphSampler):
    """P chunks of vertices, equally many for each device, with few edges between devices.

    The in-edges of a chunk are cut into P pieces, by the chunk of their sources. The first piece
    has the chunk's internal edges; the others follow in the cyclic order of chunks.
    """

    name: ClassVar[str] = "neugraph"
    summary: ClassVar[str] = "edges in a grid, chunks of destinations by chunks of sources"
    in_pieces: ClassVar[bool] = True

    chunks_per_device: int = option(
        0,
        "vertex chunks of each device; 0 = the least, of powers of two, whose pieces fit its"
        " memory",
        tried=(0, 1, 2, 4, 8),
    )
    partitioner: Literal["auto", "metis", "ldg", "fennel", "range"] = option(
        "auto",
        "how vertices go to devices; auto is metis, or ldg above 20 M stored edges, or above 1 M "
        "where most would be cut anyway",
        tried=("auto", "range"),
    )

    def refuses(self, bundle: object, setting: Setting) -> str | None:
        count, graph = self.chunks_per_device, setting.dataset.graph
        most = max(graph.num_vertices, MOST_CHUNKS)
        if 0 <= count <= most:
            return None
        return (
            f"sampler.chunks_per_device is {count:,}; give from 1 to {most:,}, or 0 for the least "
            f"that fit."
        )

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        graph = setting.dataset.graph
        named = choose_partitioner(graph) if self.partitioner == "auto" else self.partitioner
        owner = partition(graph, num_slots, named, setting.workload.seed)
        members = [np.flatnonzero(owner == slot) for slot in range(num_slots)]
        count = self.chunks_per_device or 1
        rounds = cut_grid(graph, members, count)
        if not self.chunks_per_device:
            most = min(MOST_CHUNKS, max(1, *map(len, members)))
            while count < most and not (
                capacity is None or capacity.holds(rounds, owner, num_slots * count)
            ):
                count = min(2 * count, most)
                rounds = cut_grid(graph, members, count)
        rounds = tuple(keep_round(setting, round_) for round_ in rounds)
        return Chunks(
            rounds, owner, (describe_grid(graph, owner, named, rounds),), pieces=num_slots * count
        )


def cut_grid(graph: Graph, members: Sequence[IntArray], count: int) -> tuple[Round, ...]:
    """Return the rounds for ``count`` chunks of each device's vertices.

    Each chunk of a device has one round for every chunk of sources.
    """
    cuts = [cut_ranges(graph, ids, count) for ids in members]
    chunk_of = np.empty(graph.num_vertices, dtype=np.int32)
    for number, ids in enumerate(ids for slot in cuts for ids in slot):
        chunk_of[ids] = number
    pieces = len(members) * count
    rounds: list[Round] = []
    for place in range(count):
        rows = [
            cut_pieces(graph, cut[place], chunk_of, slot * count + place, pieces)
            for slot, cut in enumerate(cuts)
        ]
        for blocks in zip(*rows, strict=True):
            units = [Unit(slot, (block,)) for slot, block in enumerate(blocks)]
            rounds.append(Round(len(rounds), tuple(units)))
    return tuple(rounds)


def cut_pieces(
    graph: Graph, ids: IntArray, chunk_of: IndexArray, own: int, pieces: int
) -> list[Block]:
    """Return the in-edges of the chunk ``ids`` by chunk of source, its ``own`` first."""
    whole = induce_block(graph.indptr, graph.indices, ids)
    count, sources = whole.num_dst, whole.src_ids
    rows = np.repeat(np.arange(count, dtype=np.int32), np.diff(whole.indptr))
    places = (chunk_of[sources] - own) % pieces
    of_edges = places[whole.indices]
    order = np.argsort(of_edges, kind="stable")
    ends = np.searchsorted(of_edges[order], np.arange(pieces + 1))
    new = np.empty(len(sources), dtype=np.int32)
    blocks = []
    for begin, end in itertools.pairwise(ends):
        edges = order[begin:end]
        read = whole.indices[edges]
        others = np.unique(read[read >= count])
        new[:count] = np.arange(count, dtype=np.int32)
        new[others] = np.arange(count, count + len(others), dtype=np.int32)
        indptr = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows[edges], minlength=count), out=indptr[1:])
        ids_read = np.concatenate((sources[:count], sources[others]))
        blocks.append(Block(ids_read, count, indptr, new[read]))
    return blocks


def keep_round(setting: Setting, round_: Round) -> Round:
    """Return a round with its blocks stored as the setting stores them."""
    units = [
        Unit(unit.slot, tuple(setting.keep(block) for block in unit.blocks))
        for unit in round_.units
    ]
    return Round(round_.index, tuple(units))


def describe_grid(graph: Graph, owner: IntArray, partitioner: str, rounds: Sequence[Round]) -> str:
    """Describe the grid, and the number of transfers of a vertex's row in one pass."""
    units = [unit for round_ in rounds for unit in round_.units]
    chunks = len({unit.output_ids.tobytes() for unit in units})
    others = sum(unit.blocks[0].num_src - unit.blocks[0].num_dst for unit in units)
    crossing = (graph.num_vertices + others) / max(graph.num_vertices, 1)
    empty = sum(unit.blocks[0].num_edges == 0 for unit in units)
    cut = edge_cut(graph.indptr, graph.indices, owner.astype(np.int32))
    share = 100 * cut / max(graph.num_edges, 1)
    return (
        f"a grid of {chunks} by {chunks} chunks, {empty} of its pieces without edges; "
        f"{partitioner} partitions cut {share:.2g} % of the edges; a row crosses {crossing:.2f} "
        f"times in a pass"
    )
