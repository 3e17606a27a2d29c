"""Attention weights that are off by a unit of rounding, as those of any right run may be.

Where one edge has nearly all the weight of its destination, the gradient of its score is a
difference of two numbers that are nearly equal. A pass whose weight is exactly one has zero there,
another one what rounding leaves of numbers of any size. So the passes that say how far rounding
goes have weights that are nudged.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable

from gnnbench.models import BoundBlock
from gnnbench.parts import Adjacency


def nudge(values: Tensor, generator: torch.Generator) -> Tensor:
    """The values, each a unit of rounding larger or smaller by chance, or as it is."""
    signs = torch.randint(-1, 2, values.shape, generator=generator).to(values.dtype)
    return values * (1 + torch.finfo(values.dtype).eps * signs)


def nudge_attention(bound: BoundBlock, generator: torch.Generator) -> None:
    """From now on the softmax over the edges of ``bound`` gives nudged weights, in both passes."""
    for adjacency in (bound.adjacency, bound.adjacency_with_self_loops):
        plain = adjacency.edge_softmax

        def softmax(
            scores: Tensor,
            adjacency: Adjacency = adjacency,
            plain: Callable[[Tensor], Tensor] = plain,
        ) -> Tensor:
            with torch.no_grad():
                weights = nudge(plain(scores), generator)
            out: Tensor = _Nudged.apply(scores, weights, adjacency)  # type: ignore[no-untyped-call]
            return out

        adjacency.edge_softmax = softmax  # type: ignore[method-assign]


class _Context(FunctionCtx):
    weights: Tensor
    adjacency: Adjacency


class _Nudged(Function):
    """Softmax of edges whose weights were given: ds_e = p_e (dp_e - sum of p dp over the in-edges
    of e's destination)."""

    @staticmethod
    def forward(ctx: _Context, scores: Tensor, weights: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.weights, ctx.adjacency = weights, adjacency
        return weights.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor, None, None]:
        weighted, dst = ctx.weights * g, ctx.adjacency.edge_dst
        sums = g.new_zeros(ctx.adjacency.block.num_dst).index_add_(0, dst, weighted)
        return weighted - ctx.weights * sums.index_select(0, dst), None, None
