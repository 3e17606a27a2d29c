"""What the steps of ``lowering/mini_batch.py`` compute: rows of features, models and gradients.

Stages run on threads of their own where every device is of this machine and there is something to
overlap: prefetching, or several trainers. Devices that are described only take turns on this
thread, so that two runs are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from statistics import median

import torch
from torch import Tensor

from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.lowering.rounds import RoundUnderWay
from gnnbench.lowering.units import needs_aggregate_gradient
from gnnbench.models import BoundBlock, list_scales
from gnnbench.parts import MiniBatchSampler
from gnnbench.program import Item, Section
from gnnbench.records import Block, EpochTrace, IntArray, Unit
from gnnbench.run.execute import Bodies
from gnnbench.run.feature_cache import CachedRows
from gnnbench.run.input_movement import InputMovement, UnitKey
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


class MiniBatchEngine(InputMovement):
    """Trains by the program of :class:`MiniBatchLowering`, whose operations are methods."""

    lowers: type[MiniBatchLowering] = MiniBatchLowering
    #: Parameters whose gradients are not averaged, by their places.
    _apart: tuple[int, ...] = ()

    def prepare(self) -> None:
        """Lower, and put the features where they stay for the whole run."""
        bundle, setting = self._bundle, self._setting
        self._rounding = bundle.rounding
        lowering = self._lowering = self.lowers(bundle, setting, self.replicas.master.stack)
        lowering.deciding = self._recorder.inside_part
        lowering.loader_threads = torch.get_num_threads()
        if self._recorder.measures:
            lowering.time_sampling = self._time_sampling
        if self._evidence is not None:
            lowering.show = self._keep_unit
        lowering.prepare(self.ledger)
        self._scales = list_scales(lowering.sampler, setting)
        self._stacks = {slot: self.replicas.on(self._trainers[slot]).stack for slot in self._here}
        opened = open_streams(tuple(self._trainers[slot] for slot in self._here))
        self._streams = {
            slot: opened[device.name]
            for slot, device in enumerate(self._trainers)
            if device.name in opened
        }
        self._staging = StagingBuffers(lowering.pipeline.under_way)
        overlaps = lowering.pipeline.under_way > 1 or len(self._trainers) > 1
        in_turn = self._platform.virtual or not overlaps or self._rank is not None
        self._run = run_in_turn if in_turn else run_on_threads
        self._cached = CachedRows(lowering.cache)
        self._cached.fill(setting, self._trainers, self._here)
        self._place_features()
        self._use(self._make_bodies())

    def _make_bodies(self) -> Bodies:
        return {
            **self._list_transfers(),
            "aggregate forward": self._aggregate_forward,
            "update forward": self._update_forward,
            "loss": self._take_loss,
            "update backward": self._update_backward,
            "aggregate backward": self._aggregate_backward,
            "gather": self._gather,
            "average": self._average,
        }

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
        self._start_epoch(epoch)
        torch_threads = torch.get_num_threads()
        self._own_threads = cache(lambda count: lowering.count_threads(count) or torch_threads)
        self._loss_sums: list[float] = []
        self._loaded, self._inputs = {}, {}
        self._buffers = Buffers()
        self._at_work = [Propagation() for _ in self._trainers]
        seeds = lowering.start_epoch(epoch)
        self._num_rounds = len(seeds)
        if self._evidence is not None:
            with recorder.excluded():
                self._evidence.audit_seeds(epoch, seeds)
        take = self._open_rounds()

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
            observe=self._observe,
            host=host,
            trainers=tuple(Trainer(d.name, d.torch_device) for d in self._trainers),
        )
        with self._exchanging(), self._ahead.scattered():
            self._run(steps, len(seeds), lowering.pipeline)
        counts = lowering.count_seeds()
        losses = [loss / count for loss, count in zip(self._loss_sums, counts, strict=True)]
        return self._end_epoch(sum(self._loss_sums) / sum(counts), losses, sum(counts))

    def _open_rounds(self) -> Callable[[Iterable[Item]], None]:
        """What takes the items of an epoch's rounds, some after the other."""
        rank, read = self._rank, self._open_reader(self._enter).take
        return read if rank is None else lambda items: read(rank.take(items))

    def _observe(self, round_: RoundUnderWay) -> None:
        """Tell the placement what a round's stages took: in all processes, so that all split the
        next rounds alike."""
        if self._rank is not None and self._recorder.measures:
            with self._recorder.excluded():
                round_.set_times(self._rank.agree(round_.list_times()))
        self._lowering.observe(round_)

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

    # ------------------------------------------------------------------ propagation

    def _bind(self, slot: int, number: int, block: Block) -> BoundBlock:
        return BoundBlock(
            block,
            self._bundle.kernel,
            self._degrees,
            self._dtype,
            self._device(slot),
            scales=self._scales[number] if self._scales else None,
        )

    def _aggregate_forward(self, key: UnitKey, number: int, block: Block) -> None:
        at_work, bound = self._at_work[key[1]], self._bind(key[1], number, block)
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
        the host's, and over processes. Those of several trainers have been gathered on the host."""
        done = [self._at_work[slot] for slot in slots if self._has(slot)]
        totals = self._reduce(self._add_up(done), self._apart)
        self._loss_sums.append(sum([each.loss_sum for each in done]))
        self._step([total.cpu() for total in totals], index)
        for each in done:
            each.gradients = []

    def _add_up(self, done: Sequence[Propagation]) -> list[Tensor]:
        """The gradients of what trainers here have done of a round, which may be nothing."""
        if not done:
            return [torch.zeros_like(each) for each in self.replicas.parameters]
        totals = done[0].gradients
        for other in done[1:]:
            for total, part in zip(totals, other.gradients, strict=True):
                total += part
        return totals

    def _time_sampling(
        self, rounds: Sequence[IntArray], size: int
    ) -> tuple[tuple[int, float], ...]:
        """How long sampling takes, as the first process has measured it."""
        if self._rank is None:
            return _time_sampling(self._lowering.sampler, self._host.cores, rounds, size)
        timed: tuple[tuple[int, float], ...] = ()
        if not self._rank.processes.rank:
            timed = _time_sampling(self._lowering.sampler, self._host.cores, rounds, size)
        return self._rank.processes.share(timed)


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
