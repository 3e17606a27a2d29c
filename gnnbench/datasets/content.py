"""What other sources know of vertices and edges, brought to ours, alike on every way in.

Labels are one class a vertex. Stored as floats they must be whole numbers, and a note says that
they were; NaN, which OGB writes for "none", becomes -1. Edge features are not trained on, nor are
edge weights unless they are asked for, and a note says where there were any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import scipy

from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.records import BoolArray, IntArray

_NAMED_CLASSES = 8
#: What people call the shares of a split, and what they put behind.
_SHARE_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_SUFFIX = re.compile("_(mask|idx|index|ids)$")
#: What every way in says of a source whose edges carry more than their ends.
WEIGHTS_IGNORED = "edge weights were ignored"
EDGE_FEATURES_IGNORED = "edge features were ignored"


def as_classes(where: str, labels: AnyArray) -> tuple[IntArray, tuple[str, ...]]:
    """One class a vertex, int64 ``(V,)``, and notes of what was read as what.

    Raises :class:`DatasetError` for several labels a vertex and for numbers that are no classes.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DatasetError(
            f"{where}: y has shape {labels.shape}, several labels a vertex, which is not "
            f"supported; give one class for each."
        )
    if labels.dtype.kind in "iub":
        return labels.astype(np.int64), ()
    if labels.dtype.kind in "US":
        classes, note = name_classes(labels)
        return classes, (note,)
    if labels.dtype.kind != "f":
        raise DatasetError(
            f"{where}: y has dtype {labels.dtype}, not numbers; number the classes 0, 1, 2, ..."
        )
    missing = np.isnan(labels)
    classes = np.where(missing, -1, labels)
    broken = classes[~np.isfinite(classes) | (np.floor(classes) != classes)]
    if len(broken) or (np.abs(classes) >= 2**63).any():
        shown = broken[0] if len(broken) else np.abs(classes).max()
        raise DatasetError(
            f"{where}: y has {shown:g} and other values that are no classes; regression is not "
            f"supported, so store classes as 0, 1, 2, ... and -1 where there is none."
        )
    notes = [f"labels stored as {labels.dtype} were read as classes"]
    if missing.any():
        notes.append(f"{int(missing.sum()):,} of {len(labels):,} vertices have no label (NaN)")
    return classes.astype(np.int64), tuple(notes)


def name_classes(names: AnyArray) -> tuple[IntArray, str]:
    """Return classes of names, numbered in the order of the names, and a note of which is which."""
    known, classes = np.unique(names, return_inverse=True)
    shown = ", ".join(f"{number} {name}" for number, name in enumerate(known[:_NAMED_CLASSES]))
    more = ", ..." if len(known) > _NAMED_CLASSES else ""
    note = f"classes were numbered in the order of their names: {shown}{more}"
    return classes.reshape(-1).astype(np.int64), note


def note_zeros(matrix: scipy.sparse.coo_matrix) -> tuple[str, ...]:
    """Return a note of the zeros that an adjacency matrix stores, which are edges."""
    zeros = len(matrix.data) - int(np.count_nonzero(matrix.data))
    return (f"zeros stored in the adjacency matrix are edges: {zeros:,}",) if zeros else ()


def as_pairs(matrix: scipy.sparse.coo_matrix) -> IntArray:
    """Return the edges of an adjacency matrix, int64 ``(2, E)``; its rows are sources."""
    return np.stack((matrix.row, matrix.col)).astype(np.int64)


def note_weights(weights: AnyArray | None, features: AnyArray | None = None) -> tuple[str, ...]:
    """What is lost of a source's edges: weights that are not all 1, and features."""
    notes = []
    if weights is not None and bool((np.asarray(weights) != 1).any()):
        notes.append(WEIGHTS_IGNORED)
    if features is not None and features.size:
        notes.append(EDGE_FEATURES_IGNORED)
    return tuple(notes)


def choose_weights(
    where: str,
    weights: AnyArray | None,
    features: AnyArray | None = None,
    *,
    weighted: bool,
) -> tuple[AnyArray | None, tuple[str, ...]]:
    """A source's edge weights where they are asked for, and what is lost of its edges.

    Raises :class:`DatasetError` where it has none.
    """
    if not weighted:
        return None, note_weights(weights, features)
    if weights is None:
        raise DatasetError(f"{where}: its edges have no weights; do not ask for any.")
    return weights, note_weights(None, features)


def read_masks(
    where: str, split: Mapping[str, AnyArray], num_vertices: int
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Train, val and test of a mapping: each a mask, or the numbers of vertices.

    Keys are ``train``, ``val`` (or ``valid``) and ``test``, also with ``_mask`` or ``_idx`` behind.
    Raises :class:`DatasetError` for one that is missing or does not fit.
    """
    train, val, test = (
        as_mask(f"{where}: {name}", find_share(where, split, name), num_vertices)
        for name in ("train", "val", "test")
    )
    return train, val, test


def find_share(where: str, split: Mapping[str, AnyArray], name: str) -> AnyArray:
    """Return one share of a split, whichever of its names it goes by; raises
    :class:`DatasetError`."""
    for key, value in split.items():
        if _SHARE_NAMES.get(_SUFFIX.sub("", key.strip().lower())) == name:
            return value
    raise DatasetError(
        f"{where}: the split has no {name!r} (found {', '.join(split) or 'nothing'}); give train, "
        f"val and test, each as a mask or as numbers of vertices."
    )


def find_share_of(where: str, word: str) -> str:
    """Return ``train``, ``val`` or ``test`` for a word that means it; raises
    :class:`DatasetError`."""
    share = _SHARE_NAMES.get(word.strip().lower())
    if share is None:
        raise DatasetError(
            f"{where}: {word[:40]!r} is no share of a split; write train, val or test."
        )
    return share


def as_mask(where: str, given: AnyArray, num_vertices: int) -> BoolArray:
    """Return a share of a split as flags of the vertices, bool ``(V,)``.

    It is given as one flag for each vertex, also as zeros and ones, or as numbers of vertices, each
    once. Raises :class:`DatasetError` for anything else.
    """
    if given.ndim != 1 or (given.dtype.kind not in "biu" and len(given)):
        raise DatasetError(
            f"{where} has shape {given.shape} and dtype {given.dtype}; give a mask or numbers of "
            f"vertices."
        )
    # Numbers of vertices come once each, so that more than two zeros and ones are flags.
    flags = given.dtype.kind == "b" or (
        len(given) == num_vertices > 2 and bool(((given == 0) | (given == 1)).all())
    )
    if flags:
        if len(given) != num_vertices:
            raise DatasetError(
                f"{where} is a mask of {len(given):,} flags and there are {num_vertices:,} "
                f"vertices; give one flag for each."
            )
        return given.astype(np.bool_)
    if len(given) and (given.min() < 0 or given.max() >= num_vertices):
        raise DatasetError(
            f"{where} names vertices {given.min():,} to {given.max():,} and they go from 0 to "
            f"{num_vertices - 1:,}; number them as the features' rows."
        )
    mask = np.zeros(num_vertices, dtype=np.bool_)
    mask[given.astype(np.int64)] = True
    if int(np.count_nonzero(mask)) < len(given):
        raise DatasetError(f"{where} names a vertex twice; name each vertex once.")
    return mask
