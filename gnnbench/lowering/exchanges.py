"""The matrices that the all-to-alls of feature shards transfer, and the operations on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gnnbench.lowering.shardings import Overlap


class MoveAggregates(NamedTuple):
    """The transfer of some columns of a round's aggregates to an updater."""

    layer: int
    round: int
    overlap: Overlap


class MoveRows(NamedTuple):
    """The transfer of some columns of a round's outputs to an aggregator of the next layer."""

    layer: int
    round: int
    overlap: Overlap


class ReturnAggregateGradients(NamedTuple):
    """The transfer of the gradients of some columns of aggregates to their aggregator."""

    layer: int
    round: int
    overlap: Overlap


class ReturnRowGradients(NamedTuple):
    """The transfer of the gradients of some columns of a round's rows to their updater."""

    layer: int
    round: int
    overlap: Overlap


@dataclass(frozen=True, slots=True)
class Matrix:
    """The rows that one all-to-all transfers between aggregators and updaters.

    They are the rows of a round's pieces (``of_pieces``), or else its input rows. They go to the
    updaters or to the aggregators.
    """

    name: str
    operation: Callable[[int, int, Overlap], object]
    of_pieces: bool
    to_updaters: bool


AGGREGATES = Matrix("aggregates", MoveAggregates, of_pieces=True, to_updaters=True)
ROWS = Matrix("representations", MoveRows, of_pieces=False, to_updaters=False)
AGGREGATE_GRADIENTS = Matrix(
    "gradients of aggregates", ReturnAggregateGradients, of_pieces=True, to_updaters=False
)
ROW_GRADIENTS = Matrix(
    "gradients of representations", ReturnRowGradients, of_pieces=False, to_updaters=True
)
