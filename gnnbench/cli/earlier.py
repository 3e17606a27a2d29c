"""``gnnbench compare A.json B.json``: what became faster or slower from one result to the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gnnbench.cli.options import Json, check_files, open_console, write_document

if TYPE_CHECKING:
    from gnnbench.report.results.earlier import Change, Pairing

#: Parameters that are allowed beside two files.
_ALLOWED = ("earlier", "json_path")


def compare_earlier(files: Sequence[Path], json_path: Path | None) -> int:
    """Compare two result files and return the exit status.

    The status is 1 if a row is shown to be slower in the second file. It is 4 if no row can be
    compared, such as measured rows of a busy machine.
    """
    _refuse_options(files)
    check_files(json_path, files=files)

    from gnnbench.report.earlier import print_change
    from gnnbench.report.results.earlier import hold_against

    change = hold_against(*files)
    print_change(change, open_console(json_path))
    if json_path is not None:
        write_document(_to_document(change), json_path)
    if all(pairing.difference is None for pairing in change.pairings):
        return 4
    return 1 if change.slower else 0


def _refuse_options(files: Sequence[Path]) -> None:
    context = click.get_current_context()
    if len(files) != 2:
        raise click.UsageError(
            f"result files are compared in twos, and {len(files)} are named; name the earlier one "
            f"and then the later one, or strategies by --plugins."
        )
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if given and name not in _ALLOWED:
            raise click.UsageError(
                f"{parameter.opts[0]} says how to train, and two result files are compared as they "
                f"are; leave it out."
            )


def _to_document(change: Change) -> dict[str, Json]:
    return {
        "before": change.names[0],
        "after": change.names[1],
        "warnings": change.warnings,
        "rows": [_describe(pairing) for pairing in change.pairings],
    }


def _describe(pairing: Pairing) -> dict[str, Json]:
    """Return a pairing as JSON; ``ratio`` is above 1 if the later run is faster."""
    found, described = pairing.difference, {"label": pairing.label, "mode": pairing.mode}
    times: dict[str, Json] = {}
    for name, row in (("before", pairing.before), ("after", pairing.after)):
        epoch = row.metric("epoch_time") if row is not None else None
        times[name] = None if epoch is None else epoch.value
    changes: dict[str, Json] = {
        name: {"before": before.value, "after": after.value, "unit": before.unit}
        for name, (before, after) in (pairing.changes or {}).items()
    }
    return {
        **described,
        "epoch_time": times,
        "ratio": None if found is None else found.ratio,
        "interval": None if found is None or isinf(found.high) else (found.low, found.high),
        "difference_shown": found is not None and found.shown,
        "why_not": pairing.why_not,
        "changes": changes,
    }
