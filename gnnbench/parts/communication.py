"""Communications: which data cross which link."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.parts.base import FULL_GRAPHS, Part, Session
from gnnbench.records import (
    BoolArray,
    Fetch,
    IntArray,
    Mode,
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


class GradientAverage:
    """The average of gradients over devices, which every communication states.

    ``host`` gathers gradients in a synchroniser on the host and sends the average back (HyScale-GNN
    Equation 13); ``ring`` is a ring all-reduce between the trainers.
    """

    kind: ClassVar[PartKind] = "communication"
    #: How a full graph's gradients are averaged.
    all_reduce: ClassVar[Literal["host", "ring"]] = "host"
    #: How gradients of mini-batches are averaged. After a ring each trainer updates its own model,
    #: as in torch's distributed data parallel.
    batch_all_reduce: ClassVar[Literal["host", "ring"]] = "host"


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


def _sort_inputs(unit: Unit) -> IntArray:
    """Return the vertices that a unit reads, ascending. A chunk lists its own vertices and then all
    others: two ascending runs that a stable sort merges."""
    return np.sort(unit.input_ids, kind="stable")


class _NothingMoves(TrafficSession):
    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        needed = [(unit.slot, _sort_inputs(unit)) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, _NOTHING, ids) for slot, ids in needed))


@dataclass(frozen=True)
class NoTransfer(GradientAverage, Part):
    """No transfer: vertex data is on the device that needs it, so every row counts as reused."""

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        """The number of pipeline stages, as in :attr:`HostLoading.prefetch`."""
        return 0

    def open(self, owner: IntArray) -> TrafficSession:
        """Plan the traffic of a run; ``owner`` maps each vertex to the device index of its
        partition."""
        return _NothingMoves(owner)


class EverythingCrosses(TrafficSession):
    """A session in which a unit's whole input set crosses the host link."""

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        needed = [(unit.slot, _sort_inputs(unit)) for unit in round_.units]
        return RoundTraffic(tuple(Fetch(slot, ids, ids, _NOTHING) for slot, ids in needed))


class OwnRowsStay(TrafficSession):
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
class HostLoading(GradientAverage, Part):
    """A transfer in which the rows of every unit, mini-batch or chunk, come from the host.

    A subclass overrides what it does beyond that: it prefetches, streams, shares or rounds rows.
    """

    #: Whether rows from the host stay for the next round or are shared between devices, as
    #: ``open``'s session plans it. Every device has a buffer for these rows.
    shares_rows: ClassVar[bool] = False
    #: Whether the host's memory holds rounded features from the start, if the host does not train.
    #: They take less memory, and are gathered as they cross.
    keeps_packed: ClassVar[bool] = False

    def open(self, owner: IntArray) -> TrafficSession:
        """Plan the traffic of a run; ``owner`` maps each vertex to the device index of its
        partition."""
        return EverythingCrosses(owner) if self.ahead is None else OwnRowsStay(owner)

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        """The number of pipeline stages that load mini-batches while devices train on earlier ones.

        0: a round starts when the last has finished. 1: load and transfer are one stage. 2: they
        are two stages that overlap (HyScale-GNN §IV-B).
        """
        return 0

    @property
    def ahead(self) -> int | None:
        """The number of units of a full graph, besides the one in work, with rows on the device or
        in flight.

        It is None where transfers do not overlap with the device's work on earlier units. If they
        do and a chunk's in-edges come in pieces, the rows of its destinations cross with the first
        piece.
        """
        return None

    @property
    def overlaps(self) -> bool:
        """Whether rounds of a full graph overlap, where rows are shared. A unit's results then
        leave the device while rows of the next unit arrive, and backward inputs of a unit arrive
        during the unit before. Otherwise each round begins when the one before has finished."""
        return False

    @property
    def rounds_to(self) -> str:
        """The type that features of mini-batches are rounded to before they cross, such as
        ``"int8"``; empty if they are not. The maths differ from the reference where they are."""
        return ""

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Pack feature rows ``(n, f)`` of the host's memory for the transfer to an accelerator.
        Only the bytes of the returned tensors are counted and priced."""
        return (rows,)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """Return the rows ``(n, f)`` in ``dtype`` from the output of ``pack``, on the device that
        holds it."""
        return crossed[0].to(dtype)

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
class HaloExchange(GradientAverage, Part):
    """A halo exchange at every layer. Every device holds the rows of its partition, and reads the
    other rows that its unit needs, the halo, from their owners. It sends their gradients back.

    A subclass may broadcast rows, send some of them late, or read a sample of the halo.
    """

    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"
    #: Whether a device sends all rows of its partition to every peer, needed there or not. Every
    #: peer sends an equal number of gradients back.
    broadcasts: ClassVar[bool] = False

    def open(self, owner: IntArray) -> TrafficSession:
        """Plan the traffic of a run; ``owner`` maps each vertex to the device index of its
        partition."""
        return HaloTraffic(owner)

    # ----------------------------------------------------------------------- stale rows

    @property
    def stale(self) -> frozenset[PeerData]:
        """The data of peers that may come from an earlier epoch; the maths then differ from
        full-graph training."""
        return frozenset()

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

    @property
    def change_bound(self) -> float | None:
        """The relative change up to which rows do not cross; None where ``choose_crossing``
        decides.

        The change is || H - H' || / || H' ||, by Frobenius norms. H are a partition's rows of a
        layer, and H' the rows that crossed last. The device measures the change before the layer
        reads the rows, and tells all others. This takes a copy of the rows that crossed last, a
        pass over both, and a number to every peer. Plans refuse it, since they compute no values.
        ``choose_crossing`` decides for features, which never change. Rows must be among the
        ``stale`` data, without ``arrival_epochs``.
        """
        return None

    # ----------------------------------------------------------------------- sampled halos

    @property
    def samples(self) -> bool:
        """Whether a device reads a random sample of its halo, drawn anew in every epoch. It skips
        the others and their edges, so the maths differ from full-graph training.

        All layers of an epoch use one sample, and only gradients of the sampled rows go back.
        """
        return False

    @property
    def scale(self) -> float:
        """The factor of a sampled row on arrival, and of its gradient after its return. It keeps
        sums over neighbours unchanged on average."""
        return 1.0

    def draw(self, seed: int, epoch: int, slot: int, ids: IntArray) -> BoolArray:
        """Return which rows of its halo device ``slot`` reads in an epoch, bool like ``ids``, the
        vertices of the halo, ascending; called where it ``samples``.

        The result must depend on the arguments alone, where ``seed`` is the workload's: both ends
        of a transfer draw it, possibly in different processes.
        """
        return np.ones(len(ids), dtype=np.bool_)


@dataclass(frozen=True)
class ShardExchange(GradientAverage, Part):
    """An all-to-all between the shards of AGGREGATE and those of UPDATE. The placement's shards, by
    features and by vertices, decide which data cross."""


#: The data that cross each link, and the data that need not.
Communication = NoTransfer | HostLoading | HaloExchange | ShardExchange
