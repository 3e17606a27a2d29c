"""Vertex data in the devices' memories, where peers read the rows of each device's partition.

A unit's input has rows of the device's partition and of other partitions. Other rows cross the
links between devices at every layer, and their gradients return the same way. The host is not
involved. If the communication part allows stale rows, only some of them cross in an epoch, or they
arrive in a later one. A unit's input then stays on its device, and has each row as it last arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnbench.parts import Chunks, Communication, HaloExchange, PeerData
from gnnbench.program import Buffer
from gnnbench.records import (
    Block,
    BlockSize,
    BoolArray,
    Fetch,
    IntArray,
    RoundTraffic,
    Unit,
)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """The rows that a unit reads of the shard of ``slot``.

    The shard's rows ``there`` are the unit's input rows ``here``, int64 positions. The rows of the
    vertices ``ids`` cross for that. In a broadcast they are the whole shard, otherwise the rows
    that are read.
    """

    slot: int
    here: IntArray
    there: IntArray
    ids: IntArray

    @property
    def rows(self) -> int:
        """The number of rows that cross."""
        return len(self.ids)

    @classmethod
    def of_size(cls, slot: int, rows: int) -> Read:
        """Return a read of ``rows`` rows with unknown ids.

        Its arrays repeat one element without using memory for each.
        """
        ids = np.broadcast_to(np.int64(0), (rows,))
        return cls(slot, ids, ids, ids)

    @property
    def broadcast(self) -> bool:
        """Whether rows cross that the unit does not read."""
        return len(self.ids) > len(self.there)

    def mark(self, chosen: BoolArray | None) -> BoolArray:
        """Return which rows ``there`` cross if ``chosen`` of ``ids`` do, bool; None means all.

        Raises ``ValueError`` for a part of a broadcast.
        """
        if chosen is None:
            return np.ones(len(self.there), dtype=np.bool_)
        if not self.broadcast:
            return chosen
        if chosen.any() != chosen.all():
            raise ValueError(
                f"{int(chosen.sum()):,} of {len(chosen):,} rows of slot {self.slot} would cross; "
                f"a communication part that broadcasts must choose all of them or none"
            )
        return np.full(len(self.there), bool(chosen.any()))

    def pick(self, chosen: BoolArray | None) -> Read:
        """Return the read of the ``chosen`` rows alone, bool like ``ids``; None means all."""
        if chosen is None or chosen.all():
            return self
        marked = self.mark(chosen)
        return Read(self.slot, self.here[marked], self.there[marked], self.ids[chosen])


#: The reads of shards of a unit, for each of its blocks.
UnitReads = tuple[tuple[Read, ...], ...]


@dataclass(frozen=True, slots=True)
class ShardUnit:
    """The work of one device in a round: one block for all layers, or one for each.

    A counted unit has the sizes of blocks instead. ``reads`` has the reads of shards, for each
    block. It is empty for a block that reads the device's rows of that layer, unchanged.
    """

    slot: int
    blocks: tuple[Block | BlockSize, ...]
    reads: UnitReads

    def block_at(self, number: int) -> Block | BlockSize:
        """Return the block of a layer."""
        return self.blocks[number] if len(self.blocks) > 1 else self.blocks[0]

    def reads_at(self, number: int) -> tuple[Read, ...]:
        """Return the reads of a layer."""
        return self.reads[number] if len(self.reads) > 1 else self.reads[0]

    @property
    def topologies(self) -> tuple[Block | BlockSize, ...]:
        """Its distinct blocks: layers may share one."""
        return tuple(dict.fromkeys(self.blocks))


class Shards:
    """The units of every round, and the rows that they read of each shard.

    ``num_owned`` and ``num_train`` count the rows and the training vertices of a shard, by device
    index. ``num_rows`` counts a device's rows of a layer, by layer and device index, if they are
    not its shard alone. ``undivided`` says that one unit is the whole graph in its device's memory,
    so that no tensor is copied.
    """

    def __init__(
        self,
        rounds: Sequence[Sequence[ShardUnit]],
        num_owned: Sequence[int],
        num_train: Sequence[int],
        *,
        undivided: bool,
        num_rows: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        self.rounds = rounds
        self.units = [unit for units in rounds for unit in units]
        self.num_owned = num_owned
        self.num_train = num_train
        self.undivided = undivided
        self._num_rows = num_rows or {}

    @property
    def whole(self) -> bool:
        """Whether all rows that a device has of a layer's output are computed by one unit."""
        return self.undivided or any(len(unit.blocks) > 1 for unit in self.units)

    def crosses(self, number: int) -> bool:
        """Return whether a layer's input rows are assembled from several shards."""
        return not self.undivided and any(unit.reads_at(number) for unit in self.units)

    def count_rows(self, slot: int, layer: int) -> int:
        """Return how many rows a device has of a layer; h^0 is layer 0.

        They are the rows of its shard, and other rows that it keeps or computes.
        """
        return self._num_rows.get((layer, slot), self.num_owned[slot])

    @property
    def broadcast_rows(self) -> int:
        """The most rows that a device sends or receives besides those it keeps."""
        reads = [read for unit in self.units for each in unit.reads for read in each]
        return max((read.rows for read in reads if read.broadcast), default=0)

    def count_read_by_peers(self, slot: int, number: int) -> int:
        """Return how many rows of ``slot`` peers' units read in a layer, over all rounds."""
        return sum(
            len(read.there)
            for unit in self.units
            for read in unit.reads_at(number)
            if unit.slot != slot == read.slot
        )


class ShardPlan(Shards):
    """The location of each vertex's row, and the rows that the units of a ``cut`` graph read.

    A unit with a block for each layer reads, above the first layer, the rows that its block below
    does not compute. ``keep`` stores the reads of each unit.

    Raises ``ValueError`` for a plan that leaves a needed row out, brings one twice, or takes one
    from a device that does not own it. Raises it also for a unit that computes another device's
    vertex, or computes a vertex where peers do not look for it.
    """

    def __init__(
        self,
        cut: Chunks,
        traffic: Sequence[RoundTraffic],
        train_mask: BoolArray,
        slots: int,
        *,
        broadcasts: bool,
        keep: Callable[[UnitReads], UnitReads] = tuple,
    ) -> None:
        self.partitioned = cut.rounds
        self._owner = owner = cut.owner
        self._broadcasts = broadcasts
        self._keep = keep
        self.owned = [np.flatnonzero(owner == slot).astype(np.int64) for slot in range(slots)]
        self._position = np.empty(len(owner), dtype=np.int64)
        for ids in self.owned:
            self._position[ids] = np.arange(len(ids))
        #: -1 for every vertex, except during a lookup.
        self._places = np.full(len(owner), -1, dtype=np.int64)
        units = [unit for round_ in cut.rounds for unit in round_.units]
        #: By layer and device index, the vertices of a device's rows, if not of its shard alone.
        self._held = self._list_held(units, cut.kept)
        #: By round and device index, the positions of a unit's outputs in its own shard.
        self.outputs = {
            (round_.index, unit.slot): self.find(unit.output_ids, unit.slot)
            for round_ in cut.rounds
            for unit in round_.units
        }
        going_on = self._find_going_on(units)
        alone = slots == len(units) == len(units[0].blocks) == 1
        super().__init__(
            [
                [
                    self._plan_unit(unit, fetch, going_on)
                    for unit, fetch in zip(round_.units, plan.fetches, strict=True)
                ]
                for round_, plan in zip(cut.rounds, traffic, strict=True)
            ],
            [len(ids) for ids in self.owned],
            [int(train_mask[ids].sum()) for ids in self.owned],
            undivided=alone and np.array_equal(units[0].input_ids, np.arange(len(owner))),
            num_rows={key: len(ids) for key, ids in self._held.items()},
        )

    def _list_held(
        self, units: Sequence[Unit], kept: Mapping[int, IntArray]
    ) -> dict[tuple[int, int], IntArray]:
        layered = [unit for unit in units if len(unit.blocks) > 1]
        if layered and len({unit.slot for unit in layered}) < len(units):
            raise ValueError("a unit with a block for each layer must be alone on its device")
        held = {(0, slot): np.concatenate((self.owned[slot], ids)) for slot, ids in kept.items()}
        for unit in layered:
            owned = self.owned[unit.slot]
            for number, block in enumerate(unit.blocks, start=1):
                held[number, unit.slot] = block.dst_ids
                if not np.array_equal(block.dst_ids[: len(owned)], owned):
                    raise ValueError(
                        f"a block of slot {unit.slot} does not begin with the vertices of its "
                        f"partition, ascending, whose rows its peers read there"
                    )
        return held

    def hold(self, layer: int, slot: int) -> IntArray:
        """Return the vertices of a device's rows of a layer, in order; h^0 is layer 0.

        The vertices that the device owns come first.
        """
        return self._held.get((layer, slot), self.owned[slot])

    def _find_going_on(self, units: Sequence[Unit]) -> frozenset[int]:
        """Return the layers in which all units' input rows are their devices' rows, unchanged.

        A unit with one block assembles its rows at every layer.
        """
        depth = max(len(unit.blocks) for unit in units)
        return frozenset(
            number
            for number in range(depth if depth > 1 else 0)
            if all(
                np.array_equal(unit.blocks[number].src_ids, self.hold(number, unit.slot))
                for unit in units
            )
        )

    def find(self, ids: IntArray, slot: int) -> IntArray:
        """Return the positions of vertices in the shard of ``slot``, which must own them."""
        return self._require(np.where(self._owner[ids] == slot, self._position[ids], -1), slot)

    @staticmethod
    def _require(places: IntArray, slot: int) -> IntArray:
        if (places < 0).any():
            raise ValueError(
                f"slot {slot} is asked for a vertex of another partition; the communication part "
                f"must fetch every row from the owner of its vertex"
            )
        return places

    def _locate(self, ids: IntArray, among: IntArray) -> IntArray:
        """Return the positions of vertices ``among`` distinct others, or -1 if missing."""
        self._places[among] = np.arange(len(among))
        found = self._places[ids]
        self._places[among] = -1
        return found

    # ------------------------------------------------------------------ what units read

    def _plan_unit(self, unit: Unit, fetch: Fetch, going_on: Collection[int]) -> ShardUnit:
        reads = tuple(
            () if number in going_on else self._plan_reads(number, unit, fetch)
            for number in range(len(unit.blocks))
        )
        return ShardUnit(unit.slot, unit.blocks, self._keep(reads))

    def _plan_reads(self, number: int, unit: Unit, fetch: Fetch) -> tuple[Read, ...]:
        slot, inputs, held = unit.slot, unit.blocks[number].src_ids, self.hold(number, unit.slot)
        divide = self._divide if number else self._divide_as_planned
        own, asked = divide(inputs, held, fetch)
        if self._broadcasts:
            absent = set(range(len(self.owned))).difference((slot, *(peer for peer, _ in asked)))
            asked += [(peer, own[:0]) for peer in sorted(absent)]
        here = [self._locate(ids, inputs) for ids in (own, *(ids for _, ids in asked))]
        brought = np.concatenate(here)
        once = len(brought) == len(inputs) and bool((brought >= 0).all())
        if not (once and (np.bincount(brought, minlength=len(inputs)) == 1).all()):
            raise ValueError(
                f"the plan does not bring slot {slot} each of its {len(inputs):,} rows "
                f"exactly once from the devices; the communication part must place every needed "
                f"row in the own partition or in one peer fetch"
            )
        reads = [Read(slot, here[0], self._require(self._locate(own, held), slot), own)]
        for (peer, ids), into in zip(asked, here[1:], strict=True):
            crossing = self.owned[peer] if self._broadcasts else ids
            reads.append(Read(peer, into, self.find(ids, peer), crossing))
        return tuple(read for read in reads if read.rows)

    def _divide(
        self, inputs: IntArray, held: IntArray, fetch: Fetch
    ) -> tuple[IntArray, list[tuple[int, IntArray]]]:
        """Return the input rows that a unit's device has, and those that it reads of each peer."""
        present = self._locate(inputs, held) >= 0
        others = np.sort(inputs[~present])
        owners = self._owner[others]
        return inputs[present], [(int(peer), others[owners == peer]) for peer in np.unique(owners)]

    def _divide_as_planned(
        self, inputs: IntArray, held: IntArray, fetch: Fetch
    ) -> tuple[IntArray, list[tuple[int, IntArray]]]:
        """Divide a unit's rows of features, as the communication part has planned.

        Rows of other devices that the device keeps are not read again.
        """
        if len(fetch.needed) != len(inputs) or (self._locate(fetch.needed, inputs) < 0).any():
            return inputs[:0], []
        kept = held[len(self.owned[fetch.slot]) :]
        mine = np.concatenate((fetch.reused, kept))
        return mine[self._locate(mine, inputs) >= 0], [
            (peer.slot, peer.ids[self._locate(peer.ids, kept) < 0]) for peer in fetch.from_peers
        ]


class Staleness:
    """The rows and gradients that cross between devices in an epoch, and the bytes in flight."""

    def __init__(self, communication: Communication) -> None:
        self._exchange = communication if isinstance(communication, HaloExchange) else None
        self._under_way: dict[tuple[object, ...], deque[int]] = {}
        self._under_way_bytes: dict[int, int] = {}

    @property
    def delay(self) -> int:
        """The number of epochs after which data that may be stale arrives."""
        exchange = self._exchange
        return exchange.arrival_epochs if exchange is not None and exchange.stale else 0

    def keeps(self, what: PeerData) -> bool:
        """Return whether rows or gradients that do not cross keep their last value."""
        return self._exchange is not None and what in self._exchange.stale

    def delays(self, what: PeerData) -> bool:
        """Return whether rows or gradients that cross arrive in a later epoch."""
        return self.keeps(what) and self.delay > 0

    def decay(self, what: PeerData) -> float:
        """Return the weight of the kept value when a new one arrives; 0 replaces it."""
        exchange = self._exchange
        return exchange.decay(what) if exchange is not None and self.delays(what) else 0.0

    @property
    def change_bound(self) -> float | None:
        """The relative change up to which rows above the features do not cross.

        It is None if what crosses does not depend on values.
        """
        exchange = self._exchange
        return exchange.change_bound if exchange is not None and self.keeps("rows") else None

    def is_changed(self, change: float) -> bool:
        """Return whether rows with this relative change cross.

        Rows with a change of NaN cross as well, such as rows that were zero.
        """
        bound = self.change_bound
        return bound is None or not change <= bound

    def choose(self, epoch: int, layer: int, what: PeerData, read: Read) -> BoolArray:
        """Return which rows of a read that may be stale cross in an epoch, bool."""
        exchange = self._exchange
        if exchange is None or (epoch == 0 and not self.delay):
            return np.ones(read.rows, dtype=np.bool_)
        return exchange.choose_crossing(epoch, layer, what, read.ids)

    def send(self, way: tuple[object, ...], slot: int, size_bytes: int) -> int:
        """Send a message of ``size_bytes`` to ``slot`` by ``way``, one in each epoch.

        Returns the bytes in flight to the device afterwards.
        """
        self._under_way.setdefault(way, deque()).append(size_bytes)
        return self._count(slot, size_bytes)

    def receive(self, way: tuple[object, ...], slot: int) -> tuple[int | None, int]:
        """Return the size of the message that arrives by ``way``, and the bytes then in flight.

        It arrives before this epoch's message is sent. The size is None if no message arrives. The
        bytes in flight are those to the device ``slot``.
        """
        sizes = self._under_way.get(way, deque())
        if len(sizes) < self.delay:
            return None, self._count(slot, 0)
        arrived = sizes.popleft()
        return arrived, self._count(slot, -arrived)

    def _count(self, slot: int, size_bytes: int) -> int:
        under_way = self._under_way_bytes.get(slot, 0) + size_bytes
        self._under_way_bytes[slot] = under_way
        return under_way


@dataclass(slots=True)
class Progress:
    """The position in an epoch of partitions on devices.

    ``shards`` are the rows of each device in this epoch. ``meeting`` is the buffer after which all
    devices continue together.
    """

    shards: Shards
    staleness: Staleness
    epoch: int = 0
    round: int = 0
    meeting: Buffer = field(default_factory=lambda: Buffer("start"))
