"""Plain training over whole epochs: what a full-graph program must compute.

A row of parts is checked update by update, each from the row's own parameters. A program shows only
losses and parameters, so its whole course is compared. The float64 course counts as exact. Courses
in the workload's dtype, in which each operation is off by rounding, show how far rounding moves the
loss of each epoch and the final parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
import torch
from torch import Tensor

from gnnbench.comparison.equality import FLOOR, ROUNDINGS, SLACK, Rows
from gnnbench.comparison.plain import PlainTraining
from gnnbench.comparison.rounding import Rounded
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import Parameters
from gnnbench.run.evidence import Update
from gnnbench.run.replicas import Adam, torch_dtype
from gnnbench.units import format_si

#: Courses are computed for at most this long each. Later epochs of a program are then timed only.
MOST_COURSE_S = 60.0


@dataclass(slots=True)
class Course:
    """Losses of plain training by epoch, and the parameters after the workload's epochs."""

    losses: list[float] = field(default_factory=list)
    parameters: list[Tensor] = field(default_factory=list)


class PlainCourse:
    """Plain training of a full graph, continued for as many epochs as are asked for.

    With a ``seed``, every operation is off by rounding in ``dtype``.
    """

    def __init__(
        self, setting: Setting, plain: PlainTraining, dtype: torch.dtype, seed: int | None = None
    ) -> None:
        self._setting, self._plain, self._dtype, self._seed = setting, plain, dtype, seed
        model = build(setting.workload, model=setting.model).to(dtype)
        self._state = {name: value.clone() for name, value in model.state_dict().items()}
        self.names = [name for name, _ in model.named_parameters()]
        self._values = [self._state[name] for name in self.names]
        self.begins = [value.double().clone() for value in self._values]
        self._adam = Adam(self._values, setting.workload)
        dataset = setting.dataset
        self._rows = Rows(torch.from_numpy(dataset.labels), torch.from_numpy(dataset.train_ids))
        self._course = Course()

    def train(self, epochs: int) -> Course:
        """Return the course over at least this many epochs."""
        while len(self._course.losses) < epochs:
            self._run_epoch(len(self._course.losses))
        return self._course

    def _run_epoch(self, epoch: int) -> None:
        update = Update(epoch, 0, self._state)
        batches = self._plain.batches(update)
        rounded = None if self._seed is None else Rounded(self._dtype, self._seed + epoch)
        found = self._plain.forward(update, batches, self._dtype, rounded)
        loss, of_logits = self._rows.loss_gradient(found.logits.detach())
        gradients = [each.to(self._dtype) for each in found.gradients(of_logits)]
        self._adam.step(gradients)
        self._course.losses.append(float(loss))
        if epoch + 1 == self._setting.workload.epochs:
            self._course.parameters = [value.double().clone() for value in self._values]


@dataclass(frozen=True, slots=True)
class CourseErrors:
    """How far a course is from the exact one: relative by epoch, and by parameter.

    A parameter's error is relative to its movement since the start, so that no training at all is
    an error of 1.
    """

    losses: tuple[float, ...]
    parameters: tuple[float, ...]

    def within(self, allowed: CourseErrors) -> bool:
        """Whether no error is above the allowed one."""
        pairs = zip(
            (*self.losses, *self.parameters), (*allowed.losses, *allowed.parameters), strict=True
        )
        return all(error <= most for error, most in pairs)

    def widen(self, other: CourseErrors, slack: float) -> CourseErrors:
        """Return these errors, each at least ``slack`` times the other's."""
        return CourseErrors(
            tuple(max(a, slack * b) for a, b in zip(self.losses, other.losses, strict=True)),
            tuple(
                max(a, slack * b) for a, b in zip(self.parameters, other.parameters, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True)
class CourseFinding:
    """The outcome for a program: the largest loss error, a fault, and how far it was checked.

    ``unverified`` says why nothing could be compared; ``note`` names epochs that were not.
    """

    error: float = 0.0
    fault: str = ""
    unverified: str = ""
    note: str = ""


class FullGraphReference:
    """Plain full-graph training of one setting, which all programs with it share."""

    def __init__(self, setting: Setting, plain: PlainTraining) -> None:
        self._setting, self._plain = setting, plain
        self._dtype = torch_dtype(setting.workload)
        self._exact = PlainCourse(setting, plain, torch.float64)
        self._rounded = [
            # torch's generator reads the lower 32 bits of a seed.
            PlainCourse(setting, plain, self._dtype, seed << 24)
            for seed in range(1, ROUNDINGS + 1)
        ]
        self._names = self._exact.names

    def judge(self, losses: Sequence[float], parameters: Parameters) -> CourseFinding:
        """Check a program's losses of all epochs, and its parameters after the workload's."""
        free_bytes, needed_bytes = psutil.virtual_memory().available, self._plain.held_bytes
        if needed_bytes > free_bytes:
            return CourseFinding(
                unverified=f"plain training in float64 needs about "
                f"{format_si(needed_bytes, 'B')}, and {format_si(free_bytes, 'B')} are free"
            )
        epochs = self._count_epochs(len(losses))
        own = self._measure(losses[:epochs], [torch.from_numpy(parameters[n]) for n in self._names])
        floor = FLOOR[self._dtype]
        allowed = CourseErrors((floor,) * epochs, (floor,) * len(self._names))
        for course in self._rounded:
            if own.within(allowed):
                break
            found = course.train(epochs)
            usual = self._measure(found.losses[:epochs], found.parameters)
            allowed = allowed.widen(usual, SLACK)
        note = ""
        if epochs < len(losses):
            note = (
                f"losses of epochs {epochs + 1} to {len(losses)}, which were trained for their "
                f"time alone, were not compared with plain training: it takes too long"
            )
        return CourseFinding(max(own.losses), self._name_fault(own, allowed), note=note)

    def _count_epochs(self, epochs: int) -> int:
        """Return the number of epochs to compute, at least the workload's."""
        least = self._setting.workload.epochs
        began_s, had = time.perf_counter(), len(self._exact.train(0).losses)
        made = len(self._exact.train(min(least, epochs)).losses) - had
        if not made:
            return min(epochs, max(had, least))
        epoch_s = (time.perf_counter() - began_s) / made
        return min(epochs, max(least, int(MOST_COURSE_S / max(epoch_s, 1e-9))))

    def _measure(self, losses: Sequence[float], parameters: Sequence[Tensor]) -> CourseErrors:
        exact = self._exact.train(len(losses))
        return CourseErrors(
            tuple(
                _number(abs(own - right) / max(abs(right), 1e-12))
                for own, right in zip(losses, exact.losses, strict=False)
            ),
            tuple(
                _number(
                    float(torch.linalg.vector_norm(own.double() - right))
                    / max(float(torch.linalg.vector_norm(right - begin)), 1e-12)
                )
                for own, right, begin in zip(
                    parameters, exact.parameters, self._exact.begins, strict=True
                )
            ),
        )

    def _name_fault(self, own: CourseErrors, allowed: CourseErrors) -> str:
        """Return the first loss or the worst parameter beyond rounding; empty if there is none."""
        for epoch, (error, most) in enumerate(zip(own.losses, allowed.losses, strict=True)):
            if not error <= most:
                return (
                    f"the loss of epoch {epoch} is off by {error:.0e}, and rounding explains "
                    f"{most:.0e}{_hint(epoch)}"
                )
        wrong = [
            (error, most, name)
            for error, most, name in zip(
                own.parameters, allowed.parameters, self._names, strict=True
            )
            if not error <= most
        ]
        if not wrong:
            return ""
        error, most, name = max(wrong, key=lambda each: each[0] / each[1])
        return (
            f"parameter {name} after {self._setting.workload.epochs} epochs is off by {error:.0e} "
            f"of its movement, and rounding explains {most:.0e}"
        )


def _hint(epoch: int) -> str:
    """Return where to look for the cause of a wrong loss."""
    if epoch == 0:
        return (
            "; compare its initial parameters, dropout, normalisation, loss and training vertices"
        )
    if epoch == 1:
        return "; the loss before the first update is right, so compare its optimiser and gradients"
    return ""


def _number(value: float) -> float:
    return value if math.isfinite(value) else math.inf
