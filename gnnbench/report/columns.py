"""Columns of the comparison's tables, with a cell for each finished row, group by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.cells import cell_len

from gnnbench.comparison.ranking import Group, Row, find_winner
from gnnbench.price.model_error import format_factor
from gnnbench.records import STAGES, Equivalence, Metric, Provenance, Stage
from gnnbench.report.writer import Styled, pad
from gnnbench.statistics import Difference
from gnnbench.units import format_si

ALL_PROVENANCES: tuple[Provenance, ...] = ("measured", "modelled", "quoted")
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LOSS_COLUMNS = 8
#: Metrics of the bytes between the host and its devices.
HOST_LINKS = ("host_to_device_bytes", "device_to_host_bytes")
#: Columns of bytes: the lines of their headings, and the metrics whose sum they show.
BYTE_COLUMNS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("host-", "device"): HOST_LINKS,
    ("device-", "device"): ("device_to_device_bytes", "all_to_all_bytes"),
    ("reused",): ("reused_bytes",),
    ("peak", "device"): ("peak_device_bytes",),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``cells`` run through all finished rows, group by group.

    ``heading`` has one or two lines. Columns that are not ``leading`` go to the second panel when
    the terminal is narrow. The table of deciding columns has one panel: columns with the largest
    ``spare`` are left out first, those with 0 never.
    """

    heading: tuple[str, ...]
    cells: tuple[Styled, ...]
    leading: bool = True
    align: Literal["left", "right"] = "left"
    spare: int = 0

    def heading_lines(self, tall: bool) -> tuple[str, ...]:
        """Return the lines of the heading: one, or several in a ``tall`` heading."""
        return self.heading if tall else (" ".join(self.heading).replace("- ", "-"),)

    def width(self, tall: bool) -> int:
        """Return the width in terminal cells."""
        texts = (*self.heading_lines(tall), *(text for text, _ in self.cells))
        return max(cell_len(text) for text in texts)


def provenances(metrics: Iterable[Metric | None]) -> list[Provenance]:
    """Return the provenances that occur, measured first."""
    found = {metric.provenance for metric in metrics if metric is not None}
    return [provenance for provenance in ALL_PROVENANCES if provenance in found]


def describe_equality(row: Row) -> str:
    """Return the last column's text: whether a row equals the reference, or why it differs."""
    if row.other_maths:
        return f"{row.other_maths}: maths differ"
    if row.in_spread:
        return "in spread"
    return format_equivalence(row.equivalence)


def format_equivalence(equivalence: Equivalence | None) -> str:
    """Return ``"yes"``, ``"NO"`` or ``"not checked"``."""
    if equivalence is None:
        return "not checked"
    return "yes" if equivalence.holds else "NO"


def deciding_columns(groups: Sequence[Group]) -> list[Column]:
    """Return the columns that decide: times and speeds, devices, traffic, memory, accuracy."""
    done = list_done(groups)
    prepared = _metric_columns(done, ("prepared", "before"), lambda row: row.preparation)
    counts, devices, rates = [len(row.trainers) for row in done], [], []
    if len(set(counts)) > 1:
        devices = [_text_column("devices", [str(count) for count in counts])]
        rates = _metric_columns(done, ("edges/s", "a device"), edges_per_device)
    columns = [
        *_epoch_columns(groups),
        *_time_to_accuracy(done),
        *_spare(4, prepared),
        *_spare(5, devices),
        *_spare(6, rates),
        *_spare(2, _metric_columns(done, ("host", "links"), _sum_of(HOST_LINKS))),
        *_spare(1, _metric_columns(done, ("peak", "device"), _sum_of(("peak_device_bytes",)))),
        *_spare(3, [_test_column(done)]),
        _equality_column(done),
    ]
    return _keep_filled(columns)


def main_columns(groups: Sequence[Group]) -> list[Column]:
    """Return every figure: loss, accuracy, times, rates, energy, and bytes moved or held."""
    done = list_done(groups)
    columns = [_text_column("loss", [_fixed(row.final_loss) for row in done]), _test_column(done)]
    columns += _epoch_columns(groups)
    columns += _metric_columns(done, ("edges/s",), lambda row: row.metric("throughput_edges"))
    columns += _time_to_accuracy(done)
    columns += _metric_columns(done, ("energy",), lambda row: row.metric("energy"), leading=False)
    for heading, names in BYTE_COLUMNS.items():
        columns += _metric_columns(done, heading, _sum_of(names), leading=False)
    return _keep_filled([*columns, _equality_column(done)])


def _epoch_columns(groups: Sequence[Group]) -> list[Column]:
    found = provenances(row.metric("epoch_time") for row in list_done(groups))
    return [_epoch_column(groups, provenance) for provenance in found]


def _time_to_accuracy(rows: Sequence[Row]) -> list[Column]:
    def read(row: Row) -> Metric | None:
        return row.metric("time_to_accuracy") if all(row.reached) else None

    return _metric_columns(rows, ("time to", "accuracy"), read, "not reached")


def _test_column(rows: Sequence[Row]) -> Column:
    return _text_column("test", [_fixed(row.test_accuracy) for row in rows])


def _equality_column(rows: Sequence[Row]) -> Column:
    cells = [(describe_equality(row), _equivalence_style(row)) for row in rows]
    return Column(("equal to", "reference"), tuple(cells))


def _spare(order: int, columns: Sequence[Column]) -> list[Column]:
    """Return columns that a narrow terminal leaves out, the largest ``order`` first."""
    return [replace(column, spare=order) for column in columns]


def _keep_filled(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if any(text != "-" for text, _ in column.cells)]


def edges_per_device(row: Row) -> Metric | None:
    """Return a row's rate divided by its training devices; None if either is unknown."""
    rate = row.metric("throughput_edges")
    if rate is None or not row.trainers:
        return None
    return Metric(rate.value / len(row.trainers), rate.unit, rate.provenance)


def loss_columns(groups: Sequence[Group]) -> list[Column]:
    """Return losses of epochs from the first to the last, as many as fit a line."""
    losses = [row.done[0].loss for row in list_done(groups)]
    last = min(map(len, losses)) - 1
    count = min(last, _LOSS_COLUMNS - 1)
    epochs = dict.fromkeys(last * i // max(count, 1) for i in range(count + 1))
    return [
        _text_column(str(epoch + 1), [_fixed(loss[epoch]) for loss in losses]) for epoch in epochs
    ]


def _sum_of(names: tuple[str, ...]) -> Callable[[Row], Metric | None]:
    return lambda row: row.sum_metrics(*names)


def _text_column(heading: str, texts: Sequence[str]) -> Column:
    return Column((heading,), tuple((text, "") for text in texts), align="right")


def _metric_columns(
    rows: Sequence[Row],
    heading: tuple[str, ...],
    read: Callable[[Row], Metric | None],
    missing: str = "-",
    leading: bool = True,
) -> list[Column]:
    """Return a column for each provenance of the metric, marked if the mark tells them apart."""
    metrics = [read(row) for row in rows]
    found = provenances(metrics)
    columns = []
    for provenance in found:
        own = [m if m is not None and m.provenance == provenance else None for m in metrics]
        unit = next(m.unit for m in own if m is not None)
        shown = "" if unit.endswith("/s") else unit
        cells = tuple((format_si(m.value, shown) if m else missing, "") for m in own)
        marked = len(found) > 1 or heading == ("time to", "accuracy")
        title = (*heading[:-1], f"{heading[-1]} [{provenance}]") if marked else heading
        columns.append(Column(title, cells, leading, "right"))
    return columns


def _epoch_column(groups: Sequence[Group], provenance: Provenance) -> Column:
    """Return epoch times, speeds against the group's first row, marks and deciding intervals."""
    times, speeds, marks, ranges, styles = [], [], [], [], []
    factors = list_factors(groups)
    for group in groups:
        winner = find_winner(group.rank(provenance))
        for row in group.rows:
            if not row.done:
                continue
            epoch = _epoch(row, provenance)
            ratio = group.ratio(row) if epoch is not None else None
            told = format_si(epoch.value, "s") if epoch is not None else "-"
            if epoch is not None and epoch.error_factor is not None and len(factors) > 1:
                told += f" {format_factor(epoch.error_factor)}"
            times.append(told)
            speeds.append(f"{ratio.ratio:.2f}x" if ratio is not None else "")
            marks.append(_mark(row, group, provenance, ratio))
            ranges.append(format_range(ratio))
            styles.append("bold green" if row is winner else "")
    time_width = max(map(cell_len, times), default=0)
    speed_width = max(map(cell_len, speeds), default=0)
    mark_width = max(map(len, marks), default=0)
    cells = tuple(
        (
            f"{pad(t, time_width, 'right')}  {pad(s, speed_width, 'right')}"
            f"{pad(m, mark_width)} {r}".rstrip(),
            style,
        )
        for t, s, m, r, style in zip(times, speeds, marks, ranges, styles, strict=True)
    )
    shared = f" {factors[0]}" if provenance == "modelled" and len(factors) == 1 else ""
    return Column(("epoch", f"[{provenance}]{shared}"), cells)


def _mark(row: Row, group: Group, provenance: Provenance, ratio: Difference | None) -> str:
    """Return the mark of a row that may win, against the row that speeds refer to."""
    if ratio is None or not row.ranked or row is group.base(provenance):
        return ""
    return ratio.mark


def list_factors(groups: Sequence[Group]) -> list[str]:
    """Return the factors that modelled epochs may be off by, ``"x/÷ 1.4"``, each once."""
    epochs = [row.metric("epoch_time") for row in list_done(groups)]
    known = [each.error_factor for each in epochs if each is not None and each.error_factor]
    return list(dict.fromkeys(map(format_factor, known)))


def format_range(difference: Difference | None) -> str:
    """Return ``"0.54-0.57"``; empty without an interval, or if both ends print alike."""
    if difference is None or math.isinf(difference.high):
        return ""
    low, high = f"{difference.low:.2f}", f"{difference.high:.2f}"
    return "" if low == high else f"{low}-{high}"


def _epoch(row: Row, provenance: Provenance) -> Metric | None:
    epoch = row.metric("epoch_time")
    return epoch if epoch is not None and epoch.provenance == provenance else None


def _equivalence_style(row: Row) -> str:
    if row.equivalence is None:
        return "dim"
    return "" if row.equivalence.holds else "bold red"


def stage_columns(groups: Sequence[Group], provenance: Provenance, bar_cells: int) -> list[Column]:
    """Return busy seconds of each stage with a bar; bars of one group share a scale."""
    done = list_done(groups)
    times: dict[tuple[int, Stage], float] = {}
    for number, row in enumerate(done):
        for stage in STAGES:
            metric = row.stage(stage)
            if metric is not None and metric.provenance == provenance:
                times[number, stage] = metric.value
    longest: Mapping[str, float] = {
        group.title: max(
            (s for (number, _), s in times.items() if done[number] in group.rows), default=0.0
        )
        for group in groups
    }
    titles = {id(row): group.title for group in groups for row in group.rows}
    columns = []
    for stage in STAGES:
        texts = [
            format_si(times[number, stage], "s") if (number, stage) in times else ""
            for number in range(len(done))
        ]
        if not any(times.get((number, stage), 0.0) > 0 for number in range(len(done))):
            continue
        width = max(map(cell_len, texts))
        cells = []
        for number, row in enumerate(done):
            seconds, scale = times.get((number, stage), 0.0), longest[titles[id(row)]]
            bar = _bar(seconds / scale, bar_cells) if scale > 0 else ""
            cells.append((f"{pad(texts[number], width, 'right')} {bar}".rstrip(), ""))
        columns.append(Column((stage,), tuple(cells)))
    return columns


def _bar(fraction: float, cells: int) -> str:
    """Return ``fraction`` of a full bar in eighths of a cell, at least a sliver if above zero."""
    eighths = round(fraction * cells * 8)
    if fraction > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + _EIGHTHS[rest]).rstrip()


def list_done(groups: Sequence[Group]) -> list[Row]:
    """Return the rows that are done, group by group."""
    return [row for group in groups for row in group.rows if row.done]


def _fixed(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
