"""Detects mini-batches that a row prepares before the timed epoch that trains on them.

A row may prepare as long as it likes before its first epoch: a partition or a cache serves all
epochs. Work that belongs to one epoch must be done in that epoch. So after the timed epochs, some
epochs with unforeseeable numbers are trained, for which nothing can have been prepared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np

from gnnbench.errors import PluginError
from gnnbench.price.folds import Digest
from gnnbench.records import EpochTrace, Stage
from gnnbench.units import format_si

#: Numbers of unforeseen epochs: beyond any training, and below those that parts draw before it.
FIRST_UNFORESEEN, LAST_UNFORESEEN = 1 << 20, 1 << 29
#: How many of them are trained before a row is refused: at least, at most, and for how long. Other
#: load on the machine can lengthen a stage in a few epochs in succession.
LEAST_EPOCHS, MOST_EPOCHS, ENOUGH_S = 6, 12, 2.0
#: The smallest share of an epoch's time for which work done ahead is looked for and reported.
SHARE = 0.02
#: How many times longer than usual a stage of unprepared mini-batches has to take, in seconds and
#: relative to the layers' computation, which no preparation shortens. Other load on the machine may
#: lengthen the one, and its end the other.
LONGER = 1.5
PREPARED: Mapping[Stage, str] = {"sample": "Sampling", "load": "Loading", "transfer": "Transfer"}
COMPUTED: tuple[Stage, ...] = ("aggregate", "update")


def refuse_work_ahead(
    label: str,
    timed: Sequence[Digest],
    warmup: int,
    before_s: float,
    train: Callable[[int], tuple[EpochTrace, Digest]],
) -> None:
    """Refuse the row ``label`` if it has prepared mini-batches before their timed epochs.

    ``timed`` are its epochs, of which the first ``warmup`` are no samples. ``before_s`` is the time
    the row took before them, and its own threads beside them. ``train`` trains the epoch with a
    given number. No epoch is trained if all that was too short to hold a share of all epochs.
    Otherwise epochs are trained until each stage has once taken no longer than in the timed ones.
    Raises ``PluginError``.
    """
    steady = timed[warmup:]
    epoch_s = median(each.epoch_s for each in steady)
    before_s += sum(max(0.0, each.epoch_s - epoch_s) for each in timed[:warmup])
    computed_s = median(_sum(each, COMPUTED) for each in steady)
    if before_s < SHARE * epoch_s * len(steady) or not computed_s:
        return
    usual_s = {stage: median(each.stages.get(stage, 0.0) for each in steady) for stage in PREPARED}
    usual = {stage: median(_relative(each, stage) for each in steady) for stage in PREPARED}
    least: dict[Stage, float] = dict.fromkeys(PREPARED, math.inf)
    numbers = np.random.default_rng(len(timed)).integers(
        FIRST_UNFORESEEN, LAST_UNFORESEEN, MOST_EPOCHS
    )
    began_s = time.perf_counter()
    for count, number in enumerate(numbers.tolist()):
        if count >= LEAST_EPOCHS and time.perf_counter() - began_s > ENOUGH_S:
            break
        found = train(number)[1]
        least = {
            stage: now
            for stage, before in least.items()
            if (now := min(before, _relative(found, stage))) >= LONGER * usual[stage]
            and (now - usual[stage]) * computed_s >= SHARE * epoch_s
            and found.stages.get(stage, 0.0) >= LONGER * usual_s[stage]
        }
        if not least:
            return
    stages = " ".join(
        f"{PREPARED[stage]} takes {format_si(usual[stage] * computed_s, 's')} in timed epochs, and "
        f"{format_si(least[stage] * computed_s, 's')} in unforeseen ones."
        for stage in least
    )
    raise PluginError(
        f"{label}: its mini-batches were prepared before their epochs began. {stages} "
        f"Draw mini-batches in the epoch that trains on them."
    )


def _relative(digest: Digest, stage: Stage) -> float:
    """Return the time of a stage, relative to the time of the layers."""
    computed_s = _sum(digest, COMPUTED)
    return digest.stages.get(stage, 0.0) / computed_s if computed_s else 0.0


def _sum(digest: Digest, stages: Sequence[Stage]) -> float:
    return sum(digest.stages.get(stage, 0.0) for stage in stages)
