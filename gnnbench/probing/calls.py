"""The fixed costs of training: Python, autograd, and the optimiser.

Training on a graph of a few vertices, in both modes, measures the time of its steps, which is
almost only calls. Full-graph steps find the last epoch's data in the caches. Rows and edges of a
mini-batch are new, and displace each other in the caches. Mini-batch steps are therefore measured
with swept caches.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from gnnbench.machines.caches import make_sweep
from gnnbench.machines.machine import Device, LibraryRates
from gnnbench.machines.tables import replace_fields
from gnnbench.machines.timing import round_rate
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.probing.samplers import make_dataset
from gnnbench.records import EpochTrace, Provenance, Stage, Work, Workload
from gnnbench.run import Training

#: Vertices and degree of the graph, and the width of its features and hidden values.
VERTICES, DEGREE, WIDTH = 64, 4, 4
#: Mini-batches of an epoch, over which its fixed costs are divided.
BATCHES = 4
#: Epochs, and epochs with swept caches, after one warm-up epoch; the median of each step counts.
EPOCHS, SWEPT_EPOCHS = 20, 5
AGGREGATES = ("aggregate forward", "aggregate backward")
UPDATES = ("update forward", "update backward")
#: Labels of the steps that end a mini-batch or an epoch, and of the step that begins a mini-batch.
ENDS = ("loss", "average and step")
LOADS = ("load features",)


@dataclass(frozen=True, slots=True)
class Calls:
    """The times of a kernel's calls, and the time of any step besides its computation."""

    rates: LibraryRates
    step_s: float


class Sweep:
    """A wall clock that sweeps the caches after every step.

    It declares times as modelled, since only then is it called at every step. ``swept_s`` is the
    time spent sweeping.
    """

    provenance: Provenance = "modelled"

    def __init__(self) -> None:
        self._sweep = make_sweep()
        self.swept_s = 0.0

    def seconds(self, work: Work, place: str, wall_s: float, stage: Stage | None = None) -> float:
        """Return the measured duration, independent of the work."""
        began_s = time.perf_counter()
        self._sweep()
        self.swept_s += time.perf_counter() - began_s
        return wall_s


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch, and the harness's share of it without the sweeps of the measurement."""

    trace: EpochTrace
    harness_s: float

    @property
    def step_s(self) -> float:
        """The harness's time for each step."""
        return self.harness_s / len(self.trace.spans)

    def sum_s(self, labels: Container[str]) -> float:
        """Return the seconds of all steps with one of the labels."""
        return sum(span.wall_s for span in self.trace.spans if span.label in labels)


def measure_calls(
    full: Bundle, mini: Bundle, setting: Setting, device: Device, known: LibraryRates
) -> Calls:
    """Return the ``known`` rates of a kernel, extended by the times of its calls.

    The kernel trains a tiny graph on ``device``, as ``full`` does and as ``mini`` does. Attention
    is measured only if the kernel supports it.

    In any training, the loss, the optimiser and the harness's steps follow work on large arrays.
    They are therefore measured as in mini-batches.
    """
    # A host's work for an accelerator stays in the host's caches.
    sweeps = device.kind == "cpu"
    again = _train(full, _make_tiny("gcn", setting))
    fresh = _train(mini, _make_tiny("gcn", setting), sweeps=sweeps)
    attending = _make_tiny("gat", setting)
    attends_again_s = attends_fresh_s = 0.0
    if full.refusal(attending) is None:
        attends_again_s = _of_steps(_train(full, attending), AGGREGATES)
    if mini.refusal(attending) is None:
        attends_fresh_s = _of_steps(_train(mini, attending, sweeps=sweeps), AGGREGATES)
    swept = _train(full, _make_tiny("gcn", setting), sweeps=sweeps)
    step_s = median(each.step_s for each in swept)
    ended_s = median(each.sum_s(ENDS) for each in fresh)
    more_s = median(
        each.sum_s(LOADS) + max(0.0, each.harness_s - step_s * len(each.trace.spans))
        for each in fresh
    )
    rates = replace_fields(
        known,
        call_s=_of_steps(again, AGGREGATES),
        fresh_call_s=_of_steps(fresh, AGGREGATES),
        attention_call_s=attends_again_s,
        attention_fresh_call_s=attends_fresh_s,
        update_call_s=_of_steps(again, UPDATES),
        update_fresh_call_s=_of_steps(fresh, UPDATES),
        batch_s=round_rate(ended_s / BATCHES),
        fresh_batch_s=round_rate((ended_s + more_s) / BATCHES),
    )
    return Calls(rates, round_rate(step_s))


def _make_tiny(model: str, setting: Setting) -> Setting:
    data = make_dataset(VERTICES, DEGREE, WIDTH)
    size = VERTICES // BATCHES
    workload = Workload(model, (WIDTH, WIDTH, 2), 1, size, (DEGREE, DEGREE), 0, threads=1)
    return Setting(data, setting.platform, workload, build(workload).shapes)


def _train(bundle: Bundle, setting: Setting, *, sweeps: bool = False) -> list[_Epoch]:
    """Return the epochs after the first, with or without a sweep of the caches after every step."""
    sweep = Sweep() if sweeps else None
    training, epochs = Training(bundle, setting, sweep or WallClock()), []
    for number in range(1 + (SWEPT_EPOCHS if sweep else EPOCHS)):
        before_s = sweep.swept_s if sweep else 0.0
        trace = training.run_epoch(number)
        swept_s = sweep.swept_s - before_s if sweep else 0.0
        epochs.append(_Epoch(trace, trace.harness_s - swept_s))
    return epochs[1:]


def _of_steps(epochs: Sequence[_Epoch], labels: tuple[str, ...]) -> float:
    """Return the mean seconds of a step with one of the labels.

    It averages each step's median over the epochs.
    """
    taken = np.array(
        [[span.wall_s for span in each.trace.spans if span.label in labels] for each in epochs]
    )
    return round_rate(float(np.median(taken, axis=0).mean()))
