"""UPDATE of a dense layer, ReLU(a W + b) and all its gradients, against torch's products.

PyG, DGL, and strategies with their kernels or the plain one, multiply as ``torch`` does here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from gnnbench.kernels import autograd
from gnnbench.records import FloatArray
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, Target, WrongResultError

#: Rows, input and output features: a mini-batch's input layer and the one above it, then two layers
#: of a full graph. The last one outputs few features, one a class.
SHAPES = ((60_000, 200, 256), (10_000, 512, 256), (34_493, 256, 256), (34_493, 512, 5))
SMALL_SHAPES = ((1_000, 200, 256),)

#: ``a``, ``W`` and ``b`` to the output.
Update = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    rows: int
    in_features: int
    out_features: int

    @cached_property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """``a``, ``W`` and ``b``."""
        draw = torch.Generator().manual_seed(0)
        a, weight, bias = (
            torch.randn(*shape, generator=draw)
            for shape in (
                (self.rows, self.in_features),
                (self.in_features, self.out_features),
                (self.out_features,),
            )
        )
        weight *= self.in_features**-0.5
        return a.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()

    @cached_property
    def gradient(self) -> Tensor:
        draw = torch.Generator().manual_seed(1)
        return torch.randn(self.rows, self.out_features, generator=draw)


def update_ours(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return autograd.linear(a, weight, bias, relu=True)


def update_torch(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(torch.addmm(bias, a, weight))


CONTESTANTS: dict[str, Update] = {OURS: update_ours, "torch addmm": update_torch}


def train(task: Task, update: Update) -> Contestant:
    leaves, gradient = task.leaves, task.gradient

    def call(_: int) -> tuple[Tensor, ...]:
        out = update(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, gradient)

    return Contestant(call, lambda tensors: [tensor.numpy() for tensor in tensors])


def race_cases(scope: Scope) -> Iterator[Case]:
    for shape in SMALL_SHAPES if scope.small else SHAPES:
        task = Task(*shape)
        yield Case(
            "update",
            f"{task.rows:,} rows",
            f"{task.in_features} to {task.out_features}",
            {who: partial(train, task, update) for who, update in CONTESTANTS.items()},
            check_sums,
            (Target("", 1.5),),
        )


def check_sums(result: Sequence[FloatArray], ours: Sequence[FloatArray]) -> None:
    """Check sums of numbers of both signs, in any order: equal relative to their usual size.

    An output may round to zero in one order only, which then blocks its gradient.
    """
    for name, theirs, mine in zip(("output", "a", "W", "b"), result, ours, strict=True):
        error = float(np.linalg.norm(theirs - mine)) / float(np.linalg.norm(mine))
        if not error <= 1e-3:
            raise WrongResultError(f"differs in {name} by {error:.3g} of its size.")
