"""The rows and columns of each device if AGGREGATE is sharded by features, UPDATE by vertices.

The scheme is MixGCN's Algorithm 2. A vertex's *position* is its place in the order of processing:
the rounds' destinations one after the other. An aggregator has a range of columns of all rows that
it reads, by ascending position. An updater has all columns of its range of every round. The entries
that an aggregator and an updater share are transferred between them. Devices are identified by
their index among the trainers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnbench.kernels.dispatch import induce_block
from gnnbench.machines.machine import Platform
from gnnbench.parts import Placement
from gnnbench.records import Block, BlockSize, Dataset, IntArray, Round, Shard

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """Rows that an aggregator and an updater both have.

    ``there`` are rows of the aggregator's tensor. ``here`` are rows of the updater's, as int64
    positions or a slice.
    """

    aggregator: int
    updater: int
    there: slice
    here: slice | IntArray

    @property
    def rows(self) -> int:
        """The number of common rows."""
        return int(self.there.stop - self.there.start)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The rows of the adjacency that an aggregator aggregates in a round.

    ``size`` counts these rows, the sources that they read, and the edges between. ``reads`` are the
    rounds that the sources belong to. ``picks`` says that the sources are fewer than the
    aggregator's rows, or in another order. Aggregators of one group share a piece.
    """

    size: BlockSize
    reads: tuple[int, ...]
    picks: bool

    @property
    def topology_bytes(self) -> int:
        """The bytes of the local CSR with 32-bit indices."""
        return 4 * (self.size.num_dst + 1 + self.size.num_edges)


class Shardings:
    """Both shardings of a run, from the placement, and their overlap in every round.

    ``rounds`` are sizes alone, one whole block for each round. Every aggregator then has all rows.
    Its piece is a range of a round's rows, with a proportional share of its edges and all of its
    sources.

    Raises ``ValueError`` for a placement whose shards leave an entry out or have one twice.
    """

    def __init__(self, rounds: Sequence[Piece], placement: Placement, platform: Platform) -> None:
        self._placement, self._platform, self._rounds = placement, platform, rounds
        #: By round and aggregator, the adjacency of a piece, if the graph is given.
        self.blocks: dict[tuple[int, int], Block] = {}
        sizes = [piece.size.num_dst for piece in rounds]
        #: The position at which each round begins, and the number of vertices.
        self.bounds: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self._shards = [self._ask_shards(size, 1) for size in sizes]
        #: The devices that aggregate and those that update, ascending. Device 0 always has the
        #: weights.
        self.aggregators = tuple(sorted(shard.slot for shard in self._shards[0]))
        self._updates = [self._ask_updates(size) for size in sizes]
        self.updaters = tuple(
            slot
            for slot in range(len(self._updates[0]))
            if slot == 0
            or any(begin < end for begin, end in (ranges[slot] for ranges in self._updates))
        )
        #: The positions of the rows that each aggregator has; None if it has all.
        self.held: dict[int, IntArray | None] = dict.fromkeys(self.aggregators)
        #: By round and aggregator.
        self.pieces = {
            (number, shard.slot): self._share_round(number, shard)
            for number, shards in enumerate(self._shards)
            for shard in shards
        }

    def _share_round(self, number: int, shard: Shard) -> Piece:
        whole, rows = self._rounds[number], shard.vertices[1] - shard.vertices[0]
        edges = whole.size.num_edges * rows // max(1, whole.size.num_dst)
        return Piece(BlockSize(whole.size.num_src, rows, edges), whole.reads, whole.picks)

    # ------------------------------------------------------------------ what the placement says

    def columns(self, width: int) -> dict[int, Range]:
        """Return the columns that each aggregator has of a matrix of ``width`` features."""
        shards = self._ask_shards(int(self.bounds[1]), width)
        return {shard.slot: shard.features for shard in shards}

    def updated(self, number: int, slot: int) -> Range:
        """Return the positions that an updater has of round ``number``."""
        begin, end = self._updates[number][slot]
        return int(self.bounds[number]) + begin, int(self.bounds[number]) + end

    def rows_of(self, number: int, slot: int) -> int:
        """Return how many vertices of round ``number`` an updater has."""
        begin, end = self._updates[number][slot]
        return end - begin

    def edges_of(self, number: int, slot: int) -> int:
        """Return how many in-edges an updater's vertices of round ``number`` have."""
        size = self._rounds[number].size
        return size.num_edges * self.rows_of(number, slot) // max(1, size.num_dst)

    def seeds_of(self, number: int, slot: int) -> int:
        """Return the most vertices of round ``number`` that an updater can train on."""
        return self.rows_of(number, slot)

    def num_held(self, slot: int) -> int:
        """Return how many rows an aggregator has."""
        held = self.held[slot]
        return int(self.bounds[-1]) if held is None else len(held)

    def _ask_shards(self, size: int, width: int) -> tuple[Shard, ...]:
        shards = self._placement.shard_aggregate(size, width, self._platform)
        fault = find_shard_fault(shards, size, width)
        if fault is not None:
            raise ValueError(f"placement {self._placement.name!r} {fault}")
        return shards

    def _ask_updates(self, size: int) -> tuple[Range, ...]:
        ranges = self._placement.shard_update(size, self._platform)
        ends = [0, *(end for _, end in ranges)]
        if [begin for begin, _ in ranges] != ends[:-1] or ends[-1] != size:
            raise ValueError(
                f"placement {self._placement.name!r} shares {size} vertices out as {ranges}, which "
                f"do not follow each other from 0 to {size}"
            )
        return ranges

    # ------------------------------------------------------------------ what is transferred

    def overlap_aggregates(self, number: int) -> list[Overlap]:
        """Return the overlaps for a round's aggregates and their gradients.

        They are the rows of a piece, by updater.
        """
        overlaps = []
        for shard in self._shards[number]:
            for updater in self.updaters:
                begin, end = self._updates[number][updater]
                low, high = max(begin, shard.vertices[0]), min(end, shard.vertices[1])
                if low < high:
                    there = slice(low - shard.vertices[0], high - shard.vertices[0])
                    here = slice(low - begin, high - begin)
                    overlaps.append(Overlap(shard.slot, updater, there, here))
        return self._take_turns(overlaps)

    def overlap_rows(self, number: int) -> list[Overlap]:
        """Return the overlaps for a round's representations and their gradients.

        They are the rows that an aggregator reads, by updater.
        """
        overlaps = []
        for aggregator in self.aggregators:
            held = self.held[aggregator]
            for updater in self.updaters:
                begin, end = self.updated(number, updater)
                if held is None:
                    overlap = Overlap(aggregator, updater, slice(begin, end), slice(0, end - begin))
                else:
                    low, high = (int(place) for place in np.searchsorted(held, (begin, end)))
                    here = held[low:high] - begin
                    overlap = Overlap(aggregator, updater, slice(low, high), here)
                if overlap.rows:
                    overlaps.append(overlap)
        return self._take_turns(overlaps)

    def _take_turns(self, overlaps: list[Overlap]) -> list[Overlap]:
        """Sort overlaps so that each device sends to the next device, then to the one after, ..."""
        count = len(self._updates[0])
        return sorted(overlaps, key=lambda c: ((c.updater - c.aggregator) % count, c.aggregator))


class GraphShardings(Shardings):
    """Both shardings of a given graph.

    The adjacency is cut, and an aggregator has only the rows that it reads.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        dataset: Dataset,
        placement: Placement,
        platform: Platform,
    ) -> None:
        whole = [unit.blocks[0] for round_ in rounds for unit in round_.units]
        #: The vertex at each position, int64 ``(V,)``.
        self.order: IntArray = np.concatenate([block.dst_ids for block in whole])
        self._dataset = dataset
        self._position = np.empty(len(self.order), dtype=np.int64)
        self._position[self.order] = np.arange(len(self.order))
        sizes = [BlockSize(block.num_src, block.num_dst, block.num_edges) for block in whole]
        super().__init__([Piece(size, (), picks=False) for size in sizes], placement, platform)
        #: By round and aggregator, the positions of a piece's sources in the aggregator's rows,
        #: int64; None if the sources are these rows, in order.
        self.sources: dict[tuple[int, int], IntArray | None] = {}
        self._cut_blocks(whole)
        for slot in self.aggregators:
            read = np.zeros(len(self.order), dtype=np.bool_)
            for number in range(len(whole)):
                read[self._position[self.blocks[number, slot].src_ids]] = True
            self.held[slot] = None if read.all() else np.flatnonzero(read).astype(np.int64)
        made: dict[tuple[int, int], tuple[IntArray | None, Piece]] = {}
        for (number, slot), block in self.blocks.items():
            key = (number, id(block))
            if key not in made:
                made[key] = self._make_piece(block, self.held[slot])
            self.sources[number, slot], self.pieces[number, slot] = made[key]

    def _cut_blocks(self, whole: Sequence[Block]) -> None:
        graph, cut = self._dataset.graph, dict[tuple[int, Range], Block]()
        for number, (block, shards) in enumerate(zip(whole, self._shards, strict=True)):
            for shard in shards:
                begin, end = rows = shard.vertices
                if rows == (0, block.num_dst):
                    cut[number, rows] = block
                elif (number, rows) not in cut:
                    ids = block.dst_ids[begin:end]
                    cut[number, rows] = induce_block(graph.indptr, graph.indices, ids)
                self.blocks[number, shard.slot] = cut[number, rows]

    def _make_piece(self, block: Block, held: IntArray | None) -> tuple[IntArray | None, Piece]:
        positions = self._position[block.src_ids]
        rounds = np.unique(np.searchsorted(self.bounds, positions, side="right") - 1)
        places = positions if held is None else np.searchsorted(held, positions)
        count = len(self.order) if held is None else len(held)
        in_order = len(places) == count and np.array_equal(places, np.arange(count))
        size = BlockSize(block.num_src, block.num_dst, block.num_edges)
        piece = Piece(size, tuple(int(number) for number in rounds), picks=not in_order)
        return (None if in_order else places), piece

    def updated_ids(self, number: int, slot: int) -> IntArray:
        """Return the vertices that an updater has of round ``number``, int64."""
        begin, end = self.updated(number, slot)
        return self.order[begin:end]

    def edges_of(self, number: int, slot: int) -> int:
        return int(self._dataset.graph.find_degrees(self.updated_ids(number, slot)).sum())

    def seeds_of(self, number: int, slot: int) -> int:
        ids = self.updated_ids(number, slot)
        return int((self._dataset.train_mask[ids] & (self._dataset.labels[ids] >= 0)).sum())


def find_shard_fault(shards: Sequence[Shard], num_vertices: int, width: int) -> str | None:
    """Return what is wrong with shards as a phrase, or None.

    Shards must cover ``(num_vertices, width)`` once, and a device has at most one shard.
    """
    slots = [shard.slot for shard in shards]
    if len(set(slots)) != len(slots):
        return f"gives a slot two shards of the same matrix: {slots}"

    def area(rows: Range, columns: Range) -> int:
        return max(0, rows[1] - rows[0]) * max(0, columns[1] - columns[0])

    def meet(one: Range, other: Range) -> Range:
        return max(one[0], other[0]), min(one[1], other[1])

    whole = ((0, num_vertices), (0, width))
    inside = sum(
        area(meet(shard.vertices, whole[0]), meet(shard.features, whole[1])) for shard in shards
    )
    twice = sum(
        area(meet(one.vertices, other.vertices), meet(one.features, other.features))
        for place, one in enumerate(shards)
        for other in shards[:place]
    )
    if twice or inside != num_vertices * width:
        return (
            f"shares {num_vertices} x {width} entries out in shards that have {inside} of them, "
            f"{twice} more than once"
        )
    return None
