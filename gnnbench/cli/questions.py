"""The question of ``matrix`` and ``advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.cli.options import check_job_files, load_registry

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.advice import Question
    from gnnbench.cli.outputs import Outputs
    from gnnbench.jobs.job import AdviceJob


def make_question(job: AdviceJob, outputs: Outputs) -> Question:
    """Return the question that a job asks. Raises ``UsageError`` before the first slow import."""
    check_job_files(job, outputs)
    registry = load_registry(job.plugins, job.list_names())

    from gnnbench.advice import preparation

    return preparation.make_question(job, registry)


def print_title(command: str, question: Question, console: Console) -> None:
    """Print the command with the graph, the model and the machine that it is about."""
    names = (question.dataset.name, question.workload.model, question.platform.name)
    console.print(" · ".join((f"gnnbench {command}", *names)), style="bold", soft_wrap=True)
