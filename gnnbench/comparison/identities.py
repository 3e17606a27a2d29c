"""Identities that hold for every correct update and need no pass over the graph to check.

They concern the optimiser's step, and the gradients of a chain of products, sums and ReLUs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.models import MODELS, PROJECTED
from gnnbench.parts import Setting
from gnnbench.records import Workload
from gnnbench.run.evidence import Update

#: The largest error of a matrix's gradient sum, relative to the sizes of its terms: half the digits
#: of float32. Correct updates of default runs are off by some 2e-8.
SUM_SHARE = 2e-4


def is_chain(setting: Setting) -> bool:
    """Return whether a model is a chain of products, biases, ReLUs and sums without parameters.

    These are the bundled models that may multiply before they aggregate.
    """
    name = setting.workload.model
    return name in PROJECTED and setting.model in (None, MODELS[name])


def find_sum_errors(update: Update, expected: Tensor | None, least: float = 0.0) -> list[float]:
    """Return the error of each matrix's sum, relative to the sizes of its terms, last matrix first.

    Scaling a matrix W and all biases b from there on scales the logits z of a chain. By Euler's
    theorem <dW, W> plus the sum of <db, b> is then <dz, z>, for each W. ``expected`` is <dz, z>;
    without it each sum is compared with the last matrix's. Terms smaller than ``least`` count as
    ``least``: they may consist of rounding alone.
    """
    found: list[tuple[Tensor, Tensor]] = []
    biases = sizes = torch.zeros((), dtype=torch.float64)
    values = list(update.parameters.values())
    for value, gradient in reversed(list(zip(values, update.gradients, strict=True))):
        own, change = value.double().flatten(), gradient.double().flatten()
        total = own.dot(change)
        size = torch.linalg.vector_norm(own) * torch.linalg.vector_norm(change)
        if value.dim() < 2:
            biases, sizes = biases + total, sizes + size
        else:
            found.append((biases + total, sizes + size))
    right = found[0][0] if expected is None else expected
    least = max(least, 1e-300)
    return [float((total - right).abs() / size.clamp(min=least)) for total, size in found]


def find_natural_size(update: Update, features: float, gradient: float) -> float:
    """Return the size that a chain's sum would have if nothing in it cancelled.

    It is the product of the norms of the input ``features``, of all matrices, and of the loss's
    ``gradient`` by the logits: normalised adjacencies have norm 1.
    """
    size = features * gradient
    for value in update.parameters.values():
        if value.dim() > 1:
            size *= float(torch.linalg.vector_norm(value.double()))
    return size


def find_loss_rounding(logits: Tensor) -> float:
    """Return how far rounding moves <dz, z> for the logits z ``(n, classes)`` of the seeds.

    The loss's gradient dz is a difference of probabilities, each of which rounds like a number up
    to one, times the size of the logits that it is computed from. In a trained model the difference
    is much smaller than that.
    """
    values = logits.double()
    largest = 1.0 + values.abs().amax(dim=1, keepdim=True)
    total = (values.softmax(dim=1) * values.abs() * largest).sum()
    return float(total) * torch.finfo(logits.dtype).eps / max(len(logits), 1)


def find_step_error(update: Update, workload: Workload) -> tuple[float, float]:
    """Return the error of a step against Adam's in float64, and the size of the parameters.

    Both are relative to the step, which rounds by the size of the parameters it is added to.
    """
    before, count = list(update.parameters.values()), len(update.gradients)
    means, squares, steps = (update.moments[n * count : (n + 1) * count] for n in range(3))
    off = size = whole = 0.0
    for value, after, gradient, mean, square, step in zip(
        before, update.after, update.gradients, means, squares, steps, strict=True
    ):
        right = _take_step(value, gradient, mean, square, float(step) + 1.0, workload)
        off += float((after.double() - right).square().sum())
        size += float((right - value.double()).square().sum())
        whole += float(value.double().square().sum())
    size = max(size, 1e-300)
    return (off / size) ** 0.5, (whole / size) ** 0.5


def _take_step(
    value: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, number: float, workload: Workload
) -> Tensor:
    """Return the parameter after Adam's step ``number``, from 1, with L2 decay (Kingma & Ba)."""
    decayed = gradient.double() + workload.weight_decay * value.double()
    first = (0.9 * mean.double() + 0.1 * decayed) / (1.0 - 0.9**number)
    second = (0.999 * square.double() + 0.001 * decayed.square()) / (1.0 - 0.999**number)
    stepped: Tensor = value.double() - workload.learning_rate * first / (second.sqrt() + 1e-8)
    return stepped
