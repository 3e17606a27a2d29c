"""The mini-batch engine: all layers of a unit, then the next unit, round after round.

A round goes through HyScale-GNN's four stages (§III-B): sampling, feature loading, data transfer,
propagation; then the synchroniser averages gradients weighted by seeds, so that any split of a
round over trainers equals one large batch on one device. ``protocol`` says who runs the stages and
how many rounds may be under way, which follows from the communication part's ``prefetch`` depth and
stands in the spans' ``after``.

Stages run on threads of their own where every device is of this machine and there is something to
overlap: prefetching, or several trainers. Devices that are described only take turns on this
thread, so that two runs are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.base import Engine
from gnnbench.engine.evidence import Evidence
from gnnbench.engine.feature_cache import FeatureCache
from gnnbench.engine.machinery import count_stored_macs, feature_rows, stored_bytes
from gnnbench.engine.movement import Buffers
from gnnbench.engine.passes import (
    AggregateTape,
    UpdateTape,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
)
from gnnbench.engine.processors import (
    AS_IT_IS,
    StagingBuffers,
    Stream,
    host_threads,
    on_stream,
    open_streams,
)
from gnnbench.engine.protocol import (
    Steps,
    Trainer,
    run_in_turn,
    run_on_threads,
)
from gnnbench.engine.recorder import HOST, Opened, Recorder, SpanKind, Track
from gnnbench.engine.timers import HostTimer
from gnnbench.footprint import DEVICE_BUFFERS, ROUNDS_UNDER_WAY, reserved_bytes
from gnnbench.lowering.memory import allocate_host_graph, allocate_model, compute_resource
from gnnbench.lowering.movement import MovementPlanner, SlotMovement
from gnnbench.lowering.units import needs_aggregate_gradient, update_gemms
from gnnbench.models import BoundBlock, Layer
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.platforms.machine import Device
from gnnbench.program import Held
from gnnbench.records import (
    BatchProfile,
    EpochTrace,
    HostThreads,
    IntArray,
    Round,
    RoundTraffic,
    Share,
    Span,
    StageTimes,
    Unit,
    Work,
)

#: The shares of a round and the seeds of each.
Handed = Sequence[tuple[Share, IntArray]]
#: The order of a round's stages in the trace, each with the slot it is for, or 0.
SAMPLE, LOAD, TRANSFER, EXCHANGE, PUSH, PROPAGATE, PUSH_BACK, SYNCHRONISE = range(8)


@dataclass(slots=True)
class _Propagation:
    """What a trainer hands to the synchroniser when it is DONE: the sum of its seeds' losses, and,
    on its device, its part of the gradients of the round's mean loss."""

    loss_sum: float
    gradients: list[Tensor]
    last_spans: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class LayerPlan:
    """What is the same in every round of one layer on one trainer.

    ``pipelined`` says whether its two halves run at once, ``differentiates`` whether its aggregate
    needs a gradient, ``gemms`` how many products the backward pass of UPDATE has, ``name`` what a
    memory calls its activations. A destination has ``activation_bytes`` of them, its aggregate and
    output, and ``gradient_bytes`` in flight, to which each source adds ``source_bytes`` above the
    first layer. ``edge_work`` and ``row_work`` are the arithmetic of an edge and of a destination,
    for the imbalance.
    """

    layer: Layer
    first: bool
    pipelined: bool
    differentiates: bool
    gemms: int
    name: str
    activation_bytes: int
    gradient_bytes: int
    source_bytes: int
    edge_work: int
    row_work: int
    aggregate: SpanKind
    update: SpanKind
    update_backward: SpanKind
    aggregate_backward: SpanKind


@dataclass(slots=True, eq=False)
class LayerPass:
    """One layer of a unit: ``aggregate`` and ``update`` size its two halves, ``update_backward``
    the second's backward pass, on the trainer's threads."""

    plan: LayerPlan
    bound: BoundBlock
    aggregate: Work
    update: Work
    update_backward: Work


class Loaded(NamedTuple):
    """Input rows of a unit on the host: their parts as they cross, the bytes of all, and the hold
    on its memory."""

    parts: tuple[Tensor, ...]
    size_bytes: int
    held: Held


@dataclass(slots=True)
class RoundUnderWay:
    """A round and what its stages have made of it so far; by slot where trainers have their own.

    ``sampled``, ``loaded`` and ``arrived`` are the spans after which the next stage may start.
    ``loaded_rows`` are what has been loaded and not yet transferred, ``rows`` what has arrived.
    ``held`` is what memories hold until a trainer is done.
    """

    index: int
    num_seeds: int
    shares: dict[int, tuple[Share, IntArray]]
    threads: HostThreads
    units: list[Unit] = field(default_factory=list)
    moves: Mapping[int, SlotMovement] = field(default_factory=dict)
    loaded_rows: dict[int, Loaded] = field(default_factory=dict)
    rows: dict[int, Tensor] = field(default_factory=dict)
    held: dict[int, tuple[Held, ...]] = field(default_factory=dict)
    sampled: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    arrived: dict[int, tuple[int, ...]] = field(default_factory=dict)
    done: dict[int, _Propagation] = field(default_factory=dict)
    sample_cpu_s: float = 0.0
    sample_accelerator_s: float = 0.0
    load_s: float = 0.0
    transfer_s: float = 0.0

    def keep(self, slot: int, *held: Held) -> None:
        """Hold something until this trainer is done."""
        self.held[slot] = (*self.held.get(slot, ()), *held)

    def unit_of(self, slot: int) -> Unit | None:
        for unit in self.units:
            if unit.slot == slot:
                return unit
        return None

    @property
    def topology(self) -> str:
        """What a device's memory holds of this round's blocks."""
        return f"mini-batch topology of round {self.index}"


class UnitMajorEngine(Engine):
    """Trains on sampled mini-batches; see the module's docstring for what a round is."""

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        evidence: Evidence | None = None,
    ) -> None:
        super().__init__(bundle, setting, recorder, evidence)
        if not isinstance(bundle.sampler, MiniBatchSampler):
            raise TypeError("the unit-major engine takes mini-batch samplers")
        self._sampler = bundle.sampler
        self._resident = bundle.memory.vertex_data == "device"
        self._accelerator_slots = np.array(
            [s for s, device in enumerate(self._trainers) if device.name != self._host.name],
            dtype=np.int64,
        )
        self._on_host = tuple(device.name == self._host.name for device in self._trainers)
        self._torch_devices = tuple(torch.device(d.torch_device) for d in self._trainers)
        self._num_features = setting.dataset.num_features
        self._row_bytes = self._num_features * self._itemsize
        self._plans = tuple(self._plan_layers(device) for device in self._trainers)
        self._stacks = tuple(self.replicas.on(device).stack for device in self._trainers)
        host = self._host.name
        self._losses = tuple(
            SpanKind("update", "loss", device.name, plans[-1].update.resources, len(plans))
            for device, plans in zip(self._trainers, self._plans, strict=True)
        )
        self._sampling = SpanKind("sample", "sample", host, ("host.sample",))
        self._sampling_there = tuple(
            SpanKind("sample", "sample", d.name, compute_resource(d, self._host, "sample"))
            for d in self._trainers
        )
        self._loading = SpanKind("load", "load features", host, ("host.load",))
        self._averaging = SpanKind(
            "synchronize",
            "average and step",
            self._trainers[0].name if len(self._trainers) == 1 else host,
            ("host.synchronise",),
        )
        self._prefetch = bundle.prefetch_stages(setting.platform)
        self._samplers = bundle.placement.samplers(setting.platform)
        self._streams = open_streams(self._trainers)
        self._computing = tuple(
            self._streams[d.name].compute if d.name in self._streams else None
            for d in self._trainers
        )
        self._staging = StagingBuffers(ROUNDS_UNDER_WAY[self._prefetch])
        overlaps = self._prefetch > 0 or len(self._trainers) > 1
        self._threads = setting.workload.threads
        self._rounds = bool(bundle.communication.rounds_features)
        self._run = run_in_turn if self._platform.virtual or not overlaps else run_on_threads

    def _plan_layers(self, device: Device) -> tuple[LayerPlan, ...]:
        """The model's layers on a trainer, input to output."""

        def kind(number: int, op: Literal["aggregate", "update"], way: str) -> SpanKind:
            held = compute_resource(device, self._host, op)
            return SpanKind(op, f"{op} {way}", device.name, held, number)

        def plan(number: int, layer: Layer) -> LayerPlan:
            first, itemsize = number == 0, self._itemsize
            return LayerPlan(
                layer,
                first,
                device.pipelined,
                needs_aggregate_gradient(layer, first=first),
                update_gemms(layer, first=first),
                f"activations of layer {number + 1}",
                activation_bytes=(layer.aggregate_features + layer.out_features) * itemsize,
                gradient_bytes=layer.aggregate_features * itemsize,
                source_bytes=0 if first else layer.in_features * itemsize,
                edge_work=layer.in_features,
                row_work=layer.macs_per_row,
                aggregate=kind(number, "aggregate", "forward"),
                update=kind(number, "update", "forward"),
                update_backward=kind(number, "update", "backward"),
                aggregate_backward=kind(number, "aggregate", "backward"),
            )

        return tuple(
            plan(number, layer) for number, layer in enumerate(self.replicas.on(device).stack)
        )

    def prepare(self) -> None:
        """Place what stays for the whole run, and let the placement plan its first split."""
        setting, ledger = self._setting, self.ledger
        graph = setting.dataset.graph
        allocate_host_graph(ledger, setting)
        for device in self._trainers:
            allocate_model(ledger, setting, device)
        for device in self._samplers:
            size = graph.indptr.nbytes + graph.indices.nbytes
            ledger.allocate(device.name, "graph topology", size)
        if self._resident:
            self._place_features()
        sampled = self._profile()
        self._cache = self._fill_cache(sampled[-1][0])
        self._bundle.placement.overlap(self._prefetch)
        self._bundle.placement.prepare(
            replace(setting, layers=self.replicas.master.shapes),
            [self._count_fetched(profile, ids) for profile, ids in sampled],
        )
        # Owner of a vertex's transition row among the accelerators, where a communication shares.
        vertices = np.arange(graph.num_vertices, dtype=np.int64)
        slots = self._accelerator_slots
        self._owner: IntArray = slots[vertices % len(slots)] if len(slots) else vertices * 0

    def _place_features(self) -> None:
        """All feature rows on every device that trains."""
        everything = np.arange(self._setting.dataset.graph.num_vertices)
        for device in self._trainers:
            size = len(everything) * self._row_bytes
            self.ledger.allocate(device.name, "vertex features on the device", size)
        rows = feature_rows(self._setting, everything, sparse=False)
        self._features = {d.name: rows.to(d.torch_device) for d in self._trainers}

    def notes(self) -> tuple[str, ...]:
        return self._cache.notes({s: device.name for s, device in enumerate(self._trainers)})

    def _fill_cache(self, whole: BatchProfile) -> FeatureCache:
        """The rows that the memory part wants on each accelerator, beside mini-batches."""
        setting = self._setting
        cache = FeatureCache(setting.dataset.graph.num_vertices)
        if self._resident:
            return cache
        working_bytes = reserved_bytes(setting.layers, whole, self._itemsize, self._prefetch)
        for slot in self._accelerator_slots.tolist():
            device = self._trainers[slot]
            vertices = self._bundle.memory.cached_vertices(
                setting, self.ledger.free_bytes(device.name), working_bytes
            )
            if len(vertices) == 0:
                continue
            size = len(vertices) * self._row_bytes
            self.ledger.allocate(device.name, "cached feature rows", size)
            where = torch.device(device.torch_device)
            copy = cache.find_copy(vertices, where)
            if copy is None:
                copy = feature_rows(setting, vertices, sparse=False).to(where)
            cache.keep(slot, vertices, copy)
        return cache

    def _profile(self) -> list[tuple[BatchProfile, IntArray]]:
        """The design phase: mini-batches of a sixteenth of a round up to a whole one, each with its
        V^0."""
        rounds = self._sampler.rounds(0)
        seeds = rounds[0]
        sizes = sorted({max(1, len(seeds) // 2**k) for k in range(5)})
        profiles = []
        for size in sizes:
            blocks = self._sampler.sample(seeds[:size], 0, self._setting.workload.threads)
            unit = Unit(0, blocks)
            timed = self._time_sampling(rounds, size) if self._recorder.measures else ()
            profile = BatchProfile(size, unit.vertices, unit.edges, timed)
            profiles.append((profile, unit.input_ids))
        return profiles

    def _count_fetched(self, profile: BatchProfile, ids: IntArray) -> BatchProfile:
        """The profile of a mini-batch that reads the rows ``ids``, with what an accelerator needs
        of the host: nothing where features are on the device, else what the smallest of the caches
        misses, in the communication part's precision."""
        if self._resident:
            return replace(profile, fetched=0, fetched_bytes=0)
        if self._sparse:
            stored = self._setting.dataset.count_stored(ids, profile.vertices[1])
            return replace(profile, stored=stored)
        slots = self._accelerator_slots.tolist()
        fetched = max((self._cache.count_missing(slot, ids) for slot in slots), default=len(ids))
        width = self._setting.dataset.num_features
        row_bytes = self._bundle.communication.row_bytes(width, self._dtype)
        return replace(profile, fetched=fetched, fetched_bytes=fetched * row_bytes)

    def _time_sampling(
        self, rounds: Sequence[IntArray], size: int
    ) -> tuple[tuple[int, float], ...]:
        """T_samp of ``size`` seeds with 1, 2, 4 .. threads and with every core of this host, the
        median of five (HyScale-GNN §V, which measures sampling). As in training, each time other
        vertices are drawn for, whose neighbours are not in a cache from the time before."""
        cores, timer = self._host.cores, HostTimer()
        timed = []
        for threads in sorted({*(2**k for k in range(cores.bit_length())), cores}):
            seconds = []
            for draw in range(5):
                seeds = rounds[draw % len(rounds)][:size]
                began = timer.read()
                self._sampler.sample(seeds, 0, threads)
                seconds.append(timer.since(began)[1])
            timed.append((threads, median(seconds)))
        return tuple(timed)

    def run_epoch(self, epoch: int) -> EpochTrace:
        """One pass over the training vertices.

        Raises ``StageFailed`` for an error in a stage, and ``DeviceOutOfMemory`` with its stage.
        """
        recorder = self._recorder
        recorder.start_epoch(epoch)
        self._epoch = epoch
        self._torch_threads = torch.get_num_threads()
        self._kernel_threads = cache(self._count_kernel_threads)
        self._own_threads = cache(self._count_own_threads)
        self._loss_sums: list[float] = []
        #: By round, the spans after which all trainers have the new model.
        self._synchronised: list[tuple[int, ...]] = []
        self._transferred: tuple[int, ...] = ()
        self._previous: RoundTraffic | None = None
        self._buffers = Buffers()
        self._movements = MovementPlanner(
            self._setting.dataset.graph.num_vertices,
            shares_rows=self._bundle.communication.shares_rows,
            threads=torch.get_num_threads(),
        )
        with recorder.inside_part():
            self._seeds = self._sampler.rounds(epoch)
        if self._evidence is not None:
            with recorder.excluded():
                self._evidence.audit_seeds(epoch, self._seeds)
        steps = Steps(
            assign=self._assign,
            stages={"sample": self._sample, "load": self._load, "transfer": self._transfer},
            begin=self._begin,
            propagate=self._propagate,
            synchronise=self._synchronise,
            observe=self._observe,
            host=self._host.name,
            trainers=tuple(Trainer(d.name, d.torch_device) for d in self._trainers),
        )
        self._run(steps, len(self._seeds), self._prefetch)
        counts = [len(seeds) for seeds in self._seeds]
        losses = [loss / count for loss, count in zip(self._loss_sums, counts, strict=True)]
        return recorder.end_epoch(sum(self._loss_sums) / sum(counts), losses, sum(counts))

    # ------------------------------------------------------------------ the runtime

    def _assign(self, index: int) -> RoundUnderWay:
        """A round and its split, from what the placement has observed so far."""
        placement, seeds = self._bundle.placement, self._seeds[index]
        began_s = HOST.read()
        handed = placement.share_out(seeds)
        threads = placement.host_threads()
        self._recorder.decided_since(began_s)
        self._check_shares(handed, seeds)
        shares = {share.slot: (share, part) for share, part in handed if share.seeds}
        return RoundUnderWay(index, len(seeds), shares, threads)

    def _check_shares(self, handed: Handed, seeds: IntArray) -> None:
        if len(handed) == 1 and handed[0][1] is seeds and handed[0][0].seeds == len(seeds):
            return
        fits = all(share.seeds == len(part) for share, part in handed)
        in_order = b"".join([part.tobytes() for _, part in handed]) == seeds.tobytes()
        if fits and in_order:
            return
        less = next((share for share, _ in handed if share.seeds < 0), None)
        if less is not None:
            raise ValueError(
                f"placement {self._bundle.placement.name!r} gave slot {less.slot} {less.seeds} "
                f"seeds; a share has none or more"
            )
        given = np.concatenate([seeds[:0], *(part for _, part in handed)])
        if not fits or not np.array_equal(np.sort(given), np.sort(seeds)):
            count = sum(share.seeds for share, _ in handed)
            raise ValueError(
                f"placement {self._bundle.placement.name!r} gave out {count} of {len(seeds)} "
                f"seeds; each must be in one share, and a share must count its own"
            )

    def _observe(self, round_: RoundUnderWay) -> None:
        """Tell the placement what the stages of a round took."""
        done = round_.done
        self._loss_sums.append(sum([done[unit.slot].loss_sum for unit in round_.units]))
        # A trainer that got no seeds was done at once; one that does not exist has no time.
        on_host = len(self._trainers) > len(self._accelerator_slots)
        train_cpu = 0.0 if on_host else None
        train_accelerator = 0.0 if len(self._accelerator_slots) else None
        for slot, result in done.items():
            if self._on_host[slot]:
                train_cpu = result.seconds
            else:
                train_accelerator = max(train_accelerator or 0.0, result.seconds)
        times = StageTimes(
            sample_cpu=round_.sample_cpu_s,
            sample_accelerator=round_.sample_accelerator_s if self._samplers else None,
            load=round_.load_s,
            transfer=round_.transfer_s,
            train_cpu=train_cpu,
            train_accelerator=train_accelerator,
        )
        began_s = HOST.read()
        self._bundle.placement.observe(times)
        self._recorder.decided_since(began_s)

    def _count_kernel_threads(self, planned: int) -> int:
        """This machine's threads for a kernel, 0 meaning all: as many as are planned for the host,
        if that is this machine, but no more than the workload allows."""
        allowed = self._threads
        if not planned or self._host.virtual:
            return allowed
        return min(planned, allowed) if allowed else planned

    def _count_own_threads(self, planned: int) -> int:
        """This machine's threads for what the calling thread computes with torch."""
        return self._count_kernel_threads(planned) or self._torch_threads

    # ------------------------------------------------------------------ sampling

    def _sample(self, round_: RoundUnderWay) -> None:
        """One mini-batch for each share, on the host or on the accelerator that trains on it.

        Whoever draws, the neighbours are the same. After a round is let in, which is when the one
        that many before it has been synchronised.
        """
        before = round_.index - ROUNDS_UNDER_WAY[self._prefetch]
        after = self._synchronised[before] if before >= 0 else ()
        threads = round_.threads.sample
        sampled = []
        with self._on(round_.index, (SAMPLE, 0), None, self._own_threads(threads)) as track:
            for share, seeds in round_.shares.values():
                device = self._trainers[share.slot] if share.samples else self._host
                planned = 0 if share.samples else threads
                kind = self._sampling_there[share.slot] if share.samples else self._sampling
                began = track.read()
                blocks = self._sampler.sample(seeds, self._epoch, self._kernel_threads(threads))
                unit = Unit(share.slot, blocks)
                edges = sum(unit.edges)
                work = Work("sample", edges, rows=len(seeds), threads=planned)
                span = track.add(kind, work, after, began)
                self._keep_unit(round_.index, unit, seeds)
                round_.units.append(unit)
                track.edges += edges
                track.vertices += sum(unit.vertices)
                if share.samples:
                    sampled.append(self._send_input_ids(round_, unit, device, span.id))
                    seconds = max(round_.sample_accelerator_s, span.seconds)
                    round_.sample_accelerator_s = seconds
                else:
                    sampled.append(span.id)
                    round_.sample_cpu_s += span.seconds
        round_.sampled = tuple(sampled)

    def _keep_unit(self, index: int, unit: Unit, seeds: IntArray) -> None:
        """Let a mini-batch be kept or looked at, where that is wanted."""
        if self._evidence is not None:
            with self._recorder.excluded():
                self._evidence.add_unit(
                    self._sampler, self._epoch, index, len(self._seeds), unit, seeds
                )

    def _send_input_ids(self, round_: RoundUnderWay, unit: Unit, device: Device, drawn: int) -> int:
        """What an accelerator has drawn stays there; the feature loader needs V^0 on the host."""
        there = self.ledger.hold(device.name, {round_.topology: unit.topology_bytes})
        round_.keep(unit.slot, there)
        with self._recorder.transfer(
            "sample",
            "input vertices to the host",
            self._platform.route(device, self._host),
            Work("copy", rows=len(unit.input_ids), bytes=unit.input_ids.nbytes),
            after=(drawn,),
        ) as span:
            pass
        self._recorder.count_bytes("device_to_host", unit.input_ids.nbytes)
        return span.id

    # ------------------------------------------------------------------ feature loading

    def _load(self, round_: RoundUnderWay) -> None:
        """Gather X' for every unit from host memory (HyScale-GNN Equation 7)."""
        if self._resident:
            round_.loaded = round_.sampled
            return
        threads, communication = round_.threads.load, self._bundle.communication
        with self._on(round_.index, (LOAD, 0), None, self._own_threads(threads)) as track:
            if len(self._accelerator_slots):
                round_.moves = self._plan_traffic(round_)
            also_after = self._transferred if self._prefetch == 1 else ()
            after = (*round_.sampled, *also_after)
            began = track.read()
            count = size = 0
            loaded: list[tuple[int, tuple[Tensor, ...], int]] = []
            for unit in round_.units:
                move = round_.moves.get(unit.slot)
                ids = unit.input_ids if move is None else move.host_ids.astype(np.int64)
                rows = feature_rows(
                    self._setting,
                    ids,
                    sparse=self._sparse,
                    threads=self._kernel_threads(threads),
                    out=self._stage_rows(round_, unit.slot, len(ids)) if self._streams else None,
                )
                stored = stored_bytes(rows) if self._sparse else len(ids) * self._row_bytes
                count, size = count + len(ids), size + stored
                parts: tuple[Tensor, ...] = (rows,)
                if move is not None and self._rounds:
                    parts = communication.pack(rows)
                    stored = sum(stored_bytes(part) for part in parts)
                loaded.append((unit.slot, parts, stored))
            work = Work("copy", 0, count, self._num_features, size, threads=threads)
            span = track.add(self._loading, work, after, began)
        round_.loaded, round_.load_s = (span.id,), span.seconds
        for slot, parts, stored in loaded:
            name = f"loaded features of slot {slot}, round {round_.index}"
            held = self.ledger.hold(self._host.name, {name: stored})
            round_.loaded_rows[slot] = Loaded(parts, stored, held)

    def _plan_traffic(self, round_: RoundUnderWay) -> dict[int, SlotMovement]:
        """Where the accelerators' input rows come from; the CPU trainer reads host memory."""
        visiting = Round(
            round_.index, tuple(unit for unit in round_.units if not self._on_host[unit.slot])
        )
        with self._recorder.inside_part():
            traffic = self._bundle.communication.plan(visiting, self._previous, self._owner)
            traffic = self._cache.serve(traffic)
        self._previous = traffic
        return {move.slot: move for move in self._movements.plan(visiting, traffic)}

    def _stage_rows(self, round_: RoundUnderWay, slot: int, count: int) -> Tensor | None:
        """Page-locked memory for rows that a CUDA device will copy."""
        if self._trainers[slot].name not in self._streams:
            return None
        width = self._setting.dataset.num_features
        return self._staging.take(slot, round_.index, count, width, self._dtype)

    # ------------------------------------------------------------------ data transfer

    def _transfer(self, round_: RoundUnderWay) -> None:
        """Mini-batch topology and features to the accelerators (HyScale-GNN Equation 8)."""
        # A device has as many buffers of input rows: one of them must be free.
        before = round_.index - DEVICE_BUFFERS[self._prefetch]
        free = self._synchronised[before] if self._prefetch and before >= 0 else ()
        after = (*round_.loaded, *free)
        for unit in round_.units:
            device = self._trainers[unit.slot]
            held = self._hold_mini_batch(round_, unit, device)
            if self._resident:
                round_.keep(unit.slot, held)
                round_.rows[unit.slot] = self._read_resident(round_, unit, device)
                round_.arrived[unit.slot] = self._send_topology(round_, unit, device, after)
            elif self._on_host[unit.slot]:
                loaded = round_.loaded_rows.pop(unit.slot)
                (round_.rows[unit.slot],) = loaded.parts
                round_.keep(unit.slot, held, loaded.held)
                round_.arrived[unit.slot] = after
            else:
                round_.keep(unit.slot, held)
                loaded = round_.loaded_rows.pop(unit.slot)
                self._copy_rows(round_, unit, device, loaded, after)
                loaded.held.release()
        if self._bundle.communication.shares_rows:
            self._exchange(round_)
        if self._prefetch == 1:
            self._transferred = tuple(span for ids in round_.arrived.values() for span in ids)

    def _hold_mini_batch(self, round_: RoundUnderWay, unit: Unit, device: Device) -> Held:
        """Memory for a unit's blocks, unless they were drawn there, and for its input rows."""
        size = len(unit.input_ids) * self._row_bytes
        if self._sparse and not self._resident:
            size = round_.loaded_rows[unit.slot].size_bytes
        held = {} if round_.shares[unit.slot][0].samples else {round_.topology: unit.topology_bytes}
        held[f"mini-batch features of round {round_.index}"] = size
        return self.ledger.hold(device.name, held)

    def _read_resident(self, round_: RoundUnderWay, unit: Unit, device: Device) -> Tensor:
        """Input rows out of the features on the device, where kernels could read them in place."""
        features = self._features[device.name]
        with (
            self._on_copy_stream(round_.index, TRANSFER, unit.slot),
            self._recorder.inside_part(),
        ):
            rows = features[torch.from_numpy(unit.input_ids).to(features.device)]
            self._hand_over(rows, device)
        return rows

    def _send_topology(
        self, round_: RoundUnderWay, unit: Unit, device: Device, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The blocks alone, to an accelerator that has the features; those it drew are there."""
        if self._on_host[unit.slot] or round_.shares[unit.slot][0].samples:
            return after
        with (
            self._on_copy_stream(round_.index, TRANSFER, unit.slot),
            self._recorder.transfer(
                "transfer",
                "mini-batch topology",
                self._platform.route(self._host, device),
                Work("copy", bytes=unit.topology_bytes),
                after=after,
            ) as span,
        ):
            self._recorder.count_bytes("host_to_device", unit.topology_bytes)
        round_.transfer_s = max(round_.transfer_s, span.seconds)
        return (span.id,)

    def _copy_rows(
        self,
        round_: RoundUnderWay,
        unit: Unit,
        device: Device,
        loaded: Loaded,
        after: tuple[int, ...],
    ) -> None:
        """What an accelerator needs of host memory, over its link."""
        recorder, move = self._recorder, round_.moves[unit.slot]
        crossing, topology = loaded.size_bytes, 0
        if not round_.shares[unit.slot][0].samples:
            topology = unit.topology_bytes
        torch_device = torch.device(device.torch_device)
        put_together = self._rounds or (move.direct and move.rows_reused > 0)
        with self._on_copy_stream(round_.index, TRANSFER, unit.slot):
            with recorder.transfer(
                "transfer",
                "host to device",
                self._platform.route(self._host, device),
                Work(
                    "copy",
                    rows=move.rows_from_host,
                    features=self._setting.dataset.num_features,
                    bytes=crossing + topology,
                ),
                after=after,
            ) as span:
                crossed = tuple(part.to(torch_device, non_blocking=True) for part in loaded.parts)
                if not put_together:
                    self._keep_rows(round_, move, device, crossed[0])
                recorder.count_bytes("host_to_device", crossing + topology)
                recorder.count_bytes("reused", move.rows_reused * self._row_bytes)
            round_.arrived[unit.slot], seconds = (span.id,), span.seconds
            if put_together:
                made = self._put_together(round_, unit, device, crossed, crossing)
                round_.arrived[unit.slot], seconds = (made.id,), seconds + made.seconds
        if not move.direct:
            size = self._buffers.size_bytes(move.slot)
            self.ledger.allocate(device.name, "neighbour rows", size)
        round_.transfer_s = max(round_.transfer_s, seconds)

    def _put_together(
        self,
        round_: RoundUnderWay,
        unit: Unit,
        device: Device,
        crossed: tuple[Tensor, ...],
        crossed_bytes: int,
    ) -> Opened:
        """Input rows out of what crossed and of the device's cache, in a memory of their own."""
        move = round_.moves[unit.slot]
        count = len(unit.input_ids) if move.direct else move.rows_from_host
        self.ledger.allocate(device.name, "rows that crossed", crossed_bytes)
        with self._recorder.span(
            "transfer",
            "assemble input rows",
            device.name,
            Work("copy", rows=count, bytes=count * self._row_bytes),
            after=round_.arrived[unit.slot],
        ) as span:
            rows = crossed[0]
            if self._rounds:
                rows = self._bundle.communication.unpack(crossed, self._dtype)
            if move.direct:
                rows = self._cache.assemble(unit.slot, unit.input_ids, rows)
            self._keep_rows(round_, move, device, rows)
        self.ledger.free(device.name, "rows that crossed")
        return span

    def _keep_rows(
        self, round_: RoundUnderWay, move: SlotMovement, device: Device, rows: Tensor
    ) -> None:
        """Rows on a device are its unit's, or go to the buffer from which they are shared."""
        if move.direct:
            round_.rows[move.slot] = rows
            self._hand_over(rows, device)
            return
        width = self._setting.dataset.num_features
        self._buffers.make_room(move.slot, move.buffer_rows, width, self._dtype, rows.device)
        self._buffers.load(move, rows)

    def _exchange(self, round_: RoundUnderWay) -> None:
        """Rows that one accelerator brought in for another.

        A mini-batch has a copy of its rows, as the next one's may arrive while it is computed.
        """
        everyone = tuple(span for spans in round_.arrived.values() for span in spans)
        for unit in round_.units:
            move, device = round_.moves.get(unit.slot), self._trainers[unit.slot]
            if move is None or move.direct:
                continue
            ready = everyone
            count = len(unit.input_ids)
            with self._on_copy_stream(round_.index, EXCHANGE, unit.slot):
                for pull in move.pulls:
                    with self._exchange_rows(
                        move.slot, pull, self._row_bytes, ready, push=False
                    ) as span:
                        self._buffers.pull(move, pull)
                    ready = (*everyone, span.id)
                with self._recorder.span(
                    "transfer",
                    "assemble input rows",
                    device.name,
                    Work("copy", rows=count, bytes=count * self._row_bytes),
                    after=ready,
                ) as span:
                    rows = round_.rows[unit.slot] = self._buffers.assemble(move)
                    self._hand_over(rows, device)
            round_.arrived[unit.slot] = (span.id,)

    # ------------------------------------------------------------------ CUDA devices

    def _on_copy_stream(self, index: int, stage: int, slot: int) -> AbstractContextManager[Track]:
        streams = self._streams.get(self._trainers[slot].name)
        return self._on(index, (stage, slot), streams.copy if streams else None)

    def _on(
        self, index: int, rank: tuple[int, int], stream: Stream | None, threads: int = 0
    ) -> AbstractContextManager[Track]:
        """A stage or a device's part of it: on a stream of its own if it is a CUDA device, and with
        so many of the host's threads for torch (0: as many as it has)."""
        if stream is None and threads in (0, torch.get_num_threads()):
            return self._recorder.stage(index, rank)
        return self._on_other(index, rank, stream, threads)

    @contextmanager
    def _on_other(
        self, index: int, rank: tuple[int, int], stream: Stream | None, threads: int
    ) -> Iterator[Track]:
        timer = None if stream is None else stream.timer
        device = self._trainers[rank[1]].name
        with (
            self._recorder.stage(index, rank, timer) as track,
            AS_IT_IS if stream is None else on_stream(stream, device),
            host_threads(threads),
        ):
            yield track

    def _hand_over(self, rows: Tensor, device: Device) -> None:
        """Rows made on the copy stream are used on the other, and not to be freed before."""
        if device.name in self._streams:
            rows.record_stream(self._streams[device.name].compute.stream)

    # ------------------------------------------------------------------ propagation

    def _begin(self, round_: RoundUnderWay) -> None:
        self._begin_update(round_.index, len(self._seeds))

    def _propagate(self, round_: RoundUnderWay, slot: int) -> None:
        """One trainer's part of a round; one that got no seeds is done at once."""
        unit = round_.unit_of(slot)
        if unit is None:
            return
        share = round_.shares[slot][0]
        before = self._synchronised[-1] if self._synchronised else ()
        threads = self._own_threads(share.threads)
        with self._on(round_.index, (PROPAGATE, slot), self._computing[slot], threads) as track:
            after = (*round_.arrived[slot], *before)
            round_.done[slot] = self._train(
                track, round_, unit, share, round_.rows.pop(slot), after
            )
        for held in round_.held.pop(slot):
            held.release()

    def _train(
        self,
        track: Track,
        round_: RoundUnderWay,
        unit: Unit,
        share: Share,
        h: Tensor,
        after: tuple[int, ...],
    ) -> _Propagation:
        """Forward and backward of one trainer; the loss is a sum over its seeds, and what its
        gradients are of is their share of the round's mean loss."""
        device, index, weight = self._trainers[share.slot], round_.index, 1.0 / round_.num_seeds
        passes, held, arithmetic = self._plan_passes(unit, share)
        if self._sparse and not self._resident:
            first = passes[0]
            macs = count_stored_macs(first.plan.layer, h, first.bound.block.num_dst)
            first.aggregate = first.aggregate._replace(macs=macs)
        seconds = 0.0
        tapes: list[tuple[AggregateTape, UpdateTape]] = []
        with self.ledger.hold(device.name, held):
            for each in passes:
                h, after, layer_s = self._forward_layer(track, each, share, h, after, tapes)
                seconds += layer_s
            gradient: Tensor | None
            rows, classes = h.shape
            self._keep_logits(unit.output_ids, h, index)
            began = track.read()
            labels = self._labels[torch.from_numpy(unit.output_ids)].to(h.device)
            logits = h.requires_grad_()
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
            torch.autograd.backward(loss, torch.full_like(loss, weight))
            gradient = logits.grad
            work = Work("update", 0, rows, classes, macs=rows * classes, threads=share.threads)
            span = track.add(self._losses[share.slot], work, after, began)
            after = (span.id,)
            seconds += span.seconds
            for each in reversed(passes):
                if gradient is None:
                    raise RuntimeError("a layer above the first returned no gradient")
                gradient, after, layer_s = self._backward_layer(
                    track, each, share, gradient, after, tapes.pop()
                )
                seconds += layer_s
        track.work[device.name] = float(arithmetic)
        return _Propagation(loss.item(), take_gradients(self._stacks[share.slot]), after, seconds)

    def _plan_passes(self, unit: Unit, share: Share) -> tuple[list[LayerPass], dict[str, int], int]:
        """The unit's layers, input to output; what a device's memory holds of them; and their
        arithmetic, for the imbalance.

        What is held is named in the order in which it comes, until the end of the backward pass;
        gradients in flight take the place of those of the layer above.
        """
        kernel, where = self._bundle.kernel, self._torch_devices[share.slot]
        itemsize, threads = self._itemsize, share.threads
        passes: list[LayerPass] = []
        held: dict[str, int] = {}
        in_flight = arithmetic = 0
        for plan, block in zip(self._plans[share.slot], unit.blocks, strict=True):
            layer, rows = plan.layer, block.num_dst
            bound = BoundBlock(block, kernel, self._degrees, self._dtype, where)
            aggregate = layer.aggregate_work(block, itemsize)
            if aggregate.threads != threads:
                aggregate = aggregate.on_threads(threads)
            update = backward = layer.update_work(rows, itemsize, threads=threads)
            if plan.gemms > 1:
                backward = layer.update_work(rows, itemsize, plan.gemms, threads)
            passes.append(LayerPass(plan, bound, aggregate, update, backward))
            held[plan.name] = plan.activation_bytes * rows
            gradients = plan.gradient_bytes * rows + plan.source_bytes * len(block.src_ids)
            in_flight = max(in_flight, gradients)
            arithmetic += len(block.indices) * plan.edge_work + rows * plan.row_work
        held["logits and their gradient"] = 2 * layer.out_features * itemsize * rows
        held["gradients in flight"] = in_flight
        return passes, held, arithmetic

    def _forward_layer(
        self,
        track: Track,
        each: LayerPass,
        share: Share,
        h: Tensor,
        after: tuple[int, ...],
        tapes: list[tuple[AggregateTape, UpdateTape]],
    ) -> tuple[Tensor, tuple[int, ...], float]:
        plan, bound = each.plan, each.bound
        began = track.read()
        tape = run_aggregate(plan.layer, bound, h, first=plan.first)
        aggregate = track.add(plan.aggregate, each.aggregate, after, began)
        if not plan.pipelined:
            after = (aggregate.id,)
        began = track.read()
        updated = run_update(
            plan.layer, bound, tape.output, needs_input_gradient=plan.differentiates
        )
        update = track.add(plan.update, each.update, after, began)
        tapes.append((tape, updated))
        return updated.output.detach(), *_combine(plan, aggregate, update)

    def _backward_layer(
        self,
        track: Track,
        each: LayerPass,
        share: Share,
        gradient: Tensor,
        after: tuple[int, ...],
        tape: tuple[AggregateTape, UpdateTape],
    ) -> tuple[Tensor | None, tuple[int, ...], float]:
        plan = each.plan
        began = track.read()
        below = run_update_backward(tape[1], gradient)
        update = track.add(plan.update_backward, each.update_backward, after, began)
        if below is None:
            return None, (update.id,), update.seconds
        if not plan.pipelined:
            after = (update.id,)
        began = track.read()
        source = run_aggregate_backward(plan.layer, each.bound, tape[0], below, first=plan.first)
        aggregate = track.add(plan.aggregate_backward, each.aggregate, after, began)
        return source, *_combine(plan, update, aggregate)

    # ------------------------------------------------------------------ synchronisation

    @cached_property
    def _averaged_bytes(self) -> int:
        """Of the gradients of the weights that every trainer has."""
        return self._setting.parameter_bytes

    def _synchronise(self, round_: RoundUnderWay) -> None:
        """Average the gradients weighted by seeds and update every trainer's model: each trainer's
        are of its seeds' share of the round's mean loss, so their sum is the average.

        The synchroniser on the host gathers every accelerator's gradients over its link, averages,
        and sends the average back (HyScale-GNN Equation 13); the round ends when all have it.
        """
        done = [round_.done[unit.slot] for unit in round_.units]
        finished = tuple([span for result in done for span in result.last_spans])
        size = self._averaged_bytes
        alone = len(self._trainers) == 1
        with self._recorder.stage(round_.index, (SYNCHRONISE, 0)) as track:
            gathered = () if alone else self._gather_gradients(round_, finished)
            began = track.read()
            self._step(_total(done), round_.index)
            work = Work("copy", bytes=len(done) * size, rows=size // self._itemsize)
            step = track.add(self._averaging, work, gathered or finished, began)
            scattered = () if alone else self._scatter_gradients((step.id,))
        self._synchronised.append(scattered or (step.id,))

    def _gather_gradients(self, round_: RoundUnderWay, after: tuple[int, ...]) -> tuple[int, ...]:
        """Every accelerator's gradients to the host; one that got no seeds sends zeros."""
        spans = []
        for slot in self._accelerator_slots:
            with self._transfer_gradients("gather gradients", slot, after) as span:
                if slot in round_.done:
                    result = round_.done[slot]
                    result.gradients = [part.to("cpu") for part in result.gradients]
            spans.append(span.id)
        return tuple(spans)

    def _scatter_gradients(self, after: tuple[int, ...]) -> tuple[int, ...]:
        """The average to every accelerator; the step has brought it to those that exist here."""
        spans = []
        for slot in self._accelerator_slots:
            with self._transfer_gradients("scatter gradients", slot, after) as span:
                pass
            spans.append(span.id)
        return tuple(spans)

    def _transfer_gradients(
        self,
        label: Literal["gather gradients", "scatter gradients"],
        slot: int,
        after: tuple[int, ...],
    ) -> AbstractContextManager[Opened]:
        """A span for one model's worth of gradients between an accelerator and the host."""
        device = self._trainers[slot]
        ends = (device, self._host) if label == "gather gradients" else (self._host, device)
        self._recorder.count_bytes("all_reduce", self._averaged_bytes)
        return self._recorder.transfer(
            "synchronize",
            label,
            self._platform.route(*ends),
            Work("copy", bytes=self._averaged_bytes),
            after=after,
        )


def _total(done: Sequence[_Propagation]) -> list[Tensor]:
    """The gradients summed in the order of trainers, in the memory of the first's where that is the
    host's. Those of several trainers have been gathered on the host."""
    totals = done[0].gradients
    for other in done[1:]:
        for total, part in zip(totals, other.gradients, strict=True):
            total += part
    return [total.cpu() for total in totals]


def _combine(plan: LayerPlan, first: Span, second: Span) -> tuple[tuple[int, ...], float]:
    """After which spans a layer is over, and its seconds by HyScale-GNN Equation 10's operator: max
    where AGGREGATE and UPDATE are pipelined, else their sum."""
    if plan.pipelined:
        return (first.id, second.id), max(first.seconds, second.seconds)
    return (second.id,), first.seconds + second.seconds
