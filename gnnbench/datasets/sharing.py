"""One copy of a data set for all ranks of a machine, in files that each of them maps.

One rank reads or makes the data set in a child process, whose memory is gone afterwards. The child
writes the arrays to a folder for temporary files. All ranks map them: the system has each page
once, and a rank has the pages that it reads. The last rank removes the folder, and the mappings
stay.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnbench.datasets.catalogue import find_file
from gnnbench.datasets.construct import MASK_NAMES
from gnnbench.datasets.folder import MANIFEST, list_arrays, map_folder, write_manifest
from gnnbench.datasets.npy import cut_rows
from gnnbench.datasets.streaming import Digests
from gnnbench.host.apart import ChildFailedError, call_apart
from gnnbench.host.files import publish_folder
from gnnbench.host.locks import locked, own_path
from gnnbench.host.rank import Place
from gnnbench.records import Dataset


def share(
    make: Callable[[], Dataset], spec: str, how: object, place: Place, patience_s: float
) -> Dataset:
    """Return the data set that ``make`` makes of ``spec``, mapped from files of all local ranks.

    Every rank of the machine must call this for the same job. One of them makes the data set, and
    the others wait for it. A folder's arrays are mapped where they are, unless ``make`` changes
    them. ``how`` has everything else that the data set depends on. Each rank has its own copy if no
    files can be shared.

    Raises the errors of ``make``, and ``GnnbenchError`` if a rank that others wait for is stopped.
    """
    file = find_file(spec)
    key = f"{_name_job(spec, file, how, place)}-data"
    try:
        with locked(key, patience_s):
            if file is not None and file.name == MANIFEST:
                return _map_unchanged(make(), map_folder(file.parent))
            return _map_copy(make, key, place)
    except (OSError, ChildFailedError):
        return make()


def _map_unchanged(made: Dataset, stored: Dataset) -> Dataset:
    """Return ``made`` with the mapped labels, split and offsets of ``stored`` that are equal."""
    equal: dict[str, Any] = {
        name: getattr(stored, name)
        for name in ("labels", *MASK_NAMES)
        if np.array_equal(getattr(made, name), getattr(stored, name))
    }
    if np.array_equal(made.graph.indptr, stored.graph.indptr):
        equal["graph"] = replace(made.graph, indptr=stored.graph.indptr)
    return replace(made, **equal)


def _name_job(spec: str, file: Path | None, how: object, place: Place) -> str:
    """Return a name for the data set of this job on this node."""
    stored = None if file is None else os.stat(file)
    facts = (
        (place.address, place.port, place.node, spec, how),
        [os.environ.get(f"TORCHELASTIC_{name}") for name in ("RUN_ID", "RESTART_COUNT")],
        stored and (stored.st_dev, stored.st_ino, stored.st_size, stored.st_mtime_ns),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _map_copy(make: Callable[[], Dataset], key: str, place: Place) -> Dataset:
    """Map the copy of the data set, which is made if it is not there. Raises ``OSError``."""
    folder = own_path(key)
    if not os.path.lexists(folder):
        with publish_folder(folder) as scratch:
            os.chmod(scratch, 0o700)
            call_apart(lambda: _write(make(), scratch))
    if os.lstat(folder).st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    mapped = map_folder(folder, moved=True)
    (folder / f"rank-{place.local_rank}").touch()
    if len(list(folder.glob("rank-*"))) == place.local_size:
        shutil.rmtree(folder)
    return mapped


def _write(dataset: Dataset, folder: Path) -> bytes:
    """Write the arrays of a data set, and a manifest. Raises ``OSError``."""
    found = Digests(directed=dataset.graph.directed)
    for name, array in list_arrays(dataset).items():
        found.store(folder, name, cut_rows(array))
    digest = dataset.stored_digest or found.digest
    write_manifest(folder, replace(dataset, stored_digest=digest), found)
    return b""
