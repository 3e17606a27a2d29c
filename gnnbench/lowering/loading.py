"""How a mini-batch's input rows are gathered on the host, and planned for its trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gnnbench.footprint import reserved_bytes, sparse_bytes
from gnnbench.lowering.feature_cache import FeatureCache, count_drawn, open_cache
from gnnbench.lowering.host_plan import page_bytes
from gnnbench.lowering.memory import feature_store_bytes, stays_on_disk
from gnnbench.lowering.movement import MovementPlanner, SlotMovement
from gnnbench.lowering.rounds import LOAD, Load, RoundUnderWay, open_pipeline
from gnnbench.lowering.unit_passes import UnitPasses
from gnnbench.models import Layer
from gnnbench.models.products import keeps_sparse, projected_layers
from gnnbench.parts import (
    Bundle,
    CacheMemory,
    DeviceMemory,
    LoadingMemory,
    MiniBatchSampler,
    Setting,
    TrafficSession,
)
from gnnbench.platforms.machine import DISK, Device
from gnnbench.program import Buffer, Item, Ledger, Section, Step, Take
from gnnbench.records import (
    BatchProfile,
    BufferRows,
    IntArray,
    Loading,
    Round,
    RoundTraffic,
    Work,
)


class LoadedRows(UnitPasses):
    """Feature loading of a round; see the module's docstring.

    ``loader_threads`` is how many of this machine's threads plan the movement of rows. Of a
    trainer's host ``preparers`` threads draw and load a whole mini-batch each, in turn; where that
    is 0, all threads share each.
    """

    loader_threads: int = 1
    preparers: int = 0
    _traffic: TrafficSession

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        features = setting.dataset.features
        projected = projected_layers(bundle, setting)
        self.resident = isinstance(bundle.memory, DeviceMemory)
        memory = bundle.memory
        self._replicated = isinstance(memory, LoadingMemory) and memory.replicated
        self._stored: IntArray | None = None
        sparse = keeps_sparse(bundle, setting, self.trainers, projected) and not self.resident
        if sparse and not isinstance(features, np.ndarray):
            self._stored = np.diff(features.indptr)
        self.prefetch = bundle.prefetch_stages(setting.platform)
        self.pipeline = open_pipeline(self.prefetch)
        self.accelerator_slots = tuple(
            slot
            for slot, device in enumerate(self.trainers)
            if device.name != self.platform.host.name
        )
        sampler = bundle.sampler
        self._loading: Loading = "blocks"
        if isinstance(sampler, MiniBatchSampler):
            self._loading = sampler.loading
        self._width = setting.dataset.num_features
        self._row_bytes = self._width * self._itemsize
        rounding = bundle.rounding
        self._rounds = rounding is not None
        dtype = torch.float32 if setting.workload.dtype == "float32" else torch.float64
        self._packed_bytes = self._row_bytes
        if rounding is not None:
            self._packed_bytes = rounding.row_bytes(self._width, dtype)
        alone = len(self.accelerator_slots) == len(self.trainers)
        self._keeps_packed = rounding is not None and rounding.keeps_packed and alone
        #: Of a row as the host's memory has it, and it is picked there.
        self._picked_bytes = self._packed_bytes if self._keeps_packed else self._row_bytes
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
        setting, memory, sampler = self.setting, self.bundle.memory, self.bundle.sampler
        if not (isinstance(memory, CacheMemory) and isinstance(sampler, MiniBatchSampler)):
            return
        names = {slot: self.trainers[slot].name for slot in self.accelerator_slots}
        shapes = [self.bundle.kernel.shape_of(each) for each in setting.layers]
        working_bytes = reserved_bytes(shapes, whole, self._itemsize, self.prefetch)
        count = partial(count_drawn, sampler, setting, len(names))
        self.cache = open_cache(memory, setting, ledger, names, working_bytes, count)

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
        slots = range(len(self.trainers)) if self._loads_apart else (0,)
        self._staged = {
            (host.name, slot): [Buffer("staged rows") for _ in range(self.pipeline.staged)]
            for host in self.platform.hosts
            for slot in slots
        }
        self._previous: RoundTraffic | None = None
        self._buffer_rows: dict[int, BufferRows] = {}
        self._movements = MovementPlanner(
            self.setting.dataset.graph.num_vertices,
            shares_rows=self.bundle.shares_rows,
            threads=self.loader_threads,
        )

    # ------------------------------------------------------------------ one round

    def load(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Gather X' for every unit from host memory (HyScale-GNN Equation 7): each host gathers its
        own vertices' rows, for whom they may be, and sends those that other nodes need."""
        if self.resident:
            return
        yield Section(round_.index, (LOAD, 0), round_.threads.load)
        if self.accelerator_slots:
            round_.moves = self._plan_traffic(round_)
        loads = []
        for unit in round_.units:
            move = round_.moves.get(unit.slot)
            ids = unit.input_ids if move is None else move.host_ids
            loads.append(Load(unit.slot, ids, move is not None))
        for some in [[each] for each in loads] if self._loads_apart else [loads]:
            yield from self._gather(round_, some)

    def _gather(self, round_: RoundUnderWay, loads: Sequence[Load]) -> Iterator[Item]:
        """The rows of some units: of all, or, where these are loaded apart, of one."""
        index, threads, slot = round_.index, round_.threads.load, loads[0].slot
        counts = [self._count_at_hosts(each) for each in loads]
        gathered = {host: Buffer("gathered rows") for host in self.platform.hosts}
        read = (self._drawn(round_, slot),)
        if stays_on_disk(self.setting):
            drawn, read = read, (Buffer("pages of the features"),)
            yield self._read_pages(round_, loads, drawn, read)
        for host, rows in zip(self.platform.hosts, zip(*counts, strict=True), strict=True):
            first, count = host is self.platform.host, sum(rows)
            if not (first or count):  # nothing of this host's
                continue
            step = Step(
                "load" if first else "",
                (index, loads, self.count_threads(threads)) if first else (),
                "load",
                "load features",
                host.name,
                (self._host_thread("load", host, index, slot),),
                Work(
                    "copy",
                    rows=count,
                    features=self._width,
                    bytes=count * self._picked_bytes,
                    threads=threads,
                    loading=self._loading,
                    processes=len(round_.units),
                    apart=self._count_apart(host) if host is self.hosts[slot] else 0,
                    fresh=not any(each.transferred for each in loads),
                ),
                round=index,
                reads=read,
                writes=(self._staging(host, index, slot), gathered[host]),
                adds=(round_.rows,),
            )
            if self._stored is not None:
                step.index_work = partial(self._count_stored, round_, self._stored)
            if self.in_processes:
                step.device = slot
            step.asked = True
            yield step
            round_.load_s = max(round_.load_s, step.seconds)
        for each in loads:
            row_bytes = self._packed_bytes if each.transferred else self._row_bytes
            size = step.work.bytes if self._stored is not None else len(each.ids) * row_bytes
            name = f"loaded features of slot {each.slot}, round {index}"
            taken = round_.loaded[each.slot] = Take(self.hosts[each.slot].name, {name: size})
            yield taken
        yield from self._send_abroad(round_, loads, counts, gathered)

    def _count_at_hosts(self, load: Load) -> tuple[int, ...]:
        """How many of a unit's rows are picked at each host."""
        if not self._replicated:
            return self.homes.count(load.ids)
        own = self.hosts[load.slot]
        return tuple(len(load.ids) if host is own else 0 for host in self.platform.hosts)

    @property
    def _loads_apart(self) -> bool:
        """Whether somebody loads each unit by itself: a thread that prepares it, or the process
        that trains on it."""
        return bool(self.preparers) or self.in_processes

    def _host_thread(self, stage: str, host: Device, index: int, slot: int) -> str:
        """What of a host is busy with a stage of a round: all its threads together, or the one that
        prepares the mini-batch of the trainer ``slot``."""
        if self.preparers and host is self.hosts[slot]:
            return f"{host.name}.prepare {slot}.{index % self.preparers}"
        return f"{host.name}.{stage}"

    def _count_apart(self, host: Device) -> int:
        """How many threads of a host prepare mini-batches beside each other."""
        return self.preparers * self.hosts.count(host)

    def _drawn(self, round_: RoundUnderWay, slot: int) -> Buffer:
        """What is written when the mini-batch of a trainer is drawn, or, where all threads share
        each, those of all trainers are."""
        return round_.drawn[slot] if self.preparers else round_.sampled

    def _read_pages(
        self,
        round_: RoundUnderWay,
        loads: Sequence[Load],
        drawn: tuple[Buffer, ...],
        pages: tuple[Buffer, ...],
    ) -> Step:
        """The pages of the feature file that a round's rows are on, from the host's disk."""
        if self._stored is None:
            size = sum(
                page_bytes(np.sort(each.ids).astype(np.int64), self._row_bytes) for each in loads
            )
        else:
            mean = feature_store_bytes(self.setting) / max(1, len(self._stored))
            size = int(sum(len(each.ids) for each in loads) * mean)
        step = Step("", (), "load", "read from disk", DISK, (DISK,), Work("copy", bytes=size))
        step.round, step.reads, step.writes = round_.index, drawn, pages
        return step

    def _staging(self, host: Device, index: int, slot: int) -> Buffer:
        """A host's memory for the rows of a round, or of the unit in it that is loaded apart."""
        ring = self._staged[host.name, slot if self._loads_apart else 0]
        return ring[index % len(ring)]

    def _send_abroad(
        self,
        round_: RoundUnderWay,
        loads: Sequence[Load],
        counts: Sequence[tuple[int, ...]],
        gathered: Mapping[Device, Buffer],
    ) -> Iterator[Step]:
        """Rows from the hosts that gathered them to those whose devices they are for, packed."""
        index, sent_s = round_.index, 0.0
        for here in self.platform.other_hosts and self.platform.hosts:
            sizes: dict[Device, int] = {}
            for each, count in zip(loads, counts, strict=True):
                row_bytes = self._packed_bytes if each.transferred else self._row_bytes
                if self.hosts[each.slot] is here:
                    for there, rows in self.homes.list_abroad(count, here):
                        sizes[there] = sizes.get(there, 0) + rows * row_bytes
            for there, size in sizes.items():
                work = Work("copy", bytes=size)
                label = "rows of another host"
                step = self._cross(there, here, index, label, work, "host_to_host")
                step.stage, step.reads = "load", (gathered[there],)
                step.adds = (self._staging(here, index, loads[0].slot), round_.rows)
                step.asked = True
                yield step
                sent_s = max(sent_s, step.seconds)
        round_.load_s += sent_s

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
