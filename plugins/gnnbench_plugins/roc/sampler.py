"""Ranges of vertices, cut by a learned linear cost model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from gnnbench.constants import Bound
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.parts import Bundle, Chunks, DeviceCapacity, FullGraphSampler, Part, Setting, option
from gnnbench.price.dry_run import DryRun
from gnnbench.records import IntArray
from gnnbench.reproduce.agreement import format_share
from gnnbench_plugins.reference.sampler import balance_ranges, cut_ranges
from gnnbench_plugins.roc.cost import Numbers, cut_evenly, find_features, learn_weights

MOST_LEARNED: Bound[int] = 100
#: Learning stops once the busiest device is nearer to the mean than this share.
EVEN: Bound[float] = 0.01


@dataclass(frozen=True)
class RocSampler(FullGraphSampler):
    """Contiguous ranges of vertices of equal cost, one for each device.

    The cost of a vertex is learned from epochs. Each device's time in a layer is a sample, and the
    model fitted to all samples so far cuts the next epoch. Training uses the cut with the least
    imbalance.
    """

    name: ClassVar[str] = "roc"
    summary: ClassVar[str] = "ranges of vertices, balanced by a linear model of their cost"

    learned: int = option(
        4, "epochs gone through before the run, by which costs are learned; 0 = balanced edges"
    )

    _bounds: tuple[int, ...] = field(default=(), init=False, repr=False, compare=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not 0 <= self.learned <= MOST_LEARNED:
            return (
                f"sampler.learned is {self.learned}; give a number of epochs from 0 to "
                f"{MOST_LEARNED}."
            )
        return None

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        count = len(bundle.placement.trainers(setting.platform))
        if self._bounds or not self.learned or count == 1:
            return self, ()
        return self._learn(bundle, setting, count)

    def _learn(self, bundle: Bundle, setting: Setting, count: int) -> tuple[Part, tuple[str, ...]]:
        graph, layers = setting.dataset.graph, setting.layers
        features = find_features(graph, tuple(layer.summed_features for layer in layers))
        bounds = balance_ranges(graph, count)
        samples: dict[int, list[tuple[Numbers, Numbers]]] = defaultdict(list)
        tried: list[tuple[float, RocSampler]] = []
        for _ in range(self.learned):
            sampler = self._cut_at(bounds)
            try:
                taken = time_layers(replace(bundle, sampler=sampler), setting, count)
            except DeviceOutOfMemoryError:
                break
            busy = taken.sum(axis=0)
            tried.append((busy.max() / busy.mean(), sampler))
            if tried[-1][0] <= 1 + EVEN:
                break
            for layer, seconds in enumerate(taken):
                samples[layer].append((features.of_ranges(layer, bounds), seconds))
            weights = [learn_weights(samples[layer]) for layer in range(len(layers))]
            bounds = cut_evenly(features.cost(weights), count)
        if not tried:
            return self._cut_at(balance_ranges(graph, count)), (
                "costs are not learned: an epoch of balanced edges finds no room on the devices",
            )
        best, chosen = min(tried, key=lambda each: each[0])
        now, before = (format_share(over - 1) for over in (best, tried[0][0]))
        note = (
            f"by costs learned over {len(tried)} epoch{'s' * (len(tried) > 1)}, computation on the "
            f"busiest device is {now} over the mean; with balanced edges it is {before}"
        )
        return chosen, (note,)

    def _cut_at(self, bounds: IntArray) -> RocSampler:
        """Return a copy with a fixed cut, without further learning."""
        cut = replace(self)
        object.__setattr__(cut, "_bounds", tuple(bounds.tolist()))
        return cut

    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        return cut_ranges(setting.dataset.graph, self.cut(setting, num_slots))

    def cut(self, setting: Setting, num_slots: int) -> IntArray:
        """Return the bounds of the ranges, int64 ``(num_slots+1,)``."""
        if len(self._bounds) == num_slots + 1:
            return np.array(self._bounds, dtype=np.int64)
        return balance_ranges(setting.dataset.graph, num_slots)


def time_layers(bundle: Bundle, setting: Setting, count: int) -> Numbers:
    """Return the modelled compute seconds ``(L, count)`` of devices, forward and backward.

    The epoch is planned from sizes.
    """
    places = {
        device.name: slot for slot, device in enumerate(bundle.placement.trainers(setting.platform))
    }
    taken = np.zeros((len(setting.layers), count))
    for span in DryRun(bundle, setting).run_epoch(0).spans:
        if span.stage in ("aggregate", "update") and 0 <= span.layer < len(taken):
            taken[span.layer, places[span.place]] += span.seconds
    return taken
