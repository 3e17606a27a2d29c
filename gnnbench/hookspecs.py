"""The hooks that a plugin may implement. They offer classes and records; they never do work.

A plugin is a module (or an object) with any of these functions marked ``@hookimpl``. Each is called
once when plugins are loaded, never inside a timed region. A part, model or strategy is chosen by
its ``name``. A name offered twice for the same kind of offer is an error that names both plugins.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from gnnbench.models import Layer
from gnnbench.parts import (
    Communication,
    FullGraphSampler,
    Kernel,
    Memory,
    MiniBatchSampler,
    Part,
    Placement,
)
from gnnbench.records import Strategy
from gnnbench.reproduce.studies import Planner, Reproduction

PROJECT = "gnnbench"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def gnnbench_parts() -> Iterable[type[Part]]:  # type: ignore[empty-body]
    """Offer parts of any kind. It serves as well as the five hooks below, of one kind each."""


@hookspec
def gnnbench_sampler() -> Iterable[type[MiniBatchSampler] | type[FullGraphSampler]]:  # type: ignore[empty-body]
    """Offer samplers: which units (mini-batches, chunks) make one epoch, in which order."""


@hookspec
def gnnbench_placement() -> Iterable[type[Placement]]:  # type: ignore[empty-body]
    """Offer placements: which device computes which share."""


@hookspec
def gnnbench_communication() -> Iterable[type[Communication]]:  # type: ignore[empty-body]
    """Offer communications: what crosses which link, and what need not."""


@hookspec
def gnnbench_memory() -> Iterable[type[Memory]]:  # type: ignore[empty-body]
    """Offer memories: where tensors live, what is kept, recomputed or offloaded."""


@hookspec
def gnnbench_kernel() -> Iterable[type[Kernel]]:  # type: ignore[empty-body]
    """Offer kernels: aggregate and update, and what they cost on a device."""


@hookspec
def gnnbench_model() -> Iterable[type[Layer]]:  # type: ignore[empty-body]
    """Offer models: classes of layers, most simply derived from ``gnnbench.models.TorchLayer``."""


@hookspec
def gnnbench_strategy() -> Iterable[Strategy]:  # type: ignore[empty-body]
    """Offer strategies: named bundles of five parts, by the parts' names."""


@hookspec
def gnnbench_planner() -> Iterable[type[Planner]]:  # type: ignore[empty-body]
    """Offer planners: memory, traffic and time of a strategy, predicted without training."""


@hookspec
def gnnbench_reproduction() -> Iterable[type[Reproduction]]:  # type: ignore[empty-body]
    """Offer reproductions: a table of a paper beside this project's numbers for it."""
