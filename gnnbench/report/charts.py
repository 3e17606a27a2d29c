"""The charts of a comparison: epochs, critical paths, timelines, memory, losses and bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gnnbench.comparison.ranking import Group, Row, find_winner
from gnnbench.price.folds import find_critical_path
from gnnbench.price.model_error import format_factor
from gnnbench.records import STAGES, Metric, Scheduled
from gnnbench.report.axes import Axis, scale_between, scale_by_ratio
from gnnbench.report.chrome import time_provenance
from gnnbench.report.columns import format_range, list_done, provenances
from gnnbench.report.page import WAITING, WAYS
from gnnbench.report.svg import (
    MAX_RECTANGLES,
    NUM_SERIES,
    Across,
    Bar,
    Drawing,
    Legend,
    Range,
    Segment,
    draw_bars,
    draw_lines,
    draw_ranges,
    draw_timeline,
    name_series,
    reduce_timeline,
)
from gnnbench.statistics import find_interval
from gnnbench.units import format_si

#: Peaks of memory, with what they are called.
_PEAKS = {"peak_device_bytes": "largest device", "peak_host_bytes": "host"}
#: Most rectangles in the timelines of a group, so that a page stays below 600 kB.
_RECTANGLES = 1200
#: A relative difference of losses that rounding does not make: such curves are drawn themselves.
_APART = 0.01


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its heading or label above, and its caption and legend below.

    Its file is called by its ``name``.
    """

    drawing: Drawing
    legend: Legend
    heading: str = ""
    label: str = ""
    caption: str = ""
    name: str = ""


def slug(text: str) -> str:
    """Return letters, digits and dashes alone, for names of files and keys of columns."""
    return re.sub(r"[^0-9a-z]+", "-", text.lower()).strip("-")


# --------------------------------------------------------------------------- epochs


def chart_epochs(groups: Sequence[Group]) -> Chart | None:
    """Return the chart of all rows' epochs with their intervals, coloured by group."""
    ranges, legend, found = [], [], set()
    for number, group in enumerate(groups):
        style = f"series-{number % NUM_SERIES}"
        timed = [(row, epoch) for row in group.rows if (epoch := row.metric("epoch_time"))]
        ranges += [_range(group, row, epoch, style) for row, epoch in timed]
        legend += [(style, group.title)] if timed else []
        found |= {epoch.provenance for _, epoch in timed}
    if not ranges:
        return None
    words = ["The scale is logarithmic; further left is faster."]
    if "measured" in found:
        legend.append(("band measured", "measured"))
        words.append(
            "Bands of measured rows hold the middle epoch with 95 %, or span all epochs if these "
            "are fewer than 8."
        )
    if "modelled" in found:
        legend.append(("band striped", "modelled"))
        words.append(
            "Bands of modelled rows have the model's error, if it is known. Rows share part of it, "
            "so bands that overlap do not mean that rows are equal: the range of the speed (x) "
            "decides."
        )
    drawing = draw_ranges("Epoch time by row", ranges, "s")
    return Chart(drawing, legend, "Epoch time", caption=" ".join(words), name="epoch-time")


def _range(group: Group, row: Row, epoch: Metric, style: str) -> Range:
    low, high = find_epoch_range(epoch)
    ratio = group.ratio(row)
    figure = format_si(epoch.value, "s")
    if ratio is not None and row is not group.base(epoch.provenance):
        between = format_range(ratio)
        figure += f" · {ratio.ratio:.2f}x {between}".rstrip()
    elif epoch.error_factor is not None:
        figure += f" · {format_factor(epoch.error_factor)}"
    winner = row is find_winner(group.rank(epoch.provenance))
    striped = epoch.provenance == "modelled"
    return Range(row.label, epoch.value, low, high, style, striped, figure, winner)


def find_epoch_range(epoch: Metric) -> tuple[float, float]:
    """Return the interval of an epoch time in seconds, which includes its value.

    It is the model's error, or the interval of the measured middle. Without both it spans the
    samples.
    """
    samples = [value for value in epoch.steady if value > 0]
    low, high = min([epoch.value, *samples]), max([epoch.value, *samples])
    if epoch.error_factor is not None:
        return low / epoch.error_factor, high * epoch.error_factor
    found = find_interval(samples) if epoch.provenance == "measured" else None
    return (min(found[0], epoch.value), max(found[1], epoch.value)) if found else (low, high)


# --------------------------------------------------------------------------- a group's charts


def list_charts(group: Group) -> list[Chart]:
    """Return the charts of a group, in the order in which a reader asks."""
    done = list_done((group,))
    return [
        *_chart_paths(group, done),
        *_chart_timelines(done),
        *_chart_bytes(group, done, _PEAKS, "Peak memory", stacked=False),
        *_chart_bytes(group, done, WAYS, "Bytes an epoch", stacked=True),
        *_chart_losses(group, done),
    ]


def _chart_paths(group: Group, done: Sequence[Row]) -> Iterator[Chart]:
    """Yield the chart of critical paths for each provenance: what would shorten the epoch."""
    for provenance in provenances(row.metric("epoch_time") for row in done):
        bars, used = [], set()
        for row in done:
            run = row.done[0]
            if not run.timeline or time_provenance(run) != provenance:
                continue
            seconds = sum_path(run.timeline)
            total = sum(seconds.values())
            segments = [Segment(f"stage-{name}", name, value) for name, value in seconds.items()]
            most = max(segments, key=lambda each: each.value)
            share = f"{100 * most.value / total:.0f} % {most.name}" if total else ""
            bars.append(Bar(row.label, tuple(segments), f"{format_si(total, 's')}, {share}"))
            used |= {each.name for each in segments if each.value > 0}
        if bars:
            title = f"Critical path by stage, {group.title} [{provenance}]"
            legend = [(f"stage-{name}", name) for name in (*STAGES, WAITING) if name in used]
            caption = (
                "The chain of steps that decides the last epoch: only what is in it can make the "
                "epoch shorter. Work beside the chain is hidden and not drawn."
            )
            yield Chart(
                draw_bars(title, bars, "s"),
                legend,
                f"Critical path [{provenance}]",
                caption=caption,
                name=slug(title),
            )


def sum_path(timeline: Sequence[Scheduled]) -> dict[str, float]:
    """Return the seconds of the critical path by stage, with those in which nothing ran last.

    They add up to the end of the timeline.
    """
    path = find_critical_path(timeline)
    seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
    for item in path:
        seconds[item.span.stage] += item.end_s - item.start_s
    end_s = path[-1].end_s if path else 0.0
    seconds[WAITING] = max(0.0, end_s - sum(seconds.values()))
    return {name: value for name, value in seconds.items() if value > 1e-9 * end_s}


def _chart_timelines(done: Sequence[Row]) -> Iterator[Chart]:
    """Yield a chart for each row that has a timeline, all on one scale below one heading."""
    heading = "Timelines of the last epoch, on one scale"
    limit = min(MAX_RECTANGLES, _RECTANGLES // max(1, len(done)))
    reduced = [(row, reduce_timeline(row.done[0].timeline, limit)) for row in done]
    drawn = [(row, each) for row, each in reduced if each.drawn]
    end_s = max((each.end_s for _, each in drawn), default=0.0)
    for row, each in drawn:
        name = f"{row.label} [{time_provenance(row.done[0])}]"
        stages = {piece.stage for _, pieces in each.lanes for piece in pieces}
        legend = [(f"stage-{stage}", stage) for stage in STAGES if stage in stages]
        caption = f"{each.spans:,} spans. {each.describe()}".strip()
        drawing = draw_timeline(f"Timeline of {name}", each, end_s)
        yield Chart(
            drawing, legend, heading, name, caption, slug(f"{row.mode} timeline {row.label}")
        )
        heading = ""


def _chart_bytes(
    group: Group, done: Sequence[Row], names: Mapping[str, str], heading: str, *, stacked: bool
) -> Iterator[Chart]:
    """Yield a chart of metrics in bytes for each provenance, as one bar a row or as one each."""
    metrics = {row.label: {name: row.metric(name) for name in names} for row in done}
    for provenance in provenances(each for own in metrics.values() for each in own.values()):
        bars, used = [], set()
        for label, own in metrics.items():
            segments = [
                Segment(f"bytes-{number}", names[name], metric.value)
                for number, (name, metric) in enumerate(own.items())
                if metric is not None and metric.provenance == provenance and metric.value > 0
            ]
            used |= {each.style for each in segments}
            if stacked:
                moved = sum(s.value for s in segments if s.name != WAYS["reused_bytes"])
                bars.append(Bar(label, tuple(segments), f"{format_si(moved, 'B')} moved"))
                continue
            told = ", ".join(f"{format_si(s.value, 'B')} {s.name}" for s in segments)
            bars += [
                Bar("" if place else label, (segment,), "" if place else told)
                for place, segment in enumerate(segments)
            ]
        if used:
            title = f"{heading}, {group.title} [{provenance}]"
            legend = [(f"bytes-{i}", name) for i, name in enumerate(names.values())]
            legend = [(style, name) for style, name in legend if style in used]
            drawing = draw_bars(title, bars, "B")
            yield Chart(drawing, legend, f"{heading} [{provenance}]", name=slug(title))


# --------------------------------------------------------------------------- losses


def _chart_losses(group: Group, done: Sequence[Row]) -> Iterator[Chart]:
    """Yield how far each row's losses are from the first row's, and losses that are apart."""
    curves = {row.label: row.done[0].loss for row in done if row.done[0].loss}
    if not curves:
        return
    (first, base), *others = curves.items()
    gaps = {label: _differ(values, base) for label, values in others}
    if not others or any(not gap <= _APART for values in gaps.values() for gap in values):
        yield _chart_curves(f"Training loss, {group.title}", "Training loss", curves)
    if others:
        ends = f"{base[0]:.4g} to {base[-1]:.4g}"
        caption = (
            f"|loss - loss of {first}| / |loss of {first}| by epoch, on a logarithmic scale; equal "
            f"losses lie on the lower edge. The loss of {first} goes from {ends}."
        )
        title = f"Loss difference to {first}"
        yield _chart_curves(f"{title}, {group.title}", title, gaps, caption, by_ratio=True)


def _differ(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Return the relative differences of losses; NaN where one of two is not finite."""
    pairs = zip(values, base, strict=False)
    return [abs(a - b) / abs(b) if b and math.isfinite(a - b) else math.nan for a, b in pairs]


def _chart_curves(
    title: str,
    heading: str,
    curves: Mapping[str, Sequence[float]],
    caption: str = "",
    *,
    by_ratio: bool = False,
) -> Chart:
    count = max(map(len, curves.values()))
    epochs = [float(number) for number in range(1, count + 1)]
    named = sorted({1.0, float((count + 1) // 2), float(count)})
    across = Across("epoch", Axis(1.0, max(2.0, count), tuple(named)))
    values = [value for each in curves.values() for value in each]
    axis = scale_by_ratio([*values, 1e-8, 1e-6]) if by_ratio else scale_between(values)
    drawing = draw_lines(title, across, epochs, curves, Across("", axis))
    return Chart(drawing, name_series(curves, "curve "), heading, caption=caption, name=slug(title))
