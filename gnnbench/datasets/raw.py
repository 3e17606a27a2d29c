"""A graph as a source has it, before it is made a dataset, and the one way to make it one.

Every reader, of files and of objects of other libraries, returns a :class:`RawGraph`;
:func:`assemble` joins it with files of features, labels and a split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy

from gnnbench.datasets.alignment import Attached, align_features, align_labels, align_split
from gnnbench.datasets.construct import build
from gnnbench.datasets.content import Ids, Masks
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.topology import AnyArray
from gnnbench.records import Dataset, IndexArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """The ids that vertices 0, 1, 2, ... have in a source.

    ``ids`` is None where vertices count from ``first``; ``renumbered`` has the ids where they are
    others than 0, 1, 2, ... A source that says which vertices there are is ``complete``.
    """

    ids: Ids | None = None
    first: int = 0
    renumbered: Ids | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class RawGraph:
    """A graph in a source: its edges between vertices 0, 1, 2, ..., and each vertex's id there.

    ``edges`` are int64 ``(2, E)``, sources above destinations, or an in-neighbour CSR. ``directed``
    says that the source itself says so. ``weights`` ``(E,)`` are None where there are none or none
    were asked for. ``read_as`` says how a text was understood.
    """

    edges: IntArray | tuple[IntArray, IndexArray]
    num_vertices: int | None
    origin: str
    notes: tuple[str, ...] = ()
    features: AnyArray | scipy.sparse.csr_matrix | None = None
    labels: IntArray | None = None
    masks: Masks | None = None
    weights: AnyArray | None = None
    directed: bool = False
    numbering: Numbering = Numbering()
    read_as: str = ""

    def as_csr(self) -> tuple[IntArray, IndexArray]:
        """Return the in-neighbour CSR of a source that has one."""
        assert isinstance(self.edges, tuple)
        return self.edges

    @property
    def indptr(self) -> IntArray:
        """The offsets of :meth:`as_csr`."""
        return self.as_csr()[0]

    def list_ids(self) -> Ids:
        """Return the id of every vertex in the source."""
        if self.numbering.ids is not None:
            return self.numbering.ids
        assert self.num_vertices is not None
        check_memory(self.origin, "its vertices", 8 * self.num_vertices)
        first = self.numbering.first
        return np.arange(first, first + self.num_vertices, dtype=np.int64)

    def list_edges(self, count: int) -> tuple[str, ...]:
        """Return the first edges, as the source calls their ends."""
        if isinstance(self.edges, tuple):
            indptr, indices = self.edges
            rows = np.searchsorted(indptr, np.arange(min(count, len(indices))), side="right") - 1
            ends = np.stack((indices[:count], rows))
        else:
            ends = self.edges[:, :count]
        ids = self.numbering.ids
        called = ends + self.numbering.first if ids is None else ids[ends]
        return tuple(f"{one} -> {other}" for one, other in called.T.tolist())

    def ids_for(self, by_ids: bool) -> Ids:
        """Return the ids of vertices in another file, which goes by ids or by its rows.

        The first row of an array is of the first vertex, whichever number the format of the graph
        gives it.
        """
        ids, first = self.list_ids(), self.numbering.first
        return ids if by_ids or not first else cast("IntArray", ids) - first


def note_numbering(ids: Ids) -> tuple[tuple[str, ...], Ids | None]:
    """Return a note on vertices that are numbered in the order of their ``ids``, and these ids.

    Both are empty where the ids are 0, 1, 2, ...
    """
    last = len(ids) - 1
    if ids.dtype.kind == "U":
        return (f"vertices were numbered in the order of their names, 0 to {last:,}",), ids
    if ids[0] == 0 and ids[-1] == last:
        return (), None
    return (f"vertex ids ({ids[0]:,} to {ids[-1]:,}) were numbered anew, 0 to {last:,}",), ids


def assemble(
    name: str, raw: RawGraph, attached: Attached | None = None, *, directed: bool = False
) -> Dataset:
    """Return the dataset of a graph; features, labels and split of other files replace its own."""
    features, labels, masks = raw.features, raw.labels, raw.masks
    notes, complete = list(raw.notes), raw.numbering.complete
    if attached is not None and (rows := attached.features) is not None:
        ids = raw.ids_for(rows.ids is not None)
        features = align_features(rows, ids, complete=complete)
    if attached is not None and (rows := attached.labels) is not None:
        ids = raw.ids_for(rows.ids is not None)
        labels, said = align_labels(rows, ids, complete=complete)
        notes += [*attached.notes, *said]
    if attached is not None and (split := attached.split) is not None:
        masks = align_split(split, raw.ids_for(split.by_ids), complete=complete)
    return build(
        name,
        raw.edges,
        num_vertices=raw.num_vertices,
        features=features,
        labels=labels,
        masks=masks,
        origin=raw.origin,
        notes=notes,
        directed=directed or raw.directed,
        weights=raw.weights,
    )
