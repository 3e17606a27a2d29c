"""Rows of other files brought into the order of a graph's vertices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy

from gnnbench.datasets.attachments import (
    Attachment,
    Split,
    read_features,
    read_labels,
    read_split,
)
from gnnbench.datasets.content import Ids, Masks, read_masks
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.records import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Attached:
    """The contents of the files beside the graph's, each where it was given."""

    features: Attachment | None
    labels: Attachment | None
    split: Split | None
    notes: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Whether there is a file."""
        return bool(self._files)

    @property
    def _files(self) -> list[Attachment | Split]:
        files = (self.features, self.labels, self.split)
        return [each for each in files if each is not None]

    def list_ids(self, of_edges: Ids, file: Path) -> Ids:
        """List the ids of all vertices in these files and in ``of_edges``.

        Raises :class:`DatasetError` for rows in the order of ids where vertices have names.
        """
        known = of_edges
        for each in self._files:
            ids = each.list_ids()
            if len(ids) and ids.dtype.kind != of_edges.dtype.kind:
                raise DatasetError(
                    f"{each.file}: its rows have no names, but the vertices of {file} have. Give "
                    f"a text with a name at the beginning of each line."
                )
            known = np.union1d(known, ids) if len(ids) else known
        return known


def read_attached(
    features: Path | None,
    labels: Path | None,
    split: Path | None,
    string_ids: bool,
    *,
    mapped: bool = False,
) -> Attached:
    """Read these files; ``mapped`` features of a ``.npy`` stay on disk.

    Raises :class:`DatasetError` for a file that cannot be used.
    """
    read, notes = (None, ()) if labels is None else read_labels(labels, string_ids=string_ids)
    return Attached(
        None if features is None else read_features(features, string_ids=string_ids, mapped=mapped),
        read,
        None if split is None else read_split(split, string_ids=string_ids),
        notes,
    )


def align_features(
    attachment: Attachment, ids: Ids, *, complete: bool = False
) -> AnyArray | scipy.sparse.csr_matrix:
    """Return one row for every vertex. Raises :class:`DatasetError` for a vertex without a row."""
    places = find_places(attachment, ids, complete=complete)
    rows: AnyArray | scipy.sparse.csr_matrix = attachment.rows[places]
    return rows


def find_places(attachment: Attachment, ids: Ids, *, complete: bool = False) -> IntArray:
    """Return the row of each vertex's features. Raises :class:`DatasetError` for one without."""
    places = _find_rows(attachment, ids, complete=complete)
    if (places < 0).any():
        missing = ids[places < 0]
        raise DatasetError(
            f"{attachment.file}: {len(missing):,} of {len(ids):,} vertices have no features, the "
            f"first of them {missing[0]}; give a row for each."
        )
    return places


def align_labels(
    attachment: Attachment, ids: Ids, *, complete: bool = False
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the class of every vertex, and a note that counts vertices without a class (-1)."""
    places = _find_rows(attachment, ids, complete=complete)
    lacking = int(np.count_nonzero(places < 0))
    note = f"vertices without a line in {attachment.file.name} have no label: {lacking:,}"
    labels = np.asarray(attachment.rows, dtype=np.int64)[places]
    return np.where(places < 0, -1, labels), (note,) if lacking else ()


def align_split(split: Split, ids: Ids, *, complete: bool = False) -> Masks:
    """Train, val and test of every vertex; one that the file does not have is in none."""
    return read_masks(str(split.file), split.shares, ids, complete=complete)


def _find_rows(attachment: Attachment, ids: Ids, *, complete: bool) -> IntArray:
    """Return the row of each vertex, -1 where there is none."""
    known = attachment.list_ids()
    if attachment.ids is None:
        last = -1 if ids.dtype.kind == "U" or int(ids.min()) < 0 else int(ids.max())
        if not 0 <= last < len(known) or (complete and last + 1 != len(known)):
            raise DatasetError(
                f"{attachment.file}: it has {len(known):,} rows, for vertices 0 to "
                f"{len(known) - 1:,}, but vertices go from {ids.min()} to {ids.max()}. Give a row "
                f"for each id, or a text with an id on each line."
            )
        return ids.astype(np.int64)
    if known.dtype.kind != ids.dtype.kind:
        known, ids = known.astype(np.str_), ids.astype(np.str_)
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    found = known[order[places]] == ids
    if complete and np.count_nonzero(found) < len(known):
        others = np.setdiff1d(known, ids)
        raise DatasetError(
            f"{attachment.file}: {len(others):,} of its {len(known):,} rows are of vertices that "
            f"the graph does not have, such as {others[0]}; give rows of those that it has."
        )
    return np.where(found, order[places], -1).astype(np.int64)
