"""The input rows of mini-batches on their way to trainers: the bodies of loading and transfer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gnnbench.host.mapped import ReadAhead
from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.lowering.movement import SlotMovement
from gnnbench.lowering.rounds import BatchKey
from gnnbench.lowering.stages.loading import LoadRows
from gnnbench.lowering.stages.transfer import (
    AdmitRows,
    AssembleRows,
    CopyRows,
    PickRows,
    PullRows,
    TransferRows,
)
from gnnbench.program.reader import Bodies
from gnnbench.records import IndexArray, IntArray
from gnnbench.run.base import Here
from gnnbench.run.feature_cache import CachedRows
from gnnbench.run.features import feature_rows, mapped_features, pick_rows
from gnnbench.run.movement import Buffers
from gnnbench.run.processors import StagingBuffers, Streams
from gnnbench.run.ranks import Transfer


class InputRows:
    """The input rows of a process's units, gathered in host memory and brought to its devices.

    ``inputs`` are the rows ``(n, f)`` of units that wait for their propagation.
    """

    def __init__(
        self,
        here: Here,
        lowering: MiniBatchLowering,
        streams: Mapping[int, Streams],
        ahead: ReadAhead,
        *,
        sparse: bool,
    ) -> None:
        self._here, self._setting = here, here.setting
        self._rounding = lowering.frame.rounding
        self._streams, self._ahead, self._sparse = streams, ahead, sparse
        self._staging = StagingBuffers(lowering.frame.pipeline.under_way)
        self._cached = CachedRows(lowering.loading.cache)
        self._cached.fill(here.setting, here.trainers, here.slots)
        self._features: dict[int, Tensor] = {}
        if lowering.frame.resident and lowering.columns is None:
            everything = np.arange(here.setting.dataset.graph.num_vertices)
            rows = feature_rows(here.setting, everything, sparse=False)
            self._features = {slot: rows.to(here.device(slot)) for slot in here.slots}

    def start_epoch(self) -> None:
        """Forget the rows of the last epoch."""
        #: Rows on the host on their way to a device, in parts, or on a device before assembly.
        self._loaded: dict[BatchKey, tuple[Tensor, ...]] = {}
        self.inputs: dict[BatchKey, Tensor] = {}
        #: Buffers that accelerators share.
        self._buffers = Buffers()

    def list_bodies(self) -> Bodies:
        """Return the bodies of the steps that move rows, by operation."""
        return {
            LoadRows: self._load,
            TransferRows: self._transfer,
            AssembleRows: self._put_together,
            AdmitRows: self._admit,
            PullRows: Transfer(self._lend_rows, self._borrow_rows, self._pull),
            CopyRows: self._copy_rows,
            PickRows: self._pick_rows,
        }

    def _load(self, operation: LoadRows) -> None:
        """Gather rows in host memory, and pack those that are transferred."""
        index, loads, threads = operation
        own = [load for load in loads if self._here.has(load.slot)]
        for load in own:
            self._ahead.begin(load.ids)
        for load in own:
            key, count = (index, load.slot), len(load.ids)
            out = None
            if load.slot in self._streams:
                # Page-locked memory for rows that a CUDA device will copy.
                width = self._setting.dataset.num_features
                out = self._staging.take(load.slot, index, count, width, self._here.dtype)
            rows = self._pick_features(load.ids, threads, out)
            if not load.transferred:
                self.inputs[key] = rows
            elif self._rounding is not None:
                self._loaded[key] = self._rounding.pack(rows)
            else:
                self._loaded[key] = (rows,)

    def _pick_features(
        self, ids: IndexArray | IntArray, threads: int, out: Tensor | None
    ) -> Tensor:
        """Return the features of vertices, in ``out`` if it is given.

        Features of a mapped file are gathered in windows while others are read, to avoid a wait for
        each row.
        """
        setting = self._setting
        if mapped_features(setting) is None:
            return feature_rows(setting, ids, sparse=self._sparse, threads=threads, out=out)
        if out is None:
            out = torch.empty(len(ids), setting.dataset.num_features, dtype=self._here.dtype)
        for window in self._ahead.walk(ids):
            feature_rows(setting, ids[window], sparse=False, threads=threads, out=out[window])
        return out

    def _pick_rows(self, operation: PickRows) -> None:
        """Pick input rows from the features on the device."""
        key, ids = operation
        if self._here.has(key[1]):
            threads = self._setting.workload.threads
            self._hand_over(key, pick_rows(self._features[key[1]], ids, threads))

    def _transfer(self, operation: TransferRows) -> None:
        key, move, apart = operation
        where = self._here.device(move.slot)
        parts = self._loaded.pop(key)
        crossed = tuple(part.to(where, non_blocking=True) for part in parts)
        if apart:
            self._loaded[key] = crossed
        else:
            self._keep_rows(key, move, crossed[0])

    def _put_together(self, operation: AssembleRows) -> None:
        """Assemble input rows in new memory, from rows that crossed and the device's cache."""
        key, move, count, places = operation
        crossed = self._loaded.pop(key)
        rows = crossed[0]
        if self._rounding is not None:
            rows = self._rounding.unpack(crossed, self._here.dtype)
        if move.direct:
            rows = self._cached.assemble(move.slot, count, places, rows)
        self._keep_rows(key, move, rows)

    def _admit(self, operation: AdmitRows) -> None:
        key, admitted = operation
        self._cached.admit(key[1], admitted, self.inputs[key])

    def _keep_rows(self, key: BatchKey, move: SlotMovement, rows: Tensor) -> None:
        """Hand rows on a device to its unit, or put them in the buffer that peers read."""
        if move.buffer_rows is None:
            self._hand_over(key, rows)
            return
        width = self._setting.dataset.num_features
        self._buffers.make_room(move.slot, move.buffer_rows, width, self._here.dtype, rows.device)
        self._buffers.load(move, rows)

    def _pull(self, operation: PullRows) -> None:
        self._buffers.pull(operation.move, operation.pull)

    def _lend_rows(self, operation: PullRows) -> Tensor:
        return self._buffers.lend(operation.pull)

    def _borrow_rows(self, part: Tensor, operation: PullRows) -> None:
        self._buffers.borrow(operation.move, operation.pull, part)

    def _copy_rows(self, operation: CopyRows) -> None:
        self._hand_over(operation.unit, self._buffers.assemble(operation.move))

    def _hand_over(self, key: BatchKey, rows: Tensor) -> None:
        """Store input rows; memory of the copy stream must outlive its use on the other stream."""
        self.inputs[key] = rows
        if streams := self._streams.get(key[1]):
            rows.record_stream(streams.compute.stream)
