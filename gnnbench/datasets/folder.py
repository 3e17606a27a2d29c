"""A data set as a folder, for graphs that are larger than memory.

``manifest.json`` names the arrays, each with its dtype, its shape and the SHA-256 of its bytes;
each is a ``.npy`` file beside it, called as in a ``.npz`` (``gnnbench.datasets.npz``). Topology and
features stay on disk, mapped; offsets, labels and split are read. Features are stored as they are
trained on: what scaling they had, if any, the manifest says.

A folder is checked whole, byte by byte, before it is first used, and again only when one of its
files is another: its graph is canonical, its features are finite, and all is what was written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import scipy

from gnnbench.datasets.construct import (
    MASK_NAMES,
    check_labels,
    check_masks,
    check_shape,
)
from gnnbench.datasets.npy import ArrayFile
from gnnbench.datasets.streaming import Digests, check_stored
from gnnbench.datasets.topology import check_offsets
from gnnbench.errors import DatasetError, GnnbenchError
from gnnbench.host.files import FileRefusedError, explain, publish_folder, read_text
from gnnbench.host.mapped import AnyArray
from gnnbench.records import Dataset, FeatureScaling, Graph

MANIFEST = "manifest.json"
FORMAT, VERSION = "gnnbench dataset", 1
#: No manifest is longer.
_MANIFEST_BYTES = 1 << 20
_SPARSE = ("x_data", "x_indices", "x_indptr")
#: What an array may be of, as NumPy writes it.
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "indptr": ("<i8",),
    "indices": ("<i4",),
    "weights": ("<f4",),
    "x": ("<f4",),
    "x_data": ("<f4",),
    "x_indices": ("<i4", "<i8"),
    "x_indptr": ("<i4", "<i8"),
    "y": ("<i8",),
    **{name: ("|b1",) for name in MASK_NAMES},
}
#: Read whole; all others are mapped.
_IN_MEMORY = ("indptr", "x_indptr", "y", *MASK_NAMES)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """What a manifest says of an array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a folder.

    ``digest`` belongs to the data set before its features were scaled (``Dataset.digest``).
    """

    name: str
    origin: str
    notes: tuple[str, ...]
    num_features: int
    num_classes: int
    feature_scaling: FeatureScaling
    digest: str
    arrays: Mapping[str, StoredArray]
    directed: bool = False

    def to_json(self) -> str:
        """Return the manifest as the text of its file."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder with a data set."""
    return os.path.isfile(path / MANIFEST)


# --------------------------------------------------------------------------- reading


def load_folder(path: Path, verified: Path, *, checked: bool = False) -> Dataset:
    """Load the data set in the folder ``path``; topology and features are mapped from their files.

    The folder ``verified`` records which data sets were ``checked``; a data set that was just
    written counts as checked. Raises :class:`DatasetError`: one sentence with the file and the
    fault.
    """
    manifest, digest = read_manifest(path / MANIFEST)
    files = _find_files(path, manifest)
    seen = _Seen.of(path, digest, files, verified)
    arrays = {n: file.read() if n in _IN_MEMORY else file.map() for n, file in files.items()}
    dataset = _make_dataset(path, manifest, arrays)
    if checked or not seen.before():
        if not checked:
            _check(path, manifest, files, dataset)
        seen.keep()
    return dataset


def map_folder(path: Path, *, moved: bool = False) -> Dataset:
    """Map all arrays of the folder ``path``, which was checked or written by this job.

    A data set that was ``moved`` there is none of a folder, and keeps its origin. Raises
    :class:`DatasetError`.
    """
    manifest, _ = read_manifest(path / MANIFEST)
    arrays = {name: file.map() for name, file in _find_files(path, manifest).items()}
    dataset = _make_dataset(path, manifest, arrays)
    return replace(dataset, origin=manifest.origin, folder="") if moved else dataset


def read_manifest(file: Path) -> tuple[Manifest, str]:
    """Read a manifest, and the SHA-256 of its text. Raises :class:`DatasetError`."""
    try:
        text = read_text(file, _MANIFEST_BYTES)
    except FileRefusedError as error:
        raise DatasetError(f"{file}: {error.reason}; give a folder with a manifest.") from error
    try:
        manifest = _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise DatasetError(
            f"{file}: this is not the manifest of a data set ({said.rstrip('.')}); write the "
            f"folder anew with `gnnbench datasets import`."
        ) from error
    return manifest, hashlib.sha256(text.encode()).hexdigest()


def _parse(document: dict[str, Any]) -> Manifest:
    """Make a manifest from a document; a document of another kind raises any exception."""
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise ValueError(
            f"it says {document['format']!r}, version {document['version']!r}, and {FORMAT!r}, "
            f"version {VERSION}, can be read"
        )
    texts = [document[key] for key in ("name", "origin", "digest")]
    numbers = [document[key] for key in ("num_features", "num_classes")]
    notes = tuple(document["notes"])
    if not all(isinstance(text, str) for text in (*texts, *notes)):
        raise ValueError("a name, an origin, a digest or a note is no text")
    if not all(type(number) is int and number > 0 for number in numbers):
        raise ValueError(f"{numbers} are no numbers of features and of classes")
    if document["feature_scaling"] not in get_args(FeatureScaling):
        raise ValueError(f"{document['feature_scaling']!r} is no scaling of features")
    directed = document.get("directed", False)
    if not isinstance(directed, bool):
        raise ValueError(f"directed is {directed!r} and no flag")
    arrays = {}
    for name, said in document["arrays"].items():
        if name not in _DTYPES:
            raise ValueError(f"there is no array {name!r} in the format")
        shape = tuple(said["shape"])
        if said["dtype"] not in _DTYPES[name] or not all(type(n) is int for n in shape):
            raise ValueError(f"{name} is said to be of {said['dtype']!r} and {said['shape']!r}")
        arrays[name] = StoredArray(said["dtype"], shape, said["sha256"])
    features = [name for name in ("x", *_SPARSE) if name in arrays]
    missing = [name for name in ("indptr", "indices", "y", *MASK_NAMES) if name not in arrays]
    if missing or features not in (["x"], list(_SPARSE)):
        raise ValueError(f"it lacks {', '.join(missing) or 'features, dense or sparse'}")
    return Manifest(
        document["name"],
        document["origin"],
        notes,
        document["num_features"],
        document["num_classes"],
        document["feature_scaling"],
        document["digest"],
        arrays,
        directed,
    )


def _find_files(path: Path, manifest: Manifest) -> dict[str, ArrayFile]:
    """Find the files of all arrays; check each by the manifest. Raises :class:`DatasetError`."""
    files = {}
    for name, said in manifest.arrays.items():
        file = ArrayFile.find(path / f"{name}.npy")
        dtype = _describe(file)
        if (dtype, file.header.shape) != (said.dtype, said.shape):
            raise DatasetError(
                f"{file.path}: it has shape {file.header.shape} of {dtype}, and {MANIFEST} says "
                f"{said.shape} of {said.dtype}; they are not of one data set."
            )
        files[name] = file
    return files


def _describe(file: ArrayFile) -> str:
    """Return an array's dtype in the notation of a manifest."""
    return str(np.lib.format.dtype_to_descr(file.header.dtype))


def _make_dataset(path: Path, manifest: Manifest, arrays: Mapping[str, Any]) -> Dataset:
    """Make the data set. Raises :class:`DatasetError` for arrays that do not belong together."""
    where = str(path)
    weights = arrays.get("weights")
    graph = Graph(arrays["indptr"], arrays["indices"], manifest.directed, weights)
    if weights is not None and weights.shape != graph.indices.shape:
        raise DatasetError(f"{where}: weights are not of {graph.num_edges:,} edges.")
    features: Any = arrays.get("x")
    if features is None:
        data, indices, indptr = (arrays[name] for name in _SPARSE)
        if indptr.shape != (graph.num_vertices + 1,) or indptr[-1] != len(data):
            raise DatasetError(f"{where}: x_indptr is not of {graph.num_vertices:,} rows.")
        shape = graph.num_vertices, manifest.num_features
        features = scipy.sparse.csr_matrix((data, indices, indptr), shape=shape, copy=False)
    train, val, test = masks = arrays["train_mask"], arrays["val_mask"], arrays["test_mask"]
    labels = arrays["y"]
    check_offsets(where, graph.indptr, graph.num_edges)
    check_shape(where, "x", features.shape, graph.num_vertices)
    check_labels(where, labels, graph.num_vertices)
    check_masks(where, masks, labels)
    widths = features.shape[1], int(labels.max()) + 1
    if widths != (manifest.num_features, manifest.num_classes):
        raise DatasetError(
            f"{where}: there are {widths[0]:,} features and {widths[1]:,} classes, and {MANIFEST} "
            f"says {manifest.num_features:,} and {manifest.num_classes:,}."
        )
    return Dataset(
        name=manifest.name,
        graph=graph,
        features=features,
        labels=labels,
        num_classes=manifest.num_classes,
        train_mask=train,
        val_mask=val,
        test_mask=test,
        origin=where,
        notes=manifest.notes,
        feature_scaling=manifest.feature_scaling,
        stored_digest=manifest.digest,
        folder=where,
    )


def _check(
    path: Path, manifest: Manifest, files: Mapping[str, ArrayFile], dataset: Dataset
) -> None:
    """Read everything once. Raises :class:`DatasetError`."""
    found = check_stored(str(path), files, dataset.graph, manifest.num_features)
    for name, said in manifest.arrays.items():
        if found.sha256[name] != said.sha256:
            raise DatasetError(
                f"{files[name].path}: its bytes are not those that {MANIFEST} has the checksum of; "
                f"the file was damaged or altered, so write the folder anew."
            )
    if manifest.feature_scaling == "none" and found.digest != manifest.digest:
        raise DatasetError(
            f"{path / MANIFEST}: it says that the digest is {manifest.digest}, and it is "
            f"{found.digest}; write the folder anew."
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Which files a folder had when it was checked: a folder with the same is not read again."""

    file: Path
    text: str

    @classmethod
    def of(cls, path: Path, digest: str, files: Mapping[str, ArrayFile], verified: Path) -> _Seen:
        stats = {name: os.stat(file.path) for name, file in files.items()}
        facts = {n: [s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns] for n, s in stats.items()}
        name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
        text = json.dumps({"manifest": digest, "files": facts}, sort_keys=True)
        return cls(verified / f"{name}.json", text)

    def before(self) -> bool:
        try:
            return read_text(self.file, _MANIFEST_BYTES) == self.text
        except FileRefusedError:
            return False

    def keep(self) -> None:
        """Record that the folder was checked; where this fails, it is checked again next time."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(self.text, encoding="utf-8")
        except OSError:
            return


# --------------------------------------------------------------------------- writing


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Open a folder to fill, which appears at ``path`` when the block ends, whole or not at all.

    With ``overwrite`` it replaces another data set. Raises :class:`DatasetError` if anything else
    is at ``path`` or among the files of the other data set, and :class:`GnnbenchError` where the
    disk refuses.
    """
    if os.path.lexists(path) and not (overwrite and is_folder(path)):
        raise DatasetError(
            f"{path} exists"
            + (" and is not the folder of a data set" if overwrite else "")
            + "; choose another name"
            + ("." if overwrite else " or allow overwriting it.")
        )
    if os.path.lexists(path) and (others := _list_others(path)):
        raise DatasetError(
            f"{path} has files that belong to no data set, such as {others[0]}; move them away, or "
            f"choose another name."
        )
    try:
        with publish_folder(path, overwrite=overwrite) as folder:
            yield folder
    except FileExistsError as error:
        raise DatasetError(f"{path} has appeared meanwhile; choose another name.") from error
    except OSError as error:
        raise GnnbenchError(f"{path} could not be written: {explain(error)}.") from error


def _list_others(path: Path) -> list[str]:
    """Return the names in a data set's folder that are none of its own, in order."""
    own = {MANIFEST, *(f"{name}.npy" for name in _DTYPES)}
    return sorted(name for name in os.listdir(path) if name not in own)


def list_arrays(dataset: Dataset) -> dict[str, AnyArray]:
    """Return the arrays of a data set by name, in the order of its digest."""
    graph, features = dataset.graph, dataset.features
    arrays: dict[str, AnyArray] = {"indptr": graph.indptr, "indices": graph.indices}
    if graph.weights is not None:
        arrays["weights"] = graph.weights
    if isinstance(features, np.ndarray):
        arrays["x"] = features
    else:
        sparse = features.data, features.indices, features.indptr
        arrays |= zip(_SPARSE, sparse, strict=True)
    return arrays | {"y": dataset.labels, **{name: getattr(dataset, name) for name in MASK_NAMES}}


def write_manifest(folder: Path, dataset: Dataset, found: Digests) -> None:
    """Write the manifest of the arrays of ``dataset`` in ``folder``. Raises ``OSError``."""
    files = {n: ArrayFile.find(folder / f"{n}.npy") for n in _DTYPES if n in found.sha256}
    arrays = {
        name: StoredArray(_describe(file), file.header.shape, found.sha256[name])
        for name, file in files.items()
    }
    manifest = Manifest(
        name=dataset.name,
        origin=dataset.origin,
        notes=dataset.notes,
        num_features=dataset.num_features,
        num_classes=dataset.num_classes,
        feature_scaling=dataset.feature_scaling,
        digest=dataset.stored_digest,
        arrays=arrays,
        directed=dataset.graph.directed,
    )
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
