"""The answer in sentences: who wins each group, by how much and why, and what was not ranked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gnnbench.comparison.ranking import (
    Group,
    Row,
    compare_reaching,
    explain_no_basis,
    find_difference,
    level_of,
    list_level,
    longest_stage,
)
from gnnbench.parts import UNSHUFFLED
from gnnbench.records import Comparison, Provenance
from gnnbench.report.reasons import explain_lead
from gnnbench.statistics import (
    FEWEST_SEEDS,
    NOISY,
    Difference,
    find_seed_interval,
    spread,
)
from gnnbench.units import format_si

_PROVENANCES: tuple[Provenance, ...] = ("measured", "modelled", "quoted")


def summarise(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return who wins each group, and then what was not ranked and why, a sentence each."""
    sentences = [sentence for group in groups for sentence in _summarise_group(group)]
    sentences += _compare_accuracy(groups)
    sentences += _name_unshuffled(groups)
    sentences += _name_stated(groups)
    sentences += _name_idle(groups)
    sentences += _name_left(groups)
    return tuple(sentences)


def describe_noise(comparison: Comparison, groups: Sequence[Group]) -> str:
    """Return a warning if measured epochs vary much, with the cause if it is known; else empty."""
    if comparison.modelled:
        return ""
    spreads = {
        row.label: spread(epoch.samples)
        for group in groups
        for row in group.rows
        if (epoch := row.metric("epoch_time")) is not None
    }
    worst = max(spreads, key=lambda label: spreads[label], default="")
    if comparison.noise and (not worst or spreads[worst] <= NOISY):
        return f"{comparison.noise[0].upper()}{comparison.noise[1:]}."
    if not worst or spreads[worst] <= NOISY:
        return ""
    cause = f": {comparison.noise}" if comparison.noise else ", for no cause that can be seen here"
    return f"Epochs of {worst} vary by {spreads[worst]:.0%} about their median{cause}."


def _summarise_group(group: Group) -> list[str]:
    title = f"{group.title[0].upper()}{group.title[1:]}"
    sentences = []
    for provenance in _PROVENANCES:
        ranked = group.rank(provenance)
        if ranked:
            sentences.append(f"{title}: {_summarise(ranked, provenance)}")
    left_out = [f"{row.label} ({row.why_not})" for row in group.rows if row.done and not row.ranked]
    if left_out:
        sentences.append(f"{title}, not ranked: {'; '.join(left_out)}.")
    unchecked = [
        row.label
        for row in group.rows
        if row.ranked and row.equivalence is None and not row.in_spread
    ]
    if unchecked:
        sentences.append(f"{title}, not checked against the reference: {', '.join(unchecked)}.")
    return sentences


def _summarise(ranked: Sequence[Row], provenance: Provenance) -> str:
    """Return a sentence on which of the rows, sorted by speed, wins."""
    winner, *others = ranked
    epoch = winner.metric("epoch_time")
    if epoch is None:
        raise ValueError("a row that is ranked has an epoch time")
    seconds = f"{format_si(epoch.value, 's')} an epoch [{provenance}]"
    if not others:
        stage = longest_stage(winner)
        busy = f" (the longest stage is {stage[0]}, {format_si(stage[1], 's')})" if stage else ""
        return f"{winner.label} takes {seconds}{busy}; there is no other row to compare it with."
    missing = explain_no_basis(ranked)
    if missing:
        ratio = find_difference(winner, others[0])
        return (
            f"{winner.label} has the shortest modelled epoch, {seconds}, "
            f"{tell_times(ratio, provenance)} as fast as {others[0].label}"
            f"{_tell_devices(winner, others[0])}{explain_lead(winner, others[0])}; "
            f"no winner is named ({missing})."
        )
    level = list_level(ranked)
    if level:
        reasons = [
            found.why_not for row in level if (found := find_difference(winner, row)) is not None
        ]
        hint = next((f" ({reason})" for reason in reasons if reason), "")
        rest = [row for row in others if row not in level]
        slower = f"; slower: {', '.join(row.label for row in rest)}" if rest else ""
        level_rows = _join([winner, *level])
        return (
            f"{winner.label} takes {seconds}; no difference is shown between {level_rows}"
            f"{hint}{slower}."
        )
    runner_up = others[0]
    reason = explain_lead(winner, runner_up)
    return (
        f"{winner.label} is fastest, {seconds}, "
        f"{tell_times(find_difference(winner, runner_up), provenance)} as fast as "
        f"{runner_up.label}"
        f"{_tell_devices(winner, runner_up)}{reason}.{_tell_preparation(winner, runner_up)}"
    )


def _join(rows: Sequence[Row]) -> str:
    *first, last = [row.label for row in rows]
    return f"{', '.join(first)} and {last}"


def tell_times(difference: Difference | None, provenance: Provenance) -> str:
    """Return ``"1.80 times (95 %: 1.74 to 1.86)"``: the ratio, and the interval that decides."""
    if difference is None:
        raise ValueError("rows of one group and provenance can be compared")
    return f"{difference.ratio:.2f} times{tell_interval(difference, provenance)}"


def tell_interval(difference: Difference, provenance: Provenance) -> str:
    """Return ``" (95 %: 1.74 to 1.86)"``; empty without an interval, or if its ends are alike."""
    low, high = f"{difference.low:.2f}", f"{difference.high:.2f}"
    if low == high or high == "inf":
        return ""
    return f" ({100 * level_of(provenance):g} %: {low} to {high})"


def _tell_preparation(winner: Row, other: Row) -> str:
    """Return a sentence on the winner's preparation, and how many epochs make up for it.

    Empty if the preparation took no longer than an epoch, or than the other row's.
    """
    before, others = winner.preparation, other.metric("preprocessing_time")
    ours, theirs = winner.metric("epoch_time"), other.metric("epoch_time")
    if before is None or others is None or ours is None or theirs is None:
        return ""
    epochs = math.ceil((before.value - others.value) / (theirs.value - ours.value))
    if epochs < 1:
        return ""
    return (
        f" Before the first epoch {winner.label} took {format_si(before.value, 's')} and "
        f"{other.label} {format_si(others.value, 's')}: {winner.label} is ahead after "
        f"{epochs:,} {'epoch' if epochs == 1 else 'epochs'}."
    )


def _tell_devices(winner: Row, other: Row) -> str:
    """Return a clause on the numbers of devices if the two rows differ in them."""
    ours, theirs = len(winner.trainers), len(other.trainers)
    if ours == theirs:
        return ""
    return f", with {ours} {'device' if ours == 1 else 'devices'} against {theirs}"


def _compare_accuracy(groups: Sequence[Group]) -> list[str]:
    """Return times to the target accuracy over all groups, which compare unlike work."""
    sentences = []
    for provenance in _PROVENANCES:
        rows = [
            row
            for group in groups
            for row in group.rows
            if row.equivalence is None or row.equivalence.holds
            if row.reached
            and (epoch := row.metric("epoch_time")) is not None
            and epoch.provenance == provenance
        ]
        if not rows:
            continue
        labels = Counter(row.label for row in rows)
        rows = [
            replace(row, label=f"{row.label} ({row.mode})") if labels[row.label] > 1 else row
            for row in rows
        ]
        ranked = sorted((row for row in rows if all(row.reached)), key=_find_reaching_s)
        told = [_tell_reaching(row, provenance) for row in ranked]
        told += [
            f"{row.label} missed it" + ("" if count == 1 else f" with {missed} of {count} seeds")
            for row in rows
            if (missed := row.reached.count(None))
            for count in [len(row.reached)]
        ]
        first = _tell_first(ranked, provenance)
        sentences.append(f"Time to the target accuracy [{provenance}]: {', '.join(told)}{first}.")
    return sentences


def _name_unshuffled(groups: Sequence[Group]) -> list[str]:
    """Name the rows that train the same mini-batches of seeds in every epoch."""
    told = ", ".join(
        row.label
        for group in groups
        for row in group.rows
        if row.work is not None and UNSHUFFLED in row.work.sampling
    )
    if not told:
        return []
    return [f"Seeds are not shuffled, so all epochs have the same mini-batches: {told}."]


def _find_reaching_s(row: Row) -> float:
    metric = row.metric("time_to_accuracy")
    return 0.0 if metric is None else metric.value


def _tell_reaching(row: Row, provenance: Provenance) -> str:
    """Return ``"a 2.50 s (2.10 s to 2.98 s over 3 seeds)"``."""
    times = [metric.value for metric in row.reached if metric is not None]
    told = f"{row.label} {format_si(_find_reaching_s(row), 's')}"
    interval = find_seed_interval(times) if min(times) > 0 else None
    if interval is None:
        return told
    low, high = (format_si(end, "s") for end in interval)
    return f"{told} ({low} to {high} over {len(times)} seeds)"


def _tell_first(ranked: Sequence[Row], provenance: Provenance) -> str:
    """Return a clause on who reaches the target first, by the rule of all verdicts."""
    if len(ranked) < 2:
        return ""
    first, *others = ranked
    found = [(row, compare_reaching(first, row)) for row in others]
    level = [row for row, each in found if each is None or not each.shown or each.ratio <= 1.0]
    if not level:
        return f"; {first.label} is first, {tell_times(found[0][1], provenance)} as fast as " + (
            found[0][0].label
        )
    missing = explain_no_basis((first, *level))
    if missing:
        return f"; none is named as the first ({missing})"
    seeds = min(len(row.reached) for row in (first, *level))
    few = "" if seeds >= FEWEST_SEEDS else f" (ask for --repeats {FEWEST_SEEDS} or more)"
    return f"; no difference is shown between {_join([first, *level])}{few}"


def _name_stated(groups: Sequence[Group]) -> list[str]:
    """Name the rows with modelled times that were never compared with a device."""
    found = [
        f"{row.label} ({', '.join(row.stated)})"
        for group in groups
        for row in group.rows
        if row.stated
    ]
    if not found:
        return []
    return [f"Modelled by costs that plugins state for their parts: {', '.join(found)}."]


def _name_idle(groups: Sequence[Group]) -> list[str]:
    """Name the ideas that had no effect in this run, so that their benefit is unknown."""
    found = [(row.label, idea) for group in groups for row in group.rows for idea in row.idle]
    if not found:
        return []
    told = ", ".join(f"{label}'s {idea}" for label, idea in found)
    return [f"These ideas had no effect in this run, so their benefit is unknown: {told}."]


def _name_left(groups: Sequence[Group]) -> list[str]:
    """Name the rows that changed process settings, which were restored after each turn."""
    rows: dict[str, dict[str, None]] = {}
    for row in (row for group in groups for row in group.rows):
        for run in row.runs:
            rows.setdefault(row.label, {}).update(dict.fromkeys(run.left))
    return [
        f"{label} changed {', '.join(left)}; this was restored after each of its turns, and no "
        f"other row ran with it."
        for label, left in rows.items()
        if left
    ]
