"""Where vertex data lies on the host: in its memory or on its disk, and at which of its sockets."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnbench.footprint import ChunkSize, HostKind, HostTensor, choose_spilled, size_of
from gnnbench.lowering.movement import SlotMovement
from gnnbench.parts import PartitionPlacement, Setting
from gnnbench.platforms.machine import DISK, Device, Platform
from gnnbench.program import Free, Hold, Ledger
from gnnbench.records import BoolArray, BufferRows, IndexArray, IntArray, Unit
from gnnbench.units import format_si

PAGE_BYTES = mmap.PAGESIZE


class HostPlan:
    """Which tensors a run has on the ``host``, and which of them are ``spilled`` to its disk.

    ``directory`` is where files go; without one nothing is spilled. ``budget_bytes`` is what the
    host's memory has left for ``tensors``.
    """

    def __init__(
        self,
        tensors: Sequence[HostTensor],
        budget_bytes: int,
        directory: Path | None,
        host: str,
    ) -> None:
        self._host = host
        self.tensors = tensors
        self.directory = directory
        self.spilled = () if directory is None else choose_spilled(tensors, budget_bytes)
        self._serving = {(tensor.kind, n): tensor for tensor in tensors for n in tensor.layers}
        #: By tensor, what this epoch has saved of intermediates.
        self._saved_bytes: dict[str, int] = {}

    def is_spilled(self, kind: HostKind, layer: int) -> bool:
        """Whether the tensor of that kind that serves a layer, h^0 being 0, lies on the disk."""
        return self._serving.get((kind, layer)) in self.spilled

    def _memory_of(self, tensor: HostTensor) -> str:
        """The ledger's account that a tensor is held on: the host's, or the disk's."""
        return DISK if tensor in self.spilled else self._host

    def allocate(self, ledger: Ledger) -> None:
        """Hold what is there for the whole run; the account ``DISK`` is opened where something is
        spilled, as large as the file system has room."""
        if self.directory is not None and self.spilled:
            ledger.open(DISK, shutil.disk_usage(self.directory).free)
        for tensor in self.tensors:
            if tensor.what != "saved intermediates":
                ledger.allocate(self._memory_of(tensor), tensor.name, tensor.size_bytes)

    def save(self, layer: int, size_bytes: int) -> Hold:
        """A layer's saved intermediates are so much more."""
        tensor = self._serving["intermediates", layer]
        saved_bytes = self._saved_bytes.get(tensor.name, 0) + size_bytes
        self._saved_bytes[tensor.name] = saved_bytes
        return Hold(self._memory_of(tensor), tensor.name, saved_bytes)

    def let_go(self, layer: int) -> Free:
        """A layer's saved intermediates are done with."""
        tensor = self._serving["intermediates", layer]
        return Free(self._memory_of(tensor), tensor.name)

    def clear(self) -> None:
        """An epoch begins, and has saved nothing."""
        self._saved_bytes.clear()

    def notes(self) -> tuple[str, ...]:
        """``"spilled to disk: cached aggregates of layer 1 (2.05 GB)"``."""
        if not self.spilled:
            return ()
        listed = ", ".join(
            f"{one.name} ({format_si(self._saved_bytes.get(one.name, one.size_bytes), 'B')})"
            for one in self.spilled
        )
        return (f"spilled to disk: {listed}",)


@dataclass(frozen=True, slots=True, eq=False)
class UnitPlan:
    """One unit with its movement, and what its steps are sized by.

    Rows are remote that lie at another socket of the host than the one of the unit's device: of
    those that are loaded from the host, of those that leave for it, and of the unit's outputs.
    """

    slot: int
    unit: Unit
    move: SlotMovement
    chunk: ChunkSize
    remote_loaded: int
    remote_leaving: int
    remote_outputs: int

    @classmethod
    def count(
        cls,
        move: SlotMovement,
        rows: Mapping[int, BufferRows],
        remote: Mapping[int, BoolArray],
    ) -> UnitPlan:
        """``rows`` are those of the slots' buffers, if they have any, and ``remote`` says which of
        the host's are remote to them, if any are."""
        unit, far = Unit(move.slot, (move.block,)), remote.get(move.slot)
        moved = (move.host_ids, move.leaving_ids, unit.output_ids)
        counts = [0 if far is None else int(far[ids].sum()) for ids in moved]
        return cls(move.slot, unit, move, size_of(move.block, rows.get(move.slot)), *counts)


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
    platform: Platform, placement: PartitionPlacement, trainers: Sequence[Device], owner: IntArray
) -> Mapping[int, BoolArray]:
    """By the slot of an accelerator, whether each vertex's rows lie at another socket of the host,
    bool ``(V,)``; empty for a host of one socket."""
    if platform.host.sockets == 1:
        return {}
    sockets = placement.sockets(platform, owner)
    return {
        slot: sockets != platform.socket(device)
        for slot, device in enumerate(trainers)
        if device != platform.host
    }
