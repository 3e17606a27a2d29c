"""Data transfer: mini-batch topology and features go to the accelerators.

If features are on the devices, only topology is transferred. Each device then picks its input rows
from its own memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gnnbench.lowering.feature_cache import Admission
from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.movement import Exchange, SlotMovement
from gnnbench.lowering.rounds import EXCHANGE, TRANSFER, BatchKey, RoundUnderWay
from gnnbench.lowering.stages.loading import Loading
from gnnbench.program import (
    NOTHING,
    Access,
    Account,
    Buffer,
    Counts,
    Drop,
    Free,
    Hold,
    Item,
    Place,
    Section,
    Step,
    Take,
    Times,
)
from gnnbench.records import BufferRows, CopyWork, IndexArray, IntArray, RowsWork, Unit


class PickRows(NamedTuple):
    """The choice of a unit's input rows from the features on its device."""

    unit: BatchKey
    ids: IntArray


class TransferRows(NamedTuple):
    """The transfer of a unit's rows from the host; ``apart`` they are assembled afterwards."""

    unit: BatchKey
    move: SlotMovement
    apart: bool


class AssembleRows(NamedTuple):
    """The assembly of ``rows`` input rows, from rows that crossed and those ``found`` in a cache.

    ``found`` are the positions of input rows in the device's cache.
    """

    unit: BatchKey
    move: SlotMovement
    rows: int
    found: IndexArray | None


class AdmitRows(NamedTuple):
    """The copy of a unit's input rows into its device's cache."""

    unit: BatchKey
    admitted: Admission


class PullRows(NamedTuple):
    """The copy of a unit's rows from a peer's buffer."""

    move: SlotMovement
    pull: Exchange


class CopyRows(NamedTuple):
    """The copy of a unit's input rows out of the buffer that peers read."""

    unit: BatchKey
    move: SlotMovement


class RowTransfers:
    """The transfer stage, of the rows that ``loading`` gathered."""

    def __init__(self, frame: RoundFrame, loading: Loading) -> None:
        self._frame = frame
        self._loading = loading

    def start_epoch(self) -> None:
        """Make the buffers of an epoch. All but the caches are empty when it begins."""
        slots = self._frame.accelerator_slots
        self._copies = {slot: Buffer("cached rows") for slot in slots}
        self._buffer_rows: dict[int, BufferRows] = {}

    def transfer(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the transfers of a round (HyScale-GNN Equation 8)."""
        frame, index = self._frame, round_.index
        staged = [self._loading.staging(host, index, slot) for slot, host in enumerate(frame.hosts)]
        # One of the device's buffers of input rows must be free.
        pipeline = frame.pipeline
        free = frame.over(index - pipeline.device_buffers) if pipeline.under_way > 1 else ()
        received = Buffer("rows that all devices have received")
        for unit in round_.units:
            held = self._hold_mini_batch(round_, unit)
            yield held
            round_.held.setdefault(unit.slot, []).append(held)
            if frame.resident:
                drawn = frame.drawn(round_, unit.slot)
                yield from self._send_topology(round_, unit, (drawn, *free))
            elif unit.slot in round_.moves:
                yield from self._send_rows(round_, unit, (staged[unit.slot], *free), received)
                yield Drop(round_.loaded[unit.slot])
            else:
                round_.held[unit.slot].append(round_.loaded[unit.slot])
                round_.buffers.arrived[unit.slot] = round_.buffers.rows
        for unit in round_.units:
            move = round_.moves.get(unit.slot)
            if move is not None and not move.direct:
                yield from self._exchange_rows(round_, unit, move, (received, staged[unit.slot]))

    def _hold_mini_batch(self, round_: RoundUnderWay, unit: Unit) -> Take:
        """Hold a unit's input rows, and its blocks unless the device drew them."""
        frame = self._frame
        size = len(unit.input_ids) * frame.row_bytes
        if frame.stored is not None:
            size = sum(round_.loaded[unit.slot].sizes_bytes.values())
        held = (
            {}
            if round_.shares[unit.slot][0].samples
            else {round_.topology: frame.count_topology(unit.blocks)}
        )
        held[f"mini-batch features of round {round_.index}"] = size
        return Take(frame.trainers[unit.slot].name, held)

    def _send_topology(
        self, round_: RoundUnderWay, unit: Unit, ready: tuple[Buffer, ...]
    ) -> Iterator[Item]:
        """Send the blocks to a device that has the features, which then picks its input rows.

        Blocks that the accelerator drew are there already, and so are the host's own.
        """
        frame, index, slot, times = self._frame, round_.index, unit.slot, Times()
        yield Section(index, (TRANSFER, slot), stream="copy")
        if slot in frame.accelerator_slots and not round_.shares[slot][0].samples:
            work = CopyWork(bytes=frame.count_topology(unit.blocks))
            step = frame.send(slot, index, "mini-batch topology", work)
            sent = (Buffer("blocks on the device"),)
            yield step._replace(times=times, access=Access(ready, sent))
            ready = sent
        arrived = round_.buffers.arrived[slot] = Buffer("input rows")
        operation = PickRows((index, slot), unit.input_ids)
        step = make_pick(frame, operation, slot, len(unit.input_ids), frame.width)
        yield step._replace(round=index, times=times, access=Access(ready, (arrived,)))
        yield Account()
        round_.seconds.transfer = max(round_.seconds.transfer, times.total)

    def _send_rows(
        self, round_: RoundUnderWay, unit: Unit, ready: tuple[Buffer, ...], received: Buffer
    ) -> Iterator[Item]:
        """Send an accelerator the rows that it needs of host memory.

        The input rows are put together from these rows and from the device's cache, or the rows go
        into the buffer that peers read.
        """
        frame, index, slot = self._frame, round_.index, unit.slot
        move = round_.moves[slot]
        yield Section(index, (TRANSFER, slot), stream="copy")
        crossing = sum(round_.loaded[slot].sizes_bytes.values())
        arrived = round_.buffers.arrived[slot] = Buffer("input rows") if move.direct else received
        apart = frame.rounding is not None or (move.direct and move.rows_reused > 0)
        transferred = Buffer("rows that crossed") if apart else arrived
        times, name = Times(), frame.trainers[slot].name
        step = self._make_transfer(round_, unit, move, crossing, apart)
        yield step._replace(times=times, access=Access(ready, adds=(transferred,)))
        cache = round_.cache[slot]
        if apart:
            count = len(unit.input_ids) if move.direct else len(move.host_ids)
            yield Hold(name, "rows that crossed", crossing)
            operation = AssembleRows((index, slot), move, len(unit.input_ids), cache.found)
            access = Access((transferred, ready[0], self._copies[slot]), adds=(arrived,))
            step = self._make_assembly(operation, index, slot, count, access)
            yield step._replace(times=times)
            yield Free(name, "rows that crossed")
        if (rows := move.buffer_rows) is not None:
            rows = self._buffer_rows[slot] = rows.at_least(self._buffer_rows.get(slot, rows))
            size = (rows.neighbour + (rows.transition or 0)) * frame.row_bytes
            yield Hold(name, "neighbour rows", size)
        if cache.admitted is not None:
            step = self._admit(index, slot, cache.admitted, arrived)
            yield step._replace(times=times)
        yield Account()
        round_.seconds.transfer = max(round_.seconds.transfer, times.total)

    def _make_transfer(
        self, round_: RoundUnderWay, unit: Unit, move: SlotMovement, crossing: int, apart: bool
    ) -> Step:
        """Return the transfer of ``crossing`` bytes of rows, and of the blocks."""
        frame, index, slot = self._frame, round_.index, unit.slot
        topology = 0 if round_.shares[slot][0].samples else frame.count_topology(unit.blocks)
        work = RowsWork(
            rows=len(move.host_ids),
            features=frame.width,
            bytes=crossing + topology,
            loading=frame.loading,
        )
        step = frame.send(slot, index, "host to device", work)
        operation = TransferRows((index, slot), move, apart)
        reused = move.rows_reused * frame.row_bytes
        counts = Counts((*step.counts.moves, ("reused", reused)))
        return step._replace(operation=operation, counts=counts)

    def _admit(self, index: int, slot: int, admitted: Admission, arrived: Buffer) -> Step:
        """Return the step that copies input rows into the device's cache, for later rounds."""
        operation = AdmitRows((index, slot), admitted)
        access = Access((arrived,), (self._copies[slot],))
        step = self._make_assembly(operation, index, slot, len(admitted.rows), access)
        return step._replace(label="cache input rows")

    def _make_assembly(
        self,
        operation: AssembleRows | AdmitRows | CopyRows,
        index: int,
        slot: int,
        count: int,
        access: Access,
    ) -> Step:
        """Return a step that copies ``count`` rows of several sources into one array."""
        name = self._frame.trainers[slot].name
        place, work = Place(name, (name,), slot), CopyWork(count * self._frame.row_bytes, count)
        label = "assemble input rows"
        return Step(operation, "transfer", label, place, work, round=index, access=access)

    def _exchange_rows(
        self, round_: RoundUnderWay, unit: Unit, move: SlotMovement, ready: Sequence[Buffer]
    ) -> Iterator[Item]:
        """Fetch rows that other accelerators loaded, from one peer after the other.

        A mini-batch has a copy of its rows, since the next one's may arrive during its propagation.
        """
        index, slot, turn = round_.index, unit.slot, Buffer("requests")
        yield Section(index, (EXCHANGE, slot), stream="copy")
        for pull in move.pulls:
            yield self._make_pull(index, move, pull).over((ready[0],), (turn,))
        arrived = round_.buffers.arrived[slot] = Buffer("input rows")
        access, operation = Access((*ready, turn), (arrived,)), CopyRows((index, slot), move)
        yield self._make_assembly(operation, index, slot, len(unit.input_ids), access)

    def _make_pull(self, index: int, move: SlotMovement, pull: Exchange) -> Step:
        """Return the step that reads rows of another device's buffer, or of the device's own.

        One peer at a time reads a device's buffer.
        """
        frame = self._frame
        device, peer = frame.trainers[move.slot], frame.trainers[pull.slot]
        between, size = device.name != peer.name, pull.rows * frame.row_bytes
        label = "device to device" if between else "copy between buffers"
        work = CopyWork(rows=pull.rows, bytes=size)
        step = frame.cross(peer, device, index, label, work, "device_to_device")
        lanes = step.place.resources
        if between:
            lanes += (f"{peer.name}.buffer",)
        return step._replace(
            operation=PullRows(move, pull),
            place=Place(step.place.name, lanes, move.slot, pull.slot),
            counts=step.counts if between else NOTHING,
        )


def make_pick(frame: RoundFrame, operation: object, slot: int, rows: int, width: int) -> Step:
    """Return a step that picks ``rows`` rows of ``width`` values from the device's own memory.

    CPUs and GPUs copy the rows side by side for their kernels. The kernels of an FPGA (HP-GNN
    section 4.1) and of a sparse accelerator read the features in place.
    """
    device = frame.trainers[slot]
    work = RowsWork(
        rows=rows,
        features=width,
        bytes=rows * width * frame.itemsize,
        loading="blocks" if device.kind in ("cpu", "gpu") else "in-place",
        fresh=True,
    )
    held = compute_resource(device, frame.platform.host, "aggregate")
    return Step(operation, "load", "pick input rows", Place(device.name, held, slot), work)
