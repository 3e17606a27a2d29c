"""The comparison as one web page that needs nothing else: no script, font, style or picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from gnnbench.model_error import format_factor
from gnnbench.ranking import Group, Row, group_runs, list_devices
from gnnbench.records import STAGES, Comparison, Metric, Provenance
from gnnbench.report.chrome import time_provenance
from gnnbench.report.columns import BYTE_COLUMNS, describe_equality, format_range, provenances
from gnnbench.report.comparison import (
    clock_line,
    describe_mini_batches,
    graph_line,
    made_up_lines,
    provenance_line,
    run_notes,
    title_line,
)
from gnnbench.report.page import WAYS, render_page
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
from gnnbench.results.output import write_text
from gnnbench.units import format_si

_MARKS: dict[Provenance, str] = {"measured": "●", "modelled": "◇", "quoted": "□"}
_MEANINGS: dict[Provenance, str] = {
    "measured": "timed or counted on this machine",
    "modelled": "what the described platform would take",
    "quoted": "taken from a paper",
}
#: Columns of the main table after the epoch, and the metrics whose sum they show.
_FIGURES: Mapping[str, tuple[str, ...]] = {
    "edges/s": ("throughput_edges",),
    "time to accuracy": ("time_to_accuracy",),
    "energy": ("energy",),
    **{" ".join(lines).replace("- ", "-"): names for lines, names in BYTE_COLUMNS.items()},
}
#: Every metric in the order a reader asks for it; unknown ones follow.
_METRICS = {
    "epoch_time": "epoch",
    "time_to_accuracy": "time to accuracy",
    "throughput_edges": "edges per second",
    "throughput_vertices": "vertices per second",
    **WAYS,
    "peak_device_bytes": "peak, largest device",
    "peak_host_bytes": "peak, host",
    "imbalance": "imbalance",
    "energy": "energy",
    "preprocessing_time": "preprocessing, once",
    "wall_time": "this machine's epoch",
    "harness_overhead": "of which harness",
}


class _Cell(NamedTuple):
    """A cell of a table: its text, how it stands out, and what is small or marked behind it."""

    text: str
    style: str = ""
    small: str = ""
    provenance: Provenance | None = None


class _Line(NamedTuple):
    """A line of a table, or why a run has none."""

    label: str
    cells: Sequence[_Cell] = ()
    failure: str = ""


class _Chart(NamedTuple):
    """A drawing with its heading or label above, and its caption and legend below."""

    drawn: str
    legend: Sequence[tuple[str, str]]
    heading: str = ""
    label: str = ""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """What the page says of one group; ``labels`` head the columns of ``metrics``."""

    title: str
    heads: Sequence[tuple[str, str]]
    lines: Sequence[_Line]
    charts: Sequence[_Chart]
    labels: list[str]
    metrics: Sequence[_Line]


def write_html(comparison: Comparison, path: Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, make_page(comparison))


def make_page(comparison: Comparison) -> str:
    """The page as text."""
    groups = group_runs(comparison)
    setting = [clock_line(comparison), graph_line(comparison), *made_up_lines(comparison)]
    warnings = [describe_noise(comparison, groups), comparison.interrupted]
    found = provenances(metric for run in comparison.runs for metric in run.metrics.values())
    return render_page(
        "comparison.html",
        title_line(comparison),
        answers=[*summarise(groups), *filter(None, warnings)],
        setting=[*setting, provenance_line(comparison)],
        marks=_MARKS,
        provenances=[(provenance, _MEANINGS[provenance]) for provenance in found],
        sections=[_describe_group(group) for group in groups],
        notes=run_notes(groups),
        tables=_list_facts(comparison),
    )


def _describe_group(group: Group) -> _Section:
    done = [row for row in group.rows if row.done]
    heads, lines = _fill_table(group, done)
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


def _fill_table(group: Group, done: Sequence[Row]) -> tuple[list[tuple[str, str]], list[_Line]]:
    """The headings after the label's, and below each where its numbers come from; a line for each
    strategy, where a run that did not finish says why."""
    epochs = provenances(row.metric("epoch_time") for row in done)
    figures = [
        (title, provenance, metrics)
        for title, names in _FIGURES.items()
        for metrics in ({row.label: row.sum_metrics(*names) for row in done},)
        for provenance in provenances(metrics.values())
    ]
    heads: list[tuple[str, str]] = [("loss", "computed"), ("test accuracy", "computed")]
    for provenance in epochs:
        base = group.base(provenance)
        heads += [("epoch", provenance), ("speed", f"{base.label} = 1" if base is not None else "")]
    heads += [(title, provenance) for title, provenance, _ in figures]
    heads += [("equal to reference", "checked here"), ("trained on", "devices")]
    lines = []
    for row in group.rows:
        if row.done:
            bad = row.equivalence is not None and not row.equivalence.holds
            cells = [
                _number(row.final_loss),
                _number(row.test_accuracy),
                *(cell for p in epochs for cell in _epoch_cells(group, row, p)),
                *(_figure(metrics[row.label], p) for _, p, metrics in figures),
                _Cell(describe_equality(row), "bad" if bad else ""),
                _Cell(list_devices(row.trainers) or "-"),
            ]
            lines.append(_Line(row.label, cells))
        lines += [_Line(row.label, failure=failure) for failure in row.failures]
    return heads, lines


def _epoch_cells(group: Group, row: Row, provenance: Provenance) -> tuple[_Cell, _Cell]:
    epoch = row.metric("epoch_time")
    if epoch is None or epoch.provenance != provenance:
        return _Cell("-"), _Cell("")
    first = row is next(iter(group.rank(provenance)), None)
    ratio = group.ratio(row)
    speed = "" if ratio is None else f"{ratio.ratio:.2f}x"
    within = "" if epoch.error_factor is None else format_factor(epoch.error_factor)
    time = _Cell(format_si(epoch.value, "s"), "win" if first else "", small=within)
    return time, _Cell(speed, small=format_range(ratio))


def _figure(metric: Metric | None, provenance: Provenance) -> _Cell:
    if metric is None or metric.provenance != provenance:
        return _Cell("-")
    # A rate's unit stands in its heading.
    return _Cell(format_si(metric.value, "") if metric.unit.endswith("/s") else _format(metric))


def _number(value: float | None) -> _Cell:
    return _Cell("-" if value is None else f"{value:.4f}")


def _format(metric: Metric) -> str:
    if metric.unit in ("", "1"):
        return f"{metric.value:.3g}"
    if metric.unit.endswith("/s"):
        return f"{format_si(metric.value, '')} {metric.unit}"
    return format_si(metric.value, metric.unit)


def _list_metrics(done: Sequence[Row]) -> list[_Line]:
    """Every metric of every finished row, each figure with its mark."""
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
    return _Chart(chart, legend, f"Stages [{provenance}]", caption=caption)


def _chart_traffic(group: Group, done: Sequence[Row], provenance: Provenance) -> Iterator[_Chart]:
    """The bytes that went each way; no chart where there are none."""
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
        yield _Chart(chart, legend, f"Bytes an epoch [{provenance}]")


def _chart_losses(group: Group, done: Sequence[Row]) -> Iterator[_Chart]:
    curves = {row.label: row.done[0].loss for row in done if row.done[0].loss}
    if curves:
        legend = [(f"series-{i % NUM_SERIES}", label) for i, label in enumerate(curves)]
        yield _Chart(draw_curves(f"Loss, {group.title}", curves), legend, "Training loss")


def _chart_timelines(done: Sequence[Row]) -> Iterator[_Chart]:
    """A chart for each row that has a timeline, all below one heading."""
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
            yield _Chart(chart, legend, heading, name, caption)
            heading = ""


# --------------------------------------------------------------------------- setting


def _list_facts(comparison: Comparison) -> dict[str, list[tuple[str, str]]]:
    """What was compared with what, as tables of name and value by their titles."""
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
        f"{run.label} ({run.mode})": (
            f"sampler {run.parts.sampler}, placement {run.parts.placement}, communication "
            f"{run.parts.communication}, memory {run.parts.memory}, kernel {run.parts.kernel}"
        )
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
