"""The messages of a program: one JSON object a line on its standard output.

``ready``, ``epoch_begin``, ``epoch_end`` and ``done`` are the events. gnnbench writes orders to the
program's standard input, also one JSON object a line: ``epoch``, and ``save``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from gnnbench.errors import GnnbenchError
from gnnbench.records import STAGES, EpochReport

EVENTS = ("ready", "refused", "epoch_begin", "epoch_end", "done")
#: The number of characters of a wrong line that a sentence repeats.
_SHOWN = 60


class ProgramFailedError(GnnbenchError):
    """A program that broke the protocol, ended early, hung, or did what no program may do."""


class ProgramRefusedError(GnnbenchError):
    """A program's own statement that it cannot train a task."""


@dataclass(frozen=True, slots=True)
class Message:
    """An event, its fields, and the time at which its line was read."""

    event: str
    fields: Mapping[str, Any]
    at_s: float


def parse_message(line: bytes, at_s: float) -> Message:
    """Parse a line of a program. Raises ``ProgramFailedError`` for anything but a message."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("event") not in EVENTS:
        raise ProgramFailedError(
            f"it wrote {show_line(line)} to standard output, which is for messages; print "
            f"everything else to standard error."
        )
    return Message(content["event"], content, at_s)


def show_line(line: bytes) -> str:
    """Return a line as a short text for a sentence."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def read_report(message: Message, epoch: int, layers: int) -> EpochReport:
    """Read the fields of ``epoch_end``. Raises ``ProgramFailedError`` for missing or wrong ones."""
    check_epoch(message, epoch)
    fields = message.fields
    edges, stages = fields.get("edges", ()), fields.get("stages", {})
    if not isinstance(edges, (list, tuple)) or not all(map(_is_count, edges)):
        raise ProgramFailedError(
            f"edges of epoch {epoch} are {edges!r}; give a whole number a layer."
        )
    if edges and len(edges) != layers:
        raise ProgramFailedError(
            f"edges of epoch {epoch} are of {len(edges)} layers, not {layers}."
        )
    if not isinstance(stages, dict) or not all(map(_is_seconds, stages.values())):
        raise ProgramFailedError(f"stages of epoch {epoch} are {stages!r}; give seconds by stage.")
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise ProgramFailedError(
            f"there is no stage {unknown[0]!r}; the stages are {', '.join(STAGES)}."
        )
    loss = fields.get("loss")
    if isinstance(loss, bool) or not isinstance(loss, (int, float)):
        raise ProgramFailedError(f"the loss of epoch {epoch} is {loss!r}; give a number.")
    return EpochReport(
        float(loss),
        _read_count(fields, "updates", epoch),
        _read_count(fields, "seeds", epoch),
        tuple(edges),
        stages,
    )


def check_epoch(message: Message, epoch: int) -> None:
    """Check that a message is of the epoch that was ordered. Raises ``ProgramFailedError``."""
    said = message.fields.get("epoch")
    if isinstance(said, bool) or said != epoch:
        raise ProgramFailedError(
            f"it was asked for epoch {epoch}, and its {message.event} says {said!r}; train the "
            f"epoch that the order names, and no other."
        )


def read_texts(message: Message, name: str) -> dict[str, str]:
    """Read a table of texts. Raises ``ProgramFailedError`` for anything else."""
    found = message.fields.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ProgramFailedError(f"{name} of {message.event} is {found!r}; give texts by name.")
    return found


def read_text(message: Message, name: str) -> str:
    """Read a text that may be absent. Raises ``ProgramFailedError`` for anything but a text."""
    found = message.fields.get(name, "")
    if not isinstance(found, str):
        raise ProgramFailedError(f"{name} of {message.event} is {found!r}; give a text.")
    return found


def read_parts(message: Message) -> int:
    """Read the number of processes that draw. Raises ``ProgramFailedError`` for any below 1."""
    found = message.fields.get("parts", 1)
    if not _is_count(found) or not found:
        raise ProgramFailedError(
            f"parts of {message.event} is {found!r}; give the number of processes that each draw "
            f"a part of a mini-batch."
        )
    return found


def write_order(order: str, **fields: object) -> bytes:
    """Return the line of an order to a program."""
    return json.dumps({"order": order, **fields}).encode() + b"\n"


def _read_count(fields: Mapping[str, Any], name: str, epoch: int) -> int:
    value = fields.get(name)
    if not _is_count(value):
        raise ProgramFailedError(f"{name} of epoch {epoch} is {value!r}; give a whole number.")
    return value


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value >= 0
