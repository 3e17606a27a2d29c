"""OGB, PyTorch Geometric and DGL datasets, loaded by their own libraries, imported on use.

All keep their files under the user's cache, a folder for each dataset, which appears when it is
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

from gnnbench.datasets import dgl_library
from gnnbench.datasets.content import as_classes, note_weights, read_masks
from gnnbench.datasets.objects import DGLGraph, from_dgl, from_pyg
from gnnbench.datasets.pickles import arrays_only
from gnnbench.datasets.raw import RawGraph, assemble
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError, GnnbenchError, MissingDependencyError, reason_of
from gnnbench.host.files import publish_folder
from gnnbench.records import Dataset, IntArray

if TYPE_CHECKING:
    from torch_geometric.data import Data

T = TypeVar("T")


# --------------------------------------------------------------------------- PyG


def load_pyg(spec: str, cache: Path) -> Dataset:
    """Load ``pyg:CLASS[/NAME]`` of ``torch_geometric.datasets``, kept under ``cache``.

    Raises :class:`MissingDependencyError` without torch-geometric, :class:`DatasetError` for an
    unknown class or name, and where the download fails.
    """
    kind, _, name = spec.removeprefix("pyg:").partition("/")
    try:
        module = importlib.import_module("torch_geometric.datasets")
        base = importlib.import_module("torch_geometric.data").Dataset
    except ImportError as error:
        raise MissingDependencyError(
            f"dataset {spec!r} needs torch-geometric ({error}); "
            f"install it with `pip install torch-geometric`."
        ) from error
    classes = {
        key: cast(Callable[..., Sequence["Data"]], value)
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base)
    }
    _require(spec, "torch_geometric.datasets", kind, classes, ["Planetoid/Cora", "Reddit"])
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
    return from_pyg(_only(spec, home, loaded), spec, origin=f"PyTorch Geometric, {kind}")


# --------------------------------------------------------------------------- OGB


def has_ogb() -> bool:
    """Return whether the ``ogb`` package can be imported."""
    try:
        importlib.import_module("ogb.nodeproppred")
    except ImportError:
        return False
    return True


def load_ogb(name: str, cache: Path) -> Dataset:
    """Load the OGB vertex dataset ``name`` (``ogbn-arxiv``, ...), kept under ``cache``.

    Raises :class:`MissingDependencyError` without the ``ogb`` package, and :class:`DatasetError`
    for a name it does not know or a download that fails or is declined.
    """
    try:
        module = importlib.import_module("ogb.nodeproppred")
    except ImportError as error:
        raise MissingDependencyError(
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
    """Make a dataset of OGB's graph: ``edge_index``, ``node_feat``, ``num_nodes``.

    ``labels`` are ``(V, 1)``, ``split`` maps train, valid and test to vertex ids.
    """
    num_vertices = graph.get("num_nodes")
    edge_index, features = graph.get("edge_index"), graph.get("node_feat")
    if not isinstance(num_vertices, (int, np.integer)) or not isinstance(edge_index, np.ndarray):
        raise DatasetError(
            f"{name}: this is not a homogeneous graph; choose ogbn-arxiv or another."
        )
    count = int(num_vertices)
    classes, notes = as_classes(name, labels)
    attributes = graph.get("edge_feat")
    lost = note_weights(None, attributes if isinstance(attributes, np.ndarray) else None)
    raw = RawGraph(
        edge_index.astype(np.int64, copy=False),
        count,
        "Open Graph Benchmark",
        (*notes, *lost),
        features if isinstance(features, np.ndarray) else None,
        classes,
        read_masks(name, split, np.arange(count, dtype=np.int64)),
    )
    return assemble(name, raw)


# --------------------------------------------------------------------------- DGL


def load_dgl(spec: str, cache: Path) -> Dataset:
    """Load ``dgl:NAME`` of ``dgl.data``, kept under ``cache``.

    ``dgl:CoraGraphDataset`` may be shortened to ``dgl:Cora``. Raises
    :class:`MissingDependencyError` without DGL. Raises :class:`DatasetError` for an unknown name, a
    dataset that is not a single homogeneous graph, or a failed download.
    """
    name = spec.removeprefix("dgl:")
    dgl_library.load_dgl()
    module = importlib.import_module("dgl.data")
    classes = {
        key.removesuffix("Dataset").removesuffix("Graph"): cast(
            Callable[..., Sequence[DGLGraph]], value
        )
        for key, value in vars(module).items()
        if inspect.isclass(value) and key.endswith("Dataset")
    }
    short = name.removesuffix("Dataset").removesuffix("Graph")
    _require(spec, "dgl.data", short, classes, ["Cora", "Reddit"])
    home = cache / "dgl" / short

    def open_at(root: Path) -> Sequence[DGLGraph]:
        # What needs no download takes no folder.
        folder = "raw_dir" in inspect.signature(classes[short]).parameters
        return classes[short](raw_dir=str(root)) if folder else classes[short]()

    loaded = _keep(spec, home, open_at)
    return from_dgl(_only(spec, home, loaded), spec, origin=f"DGL, {short}")


# --------------------------------------------------------------------------- all


def _require(
    spec: str, library: str, name: str, classes: Mapping[str, object], usual: list[str]
) -> None:
    """Raise :class:`DatasetError` for a name that a library does not have, with close ones."""
    if name not in classes:
        close = difflib.get_close_matches(name, classes, n=3) or usual
        prefix = spec.partition(":")[0]
        tried = ", ".join(f"{prefix}:{match}" for match in close)
        raise DatasetError(f"dataset {spec!r}: {library} has no {name!r}; try {tried}.")


def _only(spec: str, home: Path, loaded: Sequence[T]) -> T:
    """Return the only graph of a data set; raises :class:`DatasetError` for another number."""
    if len(loaded) != 1:
        raise DatasetError(
            f"dataset {spec!r}: it holds {len(loaded):,} graphs; choose one that is a single graph "
            f"with labelled vertices."
        )
    with _foreign(spec, home):
        return loaded[0]


def _keep(spec: str, home: Path, open_at: Callable[[Path], T]) -> T:
    """Return the result of ``open_at`` for the folder ``home``."""
    with _foreign(spec, home):
        if not home.is_dir():
            # Another process may be quicker.
            with contextlib.suppress(FileExistsError), publish_folder(home) as scratch:
                open_at(scratch)
        return open_at(home)


@contextlib.contextmanager
def _foreign(spec: str, home: Path) -> Iterator[None]:
    """Run a library with its output off standard output and its pickles restricted to arrays.

    An error of the library is raised again with advice.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), arrays_only():
            yield
    except GnnbenchError:
        raise
    except pickle.UnpicklingError as error:
        raise DatasetError(
            f"dataset {spec!r}: {reason_of(error)}, and it is not loaded; delete {home} to "
            f"download it again, or make a .npz of it yourself and load that."
        ) from error
    except (Exception, SystemExit) as error:  # foreign code; OGB leaves by exit(-1)
        raise DatasetError(
            f"dataset {spec!r}: its library could not load or download it "
            f"({reason_of(error)}). Check the name, the connection and the disk, or use a "
            f"stand-in (`gnnbench datasets list`)."
        ) from error
