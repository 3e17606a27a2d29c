"""How a mini-batch's input rows come to its trainer: gathered on the host, and transferred.

Where features are on the devices, the mini-batch's topology alone is transferred, and its input
rows are picked there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnbench.lowering.loading import LoadedRows
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.movement import Exchange, SlotMovement
from gnnbench.lowering.rounds import EXCHANGE, TRANSFER, RoundUnderWay
from gnnbench.program import Buffer, Drop, Free, Hold, Item, Section, Step, Take
from gnnbench.records import (
    Unit,
    Work,
)


class InputRows(LoadedRows):
    """Data transfer of a round; see the module's docstring."""

    def transfer(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Mini-batch topology and features to the accelerators (HyScale-GNN Equation 8)."""
        index, pipeline = round_.index, self.pipeline
        staged = [self._staging(host, index, slot) for slot, host in enumerate(self.hosts)]
        # A device has as many buffers of input rows: one of them must be free.
        free = self._over(index - pipeline.device_buffers) if pipeline.under_way > 1 else ()
        received = Buffer("rows that all devices have received")
        for unit in round_.units:
            held = self._hold_mini_batch(round_, unit)
            yield held
            round_.held.setdefault(unit.slot, []).append(held)
            if self.resident:
                drawn = self._drawn(round_, unit.slot)
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
        """Memory for a unit's blocks, unless they were drawn there, and for its input rows."""
        size = len(unit.input_ids) * self._row_bytes
        if self._stored is not None:
            size = sum(round_.loaded[unit.slot].sizes_bytes.values())
        held = (
            {}
            if round_.shares[unit.slot][0].samples
            else {round_.topology: self.count_topology(unit.blocks)}
        )
        held[f"mini-batch features of round {round_.index}"] = size
        return Take(self.trainers[unit.slot].name, held)

    def _send_topology(
        self, round_: RoundUnderWay, unit: Unit, ready: tuple[Buffer, ...]
    ) -> Iterator[Item]:
        """The blocks alone, to a device that has the features and picks input rows out of them;
        those that an accelerator drew are there, and so are those that the host trains on."""
        index, slot, seconds = round_.index, unit.slot, 0.0
        yield Section(index, (TRANSFER, slot), stream="copy")
        if slot in self.accelerator_slots and not round_.shares[slot][0].samples:
            work = Work("copy", bytes=self.count_topology(unit.blocks))
            step = self._send(slot, index, "mini-batch topology", work)
            step.reads, step.writes = ready, (Buffer("blocks on the device"),)
            step.asked = True
            yield step
            seconds, ready = step.seconds, step.writes
        arrived = round_.arrived[slot] = Buffer("input rows")
        operands = ((index, slot), unit.input_ids)
        step = self._make_pick("pick rows", operands, slot, len(unit.input_ids), self._width)
        step.round, step.reads, step.writes = index, ready, (arrived,)
        step.asked = True
        yield step
        round_.transfer_s = max(round_.transfer_s, seconds + step.seconds)

    def _make_pick(
        self, op: str, operands: tuple[object, ...], slot: int, rows: int, width: int
    ) -> Step:
        """So many rows of ``width`` values picked out of those that a device has, as its kernels
        take rows that lie side by side; those of an FPGA (HP-GNN section 4.1) and of a sparse
        accelerator read the features in place."""
        device = self.trainers[slot]
        work = Work(
            "copy",
            rows=rows,
            features=width,
            bytes=rows * width * self._itemsize,
            loading="blocks" if device.kind in ("cpu", "gpu") else "in-place",
            fresh=True,
        )
        held = compute_resource(device, self.platform.host, "aggregate")
        return Step(op, operands, "load", "pick input rows", device.name, held, work, device=slot)

    def _send(self, slot: int, index: int, label: str, work: Work) -> Step:
        """A transfer to an accelerator from its host."""
        host = self.hosts[slot]
        step = self._cross(host, self.trainers[slot], index, label, work, "host_to_device")
        step.device = slot
        return step

    def _send_rows(
        self, round_: RoundUnderWay, unit: Unit, ready: tuple[Buffer, ...], received: Buffer
    ) -> Iterator[Item]:
        """What an accelerator needs of host memory, over its link; out of it and of the device's
        cache the input rows are put together, or they go where peers read them."""
        index, slot, move = round_.index, unit.slot, round_.moves[unit.slot]
        yield Section(index, (TRANSFER, slot), stream="copy")
        crossing = sum(round_.loaded[slot].sizes_bytes.values())
        topology = 0 if round_.shares[slot][0].samples else self.count_topology(unit.blocks)
        arrived = round_.arrived[slot] = Buffer("input rows") if move.direct else received
        apart = self._rounds or (move.direct and move.rows_reused > 0)
        transferred = Buffer("rows that crossed") if apart else arrived
        name, key = self.trainers[slot].name, (index, slot)
        work = Work(
            "copy",
            rows=move.rows_from_host,
            features=self._width,
            bytes=crossing + topology,
            loading=self._loading,
        )
        step = self._send(slot, index, "host to device", work)
        step.op, step.operands = "transfer", (key, move, apart)
        step.moves += (("reused", move.rows_reused * self._row_bytes),)
        step.reads, step.adds = ready, (transferred,)
        step.asked = True
        yield step
        seconds = step.seconds
        if apart:
            count = len(unit.input_ids) if move.direct else move.rows_from_host
            yield Hold(name, "rows that crossed", crossing)
            places = round_.cached.get(slot)
            operands = (key, move, len(unit.input_ids), places)
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
            size = (rows.neighbour + (rows.transition or 0)) * self._row_bytes
            yield Hold(name, "neighbour rows", size)
        if slot in round_.admitted:
            step = self._admit(round_, slot, arrived)
            step.asked = True
            yield step
            seconds += step.seconds
        round_.transfer_s = max(round_.transfer_s, seconds)

    def _admit(self, round_: RoundUnderWay, slot: int, arrived: Buffer) -> Step:
        """Input rows copied into the device's cache, where others read them in later rounds."""
        admitted = round_.admitted[slot]
        operands = ((round_.index, slot), admitted)
        step = self._make_assembly("admit", operands, slot, len(admitted.rows))
        step.label, step.round = "cache input rows", round_.index
        step.reads, step.writes = (arrived,), (self._copies[slot],)
        return step

    def _make_assembly(self, op: str, operands: tuple[object, ...], slot: int, count: int) -> Step:
        """Rows of several sources put together in a memory of their own."""
        name = self.trainers[slot].name
        size = count * self._row_bytes
        work = Work("copy", rows=count, bytes=size)
        label = "assemble input rows"
        return Step(op, operands, "transfer", label, name, (name,), work, device=slot)

    def _exchange_rows(
        self, round_: RoundUnderWay, unit: Unit, move: SlotMovement, ready: Sequence[Buffer]
    ) -> Iterator[Item]:
        """Rows that one accelerator brought in for another, which asks one peer after the other.

        A mini-batch has a copy of its rows, as the next one's may arrive while it is computed.
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
        """Rows of another device's buffer, or of the device's own where it has two; one peer at a
        time reads a device's buffer."""
        device, peer = self.trainers[move.slot], self.trainers[pull.slot]
        between, size = device.name != peer.name, pull.rows * self._row_bytes
        label = "device to device" if between else "copy between buffers"
        work = Work("copy", rows=pull.rows, bytes=size)
        step = self._cross(peer, device, index, label, work, "device_to_device")
        step.op, step.operands = "pull", (move, pull)
        step.device, step.source = move.slot, pull.slot
        if between:
            step.resources += (f"{peer.name}.buffer",)
        else:
            step.moves = ()
        return step
