"""The one way to make a :class:`Dataset`: canonical topology, checked content, made-up parts named.

Every loader, generator and importer ends in :func:`build` or, where the topology is canonical
already, in :func:`annotate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import scipy

from gnnbench.datasets.content import Masks as Masks
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.topology import (
    BYTES_PER_EDGE,
    MAX_VERTICES,
    AnyArray,
    as_edge_weights,
    check_csr,
    check_range,
    symmetrise,
)
from gnnbench.errors import DatasetError
from gnnbench.records import Dataset, FloatArray, Graph, IndexArray, IntArray

MASK_NAMES = ("train_mask", "val_mask", "test_mask")
#: Train, val and test share where there is no split: the one HongTu (section 7.1) draws.
SPLIT = (0.25, 0.5, 0.25)
RANDOM_FEATURES = 128
RANDOM_CLASSES = 16

#: How many values are checked, or drawn, at a time.
_VALUES = 1 << 20
#: Labels beyond this on a smaller graph are identifiers, not classes.
_MAX_SPARSE_CLASSES = 1000


# --------------------------------------------------------------------------- content


def as_float_features(where: str, features: AnyArray, array: str = "x") -> tuple[FloatArray, bool]:
    """Return ``features`` as float32, and whether rounding changed any of them.

    Raises :class:`DatasetError` when they are not real numbers, or not finite in float32.
    """
    if features.dtype.kind not in "fiub":
        raise DatasetError(
            f"{where}: {array} has dtype {features.dtype}, not numbers; store features as float32."
        )
    with np.errstate(over="ignore"):
        single = np.asarray(features, dtype=np.float32)
    broken = sum(int(np.count_nonzero(~np.isfinite(part))) for part in _split(single))
    if broken:
        raise DatasetError(
            f"{where}: {array} contains NaN, infinite or too large values "
            f"({broken:,} of them); replace them by finite float32 numbers."
        )
    rounded = features.dtype.itemsize > 2 and features.dtype != np.float32
    return single, rounded and not np.array_equal(single, features)


def _split(array: FloatArray) -> Iterator[FloatArray]:
    """Yield slices of the values, so that temporary arrays stay small."""
    flat = array.reshape(-1)
    for begin in range(0, flat.size, _VALUES):
        yield flat[begin : begin + _VALUES]


def check_shape(where: str, array: str, shape: Sequence[int], num_vertices: int) -> None:
    """Raise :class:`DatasetError` unless this is the shape of features."""
    if len(shape) != 2:
        raise DatasetError(
            f"{where}: {array} has {len(shape)} dimensions; store features as (vertices, width)."
        )
    if shape[0] != num_vertices:
        raise DatasetError(
            f"{where}: {array} says {shape[0]:,} rows but indptr {num_vertices:,} "
            f"vertices; store one row of features for each vertex."
        )
    if shape[1] == 0:
        raise DatasetError(
            f"{where}: {array} says features of width 0; store at least one feature, or leave "
            f"them out to get random ones."
        )


def _check_features(
    where: str, features: AnyArray | scipy.sparse.csr_matrix, num_vertices: int
) -> tuple[FloatArray | scipy.sparse.csr_matrix, tuple[str, ...]]:
    check_shape(
        where, "x_shape" if scipy.sparse.issparse(features) else "x", features.shape, num_vertices
    )
    if scipy.sparse.issparse(features):
        csr = scipy.sparse.csr_matrix(features)
        data, rounded = as_float_features(where, csr.data, "x_data")
        csr = scipy.sparse.csr_matrix((data, csr.indices, csr.indptr), shape=csr.shape)
        csr.sort_indices()
        if not csr.has_canonical_format:
            raise DatasetError(
                f"{where}: x_indices has a column twice in one row; store each feature once."
            )
        checked: FloatArray | scipy.sparse.csr_matrix = csr
    else:
        dense, rounded = as_float_features(where, features)
        checked = np.ascontiguousarray(dense)
    return checked, ("features were rounded to float32",) if rounded else ()


def check_labels(where: str, labels: IntArray, num_vertices: int) -> None:
    """Raise :class:`DatasetError` unless there is one class, or -1, for each vertex."""
    if labels.shape != (num_vertices,):
        raise DatasetError(
            f"{where}: y has shape {labels.shape} but there are {num_vertices:,} vertices. Store "
            f"one class for each vertex, or -1 for no label; several labels are not supported."
        )
    if labels.min() < -1:
        raise DatasetError(
            f"{where}: y contains {labels.min()}; store classes as 0, 1, 2, ... and -1 where "
            f"there is no label."
        )
    if labels.max() < 0:
        raise DatasetError(
            f"{where}: y has no label at all (every entry is -1); store labels, or leave y out to "
            f"get random ones."
        )
    if labels.max() >= max(num_vertices, _MAX_SPARSE_CLASSES):
        raise DatasetError(
            f"{where}: y contains class {labels.max():,}, more than there are vertices; number "
            f"the classes 0, 1, 2, ... without gaps."
        )


def check_masks(where: str, masks: Masks, labels: IntArray) -> None:
    """Raise :class:`DatasetError` unless these are a split with something to train on."""
    for name, mask in zip(MASK_NAMES, masks, strict=True):
        if mask.shape != labels.shape:
            raise DatasetError(
                f"{where}: {name} has shape {mask.shape} but there are {len(labels):,} vertices; "
                f"store one flag for each vertex."
            )
    if not (masks[0] & (labels >= 0)).any():
        raise DatasetError(
            f"{where}: train_mask selects no labelled vertex; mark at least one, or leave out the "
            f"three masks to get a random split."
        )
    for i, j in ((0, 1), (0, 2), (1, 2)):
        shared = int(np.count_nonzero(masks[i] & masks[j]))
        if shared:
            raise DatasetError(
                f"{where}: {MASK_NAMES[i]} and {MASK_NAMES[j]} overlap in {shared:,} vertices; "
                f"give each vertex to one of them."
            )


# --------------------------------------------------------------------------- made up


def make_random_features(num_vertices: int, width: int, seed: int = 0) -> FloatArray:
    """Draw standard normal float32 ``(V, width)`` from ``seed``."""
    out = np.empty((num_vertices, width), dtype=np.float32)
    begin = 0
    for rows in draw_random_features((num_vertices,), width, seed):
        out[begin : begin + len(rows)] = rows
        begin += len(rows)
    return out


def draw_random_features(counts: Iterable[int], width: int, seed: int = 0) -> Iterator[FloatArray]:
    """Yield the rows of :func:`make_random_features`, some at a time, as far as each count says."""
    rng = np.random.default_rng((seed, 1))
    step, begin = max(1, _VALUES // width), 0
    for end in counts:
        while begin < end:
            rows = min(step, end - begin)
            begin += rows
            yield rng.standard_normal((rows, width), dtype=np.float32)


def make_random_labels(num_vertices: int, classes: int, seed: int = 0) -> IntArray:
    """Draw balanced random classes, int64 ``(V,)``; each of min(V, classes) occurs."""
    labels = np.arange(num_vertices, dtype=np.int64) % classes
    np.random.default_rng((seed, 2)).shuffle(labels)
    return labels


def make_split(
    labels: IntArray, seed: int = 0, shares: tuple[float, float, float] = SPLIT
) -> Masks:
    """Split the labelled vertices at random by ``shares``; at least one of them trains."""
    labelled = np.flatnonzero(labels >= 0)
    np.random.default_rng((seed, 3)).shuffle(labelled)
    train = max(1, round(shares[0] * len(labelled)))
    val = min(round(shares[1] * len(labelled)), len(labelled) - train)
    masks = []
    for part in np.split(labelled, (train, train + val)):
        mask = np.zeros(len(labels), dtype=bool)
        mask[part] = True
        masks.append(mask)
    return masks[0], masks[1], masks[2]


def describe_random_features(width: int) -> str:
    """Return the words for random features in a note."""
    return f"features ({width} wide)"


def annotate(
    name: str,
    graph: Graph,
    *,
    features: AnyArray | scipy.sparse.csr_matrix | None = None,
    labels: IntArray | None = None,
    masks: Masks | None = None,
    random_features: int = RANDOM_FEATURES,
    random_classes: int = RANDOM_CLASSES,
    origin: str = "in memory",
    notes: Sequence[str] = (),
    made_up: Sequence[str] = (),
    checked: bool = False,
) -> Dataset:
    """Make a dataset on a canonical ``graph``; :func:`build` makes a graph canonical first.

    ``made_up`` names the data that are random already; ``checked`` features are finite float32.
    """
    num_vertices = graph.num_vertices
    where = origin if origin.endswith(".npz") else name
    said, made_up = list(notes), list(made_up)
    if features is None:
        if random_features < 1:
            raise DatasetError(
                f"{where}: {random_features} random features were asked for; ask for at least 1."
            )
        check_memory(where, "making up its features", 4 * num_vertices * random_features)
        features = make_random_features(num_vertices, random_features)
        made_up.append(describe_random_features(random_features))
    elif not checked:
        features, rounding = _check_features(where, features, num_vertices)
        said.extend(rounding)
    if labels is None:
        if random_classes < 1:
            raise DatasetError(
                f"{where}: {random_classes} random classes were asked for; ask for at least 1."
            )
        labels = make_random_labels(num_vertices, random_classes)
        made_up.append(f"labels ({labels.max() + 1} classes)")
    else:
        labels = np.ascontiguousarray(labels, dtype=np.int64)
        check_labels(where, labels, num_vertices)
    if masks is None:
        masks = make_split(labels)
        made_up.append("split 25/50/25 (train/val/test)")
    check_masks(where, masks, labels)
    if made_up:
        said.append("made up at random (seed 0): " + ", ".join(made_up))
    return Dataset(
        name=name,
        graph=graph,
        features=features,
        labels=labels,
        num_classes=int(labels.max()) + 1,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        origin=origin,
        notes=tuple(dict.fromkeys(said)),
    )


def build(
    name: str,
    edges: IntArray | tuple[IntArray, IndexArray],
    *,
    num_vertices: int | None = None,
    features: AnyArray | scipy.sparse.csr_matrix | None = None,
    labels: IntArray | None = None,
    masks: Masks | None = None,
    random_features: int = RANDOM_FEATURES,
    random_classes: int = RANDOM_CLASSES,
    origin: str = "in memory",
    notes: Sequence[str] = (),
    report_repairs: bool = True,
    directed: bool = False,
    weights: AnyArray | None = None,
) -> Dataset:
    """Make a dataset from any edges: symmetric, sorted, without loops and duplicates.

    Parameters
    ----------
    edges
        int64 ``(2, E)`` (sources, destinations), or an in-neighbour CSR ``(indptr, indices)``.
    num_vertices
        Defaults to the rows of the CSR, of ``features`` or of ``labels``, or the largest id plus
        one.
    features, labels, masks
        ``(V, f)``, dense or SciPy sparse; int64 ``(V,)``, -1 = none; and train, val and test, bool
        ``(V,)``. None draws them at random, masks as a split 25/50/25 of the labelled vertices, as
        HongTu does. The notes name random data, and repairs if ``report_repairs``.
    directed
        Whether each edge stays as it is; its destination aggregates its source.
    weights
        One weight for each edge; None counts all edges alike.

    Raises
    ------
    DatasetError
        Names the array that is wrong.
    """
    if num_vertices is None and not isinstance(edges, tuple):
        sized = features if features is not None else labels
        num_vertices = None if sized is None else int(sized.shape[0])
    src, dst, num_vertices = _list_ends(name, edges, num_vertices)
    check_memory(name, "its graph", BYTES_PER_EDGE * len(src) + 32 * num_vertices)
    if weights is not None:
        weights = as_edge_weights(name, weights, len(src))
    graph, repairs = symmetrise(src, dst, num_vertices, directed=directed, weights=weights)
    if graph.num_edges == 0:
        raise DatasetError(f"{name}: every edge is a self loop; a GNN needs at least one other.")
    return annotate(
        name,
        graph,
        features=features,
        labels=labels,
        masks=masks,
        random_features=random_features,
        random_classes=random_classes,
        origin=origin,
        notes=(*notes, *(repairs.sentences() if report_repairs else ())),
    )


def _list_ends(
    name: str, edges: IntArray | tuple[IntArray, IndexArray], num_vertices: int | None
) -> tuple[IntArray, IntArray, int]:
    """Return the sources and destinations of all edges, int64, and the number of vertices."""
    if isinstance(edges, tuple):
        indptr, indices = edges
        check_csr(name, indptr, indices)
        rows = np.arange(len(indptr) - 1, dtype=np.int64)
        return indices.astype(np.int64), np.repeat(rows, np.diff(indptr)), len(rows)
    _check_pairs(name, edges)
    if num_vertices is None:
        num_vertices = int(edges.max()) + 1
    if not 0 < num_vertices <= MAX_VERTICES:
        raise DatasetError(
            f"{name}: {num_vertices:,} vertices is outside 1 to {MAX_VERTICES:,}; number them "
            f"from 0 without gaps."
        )
    check_range(name, "edges", edges, num_vertices)
    src, dst = (ends.astype(np.int64, copy=False) for ends in edges)
    return src, dst, num_vertices


def _check_pairs(name: str, edges: IntArray) -> None:
    """Refuse edges that are not integers in two rows, or that are empty."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DatasetError(
            f"{name}: edges have shape {edges.shape} and dtype {edges.dtype}; give integers "
            f"of shape (2, E), sources above destinations."
        )
    if edges.shape[1] == 0:
        raise DatasetError(f"{name}: there are no edges; a GNN needs at least one.")
