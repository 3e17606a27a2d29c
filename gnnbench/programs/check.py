"""A check of one program: a short task in each of its modes and models, on a small graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

from gnnbench import datasets
from gnnbench.comparison.ranking import make_row
from gnnbench.errors import IncompatiblePartsError
from gnnbench.host.progress import doing
from gnnbench.host.resume import once
from gnnbench.plugins import Registry
from gnnbench.programs.references import describe_spread
from gnnbench.programs.run import AnyProgram
from gnnbench.programs.trial import TrialSizes, make_trial, run_trial
from gnnbench.records import Dataset, Mode, RunResult

#: The small graph, and the sizes of the task.
GRAPH = "sbm:vertices=400,edges=3k,features=12,classes=4"
HIDDEN, EPOCHS, BATCH, FANOUTS = 8, 6, 32, (5, 3)

Verdict = Literal["passed", "not-ranked", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """The outcome of a mode and a model, with its reason.

    ``not-ranked`` programs are timed, but something of them was not verified. ``refused`` means
    that the program itself does not train the task.
    """

    mode: Mode
    model: str
    status: Verdict
    reason: str


def check_program(
    program: AnyProgram, registry: Registry, dataset: Dataset | None = None, threads: int = 1
) -> tuple[ProgramOutcome, ...]:
    """Return the outcome for each mode and model of a program; others are not tried."""
    data = datasets.load(GRAPH) if dataset is None else dataset
    tried = list(product(program.modes, program.models))
    outcomes = []
    with doing(f"checking {program.name}", len(tried)) as checking:
        for mode, model in tried:
            check = partial(_check, program, registry, data, threads, mode, model)
            outcomes.append(once(check, mode, model))
            checking.advance()
    return tuple(outcomes)


def _check(
    program: AnyProgram, registry: Registry, data: Dataset, threads: int, mode: Mode, model: str
) -> ProgramOutcome:
    sizes = TrialSizes(HIDDEN, EPOCHS, BATCH, FANOUTS, threads)
    try:
        runs = run_trial(make_trial((program,), registry, data, mode, model, sizes), registry)
    except IncompatiblePartsError as error:
        reason = str(error).removeprefix(f"{program.name}: ")
        return ProgramOutcome(mode, model, "refused", reason)
    return ProgramOutcome(mode, model, *_judge(runs[0]))


def _judge(run: RunResult) -> tuple[Verdict, str]:
    if run.status == "skipped":
        return "refused", run.reason
    if run.status != "done":
        return "failed", run.reason
    if run.equivalence is not None and not run.equivalence.holds:
        return "failed", run.equivalence.fault
    why_not = make_row(run.label, run.mode, [run]).why_not
    if why_not:
        return "not-ranked", why_not
    if run.equivalence is None:
        return "passed", describe_spread()
    error = run.equivalence.max_relative_loss_error
    return "passed", f"equal to plain training: losses are off by at most {error:.0e}"
