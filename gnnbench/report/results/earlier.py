"""Compares two result files: what became faster or slower from one to the other.

The statistics are those of one comparison (``comparison.ranking``). Measured rows
are compared through the yardstick that both files have beside each epoch. If other programs kept a
machine busy, no measured row is compared. Files of another dataset or model are refused. Warnings
name other causes of a difference: another machine, other versions, another platform.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gnnbench.comparison.ranking import Row, find_difference, make_row
from gnnbench.errors import UsageError
from gnnbench.price.metrics import YARDSTICK
from gnnbench.records import EpochWork, Equivalence, Metric, Mode, RunResult
from gnnbench.report.results.kept import read_result
from gnnbench.report.results.schema import (
    WORKLOAD_NAMES,
    EquivalenceEntry,
    ResultDocument,
    RunEntry,
    WorkEntry,
)
from gnnbench.statistics import Difference

#: Workload fields whose difference is only reported. All others must be the same in both files.
_SAID_OF_WORK = ("epochs", "seed", "weight_decay", "threads")
_SAME_WORK = tuple(name for name in WORKLOAD_NAMES if name not in _SAID_OF_WORK)
#: Relative change below which a figure other than a time counts as the same.
_SAME = 0.005
#: Start of ``Pairing.why_not`` if a row was timed in both files, and noise hides the change.
UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class Pairing:
    """A row of one file and the row of its name in the other, if both have it.

    ``difference`` is the later row's speed against the earlier one; without it ``why_not`` gives
    the reason in a few words. ``changes`` are figures other than times and accuracies that differ,
    by name: the earlier and the later.
    """

    label: str
    mode: Mode
    before: Row | None
    after: Row | None
    difference: Difference | None = None
    why_not: str = ""
    changes: Mapping[str, tuple[Metric, Metric]] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Two files, the differences between their settings, and their rows in pairs."""

    names: tuple[str, str]
    before: ResultDocument
    after: ResultDocument
    warnings: tuple[str, ...]
    pairings: tuple[Pairing, ...]

    @property
    def slower(self) -> tuple[Pairing, ...]:
        """Rows that are shown to be slower in the later file."""
        return tuple(
            pairing
            for pairing in self.pairings
            if pairing.difference is not None
            and pairing.difference.shown
            and pairing.difference.ratio < 1
        )


def hold_against(before: Path, after: Path) -> Change:
    """Compare the rows of ``after`` with the rows of ``before``.

    Raises ``UsageError`` for a file that is no result file, and for two files with different work.
    """
    names = _name_files(before, after)
    return hold_documents(read_result(before), read_result(after), names)


def hold_documents(first: ResultDocument, second: ResultDocument, names: tuple[str, str]) -> Change:
    """Compare the rows of ``second`` with the rows of ``first``; sentences call them by ``names``.

    Raises ``UsageError`` if the runs of the two did different work.
    """
    _refuse_unlike(first, second, names)
    rows = [_restore_rows(document, lot) for lot, document in enumerate((first, second), 1)]
    keys = dict.fromkeys([*rows[0], *rows[1]])
    busy = [name for name, each in zip(names, (first, second), strict=True) if each.noise]
    pairings = tuple(_pair(key, rows[0].get(key), rows[1].get(key), names, busy) for key in keys)
    warnings = [*_list_warnings(first, second, names), *_tell_pace(pairings, names)]
    return Change(names, first, second, tuple(warnings), pairings)


def _name_files(before: Path, after: Path) -> tuple[str, str]:
    """Return the shortest names that tell the files apart."""
    if before.name != after.name:
        return before.name, after.name
    return str(before), str(after)


def _refuse_unlike(first: ResultDocument, second: ResultDocument, names: tuple[str, str]) -> None:
    if first.dataset.digest != second.dataset.digest:
        raise UsageError(
            f"{names[0]} is of dataset {first.dataset.name} and {names[1]} of "
            f"{second.dataset.name}, whose contents differ; give two results of one dataset."
        )
    for name in _SAME_WORK:
        ours, theirs = getattr(first.workload, name), getattr(second.workload, name)
        if ours != theirs:
            what = name.removeprefix("num_")
            raise UsageError(
                f"{names[0]} was run with {what} {_tell(ours)} and {names[1]} with "
                f"{_tell(theirs)}, which is other work; give two results of one workload."
            )


def _list_warnings(
    first: ResultDocument, second: ResultDocument, names: tuple[str, str]
) -> list[str]:
    """Return a sentence for each other difference between the files."""

    def differ(what: str, ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
        found = [
            f"{key} {_tell(ours.get(key))} and {_tell(theirs.get(key))}"
            for key in dict.fromkeys([*ours, *theirs])
            if ours.get(key) != theirs.get(key)
        ]
        return [f"{what} differ in {'; '.join(found)}."] if found else []

    measured = not (first.platform.modelled and second.platform.modelled)
    machine = differ("The machines", first.machine.model_dump(), second.machine.model_dump())
    if machine and not measured:
        machine = [f"{machine[0][:-1]}; modelled times do not depend on it."]
    warnings = [
        *machine,
        *differ(
            "The platforms",
            {"name": first.platform.name, "description": first.platform.description},
            {"name": second.platform.name, "description": second.platform.description},
        ),
        *differ(
            "The workloads",
            {name: getattr(first.workload, name) for name in _SAID_OF_WORK},
            {name: getattr(second.workload, name) for name in _SAID_OF_WORK},
        ),
        *differ("The versions", {"gnnbench": first.gnnbench}, {"gnnbench": second.gnnbench}),
    ]
    for name, document in zip(names, (first, second), strict=True):
        if document.noise and not document.platform.modelled:
            warnings.append(f"In {name} {document.noise}.")
        if document.interrupted:
            warnings.append(f"{name} is not whole: {document.interrupted}")
    return warnings


def _tell_pace(pairings: Sequence[Pairing], names: tuple[str, str]) -> list[str]:
    """Return how the yardstick differs between compared measured rows, or which file lacks it."""
    compared = [
        (pairing.before, pairing.after)
        for pairing in pairings
        if pairing.difference is not None and pairing.before is not None
        if (epoch := pairing.before.metric("epoch_time")) and epoch.provenance == "measured"
    ]
    if not compared:
        return []
    paces: list[list[float]] = [[], []]
    for pair in compared:
        for found, row in zip(paces, pair, strict=True):
            metric = row.metric(YARDSTICK) if row is not None else None
            found += [metric.value] if metric is not None else []
    lacking = [name for name, found in zip(names, paces, strict=True) if len(found) < len(compared)]
    if lacking:
        return [
            f"{' and '.join(lacking)} has no yardstick, work that is timed beside every epoch: the "
            f"machines may have been of unlike speed. Run it again with this version."
        ]
    slower = median(paces[1]) / median(paces[0])
    return [
        f"The yardstick, the same work beside every epoch, took {slower:.2f} times as long in "
        f"{names[1]} as in {names[0]}. A row is faster or slower only if it is so with and without "
        f"division by the yardstick."
    ]


def _tell(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


# --------------------------------------------------------------------------- rows


def _restore_rows(document: ResultDocument, lot: int) -> dict[tuple[Mode, str], Row]:
    """Return a file's rows by mode and label."""
    labels = dict.fromkeys((run.mode, run.label) for run in document.runs)
    runs = [restore_run(run, lot) for run in document.runs]
    return {
        (mode, label): make_row(label, mode, [run for run in runs if run.mode == mode])
        for mode, label in labels
    }


def restore_run(entry: RunEntry, lot: int) -> RunResult:
    """Return a run of a result file as it was, without its timeline."""
    return RunResult(
        strategy=entry.strategy,
        label=entry.label,
        mode=entry.mode,
        parts=entry.parts,
        repeat=entry.repeat,
        status=entry.status,
        reason=entry.reason,
        loss=tuple(math.nan if loss is None else loss for loss in entry.loss),
        accuracy={name: value for name, value in entry.accuracy.items()},
        equivalence=_restore_equivalence(entry.equivalence),
        work=_restore_work(entry.work),
        metrics={name: Metric(**each.model_dump()) for name, each in entry.metrics.items()},
        stages={
            stage: Metric(metric.value, "s", metric.provenance)
            for stage, metric in entry.stages.items()
        },
        notes=entry.notes,
        lot=lot,
    )


def _restore_work(work: WorkEntry | None) -> EpochWork | None:
    if work is None:
        return None
    return EpochWork(**work.model_dump(exclude={"ranked", "why_not"}))


def _restore_equivalence(entry: EquivalenceEntry | None) -> Equivalence | None:
    if entry is None:
        return None
    said = entry.model_dump(exclude={"equal"})
    if entry.max_relative_loss_error is None:
        said["max_relative_loss_error"] = math.nan
    return Equivalence(**said)


def _pair(
    key: tuple[Mode, str],
    before: Row | None,
    after: Row | None,
    names: tuple[str, str],
    busy: Sequence[str],
) -> Pairing:
    mode, label = key
    for row, name in zip((before, after), names, strict=True):
        if why_not := _refuse_row(row, name):
            return Pairing(label, mode, before, after, why_not=why_not)
    if before is None or after is None:
        raise ValueError("a row that is missing is refused")
    if why_not := _refuse_unlike_rows(before, after):
        return Pairing(label, mode, before, after, why_not=why_not)
    epoch = after.metric("epoch_time")
    if busy and epoch is not None and epoch.provenance == "measured":
        why_not = f"{UNKNOWN}: the machine was busy in {' and '.join(busy)}"
        changes = _find_changes(before, after)
        return Pairing(label, mode, before, after, why_not=why_not, changes=changes)
    difference = find_difference(after, before)
    if difference is None:
        why_not = "no epoch of it was timed in both"
    return Pairing(label, mode, before, after, difference, why_not, _find_changes(before, after))


def _refuse_row(row: Row | None, name: str) -> str:
    """Return why a row cannot be compared with any other; empty if it can."""
    if row is None:
        return f"it is not in {name}"
    if not row.done:
        return f"{row.runs[0].status} in {name}"
    if row.equivalence is not None and not row.equivalence.holds:
        return f"not equal to the reference in {name}"
    return ""


def _refuse_unlike_rows(before: Row, after: Row) -> str:
    """Return why two rows cannot be compared with each other; empty if they can."""
    ours, theirs = before.work, after.work
    if ours is not None and theirs is not None:
        for what in ("updates", "seeds", "sampling", "different"):
            one, other = getattr(ours, what), getattr(theirs, what)
            if one != other:
                name = "updates and seeds of epochs" if what == "different" else what
                return f"other work: {name} {one} and {other}"
    times = before.metric("epoch_time"), after.metric("epoch_time")
    if times[0] is not None and times[1] is not None and times[0].provenance != times[1].provenance:
        return f"{times[0].provenance} in the one and {times[1].provenance} in the other"
    return ""


def _find_changes(before: Row, after: Row) -> dict[str, tuple[Metric, Metric]]:
    """Return bytes and energy that differ by more than :data:`_SAME`."""
    found = {}
    for name in before.done[0].metrics:
        ours, theirs = before.metric(name), after.metric(name)
        if ours is None or theirs is None or ours.unit not in ("B", "J"):
            continue
        if abs(ours.value - theirs.value) > _SAME * max(abs(ours.value), abs(theirs.value)):
            found[name] = (ours, theirs)
    return found
