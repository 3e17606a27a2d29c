"""The changes to a model's assumptions that would make it agree with a paper.

A study provides the model behind its table, of any type ``M``. It lists the predicted quantities
(:class:`Quantity`), and the model's assumptions (:class:`Assumption`), each of which can be scaled
alone. For a quantity far from the paper's, :func:`find_remedies` finds the factor of every
assumption, nearest 1, that brings it there, and the effect on other quantities.
:func:`find_contradictions` turns them into lines and sentences under the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from gnnbench.records import Contradiction
from gnnbench.reproduce.agreement import CLOSE, format_share
from gnnbench.units import format_si

#: A study's model. Records of it have no slots: ``Quantity[Model](...)`` fails with them.
M = TypeVar("M")

#: The largest factor by which an assumption is multiplied or divided.
WIDEST = 64.0
#: The relative precision of the bisection's value and of its interval.
PRECISION = 1e-3
#: Quantities that move by less than this share are not listed.
STILL = 0.01
#: The number of listed assumptions, those that would have to change least first.
LISTED = 3


@dataclass(frozen=True)
class Quantity(Generic[M]):
    """One prediction of a model, such as the seconds of an epoch, and the paper's number for it.

    ``quoted`` is None if the paper has none.
    """

    label: str
    predict: Callable[[M], float]
    quoted: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Assumption(Generic[M]):
    """A number that a model rests on.

    ``scale`` returns the model with only this number multiplied by a factor; ``source`` is the
    source of the ``stated`` value.
    """

    label: str
    stated: float
    unit: str
    source: str
    scale: Callable[[M, float], M]


def scale_field(name: str) -> Callable[[M, float], M]:
    """Return a function that scales a field of a dataclass.

    A dotted name is the field of a dataclass in it. An int stays whole, and at least 1.
    """

    def scale(model: M, factor: float) -> M:
        own, _, inner = name.partition(".")
        value = getattr(model, own)
        if inner:
            scaled = scale_field(inner)(value, factor)
        else:
            scaled = max(1, round(factor * value)) if isinstance(value, int) else factor * value
        return replace(model, **{own: scaled})  # type: ignore[type-var]

    return scale


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of a changed assumption on another quantity."""

    label: str
    before: float
    after: float
    quoted: float | None
    unit: str

    @property
    def share(self) -> float:
        """The relative change."""
        return (self.after - self.before) / self.before if self.before else math.inf


@dataclass(frozen=True)
class Remedy(Generic[M]):
    """A factor: ``assumption`` times ``factor`` brings a quantity to the paper's number.

    It moves other quantities, too. ``factor`` is None if no factor from 1/WIDEST to WIDEST does;
    ``nearest`` is then the closest value of the quantity.
    """

    assumption: Assumption[M]
    factor: float | None
    nearest: float
    moves: tuple[Move, ...] = ()


def find_factor(predict: Callable[[float], float], target: float) -> tuple[float | None, float]:
    """Return the factor nearest 1 at which ``predict`` gives ``target``, and its value there.

    Factors are doubled and halved away from 1 until ``target`` lies between two of them, and that
    interval is bisected. Return (None, the nearest value seen) if that fails up to ``WIDEST``.
    """
    at_one = predict(1.0)
    nearest = at_one
    ends = {1: (1.0, at_one), -1: (1.0, at_one)}
    steps = round(math.log2(WIDEST))
    for step in range(1, steps + 1):
        for way in (1, -1):
            factor = 2.0 ** (way * step)
            value = predict(factor)
            nearest = min(nearest, value, key=lambda each: abs(each - target))
            if (value - target) * (ends[way][1] - target) <= 0:
                return _bisect(predict, target, ends[way], (factor, value))
            ends[way] = factor, value
    return None, nearest


def _bisect(
    predict: Callable[[float], float],
    target: float,
    low: tuple[float, float],
    high: tuple[float, float],
) -> tuple[float, float]:
    """Bisect between two factors with their values, one on either side of ``target``."""
    while abs(math.log(high[0] / low[0])) > PRECISION:
        middle = math.sqrt(low[0] * high[0])
        value = predict(middle)
        if abs(value - target) <= PRECISION * abs(target):
            return middle, value
        if (value - target) * (low[1] - target) <= 0:
            high = middle, value
        else:
            low = middle, value
    return min(low, high, key=lambda each: abs(each[1] - target))


def find_remedies(
    model: M,
    quantity: Quantity[M],
    assumptions: Sequence[Assumption[M]],
    others: Sequence[Quantity[M]] = (),
) -> tuple[Remedy[M], ...]:
    """Return the change of each assumption that brings ``quantity`` to the paper's number.

    Each has its effect on ``others``. The smallest change comes first; assumptions that cannot
    bring ``quantity`` there come last.
    """
    if quantity.quoted is None:
        raise ValueError(f"{quantity.label} has no number in the paper to be brought to")
    remedies = []
    for assumption in assumptions:

        def predict_at(factor: float, assumption: Assumption[M] = assumption) -> float:
            return quantity.predict(assumption.scale(model, factor))

        factor, nearest = find_factor(predict_at, quantity.quoted)
        moves: tuple[Move, ...] = ()
        if factor is not None:
            changed = assumption.scale(model, factor)
            moves = tuple(
                Move(each.label, each.predict(model), each.predict(changed), each.quoted, each.unit)
                for each in others
                if each.label != quantity.label
            )
        remedies.append(Remedy(assumption, factor, nearest, moves))
    return tuple(
        sorted(
            remedies,
            key=lambda each: math.inf if each.factor is None else abs(math.log(each.factor)),
        )
    )


def find_contradictions(
    model: M,
    quantities: Sequence[Quantity[M]],
    assumptions: Sequence[Assumption[M]],
    others: Sequence[Quantity[M]] = (),
    *,
    tolerance: float = CLOSE,
) -> tuple[Contradiction, ...]:
    """Return remedies for each quantity that is off by more than ``tolerance``.

    A remedy changes one assumption to bring the quantity to the paper's number, and has its effect
    on ``others``.
    """
    return tuple(_contradictions(model, quantities, assumptions, others, tolerance))


def _contradictions(
    model: M,
    quantities: Sequence[Quantity[M]],
    assumptions: Sequence[Assumption[M]],
    others: Sequence[Quantity[M]],
    tolerance: float,
) -> Iterator[Contradiction]:
    for quantity in quantities:
        value = quantity.predict(model)
        if not quantity.quoted or abs(value / quantity.quoted - 1.0) <= tolerance:
            continue
        remedies = find_remedies(model, quantity, assumptions, others)
        show = partial(_format, unit=quantity.unit)
        yield Contradiction(
            quantity.label,
            show(value),
            show(quantity.quoted),
            _describe_nearest(remedies),
            f"{quantity.label} is {show(value)} for {show(quantity.quoted)}; "
            f"{_describe(remedies, show)}",
        )


def _describe_nearest(remedies: Sequence[Remedy[M]]) -> str:
    """Describe the assumption that would have to change least, in a few words."""
    if not remedies:
        return "rests on no assumption that can be scaled"
    assumption, factor = remedies[0].assumption, remedies[0].factor
    if factor is None:
        return f"no single assumption, up to {WIDEST:g} times larger or smaller"
    return f"{assumption.label} {factor:.2g} times as large: {_show_change(assumption, factor)}"


def _show_change(assumption: Assumption[M], factor: float) -> str:
    stated = _format(assumption.stated, assumption.unit)
    needed = _format(assumption.stated * factor, assumption.unit)
    return f"{needed} for {stated}"


def _describe(remedies: Sequence[Remedy[M]], show: Callable[[float], str]) -> str:
    found = [each for each in remedies if each.factor is not None]
    if found:
        text = "; or ".join(_describe_remedy(each) for each in found[:LISTED])
        others = len(remedies) - len(found)
        return text + (f"; of {others} others none does alone" if others else "")
    if not remedies:
        return "it rests on no assumption that can be scaled"
    nearest = ", ".join(f"{each.assumption.label} ({show(each.nearest)})" for each in remedies)
    return (
        f"no single assumption brings it there, up to {WIDEST:g} times larger or smaller; the "
        f"nearest by each: {nearest}"
    )


def _describe_remedy(remedy: Remedy[M]) -> str:
    assumption, factor = remedy.assumption, remedy.factor or 1.0
    text = (
        f"{assumption.label} {factor:.2g} times as large would bring it there, "
        f"{_show_change(assumption, factor)} ({assumption.source})"
    )
    moved = [move for move in remedy.moves if abs(move.share) >= STILL]
    if not remedy.moves:
        return text
    if not moved:
        return f"{text}, and moves nothing else of the {len(remedy.moves)} numbers held beside it"
    return f"{text}, and moves {', '.join(map(_describe_move, moved))}"


def _describe_move(move: Move) -> str:
    text = (
        f"{move.label} from {_format(move.before, move.unit)} to {_format(move.after, move.unit)}"
    )
    if not move.quoted:
        return text
    error = move.after / move.quoted - 1.0
    sign = "+" if error > 0 else "-"
    return f"{text} (paper {_format(move.quoted, move.unit)}, {sign}{format_share(abs(error))})"


def _format(value: float, unit: str) -> str:
    """Format ratios, shares and counts without prefixes, quantities with prefixes."""
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "%":
        return f"{value:.0f} %"
    if unit == "":
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return format_si(value, unit)
