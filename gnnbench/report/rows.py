"""A comparison's runs gathered into rows and groups, and the sentence that sums up each group.

A row is one strategy in one mode, its repeats together; a group is one mode, whose rows did the
same work in an epoch. Figures of different provenance are never set against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gnnbench.records import (
    STAGES,
    Comparison,
    Equivalence,
    Metric,
    Mode,
    Provenance,
    RunResult,
    Stage,
)
from gnnbench.units import format_si

MODE_TITLES: dict[Mode, str] = {"full-graph": "full graph", "mini-batch": "mini-batch"}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A speed relative to another row: above 1 is faster. ``low`` and ``high`` span the samples."""

    value: float
    low: float
    high: float

    def format_range(self) -> str:
        """``"0.54-0.57"``, or nothing when the samples agree to what would be printed."""
        low, high = f"{self.low:.2f}", f"{self.high:.2f}"
        return "" if low == high else f"{low}-{high}"


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one label in one mode; ``done`` are those that finished, in order of repeat."""

    label: str
    mode: Mode
    runs: tuple[RunResult, ...]
    done: tuple[RunResult, ...]

    def metric(self, name: str) -> Metric | None:
        """A metric over all finished repeats: the median of their values, and every sample."""
        return _pool([run.metrics[name] for run in self.done if name in run.metrics])

    def stage(self, stage: Stage) -> Metric | None:
        """Seconds of a stage over all finished repeats."""
        return _pool([run.stages[stage] for run in self.done if stage in run.stages])

    def sum_metrics(self, *names: str) -> Metric | None:
        """The sum of metrics of one unit; None when none is there, or their provenance differs."""
        found = [metric for name in names if (metric := self.metric(name)) is not None]
        if not found or len({metric.provenance for metric in found}) > 1:
            return None
        total = sum(metric.value for metric in found)
        return Metric(total, found[0].unit, found[0].provenance)

    @property
    def final_loss(self) -> float | None:
        """Loss of the last epoch of the first finished repeat."""
        return self.done[0].loss[-1] if self.done and self.done[0].loss else None

    @property
    def test_accuracy(self) -> float | None:
        return self.done[0].accuracy.get("test") if self.done else None

    @property
    def equivalence(self) -> Equivalence | None:
        """The worst of the finished repeats; one that is not a number is worse than any."""
        checked = [run.equivalence for run in self.done if run.equivalence is not None]
        return max(checked, key=_badness, default=None)

    @property
    def failures(self) -> tuple[str, ...]:
        """``"status: reason"`` of every run that did not finish, each sentence once.

        A reason that starts with the row's own label loses it: it stands beside it.
        """
        sentences = (
            f"{run.status}: {run.reason.removeprefix(f'{run.label}: ')}"
            if run.reason
            else run.status
            for run in self.runs
            if run.status != "done"
        )
        return tuple(dict.fromkeys(sentences))

    @property
    def trainers(self) -> tuple[str, ...]:
        """The devices that aggregated or updated in the last epoch of the first finished repeat."""
        spans = [item.span for run in self.done[:1] for item in run.timeline]
        places = {span.place for span in spans if span.stage in ("aggregate", "update")}
        return tuple(sorted(places, key=_by_number))

    @property
    def ranked(self) -> bool:
        """Whether this row may win: it finished, and does not compute something else, neither by
        design nor as was found."""
        equivalence = self.equivalence
        return (
            bool(self.done) and not self.other_maths and (equivalence is None or equivalence.holds)
        )

    @property
    def other_maths(self) -> str:
        """By which design the maths differ from the reference's; empty where they do not."""
        return next((run.other_maths for run in self.done), "")


def _by_number(name: str) -> tuple[str, int]:
    """Sorts gpu10 after gpu9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def list_devices(names: Sequence[str]) -> str:
    """``"gpu0-gpu3, host"``: devices numbered one after the other as a range."""
    runs: list[list[str]] = []
    for name in names:
        stem, number = _by_number(name)
        if runs and _by_number(runs[-1][-1]) == (stem, number - 1):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _badness(equivalence: Equivalence) -> float:
    error = equivalence.max_relative_loss_error
    return error if error == error else float("inf")


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one mode."""

    mode: Mode
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return MODE_TITLES[self.mode]

    def base(self, provenance: Provenance) -> Row | None:
        """The first finished row whose epoch time has this provenance: what ratios refer to."""
        for row in self.rows:
            epoch = row.metric("epoch_time")
            if epoch is not None and epoch.provenance == provenance:
                return row
        return None

    def ratio(self, row: Row) -> Ratio | None:
        """How fast ``row`` is against the group's base of the same provenance."""
        epoch = row.metric("epoch_time")
        if epoch is None:
            return None
        base = self.base(epoch.provenance)
        base_epoch = base.metric("epoch_time") if base is not None else None
        return speed_ratio(epoch, base_epoch) if base_epoch is not None else None


def group_runs(comparison: Comparison) -> tuple[Group, ...]:
    """Full graph first, then mini-batch; rows in the order they ran."""
    groups = []
    for mode in MODE_TITLES:
        runs = [run for run in comparison.runs if run.mode == mode]
        labels = dict.fromkeys(run.label for run in runs)
        rows = tuple(_make_row(label, mode, runs) for label in labels)
        if rows:
            groups.append(Group(mode, rows))
    return tuple(groups)


def _make_row(label: str, mode: Mode, runs: Sequence[RunResult]) -> Row:
    own = tuple(run for run in runs if run.label == label)
    return Row(label, mode, own, tuple(run for run in own if run.status == "done"))


def _pool(metrics: Sequence[Metric]) -> Metric | None:
    """One metric out of several repeats'; None when there is none, or their provenance differs."""
    if not metrics or len({metric.provenance for metric in metrics}) > 1:
        return None
    samples = tuple(v for metric in metrics for v in (metric.samples or (metric.value,)))
    value = float(median(metric.value for metric in metrics))
    return Metric(value, metrics[0].unit, metrics[0].provenance, samples)


def speed_ratio(time: Metric, base: Metric) -> Ratio | None:
    """base / time, with its range: sample by sample where both have as many, else the extremes."""
    ours, theirs = time.samples or (time.value,), base.samples or (base.value,)
    if min(time.value, base.value, *ours, *theirs) <= 0:
        return None
    if len(ours) == len(theirs):
        quotients = [b / a for a, b in zip(ours, theirs, strict=True)]
    else:
        quotients = [min(theirs) / max(ours), max(theirs) / min(ours)]
    value = base.value / time.value
    return Ratio(value, min(value, *quotients), max(value, *quotients))


def summarise(group: Group) -> tuple[str, ...]:
    """Who wins the group, by how much and through which stage; one sentence per provenance.

    Rows that are not equal to the reference are not ranked. Where the samples of the two best rows
    overlap, the sentence says that it is no clear win.
    """
    sentences = []
    for provenance in ("measured", "modelled", "quoted"):
        timed = [
            (epoch, row)
            for row in group.rows
            if row.ranked
            and (epoch := row.metric("epoch_time")) is not None
            and epoch.provenance == provenance
        ]
        if timed:
            sentences.append(_summarise(group, sorted(timed, key=lambda pair: pair[0].value)))
    others = [row for row in group.rows if row.other_maths]
    if others:
        reasons = ", ".join(dict.fromkeys(row.other_maths for row in others))
        names = ", ".join(row.label for row in others)
        sentences.append(f"{group.title}: not ranked, for other maths ({reasons}): {names}.")
    unequal = [
        row.label for row in group.rows if row.done and not row.ranked and not row.other_maths
    ]
    if unequal:
        names = ", ".join(unequal)
        sentences.append(f"{group.title}: not ranked, for unequal losses: {names}.")
    return tuple(sentences)


def _summarise(group: Group, timed: list[tuple[Metric, Row]]) -> str:
    epoch, winner = timed[0]
    seconds = f"{format_si(epoch.value, 's')} an epoch [{epoch.provenance}]"
    longest = longest_stage(winner)
    busy = f"; its longest stage is {longest[0]}, {format_si(longest[1], 's')}" if longest else ""
    if len(timed) == 1:
        return f"{group.title}: {winner.label} takes {seconds}{busy}."
    next_epoch, runner_up = timed[1]
    ratio = speed_ratio(epoch, next_epoch)
    if ratio is None:
        return f"{group.title}: {winner.label} takes {seconds}{busy}."
    if _is_level(ratio):
        level = [row.label for metric, row in timed[1:] if _is_level(speed_ratio(epoch, metric))]
        return (
            f"{group.title}: {', '.join([winner.label, *level[:-1]])} and {level[-1]} are level "
            f"within the spread of their epochs, {seconds}{busy.replace('its', 'the')}."
        )
    gap = widest_gap(winner, runner_up)
    return (
        f"{group.title}: {winner.label} is fastest, {seconds}, {ratio.value:.2f} times as fast as "
        f"{runner_up.label}{gap}{busy}."
    )


def _is_level(ratio: Ratio | None) -> bool:
    """Whether a row is as fast as the one it is compared with, as far as can be told."""
    return ratio is not None and (f"{ratio.value:.2f}" == "1.00" or ratio.low < 1.0)


def longest_stage(row: Row) -> tuple[Stage, float] | None:
    """The stage with the most busy seconds; None when no stage took any time."""
    times = [(s, metric.value) for s in STAGES if (metric := row.stage(s)) is not None]
    best = max(times, key=lambda pair: pair[1], default=None)
    return best if best is not None and best[1] > 0 else None


def widest_gap(winner: Row, loser: Row) -> str:
    """Where the winner saves the most, as a clause: a stage, or running stages side by side.

    Stages are busy seconds. Where none shrinks by as much as a twentieth of what the epoch gained,
    the gain is in how much of them overlaps, or in how evenly devices share them. Empty where no
    stage of the two differs in what is printed.
    """
    gaps = []
    for stage in STAGES:
        ours, theirs = winner.stage(stage), loser.stage(stage)
        if ours is None and theirs is None:
            continue
        if ours is not None and theirs is not None and ours.provenance != theirs.provenance:
            continue
        spent, other = (metric.value if metric else 0.0 for metric in (ours, theirs))
        gaps.append((other - spent, stage, spent, other))
    if not gaps:
        return ""
    gain, stage, spent, other = max(gaps)
    won, lost = winner.metric("epoch_time"), loser.metric("epoch_time")
    if won is not None and lost is not None and gain < 0.05 * (lost.value - won.value):
        return " (no stage is much shorter: its stages overlap more)"
    if format_si(spent, "s") == format_si(other, "s"):
        return ""
    return f" (the widest gap is {stage}, {format_si(spent, 's')} against {format_si(other, 's')})"
