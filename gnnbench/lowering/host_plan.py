"""The place of vertex data on the host: its memory or its disk, and one of its sockets."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnbench.lowering.footprint import ChunkSize, HostKind, HostTensor, choose_spilled, size_of
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.movement import SlotMovement
from gnnbench.machines.machine import DISK, Device, Platform
from gnnbench.parts import Setting
from gnnbench.program import Free, Hold, Ledger
from gnnbench.records import Block, BlockSize, BoolArray, BufferRows, IndexArray, IntArray
from gnnbench.units import format_si

PAGE_BYTES = mmap.PAGESIZE


class HostPlan:
    """The tensors that a run has on the host, and those that are ``spilled`` to its disk.

    If there are several hosts, each has the data of its vertices, and none spills.

    ``directory`` is where files go; without one nothing is spilled. ``budget_bytes`` is what the
    host's memory has left for ``tensors``. ``features_on_disk`` says that the data set's features
    are on the disk, if they are read without a copy.
    """

    def __init__(
        self,
        tensors: Sequence[HostTensor],
        budget_bytes: int,
        directory: Path | None,
        homes: Homes,
        *,
        features_on_disk: bool = False,
    ) -> None:
        self._homes = homes
        self._features_on_disk = features_on_disk
        self.tensors = tensors
        self.directory = directory
        self.spilled = () if directory is None else choose_spilled(tensors, budget_bytes)
        self._serving = {(tensor.kind, n): tensor for tensor in tensors for n in tensor.layers}
        #: By memory and tensor, the bytes of intermediates that this epoch has saved.
        self._saved_bytes: dict[tuple[str, str], int] = {}

    def is_spilled(self, kind: HostKind, layer: int) -> bool:
        """Return whether the tensor of that kind for a layer lies on the disk; h^0 is layer 0."""
        tensor = self._serving.get((kind, layer))
        if tensor is None:
            return self._features_on_disk and (kind, layer) == ("features", 0)
        return tensor in self.spilled

    def _memory_of(self, tensor: HostTensor, host: Device) -> str:
        """Return the ledger's account of a host's part of a tensor: the host or its disk."""
        return DISK if tensor in self.spilled else host.name

    def allocate(self, ledger: Ledger) -> None:
        """Hold the tensors that exist for the whole run.

        If something is spilled, the account ``DISK`` is opened, with the free space of the file
        system as its capacity.
        """
        if self.directory is not None and self.spilled:
            ledger.open(DISK, shutil.disk_usage(self.directory).free)
        for tensor in self.tensors:
            if tensor.what != "saved intermediates":
                for host, size_bytes in self._homes.divide(tensor.size_bytes):
                    ledger.allocate(self._memory_of(tensor, host), tensor.name, size_bytes)

    def save(self, layer: int, size_bytes: int, host: Device) -> Hold:
        """Return the hold after ``size_bytes`` more of a layer's intermediates are saved."""
        tensor = self._serving["intermediates", layer]
        key = (self._memory_of(tensor, host), tensor.name)
        self._saved_bytes[key] = self._saved_bytes.get(key, 0) + size_bytes
        return Hold(*key, self._saved_bytes[key])

    def let_go(self, layer: int) -> list[Free]:
        """Return the releases of a layer's saved intermediates."""
        name = self._serving["intermediates", layer].name
        return [Free(*key) for key in self._saved_bytes if key[1] == name]

    def clear(self) -> None:
        """Begin an epoch, in which nothing is saved yet."""
        self._saved_bytes.clear()

    def notes(self) -> tuple[str, ...]:
        """Return, for example, ``"spilled to disk: cached aggregates of layer 1 (2.05 GB)"``."""
        if not self.spilled:
            return ()
        listed = ", ".join(
            f"{one.name} "
            f"({format_si(self._saved_bytes.get((DISK, one.name), one.size_bytes), 'B')})"
            for one in self.spilled
        )
        return (f"spilled to disk: {listed}",)


class PeerCopy(NamedTuple):
    """A copy of ``rows`` rows between a device's buffer and the buffer of ``slot``."""

    slot: int
    rows: int


class HostRows(NamedTuple):
    """Rows in the hosts' memories.

    ``by_host`` counts the rows at each host. ``remote`` counts the rows at the device's own host
    that lie at another socket than the device.
    """

    by_host: tuple[int, ...]
    remote: int = 0

    @property
    def total(self) -> int:
        """The rows of all hosts."""
        return sum(self.by_host)


@dataclass(frozen=True, slots=True, eq=False)
class UnitPlan:
    """One unit of a round by its sizes, from which all of its steps are made.

    ``size`` is the size of the block which a kernel receives, and ``chunk`` includes the device's
    buffers. The unit reads ``inputs`` rows. Forward, ``loaded`` rows come from the hosts, ``pulls``
    from peers, and ``reused`` rows stay from the previous round. Backward, gradients of ``leaving``
    rows go to the hosts, and ``pushes`` to peers. ``outputs`` are the unit's own rows on the hosts.

    ``move`` has the ids and positions of these rows. It is None if only counts are known, which
    suffice for a program.
    """

    slot: int
    size: BlockSize
    chunk: ChunkSize
    inputs: int
    loaded: HostRows
    leaving: HostRows
    outputs: HostRows
    reused: int
    pulls: tuple[PeerCopy, ...] = ()
    pushes: tuple[PeerCopy, ...] = ()
    move: SlotMovement | None = None

    @classmethod
    def of_move(
        cls,
        move: SlotMovement,
        rows: Mapping[int, BufferRows],
        remote: Mapping[int, BoolArray],
        homes: Homes,
    ) -> UnitPlan:
        """Return the plan of a unit from the movement of its rows.

        ``rows`` are the sizes of the buffers of devices that have any. ``remote`` says for each
        device which of the host's rows are remote to it, if any are.
        """
        block, far = move.block, remote.get(move.slot)
        loaded, leaving, outputs = (
            HostRows(homes.count(ids), 0 if far is None else int(far[ids].sum()))
            for ids in (move.host_ids, move.leaving_ids, block.dst_ids)
        )
        return cls(
            move.slot,
            BlockSize(block.num_src, block.num_dst, block.num_edges, block.own is not None),
            size_of(block, rows.get(move.slot)),
            len(move.input_ids),
            loaded,
            leaving,
            outputs,
            move.rows_reused,
            tuple([PeerCopy(pull.slot, pull.rows) for pull in move.pulls]),
            tuple([PeerCopy(push.slot, push.rows) for push in move.pushes]),
            move,
        )

    @property
    def block(self) -> Block | BlockSize:
        """The block that a kernel receives, or its size if no more is known."""
        return self.size if self.move is None else self.move.block

    @property
    def cleared(self) -> int:
        """The number of gradients that start from zero, since their rows did not stay."""
        return self.loaded.total + sum(pull.rows for pull in self.pulls)

    def loaded_ids(self) -> IndexArray:
        """Return the ids of the rows that come from the host."""
        return self._known.host_ids

    def leaving_ids(self) -> IndexArray:
        """Return the ids of the rows whose gradients leave for the host."""
        return self._known.leaving_ids

    def output_ids(self) -> IntArray:
        """Return the ids of the destinations."""
        return self._known.block.dst_ids

    @property
    def _known(self) -> SlotMovement:
        if self.move is None:
            raise TypeError("rows that were counted have no ids, and cannot be spilled")
        return self.move


def shares_features(setting: Setting) -> bool:
    """Return whether training can read the data set's features without a copy."""
    features = setting.dataset.features
    return (
        isinstance(features, np.ndarray)
        and features.dtype == np.float32 == np.dtype(setting.workload.dtype)
        and features.flags.c_contiguous
        and features.flags.writeable
    )


def page_bytes(ids: IntArray | IndexArray, row_bytes: int) -> int:
    """Return the bytes of the pages that a disk moves for the rows ``ids``, read in their order.

    A page is counted once for rows next to each other in ``ids`` that share it.
    """
    if not len(ids) or not row_bytes:
        return 0
    begins = ids.astype(np.int64) * row_bytes
    first, last = begins // PAGE_BYTES, (begins + (row_bytes - 1)) // PAGE_BYTES
    pages = int((last - first).sum()) + len(ids) - int((first[1:] == last[:-1]).sum())
    return pages * PAGE_BYTES


def mark_remote(
    platform: Platform, trainers: Sequence[Device], sockets: IntArray
) -> Mapping[int, BoolArray]:
    """Return which vertices' rows lie at another socket of an accelerator's host.

    The keys are device indices of accelerators, and the values are bool ``(V,)``. The result is
    empty if every host has one socket.
    """
    if all(host.memory.sockets == 1 for host in platform.hosts):
        return {}
    hosts = np.array([platform.hosts.index(host) for host in platform.sockets])
    return {
        slot: (sockets != there) & (hosts[sockets] == hosts[there])
        for slot, device in enumerate(trainers)
        if device not in platform.hosts
        for there in (platform.socket(device),)
    }
