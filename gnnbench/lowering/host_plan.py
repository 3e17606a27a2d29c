"""Where vertex data lies on the host: in its memory or on its disk, and at which of its sockets."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gnnbench.footprint import ChunkSize, HostKind, HostTensor, choose_spilled, size_of
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.movement import SlotMovement
from gnnbench.parts import Setting
from gnnbench.platforms.machine import DISK, Device, Platform
from gnnbench.program import Free, Hold, Ledger
from gnnbench.records import Block, BlockSize, BoolArray, BufferRows, IndexArray, IntArray
from gnnbench.units import format_si

PAGE_BYTES = mmap.PAGESIZE


class HostPlan:
    """Which tensors a run has on the host, and which of them are ``spilled`` to its disk.

    Of several hosts each has what belongs to its own vertices, and none spills.

    ``directory`` is where files go; without one nothing is spilled. ``budget_bytes`` is what the
    host's memory has left for ``tensors``. ``features_on_disk`` says that the data set's features,
    where they are read without a copy, are on the disk.
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
        #: By memory and tensor, what this epoch has saved of intermediates.
        self._saved_bytes: dict[tuple[str, str], int] = {}

    def is_spilled(self, kind: HostKind, layer: int) -> bool:
        """Whether the tensor of that kind that serves a layer, h^0 being 0, lies on the disk."""
        tensor = self._serving.get((kind, layer))
        if tensor is None:
            return self._features_on_disk and (kind, layer) == ("features", 0)
        return tensor in self.spilled

    def _memory_of(self, tensor: HostTensor, host: Device) -> str:
        """The ledger's account of a host's part of a tensor: its own, or that of its disk."""
        return DISK if tensor in self.spilled else host.name

    def allocate(self, ledger: Ledger) -> None:
        """Hold what is there for the whole run; the account ``DISK`` is opened where something is
        spilled, as large as the file system has room."""
        if self.directory is not None and self.spilled:
            ledger.open(DISK, shutil.disk_usage(self.directory).free)
        for tensor in self.tensors:
            if tensor.what != "saved intermediates":
                for host, size_bytes in self._homes.divide(tensor.size_bytes):
                    ledger.allocate(self._memory_of(tensor, host), tensor.name, size_bytes)

    def save(self, layer: int, size_bytes: int, host: Device) -> Hold:
        """A layer's saved intermediates are so much more on a host."""
        tensor = self._serving["intermediates", layer]
        key = (self._memory_of(tensor, host), tensor.name)
        self._saved_bytes[key] = self._saved_bytes.get(key, 0) + size_bytes
        return Hold(*key, self._saved_bytes[key])

    def let_go(self, layer: int) -> list[Free]:
        """A layer's saved intermediates are done with."""
        name = self._serving["intermediates", layer].name
        return [Free(*key) for key in self._saved_bytes if key[1] == name]

    def clear(self) -> None:
        """An epoch begins, and has saved nothing."""
        self._saved_bytes.clear()

    def notes(self) -> tuple[str, ...]:
        """``"spilled to disk: cached aggregates of layer 1 (2.05 GB)"``."""
        if not self.spilled:
            return ()
        listed = ", ".join(
            f"{one.name} "
            f"({format_si(self._saved_bytes.get((DISK, one.name), one.size_bytes), 'B')})"
            for one in self.spilled
        )
        return (f"spilled to disk: {listed}",)


class PeerCopy(NamedTuple):
    """So many rows between a device's buffer and the one of ``slot``."""

    slot: int
    rows: int


class HostRows(NamedTuple):
    """Rows in the hosts' memories: how many at each host, and of those at a device's own how many
    are ``remote``, at another socket than the device."""

    by_host: tuple[int, ...]
    remote: int = 0

    @property
    def total(self) -> int:
        return sum(self.by_host)


@dataclass(frozen=True, slots=True, eq=False)
class UnitPlan:
    """One unit of a round by its sizes, which are all that its steps are made of.

    ``size`` is that of the block which a kernel is handed, and ``chunk`` has the device's buffers
    as well. The unit reads ``inputs`` rows. Forward, ``loaded`` rows come from the hosts, ``pulls``
    from peers, and ``reused`` are there from the round before. Backward, gradients of ``leaving``
    rows go to the hosts, and ``pushes`` to peers. The unit's own rows there are its ``outputs``.

    ``move`` says which rows these are, and where they stand; None where nothing but counts is
    known, of which a program follows all the same.
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
        """``rows`` are those of the slots' buffers, if they have any, and ``remote`` says which of
        the host's are remote to them, if any are."""
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
        """What a kernel is handed, or no more than its size."""
        return self.size if self.move is None else self.move.block

    @property
    def cleared(self) -> int:
        """How many gradients start from zero: those of rows that did not stay."""
        return self.loaded.total + sum(pull.rows for pull in self.pulls)

    def loaded_ids(self) -> IndexArray:
        return self._known.host_ids

    def leaving_ids(self) -> IndexArray:
        return self._known.leaving_ids

    def output_ids(self) -> IntArray:
        return self._known.block.dst_ids

    @property
    def _known(self) -> SlotMovement:
        if self.move is None:
            raise TypeError("rows that were counted have no ids, and cannot be spilled")
        return self.move


def shares_features(setting: Setting) -> bool:
    """Whether the data set's features can be trained on as they are, without a copy."""
    features = setting.dataset.features
    return (
        isinstance(features, np.ndarray)
        and features.dtype == np.float32 == np.dtype(setting.workload.dtype)
        and features.flags.c_contiguous
        and features.flags.writeable
    )


def page_bytes(ids: IntArray | IndexArray, row_bytes: int) -> int:
    """Bytes of the pages that rows ``ids`` touch, one after the other; what a disk moves for them.

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
    """By the slot of an accelerator, whether each vertex's rows lie at another socket of its host,
    bool ``(V,)``; empty for hosts of one socket."""
    if all(host.sockets == 1 for host in platform.hosts):
        return {}
    hosts = np.array([platform.hosts.index(host) for host in platform.sockets])
    return {
        slot: (sockets != there) & (hosts[sockets] == hosts[there])
        for slot, device in enumerate(trainers)
        if device not in platform.hosts
        for there in (platform.socket(device),)
    }
