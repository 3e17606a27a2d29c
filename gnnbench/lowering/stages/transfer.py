"""Data transfer: mini-batch topology and features go to the accelerators.

If features are on the devices, only topology is transferred. Each device then picks its input rows
from its own memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.movement import Exchange, SlotMovement
from gnnbench.lowering.rounds import EXCHANGE, TRANSFER, RoundUnderWay
from gnnbench.lowering.stages.loading import Loading
from gnnbench.program import Buffer, Drop, Free, Hold, Item, Section, Step, Take
from gnnbench.records import BufferRows, CopyWork, RowsWork, Unit


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
                round_.arrived[unit.slot] = round_.rows
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
        frame, index, slot, seconds = self._frame, round_.index, unit.slot, 0.0
        yield Section(index, (TRANSFER, slot), stream="copy")
        if slot in frame.accelerator_slots and not round_.shares[slot][0].samples:
            work = CopyWork(bytes=frame.count_topology(unit.blocks))
            step = frame.send(slot, index, "mini-batch topology", work)
            step.reads, step.writes = ready, (Buffer("blocks on the device"),)
            step.asked = True
            yield step
            seconds, ready = step.seconds, step.writes
        arrived = round_.arrived[slot] = Buffer("input rows")
        operands = ((index, slot), unit.input_ids)
        step = make_pick(frame, "pick rows", operands, slot, len(unit.input_ids), frame.width)
        step.round, step.reads, step.writes = index, ready, (arrived,)
        step.asked = True
        yield step
        round_.transfer_s = max(round_.transfer_s, seconds + step.seconds)

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
        arrived = round_.arrived[slot] = Buffer("input rows") if move.direct else received
        apart = frame.rounding is not None or (move.direct and move.rows_reused > 0)
        transferred = Buffer("rows that crossed") if apart else arrived
        step = self._make_transfer(round_, unit, move, crossing, apart)
        step.reads, step.adds = ready, (transferred,)
        yield step
        seconds, name = step.seconds, frame.trainers[slot].name
        if apart:
            count = len(unit.input_ids) if move.direct else move.rows_from_host
            yield Hold(name, "rows that crossed", crossing)
            operands = ((index, slot), move, len(unit.input_ids), round_.cached.get(slot))
            step = self._make_assembly("put together", operands, slot, count)
            step.round, step.adds = index, (arrived,)
            step.reads = (transferred, ready[0], self._copies[slot])
            step.asked = True
            yield step
            yield Free(name, "rows that crossed")
            seconds += step.seconds
        if not move.direct:
            rows = move.buffer_rows
            rows = self._buffer_rows[slot] = rows.at_least(self._buffer_rows.get(slot, rows))
            size = (rows.neighbour + (rows.transition or 0)) * frame.row_bytes
            yield Hold(name, "neighbour rows", size)
        if slot in round_.admitted:
            step = self._admit(round_, slot, arrived)
            step.asked = True
            yield step
            seconds += step.seconds
        round_.transfer_s = max(round_.transfer_s, seconds)

    def _make_transfer(
        self, round_: RoundUnderWay, unit: Unit, move: SlotMovement, crossing: int, apart: bool
    ) -> Step:
        """Return the transfer of ``crossing`` bytes of rows, and of the blocks."""
        frame, index, slot = self._frame, round_.index, unit.slot
        topology = 0 if round_.shares[slot][0].samples else frame.count_topology(unit.blocks)
        work = RowsWork(
            rows=move.rows_from_host,
            features=frame.width,
            bytes=crossing + topology,
            loading=frame.loading,
        )
        step = frame.send(slot, index, "host to device", work)
        step.op, step.operands = "transfer", ((index, slot), move, apart)
        step.moves += (("reused", move.rows_reused * frame.row_bytes),)
        step.asked = True
        return step

    def _admit(self, round_: RoundUnderWay, slot: int, arrived: Buffer) -> Step:
        """Return the step that copies input rows into the device's cache, for later rounds."""
        admitted = round_.admitted[slot]
        operands = ((round_.index, slot), admitted)
        step = self._make_assembly("admit", operands, slot, len(admitted.rows))
        step.label, step.round = "cache input rows", round_.index
        step.reads, step.writes = (arrived,), (self._copies[slot],)
        return step

    def _make_assembly(self, op: str, operands: tuple[object, ...], slot: int, count: int) -> Step:
        """Return a step that copies ``count`` rows of several sources into one array."""
        name = self._frame.trainers[slot].name
        work = CopyWork(rows=count, bytes=count * self._frame.row_bytes)
        label = "assemble input rows"
        return Step(op, operands, "transfer", label, name, (name,), work, device=slot)

    def _exchange_rows(
        self, round_: RoundUnderWay, unit: Unit, move: SlotMovement, ready: Sequence[Buffer]
    ) -> Iterator[Item]:
        """Fetch rows that other accelerators loaded, from one peer after the other.

        A mini-batch has a copy of its rows, since the next one's may arrive during its propagation.
        """
        index, slot, turn = round_.index, unit.slot, Buffer("requests")
        yield Section(index, (EXCHANGE, slot), stream="copy")
        for pull in move.pulls:
            step = self._make_pull(index, move, pull)
            step.reads, step.writes = (ready[0],), (turn,)
            yield step
        arrived = round_.arrived[slot] = Buffer("input rows")
        step = self._make_assembly("copy rows", ((index, slot), move), slot, len(unit.input_ids))
        step.round, step.reads, step.writes = index, (*ready, turn), (arrived,)
        yield step

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
        step.op, step.operands = "pull", (move, pull)
        step.device, step.source = move.slot, pull.slot
        if between:
            step.resources += (f"{peer.name}.buffer",)
        else:
            step.moves = ()
        return step


def make_pick(
    frame: RoundFrame, op: str, operands: tuple[object, ...], slot: int, rows: int, width: int
) -> Step:
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
    return Step(op, operands, "load", "pick input rows", device.name, held, work, device=slot)
