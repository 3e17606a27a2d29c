"""Sets of ids in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gnnbench.records import IndexArray, IntArray

#: uint64 ``(sets, words)``: bit k of word w of a row is id 64 w + k.
Bitmaps = npt.NDArray[np.uint64]


def check_inside(name: str, ids: IndexArray | IntArray, universe: int) -> None:
    """Raise ``ValueError`` unless every id is in ``[0, universe)``."""
    if len(ids) and (ids.min() < 0 or ids.max() >= universe):
        raise ValueError(
            f"{name} holds {ids.min()} to {ids.max()}, outside a universe of {universe}; "
            f"every id must be in [0, universe)."
        )


def unique_ids(ids: IndexArray, universe: int) -> IndexArray:
    """See :func:`gnnbench.kernels.dispatch.sets.unique_ids`."""
    is_member = np.zeros(universe, dtype=np.bool_)
    is_member[ids] = True
    return np.flatnonzero(is_member).astype(np.int32)


def mark_sets(sets: tuple[IntArray, ...], words: int) -> Bitmaps:
    """See :func:`gnnbench.kernels.dispatch.sets.mark_sets`."""
    is_member = np.zeros((len(sets), 64 * words), dtype=np.bool_)
    for row, ids in zip(is_member, sets, strict=True):
        row[ids] = True
    packed = np.packbits(is_member, axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def list_marks(bitmaps: Bitmaps) -> list[IntArray]:
    """See :func:`gnnbench.kernels.dispatch.sets.list_marks`."""
    octets = bitmaps.astype("<u8", copy=False).view(np.uint8)
    bits = np.unpackbits(octets, axis=1, bitorder="little")
    return [np.flatnonzero(row).astype(np.int64, copy=False) for row in bits]


def list_fetches(
    needed: Bitmaps, transition: Bitmaps, held: Bitmaps, read: Bitmaps
) -> list[list[IntArray]]:
    """See :func:`gnnbench.kernels.dispatch.sets.list_fetches`."""
    missing = needed & ~transition
    own = zip(*map(list_marks, (needed, transition & ~held, transition & held)), strict=True)
    peers = zip(missing & ~read, missing & read, strict=True)
    return [
        [*lists, *list_marks(copied & transition), *list_marks(kept & transition)]
        for lists, (copied, kept) in zip(own, peers, strict=True)
    ]
