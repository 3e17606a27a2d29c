"""How a mini-batch's input rows come to its trainer: gathered on the host, and transferred.

Where features are on the devices, the mini-batch's topology alone is transferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gnnbench.footprint import DEVICE_BUFFERS, reserved_bytes, sparse_bytes
from gnnbench.lowering.feature_cache import FeatureCache
from gnnbench.lowering.movement import Exchange, MovementPlanner, SlotMovement
from gnnbench.lowering.rounds import EXCHANGE, LOAD, STAGED, TRANSFER, Load, RoundUnderWay
from gnnbench.lowering.unit_passes import UnitPasses
from gnnbench.models import Layer
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import Bundle, CacheMemory, CacheSession, DeviceMemory, Setting, TrafficSession
from gnnbench.program import Aside, Buffer, Drop, Free, Hold, Item, Ledger, Section, Step, Take
from gnnbench.records import (
    BatchProfile,
    BufferRows,
    IntArray,
    Round,
    RoundTraffic,
    Unit,
    Work,
)


class InputRows(UnitPasses):
    """Feature loading and data transfer of a round; see the module's docstring.

    ``loader_threads`` is how many of this machine's threads plan the movement of rows.
    """

    loader_threads: int = 1
    _traffic: TrafficSession
    _caching: CacheSession | None = None

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        features = setting.dataset.features
        projected = projected_layers(bundle, setting)
        self.resident = isinstance(bundle.memory, DeviceMemory)
        self._stored: IntArray | None = None
        sparse = keeps_sparse(bundle, setting, self.trainers, projected) and not self.resident
        if sparse and not isinstance(features, np.ndarray):
            self._stored = np.diff(features.indptr)
        self.prefetch = bundle.prefetch_stages(setting.platform)
        self.accelerator_slots = tuple(
            slot
            for slot, device in enumerate(self.trainers)
            if device.name != self.platform.host.name
        )
        self._width = setting.dataset.num_features
        self._row_bytes = self._width * self._itemsize
        rounding = bundle.rounding
        self._rounds = rounding is not None
        dtype = torch.float32 if setting.workload.dtype == "float32" else torch.float64
        self._packed_bytes = self._row_bytes
        if rounding is not None:
            self._packed_bytes = rounding.row_bytes(self._width, dtype)
        vertices = np.arange(setting.dataset.graph.num_vertices, dtype=np.int64)
        self.cache = FeatureCache(len(vertices))
        # Owner of a vertex's transition row among the accelerators, where a communication shares.
        slots = np.array(self.accelerator_slots or (0,), dtype=np.int64)
        self._owner: IntArray = slots[vertices % len(slots)]

    def _place_features(self, ledger: Ledger) -> None:
        """All feature rows on every device that trains."""
        size = self.setting.dataset.graph.num_vertices * self._row_bytes
        for device in self.trainers:
            ledger.allocate(device.name, "vertex features on the device", size)

    def _fill_cache(self, ledger: Ledger, whole: BatchProfile) -> None:
        """The rows that the memory part wants on each accelerator, beside mini-batches."""
        setting, memory = self.setting, self.bundle.memory
        if not isinstance(memory, CacheMemory):
            return
        working_bytes = reserved_bytes(setting.layers, whole, self._itemsize, self.prefetch)
        names = {slot: self.trainers[slot].name for slot in self.accelerator_slots}
        room = {
            slot: memory.count_rows(setting, ledger.free_bytes(name), working_bytes)
            for slot, name in names.items()
        }
        session = self._caching = memory.open(setting, room)
        self.cache = FeatureCache(setting.dataset.graph.num_vertices, session)
        for slot, name in names.items():
            kept, count = session.kept[slot], session.num_rows[slot]
            if not len(kept) <= count <= room[slot]:
                raise ValueError(
                    f"memory {memory.name!r} keeps {len(kept)} rows in a cache of {count} on "
                    f"{name}, which has room for {room[slot]}"
                )
            if count:
                ledger.allocate(name, "cached feature rows", count * self._row_bytes)
                self.cache.keep(slot, kept, count)

    def _count_fetched(self, profile: BatchProfile, ids: IntArray) -> BatchProfile:
        """The profile of a mini-batch that reads the rows ``ids``, with what an accelerator needs
        of the host: nothing where features are on the device, else what the smallest of the caches
        misses, in the communication part's precision."""
        if self.resident:
            return replace(profile, fetched=0, fetched_bytes=0)
        if self._stored is not None:
            counts = self._stored[ids]
            first = profile.vertices[1]
            return replace(profile, stored=(int(counts.sum()), int(counts[:first].sum())))
        missing = [self.cache.count_missing(slot, ids) for slot in self.accelerator_slots]
        fetched = max(missing, default=len(ids))
        return replace(profile, fetched=fetched, fetched_bytes=fetched * self._packed_bytes)

    def count_threads(self, planned: int) -> int:
        """This machine's threads for a kernel, 0 meaning all: as many as are planned for the host,
        if that is this machine, but no more than the workload allows."""
        allowed = self.setting.workload.threads
        if not planned or self.platform.host.virtual:
            return allowed
        return min(planned, allowed) if allowed else planned

    def _start_rows(self) -> None:
        """Buffers of an epoch; all but the caches are empty when it begins."""
        self._copies = {slot: Buffer("cached rows") for slot in self.accelerator_slots}
        self._staged = [Buffer("staged rows") for _ in range(STAGED[self.prefetch])]
        self._previous: RoundTraffic | None = None
        self._buffer_rows: dict[int, BufferRows] = {}
        self._movements = MovementPlanner(
            self.setting.dataset.graph.num_vertices,
            shares_rows=self.bundle.shares_rows,
            threads=self.loader_threads,
        )

    # ------------------------------------------------------------------ feature loading

    def load(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Gather X' for every unit from host memory (HyScale-GNN Equation 7)."""
        if self.resident:
            return
        index, threads = round_.index, round_.threads.load
        yield Section(index, (LOAD, 0), threads)
        if self.accelerator_slots:
            round_.moves = self._plan_traffic(round_)
        loads = []
        for unit in round_.units:
            move = round_.moves.get(unit.slot)
            ids = unit.input_ids if move is None else move.host_ids
            loads.append(Load(unit.slot, ids, move is not None))
        count = sum([len(each.ids) for each in loads])
        size = count * self._row_bytes
        step = Step(
            "load",
            (index, loads, self.count_threads(threads)),
            "load",
            "load features",
            self.platform.host.name,
            ("host.load",),
            Work("copy", 0, count, self._width, size, threads=threads),
            round=index,
            reads=(round_.sampled,),
            writes=(self._staged[index % len(self._staged)], round_.rows),
        )
        if self._stored is not None:
            step.index_work = partial(self._count_stored, round_, self._stored)
        yield step
        round_.load_s = step.seconds
        for each in loads:
            row_bytes = self._packed_bytes if each.transferred else self._row_bytes
            size = step.work.bytes if self._stored is not None else len(each.ids) * row_bytes
            name = f"loaded features of slot {each.slot}, round {index}"
            taken = round_.loaded[each.slot] = Take(self.platform.host.name, {name: size})
            yield taken

    def _count_stored(self, round_: RoundUnderWay, stored: IntArray, step: Step) -> None:
        """How many values sparse rows have, of the one trainer that there is: the host."""
        (unit,) = round_.units
        counts = stored[unit.input_ids]
        total = int(counts.sum())
        round_.stored = total, int(counts[: unit.blocks[0].num_dst].sum())
        size = int(sparse_bytes(len(counts), total, self._itemsize))
        step.work = step.work._replace(bytes=size)

    def _plan_traffic(self, round_: RoundUnderWay) -> dict[int, SlotMovement]:
        """Where the accelerators' input rows come from; the CPU trainer reads host memory."""
        units = tuple(unit for unit in round_.units if unit.slot in self.accelerator_slots)
        visiting = Round(round_.index, units)
        with self.deciding():
            traffic = self._traffic.plan(visiting, self._previous)
            traffic = self.cache.serve(traffic)
            for unit in units:
                round_.cached[unit.slot] = self.cache.find(unit.slot, unit.input_ids)
                admitted = self.cache.turn_over(unit.slot, unit.input_ids)
                if admitted is not None:
                    round_.admitted[unit.slot] = admitted
        self._previous = traffic
        return {move.slot: move for move in self._movements.plan(visiting, traffic)}

    # ------------------------------------------------------------------ data transfer

    def transfer(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Mini-batch topology and features to the accelerators (HyScale-GNN Equation 8)."""
        staged = self._staged[round_.index % len(self._staged)]
        # A device has as many buffers of input rows: one of them must be free.
        free = self._over(round_.index - DEVICE_BUFFERS[self.prefetch]) if self.prefetch else ()
        received = Buffer("rows that all devices have received")
        for unit in round_.units:
            held = self._hold_mini_batch(round_, unit)
            yield held
            round_.held.setdefault(unit.slot, []).append(held)
            if self.resident:
                yield from self._send_topology(round_, unit, (round_.sampled, *free))
            elif unit.slot in round_.moves:
                yield from self._send_rows(round_, unit, (staged, *free), received)
                yield Drop(round_.loaded[unit.slot])
            else:
                round_.held[unit.slot].append(round_.loaded[unit.slot])
                round_.arrived[unit.slot] = round_.rows
        for unit in round_.units:
            move = round_.moves.get(unit.slot)
            if move is not None and not move.direct:
                yield from self._exchange_rows(round_, unit, move, (received, staged))

    def _hold_mini_batch(self, round_: RoundUnderWay, unit: Unit) -> Take:
        """Memory for a unit's blocks, unless they were drawn there, and for its input rows."""
        size = len(unit.input_ids) * self._row_bytes
        if self._stored is not None:
            size = sum(round_.loaded[unit.slot].sizes_bytes.values())
        held = {} if round_.shares[unit.slot][0].samples else {round_.topology: unit.topology_bytes}
        held[f"mini-batch features of round {round_.index}"] = size
        return Take(self.trainers[unit.slot].name, held)

    def _send_topology(
        self, round_: RoundUnderWay, unit: Unit, ready: tuple[Buffer, ...]
    ) -> Iterator[Item]:
        """The blocks alone, to an accelerator that has the features; those it drew are there."""
        index, slot = round_.index, unit.slot
        yield Section(index, (TRANSFER, slot), stream="copy")
        # Kernels could read the features in place.
        yield Aside("pick rows", ((index, slot), unit.input_ids))
        round_.arrived[slot] = round_.sampled
        if slot not in self.accelerator_slots or round_.shares[slot][0].samples:
            return
        arrived = round_.arrived[slot] = Buffer("blocks on the device")
        work = Work("copy", bytes=unit.topology_bytes)
        step = self._send(slot, index, "mini-batch topology", work)
        step.reads, step.writes = ready, (arrived,)
        yield step
        round_.transfer_s = max(round_.transfer_s, step.seconds)

    def _send(self, slot: int, index: int, label: str, work: Work) -> Step:
        """A transfer from the host to an accelerator."""
        host = self.platform.host
        return self._cross(host, self.trainers[slot], index, label, work, "host_to_device")

    def _send_rows(
        self, round_: RoundUnderWay, unit: Unit, ready: tuple[Buffer, ...], received: Buffer
    ) -> Iterator[Item]:
        """What an accelerator needs of host memory, over its link; out of it and of the device's
        cache the input rows are put together, or they go where peers read them."""
        index, slot, move = round_.index, unit.slot, round_.moves[unit.slot]
        yield Section(index, (TRANSFER, slot), stream="copy")
        crossing = sum(round_.loaded[slot].sizes_bytes.values())
        topology = 0 if round_.shares[slot][0].samples else unit.topology_bytes
        arrived = round_.arrived[slot] = Buffer("input rows") if move.direct else received
        apart = self._rounds or (move.direct and move.rows_reused > 0)
        transferred = Buffer("rows that crossed") if apart else arrived
        name, key = self.trainers[slot].name, (index, slot)
        work = Work(
            "copy", rows=move.rows_from_host, features=self._width, bytes=crossing + topology
        )
        step = self._send(slot, index, "host to device", work)
        step.op, step.operands = "transfer", (key, move, apart)
        step.moves += (("reused", move.rows_reused * self._row_bytes),)
        step.reads, step.adds = ready, (transferred,)
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
        return Step(op, operands, "transfer", "assemble input rows", name, (name,), work)

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
        if between:
            step.resources += (f"{peer.name}.buffer",)
        else:
            step.moves = ()
        return step
