"""The bodies of ``lowering/mini_batch.py``'s steps: rows of features, models and gradients.

Stages run on separate threads if every device is of this machine and there is something to overlap:
prefetching, or several trainers. Described devices take turns on this thread, so that two runs are
equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from operator import itemgetter
from statistics import median

import torch
from torch import Tensor

from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.lowering.rounds import RoundUnderWay
from gnnbench.lowering.stages.averaging import AverageGradients, GatherGradients
from gnnbench.models import BoundBlock, list_scales
from gnnbench.parts import MiniBatchSampler
from gnnbench.program import Item, Section
from gnnbench.program.reader import Bodies
from gnnbench.program.recorder import Track
from gnnbench.program.timers import HostTimer
from gnnbench.records import Block, EpochTrace, IntArray, Unit
from gnnbench.run.base import Engine
from gnnbench.run.columns import ColumnProducts
from gnnbench.run.evidence import Evidence
from gnnbench.run.input_rows import InputRows
from gnnbench.run.processors import (
    AS_IT_IS,
    Stream,
    host_threads,
    on_stream,
    open_streams,
)
from gnnbench.run.propagation import Passes, Propagation
from gnnbench.run.protocol import Steps, Trainer, run_in_turn, run_on_threads

#: The bytes of mini-batches that are kept until the end of an epoch; the rest is examined at once.
MOST_UNEXAMINED_BYTES = 1 << 29


class MiniBatchEngine(Engine):
    """The engine for programs of :class:`MiniBatchLowering`; its methods are the bodies."""

    _lowering: MiniBatchLowering

    def prepare(self) -> None:
        """Lower, and place the features that stay for the whole run."""
        bundle, setting = self._bundle, self._setting
        stack = self.replicas.master.stack
        lowering = self._lowering = MiniBatchLowering(bundle, setting, stack)
        lowering.frame.deciding = self._recorder.inside_part
        lowering.loading.loader_threads = torch.get_num_threads()
        if self._recorder.measures:
            lowering.sampling.time_sampling = self._time_sampling
        if self._evidence is not None:
            lowering.sampling.show = partial(self._keep_unit, self._evidence)
        lowering.prepare(self.ledger)
        opened = open_streams(tuple(self._trainers[slot] for slot in self._here))
        self._streams = {
            slot: opened[device.name]
            for slot, device in enumerate(self._trainers)
            if device.name in opened
        }
        pipeline = lowering.frame.pipeline
        overlaps = pipeline.under_way > 1 or len(self._trainers) > 1
        in_turn = self._platform.virtual or not overlaps or self._rank is not None
        self._run = run_in_turn if in_turn else run_on_threads
        self._rows = InputRows(
            self._site, lowering, self._streams, self._ahead, sparse=self._sparse
        )
        self._scales = list_scales(lowering.frame.sampler, setting)
        self._passes = Passes(self._site, self._bind, self.replicas, self._rows, self._keep_logits)
        self._columns: ColumnProducts | None = None
        #: The positions of parameters whose gradients are not averaged.
        self._apart: tuple[int, ...] = ()
        bodies: Bodies = {
            **self._rows.list_bodies(),
            **self._passes.list_bodies(),
            GatherGradients: self._gather,
            AverageGradients: self._average,
        }
        if lowering.columns is not None:
            self._columns = ColumnProducts(
                self._site, lowering.columns.ranges, self.replicas, self._passes
            )
            self._apart = (self._columns.place_of_weight,)
            bodies = {**bodies, **self._columns.list_bodies()}
        self._use(bodies)

    def _bind(self, slot: int, number: int, block: Block) -> BoundBlock:
        """Return a block as a layer reads it on a device."""
        return BoundBlock(
            block,
            self._bundle.kernel,
            self._degrees,
            self._dtype,
            self._device(slot),
            scales=self._scales[number] if self._scales else None,
        )

    def _keep_unit(self, evidence: Evidence, index: int, unit: Unit, seeds: IntArray) -> None:
        """Let the evidence keep and examine a mini-batch.

        If stages run on threads, most mini-batches are examined when all rounds are over: before
        that, examining takes time from the other stages.
        """
        sampler, epoch, num_rounds = self._lowering.frame.sampler, self._epoch, self._num_rounds
        examine = partial(evidence.examine_unit, sampler, epoch, index, num_rounds, unit, seeds)
        with self._recorder.excluded():
            evidence.add_unit(epoch, index, num_rounds, unit)
            if self._run is run_on_threads and self._unexamined_bytes < MOST_UNEXAMINED_BYTES:
                self._unexamined_bytes += sum(block.array_bytes for block in unit.blocks)
                self._unexamined.append((index, unit.slot, examine))
            else:
                examine()

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Run one pass over the training vertices.

        Raises ``StageFailedError`` for an error in a stage, and ``DeviceOutOfMemoryError`` with its
        stage.
        """
        recorder, lowering, host = self._recorder, self._lowering, self._host.name
        self._start_epoch(epoch)
        torch_threads = torch.get_num_threads()
        self._own_threads = cache(
            lambda count: lowering.frame.count_threads(count) or torch_threads
        )
        self._loss_sums: list[float] = []
        #: The examinations that wait, by rounds and devices, and the bytes of their mini-batches.
        self._unexamined: list[tuple[int, int, Callable[[], None]]] = []
        self._unexamined_bytes = 0
        self._rows.start_epoch()
        self._passes.start_epoch()
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
            self._run(steps, len(seeds), lowering.frame.pipeline)
        with recorder.excluded():
            for _, _, examine in sorted(self._unexamined, key=itemgetter(0, 1)):
                examine()
        counts = lowering.count_seeds()
        losses = [loss / count for loss, count in zip(self._loss_sums, counts, strict=True)]
        return self._end_epoch(sum(self._loss_sums) / sum(counts), losses, sum(counts))

    def _open_rounds(self) -> Callable[[Iterable[Item]], None]:
        """Return the function that takes the items of an epoch's rounds, some after the other."""
        rank, read = self._rank, self._open_reader(self._enter).take
        return read if rank is None else lambda items: read(rank.take(items))

    def _observe(self, round_: RoundUnderWay) -> None:
        """Tell the placement a round's stage times.

        All processes use equal times, so that all split the next rounds alike.
        """
        if self._rank is not None and self._recorder.measures:
            with self._recorder.excluded():
                round_.seconds.set_all(self._rank.agree(round_.seconds.list_all()))
        self._lowering.observe(round_)

    def _enter(self, section: Section) -> AbstractContextManager[Track]:
        """Return a section's track, with the section's host threads for torch.

        On a CUDA device the section runs on its own stream.
        """
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

    # ------------------------------------------------------------------ synchronisation

    def _gather(self, operation: GatherGradients) -> None:
        at_work = self._passes.at_work[operation.slot]
        at_work.gradients = [part.to("cpu") for part in at_work.gradients]

    def _average(self, operation: AverageGradients) -> None:
        """Average the gradients of a round, and step.

        They are summed in the order of trainers and over processes. The sum is in the memory of the
        first trainer's gradients if that is the host's. Gradients of several trainers have been
        gathered on the host.
        """
        done = [self._passes.at_work[slot] for slot in operation.slots if self._has(slot)]
        totals = self._reduce(self._add_up(done), self._apart)
        self._loss_sums.append(sum([each.loss_sum for each in done]))
        self._step([total.cpu() for total in totals], operation.round)
        for each in done:
            each.gradients = []

    def _add_up(self, done: Sequence[Propagation]) -> list[Tensor]:
        """Return the sum of the trainers' gradients here, zeros if none took part in the round."""
        if done:
            totals = done[0].gradients
        else:
            totals = [torch.zeros_like(each) for each in self.replicas.parameters]
        for other in done[1:]:
            for total, part in zip(totals, other.gradients, strict=True):
                total += part
        return totals if self._columns is None else self._columns.replace_own(totals)

    def _time_sampling(
        self, rounds: Sequence[IntArray], size: int
    ) -> tuple[tuple[int, float], ...]:
        """Return the time of sampling as measured by the first process."""
        if self._rank is None:
            return _time_sampling(self._lowering.frame.sampler, self._host.cores, rounds, size)
        timed: tuple[tuple[int, float], ...] = ()
        if not self._rank.processes.rank:
            timed = _time_sampling(self._lowering.frame.sampler, self._host.cores, rounds, size)
        return self._rank.processes.share(timed)


def _time_sampling(
    sampler: MiniBatchSampler, cores: int, rounds: Sequence[IntArray], size: int
) -> tuple[tuple[int, float], ...]:
    """Return T_samp of ``size`` seeds with 1, 2, 4 .. threads and with every core of this host.

    It is the median of five times (HyScale-GNN §V, which measures sampling). Each time draws for
    other vertices, as training does, so that their neighbours are not in a cache already.
    """
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
