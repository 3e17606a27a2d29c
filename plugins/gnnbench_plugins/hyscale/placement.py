"""Hybrid placement: accelerator trainers and a CPU trainer, rebalanced between rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gnnbench.parts import MINI_BATCH, Bundle, Placement, Setting, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import BatchProfile, HostThreads, Mode, Share, StageTimes
from gnnbench_plugins.hyscale.drm import Balancer, decide
from gnnbench_plugins.hyscale.performance import Split, plan_split, predict


@dataclass
class HyScalePlacement(Placement):
    """HyScale-GNN §III-B and §IV-A: the first split from the performance model, then DRM.

    The CPU trainer is the last slot. A round of fewer seeds than a full one (the last of an epoch)
    is split in the same proportion.
    """

    name: ClassVar[str] = "hyscale"
    summary: ClassVar[str] = "accelerators and the CPU train together; DRM moves work each round"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCH

    drm: bool = option(True, "rebalance between rounds (Algorithm 1)")
    cpu_trainer: bool = option(True, "let the CPU train beside the accelerators")
    accelerators: int = option(0, "how many accelerators to use; 0 = all")
    skew: float = option(1.0, "multiply the planned CPU share, to study how DRM recovers")

    _trainers: tuple[Device, ...] = field(default=(), init=False, repr=False)
    _balancer: Balancer = field(
        default_factory=lambda: Balancer(1, 1, HostThreads()), init=False, repr=False
    )
    _full: bool = field(default=True, init=False, repr=False)
    #: Seeds on the CPU trainer and threads, as each round began: what DRM did.
    history: list[tuple[int, HostThreads]] = field(default_factory=list, init=False, repr=False)
    _first: str = field(default="", init=False, repr=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        available = len(setting.platform.accelerators)
        if not 0 <= self.accelerators <= available:
            return (
                f"placement.accelerators is {self.accelerators}, and platform "
                f"{setting.platform.name} has {available}; use 0 for all of them."
            )
        if not (math.isfinite(self.skew) and self.skew >= 0):
            return f"placement.skew is {self.skew}; a share is multiplied by a number from 0 up."
        return None

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        chosen = platform.accelerators[: self.accelerators or None]
        if not chosen:
            return (platform.host,)
        return (*chosen, platform.host) if self.cpu_trainer else chosen

    def prepare(self, setting: Setting, profiles: Sequence[BatchProfile]) -> None:
        self._trainers = self.trainers(setting.platform)
        accelerators = [device for device in self._trainers if device.kind != "cpu"]
        planned = plan_split(setting, profiles, accelerators, cpu_trainer=self.cpu_trainer)
        total, cpu_seeds = profiles[-1].seeds, planned.cpu_seeds
        if accelerators:
            cpu_seeds = min(total, round(cpu_seeds * self.skew))
        split = Split(cpu_seeds, planned.threads)
        self._balancer = Balancer(total, split.cpu_seeds, split.threads)
        self.history.clear()
        prediction = predict(setting, profiles, accelerators, split)
        self._first = (
            f"first split from the performance model: {cpu_seeds} of {total} seeds on the "
            f"CPU, predicted round {prediction.execution_s * 1e3:.3g} ms"
        )

    def split(self, num_seeds: int) -> tuple[Share, ...]:
        balancer = self._balancer
        self.history.append((balancer.cpu_seeds, balancer.threads))
        self._full = num_seeds == balancer.total_seeds
        on_host = self._trainers[-1].kind == "cpu"
        cpu = round(num_seeds * balancer.cpu_seeds / balancer.total_seeds) if on_host else 0
        if len(self._trainers) == 1 and on_host:
            cpu = num_seeds
        count = len(self._trainers) - (1 if on_host else 0)
        shares = []
        for slot in range(count):
            rest = num_seeds - cpu
            seeds = rest * (slot + 1) // count - rest * slot // count
            shares.append(Share(slot=slot, seeds=seeds))
        if on_host:
            shares.append(Share(slot=count, seeds=cpu, threads=balancer.threads.train))
        return tuple(shares)

    def host_threads(self) -> HostThreads:
        return self._balancer.threads

    def observe(self, times: StageTimes) -> None:
        # A smaller round says little about a full one: fixed costs weigh more in it.
        if self.drm and self._full:
            self._balancer.apply(decide(times), times)

    def notes(self) -> tuple[str, ...]:
        if not self.history:
            return ()
        last, threads = self.history[-1]
        return (
            self._first,
            f"after {len(self.history)} rounds of DRM: {last} of {self._balancer.total_seeds} "
            f"seeds on the CPU; threads {threads.sample} sampling, {threads.load} loading, "
            f"{threads.train} training"
            if self.drm
            else "static split: DRM is off",
        )
