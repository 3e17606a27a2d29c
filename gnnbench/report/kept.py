"""Results of a store: who is fastest in each setting, and a line for every strategy and setting.

Seeds are pooled. If two machines ran the same configuration, another table compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from pydantic import JsonValue

from gnnbench.comparison.ranking import Group, group_results
from gnnbench.jobs.groups import Spread
from gnnbench.jobs.job import Job
from gnnbench.jobs.options import list_options
from gnnbench.records import Cell, Metric, RunResult, Table, TableRow
from gnnbench.report.columns import HOST_LINKS
from gnnbench.report.results.earlier import hold_documents, restore_run
from gnnbench.report.results.kept import Kept
from gnnbench.report.results.schema import MetricEntry, RunEntry
from gnnbench.report.verdict import summarise
from gnnbench.units import format_si

_COLUMNS = ("epoch", "host links", "peak device", "test accuracy", "runs")
#: Settings that a table has in common, and settings by which runs of one row may differ.
_SHARED = ("dataset", "model", "platform")
_POOLED = (
    *("seed", "repeats", "target_accuracy", "check", "checked_updates", "plain"),
    *("strategy", "plugins", "programs"),
)
#: All other settings of a sweep, which name a row beside its label.
_APART = tuple(
    name
    for record in (Job, Spread)
    for each in list_options(record).values()
    if (sweep := each.option.sweep) is not None
    if (name := sweep.kept or each.name) not in (*_SHARED, *_POOLED)
)


class KeptRow(NamedTuple):
    """A strategy in one setting: its runs over all seeds and repeats.

    ``facets`` are the facts by which a reader filters. Rows of one ``work`` may be ranked together.
    ``runs`` are as in the result file, and ``results`` as they were compared, ``ranked_as`` names.
    """

    label: str
    ranked_as: str
    facets: Mapping[str, str]
    work: tuple[str, ...]
    runs: list[RunEntry]
    results: list[RunResult]

    def pool(self, *names: str) -> Cell:
        """Return the sum of metrics: for each the median over the finished runs."""
        done = [run for run in self.runs if run.status == "done"]
        return _add(_pool([run.metrics.get(name) for run in done]) for name in names)

    @property
    def test_accuracy(self) -> float | None:
        """The median test accuracy of the finished runs."""
        found = [run.accuracy["test"] for run in self.runs if "test" in run.accuracy]
        return median(found) if found else None

    @property
    def finished(self) -> str:
        """``"2 of 3"``: the finished runs and all of them."""
        return f"{sum(run.status == 'done' for run in self.runs)} of {len(self.runs)}"


class Setting(NamedTuple):
    """The rows of a data set, a model and a platform, and their groups by work."""

    title: str
    rows: Sequence[KeptRow]
    machines: Mapping[str, str]
    groups: Mapping[tuple[str, ...], tuple[Group, ...]]

    def list_answers(self) -> list[str]:
        """Return who is fastest among rows of the same work, a sentence each."""
        return [
            f"{' · '.join(work)}{': ' if work else ''}{sentence}"
            for work, groups in self.groups.items()
            for sentence in summarise(groups)
        ]


def list_settings(kept: Sequence[Kept]) -> list[Setting]:
    """Return the settings of a store with their rows, in the order of its files."""
    return [_pool_setting(title, group) for title, group in _group(kept).items()]


def tabulate_kept(kept: Sequence[Kept], damaged: Sequence[str] = ()) -> tuple[Table, ...]:
    """Return a table for each data set, model and platform, and then :func:`tabulate_rest`."""
    tables = [
        _tabulate_setting(f"kept-{number}", setting)
        for number, setting in enumerate(list_settings(kept), 1)
    ]
    return (*tables, *tabulate_rest(kept, damaged))


def tabulate_rest(kept: Sequence[Kept], damaged: Sequence[str] = ()) -> tuple[Table, ...]:
    """Return comparisons of machines, and what has no result."""
    tables = _compare_machines(kept)
    failures = [
        TableRow(_label(each.header.configuration), (Cell(text=each.header.status),))
        for each in kept
        if each.header.status != "done"
    ]
    if failures or damaged:
        reasons = dict.fromkeys(
            f"{_label(each.header.configuration)}: {each.header.reason}"
            for each in kept
            if each.header.status != "done"
        )
        notes = tuple(text.rstrip(".") for text in (*reasons, *damaged))
        tables.append(Table("failures", "what has no result", ("status",), tuple(failures), notes))
    return tuple(tables)


def _group(kept: Iterable[Kept]) -> dict[str, list[Kept]]:
    groups: dict[str, list[Kept]] = {}
    for each in kept:
        if each.document is not None:
            title = " · ".join(str(each.header.configuration.get(name, "")) for name in _SHARED)
            groups.setdefault(title, []).append(each)
    return groups


def _pool_setting(title: str, group: Sequence[Kept]) -> Setting:
    apart = _find_differing([each.header.configuration for each in group])
    cpus = {
        each.header.machine: f"{each.document.machine.cores} cores of {each.document.machine.cpu}"
        for each in group
        if each.document is not None
    }
    rows: dict[str, KeptRow] = {}
    repeats: dict[tuple[object, int], int] = {}
    for lot, each in enumerate(group, 1):
        asked, machine = each.header.configuration, each.header.machine
        on = [f"on {machine}"] if len(cpus) > 1 else []
        sets = _tell(asked, [name for name in apart if name == "set"])
        work = (*_tell(asked, [name for name in apart if name != "set"]), *on)
        facets = {name: _spell(asked.get(name) or "none") for name in (*_SHARED, *_APART)}
        for run in each.document.runs if each.document is not None else ():
            label = " · ".join([run.label, run.mode, *_tell(asked, apart), *on])
            found = {"strategy": run.label, "mode": run.mode, **facets, "machine": machine}
            ranked_as = " · ".join([run.label, *sets])
            row = rows.setdefault(label, KeptRow(label, ranked_as, found, work, [], []))
            row.runs.append(run)
            key = (asked.get("seed"), run.repeat)
            unverified = "" if run.work is None else run.work.why_not
            result = replace(restore_run(run, lot), label=ranked_as, unverified=unverified)
            row.results.append(replace(result, repeat=repeats.setdefault(key, len(repeats))))
    works: dict[tuple[str, ...], list[RunResult]] = {}
    for row in rows.values():
        works.setdefault(row.work, []).extend(row.results)
    groups = {work: group_results(results) for work, results in works.items()}
    return Setting(title, tuple(rows.values()), cpus, groups)


def _tabulate_setting(name: str, setting: Setting) -> Table:
    notes = [sentence.rstrip(".") for sentence in setting.list_answers()]
    notes.append("an epoch is the median of all seeds and repeats")
    notes += [f"machine {machine}: {cpu}" for machine, cpu in setting.machines.items()]
    notes += [f"{row.label}: {reason}" for row in setting.rows for reason in _list_doubts(row.runs)]
    lines = tuple(TableRow(row.label, _figures(row)) for row in setting.rows)
    return Table(name, setting.title, _COLUMNS, lines, tuple(notes))


def _find_differing(configurations: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    return [
        name
        for name in _APART
        if len({str(configuration.get(name)) for configuration in configurations}) > 1
    ]


def _tell(configuration: Mapping[str, JsonValue], names: Iterable[str]) -> list[str]:
    """Return the settings that set a line apart: ``hidden 64``, ``placement.drm=false``."""
    words = []
    for name in names:
        value = configuration.get(name)
        if value is None:
            continue  # the default
        if isinstance(value, list):
            words.append(_spell(value) if value else f"no {name}")
        else:
            words.append(f"{name.replace('_', ' ')} {value}")
    return words


def _spell(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _label(configuration: Mapping[str, JsonValue]) -> str:
    words = [str(configuration.get(name, "")) for name in (*_SHARED, "strategy")]
    return " · ".join([*words, f"seed {configuration.get('seed')}"])


def _list_doubts(runs: Sequence[RunEntry]) -> list[str]:
    """Return why runs of a line are not done, each reason once."""
    reasons = {f"{run.status}: {run.reason}" for run in runs if run.status != "done"}
    return sorted(reason.rstrip(".") for reason in reasons)


def _figures(row: KeptRow) -> tuple[Cell, ...]:
    """Return a line's cells: medians over finished runs, and the number of these."""
    test = row.test_accuracy
    return (
        row.pool("epoch_time"),
        row.pool(*HOST_LINKS),
        row.pool("peak_device_bytes"),
        Cell() if test is None else Cell(text=f"{test:.3f}", provenance="measured"),
        Cell(text=row.finished, provenance="measured"),
    )


def _pool(metrics: Sequence[MetricEntry | None]) -> Cell:
    found = [metric for metric in metrics if metric is not None]
    origins = {metric.provenance for metric in found}
    if not found or len(origins) > 1:
        return Cell(text="mixed" if found else "")
    value = float(median(metric.value for metric in found))
    return Cell(value, found[0].unit, found[0].provenance)


def _add(cells: Iterable[Cell]) -> Cell:
    known = [(cell, cell.value) for cell in cells if cell.value is not None]
    if not known:
        return Cell()
    first, _ = known[0]
    return Cell(sum(value for _, value in known), first.unit, first.provenance)


def _compare_machines(kept: Sequence[Kept]) -> list[Table]:
    """Return a table for each pair of machines that ran the same configuration.

    Its lines have the epoch on each machine; its notes say once how the machines differ.
    """
    by_key: dict[str, list[Kept]] = {}
    for each in kept:
        if each.document is not None:
            by_key.setdefault(each.header.key, []).append(each)
    rows: dict[tuple[str, str], list[TableRow]] = {}
    notes: dict[tuple[str, str], dict[str, None]] = {}
    for group in by_key.values():
        first = group[0]
        for other in group[1:]:
            if first.document is None or other.document is None:
                continue
            names = (first.header.machine, other.header.machine)
            change = hold_documents(first.document, other.document, names)
            notes.setdefault(names, {}).update(dict.fromkeys(change.warnings))
            for pairing in change.pairings:
                label = f"{_label(first.header.configuration)} · {pairing.label}"
                cells = [
                    _epoch_cell(row.metric("epoch_time") if row is not None else None)
                    for row in (pairing.before, pairing.after)
                ]
                found = pairing.difference
                speed = pairing.why_not if found is None else f"{found.ratio:.2f}x"
                if found is not None and not found.shown:
                    speed += ", no difference shown beyond the machines' own pace"
                rows.setdefault(names, []).append(TableRow(label, (*cells, Cell(text=speed))))
    return [
        Table(
            f"machines-{number}",
            f"the same runs on machine {names[0]} and on machine {names[1]}",
            (f"epoch on {names[0]}", f"epoch on {names[1]}", "speed of the second"),
            tuple(lines),
            tuple(note.rstrip(".") for note in notes[names]),
        )
        for number, (names, lines) in enumerate(rows.items(), 1)
    ]


def _epoch_cell(metric: Metric | None) -> Cell:
    if metric is None:
        return Cell()
    return Cell(text=f"{format_si(metric.value, metric.unit)} [{metric.provenance}]")
