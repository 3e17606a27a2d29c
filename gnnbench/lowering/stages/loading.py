"""Feature loading: the hosts gather a round's input rows for its trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from gnnbench.lowering.feature_cache import FeatureCache, count_drawn, open_cache
from gnnbench.lowering.footprint import reserved_bytes, sparse_bytes
from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.host_plan import page_bytes
from gnnbench.lowering.memory import feature_store_bytes, stays_on_disk
from gnnbench.lowering.movement import MovementPlanner, SlotMovement
from gnnbench.lowering.rounds import LOAD, CacheUse, Load, RoundUnderWay, StoredValues
from gnnbench.machines.machine import DISK, Device
from gnnbench.parts import CacheMemory, TrafficSession
from gnnbench.program import (
    Access,
    Account,
    Buffer,
    Item,
    Ledger,
    Place,
    Section,
    Sizes,
    Step,
    Take,
    Times,
)
from gnnbench.records import BatchProfile, CopyWork, IntArray, Round, RoundTraffic, RowsWork


class LoadRows(NamedTuple):
    """The gathering of a round's input rows in host memory, by ``threads`` threads."""

    round: int
    loads: Sequence[Load]
    threads: int


class Loading:
    """The loading stage.

    ``traffic`` plans which rows cross to which accelerator. ``cache`` has the rows that devices
    keep. ``loader_threads`` is how many of this machine's threads plan the movement of rows.
    """

    loader_threads: int = 1
    traffic: TrafficSession

    def __init__(self, frame: RoundFrame) -> None:
        self._frame = frame
        vertices = np.arange(frame.setting.dataset.graph.num_vertices, dtype=np.int64)
        self.cache = FeatureCache(len(vertices))
        slots = np.array(frame.accelerator_slots or (0,), dtype=np.int64)
        #: The accelerator that has a vertex's transition row, where the communication shares rows.
        self.owner: IntArray = slots[vertices % len(slots)]

    def fill_cache(self, ledger: Ledger, whole: BatchProfile) -> None:
        """Place the rows that the memory part keeps on each accelerator, beside mini-batches."""
        frame, memory = self._frame, self._frame.bundle.memory
        if not isinstance(memory, CacheMemory):
            return
        setting = frame.setting
        names = {slot: frame.trainers[slot].name for slot in frame.accelerator_slots}
        shapes = [frame.bundle.kernel.shape_of(each) for each in setting.layers]
        working_bytes = reserved_bytes(shapes, whole, frame.itemsize, frame.prefetch)
        count = partial(count_drawn, frame.sampler, setting, len(names))
        self.cache = open_cache(memory, setting, ledger, names, working_bytes, count)

    def count_fetched(self, profile: BatchProfile, ids: IntArray) -> BatchProfile:
        """Return a profile with what an accelerator needs of its host to train on the rows ``ids``.

        This is nothing where features are on the device. Elsewhere it is what the smallest of the
        caches misses, in the precision of the communication part.
        """
        frame = self._frame
        if frame.resident:
            return replace(profile, fetched=0, fetched_bytes=0)
        if frame.stored is not None:
            counts = frame.stored[ids]
            first = profile.vertices[1]
            return replace(profile, stored=(int(counts.sum()), int(counts[:first].sum())))
        missing = [self.cache.count_missing(slot, ids) for slot in frame.accelerator_slots]
        fetched = max(missing, default=len(ids))
        return replace(profile, fetched=fetched, fetched_bytes=fetched * frame.packed_bytes)

    def start_epoch(self) -> None:
        """Make the buffers of an epoch. All but the caches are empty when it begins."""
        frame = self._frame
        slots = range(len(frame.trainers)) if frame.loads_apart else (0,)
        self._staged = {
            (host.name, slot): [Buffer("staged rows") for _ in range(frame.pipeline.staged)]
            for host in frame.platform.hosts
            for slot in slots
        }
        self._previous: RoundTraffic | None = None
        self._movements = MovementPlanner(
            frame.setting.dataset.graph.num_vertices,
            shares_rows=frame.bundle.shares_rows,
            threads=self.loader_threads,
        )

    def staging(self, host: Device, index: int, slot: int) -> Buffer:
        """Return a host's memory for the rows of a round, or of one unit that is loaded apart."""
        ring = self._staged[host.name, slot if self._frame.loads_apart else 0]
        return ring[index % len(ring)]

    # ------------------------------------------------------------------ one round

    def load(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the steps that gather X' for every unit (HyScale-GNN Equation 7).

        Each host gathers the rows of its vertices, and sends the rows that other hosts need.
        """
        frame = self._frame
        if frame.resident:
            return
        yield Section(round_.index, (LOAD, 0), round_.threads.load)
        if frame.accelerator_slots:
            round_.moves = self._plan_traffic(round_)
        loads = []
        for unit in round_.units:
            move = round_.moves.get(unit.slot)
            ids = unit.input_ids if move is None else move.host_ids
            loads.append(Load(unit.slot, ids, move is not None))
        for some in [[each] for each in loads] if frame.loads_apart else [loads]:
            yield from self._gather(round_, some)

    def _plan_traffic(self, round_: RoundUnderWay) -> dict[int, SlotMovement]:
        """Plan where the accelerators' input rows come from; a CPU trainer reads host memory."""
        frame = self._frame
        units = tuple(unit for unit in round_.units if unit.slot in frame.accelerator_slots)
        visiting = Round(round_.index, units)
        with frame.deciding():
            traffic = self.traffic.plan(visiting, self._previous)
            traffic = self.cache.serve(traffic)
            for unit in units:
                found = self.cache.find(unit.slot, unit.input_ids)
                admitted = self.cache.turn_over(unit.slot, unit.input_ids)
                round_.cache[unit.slot] = CacheUse(found, admitted)
        self._previous = traffic
        return {move.slot: move for move in self._movements.plan(visiting, traffic)}

    def _gather(self, round_: RoundUnderWay, loads: Sequence[Load]) -> Iterator[Item]:
        """Gather the rows of all units, or of the one that is loaded apart."""
        frame, index, slot = self._frame, round_.index, loads[0].slot
        counts = [self._count_at_hosts(each) for each in loads]
        gathered = {host: Buffer("gathered rows") for host in frame.platform.hosts}
        read = (frame.drawn(round_, slot),)
        if stays_on_disk(frame.setting):
            drawn, read = read, (Buffer("pages of the features"),)
            yield self._read_pages(round_, loads, drawn, read)
        for host, rows in zip(frame.platform.hosts, zip(*counts, strict=True), strict=True):
            if host is not frame.platform.host and not sum(rows):
                continue
            times, written = Times(), (self.staging(host, index, slot), gathered[host])
            access = Access(read, written, (round_.buffers.rows,))
            yield self._make_load(round_, loads, host, sum(rows), times, access)
            yield Account()
            round_.seconds.load = max(round_.seconds.load, times.total)
        for each in loads:
            row_bytes = frame.packed_bytes if each.transferred else frame.row_bytes
            size = len(each.ids) * row_bytes
            if round_.stored is not None:
                size = self._count_sparse(len(each.ids), round_.stored.sources)
            name = f"loaded features of slot {each.slot}, round {index}"
            taken = round_.loaded[each.slot] = Take(frame.hosts[each.slot].name, {name: size})
            yield taken
        yield from self._send_abroad(round_, loads, counts, gathered)

    def _make_load(
        self,
        round_: RoundUnderWay,
        loads: Sequence[Load],
        host: Device,
        rows: int,
        times: Times,
        access: Access,
    ) -> Step:
        """Return the step in which a host gathers rows; the first host's computes for all."""
        frame, index, slot = self._frame, round_.index, loads[0].slot
        first, threads = host is frame.platform.host, round_.threads.load
        work = RowsWork(
            rows=rows,
            features=frame.width,
            bytes=rows * frame.picked_bytes,
            threads=threads,
            loading=frame.loading,
            processes=len(round_.units),
            apart=frame.preparers * frame.hosts.count(host) if host is frame.hosts[slot] else 0,
            fresh=not any(each.transferred for each in loads),
        )
        held = (frame.host_thread("load", host, index, slot),)
        return Step(
            LoadRows(index, loads, frame.count_threads(threads)) if first else None,
            "load",
            "load features",
            Place(host.name, held, slot if frame.in_processes else None),
            work,
            round=index,
            index_work=None
            if frame.stored is None
            else partial(self._count_stored, round_, frame.stored, work),
            times=times,
            access=access,
        )

    def _count_at_hosts(self, load: Load) -> tuple[int, ...]:
        """Return how many of a unit's rows each host gathers."""
        frame = self._frame
        if not frame.replicated:
            return frame.homes.count(load.ids)
        own = frame.hosts[load.slot]
        return tuple(len(load.ids) if host is own else 0 for host in frame.platform.hosts)

    def _count_stored(self, round_: RoundUnderWay, stored: IntArray, work: RowsWork) -> Sizes:
        """Count the values of the sparse rows that the host, the only trainer, reads."""
        (unit,) = round_.units
        counts = stored[unit.input_ids]
        total = int(counts.sum())
        round_.stored = StoredValues(total, int(counts[: unit.blocks[0].num_dst].sum()))
        return Sizes(work._replace(bytes=self._count_sparse(len(counts), total)))

    def _count_sparse(self, rows: int, values: int) -> int:
        return int(sparse_bytes(rows, values, self._frame.itemsize))

    def _read_pages(
        self,
        round_: RoundUnderWay,
        loads: Sequence[Load],
        drawn: tuple[Buffer, ...],
        pages: tuple[Buffer, ...],
    ) -> Step:
        """Return the step that reads the pages of a round's rows from the host's disk."""
        frame = self._frame
        if frame.stored is None:
            size = sum(
                page_bytes(np.sort(each.ids).astype(np.int64), frame.row_bytes) for each in loads
            )
        else:
            mean = feature_store_bytes(frame.setting) / max(1, len(frame.stored))
            size = int(sum(len(each.ids) for each in loads) * mean)
        place, access = Place(DISK, (DISK,)), Access(drawn, pages)
        label, work = "read from disk", CopyWork(bytes=size)
        return Step(None, "load", label, place, work, round=round_.index, access=access)

    def _send_abroad(
        self,
        round_: RoundUnderWay,
        loads: Sequence[Load],
        counts: Sequence[tuple[int, ...]],
        gathered: Mapping[Device, Buffer],
    ) -> Iterator[Item]:
        """Send packed rows from the hosts that gathered them to the hosts of their trainers."""
        frame, index, sent_s = self._frame, round_.index, 0.0
        for here in frame.platform.other_hosts and frame.platform.hosts:
            sizes: dict[Device, int] = {}
            for each, count in zip(loads, counts, strict=True):
                row_bytes = frame.packed_bytes if each.transferred else frame.row_bytes
                if frame.hosts[each.slot] is here:
                    for there, rows in frame.homes.list_abroad(count, here):
                        sizes[there] = sizes.get(there, 0) + rows * row_bytes
            for there, size in sizes.items():
                work = CopyWork(bytes=size)
                label = "rows of another host"
                step = frame.cross(there, here, index, label, work, "host_to_host")
                adds = (self.staging(here, index, loads[0].slot), round_.buffers.rows)
                times, access = Times(), Access((gathered[there],), adds=adds)
                yield step._replace(stage="load", times=times, access=access)
                yield Account()
                sent_s = max(sent_s, times.total)
        round_.seconds.load += sent_s
