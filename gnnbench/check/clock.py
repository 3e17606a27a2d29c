"""The check of the clock: the mini-batches of an epoch are drawn in it, not before.

Epochs in order and epochs with unforeseeable numbers are drawn in pairs, so that other load on the
machine affects both alike. Which of a pair is first is random, so that regular load cannot always
meet the same one.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from gnnbench.check import graphs
from gnnbench.check.law import MINI_BATCH, begin_sampler
from gnnbench.check.outcome import NonConformingError, NotApplicableError
from gnnbench.check.subject import Subject
from gnnbench.comparison.ahead import FIRST_UNFORESEEN, LAST_UNFORESEEN
from gnnbench.comparison.left_work import LeftWork
from gnnbench.parts import MiniBatchSampler
from gnnbench.units import format_si

#: The number of epochs drawn of either kind.
EPOCHS = 9
#: How long more unforeseen epochs are drawn if all of the first took longer, which other load may
#: cause, and the pause before each: a thread that has paused is scheduled first.
ENOUGH_S, PAUSE_S = 2.0, 5e-3
#: The vertices of the graph, and the fan-outs: an epoch takes a millisecond or more, so that a
#: thread that draws the next one is still at work when an epoch ends.
VERTICES, FANOUTS = 3_000, (25, 10)
#: How long threads are observed after an epoch: on a busy machine they may start late.
LOOK_S = 5e-2
#: The ratio of unforeseen to usual epoch times above which the usual epochs were drawn ahead.
LONGER = 2.0


def check_clock(subject: Subject) -> str:
    """Check that mini-batches are drawn on request, and that no work continues after an epoch."""
    if MINI_BATCH not in subject.modes or not subject.covers("sampler"):
        raise NotApplicableError("nothing is sampled for a full graph, or by other parts")
    _, _, platform = subject.small(MINI_BATCH)
    dataset, left = graphs.make_long_rows(VERTICES), LeftWork(LOOK_S)
    with left.at_opening():
        sampler = begin_sampler(subject, dataset, platform, FANOUTS)
    random = np.random.default_rng(EPOCHS)
    usual_s: list[float] = []
    unforeseen_s: list[float] = []

    def choose_unforeseen() -> int:
        return int(random.integers(FIRST_UNFORESEEN, LAST_UNFORESEEN))

    for epoch in range(EPOCHS):
        pair = ((epoch, usual_s), (choose_unforeseen(), unforeseen_s))
        for number, seconds in pair if random.random() < 0.5 else reversed(pair):
            seconds.append(_draw(sampler, number, left))
    if left.fault:
        raise NonConformingError(f"sampler {sampler.name!r}: {left.fault}")
    # The first epoch of each kind pays for the first calls of libraries.
    usual, unforeseen = median(usual_s[1:]), min(unforeseen_s[1:])
    began_s = time.perf_counter()
    while unforeseen > LONGER * usual and time.perf_counter() - began_s < ENOUGH_S:
        time.sleep(PAUSE_S)
        unforeseen = min(unforeseen, _draw(sampler, choose_unforeseen(), left))
    if unforeseen > LONGER * usual:
        raise NonConformingError(
            f"sampler {sampler.name!r} draws epochs 1 to {EPOCHS - 1} in {format_si(usual, 's')} "
            f"each, and unforeseeable epochs in {format_si(unforeseen, 's')}; draw "
            f"mini-batches when they are asked for, not before"
        )
    return f"{EPOCHS} epochs are drawn when they are asked for"


def _draw(sampler: MiniBatchSampler, epoch: int, left: LeftWork) -> float:
    """Draw the mini-batches of an epoch; return the seconds that it took."""
    with left.at_turn():
        rounds = sampler.rounds(epoch)
        began_s = time.perf_counter()
        for seeds in rounds:
            sampler.sample(seeds, epoch, 0)
        return time.perf_counter() - began_s
