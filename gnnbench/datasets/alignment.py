"""Rows of other files brought into the order of a graph's vertices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy

from gnnbench.datasets.attachments import (
    Attachment,
    Ids,
    read_features,
    read_labels,
    read_split,
)
from gnnbench.datasets.construct import Masks
from gnnbench.datasets.content import as_classes, find_share
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.records import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A split by rows, 0 train, 1 val, 2 test; or the arrays of a file by name."""

    file: Path
    rows: Attachment | None
    arrays: Mapping[str, AnyArray]


@dataclass(frozen=True, slots=True, eq=False)
class Attached:
    """What files beside the graph's have, each where it was given."""

    features: Attachment | None
    labels: Attachment | None
    split: Split | None
    notes: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Whether there is a file that has a row for each of some vertices."""
        return bool(self._rows)

    @property
    def _rows(self) -> list[Attachment]:
        split = self.split.rows if self.split is not None else None
        return [each for each in (self.features, self.labels, split) if each is not None]

    def list_ids(self, of_edges: Ids, file: Path) -> Ids:
        """The vertices that these files know of; those ``of_edges`` where they have none.

        Raises :class:`DatasetError` for rows in the order of ids where vertices have names.
        """
        known: Ids = of_edges
        for each in self._rows:
            ids: Ids = np.arange(each.count, dtype=np.int64) if each.ids is None else each.ids
            if ids.dtype.kind != of_edges.dtype.kind:
                raise DatasetError(
                    f"{each.file}: its rows are in the order of numbers, and the vertices of "
                    f"{file} have names; give a text with a name at the beginning of each line."
                )
            known = np.union1d(known, ids)
        return known


def read_attached(
    features: Path | None,
    labels: Path | None,
    split: Path | None,
    string_ids: bool,
    *,
    mapped: bool = False,
) -> Attached:
    """What these files have; ``mapped`` features of a ``.npy`` stay on disk. Raises
    :class:`DatasetError`."""
    read, notes = (None, ()) if labels is None else read_labels(labels, string_ids=string_ids)
    return Attached(
        None if features is None else read_features(features, string_ids=string_ids, mapped=mapped),
        read,
        None if split is None else Split(split, *read_split(split, string_ids=string_ids)),
        notes,
    )


def align_features(attachment: Attachment, ids: Ids) -> AnyArray | scipy.sparse.csr_matrix:
    """A row for every vertex. Raises :class:`DatasetError` for one that has none."""
    rows: AnyArray | scipy.sparse.csr_matrix = attachment.rows[find_places(attachment, ids)]
    return rows


def find_places(attachment: Attachment, ids: Ids) -> IntArray:
    """Where the features of each vertex are. Raises :class:`DatasetError` for one without."""
    places = _find_rows(attachment, ids)
    if (places < 0).any():
        missing = ids[places < 0]
        raise DatasetError(
            f"{attachment.file}: {len(missing):,} of {len(ids):,} vertices have no features, the "
            f"first of them {missing[0]}; give a row for each."
        )
    return places


def align_labels(attachment: Attachment, ids: Ids) -> tuple[IntArray, tuple[str, ...]]:
    """A class for every vertex, -1 where the file has none, and what to know."""
    classes, notes = as_classes(str(attachment.file), np.asarray(attachment.rows))
    places = _find_rows(attachment, ids)
    return np.where(places < 0, -1, classes[places]), notes


def align_split(split: Split, ids: Ids) -> Masks:
    """Train, val and test of every vertex; one that the file does not have is in none."""
    if split.rows is not None:
        places = _find_rows(split.rows, ids)
        shares = np.where(places < 0, -1, np.asarray(split.rows.rows)[places])
        return shares == 0, shares == 1, shares == 2
    if ids.dtype.kind == "U":
        raise DatasetError(
            f"{split.file}: its arrays go by numbers, and the vertices have names; give a text "
            f"with a name and train, val or test on each line."
        )
    train, val, test = (
        _as_mask(split.file, find_share(str(split.file), split.arrays, name), ids)
        for name in ("train", "val", "test")
    )
    return train, val, test


def _as_mask(file: Path, given: AnyArray, ids: Ids) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Flags in the order of ids 0, 1, 2, ..., or ids, as flags of the vertices."""
    if given.ndim != 1 or given.dtype.kind not in "biu":
        raise DatasetError(
            f"{file}: a share has shape {given.shape} and dtype {given.dtype}; give a mask or ids."
        )
    if given.dtype.kind != "b":
        flags: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(ids, given)
        return flags
    if int(ids.max()) >= len(given) or int(ids.min()) < 0:
        raise DatasetError(
            f"{file}: a mask has {len(given):,} flags and vertices go from {ids.min():,} to "
            f"{ids.max():,}; give one flag for each."
        )
    flags = given[ids.astype(np.int64)].astype(np.bool_)
    return flags


def _find_rows(attachment: Attachment, ids: Ids) -> IntArray:
    """Where the row of each vertex is, -1 where there is none.

    Raises :class:`DatasetError` for a vertex beyond the rows of an array, and for one named twice.
    """
    if attachment.ids is None:
        if ids.dtype.kind == "U" or int(ids.min()) < 0 or int(ids.max()) >= attachment.count:
            raise DatasetError(
                f"{attachment.file}: it has {attachment.count:,} rows, of vertices 0 to "
                f"{attachment.count - 1:,}, and vertices go from {ids.min()} to {ids.max()}; give "
                f"a row for each id, or a text with an id on each line."
            )
        return ids.astype(np.int64)
    order = np.argsort(attachment.ids, kind="stable")
    known = attachment.ids[order]
    twice = np.flatnonzero(known[1:] == known[:-1])
    if len(twice):
        raise DatasetError(
            f"{attachment.file}: vertex {known[twice[0]]} has two lines; give each vertex one."
        )
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[places] == ids, order[places], -1).astype(np.int64)
