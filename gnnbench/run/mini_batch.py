"""What the steps of ``lowering/mini_batch.py`` compute: rows of features, models and gradients.

Stages run on threads of their own where every device is of this machine and there is something to
overlap: prefetching, or several trainers. Devices that are described only take turns on this
thread, so that two runs are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from statistics import median

import numpy as np
import torch
from torch import Tensor

from gnnbench.footprint import ROUNDS_UNDER_WAY
from gnnbench.lowering.feature_cache import Admission
from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.lowering.movement import Exchange, SlotMovement
from gnnbench.lowering.rounds import Load, RoundUnderWay
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.models import BoundBlock
from gnnbench.parts import MiniBatchSampler
from gnnbench.program import Section
from gnnbench.records import Block, EpochTrace, IndexArray, IntArray, Unit
from gnnbench.run.base import Engine
from gnnbench.run.execute import Reader
from gnnbench.run.feature_cache import CachedRows
from gnnbench.run.features import feature_rows
from gnnbench.run.movement import Buffers
from gnnbench.run.passes import (
    AggregateTape,
    UpdateTape,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
)
from gnnbench.run.processors import (
    AS_IT_IS,
    StagingBuffers,
    Stream,
    host_threads,
    on_stream,
    open_streams,
)
from gnnbench.run.protocol import Steps, Trainer, run_in_turn, run_on_threads
from gnnbench.run.recorder import Track
from gnnbench.run.timers import HostTimer

#: A round and a slot: which unit.
UnitKey = tuple[int, int]


class Propagation:
    """What a trainer has of the unit that it computes: its rows or their gradients, ``(n, f)``, and
    of its layers so far the blocks and tapes; when it is done, the sum of its seeds' losses and its
    part of the gradients of the round's mean loss."""

    __slots__ = ("aggregates", "bounds", "gradients", "loss_sum", "rows", "updates")
    rows: Tensor

    def __init__(self) -> None:
        self.bounds: list[BoundBlock] = []
        self.aggregates: list[AggregateTape] = []
        self.updates: list[UpdateTape] = []
        self.loss_sum = 0.0
        self.gradients: list[Tensor] = []


class MiniBatchEngine(Engine):
    """Trains by the program of :class:`MiniBatchLowering`, whose operations are methods."""

    lowers: type[MiniBatchLowering] = MiniBatchLowering
    _lowering: MiniBatchLowering

    def prepare(self) -> None:
        """Lower, and put the features where they stay for the whole run."""
        bundle, setting = self._bundle, self._setting
        self._rounding = bundle.rounding
        lowering = self._lowering = self.lowers(bundle, setting, self.replicas.master.stack)
        lowering.deciding = self._recorder.inside_part
        lowering.loader_threads = torch.get_num_threads()
        if self._recorder.measures:
            lowering.time_sampling = partial(_time_sampling, lowering.sampler, self._host.cores)
        if self._evidence is not None:
            lowering.show = self._keep_unit
        lowering.prepare(self.ledger)
        self._stacks = tuple(self.replicas.on(device).stack for device in self._trainers)
        self._torch_devices = tuple(torch.device(d.torch_device) for d in self._trainers)
        opened = open_streams(self._trainers)
        self._streams = {
            slot: opened[device.name]
            for slot, device in enumerate(self._trainers)
            if device.name in opened
        }
        self._staging = StagingBuffers(ROUNDS_UNDER_WAY[lowering.prefetch])
        overlaps = lowering.prefetch > 0 or len(self._trainers) > 1
        self._run = run_in_turn if self._platform.virtual or not overlaps else run_on_threads
        self._cached = CachedRows(lowering.cache)
        self._cached.fill(setting, self._trainers)
        self._place_features()
        self._bodies = self._make_bodies()

    def _make_bodies(self) -> dict[str, Callable[..., None]]:
        return {
            "load": self._load,
            "transfer": self._transfer,
            "put together": self._put_together,
            "admit": self._admit,
            "pull": self._pull,
            "copy rows": self._copy_rows,
            "pick rows": self._pick_rows,
            "aggregate forward": self._aggregate_forward,
            "update forward": self._update_forward,
            "loss": self._take_loss,
            "update backward": self._update_backward,
            "aggregate backward": self._aggregate_backward,
            "gather": self._gather,
            "average": self._average,
        }

    def _place_features(self) -> None:
        """All feature rows on every device that trains, where they are there."""
        if self._lowering.resident:
            everything = np.arange(self._setting.dataset.graph.num_vertices)
            rows = feature_rows(self._setting, everything, sparse=False)
            self._features = [rows.to(device) for device in self._torch_devices]

    def _keep_unit(self, index: int, unit: Unit, seeds: IntArray) -> None:
        """Let a mini-batch be kept or looked at."""
        if self._evidence is not None:
            with self._recorder.excluded():
                self._evidence.add_unit(
                    self._lowering.sampler, self._epoch, index, self._num_rounds, unit, seeds
                )

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """One pass over the training vertices.

        Raises ``StageFailed`` for an error in a stage, and ``DeviceOutOfMemory`` with its stage.
        """
        recorder, lowering, host = self._recorder, self._lowering, self._host.name
        recorder.start_epoch(epoch)
        self._epoch, torch_threads = epoch, torch.get_num_threads()
        self._own_threads = cache(lambda count: lowering.count_threads(count) or torch_threads)
        self._loss_sums: list[float] = []
        #: Rows on the host that go to a device, in parts, and on a device before they are put
        #: together; input rows of units; buffers that accelerators share; and what trainers have.
        self._loaded: dict[UnitKey, tuple[Tensor, ...]] = {}
        self._inputs: dict[UnitKey, Tensor] = {}
        self._buffers = Buffers()
        self._at_work = [Propagation() for _ in self._trainers]
        seeds = lowering.start_epoch(epoch)
        self._num_rounds = len(seeds)
        if self._evidence is not None:
            with recorder.excluded():
                self._evidence.audit_seeds(epoch, seeds)
        take = Reader(recorder, self.ledger, self._bodies, self._enter).take

        def begin(round_: RoundUnderWay) -> None:
            self._begin_update(round_.index, self._num_rounds)
            take(lowering.begin(round_))

        steps = Steps(
            assign=lowering.assign,
            stages={
                "sample": lambda round_: take(lowering.sample(round_)),
                "load": lambda round_: take(lowering.load(round_)),
                "transfer": lambda round_: take(lowering.transfer(round_)),
            },
            begin=begin,
            propagate=lambda round_, slot: take(lowering.propagate(round_, slot)),
            synchronise=lambda round_: take(lowering.synchronise(round_)),
            observe=lowering.observe,
            host=host,
            trainers=tuple(Trainer(d.name, d.torch_device) for d in self._trainers),
        )
        self._run(steps, len(seeds), lowering.prefetch)
        counts = lowering.count_seeds()
        losses = [loss / count for loss, count in zip(self._loss_sums, counts, strict=True)]
        return recorder.end_epoch(sum(self._loss_sums) / sum(counts), losses, sum(counts))

    def _enter(self, section: Section) -> AbstractContextManager[Track]:
        """A section's track: on a stream of its own if it is a CUDA device's, and with so many of
        the host's threads for torch."""
        stream = None
        if section.stream and (streams := self._streams.get(section.rank[1])):
            stream = streams.copy if section.stream == "copy" else streams.compute
        threads = 0 if section.threads is None else self._own_threads(section.threads)
        if stream is None and threads in (0, torch.get_num_threads()):
            return self._recorder.stage(section.round, section.rank)
        return self._enter_other(section, stream, threads)

    @contextmanager
    def _enter_other(
        self, section: Section, stream: Stream | None, threads: int
    ) -> Iterator[Track]:
        timer = None if stream is None else stream.timer
        device = self._trainers[section.rank[1]].name
        with (
            self._recorder.stage(section.round, section.rank, timer) as track,
            AS_IT_IS if stream is None else on_stream(stream, device),
            host_threads(threads),
        ):
            yield track

    # ------------------------------------------------------------------ input rows

    def _load(self, index: int, loads: Sequence[Load], threads: int) -> None:
        """Gather rows in host memory, and pack those that are transferred."""
        for load in loads:
            key, count = (index, load.slot), len(load.ids)
            out = None
            if load.slot in self._streams:
                # Page-locked memory for rows that a CUDA device will copy.
                width = self._setting.dataset.num_features
                out = self._staging.take(load.slot, index, count, width, self._dtype)
            rows = feature_rows(
                self._setting, load.ids, sparse=self._sparse, threads=threads, out=out
            )
            if not load.transferred:
                self._inputs[key] = rows
            elif self._rounding is not None:
                self._loaded[key] = self._rounding.pack(rows)
            else:
                self._loaded[key] = (rows,)

    def _pick_rows(self, key: UnitKey, ids: IntArray) -> None:
        """Input rows out of the features on the device."""
        features = self._features[key[1]]
        self._hand_over(key, features[torch.from_numpy(ids).to(features.device)])

    def _transfer(self, key: UnitKey, move: SlotMovement, apart: bool) -> None:
        where = self._torch_devices[move.slot]
        parts = self._loaded.pop(key)
        crossed = tuple(part.to(where, non_blocking=True) for part in parts)
        if apart:
            self._loaded[key] = crossed
        else:
            self._keep_rows(key, move, crossed[0])

    def _put_together(
        self, key: UnitKey, move: SlotMovement, count: int, places: IndexArray | None
    ) -> None:
        """Input rows out of what crossed and of the device's cache, in a memory of their own."""
        crossed = self._loaded.pop(key)
        rows = crossed[0]
        if self._rounding is not None:
            rows = self._rounding.unpack(crossed, self._dtype)
        if move.direct:
            rows = self._cached.assemble(move.slot, count, places, rows)
        self._keep_rows(key, move, rows)

    def _admit(self, key: UnitKey, admitted: Admission) -> None:
        self._cached.admit(key[1], admitted, self._inputs[key])

    def _keep_rows(self, key: UnitKey, move: SlotMovement, rows: Tensor) -> None:
        """Rows on a device are its unit's, or go to the buffer from which they are shared."""
        if move.direct:
            self._hand_over(key, rows)
            return
        width = self._setting.dataset.num_features
        self._buffers.make_room(move.slot, move.buffer_rows, width, self._dtype, rows.device)
        self._buffers.load(move, rows)

    def _pull(self, move: SlotMovement, pull: Exchange) -> None:
        self._buffers.pull(move, pull)

    def _copy_rows(self, key: UnitKey, move: SlotMovement) -> None:
        self._hand_over(key, self._buffers.assemble(move))

    def _hand_over(self, key: UnitKey, rows: Tensor) -> None:
        """Rows made on the copy stream are used on the other, and not to be freed before."""
        self._inputs[key] = rows
        if streams := self._streams.get(key[1]):
            rows.record_stream(streams.compute.stream)

    # ------------------------------------------------------------------ propagation

    def _bind(self, slot: int, block: Block) -> BoundBlock:
        where = self._torch_devices[slot]
        return BoundBlock(block, self._bundle.kernel, self._degrees, self._dtype, where)

    def _aggregate_forward(self, key: UnitKey, number: int, block: Block) -> None:
        at_work, bound = self._at_work[key[1]], self._bind(key[1], block)
        rows = at_work.rows if number else self._inputs.pop(key)
        tape = run_aggregate(self._stacks[key[1]][number], bound, rows, first=number == 0)
        at_work.bounds.append(bound)
        at_work.aggregates.append(tape)

    def _update_forward(self, key: UnitKey, number: int, block: Block) -> None:
        at_work, layer = self._at_work[key[1]], self._stacks[key[1]][number]
        aggregate = at_work.aggregates[number].output
        needs = needs_aggregate_gradient(layer, first=number == 0)
        tape = run_update(layer, at_work.bounds[number], aggregate, needs_input_gradient=needs)
        at_work.updates.append(tape)
        at_work.rows = tape.output.detach()

    def _take_loss(self, key: UnitKey, ids: IntArray, weight: float) -> None:
        at_work = self._at_work[key[1]]
        self._keep_logits(ids, at_work.rows, key[0])
        labels = self._labels[torch.from_numpy(ids)].to(at_work.rows.device)
        logits = at_work.rows.requires_grad_()
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        torch.autograd.backward(loss, torch.full_like(loss, weight))
        if logits.grad is None:
            raise RuntimeError("the loss has no gradient")
        at_work.rows, at_work.loss_sum = logits.grad, loss.item()

    def _update_backward(self, key: UnitKey, number: int, block: Block) -> None:
        at_work = self._at_work[key[1]]
        below = run_update_backward(at_work.updates.pop(), at_work.rows)
        if below is None:
            self._end(key[1])
        else:
            at_work.rows = below

    def _aggregate_backward(self, key: UnitKey, number: int, block: Block) -> None:
        at_work, layer = self._at_work[key[1]], self._stacks[key[1]][number]
        bound, tape = at_work.bounds.pop(), at_work.aggregates.pop()
        source = run_aggregate_backward(layer, bound, tape, at_work.rows, first=number == 0)
        if number == 0:
            self._end(key[1])
        elif source is None:
            raise RuntimeError("a layer above the first returned no gradient")
        else:
            at_work.rows = source

    def _end(self, slot: int) -> None:
        """The first layer is done: the model's gradients are those of the unit."""
        at_work = self._at_work[slot]
        at_work.bounds.clear()
        at_work.aggregates.clear()
        del at_work.rows
        at_work.gradients = take_gradients(self._stacks[slot])

    # ------------------------------------------------------------------ synchronisation

    def _gather(self, slot: int) -> None:
        at_work = self._at_work[slot]
        at_work.gradients = [part.to("cpu") for part in at_work.gradients]

    def _average(self, index: int, slots: tuple[int, ...]) -> None:
        """The gradients summed in the order of trainers, in the memory of the first's where that is
        the host's. Those of several trainers have been gathered on the host."""
        done = [self._at_work[slot] for slot in slots]
        totals = done[0].gradients
        for other in done[1:]:
            for total, part in zip(totals, other.gradients, strict=True):
                total += part
        self._loss_sums.append(sum([each.loss_sum for each in done]))
        self._step([total.cpu() for total in totals], index)
        for each in done:
            each.gradients = []


def _time_sampling(
    sampler: MiniBatchSampler, cores: int, rounds: Sequence[IntArray], size: int
) -> tuple[tuple[int, float], ...]:
    """T_samp of ``size`` seeds with 1, 2, 4 .. threads and with every core of this host, the
    median of five (HyScale-GNN §V, which measures sampling). As in training, each time other
    vertices are drawn for, whose neighbours are not in a cache from the time before."""
    timer, timed = HostTimer(), []
    for threads in sorted({*(2**k for k in range(cores.bit_length())), cores}):
        seconds = []
        for draw in range(5):
            seeds = rounds[draw % len(rounds)][:size]
            began = timer.read()
            sampler.sample(seeds, 0, threads)
            seconds.append(timer.since(began)[1])
        timed.append((threads, median(seconds)))
    return tuple(timed)
