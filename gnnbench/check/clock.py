"""The check of the clock: the mini-batches of an epoch are drawn in it, not before.

Epochs in order and epochs with unforeseeable numbers are drawn alternately, so that other load on
the machine affects both alike.
"""

from __future__ import annotations

import time
from statistics import median

from gnnbench.check import graphs
from gnnbench.check.law import MINI_BATCH, begin_sampler
from gnnbench.check.outcome import NonConformingError, NotApplicableError
from gnnbench.check.subject import Subject
from gnnbench.comparison.ahead import FIRST_UNFORESEEN, LAST_UNFORESEEN
from gnnbench.comparison.left_work import LeftWork
from gnnbench.units import format_si

#: The number of epochs drawn of either kind.
EPOCHS = 9
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
    step = (LAST_UNFORESEEN - FIRST_UNFORESEEN) // EPOCHS
    took_s: tuple[list[float], list[float]] = ([], [])
    for epoch in range(EPOCHS):
        for number, seconds in zip((epoch, LAST_UNFORESEEN - step * epoch), took_s, strict=True):
            with left.at_turn():
                rounds = sampler.rounds(number)
                began_s = time.perf_counter()
                for seeds in rounds:
                    sampler.sample(seeds, number, 0)
                seconds.append(time.perf_counter() - began_s)
    if left.fault:
        raise NonConformingError(f"sampler {sampler.name!r}: {left.fault}")
    # The first epoch of each kind pays for the first calls of libraries.
    usual_s, unforeseen_s = median(took_s[0][1:]), min(took_s[1][1:])
    if unforeseen_s > LONGER * usual_s:
        raise NonConformingError(
            f"sampler {sampler.name!r} draws epochs 1 to {EPOCHS - 1} in {format_si(usual_s, 's')} "
            f"each, and unforeseeable epochs in {format_si(unforeseen_s, 's')}; draw "
            f"mini-batches when they are asked for, not before"
        )
    return f"{EPOCHS} epochs are drawn when they are asked for"
