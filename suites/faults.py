"""Parts that are wrong in one way each, as a plugin, to see what the check of equality finds.

Each differs from the plain part beside it by its one fault, which its ``summary`` says; ``FAULTS``
lists them all. Kernels are swapped into any strategy, samplers and communications into those that
they fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Adjacency, Kernel, Part, Scaling
from gnnbench.records import Block, IntArray, PartKind
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from suites.faulty_sampling import CHUNKS, COMMUNICATIONS, SAMPLERS

#: One edge of so many is dropped, by name of the fault.
SPARSELY = 10_000


# --------------------------------------------------------------------------- edges


def drop_edges(block: Block, dropped: IntArray) -> Block:
    """The block without some of its edges."""
    kept = np.ones(block.num_edges, dtype=bool)
    kept[dropped] = False
    rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))[kept]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=block.num_dst))))
    return replace(block, indptr=indptr.astype(np.int64), indices=block.indices[kept])


def drop_one_in_many(block: Block) -> Block:
    """Without one edge in 10,000, of few without one."""
    step = min(SPARSELY, max(block.num_edges, 1))
    return drop_edges(block, np.arange(step // 2, block.num_edges, step))


def drop_last_of_each(block: Block) -> Block:
    """Without the last edge of each fourth destination that has several, as by a wrong bound."""
    several = np.flatnonzero(np.diff(block.indptr) > 1)[::4]
    return drop_edges(block, block.indptr[several + 1] - 1)


def repeat_one(block: Block) -> Block:
    """With one edge twice, which doubles its weight."""
    place = block.num_edges // 2
    if not block.num_edges:
        return block
    row = int(np.searchsorted(block.indptr, place, side="right")) - 1
    indptr = block.indptr.copy()
    indptr[row + 1 :] += 1
    return replace(
        block, indptr=indptr, indices=np.insert(block.indices, place, block.indices[place])
    )


def misread_one(block: Block) -> Block:
    """With one edge that comes from the next source."""
    indices = block.indices.copy()
    if len(indices) and block.num_src > 1:
        place = len(indices) // 3
        indices[place] = (indices[place] + 1) % block.num_src
    return replace(block, indices=indices)


# --------------------------------------------------------------------------- adjacencies


class PlainAdjacency(TorchAdjacency):
    """All of whose products are ``sum`` and ``sum_transposed``."""

    sum_scaled = Adjacency.sum_scaled
    own_plus_sum = Adjacency.own_plus_sum
    own_and_mean = Adjacency.own_and_mean
    own_and_mean_transposed = Adjacency.own_and_mean_transposed


class ScaledSums(PlainAdjacency):
    """Sums are 3e-4 too large."""

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return super().sum(h, weight) * (1 + 3e-4)

    def sum_edges(self, messages: Tensor) -> Tensor:
        return super().sum_edges(messages) * (1 + 3e-4)


class _RoundedInputs(PlainAdjacency):
    to: ClassVar[torch.dtype]

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return super().sum(h.to(self.to).to(h.dtype), weight)

    def sum_edges(self, messages: Tensor) -> Tensor:
        return super().sum_edges(messages.to(self.to).to(messages.dtype))


class HalfInputs(_RoundedInputs):
    """What is summed is rounded to float16."""

    to = torch.float16


class BrainInputs(_RoundedInputs):
    """What is summed is rounded to bfloat16."""

    to = torch.bfloat16


class HalfSums(PlainAdjacency):
    """Sums are kept in float16."""

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return super().sum(h, weight).half().to(h.dtype)

    def sum_edges(self, messages: Tensor) -> Tensor:
        return super().sum_edges(messages).half().to(messages.dtype)


class StaleRows(PlainAdjacency):
    """One sum in 50 is that of the update before."""

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(block, dtype, device)
        self._before: dict[tuple[int, ...], Tensor] = {}

    def _stale(self, key: tuple[int, ...], out: Tensor) -> Tensor:
        before = self._before.get(key)
        self._before[key] = out.detach().clone()
        if before is None:
            return out
        stale = (torch.arange(len(out)) % 50 == 7).unsqueeze(1)
        return torch.where(stale, before, out)

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return self._stale((*h.shape, weight is None), super().sum(h, weight))

    def sum_edges(self, messages: Tensor) -> Tensor:
        return self._stale(tuple(messages.shape), super().sum_edges(messages))


class ShiftedRows(PlainAdjacency):
    """The rows that are summed are each the one before."""

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return super().sum(h.roll(1, 0), weight)

    def sum_edges(self, messages: Tensor) -> Tensor:
        return super().sum_edges(messages.roll(1, 0))


class LostColumn(PlainAdjacency):
    """The last column is not summed."""

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        out = super().sum(h, weight)
        return torch.cat((out[:, :-1], torch.zeros_like(out[:, -1:])), dim=1)

    def sum_edges(self, messages: Tensor) -> Tensor:
        out = super().sum_edges(messages)
        return torch.cat((out[:, :-1], torch.zeros_like(out[:, -1:])), dim=1)


class LostSelf(PlainAdjacency):
    """One destination's own row is missed."""

    def own_rows(self, h: Tensor) -> Tensor:
        out = super().own_rows(h).clone()
        out[len(out) // 2] = 0
        return out


class WrongNorms(PlainAdjacency):
    """1/D(v) stands for 1/(D(v)+1)."""

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        return super().sum_scaled(h, _lessen(scaling))

    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        return super().sum_scaled_transposed(g, _lessen(scaling), into)


def _lessen(scaling: Scaling) -> Scaling:
    src, dst = ((part.pow(-2) - 1).clamp(min=1).rsqrt() for part in (scaling.src, scaling.dst))
    return Scaling(src=src, dst=dst, own=dst * dst)


class BlockNorms(PlainAdjacency):
    """The in-degrees of the block stand for those of the graph."""

    def _swap(self, scaling: Scaling) -> Scaling:
        dst = (self.in_degrees + 1).rsqrt()
        return Scaling(src=scaling.src, dst=dst, own=dst * dst)

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        return super().sum_scaled(h, self._swap(scaling))

    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        return super().sum_scaled_transposed(g, self._swap(scaling), into)


class _Leaky(PlainAdjacency):
    """Backward passes that miss edges."""

    step: ClassVar[int]

    def transpose(self, weight: Tensor | None = None) -> Tensor:
        values = self._ones if weight is None else weight
        values = values.clone()
        values[self.step // 2 :: self.step] = 0
        return super().transpose(values)


class LeakyHundredth(_Leaky):
    """Backward passes miss one edge in 100."""

    step = 100


class LeakyTenth(_Leaky):
    """Backward passes miss one edge in 10."""

    step = 10


class ScaledGradients(PlainAdjacency):
    """The gradients of sums are 1 % too large."""

    def transpose(self, weight: Tensor | None = None) -> Tensor:
        return super().transpose((self._ones if weight is None else weight) * 1.01)


class LostSoftmax(PlainAdjacency):
    """The attention to one edge in 1,000 is lost."""

    def edge_softmax(self, scores: Tensor) -> Tensor:
        lost = torch.arange(len(scores)) % 1000 == 500
        return super().edge_softmax(scores).masked_fill(lost, 0)


class NotNumbers(PlainAdjacency):
    """One sum is no number."""

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        out = super().sum(h, weight).clone()
        out[len(out) // 2] = torch.nan
        return out


# --------------------------------------------------------------------------- kernels


class _Altered(torch.autograd.Function):
    """What it is given, and a gradient that is altered on the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, alter: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.alter = alter
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.alter(g), None


def alter_gradient(rows: Tensor, alter: Callable[[Tensor], Tensor]) -> Tensor:
    """``rows``, whose gradient is ``alter`` of what it should be."""
    altered: Tensor = _Altered.apply(rows, alter)  # type: ignore[no-untyped-call]
    return altered


@dataclass
class FaultyKernel(TorchKernel):
    """The plain kernel with an adjacency, or with edges, of its own, or another UPDATE."""

    made: ClassVar[type[TorchAdjacency]] = PlainAdjacency
    alter_block: ClassVar[Callable[[Block], Block] | None] = None

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> TorchAdjacency:
        alter = type(self).alter_block
        return self.made(block if alter is None else alter(block), dtype, device)


class _Update(FaultyKernel):
    """UPDATE in steps that can be wrong one by one: ``a W``, the bias added, ReLU."""

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        out = self.add(a if weight is None else self.times(a, weight), bias, last=not relu)
        return self.bend(out) if relu else self.end(out)

    def times(self, a: Tensor, weight: Tensor) -> Tensor:
        return a @ weight

    def add(self, out: Tensor, bias: Tensor, *, last: bool) -> Tensor:
        return out + bias

    def bend(self, out: Tensor) -> Tensor:
        return out.relu()

    def end(self, out: Tensor) -> Tensor:
        return out


@dataclass
class DoubledWeightGradients(_Update):
    def times(self, a: Tensor, weight: Tensor) -> Tensor:
        return a @ alter_gradient(weight, lambda g: 2 * g)


@dataclass
class RoundedWeightGradients(_Update):
    def times(self, a: Tensor, weight: Tensor) -> Tensor:
        return a @ alter_gradient(weight, lambda g: g.bfloat16().to(g.dtype))


@dataclass
class NoBiasGradients(_Update):
    def add(self, out: Tensor, bias: Tensor, *, last: bool) -> Tensor:
        return out + alter_gradient(bias, torch.zeros_like)


@dataclass
class NoLastBias(_Update):
    def add(self, out: Tensor, bias: Tensor, *, last: bool) -> Tensor:
        return out + 0 * bias if last else out + bias


@dataclass
class OtherMask(_Update):
    def bend(self, out: Tensor) -> Tensor:
        mask = (out.detach() > 0).to(out.dtype)
        # The value is ReLU's, the gradient passes by the mask of the next row.
        passed = out * mask.roll(1, 0)
        return passed + (out.detach().relu() - passed.detach())


@dataclass
class NoMask(_Update):
    def bend(self, out: Tensor) -> Tensor:
        return out + (out.detach().relu() - out.detach())


@dataclass
class CopiedLogits(_Update):
    def end(self, out: Tensor) -> Tensor:
        source = torch.arange(len(out))
        source[len(out) // 2] = max(len(out) // 2 - 1, 0)
        return out.index_select(0, source)


@dataclass
class Dropout(_Update):
    def bend(self, out: Tensor) -> Tensor:
        return torch.nn.functional.dropout(out.relu(), 0.1)


@dataclass
class _Counting(_Update):
    """Every fourth time that the last layer is computed, as if by one of four devices."""

    _calls: int = field(default=0, init=False, repr=False, compare=False)

    def is_its_turn(self) -> bool:
        self._calls += 1
        return self._calls % 4 == 2


@dataclass
class CountedTwice(_Counting):
    def end(self, out: Tensor) -> Tensor:
        return alter_gradient(out, lambda g: 2 * g) if self.is_its_turn() else out


@dataclass
class Unweighted(_Update):
    """Gradients as if every device had as many seeds as the first."""

    _rows: int = field(default=0, init=False, repr=False, compare=False)

    def end(self, out: Tensor) -> Tensor:
        self._rows = self._rows or len(out)
        share = self._rows / max(len(out), 1)
        return alter_gradient(out, lambda g: share * g)


@dataclass
class MissedUpdate(_Counting):
    """One device in four computes the last layer with the weights of the update before."""

    _seen: dict[tuple[int, ...], list[Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def times(self, a: Tensor, weight: Tensor) -> Tensor:
        seen = self._seen.setdefault(tuple(weight.shape), [weight.detach().clone()])
        if not torch.equal(seen[-1], weight.detach()):
            seen.append(weight.detach().clone())
            del seen[:-2]
        if self.is_its_turn() and len(seen) > 1:
            return a @ (weight + (seen[0] - weight.detach()))
        return a @ weight


def _make_kernel(
    name: str, made: type[TorchAdjacency] = PlainAdjacency, edges: Any = None
) -> type[FaultyKernel]:
    summary = (made.__doc__ or "") if edges is None else (edges.__doc__ or "")
    members = {
        "name": name,
        "summary": summary.splitlines()[0],
        "made": made,
        "alter_block": None if edges is None else staticmethod(edges),
        "__module__": __name__,
    }
    return dataclass(type("Kernel_" + name.replace("-", "_"), (FaultyKernel,), members))


def _name_kernel(name: str, summary: str, kernel: type[FaultyKernel]) -> type[FaultyKernel]:
    kernel.name, kernel.summary = name, summary
    return kernel


#: Kernels that are wrong, by what they do.
KERNELS: tuple[type[FaultyKernel], ...] = (
    _make_kernel("edge-dropped", edges=drop_one_in_many),
    _make_kernel("last-edges-dropped", edges=drop_last_of_each),
    _make_kernel("edge-twice", edges=repeat_one),
    _make_kernel("edge-misread", edges=misread_one),
    _make_kernel("sums-scaled", ScaledSums),
    _make_kernel("inputs-float16", HalfInputs),
    _make_kernel("inputs-bfloat16", BrainInputs),
    _make_kernel("sums-float16", HalfSums),
    _make_kernel("rows-stale", StaleRows),
    _make_kernel("rows-shifted", ShiftedRows),
    _make_kernel("column-lost", LostColumn),
    _make_kernel("self-lost", LostSelf),
    _make_kernel("norm-wrong", WrongNorms),
    _make_kernel("norm-of-block", BlockNorms),
    _make_kernel("backward-drops-100th", LeakyHundredth),
    _make_kernel("backward-drops-10th", LeakyTenth),
    _make_kernel("backward-scaled", ScaledGradients),
    _make_kernel("attention-lost", LostSoftmax),
    _make_kernel("not-a-number", NotNumbers),
    _name_kernel("weight-gradients-doubled", "W's gradient twice", DoubledWeightGradients),
    _name_kernel("weight-gradients-bfloat16", "W's gradient rounded", RoundedWeightGradients),
    _name_kernel("bias-gradients-lost", "no gradient for biases", NoBiasGradients),
    _name_kernel("last-bias-lost", "the last layer has no bias", NoLastBias),
    _name_kernel("mask-of-another", "ReLU's mask is the next row's", OtherMask),
    _name_kernel("mask-lost", "ReLU has no mask", NoMask),
    _name_kernel("logits-copied", "one row of logits is its neighbour's", CopiedLogits),
    _name_kernel("dropout-on", "dropout is left on", Dropout),
    _name_kernel("gradient-twice", "one device in four counts twice", CountedTwice),
    _name_kernel("unweighted", "devices' gradients are not weighted", Unweighted),
    _name_kernel("update-missed", "a replica missed an update", MissedUpdate),
)


#: Every fault by name, and the kind of part that has it.
FAULTS: dict[str, PartKind] = {
    part.name: part.kind for part in (*KERNELS, *SAMPLERS, *CHUNKS, *COMMUNICATIONS)
}


@hookimpl
def gnnbench_kernel() -> list[type[Kernel]]:
    return list(KERNELS)


@hookimpl
def gnnbench_sampler() -> list[type[Part]]:
    return [*SAMPLERS, *CHUNKS]


@hookimpl
def gnnbench_communication() -> list[type[Part]]:
    return list(COMMUNICATIONS)
