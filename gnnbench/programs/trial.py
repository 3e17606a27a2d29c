"""A comparison of programs on a task of chosen sizes, for their check and for their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnbench.comparison import Request, compare
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.plugins import Registry
from gnnbench.programs.rows import ProgramRows
from gnnbench.programs.run import AnyProgram
from gnnbench.records import Dataset, Mode, RunResult, Workload


@dataclass(frozen=True, slots=True)
class TrialSizes:
    """The sizes of a task besides its graph, and the threads of a row."""

    hidden: int
    epochs: int
    batch: int
    fanouts: tuple[int, ...]
    threads: int


def make_trial(
    programs: Sequence[AnyProgram],
    registry: Registry,
    data: Dataset,
    mode: Mode,
    model: str,
    sizes: TrialSizes,
) -> Request:
    """Return the request for the programs alone, on this machine."""
    workload = Workload(
        model=model,
        dims=(data.num_features, sizes.hidden, data.num_classes),
        epochs=sizes.epochs,
        batch_size=sizes.batch,
        fanouts=sizes.fanouts,
        seed=0,
        learning_rate=registry.model(model).learning_rate,
        threads=sizes.threads,
    )
    return Request(
        (),
        data,
        workload,
        load_platform(LOCAL),
        modes=(mode,),
        programs=ProgramRows(programs, registry),
    )


def run_trial(request: Request, registry: Registry) -> tuple[RunResult, ...]:
    """Return the runs of a trial. Raises ``IncompatiblePartsError`` and ``KeyboardInterrupt``."""
    found = compare(request, registry)
    if found.interrupted:
        raise KeyboardInterrupt
    return found.runs
