"""The comparison as tables in a terminal, or in a file: no boxes, no truncated numbers.

The layout is done here for two reasons. A row may be a sentence (why a run did not finish). Columns
that do not fit move to a second panel under the first instead of being cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console

from gnnbench.comparison.ranking import Group, Row, group_runs, level_of, list_devices
from gnnbench.price.model_error import cite_errors, find_run_path
from gnnbench.records import STAGES, Comparison, Provenance, RunResult
from gnnbench.report.columns import (
    ALL_PROVENANCES,
    Column,
    deciding_columns,
    list_done,
    loss_columns,
    main_columns,
    provenances,
    stage_columns,
)
from gnnbench.report.verdict import describe_noise, summarise
from gnnbench.report.writer import TIE, Styled, Writer, pad, wrap
from gnnbench.statistics import MARGIN, MARGIN_APART
from gnnbench.units import format_si

_BAR_CELLS = 5


def print_comparison(comparison: Comparison, console: Console, *, details: bool = False) -> None:
    """Print the answer, the table of deciding columns, and the provenance of its figures.

    With ``details`` also print all figures, stages, this machine's own times, and notes.
    """
    write = Writer(console)
    groups = group_runs(comparison)
    write.paragraph(title_line(comparison), "bold")
    for line in made_up_lines(comparison):
        write.paragraph(line, "dim")
    sentences = summarise(groups)
    if sentences:
        write.blank()
    for sentence in sentences:
        write.entry("", sentence, "bold", indent=1)
    for warning in (describe_noise(comparison, groups), comparison.interrupted):
        if warning:
            write.entry("", warning, "yellow", indent=1)
    if not groups:
        return
    write.blank()
    columns, left_out = _fit(deciding_columns(groups), _label_width(groups, ""), write.width)
    _print_panels(write, groups, columns, with_failures=True)
    write.blank()
    if left_out:
        named = ", ".join(left_out)
        write.entry("", f"Left out at this width: {named}.", "dim", indent=1)
    write.entry("", figures_line(comparison, groups), "dim", indent=1)
    if details:
        _print_details(write, comparison, groups)


def figures_line(comparison: Comparison, groups: Sequence[Group]) -> str:
    """Return the rule of speeds, if there are any, and the provenance of the columns."""
    speeds = f"{rule_line(comparison.modelled)} " if _has_speeds(groups) else ""
    return f"{speeds}{provenance_line(comparison)}"


def rule_line(modelled: bool) -> str:
    """Return the rule of "faster", with its level."""
    level = f"{100 * level_of('modelled' if modelled else 'measured'):g} %"
    within = (
        f"A range covers the differences between epochs and, with a probability of {level}, the "
        f"model's error of the speed."
        if modelled
        else f"Ranges are {level} intervals, which include noise that lasts several turns."
    )
    apart = "" if modelled else f", {100 * MARGIN_APART:g} % where rows did not take turns"
    return (
        f"Speeds (x) are relative to the row with 1.00x in the same group. {within} "
        f"* means faster or slower: the whole range is more than {100 * MARGIN:g} % from 1x"
        f"{apart}. ~ marks all others."
    )


def _has_speeds(groups: Sequence[Group]) -> bool:
    """Return whether a group has two finished rows, so that it shows a speed."""
    return any(sum(bool(row.done) for row in group.rows) > 1 for group in groups)


def _print_details(write: Writer, comparison: Comparison, groups: Sequence[Group]) -> None:
    write.blank()
    for line in (clock_line(comparison), graph_line(comparison)):
        write.paragraph(line, "dim")
    if list_done(groups):
        write.blank()
        _print_panels(write, groups, main_columns(groups))
    write.blank()
    for title, text in machine_lines(groups):
        write.entry(title, text)
    for provenance in provenances(
        row.stage(stage) for row in list_done(groups) for stage in STAGES
    ):
        write.blank()
        _print_stages(write, groups, provenance)
    others = [group for group in groups if any(row.other_maths for row in group.rows)]
    if others:
        write.blank()
        _print_panels(write, others, loss_columns(others), "loss by epoch")
    notes = run_notes(groups)
    if notes:
        write.blank()
    for title, text in notes:
        write.entry(title, text)


def title_line(comparison: Comparison) -> str:
    """Return the model, dataset, epochs and platform in one line."""
    workload = comparison.workload
    dims = "-".join(str(width) for width in workload.dims)
    epochs = _count(workload.epochs, "epoch")
    layers = _count(workload.num_layers, "layer")
    clock = "modelled" if comparison.modelled else "measured"
    return (
        f"gnnbench compare · {comparison.dataset['name']} · {comparison.model_title} {layers}, "
        f"{dims} · {epochs}, seed{TIE}{workload.seed} · {clock} on {comparison.platform}"
    )


def made_up_lines(comparison: Comparison) -> list[str]:
    """Return notes on data that was made up, or changed before training."""
    notes = comparison.dataset.get("notes", ())
    return [f"Note: {note}" for note in ([notes] if isinstance(notes, str) else notes)]  # type: ignore[union-attr]


def graph_line(comparison: Comparison) -> str:
    """Describe the graph, and the mini-batches if there are any."""
    dataset, batches = comparison.dataset, describe_mini_batches(comparison)
    return (
        f"{dataset['num_vertices']:,} vertices, {dataset['num_edges']:,} edges "
        f"({dataset['edge_convention']}){batches and f'; mini-batches of {batches}'}."
    )


def describe_mini_batches(comparison: Comparison) -> str:
    """Return ``"1,024 seeds, fan-outs 25, 10"``; empty if all rows are full-graph."""
    if all(run.mode == "full-graph" for run in comparison.runs):
        return ""
    workload = comparison.workload
    fanouts = ", ".join(str(n) if n else "all" for n in workload.fanouts)
    return f"{workload.batch_size:,} seeds, fan-outs {fanouts}"


def clock_line(comparison: Comparison) -> str:
    """Return one sentence that says whether device times are measured or modelled."""
    if not comparison.modelled:
        return f"All devices of {comparison.platform} are here: device times are measured."
    gpu = comparison.machine.get("gpu")
    here = f"{gpu} is not what is described" if gpu else "No CUDA device here"
    return f"{here}: numerics are real, device times are modelled on {comparison.platform}."


def provenance_line(comparison: Comparison) -> str:
    """Return where the columns come from, and the error of modelled ones."""
    if not comparison.modelled:
        return "Everything is from training here: times are measured, and bytes are counted."
    return (
        f"Losses, accuracies and equality are from training here. All other figures are modelled "
        f"on {comparison.platform}. {error_line(comparison.runs)}"
    )


def error_line(runs: Sequence[RunResult]) -> str:
    """Return the error of modelled epochs, and how much of it rows share."""
    found = [find_run_path(run) for run in runs if run.status == "done"]
    paths = [path for path in found if path is not None]
    if not paths:
        return "The model's own error is not known."
    return (
        f"The model's error: {cite_errors(paths)}. Rows have the same error where the same parts "
        f"do the same work on the same devices, so their order is more certain than their times."
    )


def machine_lines(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return this machine's own times, emulation included; never set against modelled times."""
    wall: list[str] = []
    ranks: list[str] = []
    harness: list[float] = []
    once: dict[Provenance, list[str]] = {}
    for row in list_done(groups):
        name = _unique_label(row, groups)
        if (metric := row.metric("wall_time")) is not None:
            wall.append(f"{name} {format_si(metric.value, 's')}")
        if (metric := row.metric("preprocessing_time")) is not None and metric.value > 0:
            seconds = f"{name} {format_si(metric.value, 's')}"
            once.setdefault(metric.provenance, []).append(seconds)
        if (metric := row.metric("harness_overhead")) is not None:
            harness.append(100.0 * metric.value)
        if (metric := row.done[0].metrics.get("peak_rank_bytes")) is not None:
            ranks.append(f"{name} {', '.join(format_si(size, 'B') for size in metric.samples)}")
    lines = []
    bases = dict.fromkeys(
        base.label for group in groups for p in ALL_PROVENANCES if (base := group.base(p))
    )
    if sum(len(row.done) > 0 for group in groups for row in group.rows) > len(bases):
        lines.append(("1.00x", f"speeds are relative to {', '.join(bases)}"))
    trained = [
        f"{_unique_label(row, groups)} {list_devices(row.trainers)}"
        for row in list_done(groups)
        if row.trainers
    ]
    if trained:
        lines.append(("trained on", "; ".join(trained)))
    if wall:
        text = f"wall [measured]: {', '.join(wall)} an epoch"
        if harness:
            low, high = f"{min(harness):.1f}", f"{max(harness):.1f}"
            text += f", of which harness {low if low == high else f'{low}-{high}'} %"
        lines.append(("this machine", text))
    if ranks:
        lines.append(("each rank", f"peak memory [measured]: {'; '.join(ranks)}"))
    for provenance, each in once.items():
        lines.append(("preprocessing", f"[{provenance}]: {', '.join(each)}, once"))
    return lines


def run_notes(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return the notes of the runs, each once, in the order of their first occurrence.

    The title of a note has the labels of all its rows: ``"vanilla, +P2P"``.
    """
    labels: dict[str, dict[str, None]] = {}
    for group in groups:
        for row in group.rows:
            for run in row.runs:
                for note in run.notes:
                    labels.setdefault(note, {})[_unique_label(row, groups)] = None
    return [(", ".join(rows), note) for note, rows in labels.items()]


def _print_stages(write: Writer, groups: Sequence[Group], provenance: Provenance) -> None:
    """Print seconds by stage, with the longest bars that keep them on one line, if any do."""
    title = f"stages [{provenance}]"
    label_width = _label_width(groups, title)
    for cells in range(_BAR_CELLS, 1, -1):
        columns = stage_columns(groups, provenance, cells)
        if len(_split(columns, label_width, write.width)) == 1:
            break
    _print_panels(write, groups, columns, title)


def _fit(columns: Sequence[Column], label_width: int, width: int) -> tuple[list[Column], list[str]]:
    """Return the columns that fit one panel, and the headings of those that are left out."""
    kept, left_out = list(columns), []
    while len(_split(kept, label_width, width)) > 1 and any(column.spare for column in kept):
        last = max(kept, key=lambda column: column.spare)
        kept.remove(last)
        left_out.append(last.heading_lines(False)[0])
    return kept, left_out


def _print_panels(
    write: Writer,
    groups: Sequence[Group],
    columns: Sequence[Column],
    title: str = "",
    with_failures: bool = False,
) -> None:
    """Print the columns side by side, or in as many panels as the width asks for."""
    label_width = _label_width(groups, title)
    for number, (panel, tall) in enumerate(_split(columns, label_width, write.width)):
        if number:
            write.blank()
        _print_panel(write, groups, panel, tall, label_width, title, with_failures and number == 0)


def _label_width(groups: Sequence[Group], title: str) -> int:
    labels = [row.label for group in groups for row in group.rows]
    head = title or groups[0].title
    return max(map(cell_len, (*labels, head))) + 1


def _split(
    columns: Sequence[Column], label_width: int, width: int
) -> list[tuple[list[Column], bool]]:
    """Return columns by panel, and whether headings take two lines: the widest layout that fits."""

    def needed(panel: Sequence[Column], tall: bool) -> int:
        return 1 + label_width + sum(2 + column.width(tall) for column in panel)

    for tall in (False, True):
        if needed(columns, tall) <= width:
            return [(list(columns), tall)]
    panels: list[tuple[list[Column], bool]] = []
    for leading in (True, False):
        panel: list[Column] = []
        for column in columns:
            if column.leading != leading:
                continue
            if panel and needed([*panel, column], True) > width:
                panels.append((panel, True))
                panel = []
            panel.append(column)
        if panel:
            panels.append((panel, True))
    return panels


def _print_panel(
    write: Writer,
    groups: Sequence[Group],
    columns: Sequence[Column],
    tall: bool,
    label_width: int,
    title: str,
    with_failures: bool,
) -> None:
    headings = [column.heading_lines(tall) for column in columns]
    height = max(map(len, headings), default=1)
    head_label = title or groups[0].title
    for line in range(height):
        last = line == height - 1
        cells: list[Styled] = [(" " + pad(head_label if last else "", label_width), "bold")]
        for column, heading in zip(columns, headings, strict=True):
            # One-line headings stand on the lower line.
            text = heading[line - height] if line - height >= -len(heading) else ""
            cells.append(("  " + pad(text, column.width(tall), column.align), "dim"))
        write.line(cells)
    number = 0
    for group in groups:
        titled = group.title == head_label or len(groups) == 1
        for row in group.rows:
            texts = [column.cells[number] for column in columns] if row.done else []
            number += bool(row.done)
            failures = row.failures if with_failures else ()
            has_figures = any(text for text, _ in texts)
            if not titled and (has_figures or failures):
                write.entry("", group.title, "bold", indent=1)
                titled = True
            if has_figures:
                line_cells: list[Styled] = [(" " + pad(row.label, label_width), "")]
                for column, (text, style) in zip(columns, texts, strict=True):
                    padded = pad(text, column.width(tall), column.align)
                    line_cells += [("  ", ""), (padded, style)]
                write.line(line_cells)
            for failure in failures:
                _print_failure(write, row.label, label_width, failure)


def _print_failure(write: Writer, label: str, label_width: int, failure: str) -> None:
    """Print an unfinished run: its status and reason, in place of figures."""
    indent = label_width + 3
    style = "red" if failure.startswith("error") else "yellow"
    lines = wrap(failure, max(30, write.width - indent))
    for number, line in enumerate(lines):
        lead = " " + pad(label, label_width) + "  " if number == 0 else " " * indent
        write.line([(lead, ""), (line, style)])


def _unique_label(row: Row, groups: Sequence[Group]) -> str:
    """Return the row's label, with its mode if another group has the same label."""
    same = [group for group in groups if any(other.label == row.label for other in group.rows)]
    return row.label if len(same) == 1 else f"{row.label} ({row.mode})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
