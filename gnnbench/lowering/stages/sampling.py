"""Sampling: one mini-batch for each share of a round's seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gnnbench.lowering.frame import RoundFrame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.rounds import SAMPLE, RoundUnderWay
from gnnbench.program import (
    Access,
    Account,
    Buffer,
    Counts,
    Item,
    Place,
    Section,
    Sizes,
    Step,
    Take,
    Times,
)
from gnnbench.records import BatchProfile, CopyWork, IntArray, SampleWork, Share, Unit

#: Seconds that sampling the given number of seeds of some rounds took, by number of threads.
TimeSampling = Callable[[Sequence[IntArray], int], tuple[tuple[int, float], ...]]
#: Receives the index of a round, one of its mini-batches, and the seeds of the mini-batch.
Show = Callable[[int, Unit, IntArray], None]


class Sampling:
    """The sampling stage.

    A reader of the program may set ``time_sampling``, where sampling is measured, and ``show``,
    which receives every mini-batch.
    """

    time_sampling: TimeSampling = staticmethod(lambda rounds, size: ())
    show: Show = staticmethod(lambda index, unit, seeds: None)

    def __init__(self, frame: RoundFrame) -> None:
        self._frame = frame

    def profile(self) -> list[tuple[BatchProfile, IntArray]]:
        """Return profiles of mini-batches of 1/16 to 1 round, each with its V^0.

        The placement's design phase reads them.
        """
        draws = self._frame.draws
        rounds, threads = draws.rounds(0), self._frame.setting.workload.threads
        seeds = rounds[0]
        profiles = []
        for size in sorted({max(1, len(seeds) // 2**k) for k in range(5)}):
            unit = Unit(0, draws.sample(seeds[:size], 0, threads))
            timed = self.time_sampling(rounds, size)
            profile = BatchProfile(size, unit.vertices, unit.edges, timed)
            profiles.append((profile, unit.input_ids))
        return profiles

    def sample(self, round_: RoundUnderWay, epoch: int) -> Iterator[Item]:
        """Yield the steps that draw the mini-batches of a round.

        The host draws a mini-batch, or the accelerator that trains on it; the neighbours are equal.
        Sampling begins once the round is let in, when an earlier one has been synchronised.
        """
        frame, index, seconds = self._frame, round_.index, round_.seconds
        let_in = frame.over(index - frame.pipeline.under_way)
        yield Section(index, (SAMPLE, 0), round_.threads.sample)
        for share, seeds in round_.shares.values():
            host = frame.hosts[share.slot]
            device = frame.trainers[share.slot] if share.samples else host
            there: tuple[Buffer, ...] = (round_.buffers.sampled,)
            if frame.preparers:
                round_.buffers.drawn[share.slot] = Buffer("mini-batch of a trainer")
                there = (round_.buffers.sampled, round_.buffers.drawn[share.slot])
            drawn = (Buffer("mini-batch on the device"),) if share.samples else there
            held: tuple[str, ...] = (frame.host_thread("sample", host, index, share.slot),)
            if share.samples:
                held = compute_resource(device, host, "sample")
            times = Times()
            yield Step(
                None,
                "sample",
                "sample",
                Place(device.name, held),
                SampleWork(),
                round=index,
                index_work=partial(self._draw, round_, epoch, share, seeds),
                times=times,
                access=Access(let_in, adds=drawn),
            )
            yield Account()
            self.show(index, round_.units[-1], seeds)
            if share.samples:
                seconds.sample_accelerator = max(seconds.sample_accelerator, times.total)
                yield from self._send_input_ids(round_, round_.units[-1], drawn, there)
            else:
                on_host = seconds.sample_host
                on_host[host.name] = on_host.get(host.name, 0.0) + times.total

    def _draw(self, round_: RoundUnderWay, epoch: int, share: Share, seeds: IntArray) -> Sizes:
        """Draw one mini-batch, and return the sizes of its step."""
        frame, threads = self._frame, round_.threads.sample
        blocks = frame.draws.sample(seeds, epoch, frame.count_threads(threads))
        unit = Unit(share.slot, blocks)
        round_.units.append(unit)
        edges = sum(unit.edges)
        planned = 0 if share.samples else threads or (1 if frame.preparers else 0)
        # Each trainer's loader starts its workers when the epoch begins.
        first = round_.index == 0 and len(round_.units) == 1
        starts = 0 if frame.loader.persistent or not first else frame.loader.workers
        work = SampleWork(edges, len(seeds), planned, len(unit.blocks), starts)
        return Sizes(work, Counts((), edges, sum(unit.vertices)))

    def _send_input_ids(
        self,
        round_: RoundUnderWay,
        unit: Unit,
        drawn: tuple[Buffer, ...],
        there: tuple[Buffer, ...],
    ) -> Iterator[Item]:
        """Send V^0 of a mini-batch that an accelerator drew to the host, which loads the rows."""
        frame = self._frame
        device, size = frame.trainers[unit.slot], unit.input_ids.nbytes
        taken = Take(device.name, {round_.topology: frame.count_topology(unit.blocks)})
        round_.held[unit.slot] = [taken]
        yield taken
        work = CopyWork(rows=len(unit.input_ids), bytes=size)
        label, host = "input vertices to the host", frame.hosts[unit.slot]
        step = frame.cross(device, host, round_.index, label, work, "device_to_host")
        place = step.place._replace(device=unit.slot)
        yield step._replace(stage="sample", place=place, access=Access(drawn, adds=there))
