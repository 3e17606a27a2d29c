"""Datasets that come as several files: planetoid's ``ind.NAME.*``, and OGB's folders of CSV."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from gnnbench.datasets.content import EDGE_FEATURES_IGNORED, as_classes, choose_weights, read_masks
from gnnbench.datasets.pickles import ArrayUnpickler
from gnnbench.datasets.raw import RawGraph
from gnnbench.errors import DatasetError, reason_of
from gnnbench.host.files import FileRefusedError, open_input
from gnnbench.records import IntArray

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph")
#: Vertices of planetoid behind those of training that are for validation (Yang et al. 2016).
_VALIDATION = 500


def find_planetoid(path: Path) -> tuple[Path, str] | None:
    """Return the folder and the dataset's name if ``path`` belongs to planetoid, else None.

    ``path`` is a folder with one dataset, or one of its files.
    """
    if os.path.isdir(path):
        graphs = sorted(path.glob("ind.*.graph"))
        return (path, graphs[0].name[4:-6]) if len(graphs) == 1 else None
    start, _, rest = path.name.partition(".")
    name = next((rest.removesuffix(f".{p}") for p in _PARTS if rest.endswith(f".{p}")), "")
    name = name or (rest.removesuffix(".test.index") if rest.endswith(".test.index") else "")
    return (path.parent, name) if start == "ind" and name else None


def read_planetoid(folder: Path, name: str, *, weighted: bool) -> RawGraph:
    """Read planetoid's files (Yang, Cohen, Salakhutdinov 2016), with their split.

    Vertices of the test set lie in the order of ``test.index``; those that it leaves out, of
    CiteSeer, have no features and no label.
    """
    x, tx, allx, y, ty, ally, graph = (_unpickle(folder / f"ind.{name}.{part}") for part in _PARTS)
    where = str(folder / f"ind.{name}")
    choose_weights(where, None, weighted=weighted)
    order = _read_numbers(folder / f"ind.{name}.test.index")
    try:
        known, count = allx.shape[0], len(graph)
        total = max(count, int(order.max()) + 1)
        if len(order) != tx.shape[0] or order.min() < known or len(np.unique(order)) < len(order):
            raise ValueError("test.index does not fit tx and allx")
        features = scipy.sparse.lil_matrix((total, x.shape[1]), dtype=np.float32)
        features[:known], features[order] = allx, tx
        padded = total - known - len(order)
        labels = np.full(total, -1, dtype=np.int64)
        for places, classes in ((np.arange(known), ally), (order, ty)):
            labels[places] = np.where(classes.any(axis=1), classes.argmax(axis=1), -1)
        masks = [np.zeros(total, dtype=np.bool_) for _ in range(3)]
        masks[0][: len(y)] = masks[1][len(y) : min(known, len(y) + _VALIDATION)] = True
        masks[2][order] = True
        pairs = [(one, other) for one, others in graph.items() for other in others]
        edges = np.array(pairs, dtype=np.int64).T
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise DatasetError(
            f"{where}: its files do not fit together ({reason_of(error)}); download them again."
        ) from error
    for mask in masks:
        mask &= labels >= 0
    train, val, test = masks
    note = f"vertices without a row in the files have features of zero and no label: {padded:,}"
    return RawGraph(
        edges,
        total,
        f"imported from ind.{name}",
        (note,) if padded else (),
        features=features.tocsr(),
        labels=labels,
        masks=(train, val, test),
    )


def _unpickle(file: Path) -> Any:
    try:
        with open_input(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = ArrayUnpickler(stream, encoding="latin1").load()
    except FileRefusedError as error:
        raise DatasetError(
            f"{file}: {error.reason}; planetoid's files are read together, so put them into one "
            f"folder."
        ) from error
    except Exception as error:  # whatever a damaged pickle raises
        raise DatasetError(
            f"{file}: this is not one of planetoid's files ({reason_of(error)}); download it again."
        ) from error
    return held


def _read_numbers(file: Path) -> IntArray:
    try:
        with open_input(file) as stream:
            return np.array([int(line) for line in stream.read().split()], dtype=np.int64)
    except (FileRefusedError, ValueError) as error:
        raise DatasetError(
            f"{file}: it has no vertex number on each line ({reason_of(error)}); download it again."
        ) from error


def find_ogb(path: Path) -> Path | None:
    """Return the folder of OGB's files where ``path`` is one, or its ``raw`` inside, else None."""
    home = path.parent if path.name == "raw" else path
    raw = home / "raw"
    return home if os.path.isdir(raw) and any(raw.glob("edge.csv*")) else None


def read_ogb(home: Path, *, weighted: bool) -> RawGraph:
    """Read an OGB dataset of vertices as it is downloaded: ``raw/*.csv.gz`` and ``split/*/``."""
    raw = home / "raw"
    choose_weights(str(raw), None, weighted=weighted)
    edges = _read_csv(raw, "edge", np.int64)
    counts = _read_csv(raw, "num-node-list", np.int64)
    if edges is None or counts is None or counts.size != 1 or edges.shape[1] != 2:
        raise DatasetError(
            f"{raw}: it has no edge.csv of two columns and no num-node-list.csv of one graph; give "
            f"a homogeneous dataset of one graph."
        )
    notes: tuple[str, ...] = ()
    labels, stored = None, _read_csv(raw, "node-label", np.float64)
    if stored is not None:
        labels, notes = as_classes(str(raw / "node-label.csv"), stored)
    if any(raw.glob("edge-feat.csv*")):
        notes = (*notes, EDGE_FEATURES_IGNORED)
    return RawGraph(
        edges.T,
        int(counts[0, 0]),
        f"imported from {home.name}",
        notes,
        _read_csv(raw, "node-feat", np.float32),
        labels,
        _read_split(home, int(counts[0, 0])),
    )


def _read_split(home: Path, count: int) -> Any:
    splits = sorted(path.parent for path in home.glob("split/*/train.csv*"))
    if not splits:
        return None
    if len(splits) > 1:
        names = ", ".join(path.name for path in splits)
        raise DatasetError(f"{home}: it has the splits {names}; keep one of these folders.")
    found = {name: _read_csv(splits[0], name, np.int64) for name in ("train", "valid", "test")}
    lacking = [name for name, ids in found.items() if ids is None]
    if lacking:
        raise DatasetError(f"{splits[0]}: there is no {lacking[0]}.csv; download it again.")
    found = {name: ids[:, 0] for name, ids in found.items()}
    return read_masks(str(splits[0]), found, np.arange(count, dtype=np.int64))


def _read_csv(folder: Path, name: str, dtype: type) -> Any:
    """Return a table without a heading, or None where there is no such file."""
    import pandas

    file = next(iter(sorted(folder.glob(f"{name}.csv*"))), None)
    if file is None:
        return None
    try:
        with open_input(file) as stream:
            compression = "gzip" if file.suffix == ".gz" else None
            table = pandas.read_csv(stream, header=None, dtype=dtype, compression=compression)
    except FileRefusedError as error:
        raise DatasetError(f"{file}: {error.reason}; download the dataset again.") from error
    except Exception as error:  # whatever a damaged file makes pandas raise
        raise DatasetError(
            f"{file}: this is not a readable table ({reason_of(error)}); download it again."
        ) from error
    return table.to_numpy()
