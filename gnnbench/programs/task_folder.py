"""The task folder: everything that a program by command needs, readable with NumPy alone.

``task.json`` has the workload and the limits, ``dataset/`` the graph, features, labels and split,
and ``parameters.npz`` the initial parameters. ``docs/programs.md`` describes each entry.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnbench.datasets.folder import list_arrays, write_manifest
from gnnbench.datasets.npy import cut_rows
from gnnbench.datasets.streaming import Digests
from gnnbench.errors import GnnbenchError
from gnnbench.host.files import explain
from gnnbench.host.mapped import AnyArray
from gnnbench.programs.messages import ProgramFailedError
from gnnbench.records import Dataset, Parameters, Task

VERSION = 1
DATASET, PARAMETERS, TASK = "dataset", "parameters.npz", "task.json"
#: Rows of sparse features that are made dense at a time.
_ROWS = 1 << 14


class TaskFolders:
    """The task folders of a comparison, which share one copy of the data set.

    They are below one temporary folder, which ``close`` removes, or the end of this object.
    """

    def __init__(self) -> None:
        self._home: Path | None = None
        self._written = 0

    def write(self, task: Task) -> Path:
        """Write the folder of a task, and return it. Raises ``GnnbenchError`` on a full disk."""
        try:
            if self._home is None:
                self._home = Path(tempfile.mkdtemp(prefix="gnnbench-task-"))
                weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
                _write_dataset(task.dataset, self._home / DATASET)
            folder = self._home / str(self._written)
            self._written += 1
            folder.mkdir()
            # Links, not copies: a container may see this folder alone.
            shutil.copytree(self._home / DATASET, folder / DATASET, copy_function=os.link)
            np.savez(folder / PARAMETERS, **dict(task.parameters))  # type: ignore[arg-type]
            (folder / TASK).write_text(json.dumps(describe_task(task), indent=1) + "\n")
        except OSError as error:
            raise GnnbenchError(
                f"the task could not be written to {tempfile.gettempdir()}: {explain(error)}; "
                f"name another folder in the environment's TMPDIR."
            ) from error
        return folder

    def close(self) -> None:
        """Remove all folders."""
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None


def describe_task(task: Task) -> dict[str, object]:
    """Return the content of ``task.json``."""
    workload = task.workload
    return {
        "schema": VERSION,
        "mode": task.mode,
        "model": workload.model,
        "layers": workload.num_layers,
        "dims": list(workload.dims),
        "epochs": workload.epochs,
        "batch_size": workload.batch_size,
        "fanouts": list(workload.fanouts),
        "seed": workload.seed,
        "optimiser": "adam",
        "learning_rate": workload.learning_rate,
        "weight_decay": workload.weight_decay,
        "dtype": workload.dtype,
        "edge_weights": workload.edge_weights,
        "threads": task.threads,
        "cores": list(task.cores),
        "memory_bytes": task.memory_bytes,
        "devices": ["cpu"],
        "dataset": DATASET,
        "parameters": PARAMETERS,
    }


def _write_dataset(dataset: Dataset, folder: Path) -> None:
    """Write a data set as ``.npy`` files and their manifest, with dense features."""
    folder.mkdir()
    found = Digests(directed=dataset.graph.directed)
    for name, array in list_arrays(replace(dataset, features=np.empty((0, 0), "f4"))).items():
        found.store(folder, name, _cut_dense(dataset) if name == "x" else cut_rows(array))
    # Loading the folder checks this digest, unless features are scaled.
    digest = found.digest if dataset.feature_scaling == "none" else dataset.digest()
    write_manifest(folder, replace(dataset, stored_digest=digest), found)


def _cut_dense(dataset: Dataset) -> Iterator[AnyArray]:
    if isinstance(dataset.features, np.ndarray):
        yield from cut_rows(dataset.features)
        return
    for begin in range(0, dataset.graph.num_vertices, _ROWS):
        yield np.asarray(dataset.features[begin : begin + _ROWS].toarray(), dtype=np.float32)


def read_parameters(file: Path, task: Task) -> Parameters:
    """Read the parameters that a program has saved.

    Raises ``ProgramFailedError`` unless they are finite, with the names and shapes of the task's.
    """
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = {name: np.asarray(stored[name], np.float64) for name in stored.files}
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = explain(error) if isinstance(error, OSError) else str(error).rstrip(".")
        raise ProgramFailedError(
            f"its parameters cannot be read from {file.name} ({reason}); write a .npz with "
            f"numpy.savez."
        ) from error
    return check_parameters(found, task)


def check_parameters(found: Parameters, task: Task) -> Parameters:
    """Return a program's parameters, checked against the task's. Raises ``ProgramFailedError``."""
    wanted = {name: value.shape for name, value in task.parameters.items()}
    for name, shape in wanted.items():
        if name not in found:
            raise ProgramFailedError(
                f"its parameters lack {name!r}; give {', '.join(wanted)}, as the task does."
            )
        own = np.asarray(found[name])
        if own.shape != shape:
            raise ProgramFailedError(f"its parameter {name!r} has shape {own.shape}, not {shape}.")
        if not np.isfinite(own).all():
            raise ProgramFailedError(f"its parameter {name!r} is not finite.")
    return {name: np.asarray(found[name]) for name in wanted}
