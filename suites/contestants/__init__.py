"""The contestants of races: one module a kernel, with its cases and a function a contestant.

A new kernel is a module and a line of :func:`all_kernels`; a new peer is a function and a line of
its module's ``CONTESTANTS``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gnnbench.records import Graph
from suites.race import Case


@dataclass(frozen=True, slots=True)
class Scope:
    """The graphs to race on, by name, whether inputs are small, and whether slow peers race.

    Inputs are made with the contestants, so iterating over cases only loads graphs.
    """

    graphs: Iterable[tuple[str, Graph]]
    small: bool = False
    all_peers: bool = False


Cases = Callable[[Scope], Iterator[Case]]


def all_kernels() -> dict[str, Cases]:
    """Return the cases of every kernel, in the order in which they race."""
    from suites.contestants import (
        aggregation,
        epochs,
        gather,
        masked,
        movement,
        ordering,
        sampling,
        sets,
        update,
    )

    return {
        "sampling": sampling.race_cases,
        "aggregation": aggregation.race_cases,
        "backward": aggregation.backward_cases,
        "gather": gather.race_cases,
        "movement": movement.race_cases,
        "masked": masked.race_cases,
        "ordering": ordering.race_cases,
        "sets": sets.race_cases,
        "update": update.race_cases,
        "epochs": epochs.race_cases,
    }
