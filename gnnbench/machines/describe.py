"""Platforms by name: found, listed and loaded."""

from __future__ import annotations

import contextlib
import difflib
import socket
from dataclasses import dataclass
from pathlib import Path

from gnnbench.constants import Bound
from gnnbench.errors import PlatformError
from gnnbench.host.files import FileRefusedError, user_cache
from gnnbench.host.toml import read_toml
from gnnbench.machines.files import is_cores_file, read_platform
from gnnbench.machines.machine import Platform

BUNDLED = Path(__file__).parent
#: The platform to model if there is no CUDA device.
FALLBACK = "epyc7763x2-4xa5000"
LOCAL = "local"
#: The prefix of a platform made of this machine's cores: ``cores:1,1``.
CORES = "cores:"
#: The least similarity of a name that an error message suggests.
_LIKE: Bound[float] = 0.4


@dataclass(frozen=True, slots=True)
class PlatformEntry:
    """One line of ``platforms list``; ``path`` is None for a ``local`` that was never probed."""

    name: str
    description: str
    path: Path | None


def local_path() -> Path:
    """Return the file for the probed description of this machine, whether or not it exists.

    Nodes of a cluster often share the home folder, so each has a folder by its host's name.
    """
    return user_cache() / "platforms" / socket.gethostname() / f"{LOCAL}.toml"


def find_file(spec: str) -> Path | None:
    """Return the file that describes the platform ``spec``, whether or not it exists.

    Return None for a name that no platform has.
    """
    path = Path(spec)
    if spec == LOCAL:
        return local_path()
    if path.suffix == ".toml" or len(path.parts) > 1:
        return path
    return next((path for path in BUNDLED.glob("*.toml") if path.stem == spec), None)


def find_all_files() -> tuple[Path, ...]:
    """Return the files of every platform with a name."""
    return (local_path(), *sorted(BUNDLED.glob("*.toml")))


def load_platform(spec: str) -> Platform:
    """Return the platform called ``spec``, or described by the ``.toml`` file at that path.

    ``local`` is this machine: as probed, if it was, else as the operating system describes it.
    ``cores:1,1`` has devices that are made of this machine's cores
    (:mod:`gnnbench.machines.workers`). Devices of every other platform are virtual. Raises
    ``PlatformError``.
    """
    if spec.startswith(CORES):
        from gnnbench.machines.workers import make_workers, parse_cores

        return make_workers(parse_cores(spec), spec)
    if spec == LOCAL:
        from gnnbench.machines.local import load_local

        return load_local()
    return read_platform(require_file(spec))


def require_file(spec: str) -> Path:
    """Return what :func:`find_file` does. Raises ``PlatformError`` for an unknown name."""
    path = find_file(spec)
    if path is not None:
        return path
    names = (LOCAL, *(path.stem for path in sorted(BUNDLED.glob("*.toml"))))
    close = difflib.get_close_matches(spec, names, n=2, cutoff=_LIKE)
    hint = f"did you mean {' or '.join(close)}" if close else f"choose from {', '.join(names)}"
    raise PlatformError(f"there is no platform called {spec!r}; {hint}, or name a .toml file.")


def require_known(spec: str) -> None:
    """Raise ``PlatformError`` for a name that no platform has."""
    if not spec.startswith(CORES):
        require_file(spec)


def is_made_of_cores(spec: str) -> bool:
    """Return whether a platform's devices are this machine's cores.

    Return False if its file is missing or unreadable.
    """
    if spec.startswith(CORES):
        return True
    path = find_file(spec)
    with contextlib.suppress(FileRefusedError, OSError, ValueError):
        return path is not None and path.is_file() and is_cores_file(read_toml(path))
    return False


def list_platforms() -> tuple[PlatformEntry, ...]:
    """Return ``local`` first, then the bundled platforms by name."""
    unknown = "this machine, not measured yet (gnnbench platforms probe --save)"
    local = PlatformEntry(LOCAL, unknown, None)
    if local_path().is_file():
        local = PlatformEntry(LOCAL, "this machine, as last probed", local_path())
    bundled = (
        PlatformEntry(path.stem, read_platform(path).description, path)
        for path in sorted(BUNDLED.glob("*.toml"))
    )
    return (local, *bundled)


def default_platform() -> Platform:
    """Return ``local`` if there is a CUDA device, else HyScale-GNN's CPU-GPU server, modelled."""
    import torch

    return load_platform(LOCAL if torch.cuda.is_available() else FALLBACK)
