"""Mini-batch training of the reference over several seeds, and the test that a program must pass.

A program draws its own mini-batches, so it equals no other run to the digit. The reference trains
from the same initial parameters with ``SEEDS`` sampling seeds. :func:`find_outside` states the
test.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
from scipy.special import stdtrit

from gnnbench.host.progress import doing
from gnnbench.models import GNN, build
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.run import Training
from gnnbench.run.evaluate import Evaluator
from gnnbench.units import format_si

#: The number of seeds of the reference's spread.
SEEDS = 6
#: Reference seeds are the workload's plus multiples of this, far from those of repeats.
SEED_STEP = 1_000_003
#: The probability that an honest program fails any of the tests of one run.
FALSE_ALARM = 0.01
#: The least deviations that a quantity may have: of the logarithm of a loss, of an accuracy, and of
#: a number of edges relative to their mean.
LEAST_LOSS, LEAST_ACCURACY, LEAST_EDGES = 0.002, 0.002, 0.001
#: The reference's training may take this long in all.
MOST_REFERENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Course:
    """One training: the mean loss of each epoch, final accuracies, and drawn edges by layer.

    ``edges`` are those of an epoch, from the input layer. ``parts`` is the number of processes that
    each draw a part of a mini-batch.
    """

    losses: tuple[float, ...]
    accuracy: Mapping[str, float]
    edges: tuple[int, ...] = ()
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a program beside the reference's; ``least`` is the least deviation."""

    what: str
    own: float
    reference: tuple[float, ...]
    least: float


def find_outside(quantities: Sequence[Quantity]) -> tuple[Quantity, float, float] | None:
    """Return the quantity that is furthest outside the reference's spread, and its interval.

    A quantity lies inside if |own - m| <= t s sqrt(1 + 1/n). m and s are the mean and the standard
    deviation of the reference's n seeds, s at least ``least``. t is the quantile of Student's
    distribution with n - 1 degrees of freedom at 1 - ``FALSE_ALARM`` / (2 q), for q quantities
    (Bonferroni). That is the prediction interval of one more seed. Return None if all lie inside.
    """
    worst: tuple[float, Quantity, float, float] | None = None
    for each in quantities:
        count = len(each.reference)
        t = float(stdtrit(count - 1, 1.0 - FALSE_ALARM / (2 * len(quantities))))
        middle = fmean(each.reference)
        half = t * max(stdev(each.reference), each.least) * math.sqrt(1.0 + 1.0 / count)
        off = abs(each.own - middle) / half
        if not off <= 1.0 and (worst is None or not off <= worst[0]):
            worst = off, each, middle - half, middle + half
    return None if worst is None else worst[1:]


@dataclass(frozen=True, slots=True)
class SpreadFinding:
    """The outcome for a program: its largest loss error, a fault, and what was not verified."""

    error: float = 0.0
    fault: str = ""
    unverified: str = ""


class MiniBatchReference:
    """The reference's courses of one setting, which all programs with it share."""

    def __init__(self, setting: Setting, make_bundle: Callable[[], Bundle]) -> None:
        self._setting, self._make_bundle = setting, make_bundle
        self._courses: list[Course] = []
        self._too_long = ""

    def judge(self, own: Course) -> SpreadFinding:
        """Check a program's losses and accuracies, and its edges if it states them."""
        if not all(map(math.isfinite, own.losses)) or min(own.losses) <= 0:
            return SpreadFinding(math.inf, "a loss of it is not a number above 0")
        courses = self._train()
        if self._too_long:
            return SpreadFinding(unverified=self._too_long)
        found = find_outside(list(_list_quantities(own, courses)))
        means = [fmean(each) for each in zip(*(c.losses for c in courses), strict=True)]
        error = max(abs(a - b) / b for a, b in zip(own.losses, means, strict=True))
        if found is not None:
            each, low, high = found
            return SpreadFinding(
                error,
                f"{each.what} is {each.own:.4g}, and the reference's lies between {low:.4g} and "
                f"{high:.4g} over {len(courses)} seeds",
            )
        if not own.edges:
            return SpreadFinding(
                error,
                unverified="it does not state its edges, so that its sampling law is unverified",
            )
        counts = [self._count_edges(number, own.parts) for number in range(len(courses))]
        outside = find_outside(_list_edges(own, counts))
        if outside is None:
            return SpreadFinding(error)
        each, low, high = outside
        return SpreadFinding(
            error,
            unverified=f"{each.what} are {each.own:,.0f}, and by the law of the reference "
            f"{low:,.0f} to {high:,.0f}",
        )

    def _train(self) -> Sequence[Course]:
        """Return the reference's courses, trained at first use."""
        began_s = time.perf_counter()
        while len(self._courses) < SEEDS and not self._too_long:
            with doing(f"training the reference, seed {len(self._courses) + 1} of {SEEDS}"):
                self._courses.append(self._train_seed(len(self._courses)))
            needed_s = SEEDS * (time.perf_counter() - began_s) / len(self._courses)
            if needed_s > MOST_REFERENCE_S:
                self._too_long = (
                    f"the reference's spread over {SEEDS} seeds would take about "
                    f"{format_si(needed_s, 's')}; ask for fewer epochs to have it checked"
                )
        return self._courses

    def _train_seed(self, number: int) -> Course:
        workload, setting = self._setting.workload, self._change_seed(number)
        begins = build(workload, model=self._setting.model).state_dict()
        bundle = self._make_bundle()
        training = Training(bundle, setting, WallClock())
        training.model.load_state_dict(begins)
        losses = [training.run_epoch(epoch).loss for epoch in range(workload.epochs)]
        _, accuracy = evaluate(setting, bundle, training.model)
        return Course(tuple(losses), accuracy)

    def _change_seed(self, number: int) -> Setting:
        workload = self._setting.workload
        drawn = replace(workload, seed=workload.seed + (number + 1) * SEED_STEP)
        return replace(self._setting, workload=drawn)

    def _count_edges(self, number: int, parts: int) -> tuple[int, ...]:
        """Return the edges that an epoch of a seed draws, by layer from the input.

        Each of the ``parts`` of a mini-batch is drawn for itself.
        """
        sampler, setting = self._make_bundle().sampler, self._change_seed(number)
        assert isinstance(sampler, MiniBatchSampler)
        sampler.begin(setting)
        threads = setting.workload.threads
        counts = [
            [block.num_edges for block in sampler.sample(part, 0, threads)]
            for seeds in sampler.rounds(0)
            for part in np.array_split(seeds, parts)
            if len(part)
        ]
        return tuple(map(sum, zip(*counts, strict=True)))


def evaluate(setting: Setting, bundle: Bundle, model: GNN) -> tuple[float, Mapping[str, float]]:
    """Return the training loss and the accuracies of a model over the whole graph."""
    return Evaluator(setting, bundle.kernel, bundle.memory).evaluate(model)


def _list_quantities(own: Course, courses: Sequence[Course]) -> Sequence[Quantity]:
    """Return the quantities of the loss curve, and the final accuracies."""

    def of_losses(what: str, read: slice) -> Quantity:
        def value(course: Course) -> float:
            return fmean(map(math.log, course.losses[read]))

        return Quantity(what, value(own), tuple(map(value, courses)), LEAST_LOSS)

    found = [
        of_losses("the logarithm of its first loss", slice(0, 1)),
        of_losses("the mean logarithm of its losses", slice(None)),
        of_losses("the logarithm of its last loss", slice(-1, None)),
    ]
    for name, accuracy in own.accuracy.items():
        values = tuple(course.accuracy[name] for course in courses)
        found.append(Quantity(f"its {name} accuracy", accuracy, values, LEAST_ACCURACY))
    return found


def _list_edges(own: Course, counts: Sequence[tuple[int, ...]]) -> list[Quantity]:
    """Return the edges of each layer, those of the seeds' layer last."""
    return [
        Quantity(
            f"its edges in layer {layer}",
            count,
            tuple(map(float, drawn)),
            LEAST_EDGES * fmean(drawn),
        )
        for layer, (count, drawn) in enumerate(
            zip(own.edges, zip(*counts, strict=True), strict=True)
        )
    ]
