"""Names: where datasets are looked for, what there is, and how to load one."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.external import has_ogb, load_dgl, load_ogb, load_pyg
from gnnbench.datasets.folder import MANIFEST, is_folder, load_folder, read_manifest
from gnnbench.datasets.npz import as_integers, load_npz
from gnnbench.datasets.standins import STAND_INS, find_stand_in, make_stand_in
from gnnbench.datasets.synthetic import DEFAULT_SIZES, make_rmat, make_sbm
from gnnbench.errors import DatasetError
from gnnbench.host.files import explain, user_cache
from gnnbench.host.mapped import let_go
from gnnbench.host.progress import doing
from gnnbench.records import Dataset, Graph

#: Of symmetric graphs, and of directed ones.
_CONVENTIONS = (
    "directed entries of the symmetric CSR, no self loops",
    "directed edges, no self loops",
)

EntryKind = Literal["file", "synthetic", "stand-in", "ogb", "pyg"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A line of the list. ``edges`` are undirected; None is a number the source does not hold.

    ``where`` is a path or a citation.
    """

    name: str
    kind: EntryKind
    vertices: int | None
    edges: int | None
    features: int | None
    classes: int | None
    where: str


_OGB = (
    DatasetEntry("ogbn-arxiv", "ogb", 169_343, 1_157_799, 128, 40, "package ogb"),
    DatasetEntry("ogbn-products", "ogb", 2_449_029, 61_859_140, 100, 47, "package ogb"),
    DatasetEntry("ogbn-papers100M", "ogb", 111_059_956, 1_615_685_872, 128, 172, "package ogb"),
)
_PYG = (
    DatasetEntry("pyg:Planetoid/Cora", "pyg", 2_708, 5_278, 1_433, 7, "torch-geometric"),
    DatasetEntry("pyg:Planetoid/CiteSeer", "pyg", 3_327, 4_552, 3_703, 6, "torch-geometric"),
    DatasetEntry("pyg:Planetoid/PubMed", "pyg", 19_717, 44_324, 500, 3, "torch-geometric"),
    DatasetEntry("pyg:Amazon/Photo", "pyg", 7_650, 119_081, 745, 8, "torch-geometric"),
    DatasetEntry("pyg:Amazon/Computers", "pyg", 13_752, 245_861, 767, 10, "torch-geometric"),
    DatasetEntry("pyg:Coauthor/CS", "pyg", 18_333, 81_894, 6_805, 15, "torch-geometric"),
    DatasetEntry("pyg:Coauthor/Physics", "pyg", 34_493, 247_962, 8_415, 5, "torch-geometric"),
    DatasetEntry("pyg:Flickr", "pyg", 89_250, 449_878, 500, 7, "torch-geometric"),
    DatasetEntry("pyg:Reddit", "pyg", 232_965, 57_307_946, 602, 41, "torch-geometric"),
)


# --------------------------------------------------------------------------- folders


def _variable_folders() -> tuple[Path, ...]:
    entries = os.environ.get("GNNBENCH_DATA", "").split(os.pathsep)
    return tuple(Path(os.path.expanduser(entry)) for entry in entries if entry)


def _checkout_folder() -> Path | None:
    """Return ``shared/data`` beside the source checkout of this file or the current folder."""
    for root in (Path(__file__).resolve().parents[2], Path.cwd()):
        folder = root.parent / "shared" / "data"
        if (root / "gnnbench").is_dir() and folder.is_dir():
            return folder
    return None


def cache_folder() -> Path:
    """Return ``~/.cache/gnnbench/datasets``, or below ``$XDG_CACHE_HOME``; it may not exist yet."""
    return user_cache() / "datasets"


def verified_folder() -> Path:
    """Return the folder that records which folder data sets were checked."""
    return cache_folder().with_name("verified")


def find_shared_data() -> Path | None:
    """Return the first existing folder of ``$GNNBENCH_DATA``, or ``../shared/data``, or None."""
    for folder in _variable_folders():
        if os.path.isdir(folder):
            return folder
    return _checkout_folder()


def data_folders() -> tuple[Path, ...]:
    """Return the folders where names are looked up, in order.

    They are ``../shared/data`` beside a source checkout, if it exists, then the entries of
    ``$GNNBENCH_DATA``, then the user's cache.
    """
    checkout = _checkout_folder()
    folders = (*((checkout,) if checkout else ()), *_variable_folders(), cache_folder())
    return tuple(dict.fromkeys(folders))


def find_file(spec: str) -> Path | None:
    """Return the file that holds the dataset ``spec``, or None if it is made or downloaded.

    ``spec`` is a path ending in ``.npz``, which need not exist, or a name in :func:`data_folders`.
    For a dataset that is a folder, the file is its manifest.
    """
    if spec.endswith(".npz"):
        return Path(spec)
    if not spec or "\0" in spec:
        return None
    named = "/" not in spec and os.sep not in spec
    places = [folder / spec for folder in data_folders()] if named else []
    for place in [*places, Path(spec)]:
        files = [place.with_name(f"{place.name}.npz")] if place in places else []
        for file in [*files, place / MANIFEST]:
            if os.path.isfile(file):
                return file
    return None


def list_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a dataset: ``path`` itself, or all files in its folder.

    A folder is given by its path or by the path of its manifest.
    """
    folder = path.parent if path.name == MANIFEST else path
    with contextlib.suppress(OSError, ValueError):
        return tuple(folder / name for name in sorted(os.listdir(folder)))
    return (path,)


def find_all_files() -> tuple[Path, ...]:
    """Return every ``.npz`` and every manifest in :func:`data_folders`, by folder and name.

    A folder that cannot be read counts as empty.
    """
    files: list[Path] = []
    for folder in data_folders():
        with contextlib.suppress(OSError, ValueError):
            for path in sorted(map(folder.joinpath, os.listdir(folder))):
                if path.suffix == ".npz":
                    files.append(path)
                elif is_folder(path):
                    files.append(path / MANIFEST)
    return tuple(files)


# --------------------------------------------------------------------------- loading


def load(spec: str, *, seed: int = 0) -> Dataset:
    """Load the dataset that ``spec`` names.

    ``spec`` is one of:

    - a path ending in ``.npz``, or the path of a folder with a manifest;
    - a name in :func:`data_folders`;
    - ``rmat`` or ``sbm``, alone or with sizes
      (``rmat:vertices=1M,edges=16M,features=100,classes=16``, undirected edges);
    - a stand-in ``NAME:SCALE`` (``ogbn-products:0.01``);
    - ``pyg:CLASS[/NAME]``, ``dgl:NAME`` or ``ogbn-...``.

    ``seed`` makes synthetic graphs and stand-ins; real data do not depend on it. Features are
    sparse if few of their values are stored, and dense otherwise.

    Raises :class:`DatasetError` for an unknown name (with close ones) or unusable data, and
    :class:`MissingDependencyError` where the dataset's library is not installed.
    """
    if seed < 0:
        raise DatasetError(f"dataset {spec!r}: seed {seed} is negative; use 0 or more.")
    with doing(f"loading {spec}"):
        dataset = find_loader(spec)(seed)
    try:
        return dataset.with_full_rows()
    except OSError as error:
        raise DatasetError(
            f"{tempfile.gettempdir()} has no room for dense features of {spec}: {explain(error)}. "
            f"Name another folder in the environment's TMPDIR."
        ) from error


def find_loader(spec: str) -> Callable[[int], Dataset]:
    """Return the function that loads what ``spec`` names with a seed, as :func:`load` does.

    Raises :class:`DatasetError` for an unknown name.
    """
    file = find_file(spec)
    if file is not None and file.name == MANIFEST:
        return lambda _: load_folder(file.parent, verified_folder())
    if file is not None:
        return lambda _: load_npz(file)
    head, colon, _ = spec.partition(":")
    if head in ("rmat", "sbm"):
        return partial({"rmat": make_rmat, "sbm": make_sbm}[head], spec)
    if head in ("pyg", "dgl") and colon:
        load_by = {"pyg": load_pyg, "dgl": load_dgl}[head]
        return lambda _: load_by(spec, cache_folder())
    stand_in = find_stand_in(head)
    if stand_in is not None and colon:
        return partial(make_stand_in, spec)
    if any(entry.name == spec for entry in _OGB) and (has_ogb() or stand_in is None):
        return lambda _: load_ogb(spec, cache_folder())
    if stand_in is not None:
        raise DatasetError(
            f"dataset {spec!r} is not on disk here; use the stand-in {stand_in.name}:0.01"
            + (", or install the package ogb." if spec.startswith("ogbn-") else ".")
        )
    raise _unknown(spec)


def _unknown(spec: str) -> DatasetError:
    if os.path.isfile(spec):
        return DatasetError(
            f"{spec}: only .npz datasets can be used directly; run "
            f"`gnnbench datasets import {spec}` first."
        )
    files = [_name(file) for file in find_all_files()]
    made = [f"{row.name}:0.01" for row in STAND_INS]
    names = dict.fromkeys([*files, *DEFAULT_SIZES, *made, *(e.name for e in (*_OGB, *_PYG))])
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(spec.lower(), folded, n=3, cutoff=0.5)
    meant = "did you mean " + " or ".join(folded[name] for name in close) + "? " if close else ""
    return DatasetError(
        f"there is no dataset {spec!r}: {meant}`gnnbench datasets list` shows all, "
        f"a path must end in .npz, or name a folder with a {MANIFEST}."
    )


def default_dataset(seed: int = 0) -> Dataset:
    """Make the dataset of a run that names none: ``sbm`` with its default sizes."""
    return make_sbm("sbm", seed)


# --------------------------------------------------------------------------- listing


def _peek(file: Path) -> DatasetEntry:
    """Read a file's sizes from the headers of its arrays; only labels are read whole."""
    vertices = edges = features = classes = None
    where = str(file)
    try:
        with Archive(file) as archive:
            shapes = {
                name: archive.header(name).shape
                for name in archive.names
                if name in ("indptr", "indices", "x", "x_shape", "y")
            }
            lacking = [name for name in ("indptr", "indices") if len(shapes.get(name, ())) != 1]
            if lacking:
                raise DatasetError(f"it has no {' and '.join(lacking)} of one dimension")
            vertices, edges = shapes["indptr"][0] - 1, shapes["indices"][0] // 2
            if len(shapes.get("x", ())) == 2:
                features = shapes["x"][1]
            elif shapes.get("x_shape") == (2,):
                features = int(as_integers(where, "x_shape", archive.read("x_shape"))[1])
            if math.prod(shapes.get("y", (0,))):
                classes = int(as_integers(where, "y", archive.read("y").reshape(-1)).max()) + 1
    except DatasetError as error:
        reason = str(error).removeprefix(f"{file}: ").rstrip(".")
        where += f" (cannot be used: {reason})"
    return DatasetEntry(file.stem, "file", vertices, edges, features, classes, where)


def _name(file: Path) -> str:
    """Return the name that loads a dataset in :func:`data_folders`."""
    return file.parent.name if file.name == MANIFEST else file.stem


def _peek_folder(file: Path) -> DatasetEntry:
    """Read a data set's sizes from its manifest; none of its arrays is looked at."""
    try:
        manifest, _ = read_manifest(file)
    except DatasetError as error:
        reason = str(error).removeprefix(f"{file}: ").rstrip(".")
        where = f"{file.parent} (cannot be used: {reason})"
        return DatasetEntry(_name(file), "file", None, None, None, None, where)
    (ends,), (entries,) = manifest.arrays["indptr"].shape, manifest.arrays["indices"].shape
    return DatasetEntry(
        _name(file),
        "file",
        ends - 1,
        entries // 2,
        manifest.num_features,
        manifest.num_classes,
        f"{file.parent} (stays on disk)",
    )


def list_datasets() -> tuple[DatasetEntry, ...]:
    """List everything :func:`load` knows by name: files, synthetic, stand-ins, OGB, then PyG.

    A name in two folders is listed once, for the folder that :func:`load` takes. A file that
    cannot be read is listed with the reason.
    """
    files: dict[str, DatasetEntry] = {}
    for file in find_all_files():
        if (name := _name(file)) not in files:
            files[name] = _peek_folder(file) if file.name == MANIFEST else _peek(file)
    synthetic = (
        DatasetEntry(
            name,
            "synthetic",
            size.vertices,
            size.edges,
            size.features,
            size.classes,
            "made in memory; sizes are options",
        )
        for name, size in DEFAULT_SIZES.items()
    )
    stand_ins = (
        DatasetEntry(
            f"{row.name}:SCALE",
            "stand-in",
            row.vertices,
            row.edges,
            row.features,
            row.classes,
            row.source,
        )
        for row in STAND_INS
    )
    return (*files.values(), *synthetic, *stand_ins, *_OGB, *_PYG)


def edge_convention(graph: Graph) -> str:
    """Say how ``num_edges`` counts the edges of a graph, and whether edges have weights."""
    return _CONVENTIONS[graph.directed] + ("" if graph.weights is None else ", with weights")


def describe(dataset: Dataset) -> Mapping[str, str | int | float | tuple[str, ...]]:
    """Return the facts of a dataset in the order of printing.

    ``num_edges`` counts as :func:`edge_convention` says; degrees count in-edges.
    """
    graph, degrees = dataset.graph, dataset.graph.degrees
    undirected = {} if graph.directed else {"undirected_edges": graph.num_edges // 2}
    stored = dataset.features
    filled = np.count_nonzero(stored) if isinstance(stored, np.ndarray) else stored.nnz
    if isinstance(stored, np.ndarray):
        let_go(stored)
    return {
        "name": dataset.name,
        "origin": dataset.origin,
        "num_vertices": graph.num_vertices,
        **undirected,
        "num_edges": graph.num_edges,
        "edge_convention": edge_convention(graph),
        "min_degree": int(degrees.min()),
        "mean_degree": float(degrees.mean()),
        "max_degree": int(degrees.max()),
        "isolated_vertices": int(np.count_nonzero(degrees + graph.out_degrees == 0)),
        "num_features": dataset.num_features,
        "feature_density": float(filled / (graph.num_vertices * dataset.num_features)),
        "num_classes": dataset.num_classes,
        "labelled_vertices": int(np.count_nonzero(dataset.labels >= 0)),
        "train_vertices": len(dataset.train_ids),
        "val_vertices": int(np.count_nonzero(dataset.val_mask)),
        "test_vertices": int(np.count_nonzero(dataset.test_mask)),
        "digest": dataset.digest(),
        "notes": dataset.notes,
    }
