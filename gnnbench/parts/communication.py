"""Communications: which data cross which link."""

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

#: Data that cross between devices at a layer: its input rows or, in the backward pass, their
#: gradients.
PeerData = Literal["rows", "gradients"]
_NOTHING: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Communication(Part):
    """The data that cross each link, and the data that need not. Subclass one of the kinds
    below."""

    kind: ClassVar[PartKind] = "communication"
    #: How gradients are averaged: ``host`` gathers them in a synchroniser on the host and sends the
    #: average back (HyScale-GNN Equation 13); ``ring`` is a ring all-reduce between the trainers.
    #: Gradients of mini-batches use a ring only in a ``RingReduction``.
    all_reduce: ClassVar[Literal["host", "ring"]] = "host"


@dataclass(frozen=True)
class Prefetching(OfMiniBatches, Communication):
    """A communication that prefetches: it draws, loads and transfers mini-batches while the devices
    train on earlier ones."""

    @property
    @abstractmethod
    def prefetch(self) -> Literal[0, 1, 2]:
        """The number of pipeline stages: 0 (a round starts when the last has finished), 1 (load and
        transfer as one stage) or 2 (HyScale-GNN §IV-B: two stages that overlap)."""


@dataclass(frozen=True)
class RingReduction(OfMiniBatches, Communication):
    """A ring all-reduce of mini-batch gradients between the trainers. Each trainer then updates its
    own model, as in torch's distributed data parallel."""

    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"


# --------------------------------------------------------------------------- rows


class TrafficSession(Session):
    """The traffic of a run's rounds; ``owner`` maps each vertex to the device index of its
    partition."""

    def __init__(self, owner: IntArray) -> None:
        self.owner = owner

    @abstractmethod
    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        """Return the origin of every row that the round's units need. ``previous`` is the traffic
        of the round before (None for the first of an epoch)."""


@dataclass(frozen=True)
class RowTransfer(Communication):
    """A transfer of rows to the units that need them, planned for every round by a session."""

    @abstractmethod
    def open(self, owner: IntArray) -> TrafficSession:
        """Plan the traffic of a run; ``owner`` maps each vertex to the device index of its
        partition."""


def _sort_inputs(unit: Unit) -> IntArray:
    """Return the vertices that a unit reads, ascending. A chunk lists its own vertices and then all
    others: two ascending runs that a stable sort merges."""
    return np.sort(unit.input_ids, kind="stable")


class _NothingMoves(TrafficSession):
    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        needed = [(unit.slot, _sort_inputs(unit)) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, _NOTHING, ids) for slot, ids in needed))


@dataclass(frozen=True)
class NoTransfer(RowTransfer):
    """No transfer: vertex data is on the device that needs it, so every row counts as reused."""

    def open(self, owner: IntArray) -> TrafficSession:
        return _NothingMoves(owner)


class EverythingCrosses(TrafficSession):
    """A session in which a unit's whole input set crosses the host link."""

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        needed = [(unit.slot, _sort_inputs(unit)) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, ids, _NOTHING) for slot, ids in needed))


@dataclass(frozen=True)
class HostLoading(RowTransfer):
    """A transfer in which the rows of every unit, mini-batch or chunk, come from the host."""

    def open(self, owner: IntArray) -> TrafficSession:
        return EverythingCrosses(owner)


class OwnRowsStay(EverythingCrosses):
    """A session in which a unit's input set crosses the host link. The rows of its destinations
    stay if the unit before had the same destinations."""

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
    """A transfer from the host that overlaps with the device's work on earlier units. If a chunk's
    in-edges come in pieces, the rows of its destinations cross with the first piece."""

    @property
    @abstractmethod
    def ahead(self) -> int:
        """The number of units, besides the one in work, with rows on the device or in flight."""

    def open(self, owner: IntArray) -> TrafficSession:
        return OwnRowsStay(owner)


@dataclass(frozen=True)
class RowSharing(HostLoading):
    """A transfer in which rows from the host stay for the next round or are shared between devices.
    Every device has a buffer for these rows."""

    @property
    def overlaps(self) -> bool:
        """Whether rounds of a full graph overlap. A unit's results then leave the device while rows
        of the next unit arrive, and backward inputs of a unit arrive during the unit before.
        Otherwise each round begins when the one before has finished."""
        return False

    @abstractmethod
    def open(self, owner: IntArray) -> TrafficSession:
        """Plan the traffic of a run, with rows that are reused or come from peers."""


@dataclass(frozen=True)
class RoundedLoading(OfMiniBatches, HostLoading):
    """A transfer that rounds features before they cross the host link. The maths then differ from
    the reference."""

    #: Whether the host's memory holds rounded features from the start, if the host does not train.
    #: They take less memory, and are gathered as they cross.
    keeps_packed: ClassVar[bool] = False

    @property
    @abstractmethod
    def rounds_to(self) -> str:
        """The type that features are rounded to, such as ``"int8"``. It is empty if an option turns
        rounding off; then nothing is packed."""

    @abstractmethod
    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Pack feature rows ``(n, f)`` of the host's memory for the transfer to an accelerator.
        Only the bytes of the returned tensors are counted and priced."""

    @abstractmethod
    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """Return the rows ``(n, f)`` in ``dtype`` from the output of ``pack``, on the device that
        holds it."""

    def row_bytes(self, width: int, dtype: torch.dtype) -> int:
        """Return the bytes of a packed feature row of ``width`` values that crosses to an
        accelerator."""
        packed = self.pack(torch.zeros(1, width, dtype=dtype))
        return sum(part.numel() * part.element_size() for part in packed)


# --------------------------------------------------------------------------- between devices


class HaloTraffic(TrafficSession):
    """A session in which a unit's rows of other partitions come from the devices that own them.

    ``notes`` are sentences for the report.
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
    """A halo exchange at every layer. Every device holds the rows of its partition, and reads the
    other rows that its unit needs, the halo, from their owners. It sends their gradients back."""

    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"

    def open(self, owner: IntArray) -> TrafficSession:
        return HaloTraffic(owner)


@dataclass(frozen=True)
class Broadcast(HaloExchange):
    """A broadcast: a device sends all rows of its partition to every peer, needed there or not.
    Every peer sends an equal number of gradients back."""


@dataclass(frozen=True)
class StaleExchange(HaloExchange):
    """A halo exchange in which a device may read its peers' rows or gradients of an earlier epoch.
    The maths then differ from full-graph training."""

    @property
    @abstractmethod
    def stale(self) -> frozenset[PeerData]:
        """The data that may come from an earlier epoch; empty if an option turns staleness off."""

    @property
    def arrival_epochs(self) -> int:
        """The number of epochs from sending ``stale`` data to reading it.

        0: the computation of the same epoch waits for the data. Otherwise nothing waits, and the
        peers' rows and gradients are zero until the first have arrived.
        """
        return 0

    def decay(self, what: PeerData) -> float:
        """Return the share of a row, or of a gradient, that remains when a later epoch's value
        arrives. It is below 1; 0, the default, replaces the value.

        A device then reads an average over the epochs, and the weights fall by this factor with
        each epoch of age. Only called for ``stale`` data if there are ``arrival_epochs``.
        """
        return 0.0

    def choose_crossing(self, epoch: int, layer: int, what: PeerData, ids: IntArray) -> BoolArray:
        """Return which of a peer's rows, or which of their gradients, cross in an epoch.

        The others keep the values of their last crossing. The result is bool like ``ids``, the
        vertices that would cross otherwise; if shards are broadcast, it is True for all or for
        none. ``layer`` counts from 0, the layer that reads the features. It is called for ``stale``
        data, for every peer, layer and epoch. Without ``arrival_epochs`` everything crosses in the
        first epoch, with no call.
        """
        return np.ones(len(ids), dtype=np.bool_)


@dataclass(frozen=True)
class AdaptiveExchange(StaleExchange):
    """A stale exchange in which a device sends its rows of a layer again once they changed by
    enough. The device measures the change before the layer reads the rows, and tells all others.

    This takes a copy of the rows that crossed last, a pass over both, and a number to every peer.
    Plans refuse it, since they compute no values.
    """

    @property
    @abstractmethod
    def change_bound(self) -> float | None:
        """The relative change up to which rows do not cross: || H - H' || / || H' ||, by Frobenius
        norms. H are a partition's rows of a layer, and H' the rows that crossed last.

        ``choose_crossing`` decides for features, which never change, and for all rows where the
        bound is None. Rows must be among the ``stale`` data, without ``arrival_epochs``.
        """


@dataclass(frozen=True)
class SampledExchange(HaloExchange):
    """A halo exchange of a random sample: in every epoch a device reads some rows of its halo,
    drawn anew. It skips the others and their edges, so the maths differ from full-graph training.

    All layers of an epoch use one sample, and only gradients of the sampled rows go back.
    """

    @property
    @abstractmethod
    def samples(self) -> bool:
        """Whether rows may be left out; nothing is drawn if an option keeps all of them."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """The factor of a peer's row on arrival, and of its gradient after its return. It keeps
        sums over neighbours unchanged on average."""

    @abstractmethod
    def draw(self, seed: int, epoch: int, slot: int, ids: IntArray) -> BoolArray:
        """Return which rows of its halo device ``slot`` reads in an epoch, bool like ``ids``, the
        vertices of the halo, ascending.

        The result must depend on the arguments alone, where ``seed`` is the workload's: both ends
        of a transfer draw it, possibly in different processes.
        """


@dataclass(frozen=True)
class ShardExchange(Communication):
    """An all-to-all between the shards of AGGREGATE and those of UPDATE. The placement's shards, by
    features and by vertices, decide which data cross."""
