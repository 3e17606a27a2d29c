"""The amount of work in the backward pass of a layer, which follows from the layer alone."""

from __future__ import annotations

from typing import overload

from gnnbench.models import Layer
from gnnbench.records import AggregateWork, UpdateWork


def needs_aggregate_gradient(layer: Layer, *, first: bool) -> bool:
    """Return whether the gradient goes on below UPDATE.

    It is needed by the layer before, or by attention weights.
    """
    return not (first and layer.cacheable)


def update_gemms(layer: Layer, *, first: bool) -> int:
    """Return how many matrix products UPDATE has backward.

    There is one for W, and one for its input unless that is a feature.
    """
    return 2 if needs_aggregate_gradient(layer, first=first) else 1


@overload
def size_backward(work: AggregateWork, *, first: bool) -> AggregateWork: ...
@overload
def size_backward(work: UpdateWork, *, first: bool) -> UpdateWork: ...
def size_backward(work: AggregateWork | UpdateWork, *, first: bool) -> AggregateWork | UpdateWork:
    """Return the size of the backward pass of ``work``.

    A product in AGGREGATE becomes two, for W and for its input, unless the input is a feature.
    """
    if isinstance(work, UpdateWork) or not work.macs:
        return work._replace(backward=True)
    return work._replace(backward=True, product=work.product._replace(backward=1 if first else 2))
