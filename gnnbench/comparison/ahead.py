"""Mini-batches that are prepared before the clock of the epoch that trains on them.

A row may prepare as long as it likes before its first epoch: a partition or a cache serves all
epochs. What belongs to one epoch is to be done in it. So some epochs are trained after the others
whose numbers nobody can foresee: nothing is prepared for them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from gnnbench.errors import PluginError
from gnnbench.price.folds import Digest
from gnnbench.records import EpochTrace, Stage
from gnnbench.units import format_si

#: Numbers of unforeseen epochs: beyond any training, and below those that parts draw before it.
FIRST_UNFORESEEN, LAST_UNFORESEEN = 1 << 20, 1 << 29
#: How many of them are trained before a row is refused: at least, at most, and for how long.
LEAST_EPOCHS, MOST_EPOCHS, ENOUGH_S = 2, 12, 2.0
#: The share of an epoch from which what is done before the clock is looked for, and told.
SHARE = 0.05
#: By how many times mini-batches take longer that nothing was prepared for, beside the layers'
#: computation, which no preparation shortens.
LONGER = 1.5
PREPARED: tuple[Stage, ...] = ("sample", "load", "transfer")
COMPUTED: tuple[Stage, ...] = ("aggregate", "update")


def refuse_work_ahead(
    label: str,
    timed: Sequence[Digest],
    warmup: int,
    before_s: float,
    train: Callable[[int], tuple[EpochTrace, Digest]],
) -> None:
    """Refuse the row ``label`` where it has prepared mini-batches before their clock.

    ``timed`` are its epochs, the first ``warmup`` of which are no samples, and ``before_s`` is what
    it took before them. ``train`` trains an epoch of a number: none where preparation and warm-up
    are too short for a share of all epochs, and else until one takes no longer than those that were
    timed. Raises ``PluginError``.
    """
    steady = timed[warmup:]
    epoch_s = median(each.epoch_s for each in steady)
    before_s += sum(max(0.0, each.epoch_s - epoch_s) for each in timed[:warmup])
    computed_s = median(_sum(each, COMPUTED) for each in steady)
    if before_s < SHARE * epoch_s * len(steady) or not computed_s:
        return
    # Each beside what was computed in it: other work on the machine makes both longer.
    usual, least = median(map(_prepared_share, steady)), math.inf
    numbers = np.random.default_rng(len(timed)).integers(
        FIRST_UNFORESEEN, LAST_UNFORESEEN, MOST_EPOCHS
    )
    began_s = time.perf_counter()
    for count, number in enumerate(numbers.tolist()):
        if count >= LEAST_EPOCHS and time.perf_counter() - began_s > ENOUGH_S:
            break
        least = min(least, _prepared_share(train(number)[1]))
        if least < LONGER * usual or (least - usual) * computed_s < SHARE * epoch_s:
            return
    unforeseen_s, usual_s = (format_si(each * computed_s, "s") for each in (least, usual))
    raise PluginError(
        f"{label}: its mini-batches were prepared before the clock of their epochs: to sample, "
        f"load and transfer them takes {unforeseen_s} in an epoch that nothing was prepared for, "
        f"and {usual_s} in those that were timed; draw them in the epoch that trains on them."
    )


def _prepared_share(digest: Digest) -> float:
    computed_s = _sum(digest, COMPUTED)
    return _sum(digest, PREPARED) / computed_s if computed_s else 0.0


def _sum(digest: Digest, stages: Sequence[Stage]) -> float:
    return sum(digest.stages.get(stage, 0.0) for stage in stages)
