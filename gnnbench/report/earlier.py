"""Two earlier results in a terminal: what became faster or slower, and what else changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console

from gnnbench.comparison.ranking import MODE_TITLES, level_of
from gnnbench.records import Mode
from gnnbench.report.columns import format_range
from gnnbench.report.results.earlier import UNKNOWN, Change, Pairing
from gnnbench.report.writer import Writer, pad
from gnnbench.statistics import Difference
from gnnbench.units import format_si


def print_change(change: Change, console: Console) -> None:
    """Print which rows became faster or slower, possible causes, and both epochs of all rows."""
    write = Writer(console)
    workload = change.after.workload
    dims = "-".join(map(str, workload.dims))
    write.paragraph(
        f"gnnbench compare · {change.names[0]} ({change.before.created}) and {change.names[1]} "
        f"({change.after.created}) · {change.after.dataset.name} · {workload.model}, {dims}",
        "bold",
    )
    write.blank()
    for sentence in summarise_change(change):
        write.entry("", sentence, "bold", indent=1)
    for warning in change.warnings:
        write.entry("", warning, "yellow", indent=1)
    found = [pairing for pairing in change.pairings if pairing.difference is not None]
    if found:
        write.entry("", _tell_rule(found), "dim", indent=1)
    for mode in MODE_TITLES:
        pairings = [pairing for pairing in change.pairings if pairing.mode == mode]
        if pairings:
            write.blank()
            _print_rows(write, mode, pairings, change.names)


def summarise_change(change: Change) -> list[str]:
    """Return sentences for each mode on the rows that are shown to be faster or slower later."""
    sentences = []
    for mode, title in MODE_TITLES.items():
        own = [pairing for pairing in change.pairings if pairing.mode == mode]
        compared = [(each.label, each.difference) for each in own if each.difference is not None]
        clauses = [
            f"{label} takes {1 / found.ratio:.2f} times as long as before"
            if found.ratio < 1
            else f"{label} is {found.ratio:.2f} times as fast as before"
            for label, found in compared
            if found.shown
        ]
        level = [label for label, found in compared if not found.shown]
        if level:
            clauses.append(f"no difference is shown for {', '.join(level)}")
        reasons: dict[str, list[str]] = {}
        for each in own:
            if each.why_not.startswith(UNKNOWN):
                reasons.setdefault(each.why_not, []).append(each.label)
        clauses += [
            why_not.replace(UNKNOWN, f"{UNKNOWN} whether {', '.join(labels)} became faster", 1)
            for why_not, labels in reasons.items()
        ]
        if clauses:
            start = f"{title[0].upper()}{title[1:]}, {change.names[1]}"
            sentences.append(f"{start}: {'; '.join(clauses)}.")
    return sentences or [f"{change.names[0]} and {change.names[1]} have no row to compare."]


def _tell_rule(compared: Sequence[Pairing]) -> str:
    """Return the rule of "faster" between two files, with its level."""
    epochs = [row.metric("epoch_time") for each in compared if (row := each.after) is not None]
    kinds = dict.fromkeys(epoch.provenance for epoch in epochs if epoch is not None)
    margins = dict.fromkeys(each.difference.margin for each in compared if each.difference)
    levels = " and ".join(f"{100 * level_of(kind):g} % of {kind} rows" for kind in kinds)
    beyond = " and ".join(f"{100 * margin:g} %" for margin in margins)
    return f"Ranges hold {levels}; a row is faster or slower where its range is beyond {beyond}."


def _print_rows(
    write: Writer, mode: Mode, pairings: Sequence[Pairing], names: tuple[str, str]
) -> None:
    lines = [(MODE_TITLES[mode], *names, "speed", ""), *map(_tell_row, pairings)]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(4)]
    for number, line in enumerate(lines):
        cells = [pad(line[0], widths[0])]
        cells += [
            pad(text, width, "right") for text, width in zip(line[1:4], widths[1:], strict=True)
        ]
        write.line([(" " + "  ".join((*cells, line[4])).rstrip(), "" if number else "bold")])
    for pairing in pairings:
        for name, (before, after) in (pairing.changes or {}).items():
            told = f"{format_si(before.value, before.unit)} to {format_si(after.value, after.unit)}"
            write.entry(pairing.label, f"{name}: {told}")


def _tell_row(pairing: Pairing) -> tuple[str, ...]:
    """Return label, both epochs, the later one's speed, and its interval or why there is none."""
    times = []
    for row in (pairing.before, pairing.after):
        epoch = row.metric("epoch_time") if row is not None else None
        times.append("" if epoch is None else f"{format_si(epoch.value, epoch.unit)}")
    found = pairing.difference
    if found is None:
        return pairing.label, *times, "", pairing.why_not
    return pairing.label, *times, f"{found.ratio:.2f}x", _tell_interval(found)


def _tell_interval(found: Difference) -> str:
    beyond = f"no difference shown beyond {100 * found.margin:g} %"
    return format_range(found) if found.shown else f"{format_range(found)} {beyond}".lstrip()
