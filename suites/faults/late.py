"""Parts that become wrong late, and parts that are wrong occasionally."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnnbench.parts import Setting
from gnnbench.records import Block, IntArray
from gnnbench.run.replicas import Adam, Replicas
from gnnbench_plugins.reference.sampler import NeighbourSampler
from suites.faults.fault import ALONE, BATCHES, Fault, Row, make_part
from suites.faults.kernels import (
    FaultyKernel,
    PlainAdjacency,
    alter_gradient,
    round_to,
)
from suites.faults.others import SilentRounding
from suites.faults.samplers import (
    LAW,
    NO_EDGE,
    TOO_FEW,
    change_last,
    draw_by,
    fan_out,
    point_at_itself,
    repeat_edges,
    skip_the_last,
)

#: The wrong passes, by their numbers from 0: all from the fifth on, odd ones, or one in 7.
LATE: Callable[[int], bool] = lambda number: number >= 4  # noqa: E731
ODD: Callable[[int], bool] = lambda number: number % 2 == 1  # noqa: E731
SELDOM: Callable[[int], bool] = lambda number: number % 7 == 4  # noqa: E731


@dataclass
class LateKernel(FaultyKernel):
    """A kernel that counts its forward passes; each ends with the last layer."""

    passes: int = field(default=0, init=False, repr=False, compare=False)
    when: ClassVar[Callable[[int], bool]] = LATE

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        self.passes = 0

    @property
    def wrong(self) -> bool:
        return type(self).when(self.passes)

    def end(self, out: Tensor) -> Tensor:
        self.passes += 1
        return out

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> LateAdjacency:
        made = LateAdjacency(self.alter_block(block), dtype, device)
        made.kernel = self
        return made

    def sum_late(self, out: Tensor) -> Tensor:
        return out


class LateAdjacency(PlainAdjacency):
    """An adjacency with sums that its kernel changes in wrong passes."""

    kernel: LateKernel

    def after(self, out: Tensor) -> Tensor:
        return self.kernel.sum_late(out) if self.kernel.wrong else out


def kernel(
    name: str, summary: str, when: Callable[[int], bool], says: str = "", **members: Any
) -> Fault:
    # A plain function on a class would become a method.
    chosen, hosts = {"when": staticmethod(when), **members}, (BATCHES, ALONE)
    part = make_part(LateKernel, name, summary, **chosen)
    return Fault(part, hosts, says, late=True)


def halve_gradient(out: Tensor) -> Tensor:
    return alter_gradient(out, lambda g: 0.5 * g)


def in_wrong_passes(step: Callable[..., Tensor], wrong: Callable[..., Tensor]) -> Any:
    """Return a step of a kernel that is ``wrong`` in some passes."""

    def take(self: LateKernel, *given: Any, **named: Any) -> Tensor:
        return (wrong if self.wrong else step)(self, *given, **named)

    return take


class _Spoiling(torch.autograd.Function):
    """A weight with the right gradient that the backward pass overwrites."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, spoil: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.weight, ctx.spoil = weight, spoil
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ctx.weight.data.copy_(ctx.spoil(ctx.weight.data))
        return g, None


def spoil_weights(spoil: Callable[[Tensor], Tensor]) -> Any:
    def times(self: LateKernel, a: Tensor, weight: Tensor) -> Tensor:
        spoilt: Tensor = _Spoiling.apply(weight, spoil)  # type: ignore[no-untyped-call]
        return a @ spoilt

    return in_wrong_passes(FaultyKernel.times, times)


# --------------------------------------------------------------------------- samplers


def sampler(name: str, summary: str, says: str | None = None, **members: Any) -> Fault:
    hosts: tuple[Row, ...] = () if says is None else (BATCHES,)
    checks = members.pop("checks", {})
    part = make_part(NeighbourSampler, name, summary, **members)
    return Fault(part, hosts, says or "", checks=checks, late=True)


def sample_late(when: Callable[[NeighbourSampler, IntArray, int], bool], wrong: Any) -> Any:
    """Return a sampling method that is ``wrong`` for some seeds and epochs."""

    def sample(
        self: NeighbourSampler, seeds: IntArray, epoch: int, threads: int
    ) -> tuple[Block, ...]:
        draw = wrong if when(self, seeds, epoch) else NeighbourSampler.sample
        drawn: tuple[Block, ...] = draw(self, seeds, epoch, threads)
        return drawn

    return sample


def is_late(_: NeighbourSampler, seeds: IntArray, epoch: int) -> bool:
    return epoch >= 2


def has_a_number(_: NeighbourSampler, seeds: IntArray, epoch: int) -> bool:
    return (int(seeds.sum()) + epoch) % 5 == 0


def is_of_the_last_round(self: NeighbourSampler, seeds: IntArray, epoch: int) -> bool:
    return bool(np.isin(seeds, NeighbourSampler.rounds(self, epoch)[-1]).all())


def spoil_late(kind: type[Any], spoil: Callable[[Any], object]) -> Any:
    """Return a ``rounds`` method that applies ``spoil`` to objects of a kind from epoch 2 on."""

    def rounds(self: NeighbourSampler, epoch: int) -> list[IntArray]:
        if epoch >= 2:
            for found in [each for each in gc.get_objects() if issubclass(type(each), kind)]:
                spoil(found)
        return list(NeighbourSampler.rounds(self, epoch))

    return rounds


@torch.no_grad()
def decay(replicas: Replicas) -> None:
    for value in replicas.parameters:
        value.mul_(0.999)


def writing(name: str, summary: str, says: str, **members: Any) -> Fault:
    """Return a fault of a sampler that draws correctly."""
    return replace(sampler(name, summary, says, **members), write=True)


def double_rate(optimiser: Adam) -> None:
    optimiser._rate = 0.02


@dataclass(frozen=True)
class LateRounding(SilentRounding):
    """A communication that rounds transferred features from the fifth time on."""

    name: ClassVar[str] = "late-features-rounded"
    summary: ClassVar[str] = "features are float16 from the fifth time on, which it does not say"
    crossed: list[int] = field(default_factory=list, repr=False, compare=False)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        self.crossed.append(1)
        rows = crossed[0].to(dtype)
        return rows.half().to(dtype) if len(self.crossed) > 4 else rows

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return (rows,)


WRITTEN = "was changed by other than the optimiser"
IN_COMPARE = (
    kernel(
        "late-sums-halved", "sums are halved from the fifth pass on", LATE,
        sum_late=lambda self, out: 0.5 * out,
    ),
    kernel(
        "seldom-sums-halved", "one pass in seven has halved sums", SELDOM,
        sum_late=lambda self, out: 0.5 * out,
    ),
    kernel(
        "odd-sums-bfloat16", "odd passes sum to bfloat16", ODD,
        sum_late=lambda self, out: round_to(torch.bfloat16)(self, out),
    ),
    kernel(
        "seldom-backward-halved", "one pass in seven passes half the gradients on", SELDOM,
        times=in_wrong_passes(
            FaultyKernel.times, lambda self, a, weight: halve_gradient(a) @ weight
        ),
    ),
    kernel(
        "late-backward-large", "the last layer's gradients are 1 % too large from the fifth on",
        LATE,
        end=lambda self, out: alter_gradient(LateKernel.end(self, out), lambda g: 1.01 * g)
        if self.wrong
        else LateKernel.end(self, out),
    ),
    kernel(
        "late-bias-lost", "no bias is added from the fifth pass on", LATE,
        add=in_wrong_passes(FaultyKernel.add, lambda self, out, bias, last: out + 0 * bias),
    ),
    kernel(
        "seldom-relu-leaky", "one pass in seven lets a tenth through below zero", SELDOM,
        bend=in_wrong_passes(
            FaultyKernel.bend, lambda self, out: torch.nn.functional.leaky_relu(out, 0.1)
        ),
    ),
    kernel(
        "late-weights-bfloat16", "backward passes round weights from the fifth on", LATE, WRITTEN,
        times=spoil_weights(lambda weight: weight.bfloat16().to(weight.dtype)),
    ),
    kernel(
        "odd-weights-decayed", "odd backward passes decay weights", ODD, WRITTEN,
        times=spoil_weights(lambda weight: weight * 0.9999),
    ),
    Fault(LateRounding, (("distdgl", "mini-batch"),), late=True),
    writing(
        "late-weights-decayed", "weights decay between epochs from the third on", WRITTEN,
        rounds=spoil_late(Replicas, decay),
    ),
    writing(
        "late-steps-doubled", "optimisers take steps twice as long from the third epoch on",
        "the optimiser's step", rounds=spoil_late(Adam, double_rate),
    ),
    sampler(
        "seldom-edges-strange", "one round in five has an edge that the graph does not have",
        NO_EDGE, sample=sample_late(has_a_number, change_last(point_at_itself)),
    ),
    sampler(
        "last-edges-strange", "the last round has an edge that the graph does not have", NO_EDGE,
        sample=sample_late(is_of_the_last_round, change_last(point_at_itself)),
    ),
    sampler(
        "late-edges-repeated", "a neighbour may be drawn twice from the third epoch on",
        "in-edge twice", checks={"same-maths": "in-edge twice"},
        sample=sample_late(is_late, change_last(repeat_edges)),
    ),
    sampler(
        "late-fanouts-less-one", "one neighbour less is taken from the third epoch on", TOO_FEW,
        sample=sample_late(is_late, fan_out(lambda fanout: max(fanout - 1, 1))),
    ),
    sampler(
        "late-draws-repeated", "from the second epoch on all have the same neighbours",
        "were drawn for the same vertex", sample=draw_by(epoch=lambda self, seeds, n: min(n, 1)),
    ),
    sampler(
        "late-seeds-skipped", "the last seed of a round is skipped from the third epoch on",
        "leaves out",
        rounds=lambda self, epoch: [
            skip_the_last(seeds) if epoch >= 2 else seeds
            for seeds in NeighbourSampler.rounds(self, epoch)
        ],
    ),
)  # fmt: skip
IN_CHECKS = (
    sampler(
        "late-rounds-joined", "all epochs but the first have one round",
        checks={LAW: r"has \d+, 1, 1 rounds in the first epochs"},
        rounds=lambda self, epoch: [np.concatenate(NeighbourSampler.rounds(self, epoch))]
        if epoch
        else NeighbourSampler.rounds(self, epoch),
    ),
)  # fmt: skip
