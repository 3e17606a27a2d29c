"""The reason why one row is faster than another: its parts, a stage, and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from gnnbench.comparison.ranking import Row
from gnnbench.records import STAGES, Stage
from gnnbench.units import format_si

#: The least change of bytes that is named.
NAMED_CHANGE = 0.05
_HOST_LINKS = ("over the host links", ("host_to_device_bytes", "device_to_host_bytes"))
#: The bytes that a stage moves, and their path.
_MOVED: Mapping[Stage, tuple[str, tuple[str, ...]]] = {
    "transfer": _HOST_LINKS,
    "offload": _HOST_LINKS,
    "synchronize": (
        "between devices",
        ("device_to_device_bytes", "all_to_all_bytes", "all_reduce_bytes"),
    ),
}


def explain_lead(winner: Row, loser: Row) -> str:
    """Return a clause on the winner's largest saving, with the parts that differ.

    Such as ``" (communication: offload takes 770 µs instead of 4.30 ms, and 156 MB instead of 831
    MB go over the host links)"``. Stages are busy seconds. If no stage shrinks by a twentieth of
    the epoch's gain, the reason is overlap of stages or an even load of devices. Empty if the two
    rows' stages print alike.
    """
    gaps = []
    for stage in STAGES:
        ours, theirs = winner.stage(stage), loser.stage(stage)
        if ours is None and theirs is None:
            continue
        if ours is not None and theirs is not None and ours.provenance != theirs.provenance:
            continue
        spent, other = (metric.value if metric else 0.0 for metric in (ours, theirs))
        gaps.append((other - spent, stage, spent, other))
    if not gaps:
        return ""
    gain, stage, spent, other = max(gaps)
    parts = _name_parts(winner, loser)
    won, lost = winner.metric("epoch_time"), loser.metric("epoch_time")
    if won is not None and lost is not None and gain < NAMED_CHANGE * (lost.value - won.value):
        busy = sum(spent for _, _, spent, _ in gaps)
        if busy <= won.value:
            return f" ({parts}no stage is much shorter; devices wait less)"
        return (
            f" ({parts}no stage is much shorter, but they overlap: {format_si(busy, 's')} of work "
            f"in {format_si(won.value, 's')})"
        )
    if format_si(spent, "s") == format_si(other, "s"):
        return ""
    return (
        f" ({parts}{stage} takes {format_si(spent, 's')} instead of {format_si(other, 's')}"
        f"{_tell_bytes(stage, winner, loser)})"
    )


def _name_parts(winner: Row, loser: Row) -> str:
    """Return ``"communication: "``, the parts that differ; empty if all or none of them do."""
    ours, theirs = winner.done[0].parts, loser.done[0].parts
    kinds = [field.name for field in fields(ours)]
    others = [kind for kind in kinds if getattr(ours, kind) != getattr(theirs, kind)]
    return f"{' and '.join(others)}: " if 0 < len(others) < 3 else ""


def _tell_bytes(stage: Stage, winner: Row, loser: Row) -> str:
    """Return a clause on the bytes that a stage moves, if the winner moves clearly fewer."""
    if stage not in _MOVED:
        return ""
    path, names = _MOVED[stage]
    ours, theirs = winner.sum_metrics(*names), loser.sum_metrics(*names)
    if ours is None or theirs is None or ours.value > (1 - NAMED_CHANGE) * theirs.value:
        return ""
    return f", and {format_si(ours.value, 'B')} instead of {format_si(theirs.value, 'B')} go {path}"
