"""Data sets of what a program has in memory: arrays, and graphs of PyG, DGL and NetworkX.

None of these libraries is imported: an object is read by what it has. Each says in its notes what
was repaired or ignored, and features, labels and splits that it lacks are made up, as
:func:`gnnbench.datasets.build` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.datasets.construct import MASK_NAMES
from gnnbench.datasets.content import (
    Masks,
    as_classes,
    as_pairs,
    choose_weights,
    find_share_of,
    note_weights,
    note_zeros,
    read_masks,
)
from gnnbench.datasets.raw import RawGraph, assemble
from gnnbench.datasets.scipy_files import as_coordinates
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.records import Dataset, IntArray

if TYPE_CHECKING:
    from networkx import Graph
    from torch_geometric.data import Data

#: Where DGL's own data sets keep features and labels, and what others call them.
_FEATURES = ("feat", "x", "features")
_LABELS = ("label", "y", "labels")
_DGL_OWN = ("_ID", "_TYPE")


class HeteroFrame(Protocol):
    """What DGL's graph says of its vertices or edges, by name."""

    def keys(self) -> Iterable[str]:
        """Return the names of the columns."""

    def __getitem__(self, name: str) -> object: ...


class DGLGraph(Protocol):
    """The part of ``dgl.DGLGraph`` that is read."""

    is_homogeneous: bool
    ndata: HeteroFrame
    edata: HeteroFrame

    def num_nodes(self) -> int:
        """Return the number of vertices."""

    def edges(self) -> tuple[object, object]:
        """Return sources and destinations."""


def from_arrays(
    edges: npt.ArrayLike | scipy.sparse.spmatrix | scipy.sparse.sparray,
    features: npt.ArrayLike | scipy.sparse.spmatrix | None = None,
    labels: npt.ArrayLike | None = None,
    split: Mapping[str, npt.ArrayLike] | None = None,
    *,
    num_vertices: int | None = None,
    edge_weights: npt.ArrayLike | None = None,
    directed: bool = False,
    weighted: bool = False,
    name: str = "arrays",
) -> Dataset:
    """Make a data set of arrays, tensors or sparse matrices, without self loops and duplicates.

    ``edges`` are ``(2, E)``, sources above destinations, or a square SciPy adjacency matrix whose
    rows are sources. The graph is made symmetric unless it is ``directed``. ``features`` are ``(V,
    f)``, dense or SciPy sparse; ``labels`` ``(V,)`` classes, -1 or NaN for no label. ``split`` maps
    train, val and test to masks or to ids of vertices. ``num_vertices`` counts isolated vertices
    beyond the last edge, where there are no features. ``edge_weights`` are ``(E,)``; a matrix has
    its values. A graph that is not ``weighted`` ignores them, with a note. Raises
    :class:`DatasetError` naming the array that is wrong.
    """
    weights: AnyArray | None = None if edge_weights is None else _as_array(name, edge_weights)
    zeros: tuple[str, ...] = ()
    if scipy.sparse.issparse(edges) or _is_sparse_tensor(edges):
        matrix = _as_coordinates(name, edges)
        if matrix.shape[0] != matrix.shape[1]:
            raise DatasetError(
                f"{name}: the adjacency matrix has shape {matrix.shape}; give a square one."
            )
        zeros = note_zeros(matrix)
        num_vertices, weights = int(matrix.shape[0]), matrix.data
        pairs = as_pairs(matrix)
    else:
        pairs = cast(IntArray, _as_array(name, edges))
    weights, lost = choose_weights(name, weights, weighted=weighted)
    kept, stored = _as_features(name, features), None
    notes: tuple[str, ...] = ()
    if labels is not None:
        stored, notes = as_classes(name, _as_array(name, labels))
    masks = None
    if split is not None:
        sized = kept if kept is not None else stored
        if sized is None and num_vertices is None:
            raise DatasetError(
                f"{name}: a split is given without features or labels; say num_vertices."
            )
        count = int(sized.shape[0]) if sized is not None else int(num_vertices or 0)
        arrays = {key: _as_array(name, ids) for key, ids in split.items()}
        masks = read_masks(name, arrays, np.arange(count, dtype=np.int64))
    raw = RawGraph(
        pairs, num_vertices, "in memory", (*notes, *zeros, *lost), kept, stored, masks, weights
    )
    return assemble(name, raw, directed=directed)


def from_pyg(
    data: Data,
    name: str = "pyg",
    *,
    origin: str = "PyTorch Geometric",
    directed: bool = False,
    weighted: bool = False,
) -> Dataset:
    """Make a dataset of a homogeneous PyG ``Data`` (``edge_index``, optional ``x``, ``y``, masks).

    It is made symmetric unless it is to stay ``directed``. If there are several splits (masks of
    two dimensions), the first is taken. A ``weighted`` graph keeps ``edge_weight``, or an
    ``edge_attr`` of one number an edge. All other ``edge_attr`` are ignored, and a note says so.
    Raises :class:`DatasetError` for a heterogeneous graph, one without ``edge_index``, or several
    labels a vertex.
    """
    return assemble(name, read_pyg(data, name, origin=origin, weighted=weighted), directed=directed)


def read_pyg(data: Data, name: str, *, origin: str, weighted: bool) -> RawGraph:
    """Return what a PyG ``Data`` has; raises as :func:`from_pyg` does."""
    edge_index, adjacency = getattr(data, "edge_index", None), getattr(data, "adj_t", None)
    found = getattr(data, "edge_weight", None)
    if edge_index is None and adjacency is None:
        raise DatasetError(
            f"{name}: the data have neither edge_index nor adj_t; choose a homogeneous dataset "
            f"with one graph."
        )
    zeros: tuple[str, ...] = ()
    if edge_index is None or _is_sparse_tensor(edge_index):
        matrix = _as_coordinates(name, adjacency if edge_index is None else edge_index)
        # The rows of adj_t are destinations.
        matrix = matrix.T if edge_index is None else matrix
        zeros = note_zeros(matrix)
        pairs, found = as_pairs(matrix), matrix.data if found is None else found
    else:
        pairs = cast(IntArray, _as_array(name, edge_index).astype(np.int64, copy=False))
    attributes = getattr(data, "edge_attr", None)
    attributes = None if attributes is None else _as_array(name, attributes)
    if attributes is not None and attributes.shape[1:] in ((), (1,)):
        found, attributes = attributes.reshape(-1), None
    weights = None if found is None else _as_array(name, found)
    weights, lost = choose_weights(name, weights, attributes, weighted=weighted)
    columns = {key: getattr(data, key, None) for key in ("x", "y", *MASK_NAMES)}
    count = int(data.num_nodes or 0)
    raw = RawGraph(pairs, count, origin, (*zeros, *lost), weights=weights)
    return _join(name, raw, columns)


def from_dgl(
    graph: DGLGraph,
    name: str = "dgl",
    *,
    origin: str = "DGL",
    directed: bool = False,
    weighted: bool = False,
) -> Dataset:
    """Make a dataset of a homogeneous DGL graph: ``feat``, ``label`` and masks of its ``ndata``.

    It is made symmetric unless it is to stay ``directed``. Features may also be called ``x`` or
    ``features``, labels ``y`` or ``labels``. A ``weighted`` graph takes the weight from the edge
    data called ``weight`` or ``w``, or from the only number of an edge. Other edge data are
    ignored, and a note says so. Raises :class:`DatasetError` for a heterogeneous graph.
    """
    return assemble(
        name, read_dgl(graph, name, origin=origin, weighted=weighted), directed=directed
    )


def read_dgl(graph: DGLGraph, name: str, *, origin: str, weighted: bool) -> RawGraph:
    """Return what a DGL graph has; raises as :func:`from_dgl` does."""
    if not graph.is_homogeneous:
        raise DatasetError(
            f"{name}: the graph has several kinds of vertices or edges; give a homogeneous one, "
            f"such as dgl.to_homogeneous makes."
        )
    source, destination = graph.edges()
    names = set(graph.ndata.keys())

    def find(choices: Iterable[str]) -> object | None:
        return next((graph.ndata[key] for key in choices if key in names), None)

    columns = {"x": find(_FEATURES), "y": find(_LABELS)}
    columns |= {key: find((key,)) for key in MASK_NAMES}
    carried = {
        key: _as_array(name, graph.edata[key])
        for key in sorted(set(graph.edata.keys()) - set(_DGL_OWN))
    }
    numbers = {key: each for key, each in carried.items() if each.shape[1:] in ((), (1,))}
    chosen = next((key for key in ("weight", "w", *numbers) if key in numbers), None)
    weights, _ = choose_weights(name, numbers.get(chosen or ""), weighted=weighted)
    lost: list[str] = []
    for key, each in carried.items():
        if weights is None or key != chosen:
            lost += note_weights(*((each, None) if key in numbers else (None, each)))
    pairs = np.stack((_as_array(name, source), _as_array(name, destination)))
    edges = cast(IntArray, pairs.astype(np.int64))
    raw = RawGraph(edges, graph.num_nodes(), origin, tuple(dict.fromkeys(lost)), weights=weights)
    return _join(name, raw, columns)


def from_networkx(
    graph: Graph,
    name: str = "networkx",
    *,
    features: str | None = "x",
    labels: str | None = "y",
    split: str | None = "split",
    weight: str = "weight",
    directed: bool = False,
    weighted: bool = False,
) -> Dataset:
    """Make a dataset of a NetworkX graph; its vertices keep their order, whatever their names.

    Parameters
    ----------
    features, labels, split
        Names of vertex attributes: a vector, a class, and one of ``"train"``, ``"val"`` and
        ``"test"``. An attribute that no vertex has is drawn at random. Only labels and split may be
        absent at some of the vertices, which then have none.
    weight
        Name of the edge attribute for a ``weighted`` graph, 1 where an edge lacks it. Any other
        graph ignores it, with a note.
    directed
        Whether a ``DiGraph`` stays directed; otherwise the graph is made symmetric.

    Raises
    ------
    DatasetError
        Names the attribute that is wrong.
    """
    if directed and not graph.is_directed():
        raise DatasetError(
            f"{name}: the graph is undirected; leave out directed, or give a DiGraph."
        )
    attributes = {"x": features, "y": labels, "split": split}
    raw = read_networkx(graph, name, attributes, weight=weight, weighted=weighted)
    return assemble(name, raw, directed=directed)


def read_networkx(
    graph: Graph,
    name: str,
    attributes: Mapping[str, str | None],
    *,
    weight: str = "weight",
    weighted: bool,
) -> RawGraph:
    """Return what a NetworkX graph has; raises as :func:`from_networkx` does.

    ``attributes`` has what the vertices' features (``x``), labels (``y``) and shares of the split
    (``split``) are called.
    """
    vertices = {vertex: number for number, vertex in enumerate(graph.nodes)}
    pairs = np.array(
        [(vertices[one], vertices[other]) for one, other in graph.edges()], dtype=np.int64
    ).reshape(-1, 2)
    carried: AnyArray | None = None
    about = [edge for _, _, edge in graph.edges(data=True)]
    if any(weight in edge for edge in about):
        carried = _as_array(name, [edge.get(weight, 1) for edge in about])
    weights, lost = choose_weights(name, carried, weighted=weighted)
    notes = list(lost)
    held = [graph.nodes[vertex] for vertex in graph.nodes]
    called = attributes["x"]
    rows = [each[called] for each in held if called in each]
    if rows and len(rows) < len(held):
        raise DatasetError(
            f"{name}: {len(held) - len(rows):,} of {len(held):,} vertices have no {called!r}; "
            f"give all of them features, or none."
        )
    classes, called = None, attributes["y"]
    if any(called in each for each in held):
        known = _as_array(name, [each[called] for each in held if called in each])
        found, said = as_classes(name, known)
        classes = np.full(len(held), -1, dtype=np.int64)
        classes[[called in each for each in held]] = found
        notes += said
    shares = [each.get(attributes["split"]) for each in held]
    masks = None
    if any(share is not None for share in shares):
        of = np.array([share and find_share_of(name, str(share)) for share in shares])
        masks = (of == "train", of == "val", of == "test")
    features = _as_array(name, rows) if rows else None
    return RawGraph(pairs.T, len(held), "NetworkX", tuple(notes), features, classes, masks, weights)


# --------------------------------------------------------------------------- pieces


def _join(name: str, raw: RawGraph, columns: Mapping[str, object | None]) -> RawGraph:
    """Return a graph with columns by PyG's names, each a tensor or None."""
    notes = list(raw.notes)
    labels = None
    if columns["y"] is not None:
        labels, said = as_classes(name, _as_array(name, columns["y"]))
        notes += said
    found = {key: _as_array(name, mask) for key in MASK_NAMES if (mask := columns[key]) is not None}
    masks: Masks | None = None
    if len(found) == len(MASK_NAMES):
        if any(mask.ndim == 2 for mask in found.values()):
            notes.append("the first of several splits is used")
        first = {key: mask[:, 0] if mask.ndim == 2 else mask for key, mask in found.items()}
        masks = read_masks(name, first, np.arange(raw.num_vertices or 0, dtype=np.int64))
    elif found:
        notes.append("the incomplete split of the source is not used")
    x = _as_features(name, columns["x"])
    return replace(raw, notes=tuple(notes), features=x, labels=labels, masks=masks)


def _as_array(where: str, given: object) -> AnyArray:
    """Return an array of an array, a list, or a tensor on any device; bfloat16 as float32."""
    if hasattr(given, "numpy") and hasattr(given, "detach"):
        tensor = given.detach().cpu()
        return cast(
            AnyArray, (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()
        )
    try:
        return np.asarray(given)
    except ValueError as error:
        raise DatasetError(
            f"{where}: rows have different lengths; give each the same number of values."
        ) from error


def _is_sparse_tensor(given: object) -> bool:
    """Return whether this is a sparse tensor of torch, or a ``SparseTensor`` of torch_sparse."""
    return str(getattr(given, "layout", "torch.strided")) != "torch.strided" or hasattr(
        given, "to_torch_sparse_coo_tensor"
    )


def _as_coordinates(where: str, given: object) -> scipy.sparse.coo_matrix:
    """Return a sparse matrix of SciPy, torch or torch_sparse as row, column and value."""
    if scipy.sparse.issparse(given):
        return as_coordinates(where, given)
    if hasattr(given, "to_torch_sparse_coo_tensor"):
        given = given.to_torch_sparse_coo_tensor()
    coo = given.to_sparse_coo()  # type: ignore[attr-defined]
    # Entries that come twice are counted, so they are not added up here.
    row, column = coo._indices().numpy(force=True)
    values = _as_array(where, coo._values())
    return scipy.sparse.coo_matrix((values, (row, column)), shape=tuple(coo.shape))


def _as_features(where: str, given: object | None) -> AnyArray | scipy.sparse.csr_matrix | None:
    """Return features as an array, or as CSR where they are sparse, in SciPy or in torch."""
    if given is None:
        return None
    if scipy.sparse.issparse(given) or _is_sparse_tensor(given):
        return scipy.sparse.csr_matrix(_as_coordinates(where, given))
    return _as_array(where, given)
