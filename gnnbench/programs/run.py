"""The steps of a whole program as a row of a comparison: started, timed, checked and ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import psutil
import torch

from gnnbench.comparison.frame import SKIPS, RunState, empty_result
from gnnbench.comparison.run import EVERY_NEIGHBOUR
from gnnbench.host.cores import count_cores
from gnnbench.models import build
from gnnbench.parts import UNIFORM, Setting
from gnnbench.programs.messages import ProgramFailedError, ProgramRefusedError
from gnnbench.programs.references import describe_spread
from gnnbench.programs.sessions import (
    CommandTraining,
    OwnTraining,
    TimedEpoch,
    Training,
    check_seconds,
    is_short,
)
from gnnbench.programs.spread import SEEDS, Course
from gnnbench.records import (
    STAGES,
    CommandProgram,
    EpochWork,
    Equivalence,
    Metric,
    Mode,
    Parameters,
    Program,
    RunResult,
    Stage,
    Status,
    Task,
)
from gnnbench.statistics import count_warmup
from gnnbench.units import format_si

if TYPE_CHECKING:
    from gnnbench.programs.rows import ProgramRow

AnyProgram = CommandProgram | type[Program]


def make_task(setting: Setting, mode: Mode) -> Task:
    """Return the task of a setting, with as many of this process's cores as it has threads."""
    workload = setting.workload
    threads = workload.threads or count_cores()
    cores = sorted(os.sched_getaffinity(0))[:threads]
    host = setting.platform.host
    parameters = build(workload, model=setting.model).named_parameters()
    return Task(
        mode=mode,
        dataset=setting.dataset,
        workload=workload,
        parameters={name: value.detach().numpy() for name, value in parameters},
        threads=threads,
        cores=tuple(cores),
        memory_bytes=host.hardware.memory_bytes or psutil.virtual_memory().total,
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """What a comparison with plain training has found; see :class:`RunResult`."""

    equivalence: Equivalence | None = None
    unverified: str = ""
    spread_seeds: int = 0
    note: str = ""


class ProgramSteps:
    """The steps of a program's row; see :class:`gnnbench.comparison.frame.RowSteps`.

    After ``release`` no process of the program is left.
    """

    skips = (*SKIPS, ProgramRefusedError)
    measured = True

    def __init__(self, state: RunState, row: ProgramRow) -> None:
        self._state, self._row = state, row
        self._program, self._mode, self._references = row.program, row.mode, row.references
        self._setting = state.setting
        self._training: Training | None = None
        self._epochs: list[TimedEpoch] = []
        self._saved: Parameters = {}

    @property
    def alive(self) -> bool:
        """Whether the program is there."""
        return self._training is not None

    @property
    def held_bytes(self) -> int:
        """The bytes of this machine's memory that the program holds."""
        return 0 if self._training is None else self._training.peak_bytes

    # ------------------------------------------------------------------ the three steps

    def open(self) -> None:
        """Start the program, and wait until it is ready."""
        task = make_task(self._setting, self._mode)
        if isinstance(self._program, CommandProgram):
            folder: Path = self._row.folders.write(task)
            self._training = CommandTraining(self._program, task, folder)
        else:
            self._training = OwnTraining(self._program, task)
        if self._mode == "mini-batch" and not self._training.sampling:
            raise ProgramFailedError(
                "it trains mini-batches and states no sampling law; give sampling when it is "
                "ready, such as 'uniform without replacement'."
            )

    def train(self, number: int) -> float:
        """Train and time an epoch, and return its seconds."""
        timed = self._open_training.run_epoch(number)
        self._epochs.append(timed)
        return timed.seconds

    def look(self) -> None:
        """Refuse a report that the time of its epoch contradicts."""
        check_seconds(self._epochs[-1], len(self._epochs) - 1)

    def evaluate(self, *, last: bool) -> Mapping[str, float]:
        """Return the accuracies of the program's parameters now."""
        parameters = self._open_training.read_parameters()
        if last:
            self._saved = parameters
        return self._evaluate(parameters)

    def _evaluate(self, parameters: Parameters) -> Mapping[str, float]:
        model = build(self._setting.workload, model=self._setting.model)
        state = {name: torch.from_numpy(value) for name, value in parameters.items()}
        model.load_state_dict(state, strict=False)
        return self._references.evaluate(self._setting, model)

    def close(self) -> RunResult:
        """End the program, check its results, and summarise them."""
        training, setting, state = self._open_training, self._setting, self._state
        peak_bytes = training.peak_bytes
        training.close()
        warmup = count_warmup([each.seconds for each in self._epochs])
        self._refuse_work_outside(warmup)
        if not isinstance(self._program, CommandProgram) and (fault := state.left_work.fault):
            raise ProgramFailedError(fault)
        checked = self._check()
        throttled = state.throttled.note()
        notes = [*filter(None, (checked.note,)), *state.note_target(), *filter(None, (throttled,))]
        return replace(
            self.make_result("done", ""),
            loss=tuple(each.report.loss for each in self._epochs[: setting.workload.epochs]),
            accuracy=state.accuracy,
            equivalence=checked.equivalence,
            other_maths=training.other_maths,
            unverified=checked.unverified,
            spread_seeds=checked.spread_seeds,
            work=self._state_work(verified=not checked.unverified),
            metrics=state.paces.state(self._measure(warmup, peak_bytes), warmup),
            stages=self._measure_stages(warmup),
            notes=tuple(notes),
            target_accuracy=state.scene.request.target_accuracy,
        )

    # ------------------------------------------------------------------ what is found out

    def _refuse_work_outside(self, warmup: int) -> None:
        """Refuse a program that lets time pass between each order and its ``epoch_begin``.

        On a busy machine some messages are late, so the least of the delays counts.
        """
        before_s = min(each.before_s for each in self._epochs[warmup:])
        epoch_s = median(each.seconds for each in self._epochs[warmup:])
        if not is_short(before_s, epoch_s - before_s):
            raise ProgramFailedError(
                f"it takes {format_si(before_s, 's')} from the order of an epoch to epoch_begin, "
                f"and {format_si(epoch_s - before_s, 's')} from there to epoch_end. Send "
                f"epoch_begin before all work of the epoch, and flush each message."
            )

    def _check(self) -> Checked:
        """Compare the program with plain training, unless its maths differ by design."""
        training, workload = self._open_training, self._setting.workload
        if not self._state.scene.request.check or training.other_maths:
            return Checked()
        losses = [each.report.loss for each in self._epochs]
        if self._mode == "full-graph":
            course = self._references.full_graph(self._setting).judge(losses, self._saved)
            if course.unverified:
                return Checked(unverified=course.unverified)
            looked_at = len(losses), len(losses)
            return Checked(
                Equivalence(
                    self._mode,
                    course.error,
                    course.fault,
                    EVERY_NEIGHBOUR,
                    workload.epochs,
                    looked_at,
                ),
                note=course.note,
            )
        losses = losses[: workload.epochs]
        own = Course(tuple(losses), self._state.accuracy, self._mean_edges(), training.parts)
        spread = self._references.mini_batch(self._setting).judge(own)
        if spread.fault:
            return Checked(Equivalence(self._mode, spread.error, spread.fault, training.sampling))
        if spread.unverified:
            return Checked(unverified=spread.unverified)
        return Checked(spread_seeds=SEEDS, note=describe_spread())

    def _mean_edges(self) -> tuple[int, ...]:
        """Return the stated edges of each layer, as the mean over epochs; empty without them."""
        stated = [each.report.edges for each in self._epochs]
        if not all(stated):
            return ()
        return tuple(round(fmean(counts)) for counts in zip(*stated, strict=True))

    def _state_work(self, *, verified: bool) -> EpochWork:
        """Return the work of an epoch, from what the program has counted."""
        training, setting = self._open_training, self._setting
        epochs = [each.report for each in self._epochs[: setting.workload.epochs]]
        counts = [(each.updates, each.seeds) for each in epochs]
        different = tuple(sorted(set(counts)))
        sampling, edges = EVERY_NEIGHBOUR, sum(self._mean_edges())
        if self._mode == "full-graph":
            edges = edges or setting.workload.num_layers * setting.dataset.graph.num_edges
        else:
            fanouts = ", ".join(map(str, setting.workload.fanouts))
            sampling = f"{training.sampling}, fan-outs {fanouts}"
            if training.parts > 1:
                sampling = f"{sampling}, in {training.parts} parts of a mini-batch"
            if not verified or training.sampling != UNIFORM:
                sampling = f"{sampling}, as program {self._program.name!r} states"
        return EpochWork(
            updates=round(fmean(updates for updates, _ in counts)),
            seeds=round(fmean(seeds for _, seeds in counts)),
            edges=edges,
            devices=(setting.platform.host.name,),
            sampling=sampling,
            different=different if len(different) > 1 else (),
        )

    def _measure(self, warmup: int, peak_bytes: int) -> dict[str, Metric]:
        """Return the metrics; all are measured here."""
        seconds = tuple(each.seconds for each in self._epochs)
        epoch_s = median(seconds[warmup:])
        before_s = self._open_training.preparation_s + self._state.left_work.outside_s
        epoch = Metric(epoch_s, "s", "measured", seconds, warmup)
        metrics = {
            "epoch_time": epoch,
            "wall_time": epoch,
            "preprocessing_time": Metric(before_s, "s", "measured"),
        }
        edges = self._state_work(verified=True).edges
        if edges:
            metrics["throughput_edges"] = Metric(edges / epoch_s, "edges/s", "measured")
        if peak_bytes:
            metrics["peak_host_bytes"] = Metric(float(peak_bytes), "B", "measured")
        if self._state.reached is not None:
            reached_s = before_s + self._state.reached * epoch_s
            metrics["time_to_accuracy"] = Metric(reached_s, "s", "measured")
        return metrics

    def _measure_stages(self, warmup: int) -> dict[Stage, Metric]:
        """Return the stages that the program has stated, with 0 for an epoch without one."""
        reports = [each.report.stages for each in self._epochs]
        return {
            stage: Metric(median(values[warmup:]), "s", "measured", tuple(values), warmup)
            for stage in STAGES
            if any(stage in stages for stages in reports)
            for values in [[stages.get(stage, 0.0) for stages in reports]]
        }

    # ------------------------------------------------------------------ its end

    @property
    def _open_training(self) -> Training:
        if self._training is None:
            raise RuntimeError("a program is opened before it trains")
        return self._training

    def make_result(self, status: Status, reason: str) -> RunResult:
        """Return the result of a run that is not done, with the versions that it states."""
        result = empty_result(self._row, self._state.repeat, status, reason)
        if self._training is None:
            return result
        origin = replace(self._row.origin, versions=dict(self._training.versions))
        return replace(result, program=origin)

    def interrupt(self) -> None:
        """End the program: the interrupt has reached it, too."""
        self.release()

    def release(self) -> None:
        """End the program, however far it is."""
        if self._training is not None:
            self._training.kill()
            self._training = None
