"""The comparison as one self-contained web page: its style, script and data are in it.

Its order is the terminal's: the answer, the deciding columns, and then everything else. Without its
script the page shows every column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gnnbench.comparison.ranking import Group, Row, find_winner, group_runs, list_devices
from gnnbench.price.model_error import format_factor
from gnnbench.records import PART_KINDS, STAGES, Comparison, Metric, Provenance
from gnnbench.report.cells import Cell, Head, Line
from gnnbench.report.charts import Chart, chart_epochs, list_charts, slug
from gnnbench.report.columns import (
    BYTE_COLUMNS,
    HOST_LINKS,
    describe_equality,
    edges_per_device,
    format_range,
    provenances,
)
from gnnbench.report.comparison import (
    clock_line,
    describe_mini_batches,
    figures_line,
    graph_line,
    made_up_lines,
    run_notes,
    title_line,
)
from gnnbench.report.page import WAYS, render_page
from gnnbench.report.results.frames import list_lines, to_csv, to_frame
from gnnbench.report.results.output import write_text
from gnnbench.report.results.schema import WORKLOAD_NAMES, dump_json, to_document
from gnnbench.report.verdict import describe_noise, summarise
from gnnbench.units import format_si

_MEANINGS: dict[Provenance, str] = {
    "measured": "timed or counted on this machine",
    "modelled": "what the described platform would take",
    "quoted": "taken from a paper",
}
#: Columns of figures: the metrics whose sum they show, and whether the column decides.
_FIGURES: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "time to accuracy": (("time_to_accuracy",), True),
    **{
        " ".join(lines).replace("- ", "-"): (names, names in (HOST_LINKS, ("peak_device_bytes",)))
        for lines, names in BYTE_COLUMNS.items()
    },
    "edges/s": (("throughput_edges",), False),
    "energy": (("energy",), False),
}
#: Every metric, in the order in which a reader asks for it; unknown ones follow.
_METRICS = {
    "epoch_time": "epoch",
    "time_to_accuracy": "time to accuracy",
    "throughput_edges": "edges per second",
    "throughput_vertices": "vertices per second",
    **WAYS,
    "peak_device_bytes": "peak, largest device",
    "peak_host_bytes": "peak, host",
    "peak_rank_bytes": "peak, largest rank",
    "imbalance": "imbalance",
    "energy": "energy",
    "preprocessing_time": "preprocessing, once",
    "wall_time": "this machine's epoch",
    "harness_overhead": "of which harness",
}
#: A heading, and a cell for each finished row.
_Column: TypeAlias = tuple[Head, Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class _Section:
    """A group's section of the page; ``labels`` head the columns of ``metrics``."""

    title: str
    heads: Sequence[Head]
    lines: Sequence[Line]
    charts: Sequence[Chart]
    labels: list[str]
    metrics: Sequence[Line]


def write_html(comparison: Comparison, path: Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, make_page(comparison))


def make_page(comparison: Comparison) -> str:
    """Return the page as text."""
    groups = group_runs(comparison)
    warnings = [describe_noise(comparison, groups), comparison.interrupted]
    found = provenances(metric for run in comparison.runs for metric in run.metrics.values())
    counts = {len(row.trainers) for group in groups for row in group.rows if row.done}
    sections = [_describe_group(group, parted=len(counts) > 1) for group in groups]
    return render_page(
        "comparison.html",
        title_line(comparison),
        made_up=made_up_lines(comparison),
        answers=[*summarise(groups), *filter(None, warnings)],
        columns=list({head.key: head for section in sections for head in section.heads}.values()),
        epochs=chart_epochs(groups),
        sections=sections,
        below=figures_line(comparison, groups),
        provenances=[(provenance, _MEANINGS[provenance]) for provenance in found],
        notes=run_notes(groups),
        cards={name: card.by_heading() for name, card in comparison.cards.items()},
        setting=[clock_line(comparison), graph_line(comparison)],
        tables=_list_facts(comparison),
        data=_make_files(comparison),
    )


def _make_files(comparison: Comparison) -> dict[str, str]:
    """Return the files that the page offers: the result file, and a line for each run as CSV."""
    document = to_document(comparison)
    return {
        "name": slug(f"gnnbench {comparison.dataset['name']}"),
        "csv": to_csv(to_frame(list_lines(document))),
        "json": dump_json(document),
    }


def _describe_group(group: Group, *, parted: bool) -> _Section:
    """Return a group's section.

    ``parted`` is set if rows of the comparison trained on different numbers of devices.
    """
    done = [row for row in group.rows if row.done]
    heads, lines = _fill_table(group, done, parted=parted)
    labels = [row.label for row in done]
    return _Section(group.title, heads, lines, list_charts(group), labels, _list_metrics(done))


# --------------------------------------------------------------------------- tables


def _fill_table(
    group: Group, done: Sequence[Row], *, parted: bool
) -> tuple[list[Head], list[Line]]:
    """Return the headings, deciding columns first, and a line for each strategy.

    A run that did not finish has a line with the reason.
    """
    devices = _device_columns(done) if parted else ()
    columns = [*_time_columns(group, done), *devices, *_figure_columns(done)]
    for title, below, values in (
        ("test accuracy", "computed", [row.test_accuracy for row in done]),
        ("loss", "computed", [row.final_loss for row in done]),
    ):
        head = Head(title, below, slug(title), title != "loss")
        columns.append((head, [_number(value) for value in values]))
    columns.append((Head("equal to reference", "checked here", "equal", True), _equality(done)))
    trained = [list_devices(row.trainers) for row in done]
    cells = [Cell(text or "-", value=text or None) for text in trained]
    columns.append((Head("trained on", "devices", "trained-on", False), cells))
    columns.sort(key=lambda column: not column[0].decides)
    lines = []
    for row in group.rows:
        name = f"{row.mode}.{row.label}"
        if row.done:
            number = done.index(row)
            lines.append(Line(row.label, [cells[number] for _, cells in columns], id=name))
        lines += [
            Line(row.label, failure=failure, id="" if row.done or number else name)
            for number, failure in enumerate(row.failures)
        ]
    return [head for head, _ in columns], lines


def _time_columns(group: Group, done: Sequence[Row]) -> Iterator[_Column]:
    """Yield epochs and speeds, two columns for each provenance."""
    for provenance in provenances(row.metric("epoch_time") for row in done):
        base = group.base(provenance)
        pairs = [_epoch_cells(group, row, provenance) for row in done]
        yield (
            Head("epoch", provenance, f"epoch-{provenance}", True),
            [time for time, _ in pairs],
        )
        yield (
            Head("speed", f"{base.label} = 1" if base else "", f"speed-{provenance}", True),
            [speed for _, speed in pairs],
        )


def _device_columns(done: Sequence[Row]) -> Iterator[_Column]:
    """Yield the number of training devices, and the rate of each."""
    cells = [Cell(f"{len(row.trainers)}", value=len(row.trainers)) for row in done]
    yield Head("devices", "", "devices", True), cells
    rates = {row.label: edges_per_device(row) for row in done}
    yield from _split_figures("edges/s a device", done, rates, True)


def _figure_columns(done: Sequence[Row]) -> Iterator[_Column]:
    for title, (names, decides) in _FIGURES.items():
        metrics = {row.label: row.sum_metrics(*names) for row in done}
        yield from _split_figures(title, done, metrics, decides)


def _split_figures(
    title: str, done: Sequence[Row], metrics: Mapping[str, Metric | None], decides: bool
) -> Iterator[_Column]:
    """Yield a column for each provenance of a figure."""
    for provenance in provenances(metrics.values()):
        head = Head(title, provenance, slug(f"{title} {provenance}"), decides)
        yield head, [_figure(metrics[row.label], provenance) for row in done]


def _equality(done: Sequence[Row]) -> list[Cell]:
    texts = [(describe_equality(row), row.equivalence) for row in done]
    return [
        Cell(text, "bad" if found is not None and not found.holds else "", value=text)
        for text, found in texts
    ]


def _epoch_cells(group: Group, row: Row, provenance: Provenance) -> tuple[Cell, Cell]:
    epoch = row.metric("epoch_time")
    if epoch is None or epoch.provenance != provenance:
        return Cell("-"), Cell("")
    ratio = group.ratio(row)
    speed = "" if ratio is None else f"{ratio.ratio:.2f}x"
    within = "" if epoch.error_factor is None else format_factor(epoch.error_factor)
    style = "win" if row is find_winner(group.rank(provenance)) else ""
    time = Cell(format_si(epoch.value, "s"), style, small=within, value=epoch.value)
    return time, Cell(speed, small=format_range(ratio), value=ratio.ratio if ratio else None)


def _figure(metric: Metric | None, provenance: Provenance) -> Cell:
    if metric is None or metric.provenance != provenance:
        return Cell("-")
    # The unit of a rate stands in its heading.
    text = format_si(metric.value, "") if metric.unit.endswith("/s") else _format(metric)
    return Cell(text, value=metric.value)


def _number(value: float | None) -> Cell:
    if value is None:
        return Cell("-")
    return Cell(f"{value:.4f}", value=value if math.isfinite(value) else None)


def _format(metric: Metric) -> str:
    if metric.unit in ("", "1"):
        return f"{metric.value:.3g}"
    if metric.unit.endswith("/s"):
        return f"{format_si(metric.value, '')} {metric.unit}"
    return format_si(metric.value, metric.unit)


def _list_metrics(done: Sequence[Row]) -> list[Line]:
    """Return every metric of every finished row, each figure with its mark."""
    named = dict.fromkeys([*_METRICS, *(name for row in done for name in row.done[0].metrics)])
    lines = []
    figures = {_METRICS.get(name, name.replace("_", " ")): name for name in named}
    known = {title: [row.metric(name) for row in done] for title, name in figures.items()}
    known |= {f"busy: {stage}": [row.stage(stage) for row in done] for stage in STAGES}
    for title, metrics in known.items():
        if any(metrics):
            cells = [Cell(_format(m), provenance=m.provenance) if m else Cell("-") for m in metrics]
            lines.append(Line(title, cells))
    return lines


# --------------------------------------------------------------------------- setting


def _list_facts(comparison: Comparison) -> dict[str, list[tuple[str, str]]]:
    """Return the setting of the comparison as tables of name and value, by title."""
    workload = comparison.workload
    trained = {name: getattr(workload, name) for name in WORKLOAD_NAMES if name != "num_layers"}
    del trained["batch_size"], trained["fanouts"]
    trained["dims"] = "-".join(map(str, workload.dims))
    trained["mini_batches"] = describe_mini_batches(comparison) or "none"
    platform = {
        "name": comparison.platform,
        "description": comparison.platform_description,
        "times": clock_line(comparison),
    }
    made = {
        "command": " ".join(comparison.command),
        "gnnbench": comparison.gnnbench,
        "created": comparison.created,
    }
    parts = {
        f"{run.label} ({run.mode})": "a whole program"
        if run.parts is None
        else ", ".join(f"{kind} {run.parts.named(kind)}" for kind in PART_KINDS)
        for run in comparison.runs
    }
    tables: dict[str, Mapping[str, object]] = {
        "Strategies": parts,
        "Workload": trained,
        "Dataset": comparison.dataset,
        "Platform": platform,
        "Machine": comparison.machine,
        "Made by": made,
    }
    return {
        title: [(str(name).replace("_", " "), _fact(value)) for name, value in facts.items()]
        for title, facts in tables.items()
    }


def _fact(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, (tuple, list)):
        return "; ".join(map(str, value))
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
