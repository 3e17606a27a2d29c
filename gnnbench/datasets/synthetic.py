"""Graphs made in memory: ``rmat`` (topology with a heavy tail) and ``sbm`` (labelled communities).

``edges`` always counts *undirected* edges, so a graph stores twice as many entries. The same
specification and seed give the same dataset, to the bit, with the same NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import numpy as np
import numpy.typing as npt

from gnnbench.constants import Bound, Constant
from gnnbench.datasets.construct import (
    SPLIT,
    build,
    make_random_features,
    make_random_labels,
    make_split,
)
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.topology import MAX_VERTICES, sort_unique
from gnnbench.errors import DatasetError
from gnnbench.host.progress import doing, note_steps
from gnnbench.records import BoolArray, Dataset, FloatArray, IntArray

#: Quadrant probabilities a, b, c (d is the rest): Graph500's, after Chakrabarti et al. 2004.
RMAT_QUADRANTS: Annotated[tuple[float, float, float], Constant("", "quoted", "Graph 500")] = (
    0.57,
    0.19,
    0.19,
)
#: The share of the edges that ``sbm`` draws within a class.
HOMOPHILY: Bound[float] = 0.25
#: Distance between two class means of the features, in standard deviations of the noise: a vertex
#: alone is told apart poorly, the mean of its neighbourhood well.
CLASS_DISTANCE: Bound[float] = 2.0

#: Of anything that a graph has.
LARGEST_COUNT: Bound[int] = 10**18

_CHUNK: Bound[int] = 1 << 20
#: Candidates that are drawn for an edge that is still wanted.
_SURPLUS: Bound[float] = 1.1
_MAX_ROUNDS: Bound[int] = 64
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmg]?)", re.IGNORECASE)

RMAT_NOTE = "synthetic R-MAT graph: random features, labels and split 25/50/25"

Draw = Callable[[np.random.Generator, int], tuple[IntArray, IntArray]]


@dataclass(frozen=True, slots=True)
class SyntheticSize:
    """Vertices, undirected edges, feature width and classes of a synthetic graph."""

    vertices: int
    edges: int
    features: int
    classes: int


DEFAULT_SIZES: Mapping[str, SyntheticSize] = {
    "rmat": SyntheticSize(vertices=1 << 20, edges=1 << 24, features=100, classes=16),
    "sbm": SyntheticSize(vertices=20_000, edges=400_000, features=128, classes=16),
}


# --------------------------------------------------------------------------- specifications


def parse_count(where: str, key: str, text: str) -> int:
    """Parse ``"20000"``, ``"1.5M"`` or ``"16k"``, positive and whole; decimal suffixes k, M, G."""
    match = _COUNT.fullmatch(text.strip())
    value = Decimal(match[1]) * _SUFFIXES[match[2].lower()] if match else Decimal(0)
    if not 1 <= value < LARGEST_COUNT or value != int(value):
        shown = text if len(text) <= 24 else f"{text[:24]}..."
        raise DatasetError(
            f"{where}: {key}={shown} is not a positive whole number below {LARGEST_COUNT:.0e}; "
            f"write it as 20000, 20k or 1.5M."
        )
    return int(value)


def parse_size(spec: str) -> SyntheticSize:
    """Parse the sizes in ``"rmat:vertices=1M,edges=16M"``; an absent size keeps its default."""
    kind, _, options = spec.partition(":")
    default = DEFAULT_SIZES[kind]
    keys = SyntheticSize.__dataclass_fields__
    given: dict[str, int] = {}
    for option in filter(None, options.split(",")):
        key, equals, text = (part.strip() for part in option.partition("="))
        if not equals or key not in keys:
            raise DatasetError(
                f"dataset {spec!r}: {option.strip()!r} is not an option of {kind}; write "
                f"{kind}:" + ",".join(f"{key}=N" for key in keys) + " or some of these."
            )
        if key in given:
            raise DatasetError(f"dataset {spec!r}: {key} is given twice; give it once.")
        given[key] = parse_count(f"dataset {spec!r}", key, text)
    size = SyntheticSize(
        given.get("vertices", default.vertices),
        given.get("edges", default.edges),
        given.get("features", default.features),
        given.get("classes", default.classes),
    )
    check_size(f"dataset {spec!r}", size)
    return size


def check_size(where: str, size: SyntheticSize) -> None:
    """Raise :class:`DatasetError` for a graph that cannot exist."""
    if not 2 <= size.vertices <= MAX_VERTICES:
        raise DatasetError(
            f"{where}: {size.vertices:,} vertices is outside 2 to {MAX_VERTICES:,}; choose another "
            f"size."
        )
    if size.edges > size.vertices * (size.vertices - 1) // 4:
        raise DatasetError(
            f"{where}: {size.edges:,} undirected edges are more than half of all pairs of "
            f"{size.vertices:,} vertices; ask for fewer edges or more vertices."
        )
    if size.classes > size.vertices:
        raise DatasetError(
            f"{where}: {size.classes:,} classes are more than {size.vertices:,} vertices; ask for "
            f"fewer classes."
        )


def check_fits(where: str, size: SyntheticSize) -> None:
    """Raise :class:`DatasetError` for a graph that cannot be made in this machine's memory."""
    needed = 4 * size.vertices * size.features + 100 * size.edges + 64 * size.vertices
    check_memory(where, "making it", needed)


# --------------------------------------------------------------------------- topology


def draw_distinct(
    where: str, draw: Draw, vertices: int, edges: int, rng: np.random.Generator
) -> IntArray:
    """Draw ``edges`` distinct undirected edges without self loops, int64 ``(2, edges)``.

    ``draw(rng, n)`` yields n candidate pairs; drawing goes on until enough are distinct, and the
    surplus is dropped at random. Raises :class:`DatasetError` where the pairs keep repeating.
    """
    keys = np.empty(0, dtype=np.int64)

    def draw_more(count: int) -> int:
        nonlocal keys
        more = np.sort(pack_pairs(*draw(rng, count), vertices))
        keys = sort_unique(np.concatenate((keys, more)), runs=True)
        return len(keys)

    kept = choose_kept(rng, draw_until(where, edges, draw_more), edges)
    return np.stack(np.divmod(keys[kept], vertices))


def pack_pairs(src: IntArray, dst: IntArray, vertices: int) -> IntArray:
    """Pack undirected edges, without self loops, into one number each."""
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    return np.asarray((low * vertices + high)[low != high], dtype=np.int64)


def draw_until(where: str, edges: int, draw_more: Callable[[int], int]) -> int:
    """Draw until at least ``edges`` are distinct, and say how many are.

    ``draw_more`` draws so many candidates, and says how many are distinct then.
    """
    found = 0
    with doing("drawing edges", 2 * edges) as drawing:  # drawn, then sorted
        for _ in range(_MAX_ROUNDS):
            if found >= edges:
                break
            found = draw_more(max(4096, int(_SURPLUS * (edges - found))))
            drawing.advance(found + min(found, edges) - drawing.done)
    if found >= edges:
        return found
    raise DatasetError(
        f"{where}: only {found:,} of {edges:,} distinct edges could be drawn; ask for "
        f"fewer edges or more vertices."
    )


def choose_kept(rng: np.random.Generator, found: int, wanted: int) -> BoolArray:
    """Choose at random ``wanted`` of ``found`` entries to keep; takes 9 bytes an entry."""
    kept = np.ones(found, dtype=np.bool_)
    kept[rng.choice(found, found - wanted, replace=False)] = False
    return kept


def draw_rmat(rng: np.random.Generator, count: int, vertices: int) -> tuple[IntArray, IntArray]:
    """Draw ``count`` directed R-MAT edges over ids 0 to ``vertices``-1; hubs have the small ids.

    Each edge descends ceil(log2 V) times into a quadrant of the adjacency matrix (Chakrabarti,
    Zhan and Faloutsos, R-MAT, SDM 2004). Where V is no power of two, edges outside are redrawn.
    """
    src, dst = np.empty((2, count), dtype=np.int64)
    filled = 0
    for rows, columns in draw_rmat_pieces(rng, count, vertices):
        end = filled + len(rows)
        src[filled:end], dst[filled:end] = rows, columns
        note_steps(end - filled)
        filled = end
    return src, dst


def draw_rmat_pieces(
    rng: np.random.Generator, count: int, vertices: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the edges of :func:`draw_rmat`, some at a time."""
    a, b, c = RMAT_QUADRANTS
    levels = max(1, (vertices - 1).bit_length())
    filled = 0
    while filled < count:
        row, column = np.zeros((2, min(_CHUNK, count - filled)), dtype=np.int64)
        for _ in range(levels):
            u = rng.random(len(row), dtype=np.float32)
            below = u >= a + b
            row <<= 1
            row |= below
            column <<= 1
            column |= ((u >= a) & ~below) | (u >= a + b + c)
        inside = (row < vertices) & (column < vertices)
        filled += int(np.count_nonzero(inside))
        yield row[inside], column[inside]


def draw_blocks(
    where: str,
    labels: IntArray,
    edges: int,
    rng: np.random.Generator,
    *,
    homophily: float = HOMOPHILY,
    weights: npt.NDArray[np.float64] | None = None,
) -> IntArray:
    """Draw undirected edges of a stochastic block model, int64 ``(2, edges)``.

    The first end is drawn in proportion to ``weights`` (even by default). The second end is in the
    first's class with probability ``homophily``, and anywhere otherwise. With weights this is the
    degree-corrected model: Chung and Lu's model of a given degree sequence, with communities
    (Karrer and Newman, Phys. Rev. E 83, 2011).
    """
    order = np.argsort(labels, kind="stable")
    by_class = labels[order]
    total = np.zeros(len(labels) + 1)
    np.cumsum(np.ones(len(labels)) if weights is None else weights[order], out=total[1:])
    # The weight before and after each class, looked up by class.
    bounds = total[np.searchsorted(by_class, np.arange(int(labels.max()) + 2))]

    def pick(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> IntArray:
        at = low + rng.random(len(low)) * (high - low)
        found = np.searchsorted(total, at, side="right") - 1
        return np.minimum(found, len(labels) - 1)

    def draw(_: np.random.Generator, count: int) -> tuple[IntArray, IntArray]:
        zeros, ends = np.zeros(count), np.full(count, total[-1])
        src = pick(zeros, ends)
        inside = rng.random(count) < homophily
        own = by_class[src]
        dst = pick(np.where(inside, bounds[own], zeros), np.where(inside, bounds[own + 1], ends))
        return src, dst

    pairs = draw_distinct(where, draw, len(labels), edges, rng)
    return np.asarray(order[pairs], dtype=np.int64)


# --------------------------------------------------------------------------- features


def make_class_features(labels: IntArray, width: int, seed: int) -> FloatArray:
    """Draw noisy class means, float32 ``(V, width)``: standard normal noise around each mean.

    Means are drawn so that two of them lie about :data:`CLASS_DISTANCE` apart, whatever the width.
    """
    rng = np.random.default_rng((seed, 4))
    scale = CLASS_DISTANCE / np.sqrt(2 * width)
    means = rng.standard_normal((int(labels.max()) + 1, width), dtype=np.float32)
    means *= np.float32(scale)
    features = rng.standard_normal((len(labels), width), dtype=np.float32)
    for start in range(0, len(labels), 1 << 16):
        rows = slice(start, start + (1 << 16))
        features[rows] += means[labels[rows]]
    return features


# --------------------------------------------------------------------------- datasets


def make_rmat(spec: str, seed: int = 0) -> Dataset:
    """Make the R-MAT graph ``rmat[:vertices=..,edges=..,features=..,classes=..]``.

    Vertex ids are shuffled, so that they carry no hint of the degree. Features, labels and the
    split 25/50/25 are random: there is nothing to learn, which the notes say. As in every R-MAT,
    a good part of the vertices has no edge.
    """
    size = parse_size(spec)
    where = f"dataset {spec!r}"
    check_fits(where, size)
    rng = np.random.default_rng((seed, 0))
    pairs = draw_distinct(
        where, lambda r, n: draw_rmat(r, n, size.vertices), size.vertices, size.edges, rng
    )
    pairs = rng.permutation(size.vertices)[pairs]
    labels = make_random_labels(size.vertices, size.classes, seed)
    return build(
        spec,
        pairs,
        num_vertices=size.vertices,
        features=make_random_features(size.vertices, size.features, seed),
        labels=labels,
        masks=make_split(labels, seed),
        origin=describe_rmat(seed),
        notes=(RMAT_NOTE,),
        report_repairs=False,
    )


def describe_rmat(seed: int) -> str:
    """Return the origin of an R-MAT graph."""
    return f"synthetic R-MAT, quadrants 0.57/0.19/0.19/0.05, seed {seed}"


def make_sbm(spec: str, seed: int = 0) -> Dataset:
    """Make the block model ``sbm[:vertices=..,edges=..,features=..,classes=..]``.

    Classes are of equal size; a quarter of the edges is drawn within a class, the rest anywhere.
    Features are noisy class means (:func:`make_class_features`). With the default sizes a
    two-layer GCN reaches about 0.88 on the test vertices, a perceptron 0.26.
    """
    size = parse_size(spec)
    check_fits(f"dataset {spec!r}", size)
    rng = np.random.default_rng((seed, 0))
    labels = make_random_labels(size.vertices, size.classes, seed)
    return build(
        spec,
        draw_blocks(f"dataset {spec!r}", labels, size.edges, rng),
        num_vertices=size.vertices,
        features=make_class_features(labels, size.features, seed),
        labels=labels,
        masks=make_split(labels, seed, SPLIT),
        origin=f"synthetic block model, homophily {HOMOPHILY}, seed {seed}",
        notes=("synthetic block model: communities, noisy class features, split 25/50/25",),
        report_repairs=False,
    )
