"""The sentences of advice."""

from __future__ import annotations

from collections.abc import Sequence

from gnnbench.advice.pricing import LINK_METRICS, read_metric
from gnnbench.advice.search import Final
from gnnbench.comparison.ranking import find_difference, make_row
from gnnbench.comparison.request import PlannedRow
from gnnbench.records import RunResult
from gnnbench.report.reasons import explain_lead
from gnnbench.report.verdict import tell_times
from gnnbench.units import format_si

#: Modelled times that differ by less than this share count as equal.
SAME = 0.005


def describe_row(row: PlannedRow) -> str:
    """Name a combination and its settings."""
    settings = " ".join(f"{kind}.{name}={text}" for kind, name, text in row.options)
    return f"{row.label} with {settings}" if settings else row.label


def explain_choice(final: Final, base: Final | None, finals: Sequence[Final]) -> str:
    """Explain a choice against the best unchanged strategy, or that one against the next best."""
    if base is not None and not is_same(final, base):
        return compare_rows(final, base, "as it comes")
    others = [each for each in finals if not is_same(each, final)]
    if not others:
        return "It is the only one that was planned to the end."
    return compare_rows(final, others[0], "")


def is_same(one: Final, other: Final) -> bool:
    """Return whether two results have equal parts and options."""
    return one[0].parts == other[0].parts and one[0].options == other[0].options


def compare_rows(final: Final, other: Final, note: str) -> str:
    """Tell in sentences the speedup, its causes, and whether it is shown."""
    (row, run), (base_row, base) = final, other
    ours, theirs = read_metric(run, "epoch_time"), read_metric(base, "epoch_time")
    ratio = theirs / ours if ours else 1.0
    named = describe_row(base_row) + (f" {note}" if note else "")
    moved, before = read_metric(run, *LINK_METRICS), read_metric(base, *LINK_METRICS)
    links = f"{format_si(moved, 'B')} over links against {format_si(before, 'B')}"
    if abs(ratio - 1.0) <= SAME:
        return f"It takes as long as {named}, and moves {links}."
    rows = make_row(run.label, row.mode, [run]), make_row(base.label, row.mode, [base])
    found, gap = find_difference(*rows), explain_lead(*rows)
    told = f"{ratio:.2f} times" if found is None else tell_times(found, "modelled")
    doubt = "" if found is None or found.shown else "; a difference is not shown"
    return f"It is {told} as fast as {named}{gap}, and moves {links}{doubt}."


def explain_unfit(run: RunResult) -> str:
    """Explain why a strategy does not fit."""
    return run.reason if run.reason.endswith(".") else f"{run.reason}."


def tell_variation(what: str, before: Final, after: Final | None) -> str:
    """Tell the best choice if one thing were different."""
    what = what if what.endswith(",") else f"{what},"
    if after is None:
        return f"{what} no combination fits."
    epoch_s = read_metric(after[1], "epoch_time")
    same = is_same(before, after)
    best = "the same" if same else describe_row(after[0])
    if before[0].mode == "mini-batch":
        # A few rounds were planned, not an epoch.
        return f"{what} {best}."
    return f"{what} {best}, {format_si(epoch_s, 's')} an epoch."
