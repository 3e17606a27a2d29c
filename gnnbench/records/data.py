"""Graphs, data sets and workloads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.host.mapped import is_mapped, shelve_pieces

IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
Mode = Literal["mini-batch", "full-graph"]
FeatureScaling = Literal["rows", "columns", "none"]

#: A sparse product pays off only if fewer than one in ``DENSE_SHARE`` values are stored. With 256
#: columns on two cores of an EPYC 7003, forward and backward, 5.7 M dense values took 39 ms, and
#: sparse rows with 35 % of the values stored took 50 ms.
DENSE_SHARE = 4
#: Bytes of dense rows converted from sparse ones at a time.
_PIECE_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph as in-neighbour CSR, without self loops or duplicates, rows sorted.

    ``indptr`` int64 ``(V+1,)``, ``indices`` int32 ``(E,)``: row v lists every u with an edge u ->
    v, whose rows v aggregates. Unless the graph is ``directed`` it is symmetric: every undirected
    edge is stored twice. ``num_edges`` counts both, the papers' convention for traversed edges.
    ``weights`` float32 ``(E,)`` are finite and not negative, in the order of the edges; None for an
    unweighted graph.
    """

    indptr: IntArray
    indices: IndexArray
    directed: bool = False
    weights: FloatArray | None = None

    @property
    def num_vertices(self) -> int:
        """The number of vertices, V."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """The number of directed edges, E."""
        return len(self.indices)

    @property
    def degrees(self) -> IntArray:
        """D(v), int64 ``(V,)``: in-edges, without the self loop."""
        return np.diff(self.indptr)

    def find_degrees(self, ids: IntArray | IndexArray) -> IntArray:
        """Return D(v) of some vertices ``(n,)``, int64 ``(n,)``; no other row is read."""
        return self.indptr[ids + 1] - self.indptr[ids]

    @property
    def out_degrees(self) -> IntArray:
        """The number of vertices that aggregate a vertex's row, int64 ``(V,)``."""
        if not self.directed:
            return self.degrees
        return np.bincount(self.indices, minlength=self.num_vertices).astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A graph with features, labels and a split.

    ``features`` is dense float32 ``(V, f)`` or a SciPy CSR of that shape, whose rows are made dense
    when they are loaded. ``labels`` int64 ``(V,)``, -1 for no label. ``origin`` states the source
    in a few words. ``notes`` names synthetic parts (a stand-in, random features, a split), and is
    printed above every comparison. ``feature_scaling`` says how the features were scaled
    (``gnnbench.datasets.scale_features``). ``stored_digest`` is the digest before scaling, which
    stays the data set's. ``folder`` holds the arrays of a data set on disk: topology and features
    are memory-mapped, and read when they are used.
    """

    name: str
    graph: Graph
    features: FloatArray | scipy.sparse.csr_matrix
    labels: IntArray
    num_classes: int
    train_mask: BoolArray
    val_mask: BoolArray
    test_mask: BoolArray
    origin: str = "in memory"
    notes: tuple[str, ...] = ()
    feature_scaling: FeatureScaling = "none"
    stored_digest: str = ""
    folder: str = ""

    @property
    def num_features(self) -> int:
        """The width of the features."""
        return int(self.features.shape[1])

    @property
    def mapped(self) -> bool:
        """Whether the topology is mapped from a file: a large graph's, or one that ranks share."""
        return is_mapped(self.graph.indices)

    @property
    def train_ids(self) -> IntArray:
        """Labelled training vertices, ascending, int64."""
        return np.flatnonzero(self.train_mask & (self.labels >= 0)).astype(np.int64)

    @property
    def multiplies_stored(self) -> bool:
        """Whether a sparse product of the features is faster than a dense one.

        It is if they are sparse rows, and fewer than one in ``DENSE_SHARE`` values are stored.
        """
        if isinstance(self.features, np.ndarray):
            return False
        rows, width = self.features.shape
        return bool(self.features.nnz * DENSE_SHARE < rows * width)

    def with_full_rows(self) -> Dataset:
        """Return the data set with dense features, unless it ``multiplies_stored``.

        Dense rows are loaded without conversion, several times as fast as converting them each
        time. The dense features of a data set in a folder stay on disk, in a temporary file.

        Raises ``OSError`` where that file cannot be written.
        """
        if isinstance(self.features, np.ndarray) or self.multiplies_stored:
            return self
        if self.folder:
            whole = _shelve_rows(self.features)
        else:
            whole = np.asarray(self.features.toarray(), dtype=np.float32)
        return replace(self, features=whole, stored_digest=self.digest())

    def rows(self, ids: IntArray | IndexArray) -> FloatArray:
        """Return feature rows of ``ids``, dense float32 ``(len(ids), f)``, a fresh array."""
        if isinstance(self.features, np.ndarray):
            return self.features.take(ids, axis=0)
        return np.asarray(self.features[ids].toarray(), dtype=np.float32)

    def sparse_rows(self, ids: IntArray | IndexArray) -> scipy.sparse.csr_matrix:
        """Return feature rows of ``ids`` as CSR ``(len(ids), f)``; only for sparse features."""
        if isinstance(self.features, np.ndarray):
            raise TypeError("these features are stored dense")
        return self.features[ids]

    def count_stored(self, ids: IntArray, num_first: int) -> tuple[int, int]:
        """Count the stored feature values of ``ids``, and of the first ``num_first`` of them."""
        if isinstance(self.features, np.ndarray):
            raise TypeError("these features are stored dense")
        counts = np.diff(self.features.indptr)[ids]
        return int(counts.sum()), int(counts[:num_first].sum())

    def digest(self) -> str:
        """Return the SHA-256 (16 hex digits) of topology, stored features, labels and split."""
        if self.stored_digest:
            return self.stored_digest
        h = begin_digest(directed=self.graph.directed)
        h.update(self.graph.indptr.tobytes())
        h.update(self.graph.indices.tobytes())
        if self.graph.weights is not None:
            h.update(self.graph.weights.tobytes())
        if isinstance(self.features, np.ndarray):
            h.update(np.ascontiguousarray(self.features).tobytes())
        else:
            for array in (self.features.data, self.features.indices, self.features.indptr):
                h.update(array.tobytes())
        for array in (self.labels, self.train_mask, self.val_mask, self.test_mask):
            h.update(array.tobytes())
        return h.hexdigest()[:16]


def begin_digest(*, directed: bool) -> hashlib._Hash:
    """Begin a data set's digest, before its arrays; directed and symmetric graphs differ."""
    return hashlib.sha256(b"directed" if directed else b"")


@dataclass(frozen=True, slots=True)
class Workload:
    """A training task, equal for every strategy of a comparison.

    ``model`` is the name of a bundled model (``gnnbench.models.MODELS``) or of a plugin's. ``dims``
    are f^0 .. f^L. ``batch_size`` counts the seeds of one iteration over *all* trainers, so that
    every strategy takes equal optimisation steps. ``fanouts`` are given from the seeds outwards
    (the papers' "25, 10": 25 for the seeds' layer); 0 means every neighbour. ``weight_decay`` was
    chosen by trial on cora, citeseer and amazon_photo. With 1e-4 a GCN is more than a point less
    accurate than an independent script's on amazon_photo, with 3e-5 on cora. With ``edge_weights``
    a model that supports weights multiplies by the graph's.
    """

    model: str
    dims: tuple[int, ...]
    epochs: int
    batch_size: int
    fanouts: tuple[int, ...]
    seed: int
    learning_rate: float = 0.01
    weight_decay: float = 7e-5
    dtype: Literal["float32", "float64"] = "float32"
    threads: int = 0
    edge_weights: bool = False

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self.dims) - 1

    @property
    def itemsize(self) -> int:
        """S_feat, bytes of one feature."""
        return 4 if self.dtype == "float32" else 8


def _shelve_rows(features: scipy.sparse.csr_matrix) -> FloatArray:
    """Write sparse features as dense rows to a temporary file, and memory-map it."""
    rows, columns = features.shape
    step = max(1, _PIECE_BYTES // (4 * max(1, columns)))
    pieces = (features[at : at + step].toarray() for at in range(0, rows, step))
    whole: FloatArray = shelve_pieces(pieces, np.dtype(np.float32), (rows, columns))
    return whole
