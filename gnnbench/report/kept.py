"""Tables of a store: a line for every strategy and setting, with seeds pooled.

If two machines ran the same configuration, another table compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from pydantic import JsonValue

from gnnbench.jobs.groups import Spread
from gnnbench.jobs.options import list_options
from gnnbench.records import Cell, Metric, Table, TableRow
from gnnbench.report.results.earlier import hold_documents
from gnnbench.report.results.kept import Kept
from gnnbench.report.results.schema import MetricEntry, RunEntry
from gnnbench.units import format_si

_COLUMNS = ("epoch", "host links", "peak device", "test accuracy", "runs")
#: Settings that a table has in common, and settings that name a row beside its label.
_SHARED = ("dataset", "model", "platform")
_APART = (
    *("set", "epochs", "layers", "hidden", "batch_size", "fanouts", "learning_rate", "scaling"),
    *list_options(Spread),
)


def tabulate_kept(kept: Sequence[Kept], damaged: Sequence[str] = ()) -> tuple[Table, ...]:
    """Return a table for each data set, model and platform; comparisons of machines; failures."""
    tables = [
        _tabulate_setting(f"kept-{number}", title, group)
        for number, (title, group) in enumerate(_group(kept).items(), 1)
    ]
    tables += _compare_machines(kept)
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


def _tabulate_setting(name: str, title: str, group: Sequence[Kept]) -> Table:
    apart = _find_differing([each.header.configuration for each in group])
    machines = dict.fromkeys(each.header.machine for each in group)
    rows: dict[str, list[RunEntry]] = {}
    for each in group:
        for run in each.document.runs if each.document is not None else ():
            words = [run.label, run.mode, *_tell(each.header.configuration, apart)]
            if len(machines) > 1:
                words.append(f"on {each.header.machine}")
            rows.setdefault(" · ".join(words), []).append(run)
    cpus = {
        each.header.machine: f"{each.document.machine.cores} cores of {each.document.machine.cpu}"
        for each in group
        if each.document is not None
    }
    notes = ["an epoch is the median of all seeds and repeats; only like is to be ranked with like"]
    notes += [f"machine {machine}: {cpu}" for machine, cpu in cpus.items()]
    said = [f"{label}: {reason}" for label, runs in rows.items() for reason in _list_doubts(runs)]
    lines = tuple(TableRow(label, _figures(runs)) for label, runs in rows.items())
    return Table(name, title, _COLUMNS, lines, (*notes, *said))


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
            words.append(", ".join(map(str, value)) if value else f"no {name}")
        else:
            words.append(f"{name.replace('_', ' ')} {value}")
    return words


def _label(configuration: Mapping[str, JsonValue]) -> str:
    words = [str(configuration.get(name, "")) for name in (*_SHARED, "strategy")]
    return " · ".join([*words, f"seed {configuration.get('seed')}"])


def _list_doubts(runs: Sequence[RunEntry]) -> list[str]:
    """Return why runs of a line are not done, or may not be ranked, each reason once."""
    reasons = {
        f"{run.status}: {run.reason}" if run.work is None else f"not ranked: {run.work.why_not}"
        for run in runs
        if run.work is None or run.work.why_not
    }
    return sorted(reason.rstrip(".") for reason in reasons)


def _figures(runs: Sequence[RunEntry]) -> tuple[Cell, ...]:
    """Return a line's cells: medians over finished runs, and the number of these."""
    done = [run for run in runs if run.status == "done"]
    tests = [run.accuracy["test"] for run in done if "test" in run.accuracy]
    return (
        _pool([run.metrics.get("epoch_time") for run in done]),
        _add(
            _pool([run.metrics.get(name) for run in done])
            for name in ("host_to_device_bytes", "device_to_host_bytes")
        ),
        _pool([run.metrics.get("peak_device_bytes") for run in done]),
        Cell(text=f"{median(tests):.3f}", provenance="measured") if tests else Cell(),
        Cell(text=f"{len(done)} of {len(runs)}", provenance="measured"),
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
