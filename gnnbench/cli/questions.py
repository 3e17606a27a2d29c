"""The question of ``matrix`` and ``advise``, and a bar of the plans that answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.cli.compare import ProgressBar
from gnnbench.cli.options import check_job_files, load_registry

if TYPE_CHECKING:
    from gnnbench.advice import Question
    from gnnbench.cli.outputs import Outputs
    from gnnbench.comparison import PlannedRow
    from gnnbench.jobs.job import AdviceJob


def make_question(job: AdviceJob, outputs: Outputs) -> Question:
    """Return the question that a job asks. Raises ``UsageError`` before the first slow import."""
    check_job_files(job, outputs)
    registry = load_registry(job.plugins, job.list_names())

    from gnnbench.advice import preparation

    return preparation.make_question(job, registry)


class PlanProgress:
    """A bar on a terminal that counts the combinations planned so far."""

    def __init__(self, total: int) -> None:
        self._bar = ProgressBar("plans")
        self._total = total

    def __enter__(self) -> PlanProgress:
        self._bar.__enter__()
        self._bar.begin("planning", self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__(None, None, None)

    def watch(self, _: PlannedRow) -> None:
        """Count one more planned combination."""
        self._bar.advance("planning")
