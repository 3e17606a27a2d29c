"""The gain of each step of an ablation: the lines below its comparison's table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console

from gnnbench.comparison.ranking import Row, find_difference, group_runs
from gnnbench.records import Ablation, Comparison
from gnnbench.report.reasons import explain_lead
from gnnbench.report.verdict import tell_interval
from gnnbench.report.writer import Writer, pad
from gnnbench.units import format_si


def print_steps(comparison: Comparison, console: Console, steps: Sequence[Ablation] = ()) -> None:
    """Print one line for each finished row: its speed against an earlier row.

    With ``steps`` a row is compared with the row before and with the first, beside the paper's
    figure. Without, it is compared with the first row, which is the whole strategy.
    """
    quoted = {step.label: step.quoted for step in steps}
    write = Writer(console)
    for group in group_runs(comparison):
        done = [row for row in group.rows if row.metric("epoch_time") is not None]
        if not done:
            continue
        write.blank()
        epochs = [row.metric("epoch_time") for row in done]
        provenance = next(epoch.provenance for epoch in epochs if epoch is not None)
        write.paragraph(
            f"Contribution of each {'step' if steps else 'part'} [{provenance}]", "bold"
        )
        width = max(cell_len(row.label) for row in done)
        for number, row in enumerate(done):
            base = done[max(0, number - 1) if steps else 0]
            text = describe_step(row, base)
            if steps and base is not done[0]:
                text += describe_total(row, done[0])
            if quoted.get(row.label) is not None:
                text += f"; the paper has up to {quoted[row.label]:.2f}x [quoted]"
            write.line([(f" {pad(row.label, width)}  ", ""), (text, "")])


def describe_total(row: Row, first: Row) -> str:
    """Return ``", 1.66x that of offload all (80 %: 1.40 to 1.90)"``; empty without times."""
    speed, epoch = find_difference(row, first), row.metric("epoch_time")
    if speed is None or epoch is None:
        return ""
    interval = tell_interval(speed, epoch.provenance)
    return f", {speed.ratio:.2f}x that of {first.label}{interval}"


def describe_step(row: Row, base: Row) -> str:
    """Return the row's epoch time and its speed against ``base``.

    Such as ``"4.41 ms, 1.22x the speed of +P2P (80 %: 1.10 to 1.35) (transfer takes ...)"``.
    Only the epoch time if the row is its own base.
    """
    epoch = row.metric("epoch_time")
    if epoch is None:
        return ""
    seconds = format_si(epoch.value, "s")
    speed = find_difference(row, base)
    if row is base or speed is None:
        return seconds
    interval = tell_interval(speed, epoch.provenance)
    told = f"{seconds}, {speed.ratio:.2f}x the speed of {base.label}{interval}"
    if not speed.shown:
        return f"{told}, no difference shown"
    faster, slower = (row, base) if speed.ratio >= 1.0 else (base, row)
    return f"{told}{explain_lead(faster, slower)}"
