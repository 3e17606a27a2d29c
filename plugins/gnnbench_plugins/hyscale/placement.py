"""Hybrid placement: accelerator trainers and a CPU trainer, rebalanced between rounds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import ClassVar, Literal

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import (
    MINI_BATCHES,
    Bundle,
    Handed,
    Placement,
    SeedSession,
    Setting,
    divide_evenly,
    hand_out,
    option,
)
from gnnbench.records import BatchProfile, HostThreads, IntArray, Mode, Share, StageTimes
from gnnbench.units import format_si
from gnnbench_plugins.hyscale.drm import Assignment, Balancer, decide
from gnnbench_plugins.hyscale.performance import (
    Prediction,
    Split,
    add_described,
    note_round,
    plan_split,
    predict,
    sampling_seconds,
    sizes_of,
)


@dataclass(frozen=True)
class HyScalePlacement(Placement):
    """HyScale-GNN §III-B and §IV-A: the first split from the performance model, then DRM.

    The CPU trainer is the last slot. A round of fewer seeds than a full one (the last of an epoch)
    is split in the same proportion.
    """

    name: ClassVar[str] = "hyscale"
    summary: ClassVar[str] = "accelerators and the CPU train together; DRM moves work each round"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    divides_threads: ClassVar[bool] = True

    drm: bool = option(True, "rebalance between rounds")
    rule: Literal["algorithm1", "proportional"] = option(
        "algorithm1",
        "how DRM rebalances: the paper's Algorithm 1, or by the ratio of stage times",
        tried=("algorithm1", "proportional"),
    )
    guard: Literal["model", "none"] = option(
        "model",
        "try half of a move that the performance model expects to lengthen an epoch, or make every "
        "move, as Algorithm 1 is printed",
    )
    own_threads: bool = option(
        False, "give each host task threads of its own where stages follow each other, too"
    )
    cpu_trainer: bool = option(
        True, "let the CPU train beside the accelerators", tried=(True, False)
    )
    accelerators: int = option(0, "how many accelerators to use; 0 = all", tried=(0, 1, 2))
    accelerator_sampling: bool = option(
        False,
        "let accelerators draw their own mini-batches, as many as pays",
        tried=(False, True),
    )
    design: bool = option(
        True, "where times are measured, take rates from a few rounds before the run"
    )
    skew: float = option(1.0, "multiply the planned CPU share, to study how DRM recovers")

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not (math.isfinite(self.skew) and self.skew >= 0):
            return f"placement.skew is {self.skew}; a share is multiplied by a number from 0 up."
        return self._refuse_sampling(bundle, setting) if self.accelerator_sampling else None

    def _refuse_sampling(self, bundle: Bundle, setting: Setting) -> str | None:
        graph, platform = setting.dataset.graph, setting.platform
        if not self.samplers(platform):
            return (
                f"placement.accelerator_sampling is on, and platform {platform.name} has no "
                f"accelerator to sample on; switch it off."
            )
        topology_bytes = graph.indptr.nbytes + graph.indices.nbytes
        for device in self.samplers(platform):
            if not device.rates.sampled_edges_per_s:
                return (
                    f"placement.accelerator_sampling is on, and platform {platform.name} does not "
                    f"say how fast {device.name} samples; add sampling to its [[accelerators]] "
                    f"table, or switch it off."
                )
            if topology_bytes > bundle.memory.capacity_bytes(device):
                return (
                    f"placement.accelerator_sampling needs the graph's topology on {device.name}, "
                    f"{topology_bytes:,} bytes of {bundle.memory.capacity_bytes(device):,}; "
                    f"switch it off."
                )
        return None

    def wants_design_phase(self) -> bool:
        return self.design

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        chosen = platform.accelerators[: self.accelerators or None]
        if not chosen:
            return (platform.host,)
        return (*chosen, platform.host) if self.cpu_trainer else chosen

    def samplers(self, platform: Platform) -> tuple[Device, ...]:
        if not self.accelerator_sampling:
            return ()
        return platform.accelerators[: self.accelerators or None]

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> HyScaleSession:
        return HyScaleSession(self, setting, profiles, prefetch)


class HyScaleSession(SeedSession):
    """The splits of a run's rounds, moved by DRM according to the rounds' times.

    Several rounds are in flight at once, each under the split of its start. A round's times count
    only if its split is still in force. A change therefore waits until the effect of the last one
    has been seen, and is never made twice.

    ``history`` has the split of each round at its start, ``times`` the stage times of each;
    ``prediction`` is of the first split.
    """

    def __init__(
        self,
        placement: HyScalePlacement,
        setting: Setting,
        profiles: Sequence[BatchProfile],
        prefetch: Literal[0, 1, 2],
    ) -> None:
        self._placement, self._prefetch = placement, prefetch
        platform, total = setting.platform, profiles[-1].seeds
        self._trainers = placement.trainers(platform)
        self._on_host = self._trainers[-1] == platform.host
        accelerators = [device for device in self._trainers if device != platform.host]
        planned = plan_split(
            setting,
            profiles,
            accelerators,
            cpu_trainer=placement.cpu_trainer,
            prefetch=prefetch,
            own_threads=placement.own_threads,
        )
        cpu_seeds, threads, cores = planned.cpu_seeds, planned.threads, platform.host.cores
        if accelerators:
            cpu_seeds = min(total, round(cpu_seeds * placement.skew))
        # Stages in turn, or more of them than cores, have no threads to give each other.
        shares_threads = threads.sample + threads.load + threads.train > cores
        split = Split(cpu_seeds, threads)
        self._predict = cache(
            lambda split: predict(
                setting, profiles, accelerators, split, prefetch, platform.round_s
            )
        )
        #: The shares of a round, cached for each split and number of seeds: most are alike.
        self._share = lru_cache(maxsize=8)(self._make_shares)
        #: Iterations of an epoch.
        self._num_rounds = max(1.0, len(setting.dataset.train_ids) / total)
        self.prediction = self._predict(split)
        #: Whether nothing can move: one trainer, whose stages each have all threads.
        self._fixed = self._trainers == (platform.host,) and shares_threads
        self.balancer = Balancer(
            total,
            cpu_seeds,
            threads,
            sampling=self._plan_sampling(platform.host, accelerators, profiles, split),
            accelerators=max(1, len(accelerators)),
            samplers=len(placement.samplers(platform)),
            shares_threads=shares_threads,
            expect=self._expect_epoch_s if placement.guard == "model" else None,
        )
        self._epochs_s = predict_epochs(setting, profiles, accelerators, split, prefetch)
        self.history: list[Assignment] = []
        self.times: list[StageTimes] = []
        #: For every round in flight, its split, and whether it is a full one.
        self._under_way: deque[tuple[Assignment, bool]] = deque()
        #: Stage times of the full rounds under the first split.
        self._observed: list[StageTimes] = []
        self._first = (
            f"first split from the performance model: {cpu_seeds} of {total} seeds on the "
            f"CPU, predicted round {self.prediction.execution_s * 1e3:.3g} ms"
        )

    def _plan_sampling(
        self,
        host: Device,
        accelerators: Sequence[Device],
        profiles: Sequence[BatchProfile],
        split: Split,
    ) -> int:
        if not self._placement.accelerator_sampling:
            return 0
        found = self.prediction
        others_s = max(found.load_s, found.transfer_s, found.propagate_s)
        return plan_sampling(host, accelerators, profiles, split, others_s)

    def predicted_epochs(self) -> Mapping[str, float]:
        """Return the predicted seconds of an epoch under the first split."""
        return self._epochs_s

    def share_out(self, seeds: IntArray) -> Handed:
        return hand_out(seeds, self.split(len(seeds)))

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        """Return the shares of a round that starts now."""
        balancer = self.balancer
        assigned = balancer.assignment
        self.history.append(assigned)
        self._under_way.append((assigned, num_seeds == balancer.total_seeds))
        return self._share(num_seeds, assigned)

    def _make_shares(self, num_seeds: int, assigned: Assignment) -> tuple[Share, ...]:
        """Return the shares of ``num_seeds`` seeds, in proportion to a full round's assignment."""
        on_host = self._on_host
        total = self.balancer.total_seeds
        cpu = round(num_seeds * assigned.cpu_seeds / total) if on_host else 0
        if len(self._trainers) == 1 and on_host:
            cpu = num_seeds
        count = len(self._trainers) - (1 if on_host else 0)
        shares = [
            Share(slot=slot, seeds=end - begin, samples=slot < assigned.sampling)
            for slot, (begin, end) in enumerate(divide_evenly(num_seeds - cpu, count))
        ]
        if on_host:
            shares.append(Share(slot=count, seeds=cpu, threads=assigned.threads.train))
        return tuple(shares)

    def host_threads(self) -> HostThreads:
        return self.balancer.threads

    def observe(self, times: StageTimes) -> None:
        assigned, full = self._under_way.popleft()
        self.times.append(times)
        if full and assigned == self.history[0]:
            self._observed.append(times)
        # A smaller round says little about a full one: fixed costs weigh more in it.
        if (
            self._fixed
            or not self._placement.drm
            or not full
            or assigned != self.balancer.assignment
        ):
            return
        self._taken, self._taken_under = times, Split(assigned.cpu_seeds, assigned.threads)
        if self._prefetch == 0 and times.train_accelerator is not None:
            # Transfer and training, one task in line 1, do not overlap here: their times add up.
            both_s = times.transfer + times.train_accelerator
            times = times._replace(transfer=0.0, train_accelerator=both_s)
        if self._placement.rule == "proportional":
            self.balancer.equalise(times)
        else:
            self.balancer.apply(decide(times), times)

    def _expect_epoch_s(self, assignment: Assignment) -> float:
        """Return an epoch's modelled seconds under ``assignment``, corrected by the last round."""
        expected = correct(
            self._predict(Split(assignment.cpu_seeds, assignment.threads)),
            self._predict(self._taken_under),
            self._taken,
        )
        return expected.epoch_s(self._num_rounds, filling=True)

    def idle(self) -> tuple[str, ...]:
        if not self.history or len(self._trainers) == 1:
            return ()
        clauses = []
        if self._placement.cpu_trainer and not any(split.cpu_seeds for split in self.history):
            total = self.balancer.total_seeds
            clauses.append(f"hybrid training (0 of {total:,} seeds on the CPU)")
        if self._placement.drm and len(set(self.history)) == 1:
            clauses.append(
                f"DRM (it moved no seeds and no threads in {len(self.history):,} rounds)"
            )
        return tuple(clauses)

    def notes(self) -> tuple[str, ...]:
        if not self.history:
            return ()
        first: tuple[str, ...] = (self._first,)
        if self._observed:
            first += (note_round(self.prediction, self._observed),)
        if not self._placement.drm:
            return *first, "static split: DRM is off"
        last = self.history[-1]
        threads = last.threads
        drawn = (
            f"; {last.sampling} accelerators draw their own mini-batches"
            if self._placement.accelerator_sampling
            else ""
        )
        return (
            *first,
            f"after {len(self.history)} rounds of DRM: {last.cpu_seeds} of "
            f"{self.balancer.total_seeds} seeds on the CPU; threads {threads.sample} sampling, "
            f"{threads.load} loading, {threads.train} training{drawn}",
        )


def predict_epochs(
    setting: Setting,
    profiles: Sequence[BatchProfile],
    accelerators: Sequence[Device],
    split: Split,
    prefetch: Literal[0, 1, 2],
) -> dict[str, float]:
    """Return predicted seconds of an epoch under a split, by the basis of the prediction.

    An epoch has full rounds, which start with an empty pipeline, and one smaller round.
    """
    platform, total = setting.platform, profiles[-1].seeds
    rounds, left = divmod(len(setting.dataset.train_ids), total)
    full, smaller = (
        predict(setting, profiles, accelerators, split, prefetch, platform.round_s, part=part)
        for part in (1.0, left / total)
    )

    def epoch_s(full: Prediction, smaller: Prediction) -> float:
        return full.epoch_s(rounds, filling=True) + (smaller.execution_s if left else 0.0)

    found = {note_inputs(platform): epoch_s(full, smaller)}
    if platform.virtual:
        described = (
            add_described(each, setting, profiles, accelerators, split.cpu_seeds, part=part)
            for each, part in ((full, 1.0), (smaller, left / total))
        )
        launched = "the same with kernel launches, link latencies and the topology that crosses"
        found[launched] = epoch_s(*described)
    return found


def note_inputs(platform: Platform) -> str:
    """Return the basis of a prediction of epochs: it has no measurement of these epochs."""
    equations = "by Equations 6 to 13 for the first split, "
    if platform.virtual:
        return f"{equations}the platform's rates, and sampled |V^l| and |E^l|"
    if platform.round_s:
        return (
            f"{equations}rates of the host and {format_si(platform.round_s, 's')} a round besides "
            f"its stages from a few rounds of other mini-batches before the run"
        )
    return f"{equations}rates of platform {platform.name}, nothing besides the stages"


def correct(expected: Prediction, predicted: Prediction, taken: StageTimes) -> Prediction:
    """Correct ``expected`` by another split's round, which ``taken`` and ``predicted`` describe.

    Time beyond the prediction is a fixed cost, as of launches, which the equations leave out. A
    faster stage has a higher rate. A stage stays as expected if it had no work, or would have none.
    """

    def stage(expected_s: float, predicted_s: float, taken_s: float | None) -> float:
        if not (taken_s and predicted_s and expected_s):
            return expected_s
        return taken_s + (expected_s - predicted_s) * min(1.0, taken_s / predicted_s)

    sample_s = stage(expected.sample_s, predicted.sample_s, taken.sample_cpu)
    load_s = stage(expected.load_s, predicted.load_s, taken.load)
    train_cpu_s = stage(expected.train_cpu_s, predicted.train_cpu_s, taken.train_cpu)
    on_host_s = expected.sample_s + expected.load_s + expected.train_cpu_s
    faster = min(1.0, (sample_s + load_s + train_cpu_s) / on_host_s) if on_host_s else 1.0
    return replace(
        expected,
        sample_s=sample_s,
        load_s=load_s,
        transfer_s=stage(expected.transfer_s, predicted.transfer_s, taken.transfer),
        train_cpu_s=train_cpu_s,
        train_accelerator_s=stage(
            expected.train_accelerator_s, predicted.train_accelerator_s, taken.train_accelerator
        ),
        busy_s=expected.busy_s * faster,
    )


def plan_sampling(
    host: Device,
    accelerators: Sequence[Device],
    profiles: Sequence[BatchProfile],
    split: Split,
    others_s: float,
) -> int:
    """Return the number of accelerators that should draw mini-batches at first.

    It is the fewest that minimises the longest of sampling there, sampling on the CPU, and the
    other stages (``others_s``).
    """
    each = (profiles[-1].seeds - split.cpu_seeds) / len(accelerators)
    edges = sum(sizes_of(profiles, each)[1])
    own_s = sampling_seconds(host, profiles, split.cpu_seeds, split.threads.sample)
    each_s = sampling_seconds(host, profiles, each, split.threads.sample)
    there_s = max(
        edges / (device.rates.sampled_edges_per_s * device.cores) for device in accelerators
    )

    def longest_s(count: int) -> float:
        on_cpu_s = own_s + (len(accelerators) - count) * each_s
        return max(on_cpu_s, there_s if count else 0.0, others_s)

    return min(range(len(accelerators) + 1), key=lambda count: (longest_s(count), count))
