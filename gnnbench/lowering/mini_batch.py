"""Mini-batch training: all layers of a unit, then the next unit, round after round.

A round goes through HyScale-GNN's four stages (``rounds``): sampling, feature loading, data
transfer, propagation; then the synchroniser averages gradients weighted by seeds, so that any split
of a round over trainers equals one large batch on one device. Mini-batches are drawn by whoever
takes the steps, as their sizes follow from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gnnbench.lowering.averaging import AveragedGradients
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.memory import allocate_host_graph, allocate_model, compute_resource
from gnnbench.lowering.rounds import SAMPLE, RoundUnderWay, open_pipeline, take_turns
from gnnbench.lowering.unit_passes import Buffers
from gnnbench.models import Layer
from gnnbench.parts import (
    Bundle,
    Handed,
    MiniBatchSampler,
    SeedPlacement,
    SeedSession,
    Session,
    Setting,
)
from gnnbench.program import Buffer, Item, Ledger, Section, Step, Take
from gnnbench.records import (
    BatchProfile,
    IntArray,
    PartKind,
    Share,
    StageTimes,
    Unit,
    Work,
)

#: Seconds that sampling so many seeds of some rounds took, by numbers of threads.
TimeSampling = Callable[[Sequence[IntArray], int], tuple[tuple[int, float], ...]]
#: Is shown every mini-batch of a round, and its seeds.
Show = Callable[[int, Unit, IntArray], None]


class MiniBatchLowering(AveragedGradients):
    """Rounds of mini-batches; see the module's docstring.

    ``run_epoch`` has an epoch in the order in which one process takes it. Where several threads do,
    each asks for the steps of its stage of a round, in the order of rounds: ``assign`` lets a round
    in, and ``sample``, ``load``, ``transfer``, ``begin``, ``propagate`` for every trainer and
    ``synchronise`` have its steps; then the placement is told by ``observe`` what they took.
    Whoever takes them may set ``time_sampling``, where that is measured, and ``show``.
    """

    time_sampling: TimeSampling = staticmethod(lambda rounds, size: ())
    show: Show = staticmethod(lambda index, unit, seeds: None)

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        if not isinstance(bundle.sampler, MiniBatchSampler):
            raise TypeError("a mini-batch lowering takes mini-batch samplers")
        if not isinstance(bundle.placement, SeedPlacement):
            raise TypeError("a mini-batch lowering takes placements that share out seeds")
        self.sampler, self.placement = bundle.sampler, bundle.placement
        self._averaged_bytes = self._stepped_bytes = setting.parameter_bytes

    def prepare(self, ledger: Ledger) -> None:
        """Place what stays for the whole run, and let the placement plan its first split."""
        setting, graph = self.setting, self.setting.dataset.graph
        if self.platform.other_hosts:
            sockets = self.placement.sockets(setting, self._owner)
            self.homes = Homes.at_sockets(self.platform, sockets)
        packed = graph.num_vertices * self._packed_bytes if self._keeps_packed else None
        allocate_host_graph(ledger, setting, self.homes, packed, replicated=self._replicated)
        for device in self.trainers:
            allocate_model(ledger, setting, device)
        for device in self.placement.samplers(self.platform):
            size = graph.indptr.nbytes + graph.indices.nbytes
            ledger.allocate(device.name, "graph topology", size)
        if self.resident:
            self._place_features(ledger)
        else:
            self._traffic = self._open_traffic(self._owner)
        sampled = self._profile()
        self._fill_cache(ledger, sampled[-1][0])
        self._shares = self.placement.open(
            replace(setting, layers=tuple(layer.shape for layer in self.layers)),
            [self._count_fetched(profile, ids) for profile, ids in sampled],
            self.prefetch,
        )
        self.preparers = self._count_preparers()
        self.pipeline = open_pipeline(self.prefetch, self.preparers)

    def _count_preparers(self) -> int:
        """How many threads of its host prepare mini-batches for a trainer, a whole one each.

        None do where the host trains itself, or where the placement divides the host's threads
        between tasks: then all of them, or those of a task, share each mini-batch.
        """
        divided = type(self._shares).host_threads is not SeedSession.host_threads
        if divided or len(self.accelerator_slots) < len(self.trainers):
            return 0
        cores = min(host.cores // self.hosts.count(host) for host in self.hosts)
        return self.sampler.preparers(max(1, cores))

    def sessions(self) -> Mapping[PartKind, Session]:
        opened: dict[PartKind, Session] = {"placement": self._shares}
        if not self.resident:
            opened["communication"] = self._traffic
        if self.cache.session is not None:
            opened["memory"] = self.cache.session
        return opened

    def _profile(self) -> list[tuple[BatchProfile, IntArray]]:
        """The design phase: mini-batches of a sixteenth of a round up to a whole one, each with its
        V^0."""
        rounds = self.sampler.rounds(0)
        seeds = rounds[0]
        profiles = []
        for size in sorted({max(1, len(seeds) // 2**k) for k in range(5)}):
            unit = Unit(0, self.sampler.sample(seeds[:size], 0, self.setting.workload.threads))
            timed = self.time_sampling(rounds, size)
            profile = BatchProfile(size, unit.vertices, unit.edges, timed)
            profiles.append((profile, unit.input_ids))
        return profiles

    # ------------------------------------------------------------------ the epoch

    def start_epoch(self, epoch: int) -> Sequence[IntArray]:
        """The seeds of every round of an epoch."""
        self._epoch = epoch
        #: By round, the buffer that is written when every trainer has the new model.
        self._ends: list[Buffer] = []
        self._start_rows()
        with self.deciding():
            self._seeds = self.sampler.rounds(epoch)
        return self._seeds

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """One pass over the training vertices, every stage taking its turn."""
        stages = {
            "sample": self.sample,
            "load": self.load,
            "transfer": self.transfer,
            "begin": self.begin,
            "synchronize": self.synchronise,
        }
        rounds: dict[int, RoundUnderWay] = {}
        num_rounds = len(self.start_epoch(epoch))
        for turn, index, slot in take_turns(num_rounds, self.pipeline, len(self.trainers)):
            if turn == "assign":
                rounds[index] = self.assign(index)
            elif turn == "propagate":
                yield from self.propagate(rounds[index], slot)
            elif turn == "observe":
                self.observe(rounds.pop(index))
            else:
                yield from stages[turn](rounds[index])

    def count_seeds(self) -> tuple[int, ...]:
        return tuple([len(seeds) for seeds in self._seeds])

    def notes(self) -> tuple[str, ...]:
        """How well a cache served, and what stays on disk."""
        names = {slot: device.name for slot, device in enumerate(self.trainers)}
        return (*super().notes(), *self._describe_preparers(), *self.cache.notes(names))

    def _describe_preparers(self) -> tuple[str, ...]:
        if self.preparers or not self.sampler.preparers(1):
            return ()
        return (
            f"sampler {self.sampler.name!r} has threads prepare a whole mini-batch each where "
            f"accelerators alone train and nothing else divides the host's threads; here all "
            f"threads share each mini-batch",
        )

    def _over(self, index: int) -> tuple[Buffer, ...]:
        return (self._ends[index],) if index >= 0 else ()

    def assign(self, index: int) -> RoundUnderWay:
        """A round and its split, from what the placement has observed so far."""
        seeds = self._seeds[index]
        with self.deciding():
            handed = self._shares.share_out(seeds)
            threads = self._shares.host_threads()
        self._check_shares(handed, seeds)
        shares = {share.slot: (share, part) for share, part in handed if share.seeds}
        self._ends.append(Buffer("model of every trainer"))
        return RoundUnderWay(index, len(seeds), shares, threads, self._ends[-1])

    def _check_shares(self, handed: Handed, seeds: IntArray) -> None:
        if len(handed) == 1 and handed[0][1] is seeds and handed[0][0].seeds == len(seeds):
            return
        fits = all(share.seeds == len(part) for share, part in handed)
        in_order = b"".join([part.tobytes() for _, part in handed]) == seeds.tobytes()
        if fits and in_order:
            return
        name = self.placement.name
        less = next((share for share, _ in handed if share.seeds < 0), None)
        if less is not None:
            raise ValueError(
                f"placement {name!r} gave slot {less.slot} {less.seeds} seeds; a share has none or "
                f"more"
            )
        given = np.concatenate([seeds[:0], *(part for _, part in handed)])
        if not fits or not np.array_equal(np.sort(given), np.sort(seeds)):
            count = sum(share.seeds for share, _ in handed)
            raise ValueError(
                f"placement {name!r} gave out {count} of {len(seeds)} seeds; each must be in one "
                f"share, and a share must count its own"
            )

    def observe(self, round_: RoundUnderWay) -> None:
        """Tell the placement what the stages of a round took."""
        # A trainer that got no seeds was done at once; one that does not exist has no time.
        accelerators, train_s = self.accelerator_slots, round_.train_s
        on_host = [seconds for slot, seconds in train_s.items() if slot not in accelerators]
        elsewhere = [seconds for slot, seconds in train_s.items() if slot in accelerators]
        samplers = self.placement.samplers(self.platform)
        times = StageTimes(
            sample_cpu=max(round_.sample_host_s.values(), default=0.0),
            sample_accelerator=round_.sample_accelerator_s if samplers else None,
            load=round_.load_s,
            transfer=round_.transfer_s,
            train_cpu=sum(on_host, 0.0) if len(self.trainers) > len(accelerators) else None,
            train_accelerator=max(elsewhere, default=0.0) if accelerators else None,
        )
        with self.deciding():
            self._shares.observe(times)

    # ------------------------------------------------------------------ sampling

    def sample(self, round_: RoundUnderWay) -> Iterator[Item]:
        """One mini-batch for each share, on the host or on the accelerator that trains on it.

        Whoever draws, the neighbours are the same. After a round is let in, which is when the one
        that many before it has been synchronised.
        """
        index, seconds = round_.index, round_.sample_host_s
        let_in = self._over(index - self.pipeline.under_way)
        yield Section(index, (SAMPLE, 0), round_.threads.sample)
        for share, seeds in round_.shares.values():
            host = self.hosts[share.slot]
            device = self.trainers[share.slot] if share.samples else host
            there: Buffers = (round_.sampled,)
            if self.preparers:
                round_.drawn[share.slot] = Buffer("mini-batch of a trainer")
                there = (round_.sampled, round_.drawn[share.slot])
            drawn = (Buffer("mini-batch on the device"),) if share.samples else there
            step = Step(
                "",
                (),
                "sample",
                "sample",
                device.name,
                compute_resource(device, host, "sample")
                if share.samples
                else (self._host_thread("sample", host, index, share.slot),),
                Work("sample"),
                round=index,
                reads=let_in,
                adds=drawn,
                index_work=partial(self._draw, round_, share, seeds),
            )
            yield step
            self.show(index, round_.units[-1], seeds)
            if share.samples:
                round_.sample_accelerator_s = max(round_.sample_accelerator_s, step.seconds)
                yield from self._send_input_ids(round_, round_.units[-1], drawn, there)
            else:
                seconds[host.name] = seconds.get(host.name, 0.0) + step.seconds

    def _draw(self, round_: RoundUnderWay, share: Share, seeds: IntArray, step: Step) -> None:
        threads = round_.threads.sample
        unit = Unit(
            share.slot, self.sampler.sample(seeds, self._epoch, self.count_threads(threads))
        )
        round_.units.append(unit)
        step.edges, step.vertices = sum(unit.edges), sum(unit.vertices)
        planned = 0 if share.samples else threads or (1 if self.preparers else 0)
        # Each trainer's loader starts its workers when the epoch begins.
        first = round_.index == 0 and len(round_.units) == 1
        starts = (self.preparers or planned // len(self.trainers)) if first else 0
        step.work = Work(
            "sample",
            step.edges,
            rows=len(seeds),
            threads=planned,
            layers=len(unit.blocks),
            starts=starts,
        )

    def _send_input_ids(
        self, round_: RoundUnderWay, unit: Unit, drawn: Buffers, there: Buffers
    ) -> Iterator[Item]:
        """What an accelerator has drawn stays there; the feature loader needs V^0 on the host."""
        device, size = self.trainers[unit.slot], unit.input_ids.nbytes
        taken = Take(device.name, {round_.topology: self.count_topology(unit.blocks)})
        round_.held[unit.slot] = [taken]
        yield taken
        work = Work("copy", rows=len(unit.input_ids), bytes=size)
        label, host = "input vertices to the host", self.hosts[unit.slot]
        step = self._cross(device, host, round_.index, label, work, "device_to_host")
        step.device = unit.slot
        step.stage, step.reads, step.adds = "sample", drawn, there
        yield step

    def begin(self, round_: RoundUnderWay) -> Iterator[Item]:
        """What is done when a round's model is there and before its trainers begin: nothing."""
        return iter(())
