"""Counts of a graph's chunks, and the program units that follow from them.

A lowering of full graphs makes its steps from sizes. Training takes them from movements that are
planned row by row. Here they come from counted sets, or from a paper's volumes spread evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnbench.errors import UsageError
from gnnbench.lowering.footprint import ChunkSize
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.host_plan import HostRows, PeerCopy, UnitPlan
from gnnbench.lowering.shards import Read, Shards, ShardUnit
from gnnbench.machines.machine import Platform
from gnnbench.parts import Communication, HostLoading
from gnnbench.records import BlockSize, BufferRows, IntArray
from gnnbench_plugins.hongtu.communication import HongTuCommunication

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkCounts:
    """The rows that the chunks of an epoch read and compute, in the order they run.

    Arrays are float64. The first axis is the batch j < n, the second the partition i < m. The
    third, if any, is the partition k that a row belongs to. Evenly spread counts need not be whole.
    """

    #: ``(n, m)``: |V_ij|, the destinations of chunk (i, j), and their in-edges without self loops.
    vertices: Counts
    edges: Counts
    #: ``(n, m, m)``: rows of N_ij, which contains V_ij. Their sum is V_ori.
    neighbours: Counts
    #: ``(n, m)``: |T_ij|, the rows of the batch's union that belong to i. Their sum is V_+p2p.
    transition: Counts
    #: ``(n, m)``: |T_ij \ T_i,j-1|, all of T_i0 in batch 0. Their sum is V_+ru.
    loaded: Counts
    #: ``(n, m, m)``: rows that N_ij shares with N_i,j-1; none in batch 0.
    kept: Counts

    @classmethod
    def even(
        cls,
        vertices: float,
        edges: float,
        *,
        partitions: int,
        chunks: int,
        original: float,
        with_p2p: float,
        with_reuse: float,
        of_peers: float | None = None,
    ) -> ChunkCounts:
        """Return evenly spread counts from totals: V_ori, V_+p2p and V_+ru in rows of one pass.

        ``of_peers`` of the V_ori rows belong to other partitions than their reader's. As in
        Equation 4 they default to their minimum V_ori - V_+p2p: each transition row is then read by
        its own device. No neighbour row is assumed to be kept.
        """
        m, n = partitions, chunks
        peers = original - with_p2p if of_peers is None else of_peers
        if not vertices <= with_reuse <= with_p2p <= original:
            raise ValueError(
                f"volumes of {with_reuse:g}, {with_p2p:g} and {original:g} rows for {vertices:g} "
                f"vertices; each must be at least the one before"
            )
        if not original - with_p2p <= peers <= original - vertices:
            raise ValueError(
                f"{peers:g} of {original:g} rows cannot be those of peers: {original - with_p2p:g} "
                f"must be, and the {vertices:g} destinations' own are not"
            )
        each = (n, m)
        transition = np.full(each, with_p2p / (m * n))
        loaded = transition.copy()
        if n > 1:
            loaded[1:] = (with_reuse - with_p2p / n) / (m * (n - 1))
        neighbours = np.zeros((n, m, m))
        own = np.arange(m)
        if m > 1:
            neighbours[:] = peers / (m * n * (m - 1))
        neighbours[:, own, own] = (original - peers) / (m * n)
        return cls(
            vertices=np.full(each, vertices / (m * n)),
            edges=np.full(each, edges / (m * n)),
            neighbours=neighbours,
            transition=transition,
            loaded=loaded,
            kept=np.zeros((n, m, m)),
        )

    @property
    def partitions(self) -> int:
        """m, the number of partitions."""
        return int(self.vertices.shape[1])


# ------------------------------------------------------------------------ vertex data on the host


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """Rows moved by Algorithms 2 and 3, all int64 ``(n, m, m)``.

    Device i loads ``loaded[j, i, k]`` rows of partition k from the host and returns ``leaving[j, i,
    k]`` gradients of such rows there. It takes ``pulled[j, i, k]`` rows from device k and adds
    ``pushed[j, i, k]`` gradients to that device's. It reads ``read[j, i, k]`` rows. Of the rows
    that it reads or relays, ``reused[j, i, k]`` were already there.
    """

    read: IntArray
    loaded: IntArray
    leaving: IntArray
    pulled: IntArray
    pushed: IntArray
    reused: IntArray


def _count_moves(counts: ChunkCounts, communication: Communication) -> _Moves:
    """Count the rows that cross the host link, stay, or go between devices."""
    own = np.eye(counts.partitions, dtype=bool)
    neighbours = _round(counts.neighbours)
    nothing = np.zeros_like(neighbours)
    held, stays, kept, shared = neighbours, nothing, nothing, nothing
    if isinstance(communication, HongTuCommunication):
        if communication.reuse:
            stays = _round(counts.kept)
        if communication.p2p:
            transition = _round(counts.transition)
            shared = np.where(own, 0, neighbours)
            held = own * transition[:, :, None]
            if communication.reuse:
                kept = np.where(own, 0, stays) if communication.neighbour_reuse else nothing
                stays = own * (transition - _round(counts.loaded))[:, :, None]
    leaving, pushed = held.copy(), shared.copy()
    leaving[:-1] -= stays[1:]
    pushed[:-1] -= kept[1:]
    return _Moves(neighbours, held - stays, leaving, shared - kept, pushed, stays + kept)


def _round(counts: Counts) -> IntArray:
    return np.rint(counts).astype(np.int64)


class PartitionHomes:
    """Homes of the rows of a platform's partitions.

    Rows lie at the ``sockets`` of their devices, or ``spread`` evenly over all sockets of a single
    host.
    """

    def __init__(self, platform: Platform, sockets: Sequence[int], *, spread: bool = False) -> None:
        if spread and platform.other_hosts:
            raise UsageError(
                f"platform {platform.name} has several hosts, over whose sockets counted rows "
                f"cannot be spread; leave out placement.numa_aware."
            )
        self._platform, self._spread = platform, spread
        self._sockets = np.array(sockets)
        hosts = [platform.hosts.index(platform.sockets[socket]) for socket in sockets]
        self._hosts = np.array(hosts)

    def place(self, rows: IntArray, slot: int) -> HostRows:
        """Return rows by partition as rows that the device ``slot`` exchanges with the hosts."""
        if self._spread:
            total, count = int(rows.sum()), self._platform.host.memory.sockets
            return HostRows((total,), total * (count - 1) // count)
        near = self._hosts == self._hosts[slot]
        remote = near & (self._sockets != self._sockets[slot])
        return HostRows(self._add_up(rows), int(rows[remote].sum()))

    def of_vertices(self, counts: ChunkCounts) -> Homes:
        """Return the number of vertices at home at each host."""
        return Homes(self._platform, self._add_up(_round(counts.vertices.sum(axis=0))))

    def _add_up(self, rows: IntArray) -> tuple[int, ...]:
        by_host = np.zeros(len(self._platform.hosts), dtype=np.int64)
        np.add.at(by_host, self._hosts, rows)
        return tuple(by_host.tolist())


def plan_units(
    counts: ChunkCounts, communication: Communication, homes: PartitionHomes
) -> tuple[list[list[UnitPlan]], dict[int, BufferRows]]:
    """Return the units of every batch, and a device's buffers for them by slot, if any."""
    moves, chunks = _count_moves(counts, communication), _size_chunks(counts, communication)
    plans = [
        [_plan_unit(moves, j, i, chunk, homes, communication) for i, chunk in enumerate(row)]
        for j, row in enumerate(chunks)
    ]
    buffers = {i: BufferRows(chunk.rows) for i, chunk in enumerate(chunks[0]) if chunk.buffered}
    return plans, buffers


def _size_chunks(counts: ChunkCounts, communication: Communication) -> list[list[ChunkSize]]:
    """Return the chunks in their devices' buffers."""
    rows = counts.neighbours.sum(axis=2)
    shares = isinstance(communication, HostLoading) and communication.shares_rows
    if isinstance(communication, HongTuCommunication) and communication.p2p:
        rows = rows + counts.transition - np.einsum("jii->ji", counts.neighbours)
    # A kernel gets a buffer up to the last occupied row: rows keep their places between batches.
    sources = _round(np.maximum.accumulate(rows) if shares else rows)
    relayed = sources.max(axis=0) - sources if shares else np.zeros_like(sources)
    sizes = np.stack((sources, _round(counts.vertices), _round(counts.edges), relayed), axis=2)
    return [
        [ChunkSize(s, d, e, more, buffered=shares) for s, d, e, more in row]
        for row in sizes.tolist()
    ]


def _plan_unit(
    moves: _Moves,
    j: int,
    i: int,
    chunk: ChunkSize,
    homes: PartitionHomes,
    communication: Communication,
) -> UnitPlan:
    """Return the unit of the chunk of partition i in batch j."""
    outputs = np.zeros_like(moves.read[j, i])
    outputs[i] = chunk.num_dst
    return UnitPlan(
        slot=i,
        size=BlockSize(chunk.num_src, chunk.num_dst, chunk.num_edges, chunk.buffered),
        chunk=chunk,
        inputs=int(moves.read[j, i].sum()),
        loaded=homes.place(moves.loaded[j, i], i),
        leaving=homes.place(moves.leaving[j, i], i),
        outputs=homes.place(outputs, i),
        reused=int(moves.reused[j, i].sum()),
        pulls=_ask_peers(moves.pulled[j, i].tolist(), i, communication),
        pushes=_ask_peers(moves.pushed[j, i].tolist(), i, communication),
    )


def _ask_peers(rows: list[int], slot: int, communication: Communication) -> tuple[PeerCopy, ...]:
    """Return rows by peer, in the order in which ``slot`` asks (Algorithm 2, line 6)."""
    interleaved = isinstance(communication, HongTuCommunication) and communication.interleaved
    start = slot + 1 if interleaved else 0
    peers = (*range(start, len(rows)), *range(start))
    return tuple(PeerCopy(peer, rows[peer]) for peer in peers if rows[peer])


# ------------------------------------------------------------------------ vertex data on devices


def plan_shards(counts: ChunkCounts) -> Shards:
    """Return units over shards of one partition each; others read their rows at every layer."""
    neighbours, owned = _round(counts.neighbours), _round(counts.vertices.sum(axis=0)).tolist()
    sizes = np.stack(
        [_round(each) for each in (counts.neighbours.sum(axis=2), counts.vertices, counts.edges)],
        axis=2,
    )

    def read(j: int, i: int) -> tuple[Read, ...]:
        """Return the own rows first, then the rows of each peer."""
        rows = neighbours[j, i]
        slots = (i, *range(i), *range(i + 1, counts.partitions))
        return tuple(Read.of_size(k, rows[k]) for k in slots if rows[k])

    rounds = [
        [ShardUnit(i, (BlockSize(*size),), (read(j, i),)) for i, size in enumerate(row)]
        for j, row in enumerate(sizes.tolist())
    ]
    return Shards(rounds, owned, owned, undivided=counts.vertices.size == 1)
