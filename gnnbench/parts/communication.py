"""Communications: what crosses which link, and what need not."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.parts.base import OfFullGraphs, OfMiniBatches, Part, Session
from gnnbench.records import (
    BoolArray,
    Fetch,
    IntArray,
    PartKind,
    PeerFetch,
    Round,
    RoundTraffic,
    Unit,
)

#: What crosses between devices at a layer: its input rows, or, backward, their gradients.
PeerData = Literal["rows", "gradients"]
_NOTHING: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Communication(Part):
    """What crosses which link, and what need not. Subclass one of the kinds below."""

    kind: ClassVar[PartKind] = "communication"
    #: How gradients are averaged: gathered by a synchroniser on the host and sent back (HyScale-GNN
    #: Equation 13), or by a ring all-reduce between the trainers. Those of mini-batches go round a
    #: ring where this is a ``RingReduction``.
    all_reduce: ClassVar[Literal["host", "ring"]] = "host"


@dataclass(frozen=True)
class Prefetching(OfMiniBatches, Communication):
    """Works ahead: mini-batches are drawn, loaded and transferred while others are trained on."""

    @property
    @abstractmethod
    def prefetch(self) -> Literal[0, 1, 2]:
        """How many pipeline stages it has: 0 (a round starts when the last has finished), 1 (load
        and transfer as one stage) or 2 (HyScale-GNN §IV-B: two stages that overlap)."""


@dataclass(frozen=True)
class RingReduction(OfMiniBatches, Communication):
    """Gradients of mini-batches go round a ring of the trainers, each of which then updates its own
    model, as in torch's distributed data parallel."""

    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"


# --------------------------------------------------------------------------- rows


class TrafficSession(Session):
    """The traffic of a run's rounds; ``owner`` maps each vertex to the slot of its partition."""

    def __init__(self, owner: IntArray) -> None:
        self.owner = owner

    @abstractmethod
    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        """Where every row that the round's units need comes from; ``previous`` is the traffic of
        the round before (None for the first of an epoch)."""


@dataclass(frozen=True)
class RowTransfer(Communication):
    """Rows go where units need them, as a session of it plans for every round."""

    @abstractmethod
    def open(self, owner: IntArray) -> TrafficSession:
        """Plan the traffic of a run; ``owner`` maps each vertex to the slot of its partition."""


def _sort_inputs(unit: Unit) -> IntArray:
    """What a unit reads, ascending. A chunk lists its own vertices and then all others, two runs
    that a stable sort merges."""
    return np.sort(unit.input_ids, kind="stable")


class _NothingMoves(TrafficSession):
    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        needed = [(unit.slot, _sort_inputs(unit)) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, _NOTHING, ids) for slot, ids in needed))


@dataclass(frozen=True)
class NoTransfer(RowTransfer):
    """Vertex data is on the device that needs it; every row counts as reused."""

    def open(self, owner: IntArray) -> TrafficSession:
        return _NothingMoves(owner)


class EverythingCrosses(TrafficSession):
    """A unit's whole input set crosses the host link."""

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        needed = [(unit.slot, _sort_inputs(unit)) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, ids, _NOTHING) for slot, ids in needed))


@dataclass(frozen=True)
class HostLoading(RowTransfer):
    """Every unit's rows come from the host: those of mini-batches and those of chunks."""

    def open(self, owner: IntArray) -> TrafficSession:
        return EverythingCrosses(owner)


class OwnRowsStay(EverythingCrosses):
    """A unit's whole input set crosses the host link, but for the rows of its destinations, which
    its device has where the unit before had the same."""

    def __init__(self, owner: IntArray) -> None:
        super().__init__(owner)
        self._last: dict[int, IntArray] = {}

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        fetches = []
        for unit in round_.units:
            needed, own = _sort_inputs(unit), unit.output_ids
            last = None if previous is None else self._last.get(unit.slot)
            crossing, stays = needed, _NOTHING
            if last is not None and np.array_equal(own, last):
                stays = np.sort(own, kind="stable")
                crossing = np.setdiff1d(needed, stays, assume_unique=True)
            self._last[unit.slot] = own
            fetches.append(Fetch(unit.slot, needed, crossing, stays))
        return RoundTraffic(tuple(fetches))


@dataclass(frozen=True)
class StreamedLoading(OfFullGraphs, HostLoading):
    """Every unit's rows come from the host, while its device works on units before it. Where a
    chunk's in-edges come in pieces, the rows of its destinations cross with the first."""

    @property
    @abstractmethod
    def ahead(self) -> int:
        """For how many units rows may have crossed, or cross, beside the one that is worked on."""

    def open(self, owner: IntArray) -> TrafficSession:
        return OwnRowsStay(owner)


@dataclass(frozen=True)
class RowSharing(HostLoading):
    """Rows from the host stay for the next round, or are shared between devices: every device has
    a buffer for them."""

    @property
    def overlaps(self) -> bool:
        """Whether rounds of a full graph overlap: what a device has made of a unit leaves while
        rows of the next one come, and what it goes back from comes while it works on the one
        before. Otherwise each round begins when the one before is over."""
        return False

    @abstractmethod
    def open(self, owner: IntArray) -> TrafficSession:
        """As of every kind, with rows that are reused or come from peers."""


@dataclass(frozen=True)
class RoundedLoading(OfMiniBatches, HostLoading):
    """Features are rounded before they cross the host link. The maths then differ from the
    reference's."""

    #: Whether the host's memory has them rounded from the start, as long as no trainer is the host:
    #: they take less of it, and are picked as they cross.
    keeps_packed: ClassVar[bool] = False

    @property
    @abstractmethod
    def rounds_to(self) -> str:
        """What features are rounded to, such as ``"int8"``; empty where an option leaves them as
        they are, and nothing is packed."""

    @abstractmethod
    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Feature rows ``(n, f)`` of the host's memory as they cross to an accelerator: tensors
        whose bytes are all that is counted and priced."""

    @abstractmethod
    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """The rows ``(n, f)`` in ``dtype`` out of what ``pack`` gave, on the device it is on."""

    def row_bytes(self, width: int, dtype: torch.dtype) -> int:
        """What a feature row of ``width`` values has when it crosses to an accelerator: bytes, as
        many as ``pack`` makes of it."""
        packed = self.pack(torch.zeros(1, width, dtype=dtype))
        return sum(part.numel() * part.element_size() for part in packed)


# --------------------------------------------------------------------------- between devices


class HaloTraffic(TrafficSession):
    """A unit's rows of other partitions come from the devices that own them.

    ``notes`` are sentences for the reader of the result.
    """

    def __init__(self, owner: IntArray, notes: tuple[str, ...] = ()) -> None:
        super().__init__(owner)
        self._notes = notes

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        fetches = []
        for unit in round_.units:
            needed = _sort_inputs(unit)
            owners = self.owner[needed]
            peers = tuple(
                PeerFetch(int(slot), needed[owners == slot])
                for slot in np.unique(owners)
                if slot != unit.slot
            )
            own = np.flatnonzero(self.owner == unit.slot).astype(np.int64)
            fetches.append(
                Fetch(
                    slot=unit.slot, needed=needed, from_host=_NOTHING, reused=own, from_peers=peers
                )
            )
        return RoundTraffic(tuple(fetches), merged=False)

    def notes(self) -> tuple[str, ...]:
        return self._notes


@dataclass(frozen=True)
class HaloExchange(OfFullGraphs, RowTransfer):
    """Every device has the rows of its partition, and reads those that its unit needs besides, the
    halo, from the devices that have them: at every layer, and their gradients go back."""

    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"

    def open(self, owner: IntArray) -> TrafficSession:
        return HaloTraffic(owner)


@dataclass(frozen=True)
class Broadcast(HaloExchange):
    """A device sends all rows of its partition to every peer, needed there or not, and as many
    gradients come back."""


@dataclass(frozen=True)
class StaleExchange(HaloExchange):
    """A device may have rows of its peers, or gradients, of an earlier epoch: the maths then differ
    from full-graph training."""

    @property
    @abstractmethod
    def stale(self) -> frozenset[PeerData]:
        """What may be of an earlier epoch; empty where an option has none so."""

    @property
    def arrival_epochs(self) -> int:
        """How many epochs later what crosses, of what may be ``stale``, is read.

        0: in the same epoch, whose computation waits for it. Otherwise nothing waits, and rows and
        gradients of peers are zero until the first have arrived.
        """
        return 0

    def decay(self, what: PeerData) -> float:
        """What share of a row, or of a gradient, stays when another arrives for it in a later epoch
        than it was sent: 0, the default, for none, or else a number below 1.

        What is read is then an average over the epochs, whose weights fall by this factor from one
        to the one before. Asked of what may be ``stale`` where there are ``arrival_epochs``.
        """
        return 0.0

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Which of a peer's rows, or their gradients on the way back, cross in an epoch.

        The others stand as they were when they last crossed. Bool like ``ids``, the vertices that
        would cross otherwise; where shards are broadcast all of them or none. ``layer`` counts from
        0, whose rows are the features. Asked of what may be ``stale``, for every peer and layer, in
        each epoch; but not in the first where there are no ``arrival_epochs``: then everything
        crosses.
        """
        return np.ones(len(ids), dtype=np.bool_)


@dataclass(frozen=True)
class AdaptiveExchange(StaleExchange):
    """A device's rows of a layer cross again when they have changed by enough since they last did:
    it measures that before the layer reads them, and tells all others.

    That takes a copy of what crossed last, a pass over both, and a number to every peer. Plans
    refuse it, since they compute no values.
    """

    @property
    @abstractmethod
    def change_bound(self) -> float | None:
        """The relative change up to which rows do not cross: || H - H' || / || H' ||, by Frobenius
        norms, of a partition's rows H of a layer and those that crossed last, H'.

        Of the features, which never change, ``choose_crossing`` decides; and of all rows where this
        is None. Rows must be among what may be ``stale``, without ``arrival_epochs``.
        """


@dataclass(frozen=True)
class SampledExchange(HaloExchange):
    """In every epoch a device reads some rows of its halo, drawn anew, and does without the others
    and their edges: the maths then differ from full-graph training.

    An epoch has the same rows at every layer, and their gradients, and no others, go back.
    """

    @property
    @abstractmethod
    def samples(self) -> bool:
        """Whether rows may be left out; where an option keeps all of them, nothing is drawn."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """What a row of a peer is multiplied by when it arrives, and its gradient when that is
        back, so that sums over neighbours stay what they are on average."""

    @abstractmethod
    def draw(self, seed: int, epoch: int, slot: int, ids: IntArray) -> BoolArray:
        """Which rows of the halo of ``slot`` it reads in an epoch, bool like ``ids``: the vertices
        of its halo, ascending.

        It may depend on nothing else, ``seed`` being the workload's: both ends of a transfer draw,
        in whichever process they are.
        """


@dataclass(frozen=True)
class ShardExchange(Communication):
    """An all-to-all between the shards of AGGREGATE and those of UPDATE: what crosses follows from
    the placement, which has them by features and by vertices."""
