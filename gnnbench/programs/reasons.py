"""Why a strategy and the program that it rebuilds differ in time: the stage that differs most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from gnnbench.programs.run import AnyProgram
from gnnbench.programs.sessions import CommandTraining
from gnnbench.programs.task_folder import TaskFolders
from gnnbench.records import CommandProgram, PartKind, RunResult, Stage, Task
from gnnbench.units import format_si

#: The option by which a program states the stages that cost it time to tell apart.
OPTION = "stages"
#: Epochs whose stages are timed, after a first one.
EPOCHS = 5
#: Shares of an epoch: their stages, and the part of a strategy that computes them.
SHARES: Mapping[str, tuple[tuple[Stage, ...], PartKind]] = {
    "sampling and loading": (("sample", "load", "transfer"), "sampler"),
    "AGGREGATE": (("aggregate", "recompute"), "kernel"),
    "UPDATE": (("update", "synchronize"), "kernel"),
}
REST = "the time outside of these stages"


def read_stages(run: RunResult) -> dict[Stage, float]:
    """Return the seconds of a run's stages."""
    return {stage: metric.value for stage, metric in run.stages.items()}


def time_stages(program: AnyProgram, run: RunResult, task: Task) -> dict[Stage, float]:
    """Return the seconds of a program's stages in an epoch of its run.

    A program with the option ``stages`` runs again with it. The stages of that run are scaled to
    the epochs of ``run``. Raises ``ProgramFailedError``.
    """
    if not isinstance(program, CommandProgram) or OPTION not in program.options:
        return read_stages(run)
    chosen = replace(program, options={**program.options, OPTION: 1})
    folders = TaskFolders()
    training = CommandTraining(chosen, task, folders.write(task))
    try:
        epochs = [training.run_epoch(number) for number in range(EPOCHS + 1)][1:]
    finally:
        training.kill()
        folders.close()
    scale = run.metrics["epoch_time"].value / median(each.seconds for each in epochs)
    stages = epochs[0].report.stages
    return {stage: scale * median(each.report.stages[stage] for each in epochs) for stage in stages}


def explain(peer: RunResult, own: RunResult, stages: Mapping[Stage, float]) -> str:
    """Return the share of an epoch that makes most of the difference, as a clause.

    ``peer`` is a strategy's run and ``own`` its program's, with the seconds of its ``stages``.
    """
    known = [name for name, (its, _) in SHARES.items() if any(stage in stages for stage in its)]
    ours, theirs = _divide(peer, read_stages(peer), known), _divide(own, stages, known)
    sign = 1.0 if sum(theirs.values()) > sum(ours.values()) else -1.0
    name = max(ours, key=lambda each: sign * (theirs[each] - ours[each]))
    part = ""
    if name != REST and peer.parts is not None:
        kind = SHARES[name][1]
        part = f" ({kind} {getattr(peer.parts, kind)})"
    return (
        f"{name}{part} takes {format_si(ours[name], 's')}, and {format_si(theirs[name], 's')} in "
        f"{own.label}"
    )


def _divide(
    run: RunResult, stages: Mapping[Stage, float], names: Sequence[str]
) -> dict[str, float]:
    """Return the seconds of the named shares and the rest, which is below 0 if stages overlap."""
    found = {name: sum(stages.get(each, 0.0) for each in SHARES[name][0]) for name in names}
    return found | {REST: run.metrics["epoch_time"].value - sum(found.values())}
