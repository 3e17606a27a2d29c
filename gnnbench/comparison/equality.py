"""Whether a run computed the same as plain training, up to the problem's own rounding.

A run's updates (``gnnbench.run.evidence``) are computed again from the same parameters on the same
mini-batches. The float64 result counts as exact. The result in the workload's own dtype shows how
far rounding moves this graph, model and step. A run may be at most ``SLACK`` times as far off,
because it may take its sums in another order.

Three results are checked, each where it is well conditioned: the logits from the parameters, the
loss from the run's own logits, and the gradients from the run's own logits. The backward pass
begins there so that the sensitivity of a large loss does not look like a wrong backward pass.
Logits are checked as a whole and vertex by vertex, so that one missing edge is seen beside a hub.
ReLUs with an input within rounding of zero may be on either side (see ``bends``), and gradients may
be off by their contribution.

Some updates are checked in this way. All others are only looked at: the logits of a few vertices
and the loss. For a chain of products, sums and ReLUs, sums of its gradients are looked at too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gnnbench.comparison.identities import (
    SUM_SHARE,
    find_loss_rounding,
    find_natural_size,
    find_step_error,
    find_sum_errors,
    is_chain,
)
from gnnbench.comparison.plain import Batch, Pass, PlainTraining
from gnnbench.comparison.rounding import Rounded
from gnnbench.parts import Setting
from gnnbench.records import IntArray
from gnnbench.run.evidence import Update
from gnnbench.run.replicas import torch_dtype

#: How many times the reference's own rounding a run may be off.
SLACK = 16.0
#: How many times the rounding of the loss's gradients may move the sums of gradients.
LOSS_UNITS = 4.0
#: The slack for updates that are only looked at: their few vertices show less of the rounding.
LOOK_SLACK = 8 * SLACK
#: How many vertices of each device are checked in an update that is looked at.
SPOTS = 4
#: How many different roundings are tried while a run is further off. A single rounded pass may be
#: closer to the exact result than most, where one edge or one class decides.
ROUNDINGS = 4
#: How far ReLUs near zero may move a gradient, relative to a random choice of their sides. In a run
#: all that are on another side may point one way.
SWAY = 4.0
#: The least size of a vertex's logits that its error is relative to, as a share of the median's.
TINY = 1 / 64
#: Units of rounding, relative to its row, by which the input of a ReLU may be off in any run.
NEAR_UNITS = 64
#: The relative error that a run may have where the reference is exact: some units of rounding in
#: float32, and the project's bound in float64.
FLOOR = {torch.float32: NEAR_UNITS * torch.finfo(torch.float32).eps, torch.float64: 1e-9}


@dataclass(frozen=True, slots=True)
class Deviation:
    """The relative error of something that a run computed, and the largest error allowed.

    ``what`` names it, such as ``"the logits of epoch 0, round 0"``.
    """

    what: str
    error: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the error is allowed; an error that is not a number is not."""
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True)
class Judgement:
    """The findings on an update: the relative error of its loss, and all checked deviations."""

    loss_error: float
    deviations: tuple[Deviation, ...]

    @property
    def fault(self) -> str:
        """The worst deviation beyond rounding, as a sentence's end; empty if there is none."""
        wrong = [each for each in self.deviations if not each.holds]
        if not wrong:
            return ""
        worst = max(wrong, key=lambda each: each.error / max(each.allowed, 1e-300))
        if not math.isfinite(worst.error):
            return f"{worst.what} are not what the reference computes, or no numbers"
        return (
            f"{worst.what} is off by {worst.error:.0e}, and rounding explains {worst.allowed:.0e}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Labels int64 ``(n,)`` of the rows of logits, and the places of the rows that have a loss."""

    labels: Tensor
    seeds: Tensor

    def loss_gradient(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean cross entropy over the seeds, in float64, and its gradient.

        The gradient ``(n, classes)`` has the dtype of the logits and torch's rounding.
        """
        leaf = logits[self.seeds].requires_grad_()
        with torch.enable_grad():
            total = cross_entropy(leaf, self.labels[self.seeds], reduction="sum")
            loss = total / len(self.seeds)
            (part,) = torch.autograd.grad(loss, leaf)
        gradient = torch.zeros_like(logits)
        gradient[self.seeds] = part
        return loss.detach().double(), gradient


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A run's update beside the exact one, and the scales of their errors.

    ``found`` are the run's logits ``(n, classes)``, and ``begins`` is the gradient of the loss by
    them, in float64.
    """

    update: Update
    batches: tuple[Batch, ...]
    rows: Rows
    right: Pass
    found: Tensor
    begins: Tensor

    def logit_errors(self, logits: Tensor) -> tuple[float, float]:
        """Return the relative error of all logits together, and of the worst vertex."""
        right = self.right.logits.detach()
        apart = torch.linalg.vector_norm(logits.double() - right, dim=1)
        sizes = torch.linalg.vector_norm(right, dim=1)
        whole = max(float(torch.linalg.vector_norm(sizes)), 1e-300)
        # The error of a vertex with tiny logits is relative to the size of the others.
        sizes = sizes.clamp(min=max(float(sizes.median()) * TINY, 1e-300))
        vertex = (apart / sizes).max() if len(apart) else apart.sum()
        return _number(torch.linalg.vector_norm(apart) / whole), _number(vertex)

    def gradient_errors(
        self,
        gradients: Sequence[Tensor],
        right: Sequence[Tensor],
        sized_by: Sequence[Tensor] | None = None,
    ) -> list[float]:
        """Return the error of each parameter's gradient, relative to its size.

        ``sized_by`` has the gradients whose sizes count, by default those of ``right``.
        """
        sizes = self._find_sizes(right if sized_by is None else sized_by)
        return [
            _number(torch.linalg.vector_norm(own.double() - exact) / size)
            if own.shape == exact.shape
            else math.inf
            for own, exact, size in zip(gradients, right, sizes, strict=True)
        ]

    def _find_sizes(self, right: Sequence[Tensor]) -> list[float]:
        """Return the size that the error of each gradient is relative to.

        It is at least a share of the norm of all gradients together. The gradient of the last bias
        is the sum of the loss gradients, a mean of differences of probabilities. It rounds like
        numbers up to one, however large the features and the weight gradients are.
        """
        norms = [float(torch.linalg.vector_norm(part)) for part in right]
        least = max(math.hypot(*norms) * TINY, 1e-300)
        total = self.begins.sum(dim=0)
        return [
            max(norm, min(least, 1.0) if _is_near(part, total) else least)
            for norm, part in zip(norms, right, strict=True)
        ]


class Reference:
    """Checks a run's updates against plain training.

    ``partial`` says that other ranks computed some vertices, whose logits are taken to be right.
    """

    def __init__(self, setting: Setting, plain: PlainTraining, *, partial: bool = False) -> None:
        self._setting = setting
        self._plain = plain
        self._partial = partial
        self._dtype = torch_dtype(setting.workload)
        self._floor = FLOOR[self._dtype]

    def judge(self, update: Update, loss: float) -> Judgement:
        """Check an update against plain training; ``loss`` is the mean loss that the run reports.

        Rounding is computed only if the run is further off than ``FLOOR``.
        """
        batches = self._plain.batches(update)
        ids = np.concatenate([batch.ids for batch in batches])
        right = self._plain.find_right(update, batches)
        exact = right.logits.detach()
        found = _assemble(update, ids, exact.to(self._dtype) if self._partial else None)
        if found is None:
            missing = f"the vertices that {update.name} computed"
            return Judgement(math.inf, (Deviation(missing, math.inf, 0.0),))
        rows = Rows(
            labels=torch.from_numpy(self._setting.dataset.labels[ids]),
            seeds=self._find_seeds(ids),
        )
        plain_loss, _ = rows.loss_gradient(exact)
        own_loss, begins = rows.loss_gradient(found.double())
        case = Case(update, batches, rows, right, found, begins)
        off = abs(loss - float(plain_loss)) / max(abs(float(plain_loss)), 1e-12)
        return Judgement(
            off,
            (
                *self._hold_logits(case, SLACK),
                self._hold_loss(update, found[rows.seeds], own_loss, loss),
                *self._hold_gradients(case),
                self._hold_step(update),
            ),
        )

    def look(self, update: Update, loss: float) -> Judgement:
        """Check the kept evidence of an update: a few vertices' logits, loss and gradient sums."""
        ids = np.concatenate([part for part, _ in update.logits] or [np.empty(0, np.int64)])
        found = torch.cat([rows for _, rows in update.logits] or [torch.empty(0, 1)])
        rows = Rows(torch.from_numpy(self._setting.dataset.labels[ids]), torch.arange(len(ids)))
        own_loss, begins = rows.loss_gradient(found.double())
        spots = self._draw_spots(update)
        batches = self._plain.cut_out(update, ids[spots]) if len(spots) else ()
        deviations = []
        if batches:
            right = self._plain.forward(update, batches, torch.float64, differentiable=False)
            place = dict(zip(ids[spots].tolist(), spots.tolist(), strict=True))
            drawn = [place[vertex] for batch in batches for vertex in batch.ids.tolist()]
            few = Case(update, batches, rows, right, found[drawn], begins)
            deviations += self._hold_logits(few, LOOK_SLACK)
        if not self._partial:
            deviations.append(self._hold_loss(update, found, own_loss, loss))
        if is_chain(self._setting):
            deviations += self._hold_sums(update, found, begins)
        return Judgement(0.0, tuple(deviations))

    def _draw_spots(self, update: Update) -> IntArray:
        """Return the places, among all vertices of an update, of a few vertices of each device."""
        random = np.random.default_rng(
            (self._setting.workload.seed, update.epoch, update.round, SPOTS)
        )
        found, begin = [], 0
        for ids, _ in update.logits:
            found.append(begin + random.permutation(len(ids))[:SPOTS])
            begin += len(ids)
        return random.permutation(np.concatenate(found)) if found else np.empty(0, np.int64)

    # ------------------------------------------------------------------ what is held

    def _hold_sums(self, update: Update, logits: Tensor, begins: Tensor) -> list[Deviation]:
        """Check sums of a chain's gradients that only rounding moves."""
        share = SUM_SHARE if self._dtype == torch.float32 else self._floor
        names = [name for name, value in update.parameters.items() if value.dim() > 1]
        expected = None if self._partial else (begins * logits.double()).sum()
        errors = find_sum_errors(update, expected)
        if max(errors) > share:
            natural = find_natural_size(update, self._plain.feature_norm, float(begins.norm()))
            rounding = natural * torch.finfo(self._dtype).eps
            if expected is not None:
                rounding = max(rounding, LOSS_UNITS * find_loss_rounding(logits))
            errors = find_sum_errors(update, expected, rounding / share)
        return [
            Deviation(f"the sum of the gradient of {name} in {update.name}", error, share)
            for name, error in zip(reversed(names), errors, strict=True)
        ]

    def _hold_step(self, update: Update) -> Deviation:
        """Check the optimiser's step, which rounds by the size of the parameters it is added to."""
        error, size = find_step_error(update, self._setting.workload)
        allowed = self._floor * (1.0 + size)
        return Deviation(f"the optimiser's step in {update.name}", error, allowed)

    def _hold_logits(self, case: Case, slack: float) -> list[Deviation]:
        errors = case.logit_errors(case.found)
        allowed = [self._floor * slack / SLACK] * len(errors)
        for attempt in range(ROUNDINGS):
            if not _exceeds(errors, allowed):
                break
            usual = case.logit_errors(self._round(case, attempt).logits.detach())
            allowed = [max(most, slack * near) for most, near in zip(allowed, usual, strict=True)]
        name = case.update.name
        names = (f"the logits of {name}", f"one vertex's logits in {name}")
        return [
            Deviation(what, error, most)
            for what, error, most in zip(names, errors, allowed, strict=True)
        ]

    def _hold_loss(self, update: Update, logits: Tensor, right: Tensor, loss: float) -> Deviation:
        """Check the loss, which rounds by the size of the logits it is computed from."""
        size = max(float(right), 1e-300)
        largest = float(logits.abs().max()) if len(logits) else 0.0
        error = abs(loss - float(right)) / size
        if not math.isfinite(error):
            error = math.inf
        what = f"the loss of {update.name}"
        return Deviation(what, error, self._floor * (1.0 + largest) / size + self._floor)

    def _hold_gradients(self, case: Case) -> list[Deviation]:
        given = case.update.gradients
        right = case.right.gradients(case.begins)
        errors = case.gradient_errors(given, right)
        allowed = [self._floor] * len(errors)
        if _exceeds(errors, allowed):
            allowed = _add(allowed, self._sway(case, self._near(case), right))
        for attempt in range(ROUNDINGS):
            if not _exceeds(errors, allowed):
                break
            allowed = list(map(max, allowed, self._find_usual(case, right, attempt)))
        names = [name for name, _ in case.right.model.named_parameters()]
        return [
            Deviation(f"the gradient of {name} in {case.update.name}", error, most)
            for name, error, most in zip(names, errors, allowed, strict=True)
        ]

    def _find_usual(self, case: Case, right: Sequence[Tensor], attempt: int) -> list[float]:
        """Return the error allowed for each gradient, from the error of a rounded pass."""
        rounded = self._round(case, attempt)
        _, begins = case.rows.loss_gradient(case.found)
        bends = list(zip(case.right.bends, rounded.bends, strict=True))
        # Other open ReLUs in the rounded pass are no rounding of its sums.
        alike = case.right.gradients(case.begins, [one.differs(other) for one, other in bends])
        usual = case.gradient_errors(rounded.gradients(begins), alike, right)
        off = [one.rounding_margins(other, SLACK) for one, other in bends]
        margins = list(map(torch.maximum, self._near(case), off))
        rounding = [max(self._floor, SLACK * near) for near in usual]
        return _add(rounding, self._sway(case, margins, right))

    def _near(self, case: Case) -> list[Tensor]:
        """Return for each ReLU the margin around zero within which either side is right."""
        share = NEAR_UNITS * torch.finfo(self._dtype).eps
        return [bend.relative_margins(share) for bend in case.right.bends]

    def _sway(self, case: Case, margins: Sequence[Tensor], right: Sequence[Tensor]) -> list[float]:
        """Return how far ReLUs within these margins may move each gradient."""
        bends = case.right.bends
        close = [bend.find_close(margin) for bend, margin in zip(bends, margins, strict=True)]
        if not sum(map(len, close)):
            return [0.0] * len(right)
        swayed = [0.0] * len(right)
        for together in (False, True):
            turns = [
                bend.sway(places, together=together)
                for bend, places in zip(bends, close, strict=True)
            ]
            errors = case.gradient_errors(case.right.gradients(case.begins, turns), right)
            swayed = [max(most, SWAY * error) for most, error in zip(swayed, errors, strict=True)]
        return swayed

    def _round(self, case: Case, attempt: int) -> Pass:
        """Return the update in the workload's own dtype.

        From the second ``attempt`` on, rounding perturbs every operation, differently each time.
        """
        rounded = Rounded(self._dtype, attempt) if attempt else None
        return self._plain.forward(case.update, case.batches, self._dtype, rounded)

    def _find_seeds(self, ids: IntArray) -> Tensor:
        """Return the places in ``ids`` of the vertices that have a loss."""
        dataset = self._setting.dataset
        return torch.from_numpy(np.flatnonzero((dataset.train_mask & (dataset.labels >= 0))[ids]))


def _is_near(one: Tensor, other: Tensor) -> bool:
    """Return whether two float64 tensors have one shape, and are equal up to their own rounding."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def _exceeds(errors: Sequence[float], allowed: Sequence[float]) -> bool:
    return any(error > most for error, most in zip(errors, allowed, strict=True))


def _add(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(ours, theirs, strict=True)]


def _assemble(update: Update, ids: IntArray, others: Tensor | None) -> Tensor | None:
    """Return the run's logits in the order of ``ids``, completed from ``others`` if given.

    Return None if a vertex occurs twice, or if one is missing and there are no ``others``.
    """
    if not update.gradients or (not update.logits and others is None):
        return None
    if not update.logits:  # other ranks computed all of them
        return others
    given = np.concatenate([part for part, _ in update.logits])
    rows = torch.cat([part for _, part in update.logits])
    order = np.argsort(ids, kind="stable")
    places = np.searchsorted(ids, given, sorter=order)
    places = order[np.minimum(places, len(ids) - 1)]
    once = len(np.unique(places)) == len(given) and np.array_equal(ids[places], given)
    if not once or (others is None and len(given) < len(ids)):
        return None
    out = rows.new_empty(len(ids), rows.shape[1]) if others is None else others.clone()
    out[torch.from_numpy(places)] = rows
    return out


def _number(value: Tensor) -> float:
    """Return a float; a value that is not finite counts as infinitely far off."""
    number = float(value)
    return number if math.isfinite(number) else math.inf
