"""The origin of the rows that a round needs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gnnbench.records.data import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PeerFetch:
    """Rows that one trainer reads of another's transition set, N_ij ∩ T_kj in HongTu.

    ``ids`` are copied now. ``kept`` were read from a peer for the round before as well; they are
    still in the buffer and are not copied again (N_ij ∩ N_i,j-1, HongTu §6).
    """

    slot: int
    ids: IntArray
    kept: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """The origin of the rows that one trainer needs for one round. All id arrays ascend.

    ``needed`` (N_ij) are the rows its unit reads. ``transition`` (T_ij) are the rows this trainer
    brings in for itself and its peers: the disjoint union of ``from_host`` (N_ij^cpu), which cross
    the host link now, and ``reused`` (N_ij^gpu), which stay from the round before. ``from_peers``
    lists the needed rows in other trainers' transition sets, in the order in which the peers are
    read. Every needed row is in the own transition set, or in exactly one peer fetch, copied or
    kept.
    """

    slot: int
    needed: IntArray
    from_host: IntArray
    reused: IntArray
    from_peers: tuple[PeerFetch, ...] = ()

    @property
    def transition(self) -> IntArray:
        """The ids of all rows in the transition set: from the host, and reused."""
        if len(self.reused) == 0:
            return self.from_host
        return np.union1d(self.from_host, self.reused)

    @property
    def read_from_peers(self) -> IntArray:
        """The needed rows of peers' transition sets, copied or kept, ascending."""
        parts = [ids for peer in self.from_peers for ids in (peer.ids, peer.kept)]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class BufferRows:
    """The rows of a trainer's buffers: ``neighbour`` for its kernel, ``transition`` for peers.

    ``transition`` is None if both are one merged buffer.
    """

    neighbour: int
    transition: int | None = None

    def at_least(self, other: BufferRows) -> BufferRows:
        """Return buffers that are large enough for either; both must be merged, or neither."""
        neighbour = max(self.neighbour, other.neighbour)
        if self.transition is None or other.transition is None:
            return BufferRows(neighbour)
        return BufferRows(neighbour, max(self.transition, other.transition))


@dataclass(frozen=True, slots=True, eq=False)
class RoundTraffic:
    """The fetches of all trainers of a round, one per unit, in the units' order.

    ``merged``: a trainer holds T_ij and N_ij in one buffer (HongTu §6, data buffer deduplication),
    or else in one each. It is equal for all rounds of a run.
    """

    fetches: tuple[Fetch, ...]
    merged: bool = True

    def buffer_rows(self) -> dict[int, BufferRows]:
        """Return, by device index, the rows of room for this round: N_ij and T_ij merged, or each.

        Rows that stay keep their places without extra room. Over several rounds the buffers are as
        large as the largest round's.
        """
        rows = {}
        for fetch in self.fetches:
            transition = len(fetch.from_host) + len(fetch.reused)
            if self.merged:
                # N_ij without T_ij are the peers' rows.
                read = sum(len(peer.ids) + len(peer.kept) for peer in fetch.from_peers)
                rows[fetch.slot] = BufferRows(transition + read)
            else:
                rows[fetch.slot] = BufferRows(len(fetch.needed), transition)
        return rows
