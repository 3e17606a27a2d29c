"""Predictions of training on shards of features, from the sizes of the program's rounds alone.

The graph may be stored, a stream of edges, or larger than either.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gnnbench.lowering.feature_shards import FeatureShardsLowering
from gnnbench.lowering.memory import masks_gradients
from gnnbench.lowering.shardings import Piece, Shardings
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.price.dry_run import price_epoch
from gnnbench.program import Ledger
from gnnbench.records import Dataset, EpochTrace, Graph, Scheduled, Stage


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """A predicted epoch of ``rounds`` rounds.

    It has the program's timeline and the busy seconds of each stage's busiest resource. By device
    it has the bytes held permanently, and at the peak.
    """

    rounds: int
    epoch: EpochTrace
    epoch_s: float
    timeline: Sequence[Scheduled]
    busy_s: Mapping[Stage, float]
    always_bytes: Mapping[str, int]
    peak_bytes: Mapping[str, int]

    @property
    def idle_s(self) -> float:
        """Idle seconds of an aggregating device between its first and last batch, on average."""
        taken: dict[str, list[tuple[float, float]]] = {}
        for each in self.timeline:
            if each.span.stage == "aggregate":
                taken.setdefault(each.span.place, []).append((each.start_s, each.end_s))
        idle = [
            max(end_s for _, end_s in steps)
            - min(start_s for start_s, _ in steps)
            - sum(end_s - start_s for start_s, end_s in steps)
            for steps in taken.values()
        ]
        return sum(idle) / len(idle)


def foresee(bundle: Bundle, setting: Setting, rounds: Sequence[Piece]) -> Outlook:
    """Predict an epoch of ``rounds``, whether or not it fits."""
    model = build(setting.workload, model=setting.model, masked=masks_gradients(bundle))
    lowering = FeatureShardsLowering(bundle, setting, model.stack)
    names = {device.name for device in chain(setting.platform.devices, lowering.trainers)}
    ledger = Ledger(dict.fromkeys(names, sys.maxsize))
    lowering.lay_out(ledger, Shardings(rounds, lowering.placement, setting.platform))
    always_bytes = dict(ledger.in_use_bytes)
    epoch, found = price_epoch(lowering, ledger)
    return Outlook(
        rounds=len(rounds),
        epoch=epoch,
        epoch_s=found.epoch_s,
        timeline=found.timeline,
        busy_s=found.stages,
        always_bytes=always_bytes,
        peak_bytes=ledger.peak_bytes,
    )


def describe_counted(dims: Sequence[int], vertices: int) -> Dataset:
    """Return a data set with only widths, classes and vertices, for graphs given by counts."""
    indptr = np.broadcast_to(np.int64(0), vertices + 1)
    graph = Graph(indptr, np.empty(0, dtype=np.int32))
    none, features = np.zeros(0, dtype=np.bool_), np.empty((0, dims[0]), dtype=np.float32)
    labels = np.empty(0, dtype=np.int64)
    return Dataset("counts alone", graph, features, labels, dims[-1], none, none, none)


def share_out(total: int, price: Callable[[int], float]) -> tuple[int, float]:
    """Return how many of ``total`` devices should aggregate, and that number's ``price``.

    The others update. The search starts at half of them and moves to the better neighbour. The step
    is halved if neither is better, so few numbers are tried. Ties go to the smallest.
    """
    tried: dict[int, tuple[float, int]] = {}

    def rank(count: int) -> tuple[float, int]:
        if count not in tried:
            tried[count] = price(count), count
        return tried[count]

    best, step = total // 2, max(1, total // 8)
    while step:
        nearby = [count for count in (best - step, best, best + step) if 0 < count < total]
        found = min(nearby, key=rank)
        if found == best:
            step //= 2
        best = found
    return best, rank(best)[0]
