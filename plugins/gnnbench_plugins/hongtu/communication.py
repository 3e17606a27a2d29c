"""Deduplicated communication: HongTu §5.1, §5.2 and §6."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnbench.kernels.dispatch import list_fetches, list_marks, mark_sets
from gnnbench.kernels.reference.sets import Bitmaps
from gnnbench.kernels.slabs import Slab
from gnnbench.parts import (
    Bundle,
    HostLoading,
    OffloadingMemory,
    Setting,
    TrafficSession,
    option,
)
from gnnbench.records import Fetch, IntArray, PeerFetch, Round, RoundTraffic

_NOTHING: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Deduplication:
    """The options of deduplication.

    Each vertex of a round crosses the host link once, to its partition's device.

    The union of a round's neighbour sets is divided by owner into transition sets T_ij. A device
    keeps the rows that it already has from the round before (T_ij ∩ T_i,j-1). It fetches its other
    needed rows from its peers, except those that it fetched for the round before (N_ij ∩ N_i,j-1).
    A transition row may be there for peers only.
    """

    all_reduce: ClassVar[Literal["host", "ring"]] = "ring"
    shares_rows: ClassVar[bool] = True

    p2p: bool = option(True, "share rows between devices (+P2P)", tried=(True, False))
    reuse: bool = option(True, "keep rows between neighbouring rounds (+RU)", tried=(True, False))
    neighbour_reuse: bool = option(True, "with reuse, keep rows fetched from peers as well")
    buffers: Literal["merged", "separate"] = option(
        "merged", "transition and neighbour rows in one buffer, or in one each"
    )
    interleaved: bool = option(True, "each device starts with another peer")

    def open(self, owner: IntArray) -> TrafficSession:
        return DeduplicatedTraffic(self, owner)


@dataclass(frozen=True)
class HongTuCommunication(Deduplication, HostLoading):
    """Deduplicated communication between successive rounds.

    The ``overlap`` of rounds of full graphs is an extension: the paper does not mention it.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "each row crosses the host link once a round, and is reused after"

    overlap: bool = option(
        False, "outputs leave, and gradients come, while devices are at other chunks"
    )

    @property
    def overlaps(self) -> bool:
        return self.overlap

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.overlap and not isinstance(bundle.memory, OffloadingMemory):
            return (
                f"communication.overlap needs full graphs with vertex data on the host, which "
                f"memory {bundle.memory.name!r} does not have. Choose memory 'hongtu', or for "
                f"mini-batches communication 'hyscale-hongtu'."
            )
        return None


class DeduplicatedTraffic(TrafficSession):
    """Transition sets of a run's rounds, as bitmaps, and the rows that they keep off the links."""

    def __init__(self, part: Deduplication, owner: IntArray) -> None:
        super().__init__(owner)
        self._part = part
        #: The last planned round, and the bitmaps of its N_ij and T_ij by position.
        self._planned: tuple[RoundTraffic, Bitmaps, Bitmaps] | None = None
        #: A round's slots, the bitmaps of their owned vertices, and whether these are all vertices.
        self._slots: list[int] = []
        self._owned = mark_sets((), 0)
        self._all_owned = False
        #: Storage for the sets of all rounds.
        self._lists = Slab()
        self._original = self._transition = self._host = 0
        self._fetched = self._kept = 0

    def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
        owner = self.owner
        slots = [unit.slot for unit in round_.units]
        count, threads = len(slots), torch.get_num_threads()
        needed = mark_sets([unit.input_ids for unit in round_.units], len(owner), threads=threads)
        transition = self._transitions(needed, slots)
        held, read = self._find_held(previous, slots, len(owner))
        # Without P2P a device's transition set is all it needs, and no peer has other rows.
        lists = list_fetches(needed, transition, held, read, self._lists, threads=threads)
        fetches = []
        for i, (slot, (mine, crossing, reused, *shared)) in enumerate(
            zip(slots, lists, strict=True)
        ):
            # Algorithm 2, line 6: every device starts with the peer after it.
            start = i + 1 if self._part.interleaved else 0
            peers = []
            for k in (*range(start, count), *range(start)):
                copied, kept = shared[k], shared[count + k]
                if len(copied) or len(kept):
                    peers.append(PeerFetch(slots[k], copied, kept))
                    self._fetched += len(copied)
                    self._kept += len(kept)
            fetches.append(Fetch(slot, mine, crossing, reused, tuple(peers)))
            self._original += len(mine)
            self._host += len(crossing)
            self._transition += len(crossing) + len(reused)
        traffic = RoundTraffic(tuple(fetches), merged=self._part.buffers == "merged")
        self._planned = (traffic, needed, transition)
        return traffic

    def _transitions(self, needed: Bitmaps, slots: list[int]) -> Bitmaps:
        """Return T_ij: the union of a round's neighbour sets by owner, or each without P2P."""
        if not self._part.p2p or not slots:
            return needed
        owner = self.owner
        if self._slots != slots:
            self._slots = slots
            members = [np.flatnonzero(owner == slot) for slot in slots]
            self._owned = mark_sets(members, len(owner))
            self._all_owned = sum(map(len, members)) == len(owner)
        union: Bitmaps = np.bitwise_or.reduce(needed, axis=0)
        transition: Bitmaps = union & self._owned
        if self._all_owned:
            return transition
        stray = union & ~np.bitwise_or.reduce(transition, axis=0)
        if stray.any():
            # The rows of a partition without a unit in this (last, short) round go to other slots.
            (ids,) = list_marks(stray[None])
            to = np.sort(slots)[ids % len(slots)]
            transition |= mark_sets([ids[to == slot] for slot in slots], len(owner))
        return transition

    def _find_held(
        self, previous: RoundTraffic | None, slots: list[int], num_vertices: int
    ) -> tuple[Bitmaps, Bitmaps]:
        """Return the previous round's rows that may stay: T_i,j-1, and rows read from peers."""
        if previous is None or not self._part.reuse:
            nothing = mark_sets([_NOTHING] * len(slots), num_vertices)
            return nothing, nothing
        same = [fetch.slot for fetch in previous.fetches] == slots
        if same and self._planned is not None and self._planned[0] is previous:
            _, needed, held = self._planned
        else:
            last = {fetch.slot: fetch for fetch in previous.fetches}
            before = [last.get(slot, Fetch(slot, _NOTHING, _NOTHING, _NOTHING)) for slot in slots]
            needed = mark_sets([fetch.needed for fetch in before], num_vertices)
            held = mark_sets([fetch.transition for fetch in before], num_vertices)
        return held, needed & ~held if self._part.neighbour_reuse else np.zeros_like(held)

    def idle(self) -> tuple[str, ...]:
        if not (self._part.p2p or self._part.reuse) or self._host < self._original:
            return ()
        return ("deduplication (no row was kept off the host links)",)

    def notes(self) -> tuple[str, ...]:
        if not self._original:
            return ()
        count = len(self.owner)
        # A needed row is in the device's own transition set, or is read from a peer's.
        relayed = self._transition - (self._original - self._fetched - self._kept)
        return (
            f"rows that cross the host link in a pass over the rounds: "
            f"V_ori {self._original:,} ({self._original / count:.2f} |V|), "
            f"V_+p2p {self._transition:,} ({self._transition / count:.2f} |V|), "
            f"V_+ru {self._host:,} ({self._host / count:.2f} |V|); "
            f"{relayed:,} rows were brought in for peers only",
            f"rows that a device reads of its peers' transition sets in a pass: {self._fetched:,} "
            f"copied, {self._kept:,} there from the round before",
        )
