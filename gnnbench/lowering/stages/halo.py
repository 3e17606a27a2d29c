"""The part of a partition that is trained in an epoch in which a device samples its halo.

A device draws U_i from its boundary set B_i. It trains on the edges that its inner vertices V_i
have from V_i and U_i (BNS-GCN, Algorithm 1). Each epoch's blocks and reads leave rows out of the
whole ones, which do not change.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnbench.errors import PluginError
from gnnbench.lowering.shards import Read, ShardPlan, Shards, ShardUnit
from gnnbench.parts import HaloExchange
from gnnbench.records import Block, BoolArray, IndexArray, IntArray

#: The round and the device index of a unit.
UnitKey = tuple[int, int]
_NOTHING: IntArray = np.empty(0, dtype=np.int64)


class SampledHalo:
    """The units of ``whole`` with the rows of peers that ``exchange`` draws in an epoch.

    ``blocks`` and ``reads`` are those of the epoch that was drawn last, by round and device index.
    """

    def __init__(self, exchange: HaloExchange, whole: ShardPlan, seed: int) -> None:
        self.scale = exchange.scale
        self._exchange = exchange
        self._whole = whole
        self._seed = seed
        if any(len(unit.blocks) > 1 for unit in whole.units):
            raise ValueError("a sampled halo takes units of one block, which serves all layers")
        #: By round and device index, the whole block and its reads.
        self._units = {
            (round_.index, unit.slot): (unit.blocks[0], planned.reads[0])
            for round_, plans in zip(whole.partitioned, whole.rounds, strict=True)
            for unit, planned in zip(round_.units, plans, strict=True)
        }
        #: By device index, the vertices whose rows its units read of peers, ascending.
        self.halos = {
            slot: np.unique(np.concatenate([_NOTHING, *self._list_halo(slot)]))
            for slot in range(len(whole.num_owned))
        }
        self.blocks: dict[UnitKey, Block] = {}
        self.reads: dict[UnitKey, tuple[Read, ...]] = {}

    def _list_halo(self, slot: int) -> list[IntArray]:
        return [
            read.ids
            for (_, reader), (_, reads) in self._units.items()
            for read in reads
            if reader == slot != read.slot
        ]

    def blocks_of(self, slot: int) -> dict[UnitKey, Block]:
        """Return the blocks of a device in the epoch that was drawn last."""
        return {key: block for key, block in self.blocks.items() if key[1] == slot}

    def whole_blocks_of(self, slot: int) -> list[Block]:
        """Return the whole blocks of a device's units, from which each epoch's are made."""
        return [block for key, (block, _) in self._units.items() if key[1] == slot]

    def draw(self, epoch: int, slot: int) -> None:
        """Draw the rows that a device reads of its peers in an epoch, for all of its units."""
        halo = self.halos[slot]
        kept = self._exchange.draw(self._seed, epoch, slot, halo)
        if kept.shape != halo.shape or kept.dtype != np.bool_:
            raise PluginError(
                f"communication {self._exchange.name!r} draws {kept.dtype} {kept.shape} of a halo "
                f"of {len(halo):,} rows; it must give a bool for each of them."
            )
        for key in self._units:
            if key[1] == slot:
                self.blocks[key], self.reads[key] = self._thin(key, halo, kept)

    def _thin(
        self, key: UnitKey, halo: IntArray, kept: BoolArray
    ) -> tuple[Block, tuple[Read, ...]]:
        """Return a unit's block and reads without the rows of its halo that are not ``kept``."""
        block, reads = self._units[key]
        present = np.ones(block.num_src, dtype=np.bool_)
        picked = []
        for read in reads:
            chosen = None if read.slot == key[1] else kept[np.searchsorted(halo, read.ids)]
            present[read.here] = read.mark(chosen)
            picked.append(read.pick(chosen))
        places = np.cumsum(present) - 1
        left = tuple(replace(read, here=places[read.here]) for read in picked)
        return leave_out(block, present, places.astype(np.int32)), left

    def take(self) -> Shards:
        """Return the units of the epoch for which every device has drawn."""
        whole = self._whole
        rounds = [
            [
                ShardUnit(
                    unit.slot, (self.blocks[index, unit.slot],), (self.reads[index, unit.slot],)
                )
                for unit in units
            ]
            for index, units in enumerate(whole.rounds)
        ]
        return Shards(rounds, whole.num_owned, whole.num_train, undivided=False)


def leave_out(block: Block, present: BoolArray, places: IndexArray) -> Block:
    """Return a block with only those sources that are ``present``, bool ``(S,)``, and their edges.

    All destinations must be present. ``places`` are the new positions of the sources, ``(S,)``.
    """
    edges = present[block.indices]
    ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(edges, dtype=np.int64)))
    return Block(
        block.src_ids[present],
        block.num_dst,
        ends[block.indptr],
        places[block.indices[edges]],
        None if block.own is None else places[block.own],
    )
