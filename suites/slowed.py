"""Strategies for ``suites.verdicts``: one with two names, and two that are a tenth slower.

It is a normal plugin: ``gnnbench compare --plugin suites.slowed --plugins twin-a,twin-b``.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part, Scaling, option
from gnnbench.records import Block, IntArray, Parts, Strategy
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from gnnbench_plugins.reference.sampler import NeighbourSampler

#: The share of its work that the kernel repeats.
SHARE = 0.1


class RepeatingAdjacency(TorchAdjacency):
    """An adjacency that sums a tenth of the columns once more and drops the result."""

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        with torch.no_grad():
            super().sum_scaled(_first_columns(h), scaling)
        return super().sum_scaled(h, scaling)

    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        super().sum_transposed(_first_columns(g), weight)
        return super().sum_transposed(g, weight, into)


def _first_columns(h: Tensor) -> Tensor:
    return h[:, : max(1, round(SHARE * h.shape[1]))].contiguous()


@dataclass
class RepeatingKernel(TorchKernel):
    """The plain torch kernel with a tenth of its work done twice."""

    name: ClassVar[str] = "repeating"
    summary: ClassVar[str] = "plain torch, a tenth of whose work is done twice"

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> TorchAdjacency:
        return RepeatingAdjacency(block, dtype, device)

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        """Return the product, and repeat a tenth of it and of its backward pass.

        The backward products are the gradients of the weight, and of the input if it has one.
        """
        if weight is not None:
            products = 3 if a.requires_grad else 2
            with torch.no_grad():
                for _ in range(products if a.shape[0] else 0):
                    torch.addmm(bias, a[: max(1, round(SHARE * a.shape[0]))], weight)
        return super().linear(a, weight, bias, relu=relu, masked=masked)


@dataclass
class SleepingSampler(NeighbourSampler):
    """The plain sampler with a pause in every epoch."""

    name: ClassVar[str] = "sleeping"
    summary: ClassVar[str] = "plain neighbour sampling that sleeps once an epoch"

    sleep_s: float = option(0.0, "how long it sleeps in an epoch")

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        time.sleep(self.sleep_s)
        return super().rounds(epoch)


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [RepeatingKernel, SleepingSampler]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    made = {
        "twin-a": ("neighbour", "torch"),
        "twin-b": ("neighbour", "torch"),
        "repeating": ("neighbour", "repeating"),
        "sleeping": ("sleeping", "torch"),
    }
    return [
        Strategy(
            name=name,
            summary="for suites.verdicts",
            source="gnnbench",
            bundles={"mini-batch": Parts(sampler, "single", "vanilla", "host", kernel)},
        )
        for name, (sampler, kernel) in made.items()
    ]
