"""Sets of vertex ids, against NumPy's set functions."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from gnnbench.kernels import dispatch
from gnnbench.kernels.reference.sets import Bitmaps
from gnnbench.records import IndexArray, IntArray
from suites.contestants import Scope
from suites.race import OURS, Case, Contestant, check_close

#: Number of sets that are intersected with each other.
SETS = 16


@cache
def draw_ids(size: int) -> IndexArray:
    """Draw ``size`` ids below ``2 size``, in any order and with repeats."""
    return np.random.default_rng(0).integers(2 * size, size=size, dtype=np.int32)


@cache
def draw_bitmaps(size: int) -> Bitmaps:
    """Draw sets of ``size`` vertices, each with a quarter of them."""
    random = np.random.default_rng(0)
    sets = [random.choice(size, size // 4, replace=False) for _ in range(SETS)]
    return dispatch.mark_sets(sets, size)


def count_with_numpy(bitmaps: Bitmaps) -> IntArray:
    """Return the number of ids that every two sets share, by a product of their bits."""
    bits = np.unpackbits(bitmaps.view(np.uint8), axis=1).astype(np.float32)
    return (bits @ bits.T).astype(np.int64)


#: By computation: its input, and its contestants.
CONTESTANTS: dict[str, tuple[Callable[[int], Any], dict[str, Callable[[Any], Any]]]] = {
    "unique ids": (
        draw_ids,
        {OURS: lambda ids: dispatch.unique_ids(ids, 2 * len(ids)), "numpy unique": np.unique},
    ),
    "shared ids": (
        draw_bitmaps,
        {
            OURS: lambda bitmaps: dispatch.count_shared_marks(bitmaps, bitmaps, threads=1),
            "numpy product": count_with_numpy,
        },
    ),
}


def compute(draw: Callable[[int], Any], operation: Callable[[Any], Any], size: int) -> Contestant:
    given = draw(size)
    return Contestant(lambda _: operation(given), np.atleast_1d)


def race_cases(scope: Scope) -> Iterator[Case]:
    size = 10_000 if scope.small else 1_000_000
    for name, (draw, operations) in CONTESTANTS.items():
        yield Case(
            "sets",
            f"{size:,} ids",
            name,
            {who: partial(compute, draw, run, size) for who, run in operations.items()},
            partial(check_close, tolerance=0.0),
            threaded=False,
        )
