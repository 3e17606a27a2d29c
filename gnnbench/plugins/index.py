"""A listing of the installed plugins in the user's cache, so that names need no plugin loaded.

The index of an environment lies in a file. Its name is a digest of everything that decides what
loading finds, so any change makes a new file. An index that is missing, damaged or unreadable is no
error: plugins are loaded instead, and a new index is written if possible.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import gnnbench
from gnnbench.host.files import FileRefusedError, publish, read_text, user_cache
from gnnbench.plugins.listing import Listing, list_offers
from gnnbench.plugins.sources import BUNDLED, find_entries

if TYPE_CHECKING:
    from gnnbench.plugins.registry import Registry

#: Prefixes of the environment variables that decide what imports and how.
_VARIABLES = (
    "GNNBENCH_PURE",
    "GNNBENCH_SIMD",
    "PYTHON",
    "LD_",
    "CUDA",
    "NVIDIA",
    "DGL",
    "TORCH",
    "PYG",
)
_DISTRIBUTIONS = (".dist-info", ".egg-info", ".egg-link")
#: Number of indexes kept; each of many checkouts and working folders has its own.
_KEPT = 16
_LARGEST_BYTES = 1 << 24


def open_listing(extra: Sequence[str] = ()) -> tuple[Listing, Registry | None]:
    """Return the listing of offers, and the registry if plugins had to be loaded for it.

    They are loaded if there is no usable index, and always with ``extra`` plugins. A process that
    has imported torch always loads them, which is faster than checking that an index is fresh.
    Raises as :func:`gnnbench.plugins.load`.
    """
    path = None if extra or "torch" in sys.modules else find_index()
    listing = None if path is None else read_index(path)
    if listing is not None:
        return listing, None

    from gnnbench.plugins import load

    registry = load(extra)
    listing = list_offers(registry)
    if path is not None:
        keep_index(listing, path)
    return listing, registry


def find_index() -> Path | None:
    """Return the path of this environment's index, existing or not; None without a home."""
    try:
        folder = user_cache() / "plugins"
    except RuntimeError:  # the home folder is unknown
        return None
    digest = hashlib.sha256()
    for fact in _facts():
        digest.update(f"{fact}\0".encode("utf-8", "surrogatepass"))
    return folder / f"{digest.hexdigest()[:32]}.json"


def read_index(path: Path) -> Listing | None:
    """Read the listing in a file; None if the file is missing, unreadable or damaged."""
    try:
        checksum, _, text = read_text(path, _LARGEST_BYTES).partition("\n")
    except FileRefusedError:
        return None
    if checksum != _checksum(text):
        return None
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        return Listing.from_document(json.loads(text))
    return None


def keep_index(listing: Listing, path: Path) -> None:
    """Write a listing to a file, whole, if possible, and remove the oldest others.

    There is no index if a plugin describes itself by values that JSON has no form for.
    """
    with contextlib.suppress(OSError, TypeError, ValueError):
        text = json.dumps(listing.to_document())
        path.parent.mkdir(parents=True, exist_ok=True)
        with publish(path) as stream:
            stream.write(f"{_checksum(text)}\n{text}".encode())
        others = sorted(path.parent.glob("*.json"), key=os.path.getmtime, reverse=True)
        for old in others[_KEPT:]:
            old.unlink(missing_ok=True)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _facts() -> Iterator[str]:
    """Yield everything that decides what loading the installed plugins finds."""
    yield from (gnnbench.__version__, sys.version, sys.prefix, *os.uname(), *sys.path)
    for name in sorted(os.environ):
        if name.startswith(_VARIABLES):
            yield f"{name}={os.environ[name]}"
    for folder in sys.path:
        yield from _find_distributions(folder)
    problems: list[str] = []
    entries = [(entry.name, entry.value) for entry in find_entries(problems)]
    yield from (f"{name}={value}" for name, value in entries)
    yield from problems
    modules = [BUNDLED, gnnbench.__name__, *(value for _, value in entries)]
    for package in sorted({module.partition(":")[0].partition(".")[0] for module in modules}):
        for place in _find_package(package):
            yield from _describe_files(place)


def _find_distributions(folder: str) -> list[str]:
    """Return a folder's distributions: names tell versions, and times tell installations."""
    with contextlib.suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        return sorted(
            f"{entry.name} {entry.stat().st_mtime_ns}"
            for entry in entries
            if entry.name.endswith(_DISTRIBUTIONS)
        )
    return []


def _find_package(name: str) -> list[str]:
    """Return the folders of a package, or the file of a module; none if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin else []


def _describe_files(place: str) -> Iterator[str]:
    """Yield every file in a folder or at a path, with size and time, except compiled caches."""
    files = [place]
    for folder, inner, names in os.walk(place):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        files += [os.path.join(folder, name) for name in sorted(names)]
    for file in files:
        with contextlib.suppress(OSError):
            found = os.stat(file)
            yield f"{file} {found.st_size} {found.st_mtime_ns}"
