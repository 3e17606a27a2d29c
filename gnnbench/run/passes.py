"""One layer of one unit, forward and backward, in the pieces that systems schedule separately.

The tape is cut between AGGREGATE and UPDATE, so that each can be timed, priced, placed, cached or
recomputed separately (HyScale-GNN Equation 10; HongTu §4.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from gnnbench.kernels.autograd import mask_positive
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.models import BoundBlock, Layer


@dataclass(slots=True)
class AggregateTape:
    """The inputs of AGGREGATE's backward pass; where it is linear, only the block is needed.

    ``source`` receives the gradient of the source rows, and is None if the gradient is unused.
    ``wanted`` marks the positive elements of the source rows, if the layer masks by them.
    """

    source: Tensor | None
    output: Tensor
    wanted: MaskArray | None = None


@dataclass(slots=True)
class UpdateTape:
    """The leaf for the aggregate's gradient, and the representation computed from it."""

    leaf: Tensor
    output: Tensor


class _Enter(Function):
    """The identity on rows, with their gradient sent to a leaf of the same shape."""

    @staticmethod
    def forward(ctx: FunctionCtx, leaf: Tensor, rows: Tensor) -> Tensor:
        return rows.detach()

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Shed(Function):
    """A tensor's shape and its position in the graph, without its memory."""

    @staticmethod
    def forward(ctx: FunctionCtx, tensor: Tensor) -> Tensor:
        return tensor.new_zeros(1).expand(tensor.shape)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        return gradient


def _shed(tensor: Tensor) -> Tensor:
    shed: Tensor = _Shed.apply(tensor)  # type: ignore[no-untyped-call]
    return shed


def _enter(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return a leaf without memory for the gradient of ``rows``, and the rows in the graph.

    The rows then live exactly as long as autograd needs them.
    """
    leaf = rows.new_zeros(1).expand(rows.shape).requires_grad_()
    entered: Tensor = _Enter.apply(leaf, rows.detach())  # type: ignore[no-untyped-call]
    return leaf, entered


def without_outputs(
    aggregate: AggregateTape, update: UpdateTape
) -> tuple[AggregateTape, UpdateTape]:
    """Return the tapes with only what autograd has saved, and the mask."""
    leaf = update.leaf if update.leaf.requires_grad else _shed(update.leaf)
    return (
        AggregateTape(aggregate.source, _shed(aggregate.output), aggregate.wanted),
        UpdateTape(leaf, _shed(update.output)),
    )


def run_aggregate(layer: Layer, bound: BoundBlock, h: Tensor, *, first: bool) -> AggregateTape:
    """Run AGGREGATE forward; in ``first`` layers the input, the features, needs no gradient."""
    if layer.cacheable:
        with torch.no_grad():
            wanted = mask_positive(h) if layer.masks_below else None
            return AggregateTape(None, layer.aggregate(bound, h), wanted)
    if first:
        return AggregateTape(None, layer.aggregate(bound, h))
    source, entered = _enter(h)
    return AggregateTape(source, layer.aggregate(bound, entered))


def run_update(
    layer: Layer, bound: BoundBlock, aggregate: Tensor, *, needs_input_gradient: bool
) -> UpdateTape:
    """Run UPDATE forward, from a leaf."""
    if not needs_input_gradient:
        return UpdateTape(aggregate, layer.update(bound, aggregate.detach()))
    leaf, entered = _enter(aggregate)
    return UpdateTape(leaf, layer.update(bound, entered))


def run_update_backward(tape: UpdateTape, gradient: Tensor) -> Tensor | None:
    """Accumulate the gradients of W and b; return the aggregate's, if it is needed."""
    torch.autograd.backward(tape.output, gradient)
    return tape.leaf.grad


def run_aggregate_backward(
    layer: Layer,
    bound: BoundBlock,
    tape: AggregateTape | None,
    gradient: Tensor,
    *,
    first: bool,
    into: Tensor | None = None,
) -> Tensor | None:
    """Return the gradient of the source rows ``(S, f_in)``, or None for features.

    The gradient is added to ``into`` if that is given. A cacheable layer needs no tape except the
    mask. Otherwise the tape's forward is differentiated, which also accumulates the gradients of
    the parameters inside AGGREGATE.
    """
    if layer.cacheable:
        if first:
            return None
        if layer.masks_below:
            if tape is None or tape.wanted is None:
                raise ValueError("a layer that masks its gradients needs the mask of its input")
            bound = bound.masked(tape.wanted)
        with torch.no_grad():
            return layer.aggregate_backward(bound, gradient, into)
    if tape is None:
        raise ValueError("a layer that is not cacheable needs its forward pass for its backward")
    torch.autograd.backward(tape.output, gradient)
    if tape.source is None or tape.source.grad is None:
        return None
    return tape.source.grad if into is None else into.add_(tape.source.grad)


def take_gradients(layers: tuple[Layer, ...]) -> list[Tensor]:
    """Return the gradients accumulated in the parameters, and clear them."""
    taken = []
    for layer in layers:
        for parameter in layer.parameters():
            gradient = parameter.grad
            taken.append(torch.zeros_like(parameter) if gradient is None else gradient)
            parameter.grad = None
    return taken
