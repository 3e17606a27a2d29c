"""The page of a store: who is fastest, all rows with filters, times against memory and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnbench.comparison.ranking import find_winner
from gnnbench.records import Cell as Figure
from gnnbench.report.axes import scale_between, scale_by_ratio
from gnnbench.report.cells import Cell, Head, Line
from gnnbench.report.charts import Chart, slug
from gnnbench.report.columns import ALL_PROVENANCES, HOST_LINKS, format_equivalence
from gnnbench.report.kept import KeptRow, list_settings, tabulate_rest
from gnnbench.report.page import render_page
from gnnbench.report.results.frames import frame_kept, to_csv
from gnnbench.report.results.kept import Kept
from gnnbench.report.results.output import write_text
from gnnbench.report.svg import Across, Point, draw_points, name_series
from gnnbench.report.tables_html import describe_table
from gnnbench.units import format_si

#: Columns of figures: the metrics whose sum they show, and whether the column decides.
_FIGURES: dict[str, tuple[tuple[str, ...], bool]] = {
    "epoch": (("epoch_time",), True),
    "time to accuracy": (("time_to_accuracy",), False),
    "edges/s": (("throughput_edges",), False),
    "host links": (HOST_LINKS, False),
    "peak device": (("peak_device_bytes",), True),
    "peak host": (("peak_host_bytes",), False),
    "energy": (("energy",), False),
}


def write_kept(store: Path, kept: Sequence[Kept], damaged: Sequence[str], path: Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, make_page(store, kept, damaged))


def make_page(store: Path, kept: Sequence[Kept], damaged: Sequence[str] = ()) -> str:
    """Return the page as self-contained text."""
    settings = list_settings(kept)
    rows = [row for setting in settings for row in setting.rows]
    facets = {
        name: sorted({row.facets[name] for row in rows if name in row.facets})
        for name in dict.fromkeys(name for row in rows for name in row.facets)
    }
    facets = {name: values for name, values in facets.items() if len(values) > 1}
    winners = {
        (setting.title, work, winner.label, group.mode)
        for setting in settings
        for work, groups in setting.groups.items()
        for group in groups
        for provenance in ALL_PROVENANCES
        if (winner := find_winner(group.rank(provenance))) is not None
    }
    named = [(setting, row) for setting in settings for row in setting.rows]
    won = [(s.title, row.work, row.ranked_as, row.facets["mode"]) in winners for s, row in named]
    heads, cells = _list_columns(rows, won, [name for name in facets if name not in _NAMED])
    lines = [
        Line(row.label, own, id=_name(number), facets=row.facets)
        for number, (row, own) in enumerate(zip(rows, cells, strict=True))
    ]
    runs = sum(len(row.runs) for row in rows)
    return render_page(
        "kept.html",
        f"Results in {store}: {runs} runs of {len(settings)} settings",
        answers=[(setting.title, setting.list_answers()) for setting in settings],
        filters=facets,
        columns=heads,
        lines=lines,
        charts=_draw(rows),
        tables=[describe_table(table) for table in tabulate_rest(kept, damaged)],
        machines={name: cpu for setting in settings for name, cpu in setting.machines.items()},
        data={"name": slug(f"gnnbench {store.name}"), "csv": to_csv(frame_kept(kept))},
    )


#: Facets that a row's label names already.
_NAMED = ("strategy", "mode")


def _name(number: int) -> str:
    return f"row-{number}"


def _list_columns(
    rows: Sequence[KeptRow], won: Sequence[bool], facets: Sequence[str]
) -> tuple[list[Head], list[list[Cell]]]:
    """Return the headings, deciding columns first, and the cells of each row."""
    columns: list[tuple[Head, list[Cell]]] = []
    for name in facets:
        head = Head(name.replace("_", " "), "", name, name in ("dataset", "model", "platform"))
        values = [row.facets.get(name, "") for row in rows]
        columns.append((head, [_sort_by(value) for value in values]))
    for title, (names, decides) in _FIGURES.items():
        pooled = [row.pool(*names) for row in rows]
        for provenance in ALL_PROVENANCES:
            own = [each if each.provenance == provenance else Figure() for each in pooled]
            if any(each.value is not None for each in own):
                marks = ["win" if title == "epoch" and each else "" for each in won]
                head = Head(title, provenance, slug(f"{title} {provenance}"), decides)
                found = [_tell(each, mark) for each, mark in zip(own, marks, strict=True)]
                columns.append((head, found))
    tests = [row.test_accuracy for row in rows]
    told = [Cell("-") if test is None else Cell(f"{test:.4f}", value=test) for test in tests]
    columns.append((Head("test accuracy", "computed", "test-accuracy", True), told))
    equal = [_tell_equality(row) for row in rows]
    columns.append((Head("equal to reference", "checked there", "equal", True), equal))
    counts = [Cell(row.finished, value=row.finished) for row in rows]
    columns.append((Head("runs", "finished", "runs", True), counts))
    columns.sort(key=lambda column: not column[0].decides)
    heads = [head for head, _ in columns]
    return heads, [[cells[number] for _, cells in columns] for number in range(len(rows))]


def _sort_by(text: str) -> Cell:
    return Cell(text or "-", value=text or None)


def _tell(figure: Figure, style: str) -> Cell:
    if figure.value is None:
        return Cell("-")
    unit = "" if figure.unit.endswith("/s") else figure.unit
    return Cell(format_si(figure.value, unit), style, value=figure.value)


def _tell_equality(row: KeptRow) -> Cell:
    """Return the worst outcome of the row's runs."""
    found = {format_equivalence(each.equivalence) for each in row.results if each.status == "done"}
    text = next((each for each in ("NO", "not checked", "yes") if each in found), "-")
    return Cell(text, "bad" if text == "NO" else "", value=text)


# --------------------------------------------------------------------------- scatter


def _draw(rows: Sequence[KeptRow]) -> list[Chart]:
    """Return epoch time against peak memory and against test accuracy, a point for each row."""
    strategies = list(dict.fromkeys(row.facets["strategy"] for row in rows))
    pooled = [row.pool("epoch_time") for row in rows]
    epochs = {number: each for number, each in enumerate(pooled) if each.value}
    memory = {number: rows[number].pool("peak_device_bytes").value for number in epochs}
    accuracy = {number: rows[number].test_accuracy for number in epochs}
    charts = []
    for what, values, unit in (
        ("Peak memory of the largest device", memory, "B"),
        ("Test accuracy", accuracy, ""),
    ):
        known = {number: value for number, value in values.items() if value is not None}
        if not known:
            continue
        times = [epochs[number].value or 0.0 for number in known]
        across = Across("epoch time (logarithmic)", scale_by_ratio(times), "s")
        up = Across(what, scale_between(known.values(), zero=unit == "B"), unit)
        points = []
        for number, value in known.items():
            row, epoch = rows[number], epochs[number]
            seconds = epoch.value or 0.0
            y = format_si(value, unit) if unit else f"{value:.4f}"
            tip = f"{row.label}: {format_si(seconds, 's')} [{epoch.provenance}], {y}"
            series = strategies.index(row.facets["strategy"])
            points.append(
                Point(seconds, value, series, epoch.provenance == "modelled", tip, _name(number))
            )
        title = f"{what} against epoch time"
        drawing = draw_points(title, across, up, points)
        caption = "Hollow points are modelled, full ones measured."
        legend = name_series(strategies)
        charts.append(Chart(drawing, legend, what, caption=caption, name=slug(title)))
    return charts
