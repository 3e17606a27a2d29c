"""The main job: train each strategy on the same data, check it against the reference, compare.

Rows with measured times take turns, one epoch each, so that other load on the machine affects all
of them alike. Rows with modelled times run one after the other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

import psutil

import gnnbench
from gnnbench.comparison.dataset_guard import DatasetGuard
from gnnbench.comparison.finished import FinishedRuns
from gnnbench.comparison.frame import (
    PHASES,
    RowRun,
    RunState,
    Scene,
    describe_failure,
    empty_result,
)
from gnnbench.comparison.machine import MachineLoad, describe_machine
from gnnbench.comparison.orders import check_agreement, gather_nodes, obey
from gnnbench.comparison.request import (
    Options,
    OwnRow,
    PlannedRow,
    Request,
    Row,
    Variant,
    make_request,
)
from gnnbench.comparison.rows import (
    add_plain_rows,
    check_demanded,
    check_options,
    choose_modes,
    options_for,
    plan_ablation,
    plan_row,
    plan_rows,
)
from gnnbench.comparison.run import PartsSteps, needs_all
from gnnbench.datasets import edge_convention
from gnnbench.errors import GnnbenchError, IncompatiblePartsError, UsageError
from gnnbench.host import resume
from gnnbench.host.progress import doing
from gnnbench.kernels.pages import keep_pages, trim_heap
from gnnbench.models import build
from gnnbench.parts import Bundle, LayerClass, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.records import Card, Comparison, Dataset, RunResult, Status
from gnnbench.run import refuse_processes
from gnnbench.run.collectives import Processes

__all__ = [
    "Options",
    "PlannedRow",
    "Request",
    "Variant",
    "check_agreement",
    "check_options",
    "choose_modes",
    "compare",
    "describe_machine",
    "gather_nodes",
    "make_request",
    "make_setting",
    "options_for",
    "plan_ablation",
    "plan_row",
    "plan_rows",
    "serve",
]

#: Rows that take turns together hold at most this share of the machine's memory.
TURNS_SHARE = 0.4


def make_setting(request: Request, model: LayerClass | None = None) -> Setting:
    """Return the setting of a request; ``model`` is its workload's class, if not a bundled one."""
    return Setting(
        dataset=request.dataset,
        platform=request.platform,
        workload=request.workload,
        layers=build(request.workload, model=model).shapes,
        model=model,
    )


def compare(
    request: Request,
    registry: Registry,
    command: tuple[str, ...] = (),
    processes: Processes | None = None,
) -> Comparison:
    """Run every row and return all results; a row that fails says so and the others go on.

    Each finished run is kept (``gnnbench.host.resume``). If the job was stopped before and is
    resumed, finished runs are not run again, and a note says that they took no turns with the rest.

    With ``processes``, this process is rank 0. It trains rows that use several devices with the
    other ranks (:func:`serve`), and all other rows alone. An interrupt ends the runs that are under
    way; finished runs are returned, and ``Comparison.interrupted`` says so.

    From then on the process keeps freed memory, for all rows alike (:func:`keep_pages`). No row
    begins with memory that another row has left.

    Raises ``UsageError`` for a request that is contradictory, ``PluginError`` for a model that
    cannot be trained, and ``IncompatiblePartsError`` when no row's parts fit together.
    """
    keep_pages()
    model = registry.model(request.workload.model)
    setting = make_setting(request, model)
    with doing("preparing the comparison"):
        digest = request.dataset.digest()
        guard = DatasetGuard(request.dataset)
        rows, refusals = _find_rows(request, registry, setting, processes, guard)
        _require_some(rows, refusals)
        due = [row for row in rows if row not in refusals]
        finished = FinishedRuns(request, digest, due)
    load = MachineLoad()
    with doing("comparing", PHASES * len(due) * request.repeats) as whole:
        scene = Scene(request, registry, setting, whole, processes)
        runner = _run_rows(scene, guard, finished, due)
    results = [
        empty_result(row, repeat, refusals[row].status, refusals[row].reason)
        if row in refusals
        else runner.results[row, repeat]
        for row in rows
        for repeat in range(request.repeats)
    ]
    return Comparison(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        gnnbench=gnnbench.__version__,
        command=command,
        machine=describe_machine(),
        dataset=_describe_dataset(request.dataset, digest),
        workload=request.workload,
        model_title=model.title,
        platform=request.platform.name,
        platform_description=request.platform.description,
        modelled=request.platform.virtual,
        runs=tuple(results),
        noise="" if request.platform.virtual else load.describe(),
        interrupted=runner.interrupted,
        cards=_find_cards(rows, registry),
    )


def _run_rows(
    scene: Scene, guard: DatasetGuard, finished: FinishedRuns, due: Sequence[Row]
) -> _RowRunner:
    """Run all repeats of the rows that are not ``finished``; return the runner with all results."""
    request = scene.request
    runner = _RowRunner(scene, guard, finished)
    try:
        for repeat in range(request.repeats):
            runner.perform(due, repeat)
    finally:
        if request.programs is not None:
            request.programs.close()
    if scene.processes is not None:
        scene.processes.tell(None)
    if runner.interrupted:
        resume.stop()
    runner.results.update(finished.note_turns(runner.results))
    return runner


def _require_some(rows: Sequence[Row], refusals: Mapping[Row, _Refusal]) -> None:
    """Raise ``IncompatiblePartsError`` if no requested row, or no swapped row, can run."""
    swapped = [row for row in rows if row.swapped]
    for group in ([row for row in rows if not row.plain], swapped):
        found = [refusals[row] for row in group if row in refusals]
        if group and len(found) == len(group) and all(each.status != "error" for each in found):
            raise IncompatiblePartsError(found[0].reason)


def _find_cards(rows: Sequence[Row], registry: Registry) -> dict[str, Card]:
    """Return the cards of the rows' strategies; the steps of an ablation have none."""
    named, strategies = dict.fromkeys(row.strategy for row in rows), registry.strategies_by_name
    return {name: card for name in named if name in strategies and (card := strategies[name].card)}


def _describe_dataset(
    dataset: Dataset, digest: str
) -> dict[str, str | int | float | tuple[str, ...]]:
    """Describe the data set for the result file; ``digest`` was taken before anything ran."""
    return {
        "name": dataset.name,
        "num_vertices": dataset.graph.num_vertices,
        "num_edges": dataset.graph.num_edges,
        "edge_convention": edge_convention(dataset.graph),
        "num_features": dataset.num_features,
        "num_classes": dataset.num_classes,
        "digest": digest,
        "origin": dataset.origin,
        "feature_scaling": dataset.feature_scaling,
        "notes": dataset.notes,
    }


class _RowRunner:
    """Runs the rows of a repeat: one after the other, or in turns."""

    def __init__(self, scene: Scene, guard: DatasetGuard, finished: FinishedRuns) -> None:
        self._scene = scene
        self._guard = guard
        self._finished = finished
        self._in_turns = not scene.setting.platform.virtual
        self._lots = finished.lots
        self.results: dict[tuple[Row, int], RunResult] = dict(finished.runs)
        self.interrupted = ""

    def perform(self, rows: Sequence[Row], repeat: int) -> None:
        """Run every row once that is not finished; after an interrupt, run none."""
        waiting = deque(row for row in rows if (row, repeat) not in self.results)
        self._scene.whole.advance(PHASES * (len(rows) - len(waiting)))
        runs: dict[Row, RowRun] = {}
        try:
            while waiting and not self.interrupted:
                runs = {}
                while waiting and self._has_room(runs):
                    row = waiting.popleft()
                    runs[row] = self._open(row, repeat)
                if self._take_turns(list(runs.values())):
                    self._close(runs, repeat)
                    continue
                for row in runs:
                    self._close({row: self._run_alone(row, repeat)}, repeat)
        except KeyboardInterrupt as interrupt:
            self.interrupted = str(interrupt) or "interrupted."
            self._close_trained(runs, repeat)
        for row in rows:
            if (row, repeat) not in self.results:
                reason = "the comparison was interrupted before this run was over."
                if row in runs:
                    runs[row].fail("skipped", reason)
                self.results[row, repeat] = empty_result(row, repeat, "skipped", reason)

    def _open(self, row: Row, repeat: int) -> RowRun:
        """Open a run and train its first epoch, which is never timed, alone."""
        trim_heap()
        state = RunState(self._scene, row, repeat)
        steps = PartsSteps(state, row) if isinstance(row, PlannedRow) else row.make_steps(state)
        run = RowRun(state, steps)
        run.open()
        if not run.over:
            run.run_epoch()
        self._look_after(run)
        return run

    def _take_turns(self, runs: Sequence[RowRun]) -> bool:
        """Run one epoch of each, in this order and then in reverse, until all are over.

        Return False if one of several runs has written into the data set meanwhile. It is unknown
        which run wrote, and the others have trained on it, so all have to run again, alone.
        """
        order = list(runs)
        while any(not run.over for run in order):
            for run in order:
                if not run.over:
                    run.run_epoch()
            order.reverse()
        altered = self._guard.restore()
        if altered and len(runs) == 1:
            runs[0].fail("error", altered)
            return True
        for run in runs if altered else ():
            run.fail("error", altered)
        return not altered

    def _run_alone(self, row: Row, repeat: int) -> RowRun:
        run = self._open(row, repeat)
        while not run.over:
            run.run_epoch()
        self._look_after(run)
        return run

    def _look_after(self, run: RowRun) -> None:
        """Fail a run if it has written into the data set, and restore the data for the others."""
        altered = self._guard.restore()
        if altered:
            run.fail("error", altered)

    def _close(self, runs: Mapping[Row, RowRun], repeat: int) -> None:
        """Check and summarise runs that took turns."""
        self._lots += 1
        for row, run in runs.items():
            whole, result = run.over, run.close()
            self._look_after(run)
            result = self.results[row, repeat] = replace(run.result or result, lot=self._lots)
            if whole:
                self._finished.keep(row, repeat, result)

    def _close_trained(self, runs: Mapping[Row, RowRun], repeat: int) -> None:
        """Close the runs that were fully trained when an interrupt came, with fewer time samples.

        A second interrupt ends this too.
        """
        try:
            self._close({row: run for row, run in runs.items() if run.trained}, repeat)
        except KeyboardInterrupt:
            return

    def _has_room(self, runs: dict[Row, RowRun]) -> bool:
        if not runs:
            return True
        held_bytes = sum(run.held_bytes for run in runs.values())
        return self._in_turns and held_bytes < TURNS_SHARE * psutil.virtual_memory().total


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a row does not run: its parts do not fit, or a part failed when it was asked."""

    status: Status
    reason: str


def _find_rows(
    request: Request,
    registry: Registry,
    setting: Setting,
    processes: Processes | None,
    guard: DatasetGuard | None = None,
) -> tuple[tuple[Row, ...], dict[Row, _Refusal]]:
    """Return the rows, plain ones and programs included, and why some of them cannot run."""
    asks = request.strategies or request.rows or request.programs is None
    rows = plan_rows(request, registry) if asks else ()
    own_rows = _list_own_rows(request, rows)
    check_demanded((*rows, *own_rows), request.demanded)
    check_options(rows, request.options, registry)
    found: dict[PlannedRow, _Refusal | None] = {}

    def refuse(row: PlannedRow) -> str | None:
        bundle = assemble(registry, row.parts, options_for(row, request.options, registry))
        return bundle.refusal(setting) or _refuse_processes(bundle, setting, processes)

    def ask(row: PlannedRow) -> _Refusal | None:
        why = _ask(row.label, partial(refuse, row), "its parts could not be asked whether they fit")
        if why is not None and why.status == "error":
            return why
        altered = guard.restore() if guard is not None else ""
        return _Refusal("error", altered) if altered else why

    def fits(row: PlannedRow) -> bool:
        if row not in found:
            found[row] = ask(row)
        return found[row] is None

    if request.plain:
        rows = add_plain_rows(rows, registry, fits)
    for row in rows:
        fits(row)
    refused: dict[Row, _Refusal] = {row: why for row in rows if (why := found[row]) is not None}
    for own in own_rows:
        said = _ask(
            own.label, partial(own.refusal, setting), "it could not be asked whether it can run"
        )
        if said is not None:
            refused[own] = said
    return (*rows, *own_rows), refused


def _list_own_rows(request: Request, rows: Sequence[PlannedRow]) -> Sequence[OwnRow]:
    """Return the rows of programs, in the modes of the other rows."""
    if request.programs is None:
        return ()
    modes = request.modes or tuple(dict.fromkeys(row.mode for row in rows))
    found = request.programs.list_rows(modes)
    labels = {row.label for row in rows}
    for own in found:
        if own.label in labels:
            raise UsageError(
                f"program {own.label!r} has the name of another row; rename the program."
            )
    return found


def _ask(label: str, find: Callable[[], str | None], failed: str) -> _Refusal | None:
    """Return the refusal of a row by what ``find`` says; foreign code in it may fail."""
    try:
        why = find()
    except (GnnbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if os.environ.get("GNNBENCH_DEBUG"):
            raise
        return _Refusal("error", f"{failed}: {describe_failure(error)}")
    return None if why is None else _Refusal("skipped", f"{label}: {why}")


def serve(request: Request, registry: Registry, processes: Processes) -> None:
    """Train the share of a rank other than 0, of rows that use several devices, when rank 0 does.

    Raises ``PeerLostError`` when the other ranks are gone.
    """
    keep_pages()
    setting = make_setting(request, registry.model(request.workload.model))
    obey(request, registry, setting, processes)


def _refuse_processes(bundle: Bundle, setting: Setting, processes: Processes | None) -> str | None:
    if not needs_all(bundle, setting):
        return None
    return refuse_processes(bundle, setting, processes)
