"""The record of ``compare`` with one more option."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from gnnbench.errors import UsageError
from gnnbench.jobs.job import Job
from gnnbench.jobs.limits import Parsed
from gnnbench.jobs.options import Option


def refuse_assignments(texts: Sequence[str]) -> None:
    for text in texts:
        if "=" in text:
            raise UsageError(f"{text} is no program.")


@dataclass(frozen=True, kw_only=True)
class MoreJob(Job):
    """A comparison with programs."""

    programs: Annotated[
        Sequence[str],
        Option("Another program.", Parsed(refuse_assignments), flag="--program", repeated=True),
    ] = ()
