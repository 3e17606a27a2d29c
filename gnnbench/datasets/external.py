"""OGB and PyTorch Geometric datasets, loaded by their own libraries, which are imported on use.

Both keep their files under the user's cache, a folder for each dataset, which appears when it is
complete; what they pickle is read as arrays or not at all. Their graphs go through the same
symmetrising constructor as every other, so directed ones (ogbn-arxiv, ogbn-papers100M) become
symmetric.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from gnnbench.datasets.construct import MASK_NAMES, AnyArray, Masks, build
from gnnbench.datasets.pickles import arrays_only
from gnnbench.errors import DatasetError, GnnbenchError, MissingDependency
from gnnbench.files import publish_folder
from gnnbench.records import BoolArray, Dataset, IntArray

if TYPE_CHECKING:
    from torch_geometric.data import Data

T = TypeVar("T")


def _as_classes(where: str, labels: AnyArray) -> IntArray:
    """One class a vertex, int64 ``(V,)``; NaN, which OGB writes for "none", becomes -1."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DatasetError(
            f"{where}: y has shape {labels.shape}, several labels a vertex, which is not "
            f"supported; choose a dataset with one class for each."
        )
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
    return labels.astype(np.int64)


def _mark(num_vertices: int, ids: IntArray) -> BoolArray:
    mask = np.zeros(num_vertices, dtype=np.bool_)
    mask[ids] = True
    return mask


# --------------------------------------------------------------------------- PyG


def from_pyg(data: Data, name: str, *, origin: str = "PyTorch Geometric") -> Dataset:
    """A homogeneous PyG ``Data`` (``edge_index``, optional ``x``, ``y``, masks) as a dataset.

    Of several splits (masks of two dimensions) the first is taken. Raises :class:`DatasetError`
    for a heterogeneous graph, one without ``edge_index``, or several labels a vertex.
    """
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise DatasetError(
            f"{name}: the data have no edge_index; choose a homogeneous dataset with one graph."
        )
    x, y = getattr(data, "x", None), getattr(data, "y", None)
    features: AnyArray | sp.csr_matrix | None = None
    if x is not None:
        # PyG stores sparse features (Coauthor, Planetoid with a transform) as torch CSR or COO.
        features = x.numpy(force=True) if str(x.layout) == "torch.strided" else _sparse(x)
    labels = None if y is None else _as_classes(name, y.numpy(force=True))
    found = [mask for mask in (getattr(data, key, None) for key in MASK_NAMES) if mask is not None]
    masks: Masks | None = None
    notes = []
    if len(found) == len(MASK_NAMES):
        if any(mask.ndim == 2 for mask in found):
            notes.append("the first of several splits is used")
        flat = (mask[:, 0] if mask.ndim == 2 else mask for mask in found)
        train, val, test = (np.asarray(mask.numpy(force=True), dtype=np.bool_) for mask in flat)
        masks = (train, val, test)
    elif found:
        notes.append("the incomplete split of the source is not used")
    return build(
        name,
        edge_index.numpy(force=True),
        num_vertices=int(data.num_nodes),
        features=features,
        labels=labels,
        masks=masks,
        origin=origin,
        notes=notes,
    )


def _sparse(x: object) -> sp.csr_matrix:
    coo = x.to_sparse_coo().coalesce()  # type: ignore[attr-defined]
    row, column = coo.indices().numpy(force=True)
    return sp.csr_matrix((coo.values().numpy(force=True), (row, column)), shape=tuple(coo.shape))


def load_pyg(spec: str, cache: Path) -> Dataset:
    """``pyg:CLASS`` or ``pyg:CLASS/NAME`` of ``torch_geometric.datasets``, kept under ``cache``.

    Raises :class:`MissingDependency` without torch-geometric, :class:`DatasetError` for an unknown
    class or name, and where the download fails.
    """
    kind, _, name = spec.removeprefix("pyg:").partition("/")
    try:
        module = importlib.import_module("torch_geometric.datasets")
        base = importlib.import_module("torch_geometric.data").Dataset
    except ImportError as error:
        raise MissingDependency(
            f"dataset {spec!r} needs torch-geometric ({error}); "
            f"install it with `pip install torch-geometric`."
        ) from error
    classes = {
        key: cast(Callable[..., Sequence["Data"]], value)
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base)
    }
    if kind not in classes:
        close = difflib.get_close_matches(kind, classes, n=3) or ["Planetoid/Cora", "Reddit"]
        raise DatasetError(
            f"dataset {spec!r}: torch_geometric.datasets has no {kind!r}; try "
            + ", ".join(f"pyg:{match}" for match in close)
            + "."
        )
    options = {"name": name} if name else {}
    home = cache / "pyg" / "-".join((kind, *name.split("/"))).rstrip("-")

    def open_at(root: Path) -> Sequence[Data]:
        try:
            return classes[kind](root=str(root), **options)
        except TypeError as error:
            raise DatasetError(
                f"dataset {spec!r}: {kind} does not take these options ({error}); write "
                f"pyg:CLASS or pyg:CLASS/NAME, such as pyg:Reddit or pyg:Planetoid/Cora."
            ) from error

    loaded = _keep(spec, home, open_at)
    if len(loaded) != 1:
        raise DatasetError(
            f"dataset {spec!r}: {kind} holds {len(loaded):,} graphs; choose one that is a single "
            f"graph with labelled vertices."
        )
    return from_pyg(loaded[0], spec, origin=f"PyTorch Geometric, {kind}")


# --------------------------------------------------------------------------- OGB


def has_ogb() -> bool:
    """Whether the ``ogb`` package can be imported."""
    try:
        importlib.import_module("ogb.nodeproppred")
    except ImportError:
        return False
    return True


def load_ogb(name: str, cache: Path) -> Dataset:
    """The OGB vertex dataset ``name`` (``ogbn-arxiv``, ...), kept under ``cache``.

    Raises :class:`MissingDependency` without the ``ogb`` package, and :class:`DatasetError` for a
    name it does not know or a download that fails or is declined.
    """
    try:
        module = importlib.import_module("ogb.nodeproppred")
    except ImportError as error:
        raise MissingDependency(
            f"dataset {name!r} needs the package ogb ({error}); install it with `pip install ogb`."
        ) from error
    loaded = _keep(
        name, cache / "ogb" / name, lambda root: module.NodePropPredDataset(name, root=str(root))
    )
    with _foreign(name, cache / "ogb" / name):
        graph, labels = loaded[0]
        split = loaded.get_idx_split()
    return from_ogb(graph, labels, split, name)


def from_ogb(
    graph: Mapping[str, AnyArray | int | None],
    labels: AnyArray,
    split: Mapping[str, IntArray],
    name: str,
) -> Dataset:
    """OGB's library-agnostic graph (``edge_index``, ``node_feat``, ``num_nodes``) as a dataset.

    ``labels`` are ``(V, 1)``, ``split`` maps train, valid and test to vertex ids.
    """
    num_vertices = graph.get("num_nodes")
    edge_index, features = graph.get("edge_index"), graph.get("node_feat")
    if not isinstance(num_vertices, (int, np.integer)) or not isinstance(edge_index, np.ndarray):
        raise DatasetError(
            f"{name}: this is not a homogeneous graph; choose ogbn-arxiv or another."
        )
    count = int(num_vertices)
    return build(
        name,
        edge_index.astype(np.int64, copy=False),
        num_vertices=count,
        features=features if isinstance(features, np.ndarray) else None,
        labels=_as_classes(name, labels),
        masks=(
            _mark(count, split["train"]),
            _mark(count, split["valid"]),
            _mark(count, split["test"]),
        ),
        origin="Open Graph Benchmark",
    )


# --------------------------------------------------------------------------- both


def _keep(spec: str, home: Path, open_at: Callable[[Path], T]) -> T:
    """What ``open_at`` makes of the folder ``home``, which appears when everything in it has been
    downloaded and parsed, and not before."""
    with _foreign(spec, home):
        if not home.is_dir():
            with publish_folder(home) as scratch:
                open_at(scratch)
        return open_at(home)


@contextlib.contextmanager
def _foreign(spec: str, home: Path) -> Iterator[None]:
    """Keep a library's chatter off standard output and its pickles to arrays, and say what to do
    where it gives up."""
    try:
        with contextlib.redirect_stdout(sys.stderr), arrays_only():
            yield
    except GnnbenchError:
        raise
    except pickle.UnpicklingError as error:
        raise DatasetError(
            f"dataset {spec!r}: {_first_line(error)}, and it is not loaded; delete {home} to "
            f"download it again, or make a .npz of it yourself and load that."
        ) from error
    except (Exception, SystemExit) as error:  # foreign code; OGB leaves by exit(-1)
        raise DatasetError(
            f"dataset {spec!r}: its library could not load or download it "
            f"({_first_line(error)}); check the name, the connection and the disk, or use a "
            f"stand-in (`gnnbench datasets list`)."
        ) from error


def _first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
