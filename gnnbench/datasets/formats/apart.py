"""Read a file in a separate process, since its library crashes on damaged files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gnnbench.datasets.archive import Archive
from gnnbench.datasets.formats import apart_reader
from gnnbench.datasets.memory import check_memory
from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.host.files import FileRefusedError, open_input

#: How long a process may take: to begin, and for each byte of its file.
_START_S, _BYTE_S = 60.0, 1e-6


def read_apart(kind: str, file: Path) -> dict[str, AnyArray]:
    """Return the arrays by name that :mod:`.apart_reader` finds in a file of this ``kind``.

    Raises :class:`DatasetError` for a file that it refuses or that its library crashes on.
    """
    try:
        with open_input(file) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
    except FileRefusedError as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a graph.") from error
    check_memory(str(file), "its graph", 4 * size_bytes)
    with tempfile.TemporaryDirectory(prefix="gnnbench-") as folder:
        found = Path(folder) / "found.npz"
        words = [sys.executable, apart_reader.__file__, kind, str(file), str(found)]
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        try:
            done = subprocess.run(
                words,
                env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
                capture_output=True,
                timeout=_START_S + _BYTE_S * size_bytes,
                check=False,
            )
            status, said = done.returncode, done.stderr.decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired:
            status, said = -1, ""
        if status == 0:
            with Archive(found) as archive:
                return {name: archive.read(name) for name in archive.names}
    reason = said.splitlines()[-1][:200] if status == apart_reader.REFUSED else "it is damaged"
    raise DatasetError(
        f"{file}: this is not a readable {apart_reader.NAMES[kind]} ({reason}); save it again."
    )
