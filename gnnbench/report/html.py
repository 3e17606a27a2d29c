"""The comparison as one self-contained web page: its style, script and data are in it.

Its order is the terminal's: the answer, the deciding columns, and then everything else. Without its
script the page shows every column.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

from gnnbench.comparison.ranking import Group, Row, find_winner, group_runs, list_devices
from gnnbench.price.model_error import format_factor
from gnnbench.records import PART_KINDS, STAGES, Comparison, Metric, Provenance
from gnnbench.report.chrome import time_provenance
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
from gnnbench.report.results.frames import list_lines
from gnnbench.report.results.output import write_text
from gnnbench.report.results.schema import dump_json, to_document
from gnnbench.report.svg import (
    NUM_SERIES,
    Bar,
    Segment,
    draw_bars,
    draw_curves,
    draw_timeline,
    reduce_timeline,
)
from gnnbench.report.verdict import describe_noise, summarise
from gnnbench.units import format_si

_MARKS: dict[Provenance, str] = {"measured": "●", "modelled": "◇", "quoted": "□"}
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


class _Cell(NamedTuple):
    """A cell of a table: its text and style.

    Small text or the mark of a provenance follows the text. A column is sorted by ``value``.
    """

    text: str
    style: str = ""
    small: str = ""
    provenance: Provenance | None = None
    value: float | str | None = None


class _Head(NamedTuple):
    """The heading of a column: its title, and the text below it.

    Readers choose and sort columns by ``key``. A column that ``decides`` is shown at first.
    """

    title: str
    below: str
    key: str
    decides: bool

    @property
    def name(self) -> str:
        """The title with its provenance."""
        provenance = self.below if self.below in _MARKS else self.key.removeprefix("speed-")
        return f"{self.title} [{provenance}]" if provenance in _MARKS else self.title


class _Line(NamedTuple):
    """A line of a table, or why a run has none; the first line of a row has the row's ``id``."""

    label: str
    cells: Sequence[_Cell] = ()
    failure: str = ""
    id: str = ""


class _Chart(NamedTuple):
    """A drawing with its heading or label above, and its caption and legend below.

    Its file is called by its ``name``.
    """

    drawn: str
    legend: Sequence[tuple[str, str]]
    heading: str = ""
    label: str = ""
    caption: str = ""
    name: str = ""


#: A heading, and a cell for each finished row.
_Column: TypeAlias = tuple[_Head, Sequence[_Cell]]


@dataclass(frozen=True, slots=True)
class _Section:
    """A group's section of the page; ``labels`` head the columns of ``metrics``."""

    title: str
    heads: Sequence[_Head]
    lines: Sequence[_Line]
    charts: Sequence[_Chart]
    labels: list[str]
    metrics: Sequence[_Line]


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
        sections=sections,
        below=figures_line(comparison, groups),
        marks=_MARKS,
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
    lines = list_lines(document)
    stream = io.StringIO()
    columns = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return {
        "name": _slug(f"gnnbench {comparison.dataset['name']}"),
        "csv": stream.getvalue(),
        "json": dump_json(document),
    }


def _slug(text: str) -> str:
    """Return letters, digits and dashes alone, for names of files and keys of columns."""
    return re.sub(r"[^0-9a-z]+", "-", text.lower()).strip("-")


def _describe_group(group: Group, *, parted: bool) -> _Section:
    """Return a group's section.

    ``parted`` is set if rows of the comparison trained on different numbers of devices.
    """
    done = [row for row in group.rows if row.done]
    heads, lines = _fill_table(group, done, parted=parted)
    stages = provenances(row.stage(stage) for row in done for stage in STAGES)
    ways = provenances(row.metric(name) for row in done for name in WAYS)
    charts = [
        *(_chart_stages(group, done, provenance) for provenance in stages),
        *chain.from_iterable(_chart_traffic(group, done, provenance) for provenance in ways),
        *_chart_losses(group, done),
        *_chart_timelines(done),
    ]
    labels = [row.label for row in done]
    return _Section(group.title, heads, lines, charts, labels, _list_metrics(done))


# --------------------------------------------------------------------------- tables


def _fill_table(
    group: Group, done: Sequence[Row], *, parted: bool
) -> tuple[list[_Head], list[_Line]]:
    """Return the headings, deciding columns first, and a line for each strategy.

    A run that did not finish has a line with the reason.
    """
    devices = _device_columns(done) if parted else ()
    columns = [*_time_columns(group, done), *devices, *_figure_columns(done)]
    for title, below, values in (
        ("test accuracy", "computed", [row.test_accuracy for row in done]),
        ("loss", "computed", [row.final_loss for row in done]),
    ):
        head = _Head(title, below, _slug(title), title != "loss")
        columns.append((head, [_number(value) for value in values]))
    columns.append((_Head("equal to reference", "checked here", "equal", True), _equality(done)))
    trained = [list_devices(row.trainers) for row in done]
    cells = [_Cell(text or "-", value=text or None) for text in trained]
    columns.append((_Head("trained on", "devices", "trained-on", False), cells))
    columns.sort(key=lambda column: not column[0].decides)
    lines = []
    for row in group.rows:
        name = f"{row.mode}.{row.label}"
        if row.done:
            number = done.index(row)
            lines.append(_Line(row.label, [cells[number] for _, cells in columns], id=name))
        lines += [
            _Line(row.label, failure=failure, id="" if row.done or number else name)
            for number, failure in enumerate(row.failures)
        ]
    return [head for head, _ in columns], lines


def _time_columns(group: Group, done: Sequence[Row]) -> Iterator[_Column]:
    """Yield epochs and speeds, two columns for each provenance."""
    for provenance in provenances(row.metric("epoch_time") for row in done):
        base = group.base(provenance)
        pairs = [_epoch_cells(group, row, provenance) for row in done]
        yield (
            _Head("epoch", provenance, f"epoch-{provenance}", True),
            [time for time, _ in pairs],
        )
        yield (
            _Head("speed", f"{base.label} = 1" if base else "", f"speed-{provenance}", True),
            [speed for _, speed in pairs],
        )


def _device_columns(done: Sequence[Row]) -> Iterator[_Column]:
    """Yield the number of training devices, and the rate of each."""
    cells = [_Cell(f"{len(row.trainers)}", value=len(row.trainers)) for row in done]
    yield _Head("devices", "", "devices", True), cells
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
        head = _Head(title, provenance, _slug(f"{title} {provenance}"), decides)
        yield head, [_figure(metrics[row.label], provenance) for row in done]


def _equality(done: Sequence[Row]) -> list[_Cell]:
    texts = [(describe_equality(row), row.equivalence) for row in done]
    return [
        _Cell(text, "bad" if found is not None and not found.holds else "", value=text)
        for text, found in texts
    ]


def _epoch_cells(group: Group, row: Row, provenance: Provenance) -> tuple[_Cell, _Cell]:
    epoch = row.metric("epoch_time")
    if epoch is None or epoch.provenance != provenance:
        return _Cell("-"), _Cell("")
    ratio = group.ratio(row)
    speed = "" if ratio is None else f"{ratio.ratio:.2f}x"
    within = "" if epoch.error_factor is None else format_factor(epoch.error_factor)
    style = "win" if row is find_winner(group.rank(provenance)) else ""
    time = _Cell(format_si(epoch.value, "s"), style, small=within, value=epoch.value)
    return time, _Cell(speed, small=format_range(ratio), value=ratio.ratio if ratio else None)


def _figure(metric: Metric | None, provenance: Provenance) -> _Cell:
    if metric is None or metric.provenance != provenance:
        return _Cell("-")
    # The unit of a rate stands in its heading.
    text = format_si(metric.value, "") if metric.unit.endswith("/s") else _format(metric)
    return _Cell(text, value=metric.value)


def _number(value: float | None) -> _Cell:
    if value is None:
        return _Cell("-")
    return _Cell(f"{value:.4f}", value=value if math.isfinite(value) else None)


def _format(metric: Metric) -> str:
    if metric.unit in ("", "1"):
        return f"{metric.value:.3g}"
    if metric.unit.endswith("/s"):
        return f"{format_si(metric.value, '')} {metric.unit}"
    return format_si(metric.value, metric.unit)


def _list_metrics(done: Sequence[Row]) -> list[_Line]:
    """Return every metric of every finished row, each figure with its mark."""
    named = dict.fromkeys([*_METRICS, *(name for row in done for name in row.done[0].metrics)])
    lines = []
    for name in named:
        metrics = [row.metric(name) for row in done]
        if any(metrics):
            cells = [
                _Cell(_format(m), provenance=m.provenance) if m else _Cell("-") for m in metrics
            ]
            lines.append(_Line(_METRICS.get(name, name.replace("_", " ")), cells))
    return lines


# --------------------------------------------------------------------------- charts


def _chart_stages(group: Group, done: Sequence[Row], provenance: Provenance) -> _Chart:
    bars = []
    for row in done:
        times = [(s, m) for s in STAGES if (m := row.stage(s)) and m.provenance == provenance]
        segments = tuple(Segment(f"stage-{stage}", stage, m.value) for stage, m in times)
        if segments:
            longest = max(segments, key=lambda segment: segment.value)
            bars.append(Bar(row.label, segments, f"mostly {longest.name}"))
    used = {s.name for bar in bars for s in bar.segments if s.value > 0}
    chart = draw_bars(f"Seconds by stage, {group.title} [{provenance}]", bars, "s")
    caption = "Busy seconds of each stage's busiest resource, per epoch; stages may overlap."
    legend = [(f"stage-{stage}", stage) for stage in STAGES if stage in used]
    heading, name = f"Stages [{provenance}]", _slug(f"{group.title} stages {provenance}")
    return _Chart(chart, legend, heading, caption=caption, name=name)


def _chart_traffic(group: Group, done: Sequence[Row], provenance: Provenance) -> Iterator[_Chart]:
    """Yield the chart of bytes by direction; none if no bytes moved."""
    bars, used = [], set()
    for row in done:
        segments = []
        for number, (name, title) in enumerate(WAYS.items()):
            metric = row.metric(name)
            if metric is not None and metric.provenance == provenance and metric.value > 0:
                segments.append(Segment(f"bytes-{number}", title, metric.value))
                used.add(number)
        moved = sum(s.value for s in segments if s.name != WAYS["reused_bytes"])
        bars.append(Bar(row.label, tuple(segments), f"{format_si(moved, 'B')} moved"))
    if used:
        chart = draw_bars(f"Bytes by way, {group.title} [{provenance}]", bars, "B")
        legend = [(f"bytes-{i}", title) for i, title in enumerate(WAYS.values()) if i in used]
        name = _slug(f"{group.title} bytes {provenance}")
        yield _Chart(chart, legend, f"Bytes an epoch [{provenance}]", name=name)


def _chart_losses(group: Group, done: Sequence[Row]) -> Iterator[_Chart]:
    curves = {row.label: row.done[0].loss for row in done if row.done[0].loss}
    if curves:
        legend = [(f"series-{i % NUM_SERIES}", label) for i, label in enumerate(curves)]
        chart = draw_curves(f"Loss, {group.title}", curves)
        yield _Chart(chart, legend, "Training loss", name=_slug(f"{group.title} loss"))


def _chart_timelines(done: Sequence[Row]) -> Iterator[_Chart]:
    """Yield a chart for each row that has a timeline, all below one heading."""
    heading = "Timeline of the last epoch"
    for row in done:
        run = row.done[0]
        if run.timeline:
            reduced = reduce_timeline(run.timeline)
            name = f"{row.label} [{time_provenance(run)}]"
            stages = {piece.stage for _, pieces in reduced.lanes for piece in pieces}
            legend = [(f"stage-{stage}", stage) for stage in STAGES if stage in stages]
            caption = f"{reduced.spans} spans. {reduced.describe()}"
            chart = draw_timeline(f"Timeline of {name}", reduced)
            file = _slug(f"{row.mode} timeline {row.label}")
            yield _Chart(chart, legend, heading, name, caption, file)
            heading = ""


# --------------------------------------------------------------------------- setting


def _list_facts(comparison: Comparison) -> dict[str, list[tuple[str, str]]]:
    """Return the setting of the comparison as tables of name and value, by title."""
    workload = comparison.workload
    trained: Mapping[str, object] = {
        "model": workload.model,
        "dims": "-".join(map(str, workload.dims)),
        "epochs": workload.epochs,
        "mini_batches": describe_mini_batches(comparison) or "none",
        "seed": workload.seed,
        "learning_rate": workload.learning_rate,
        "weight_decay": workload.weight_decay,
        "dtype": workload.dtype,
        "threads": workload.threads,
    }
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
