"""What an epoch of HongTu takes, from counts alone: seconds by stage, bytes by tensor.

The work is that of Algorithms 1 to 3, priced as the model clock prices it: bytes over a link
(HyScale-GNN Equations 7, 8 and 13) and what the kernel says AGGREGATE and UPDATE cost (Equations 11
and 12). Nothing is trained and no graph is needed, only what its chunks count. Devices of a batch
run side by side and wait for the slowest; batches run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from gnnbench import footprint
from gnnbench.errors import UsageError
from gnnbench.models import Layer
from gnnbench.parts import Intermediates, Kernel, Memory, OffloadingMemory
from gnnbench.platforms.machine import Device, Link, Platform
from gnnbench.records import Block

Counts = npt.NDArray[np.float64]


# --------------------------------------------------------------------------- what is counted


@dataclass(frozen=True, slots=True, eq=False)
class ChunkCounts:
    """What the chunks of an epoch read and compute, in the order they run.

    Arrays of float64; the first axis is the batch j < n, the second the partition i < m, the third,
    where there is one, the partition k that a row belongs to. Spread evenly, counts need not be
    whole.
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
    #: ``(n, m, m)``: rows of N_ij that N_i,j-1 has as well; none in batch 0.
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
    ) -> ChunkCounts:
        """Counts spread evenly from totals: V_ori, V_+p2p and V_+ru in rows of one pass.

        As in Equation 4, every transition row is one that its own device reads, so that
        V_ori - V_+p2p rows come from peers; no neighbour row is known to be kept.
        """
        m, n = partitions, chunks
        if not vertices <= with_reuse <= with_p2p <= original:
            raise ValueError(
                f"volumes of {with_reuse:g}, {with_p2p:g} and {original:g} rows for {vertices:g} "
                f"vertices; each must be at least the one before"
            )
        each = (n, m)
        transition = np.full(each, with_p2p / (m * n))
        loaded = transition.copy()
        if n > 1:
            loaded[1:] = (with_reuse - with_p2p / n) / (m * (n - 1))
        neighbours = np.zeros((n, m, m))
        own = np.arange(m)
        if m > 1:
            neighbours[:] = (original - with_p2p) / (m * n * (m - 1))
        neighbours[:, own, own] = with_p2p / (m * n)
        return cls(
            vertices=np.full(each, vertices / (m * n)),
            edges=np.full(each, edges / (m * n)),
            neighbours=neighbours,
            transition=transition,
            loaded=loaded,
            kept=np.zeros((n, m, m)),
        )


@dataclass(frozen=True, slots=True)
class Method:
    """How HongTu communicates: the options of its communication part.

    Where neighbour sets cross ``direct``, without a buffer that others read, it is the baseline of
    §7.1. Rows of peers that stay ``in_place`` from batch to batch (§6) are not fetched again, with
    ``reuse``; ``interleaved`` devices start with another peer each.
    """

    p2p: bool = True
    reuse: bool = True
    in_place: bool = True
    interleaved: bool = True
    direct: bool = False


#: HongTu with everything on, and its baseline.
DEDUPLICATED = Method()
BASELINE = Method(p2p=False, reuse=False, direct=True)


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """Seconds of one epoch on the path that decides how long it takes; they add up to it.

    ``accumulate_s`` is the CPU's work: adding gradients (Algorithm 3, line 7), clearing them, and
    the loss. ``compute_s`` is AGGREGATE and UPDATE, forward, again, and backward.
    """

    host_to_device_s: float = 0.0
    device_to_device_s: float = 0.0
    compute_s: float = 0.0
    accumulate_s: float = 0.0
    device_to_host_s: float = 0.0
    all_reduce_s: float = 0.0

    @property
    def epoch_s(self) -> float:
        return (
            self.host_to_device_s
            + self.device_to_device_s
            + self.compute_s
            + self.accumulate_s
            + self.device_to_host_s
            + self.all_reduce_s
        )

    def __add__(self, other: EpochTimes) -> EpochTimes:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return EpochTimes(*(one + another for one, another in pairs))


# --------------------------------------------------------------------------- time


def predict_epoch(
    counts: ChunkCounts,
    layers: Sequence[Layer],
    platform: Platform,
    kernel: Kernel,
    memory: Memory,
    method: Method = DEDUPLICATED,
    *,
    itemsize: int = 4,
    sparse_bytes_per_s: float | None = None,
) -> EpochTimes:
    """Seconds of one epoch, Algorithm 1, on the first m accelerators of ``platform``.

    ``memory`` says what becomes of each layer's intermediates; what of them is offloaded is an
    estimate (``footprint.saved_bytes``), and what a host has to spill to its disk is not in the
    times. ``sparse_bytes_per_s`` is how fast rows picked one by one cross a host link
    (``mem_copy_sparse`` of Algorithms 2 and 3), None as fast as blocks.

    Raises ``UsageError`` where the platform has fewer than m accelerators.
    """
    return _Epoch(
        counts, layers, platform, kernel, memory, method, itemsize, sparse_bytes_per_s
    ).run()


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """Rows moved under one method, all ``(n, m, m)``.

    Device i loads ``loaded[j, i, k]`` rows of partition k from the host and returns
    ``leaving[j, i, k]`` gradients of such rows there; it takes ``pulled[j, i, k]`` rows from device
    k and adds ``pushed[j, i, k]`` gradients to that device's.
    """

    loaded: Counts
    leaving: Counts
    pulled: Counts
    pushed: Counts


def _count_moves(counts: ChunkCounts, method: Method) -> _Moves:
    """Algorithms 2 and 3 as counts: which rows cross the host link, stay, or go between devices."""
    own = np.eye(counts.vertices.shape[1], dtype=bool)
    pulled, pushed = np.zeros_like(counts.neighbours), np.zeros_like(counts.neighbours)
    held, stays = counts.neighbours, counts.kept
    if method.p2p:
        kept = counts.kept if method.reuse and method.in_place else 0.0 * counts.kept
        pulled = np.where(own, 0.0, counts.neighbours - kept)
        pushed = np.where(own, 0.0, counts.neighbours)
        pushed[:-1] -= np.where(own, 0.0, kept[1:])
        held = own * counts.transition[:, :, None]
        stays = held - own * counts.loaded[:, :, None]
    if not method.reuse:
        stays = np.zeros_like(held)
    leaving = held.copy()
    leaving[:-1] -= stays[1:]
    return _Moves(held - stays, leaving, pulled, pushed)


def _count_rows(counts: ChunkCounts, method: Method) -> Counts:
    """Rows of N_ij and T_ij together, ``(n, m)``, which are in a device's buffer."""
    rows: Counts = counts.neighbours.sum(axis=2)
    if method.p2p:
        rows = rows + counts.transition - np.einsum("jii->ji", counts.neighbours)
    return rows


class _Epoch:
    """One epoch of one setting; sums what the slowest device takes at each point of meeting."""

    def __init__(
        self,
        counts: ChunkCounts,
        layers: Sequence[Layer],
        platform: Platform,
        kernel: Kernel,
        memory: Memory,
        method: Method,
        itemsize: int,
        sparse_bytes_per_s: float | None,
    ) -> None:
        batches, partitions = counts.vertices.shape
        if len(platform.accelerators) < partitions:
            raise UsageError(
                f"platform {platform.name} has {len(platform.accelerators)} accelerators for "
                f"{partitions} partitions; choose as many partitions, or another platform."
            )
        self._counts = counts
        self._layers = layers
        self._platform = platform
        self._kernel = kernel
        self._memory = memory
        self._method = method
        self._itemsize = itemsize
        self._sparse_rate = sparse_bytes_per_s or float("inf")
        self._resident = not isinstance(memory, OffloadingMemory)
        self._devices = platform.accelerators[:partitions]
        self._batches = range(batches)
        self._moves = _count_moves(counts, method)
        sockets = np.array([platform.socket(device) for device in self._devices])
        self._remote = sockets[:, None] != sockets[None, :]
        # A kernel is handed all rows of a buffer, also those that are there for peers.
        self._buffered = not (method.direct or self._resident)
        read = _count_rows(counts, method) if self._buffered else counts.neighbours.sum(axis=2)
        self._blocks = [
            [_outline(v, e, s) for v, e, s in zip(*rows, strict=True)]
            for rows in zip(counts.vertices, counts.edges, read, strict=True)
        ]

    def run(self) -> EpochTimes:
        """Algorithm 1, lines 4 to 21."""
        total = EpochTimes()
        for number in range(len(self._layers)):
            total += self._forward(number)
        total += EpochTimes(accumulate_s=self._loss_s())
        for number in reversed(range(len(self._layers))):
            total += self._backward(number)
        return total + EpochTimes(all_reduce_s=self._all_reduce_s())

    # ------------------------------------------------------------------ passes over one layer

    def _forward(self, number: int) -> EpochTimes:
        """Algorithm 1, lines 5 to 9: load, AGGREGATE and UPDATE, outputs to the host."""
        layer = self._layers[number]
        policy = self._policy(layer)
        total = EpochTimes()
        for j in self._batches:
            total += self._load(j, layer)
            chains = []
            for i, device in enumerate(self._devices):
                block = self._blocks[j][i]
                stored = self._copy_s(i, block.num_dst * layer.out_features)
                if policy == "cache":
                    stored += self._copy_s(i, block.num_dst * layer.aggregate_features)
                elif policy == "offload":
                    stored += self._copy_s(i, self._saved_elements(layer, block))
                compute = _overlap(
                    device,
                    self._aggregate_s(layer, block, device),
                    self._update_s(layer, block, device),
                )
                sent = self._topology_s(i, layer, block, backward=False)
                chains.append(
                    EpochTimes(host_to_device_s=sent, compute_s=compute, device_to_host_s=stored)
                )
            total += _slowest(chains)
        return total

    def _backward(self, number: int) -> EpochTimes:
        """Algorithm 1, lines 13 to 19: checkpoints and gradients arrive, the layer is computed
        again as far as it must be and differentiated, gradients of the input rows return."""
        layer = self._layers[number]
        policy = self._policy(layer)
        first = number == 0
        gemms = 1 if first and layer.cacheable else 2
        computed = policy in ("cache", "recompute")
        total = EpochTimes()
        if not first:
            total += EpochTimes(accumulate_s=self._clear_s(layer))
        for j in self._batches:
            if policy == "recompute":
                total += self._load(j, layer)
            if not first and self._buffered:
                # Gradients of rows that came start from zero in the devices' buffers.
                came = (self._moves.loaded[j] + self._moves.pulled[j]).sum(axis=1)
                total += _slowest(
                    [
                        EpochTimes(device_to_device_s=self._within_s(i, rows, layer.in_features))
                        for i, rows in enumerate(came.tolist())
                    ]
                )
            chains = []
            for i, device in enumerate(self._devices):
                block = self._blocks[j][i]
                arrived = self._copy_s(i, block.num_dst * layer.out_features)
                if policy is not None and footprint.reads_topology(policy, first=first):
                    arrived += self._topology_s(i, layer, block, backward=True)
                if policy == "cache":
                    arrived += self._copy_s(i, block.num_dst * layer.aggregate_features)
                elif policy == "offload":
                    arrived += self._copy_s(i, self._saved_elements(layer, block))
                aggregate = self._aggregate_s(layer, block, device)
                again = self._update_s(layer, block, device) if computed else 0.0
                if policy == "recompute":
                    again = _overlap(device, aggregate, again)
                back = self._update_s(layer, block, device, gemms)
                if not (first and layer.cacheable):
                    back = _overlap(device, back, aggregate)
                chains.append(EpochTimes(host_to_device_s=arrived, compute_s=again + back))
            total += _slowest(chains) if first else self._return(j, layer, chains)
        return total

    def _load(self, j: int, layer: Layer) -> EpochTimes:
        """Algorithm 2: rows from the host, then from peers, each when all devices have got there;
        what stays from the batch before costs nothing (§6)."""
        width = layer.in_features
        arrivals = [
            EpochTimes(host_to_device_s=self._copy_rows_s(i, rows, width))
            for i, rows in enumerate(self._moves.loaded[j])
        ]
        met = _slowest(arrivals)
        return met + self._exchange(self._moves.pulled[j] * width, [met.epoch_s] * len(arrivals))

    def _return(self, j: int, layer: Layer, chains: Sequence[EpochTimes]) -> EpochTimes:
        """Algorithm 3: gradients to their owners' devices, those that leave to the host, which
        adds them up for one device after the other."""
        width = layer.in_features
        leaving = self._moves.leaving[j]
        met, waiting = EpochTimes(), list(chains)
        if not self._method.direct:
            ready_s = [chain.epoch_s for chain in chains]
            met = _slowest(chains) + self._exchange(self._moves.pushed[j] * width, ready_s)
            # Figure 7 (b): gathered in the device's memory first.
            waiting = [
                EpochTimes(device_to_device_s=self._within_s(i, float(rows.sum()), width))
                for i, rows in enumerate(leaving)
            ]
        crossed = [
            chain + EpochTimes(device_to_host_s=self._copy_rows_s(i, rows, width))
            for i, (chain, rows) in enumerate(zip(waiting, leaving, strict=True))
        ]
        # Each element is read twice and written once by the addition.
        added = [self._on_host_s(3 * float(rows.sum()) * width) for rows in leaving]
        return met + _one_after_the_other(crossed, added)

    # ------------------------------------------------------------------ prices

    def _policy(self, layer: Layer) -> Intermediates | None:
        """What becomes of a layer's intermediates; None where they stay on the devices."""
        memory = self._memory
        return memory.intermediates(layer.shape) if isinstance(memory, OffloadingMemory) else None

    def _saved_elements(self, layer: Layer, block: Block) -> float:
        size = footprint.saved_bytes(layer.shape, footprint.size_of(block), self._itemsize)
        return size / self._itemsize

    def _copy_s(self, i: int, elements: float) -> float:
        """A block of elements over device i's link with the host, either way; nothing where vertex
        data lives on the devices."""
        if self._resident:
            return 0.0
        link = self._host_link(i)
        return link.latency_s + elements * self._itemsize / link.bandwidth_bytes_per_s

    def _topology_s(self, i: int, layer: Layer, block: Block, *, backward: bool) -> float:
        """A chunk's topology over device i's link, where it waits on the host."""
        memory = self._memory
        if not (isinstance(memory, OffloadingMemory) and memory.streams_topology()):
            return 0.0
        chunk = footprint.ChunkSize(
            len(block.src_ids), block.num_dst, block.num_edges, buffered=not self._method.direct
        )
        size = footprint.crossing_topology_bytes(
            layer.shape, chunk, self._itemsize, backward=backward
        )
        return self._copy_s(i, size / self._itemsize)

    def _copy_rows_s(self, i: int, rows: Counts, width: int) -> float:
        """Rows by partition over the same link, picked one by one; those of partitions whose
        devices are at other sockets cross between sockets as well."""
        if self._resident:
            return 0.0
        link = self._host_link(i)
        size = rows * (width * self._itemsize)
        remote = float(size[self._remote[i]].sum())
        rate = min(link.bandwidth_bytes_per_s, self._sparse_rate)
        seconds = link.latency_s + (float(size.sum()) - remote) / rate
        if remote:
            seconds += remote / min(rate, self._platform.host.socket_bandwidth_bytes_per_s)
        return seconds

    def _host_link(self, i: int) -> Link:
        return self._platform.link(self._platform.host.name, self._devices[i].name)

    def _on_host_s(self, elements: float) -> float:
        """Elements read or written in the memory where vertex data lives, by its own device."""
        device = self._devices[0] if self._resident else self._platform.host
        return elements * self._itemsize / device.bandwidth_bytes_per_s()

    def _within_s(self, i: int, rows: float, width: int) -> float:
        """Rows copied within device i's memory."""
        return rows * width * self._itemsize / self._devices[i].bandwidth_bytes_per_s()

    def _exchange(self, elements: Counts, ready_s: Sequence[float]) -> EpochTimes:
        """``(m, m)`` elements between devices i and k, from the last of ``ready_s`` on: a device
        asks one peer after the other, and a peer serves one device at a time (Algorithm 2, lines 5
        to 7; Algorithm 3, lines 1 to 3)."""
        count = len(ready_s)
        turns = []
        for i in range(count):
            start = i + 1 if self._method.interleaved else 0
            peers = [(start + step) % count for step in range(count)]
            turns.append([k for k in peers if elements[i, k] > 0])
        free_s, served_s = list(ready_s), [0.0] * count
        while any(turns):
            began_s, i = min(
                (max(free_s[i], served_s[peers[0]]), i) for i, peers in enumerate(turns) if peers
            )
            k = turns[i].pop(0)
            link = self._platform.link(self._devices[i].name, self._devices[k].name)
            size = float(elements[i, k]) * self._itemsize
            free_s[i] = began_s + link.latency_s + size / link.bandwidth_bytes_per_s
            served_s[k] = free_s[i]
        return EpochTimes(device_to_device_s=max(free_s) - max(ready_s))

    def _aggregate_s(self, layer: Layer, block: Block, device: Device) -> float:
        return self._kernel.seconds(layer.aggregate_work(block, self._itemsize), device)

    def _update_s(self, layer: Layer, block: Block, device: Device, gemms: int = 1) -> float:
        work = layer.update_work(block.num_dst, self._itemsize, gemms)
        return self._kernel.seconds(work, device)

    def _clear_s(self, layer: Layer) -> float:
        """The CPU's writing of zeros into a layer's gradients."""
        return self._on_host_s(float(self._counts.vertices.sum()) * layer.in_features)

    def _loss_s(self) -> float:
        """Algorithm 1, lines 10 and 11: the CPU reads h^L and writes its gradient."""
        return self._on_host_s(
            2 * float(self._counts.vertices.sum()) * self._layers[-1].out_features
        )

    def _all_reduce_s(self) -> float:
        """Line 21: 2 (m-1)/m of the model around a ring, or to the host and back; then a step."""
        size = sum(layer.shape.parameters for layer in self._layers) * self._itemsize
        first, count = self._devices[0], len(self._devices)
        step = 3 * size / first.bandwidth_bytes_per_s()
        if count == 1:
            return step
        peer, share = self._platform.host, 2.0 * size
        if not self._method.direct:
            peer, share = self._devices[1], 2.0 * (count - 1) * size / count
        link = self._platform.link(first.name, peer.name)
        return link.latency_s + share / link.bandwidth_bytes_per_s + step


def _outline(vertices: float, edges: float, sources: float) -> Block:
    """A block of this size whose arrays are one element seen many times: layers size their work by
    blocks, and look at nothing else."""
    num_dst, num_edges = round(vertices), round(edges)
    return Block(
        src_ids=np.broadcast_to(np.int64(0), (max(round(sources), num_dst),)),
        num_dst=num_dst,
        indptr=np.broadcast_to(np.int64(0), (num_dst + 1,)),
        indices=np.broadcast_to(np.int32(0), (num_edges,)),
    )


def _overlap(device: Device, one_s: float, other_s: float) -> float:
    """Two kernels of a device: one after the other, or at once where it is a pipeline of them
    (HyScale-GNN Equation 10)."""
    return max(one_s, other_s) if device.pipelined else one_s + other_s


def _slowest(chains: Sequence[EpochTimes]) -> EpochTimes:
    """What devices that run side by side take: the longest of them."""
    return max(chains, key=lambda chain: chain.epoch_s)


def _one_after_the_other(arrivals: Sequence[EpochTimes], added: Sequence[float]) -> EpochTimes:
    """Devices' rows arrive side by side, and the host adds them in the order they come.

    The last addition ends a busy stretch of the host; what came before that stretch is the arrival
    that it began with.
    """
    began, ended_s = EpochTimes(), 0.0
    order = sorted(range(len(arrivals)), key=lambda i: arrivals[i].epoch_s)
    for i in order:
        if arrivals[i].epoch_s >= ended_s:
            began, ended_s = arrivals[i], arrivals[i].epoch_s
        ended_s += added[i]
    return began + EpochTimes(accumulate_s=ended_s - began.epoch_s)


# --------------------------------------------------------------------------- memory


def predict_device_bytes(
    counts: ChunkCounts,
    layers: Sequence[Layer],
    memory: OffloadingMemory,
    kernel: Kernel,
    method: Method = DEDUPLICATED,
    *,
    itemsize: int = 4,
) -> int:
    """The most that the fullest device holds: chunks' topologies, the model, and one layer of one
    chunk, (1 + alpha) |V| / (m n) rows on average (§4.3)."""
    shapes = [layer.shape for layer in layers]
    read, rows = counts.neighbours.sum(axis=2), _count_rows(counts, method)
    # A device's buffer serves all its batches, and is as large as the largest asks for.
    relayed = rows.max(axis=0) - read if not method.direct else np.zeros_like(read)
    batches, partitions = read.shape
    sizes = [
        [
            footprint.ChunkSize(
                num_src=round(float(read[j, i])),
                num_dst=round(float(counts.vertices[j, i])),
                num_edges=round(float(counts.edges[j, i])),
                relayed=round(float(relayed[j, i])),
                buffered=not method.direct,
            )
            for j in range(batches)
        ]
        for i in range(partitions)
    ]
    return max(footprint.device_bytes(shapes, memory, chunks, itemsize, kernel) for chunks in sizes)


def predict_data_bytes(
    counts: ChunkCounts, layers: Sequence[Layer], *, itemsize: int = 4
) -> dict[str, int]:
    """What the host holds by tensor in every run: the graph in 64 and 32-bit indices, features,
    labels and masks, and the optimiser's state."""
    shapes = [layer.shape for layer in layers]
    vertices, edges = round(float(counts.vertices.sum())), round(float(counts.edges.sum()))
    return {
        "graph topology": 8 * (vertices + 1) + 4 * edges,
        "vertex features": vertices * shapes[0].in_features * itemsize,
        "labels and masks": 11 * vertices,
        "optimiser state": 3 * sum(shape.parameters for shape in shapes) * itemsize,
    }


def predict_host_bytes(
    counts: ChunkCounts, layers: Sequence[Layer], memory: OffloadingMemory, *, itemsize: int = 4
) -> dict[str, int]:
    """What the host holds by tensor, nothing spilled: the data of every run, and Algorithm 1's line
    3."""
    shapes = [layer.shape for layer in layers]
    vertices, edges = round(float(counts.vertices.sum())), round(float(counts.edges.sum()))
    tensors = footprint.host_tensors(
        shapes,
        list(map(memory.intermediates, shapes)),
        num_vertices=vertices,
        num_sources=round(float(counts.neighbours.sum())),
        num_edges=edges,
        itemsize=itemsize,
        own_features=False,
    )
    return {
        **predict_data_bytes(counts, layers, itemsize=itemsize),
        **{tensor.name: tensor.size_bytes for tensor in tensors},
    }
