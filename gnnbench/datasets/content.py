"""What other sources know of vertices and edges, brought to ours, alike on every way in.

Labels are one class a vertex. Stored as floats they must be whole numbers, and a note says that
they were; NaN, which OGB writes for "none", becomes -1. Edge features are not trained on, nor are
edge weights unless they are asked for, and a note says where there were any.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.records import BoolArray, IntArray

#: Ids of vertices as files have them: integers, or texts.
Ids = IntArray | npt.NDArray[np.str_]
#: train, val and test, each bool ``(V,)``.
Masks = tuple[BoolArray, BoolArray, BoolArray]
SHARES = ("train", "val", "test")

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


def as_integers(where: str, name: str, array: AnyArray) -> IntArray:
    """Return ``array`` as int64 ``(n,)``, from any dtype that holds the same whole numbers."""
    if array.ndim != 1:
        raise DatasetError(
            f"{where}: {name} has {array.ndim} dimensions; store a one-dimensional array."
        )
    kind = array.dtype.kind
    lossless = kind == "i"
    if kind in "uf":
        # Every float64 of magnitude below 2^63 that equals its floor has an exact int64.
        with np.errstate(invalid="ignore"):
            wide = array.astype(np.float64 if kind == "f" else array.dtype)
            whole = np.isfinite(wide) & (np.floor(wide) == wide) if kind == "f" else True
            lossless = bool(np.all(whole & (np.abs(wide) < 2**63)))
    if not lossless:
        raise DatasetError(
            f"{where}: {name} has dtype {array.dtype} and values that are not whole 64-bit "
            f"numbers; store it as int64."
        )
    return array.astype(np.int64, copy=False)


def as_classes(where: str, labels: AnyArray) -> tuple[IntArray, tuple[str, ...]]:
    """Return the class of each vertex, int64 ``(V,)``, and notes on how labels were read.

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
        known, places = np.unique(labels, return_inverse=True)
        # Python reads 1_1 as a number; people name classes so.
        for dtype in () if any("_" in str(name) for name in known) else (np.int64, np.float64):
            with contextlib.suppress(ValueError, OverflowError):
                return as_classes(where, known.astype(dtype)[places.reshape(-1)])
        shown = ", ".join(f"{number} {name}" for number, name in enumerate(known[:_NAMED_CLASSES]))
        more = ", ..." if len(known) > _NAMED_CLASSES else ""
        note = f"classes were numbered in the order of their names: {shown}{more}"
        return places.reshape(-1).astype(np.int64), (note,)
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
            f"{where}: y has {shown:g}, which is no class; regression is not supported. Store "
            f"classes as 0, 1, 2, ... and -1 where there is none."
        )
    notes = [f"labels stored as {labels.dtype} were read as classes"]
    if missing.any():
        notes.append(f"{int(missing.sum()):,} of {len(labels):,} vertices have no label (NaN)")
    return classes.astype(np.int64), tuple(notes)


def note_zeros(matrix: scipy.sparse.coo_matrix) -> tuple[str, ...]:
    """Return a note of the zeros that an adjacency matrix stores, which are edges."""
    zeros = len(matrix.data) - int(np.count_nonzero(matrix.data))
    return (f"zeros stored in the adjacency matrix are edges: {zeros:,}",) if zeros else ()


def as_pairs(matrix: scipy.sparse.coo_matrix) -> IntArray:
    """Return the edges of an adjacency matrix, int64 ``(2, E)``; its rows are sources."""
    return np.stack((matrix.row, matrix.col)).astype(np.int64)


def note_weights(weights: AnyArray | None, features: AnyArray | None = None) -> tuple[str, ...]:
    """Return notes on the edge data that are lost: weights that are not all 1, and features."""
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
    """Return a source's edge weights if ``weighted``, and notes on the edge data that are lost.

    Raises :class:`DatasetError` if weights are asked for and absent.
    """
    if not weighted:
        return None, note_weights(weights, features)
    if weights is None:
        raise DatasetError(f"{where}: its edges have no weights; do not ask for any.")
    return weights, note_weights(None, features)


def read_masks(
    where: str, split: Mapping[str, AnyArray], ids: Ids, *, complete: bool = True
) -> Masks:
    """Train, val and test of a mapping: each a mask, or the ids of vertices.

    Keys are ``train``, ``val`` (or ``valid``) and ``test``, also with ``_mask`` or ``_idx`` behind.
    ``ids`` are the vertices', which are all there are unless vertices were left out (not
    ``complete``). Raises :class:`DatasetError` for one that is missing or does not fit.
    """
    train, val, test = (
        _as_mask(f"{where}: {key}", given, ids, complete=complete)
        for key, given in pick_shares(where, split).items()
    )
    return train, val, test


def pick_shares(where: str, split: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return train, val and test of a mapping that may have more, by its own names of these.

    Raises :class:`DatasetError` for a mapping that lacks one.
    """
    called = [_find_share(where, split, name) for name in SHARES]
    return {key: split[key] for key in called}


def _find_share(where: str, split: Mapping[str, AnyArray], name: str) -> str:
    """Return what one share of a split is called; raises :class:`DatasetError`."""
    for key in split:
        if _SHARE_NAMES.get(_SUFFIX.sub("", key.strip().lower())) == name:
            return key
    raise DatasetError(
        f"{where}: the split has no {name!r} (found {', '.join(split) or 'nothing'}); give train, "
        f"val and test, each as a mask or as numbers of vertices."
    )


def find_share_of(where: str, word: str) -> str:
    """Return ``train``, ``val`` or ``test`` for a word that means it.

    Raises :class:`DatasetError` for any other word.
    """
    share = _SHARE_NAMES.get(word.strip().lower())
    if share is None:
        raise DatasetError(
            f"{where}: {word[:40]!r} is no share of a split; write train, val or test."
        )
    return share


def _as_mask(where: str, given: AnyArray, ids: Ids, *, complete: bool) -> BoolArray:
    """Return a share of a split as flags of the vertices, bool ``(V,)``."""
    if given.ndim != 1 or (given.dtype.kind not in "biuU" and len(given)):
        raise DatasetError(
            f"{where} has shape {given.shape} and dtype {given.dtype}; give a mask or numbers of "
            f"vertices."
        )
    if len(given) == 0:
        return np.zeros(len(ids), dtype=np.bool_)
    named = given.dtype.kind == "U"
    if (ids.dtype.kind == "U") != named:
        raise DatasetError(
            f"{where} goes by {'names' if named else 'numbers'}, and the vertices have others; "
            f"give a text with each vertex as the graph's file calls it."
        )
    if is_mask(given):
        first, last = ids.min(), ids.max()
        if first < 0 or last >= len(given) or (complete and last + 1 != len(given)):
            raise DatasetError(
                f"{where} is a mask of {len(given):,} flags and vertices go from {first:,} to "
                f"{last:,}; give one flag for each."
            )
        return given[ids.astype(np.int64)].astype(np.bool_)
    distinct = np.unique(given)
    if len(distinct) < len(given):
        raise DatasetError(f"{where} names a vertex twice; give a mask, or each vertex once.")
    mask = np.isin(ids, distinct)
    if complete and np.count_nonzero(mask) < len(distinct):
        raise DatasetError(
            f"{where} names vertices {distinct[0]} to {distinct[-1]} and they go from {ids.min()} "
            f"to {ids.max()}; name those that there are."
        )
    return mask


def is_mask(given: AnyArray) -> bool:
    """Return whether a share of a split has one flag for each vertex.

    Ids of vertices are distinct, so more than two zeros and ones are flags.
    """
    if given.dtype.kind == "b":
        return True
    return given.dtype.kind in "iu" and len(given) > 2 and bool(np.isin(given, (0, 1)).all())
