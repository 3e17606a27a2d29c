"""The ``.npz`` format: one graph in one file, checked array by array.

``indptr`` int64 ``(V+1,)`` and ``indices`` int32 ``(E,)`` are the in-neighbour CSR: symmetric, rows
sorted, no self loops, no duplicates; ``directed``, one flag, says that it need not be symmetric,
and ``weights`` float32 ``(E,)`` are of its edges. Features are ``x`` (dense ``(V, f)``) or
``x_data``, ``x_indices``, ``x_indptr``, ``x_shape`` (CSR), labels ``y`` (-1 = none), the split
``train_mask``, ``val_mask``, ``test_mask``; all three groups are optional. ``notes``, text, says
what a reader of results should know about the data. Nothing in a file is ever unpickled.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.construct import (
    MASK_NAMES,
    RANDOM_CLASSES,
    RANDOM_FEATURES,
    annotate,
    make_random_features,
    make_random_labels,
    make_split,
)
from gnnbench.datasets.content import as_classes, read_masks
from gnnbench.datasets.content import as_integers as as_integers
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.raw import RawGraph
from gnnbench.datasets.scipy_files import make_csr
from gnnbench.datasets.topology import AnyArray, as_edge_weights, check_csr, find_fault
from gnnbench.errors import DatasetError, GnnbenchError
from gnnbench.host.files import explain, publish
from gnnbench.host.progress import doing
from gnnbench.records import Dataset, Graph

SPARSE_NAMES = ("x_data", "x_indices", "x_indptr", "x_shape")
FORMAT_NAMES = (
    "indptr",
    "indices",
    "directed",
    "weights",
    "x",
    *SPARSE_NAMES,
    "y",
    *MASK_NAMES,
    "notes",
)


def _as_flag(where: str, name: str, array: AnyArray) -> bool:
    if array.size != 1 or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        raise DatasetError(
            f"{where}: {name} has shape {array.shape} and dtype {array.dtype}; store one flag."
        )
    return bool(array.item())


def _as_notes(where: str, array: AnyArray) -> list[str]:
    if array.dtype.kind != "U" or array.ndim > 1:
        raise DatasetError(
            f"{where}: notes has dtype {array.dtype} and {array.ndim} dimensions; store a list of "
            f"texts, or leave it out."
        )
    return [str(note) for note in np.atleast_1d(array)]


def _read_archive(
    path: Path, left_out: Sequence[str]
) -> tuple[dict[str, AnyArray], tuple[str, ...]]:
    """Read the format's arrays except ``left_out``; return them and the names of all arrays."""
    with Archive(path) as archive:
        known = [name for name in archive.names if name in FORMAT_NAMES and name not in left_out]
        # Checked and brought to their dtypes, arrays are there twice for a while.
        needed_bytes = 2 * sum(archive.header(name).size_bytes for name in known)
        check_memory(str(path), "reading its arrays", needed_bytes)
        return {name: archive.read(name) for name in known}, archive.names


def read_npz(path: Path, left_out: Sequence[str] = ()) -> RawGraph:
    """Return the graph in ``path``, whose CSR is well-formed, perhaps not canonical.

    ``indices`` and ``x`` may be left out, and are not looked at then. Raises
    :class:`DatasetError`, one sentence.
    """
    arrays, names = _read_archive(path, left_out)
    where = str(path)
    for name in ("indptr", "indices"):
        if name not in names:
            raise DatasetError(
                f"{where}: the array {name} is missing (found {', '.join(names) or 'none'}); "
                f"store the in-neighbour CSR as indptr and indices."
            )
    indptr = as_integers(where, "indptr", arrays["indptr"])
    indices = as_integers(where, "indices", arrays.get("indices", np.empty(0, dtype=np.int64)))
    if "indices" in arrays:
        check_csr(where, indptr, indices)
    features: AnyArray | scipy.sparse.csr_matrix | None = arrays.get("x")
    if any(name in arrays for name in SPARSE_NAMES):
        if "x" in names:
            raise DatasetError(
                f"{where}: there are both x and x_data; store features either dense or sparse."
            )
        features = make_csr(where, arrays, "x")
    labels = None
    said: tuple[str, ...] = ()
    if "y" in arrays:
        labels, said = as_classes(where, arrays["y"])
    masks = None
    if any(name in arrays for name in MASK_NAMES):
        missing = [name for name in MASK_NAMES if name not in arrays]
        if missing:
            raise DatasetError(
                f"{where}: the split lacks {', '.join(missing)}; store all three masks or none."
            )
        ids = np.arange(len(indptr) - 1, dtype=np.int64)
        masks = read_masks(where, {name: arrays[name] for name in MASK_NAMES}, ids)
    ignored = [name for name in names if name not in FORMAT_NAMES]
    notes = [*_as_notes(where, arrays.get("notes", np.empty(0, dtype=np.str_))), *said]
    if ignored:
        notes.append(f"arrays that the format does not know were ignored: {', '.join(ignored)}")
    directed = "directed" in arrays and _as_flag(where, "directed", arrays["directed"])
    weights = None
    if "weights" in arrays:
        weights = as_edge_weights(where, arrays["weights"], int(indptr[-1]))
    edges = indptr, indices.astype(np.int32)
    return RawGraph(
        edges, len(indptr) - 1, where, tuple(notes), features, labels, masks, weights, directed
    )


def load_npz(
    path: str | os.PathLike[str],
    *,
    random_features: int = RANDOM_FEATURES,
    random_classes: int = RANDOM_CLASSES,
) -> Dataset:
    """Load the dataset in ``path``. A topology that is not canonical is refused.

    Without features or labels it gets random ones, ``random_features`` wide and of
    ``random_classes`` classes; without masks, a random split 25/50/25 of the labelled vertices.
    All of them come from the fixed seed 0, so that a file is one dataset, and the notes say so.

    Raises :class:`DatasetError`: one sentence with the file, the array and the remedy.
    """
    file = Path(path)
    stored = read_npz(file)
    indptr, indices = stored.as_csr()
    fault = find_fault(indptr, indices, directed=stored.directed)
    if fault is not None:
        raise DatasetError(
            f"{file}: indices {fault}; run `gnnbench datasets import {file}`, which makes the "
            f"graph symmetric (or keeps it, with --directed), sorted and simple."
        )
    weights = None if stored.weights is None else stored.weights.astype(np.float32, copy=False)
    return annotate(
        file.stem,
        Graph(indptr, indices, stored.directed, weights),
        features=stored.features,
        labels=stored.labels,
        masks=stored.masks,
        random_features=random_features,
        random_classes=random_classes,
        origin=str(file),
        notes=stored.notes,
    )


def _is_made_up(dataset: Dataset) -> bool:
    """Return whether :func:`load_npz` would draw exactly these features, labels and split."""
    num_vertices = dataset.graph.num_vertices
    if not isinstance(dataset.features, np.ndarray) or dataset.num_features != RANDOM_FEATURES:
        return False
    if not np.array_equal(dataset.labels, make_random_labels(num_vertices, RANDOM_CLASSES)):
        return False
    masks = (dataset.train_mask, dataset.val_mask, dataset.test_mask)
    if not all(map(np.array_equal, masks, make_split(dataset.labels))):
        return False
    return np.array_equal(dataset.features, make_random_features(num_vertices, RANDOM_FEATURES))


def save_npz(dataset: Dataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write ``dataset`` to ``path``; what :func:`load_npz` would make up again is left out.

    The file appears whole or not at all, and without ``overwrite`` replaces nothing, not even what
    appears meanwhile. Raises :class:`DatasetError` when ``path`` does not end in ``.npz``, exists
    (unless ``overwrite``) or has no folder that can be made, and :class:`GnnbenchError` when the
    disk refuses.
    """
    file = Path(path)
    if file.suffix != ".npz":
        raise DatasetError(f"{file}: datasets are stored as .npz; give a name that ends so.")
    if os.path.lexists(file) and not overwrite:
        raise _exists(file)
    arrays: dict[str, AnyArray] = {
        "indptr": dataset.graph.indptr,
        "indices": dataset.graph.indices,
    }
    if dataset.graph.directed:
        arrays["directed"] = np.array(True)
    if dataset.graph.weights is not None:
        arrays["weights"] = dataset.graph.weights
    if dataset.notes:
        arrays["notes"] = np.array(dataset.notes, dtype=np.str_)
    if not _is_made_up(dataset):
        if isinstance(dataset.features, np.ndarray):
            arrays["x"] = dataset.features
        else:
            arrays["x_data"] = dataset.features.data
            arrays["x_indices"] = dataset.features.indices.astype(np.int32, copy=False)
            arrays["x_indptr"] = dataset.features.indptr.astype(np.int64, copy=False)
            arrays["x_shape"] = np.array(dataset.features.shape, dtype=np.int64)
        arrays["y"] = dataset.labels
        masks = (dataset.train_mask, dataset.val_mask, dataset.test_mask)
        arrays.update(zip(MASK_NAMES, masks, strict=True))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(
            f"{file}: cannot be written, since the folder {file.parent} cannot be made "
            f"({explain(error)}); choose another."
        ) from error
    try:
        writing = doing(f"writing {file.name}", sum(array.nbytes for array in arrays.values()))
        published = publish(file, overwrite=overwrite)
        with writing as task, published as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
                task.advance(array.nbytes)
    except FileExistsError as error:
        raise _exists(file) from error
    except OSError as error:
        raise GnnbenchError(f"{file} could not be written: {explain(error)}.") from error


def _exists(file: Path) -> DatasetError:
    return DatasetError(f"{file}: the file exists; choose another name or allow overwriting it.")
