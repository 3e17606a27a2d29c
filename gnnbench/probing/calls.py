"""What training takes however little there is to compute: Python, autograd, and the optimiser.

A graph of a few vertices is trained on as any other is, in both modes, and what its steps take is
taken for their calls. Of full graphs they find in the caches what the last epoch left there. The
rows and edges of a mini-batch are new, and go through the caches before the next step: its steps
are measured with caches that something else has been through.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.platforms.caches import make_sweep
from gnnbench.platforms.machine import Device, LibraryRates
from gnnbench.platforms.timing import round_rate
from gnnbench.price.wall_clock import WallClock
from gnnbench.probing.samplers import make_dataset
from gnnbench.records import EpochTrace, Provenance, Work, Workload
from gnnbench.run import Training

#: Of the graph, and of its features and hidden values.
VERTICES, DEGREE, WIDTH = 64, 4, 4
#: Mini-batches of an epoch, over which is shared out what it takes once.
BATCHES = 4
#: Epochs, and those with a cache that is swept, after one that warms up; the median of each step
#: counts.
EPOCHS, SWEPT_EPOCHS = 20, 5
AGGREGATES = ("aggregate forward", "aggregate backward")
UPDATES = ("update forward", "update backward")
#: What ends a mini-batch or an epoch, and what begins a mini-batch.
ENDS = ("loss", "average and step")
LOADS = ("load features",)


@dataclass(frozen=True, slots=True)
class Calls:
    """What a kernel's calls take, and what any step takes besides what it computes."""

    rates: LibraryRates
    step_s: float


class Sweep:
    """A wall clock that sweeps the caches after every step, of which it is told only where times
    are modelled. ``swept_s`` is what that has taken."""

    provenance: Provenance = "modelled"

    def __init__(self) -> None:
        self._sweep = make_sweep()
        self.swept_s = 0.0

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """The measured duration, whatever the work."""
        began_s = time.perf_counter()
        self._sweep()
        self.swept_s += time.perf_counter() - began_s
        return wall_s


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch, and what the harness took of it without what was done to measure it."""

    trace: EpochTrace
    harness_s: float

    @property
    def step_s(self) -> float:
        """What the harness took a step."""
        return self.harness_s / len(self.trace.spans)

    def sum_s(self, labels: Container[str]) -> float:
        """Seconds of all steps with one of the labels."""
        return sum(span.wall_s for span in self.trace.spans if span.label in labels)


def measure_calls(
    full: Bundle, mini: Bundle, setting: Setting, device: Device, known: LibraryRates
) -> Calls:
    """What is ``known`` of a kernel, and the calls of it that trains a tiny graph on ``device``, as
    ``full`` does and as ``mini`` does; those of attention only where the kernel has it.

    Whatever is trained, the loss and the optimiser come after large arrays, and so do the steps of
    the harness: both are measured as in mini-batches.
    """
    # What a host does for an accelerator stays in its caches.
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
    rates = replace(
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
    """Epochs after the first, with or without caches that are swept after every step."""
    sweep = Sweep() if sweeps else None
    training, epochs = Training(bundle, setting, sweep or WallClock()), []
    for number in range(1 + (SWEPT_EPOCHS if sweep else EPOCHS)):
        before_s = sweep.swept_s if sweep else 0.0
        trace = training.run_epoch(number)
        swept_s = sweep.swept_s - before_s if sweep else 0.0
        epochs.append(_Epoch(trace, trace.harness_s - swept_s))
    return epochs[1:]


def _of_steps(epochs: Sequence[_Epoch], labels: tuple[str, ...]) -> float:
    """Seconds of a step with one of the labels: the mean over those of an epoch, each as long as in
    the median epoch."""
    taken = np.array(
        [[span.wall_s for span in each.trace.spans if span.label in labels] for each in epochs]
    )
    return round_rate(float(np.median(taken, axis=0).mean()))
