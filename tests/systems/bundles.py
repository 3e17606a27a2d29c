"""Parts of a strategy with options, and what a training of them leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.plugins import assemble, load
from gnnbench.price.folds import Digest, digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Mode, Parts, StageTimes, Trace
from gnnbench.run import train
from tests.sessions import keep_opened, on_open

REGISTRY = load()


def bundle_of(
    parts: str | Parts, swaps: Any = (), mode: Mode = "mini-batch", **options: object
) -> Bundle:
    """Assemble a strategy, or parts, with some of them swapped for others.

    ``swaps`` are pairs of a kind and a name. Options are named by kind and option:
    ``placement_drm="false"``.
    """
    if isinstance(parts, str):
        parts = REGISTRY.strategy(parts).bundles[mode]
    texts: dict = {}
    for name, value in options.items():
        kind, option = name.split("_", 1)
        texts.setdefault(kind, {})[option] = str(value).lower()
    return assemble(REGISTRY, replace(parts, **dict(swaps)), texts)


@dataclass
class Run:
    """A training: its parts, its placement's last session, and what that observed and did."""

    bundle: Bundle
    session: Any
    times: list[StageTimes]
    trace: Trace

    @cached_property
    def digests(self) -> list[Digest]:
        return [digest(epoch, "modelled") for epoch in self.trace.epochs]

    @property
    def losses(self) -> list[float]:
        return losses(self.trace)

    @property
    def spans(self) -> list:
        return [
            span._replace(wall_start_s=0.0, wall_s=0.0)
            for epoch in self.trace.epochs
            for span in epoch.spans
        ]


def losses(trace: Trace) -> list[float]:
    return [loss for epoch in trace.epochs for loss in epoch.round_losses]


def keep_times(bundle: Bundle) -> list[StageTimes]:
    """Return a list that will have the stage times that the bundle's placement observes."""
    times: list[StageTimes] = []

    def watch(session, *_):
        observe = session.observe

        def keep(observed):
            times.append(observed)
            observe(observed)

        session.observe = keep

    on_open(bundle.placement, watch)
    return times


def run_bundle(
    bundle: Bundle, setting: Setting, clock: Any = None, watch: Callable[..., bool] | None = None
) -> Run:
    """Train on ``clock``, by default the model clock; ``watch`` may end the training."""
    times, opened = keep_times(bundle), keep_opened(bundle.placement)
    clock = clock or ModelClock(setting.platform, bundle.kernel)
    trace = train(bundle, setting, clock, watch)
    return Run(bundle, opened[-1] if opened else None, times, trace)


def setting_of(dataset, platform, workload) -> Setting:
    return Setting(dataset, platform, workload, build(workload).shapes)
