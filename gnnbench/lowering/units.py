"""What the backward pass of a layer has to compute, which follows from the layer alone."""

from __future__ import annotations

from gnnbench.models import Layer
from gnnbench.records import Work


def needs_aggregate_gradient(layer: Layer, *, first: bool) -> bool:
    """Whether the gradient goes on below UPDATE: to the layer before, or to attention weights."""
    return not (first and layer.cacheable)


def update_gemms(layer: Layer, *, first: bool) -> int:
    """Matrix products in UPDATE's backward: for W, and for its input unless that is a feature."""
    return 2 if needs_aggregate_gradient(layer, first=first) else 1


def size_backward(work: Work, *, first: bool) -> Work:
    """The backward pass of ``work``; of products in AGGREGATE there are two, for W and for their
    input, unless that is a feature."""
    if work.op == "aggregate":
        return work._replace(backward=True, products=1 if first else 2)
    return work._replace(backward=True)
