"""The outputs of a command, as options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gnnbench.jobs.groups import ADVICE, COMPARISONS
from gnnbench.jobs.limits import FLAG
from gnnbench.jobs.options import Option


class File:
    """The rule of a path that the command writes."""

    def __str__(self) -> str:
        return "a path"

    def read(self, value: object) -> object:
        """Return the path."""
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files that a command writes, and how much it prints."""

    trace_path: Annotated[
        Path | None,
        Option(
            "Write the last epoch's timelines as Chrome trace JSON, which Perfetto opens.",
            File(),
            flag="--trace",
            metavar="FILE",
            commands=COMPARISONS,
        ),
    ] = None
    html_path: Annotated[
        Path | None,
        Option(
            "Write the comparison as one self-contained web page.",
            File(),
            flag="--html",
            metavar="FILE",
            commands=COMPARISONS,
        ),
    ] = None
    details: Annotated[
        bool,
        Option(
            "Print all findings.",
            FLAG,
            by_command={
                COMPARISONS: "Print every figure: stages, bytes, energy, this machine's own "
                "times, and notes."
            },
            commands=(*COMPARISONS, *ADVICE),
        ),
    ] = False
    json_path: Annotated[
        Path | None,
        Option(
            "Write the result as JSON; '-' is standard output, with nothing else on it.",
            File(),
            flag="--json",
            metavar="FILE",
        ),
    ] = None
