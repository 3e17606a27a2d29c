"""Which runs may be ranked together, and how much faster one is than another.

A row is one strategy in one mode, with all its repeats. A group's rows did the same work in an
epoch: the same mode, updates, seeds, and sampling law. Only rows of a group are compared by their
epochs. Figures of different provenance are never compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gnnbench.parts import UNIFORM, UNSHUFFLED
from gnnbench.price.metrics import YARDSTICK
from gnnbench.price.model_error import (
    COVERAGE,
    DEVIATIONS,
    describe_errors,
    error_of,
    find_run_path,
)
from gnnbench.records import (
    STAGES,
    Comparison,
    EpochWork,
    Equivalence,
    Metric,
    Mode,
    PartKind,
    PathKind,
    Provenance,
    RunResult,
    Stage,
)
from gnnbench.statistics import (
    CONFIDENCE,
    Difference,
    compare_pairs,
    compare_samples,
    compare_seeds,
)

MODE_TITLES: dict[Mode, str] = {"full-graph": "full graph", "mini-batch": "mini-batch"}
#: The stages that two rows do differently if they have another part of a kind. If other devices
#: train, the stages of the placement differ too.
STAGES_OF: Mapping[PartKind, tuple[Stage, ...]] = {
    "sampler": ("sample",),
    "placement": ("aggregate", "update", "recompute", "synchronize"),
    "communication": ("transfer", "synchronize"),
    "memory": ("load", "recompute", "offload"),
    "kernel": ("aggregate", "update", "recompute"),
}
#: The common properties of a group's rows: the mode, and ``EpochWork.alike``.
Kind = tuple[Mode, tuple[int, int, str, tuple[tuple[int, int], ...]]]


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one label in one mode; ``done`` are the finished ones, in order of repeat."""

    label: str
    mode: Mode
    runs: tuple[RunResult, ...]
    done: tuple[RunResult, ...]

    def metric(self, name: str) -> Metric | None:
        """Return a metric over all finished repeats: the median of values, and every sample."""
        return _pool([run.metrics[name] for run in self.done if name in run.metrics])

    def stage(self, stage: Stage) -> Metric | None:
        """Return the seconds of a stage over all finished repeats."""
        return _pool([run.stages[stage] for run in self.done if stage in run.stages])

    def sum_metrics(self, *names: str) -> Metric | None:
        """Return the sum of metrics of one unit; None if there are none or provenance differs."""
        found = [metric for name in names if (metric := self.metric(name)) is not None]
        if not found or len({metric.provenance for metric in found}) > 1:
            return None
        total = sum(metric.value for metric in found)
        return Metric(total, found[0].unit, found[0].provenance)

    @property
    def preparation(self) -> Metric | None:
        """The time before its first epoch, if that is longer than a measured epoch."""
        before, epoch = self.metric("preprocessing_time"), self.metric("epoch_time")
        if before is None or epoch is None or epoch.provenance != before.provenance:
            return None
        return before if before.value > epoch.value else None

    @property
    def reached(self) -> tuple[Metric | None, ...]:
        """The time to the target accuracy of each finished repeat that had a target.

        It is None for a repeat that missed the target.
        """
        asked = [run for run in self.done if run.target_accuracy is not None]
        return tuple(run.metrics.get("time_to_accuracy") for run in asked)

    @property
    def final_loss(self) -> float | None:
        """The loss of the last epoch of the first finished repeat."""
        return self.done[0].loss[-1] if self.done and self.done[0].loss else None

    @property
    def test_accuracy(self) -> float | None:
        """The test accuracy of the first repeat that is done, or None."""
        return self.done[0].accuracy.get("test") if self.done else None

    @property
    def equivalence(self) -> Equivalence | None:
        """The worst of the finished repeats: a faulty one, or the one that is furthest off."""
        checked = [run.equivalence for run in self.done if run.equivalence is not None]
        return max(checked, key=_badness, default=None)

    @property
    def failures(self) -> tuple[str, ...]:
        """``"status: reason"`` of every run that did not finish, each sentence once.

        A reason that starts with the row's own label loses the label, which is shown beside it.
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
        """The devices that trained in the first finished repeat."""
        return self.work.devices if self.work is not None else ()

    @property
    def why_not(self) -> str:
        """Why this row may not win, in a few words; empty if it may.

        It did not finish, its maths differ by design or by a fault, or its repeats differ.
        """
        if not self.done:
            return next((run.status for run in self.runs), "did not run")
        equivalence = self.equivalence
        if equivalence is not None and not equivalence.holds:
            return f"not equal to the reference: {equivalence.fault}"
        if len({run.work.alike for run in self.done if run.work is not None}) > 1:
            return "its repeats did other work"
        unverified = next((run.unverified for run in self.done if run.unverified), "")
        if unverified:
            return unverified
        return f"{self.other_maths}: other maths" if self.other_maths else ""

    @property
    def ranked(self) -> bool:
        """Whether this row may win."""
        return not self.why_not

    @property
    def work(self) -> EpochWork | None:
        """The work of an epoch of the first finished repeat."""
        return next((run.work for run in self.done), None)

    @property
    def in_spread(self) -> bool:
        """Whether it is a program whose finished repeats lie inside the reference's spread."""
        return bool(self.done) and all(run.spread_seeds for run in self.done)

    @property
    def idle(self) -> tuple[str, ...]:
        """Ideas of the row that had no effect in its runs, each a clause."""
        return tuple(dict.fromkeys(clause for run in self.done for clause in run.idle))

    @property
    def stated(self) -> tuple[str, ...]:
        """The parts that its modelled times take on trust, each by kind and name."""
        return next((run.stated for run in self.done), ())

    @property
    def other_maths(self) -> str:
        """The design that makes the maths differ from the reference's; empty if they do not."""
        return next((run.other_maths for run in self.done), "")


def _by_number(name: str) -> tuple[str, int]:
    """Return a sort key that puts gpu10 after gpu9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def list_devices(names: Sequence[str]) -> str:
    """Return names with consecutive devices as a range, such as ``"gpu0-gpu3, host"``."""
    runs: list[list[str]] = []
    for name in names:
        stem, number = _by_number(name)
        if runs and _by_number(runs[-1][-1]) == (stem, number - 1):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _badness(equivalence: Equivalence) -> tuple[bool, float]:
    return not equivalence.holds, equivalence.max_relative_loss_error


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that did the same work in an epoch.

    ``main`` is the largest group of its mode. The other groups sample by another law, or make other
    updates.
    """

    mode: Mode
    rows: tuple[Row, ...]
    main: bool = True

    @property
    def title(self) -> str:
        """``"mini-batch"``, or the difference of the group from the main one of its mode."""
        work = next((row.work for row in self.rows if row.work is not None), None)
        if self.main or work is None:
            return MODE_TITLES[self.mode]
        updates = "1 update" if work.updates == 1 else f"{work.updates:,} updates"
        if work.different:
            least, most = (found(count for count, _ in work.different) for found in (min, max))
            updates += f" on average, {least:,} to {most:,},"
        return (
            f"{MODE_TITLES[self.mode]}, other work ({work.sampling}; {updates} from "
            f"{work.seeds:,} seeds an epoch)"
        )

    def base(self, provenance: Provenance) -> Row | None:
        """Return the row that ratios refer to.

        It is the first row that may win with epoch times of this provenance, or else the first
        finished row.
        """
        timed = [
            row
            for row in self.rows
            if (epoch := row.metric("epoch_time")) is not None and epoch.provenance == provenance
        ]
        return next((row for row in timed if row.ranked), timed[0] if timed else None)

    def ratio(self, row: Row) -> Difference | None:
        """Return how fast ``row`` is against the group's base of the same provenance.

        Return None for a row that computes wrong results, since its speed counts for nothing.
        """
        if row.equivalence is not None and not row.equivalence.holds:
            return None
        epoch = row.metric("epoch_time")
        base = None if epoch is None else self.base(epoch.provenance)
        return None if base is None else find_difference(row, base)

    def rank(self, provenance: Provenance) -> list[Row]:
        """Return the rows that may win with times of this provenance, the fastest first."""
        timed = [
            (epoch.value, row)
            for row in self.rows
            if row.ranked
            and (epoch := row.metric("epoch_time")) is not None
            and epoch.provenance == provenance
        ]
        return [row for _, row in sorted(timed, key=lambda pair: pair[0])]


def find_winner(ranked: Sequence[Row]) -> Row | None:
    """Return the fastest row if it is shown to be faster than every other row, else None.

    ``ranked`` are rows that may win, the fastest first; a lone row does not win.
    """
    return ranked[0] if len(ranked) > 1 and not list_level(ranked) else None


def list_level(ranked: Sequence[Row]) -> list[Row]:
    """Return the rows that the first, which is the fastest, is not shown to be faster than."""
    return [row for row in ranked[1:] if not is_faster(ranked[0], row)]


def is_faster(row: Row, other: Row) -> bool:
    """Return whether a row is shown to be faster than another, by ``Difference.shown``."""
    found = find_difference(row, other)
    return found is not None and found.shown and found.ratio > 1.0


def group_runs(comparison: Comparison) -> tuple[Group, ...]:
    """Return the groups: full graph before mini-batch, and the main group of each mode first.

    The main group has uniform sampling, or else most rows. Rows are in the order in which they ran;
    rows that did no work are in the main group.
    """
    return group_results(comparison.runs)


def group_results(results: Sequence[RunResult]) -> tuple[Group, ...]:
    """Return the groups of runs with the same setting, as :func:`group_runs`."""
    groups = []
    for mode in MODE_TITLES:
        runs = [run for run in results if run.mode == mode]
        labels = dict.fromkeys(run.label for run in runs)
        rows = [make_row(label, mode, runs) for label in labels]
        kinds = [_kind_of(row) for row in rows]
        counted = Counter(kind for kind in kinds if kind is not None)
        sound = {kind for row, kind in zip(rows, kinds, strict=True) if row.ranked}
        main = max(
            counted,
            key=lambda kind: (
                kind in sound,
                UNIFORM in kind[1][2],
                UNSHUFFLED not in kind[1][2],
                not kind[1][3],
                counted[kind],
            ),
            default=None,
        )
        for kind in (main, *[other for other in counted if other != main]):
            own = [
                row
                for row, its in zip(rows, kinds, strict=True)
                if its == kind or (its is None and kind == main)
            ]
            if own:
                groups.append(Group(mode, tuple(own), kind == main))
    return tuple(groups)


def _kind_of(row: Row) -> Kind | None:
    work = row.work
    return None if work is None else (row.mode, work.alike)


def make_row(label: str, mode: Mode, runs: Sequence[RunResult]) -> Row:
    """Return the row of a label from the runs of its mode."""
    own = tuple(run for run in runs if run.label == label)
    return Row(label, mode, own, tuple(run for run in own if run.status == "done"))


def _pool(metrics: Sequence[Metric]) -> Metric | None:
    """Merge one metric of several repeats: the median of their values, and all samples."""
    if not metrics or len({metric.provenance for metric in metrics}) > 1:
        return None
    samples = tuple(v for metric in metrics for v in (metric.steady or (metric.value,)))
    value = float(median(metric.value for metric in metrics))
    first = metrics[0]
    return Metric(value, first.unit, first.provenance, samples, error_factor=first.error_factor)


def find_difference(row: Row, base: Row) -> Difference | None:
    """Return how fast a row is against another, above 1 if it is faster.

    Return None if their epochs cannot be compared. The interval of measured epochs holds the ratio
    with ``statistics.CONFIDENCE``. The interval of modelled epochs is the range over epochs,
    widened by the model's own error (:func:`find_doubt`) with ``model_error.COVERAGE``.
    """
    ours, theirs = row.metric("epoch_time"), base.metric("epoch_time")
    if ours is None or theirs is None or ours.provenance != theirs.provenance:
        return None
    if min(ours.value, theirs.value, *ours.samples, *theirs.samples) <= 0:
        return None
    ratio, pairs = theirs.value / ours.value, _pair_samples(row, base)
    if ours.provenance != "measured":
        ratios = [b / a for a, b in pairs] or [ratio]
        return _doubt_range(Difference(ratio, min(ratios), max(ratios)).about(ratio), row, base)
    if pairs:
        found = compare_pairs([a for a, _ in pairs], [b for _, b in pairs])
    else:
        found = compare_samples(ours.samples, theirs.samples, _find_paces(row, base))
    return found.about(ratio)


def _doubt_range(found: Difference, row: Row, base: Row) -> Difference:
    """Widen the range over modelled epochs by the model's own error.

    Without a basis for that error, nothing is shown.
    """
    doubt = find_doubt(row, base)
    if doubt is None:
        return replace(found, low=0.0, high=math.inf, why_not=explain_no_basis((row, base)))
    wide = replace(found, low=found.low / doubt, high=found.high * doubt)
    if wide.shown or not found.shown:
        return wide
    apart = max(found.ratio, 1.0 / found.ratio)
    told = f"the modelled ratio is {apart:.2f}x; its error is up to a factor of {doubt:.2f}"
    return replace(wide, why_not=told)


def _find_paces(row: Row, base: Row) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the yardstick's seconds beside each sample of two rows; None if some are missing."""
    found = [
        tuple(
            pace
            for run in each.done
            if YARDSTICK in run.metrics
            for pace in run.metrics[YARDSTICK].samples[run.metrics["epoch_time"].warmup :]
        )
        for each in (row, base)
    ]
    for paces, each in zip(found, (row, base), strict=True):
        epoch = each.metric("epoch_time")
        if epoch is None or len(paces) != len(epoch.samples) or min(paces) <= 0:
            return None
    return found[0], found[1]


def compare_reaching(row: Row, base: Row) -> Difference | None:
    """Return how fast a row reaches the target accuracy against another, seed by seed.

    Return None if a seed of one of them missed it, or if their provenance differs.
    """
    if [run.repeat for run in row.done] != [run.repeat for run in base.done]:
        return None
    if not all(row.reached) or not all(base.reached):
        return None
    pairs = row.reached, base.reached
    ours, theirs = ([metric for metric in each if metric is not None] for each in pairs)
    if len({metric.provenance for metric in (*ours, *theirs)}) != 1:
        return None
    values = [[metric.value for metric in each] for each in (ours, theirs)]
    if min(map(min, values)) <= 0:
        return None
    return _doubt_range(compare_seeds(*values), row, base)


def level_of(provenance: Provenance) -> float:
    """Return the share of differences of this provenance that lie within their intervals."""
    return CONFIDENCE if provenance == "measured" else COVERAGE


def find_doubt(row: Row, base: Row) -> float | None:
    """Return the factor between two modelled epochs that the model's own error may make.

    It is None if the error of one of them has no basis. It is 1 for measured epochs, and if the
    kind of machine is unknown. Rows of one comparison share the platform
    and the graph. They share a stage's error if the same parts and devices do the stage, for as
    many seconds as both have in it. The rest of their epochs, the shares o, is off independently.
    So the logarithm of their ratio has the variance

        (own^2 + kernel^2) (o_1^2 + o_2^2)

    where the kernel's error (:mod:`gnnbench.price.model_error`) counts if they have different
    kernels. Rows on different kinds of machine share nothing.
    """
    ours, theirs = (find_row_path(each) for each in (row, base))
    if ours is None or theirs is None:
        return 1.0
    one, other = error_of(ours), error_of(theirs)
    if one is None or other is None:
        return None
    if ours.machine != theirs.machine:
        return math.exp(DEVIATIONS * math.hypot(one.total, other.total))
    unlike = _named(row, "kernel") != _named(base, "kernel")
    parts = (
        math.hypot(error.own, error.kernel if unlike else 0.0) * _share_apart(*pair)
        for error, pair in ((one, (row, base)), (other, (base, row)))
    )
    return math.exp(DEVIATIONS * math.hypot(*parts))


def find_row_path(row: Row) -> PathKind | None:
    """Return the kind of path of a row with modelled epochs, None if its machine is unknown."""
    epoch = row.metric("epoch_time")
    modelled = epoch is not None and epoch.provenance == "modelled" and row.done
    return find_run_path(row.done[0]) if modelled else None


def explain_no_basis(rows: Sequence[Row]) -> str:
    """Return why the errors of some of the rows have no basis; empty if all have one."""
    paths = [path for row in rows if (path := find_row_path(row)) is not None]
    missing = [path for path in paths if error_of(path) is None]
    return describe_errors(missing) if missing else ""


def _share_apart(row: Row, base: Row) -> float:
    """Return a row's busy seconds apart from the other row, as a share of the epoch.

    They are seconds that the other row lacks in the same stage, or spends by another part or on
    other devices. If stages overlap, the sum is larger, up to the whole epoch.
    """
    unlike = {
        stage
        for part, stages in STAGES_OF.items()
        if _named(row, part) != _named(base, part)
        or (part == "placement" and row.trainers != base.trainers)
        for stage in stages
    }
    epoch, apart_s = row.metric("epoch_time"), 0.0
    for stage in STAGES:
        ours, theirs = row.stage(stage), base.stage(stage)
        alike_s = 0.0 if stage in unlike or theirs is None else theirs.value
        apart_s += max(0.0, (ours.value if ours is not None else 0.0) - alike_s)
    return min(1.0, apart_s / epoch.value) if epoch is not None and epoch.value else 1.0


def _named(row: Row, kind: PartKind) -> str:
    """Return the name of a row's part; a whole program has none, and its own name stands in."""
    parts = row.runs[0].parts
    return row.label if parts is None else parts.named(kind)


def _pair_samples(row: Row, base: Row) -> list[tuple[float, float]]:
    """Return pairs of epochs of one number that ran in turns, both after their warm-ups.

    Without turns there are none. Modelled epochs of one number and repeat drew the same
    mini-batches.
    """
    pairs: list[tuple[float, float]] = []
    others = {run.repeat: run for run in base.done}
    for run in row.done:
        other = others.get(run.repeat)
        if other is None:
            continue
        ours, theirs = run.metrics["epoch_time"], other.metrics["epoch_time"]
        if ours.provenance == "measured" and run.lot != other.lot:
            return []
        begin = max(ours.warmup, theirs.warmup)
        pairs += zip(ours.samples[begin:], theirs.samples[begin:], strict=False)
    return pairs


def longest_stage(row: Row) -> tuple[Stage, float] | None:
    """Return the stage with the most busy seconds; None if no stage took any time."""
    times = [(s, metric.value) for s in STAGES if (metric := row.stage(s)) is not None]
    best = max(times, key=lambda pair: pair[1], default=None)
    return best if best is not None and best[1] > 0 else None
