"""What training takes however little there is to compute: Python, autograd, and the optimiser.

A graph of a few vertices is trained on as any other is, in both modes, and what its steps take is
taken for their calls.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.platforms.machine import LibraryRates
from gnnbench.platforms.timing import round_rate
from gnnbench.price.wall_clock import WallClock
from gnnbench.probing.samplers import make_dataset
from gnnbench.records import EpochTrace, Workload
from gnnbench.run import Training

#: Of the graph, and of its features and hidden values.
VERTICES, DEGREE, WIDTH = 64, 4, 4
#: Epochs of either mode, after one that warms up; the median of each step counts.
EPOCHS = 20
AGGREGATES = ("aggregate forward", "aggregate backward")
UPDATES = ("update forward", "update backward")
#: Steps of a mini-batch that other rates are of.
APART = ("sample", "load features")


def measure_calls(full: Bundle, mini: Bundle, setting: Setting) -> LibraryRates:
    """The calls of a kernel that trains a tiny graph, as ``full`` does and as ``mini`` does; those
    of attention only where the kernel has it."""
    again, fresh = (_train("gcn", bundle, setting) for bundle in (full, mini))
    attention = [
        _of_steps(_train("gat", bundle, setting), AGGREGATES)
        if bundle.refusal(_make_tiny("gat", setting)) is None
        else 0.0
        for bundle in (full, mini)
    ]
    return LibraryRates(
        call_s=_of_steps(again, AGGREGATES),
        fresh_call_s=_of_steps(fresh, AGGREGATES),
        attention_call_s=attention[0],
        attention_fresh_call_s=attention[1],
        update_call_s=_of_steps(again, UPDATES),
        batch_s=round_rate(median(map(_rest, fresh))),
    )


def _make_tiny(model: str, setting: Setting) -> Setting:
    data = make_dataset(VERTICES, DEGREE, WIDTH)
    workload = Workload(model, (WIDTH, WIDTH, 2), EPOCHS, VERTICES, (DEGREE, DEGREE), 0, threads=1)
    return Setting(data, setting.platform, workload, build(workload).shapes)


def _train(model: str, bundle: Bundle, setting: Setting) -> list[EpochTrace]:
    training = Training(bundle, _make_tiny(model, setting), WallClock())
    return [training.run_epoch(number) for number in range(1 + EPOCHS)][1:]


def _of_steps(epochs: list[EpochTrace], labels: tuple[str, ...]) -> float:
    """Seconds of a step with one of the labels: the mean over those of an epoch, each as long as in
    the median epoch."""
    taken = np.array(
        [[span.wall_s for span in epoch.spans if span.label in labels] for epoch in epochs]
    )
    return round_rate(float(np.median(taken, axis=0).mean()))


def _rest(epoch: EpochTrace) -> float:
    """Seconds of an epoch of one mini-batch beside its sampling, loading and propagation."""
    apart = (*AGGREGATES, *UPDATES, *APART)
    return epoch.wall_s - sum(span.wall_s for span in epoch.spans if span.label in apart)
