"""Sources of plugins: entry points, modules by name, files, and the bundled ones."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import pkgutil
import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from gnnbench.host.files import resolve
from gnnbench.host.signals import is_interrupt
from gnnbench.plugins.origin import Origin
from gnnbench.plugins.problems import BrokenOfferError, describe, describe_at, line_within

GROUP = "gnnbench"
BUNDLED = "gnnbench_plugins"
#: Bundled plugins that each cover a paper; every other bundled plugin covers a system.
STUDIES = f"{BUNDLED}.studies"


def find_file(text: str) -> Path | None:
    """Return the file that ``--plugin TEXT`` runs, without running any.

    The file need not exist. A module that is no file, or that is not found, gives None.
    """
    if is_file(text):
        return resolve(text)
    path: Sequence[str] | None = None
    spec = None
    for end in (*(match.start() for match in re.finditer(r"\.", text)), len(text)):
        spec = importlib.machinery.PathFinder.find_spec(text[:end], path)
        path = spec.submodule_search_locations if spec is not None else None
        if spec is None or (path is None and end < len(text)):
            return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def find_entries(problems: list[str]) -> list[metadata.EntryPoint]:
    """Return the entry points of the group, sorted by name; each distribution counts once.

    Damaged metadata of an installed package give a problem, a sentence, and never an error.
    """
    found: dict[str, list[metadata.EntryPoint]] = {}
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
            if f"[{GROUP}]" not in text:
                continue
            entries = list(distribution.entry_points.select(group=GROUP))
            if any(entry.pattern.match(entry.value) is None for entry in entries):
                raise ValueError("an entry names no module")
            found.setdefault(_name_distribution(distribution), entries)
        except Exception as error:  # a damaged file may make its reader raise anything
            problems.append(
                f"the plugins of package {_name_distribution(distribution)!r} were skipped because "
                f"its entry_points.txt is damaged ({describe(error)}); install it again."
            )
    return sorted((each for entries in found.values() for each in entries), key=lambda e: e.name)


def _name_distribution(distribution: metadata.Distribution | None) -> str:
    """Return the name of a distribution, or of its folder if its metadata are damaged."""
    name = None
    with contextlib.suppress(Exception):
        name = distribution.metadata["Name"] if distribution is not None else None
    return name or Path(str(getattr(distribution, "_path", "unknown"))).stem


def bring_entry(entry: metadata.EntryPoint) -> object:
    """Load an entry point. Raises ``Broken`` for a plugin that fails to import."""
    try:
        return entry.load()
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise BrokenOfferError(
            f"plugin {entry.name!r} does not import ({entry.value}): {describe_at(error)}; mend "
            f"or uninstall it."
        ) from error


def list_files(text: str) -> list[Path]:
    """Return the files that ``--plugin TEXT`` may run, existing or not: all files of a package."""
    file = find_file(text) or Path(text)
    if file.name != "__init__.py":
        return [file]
    with contextlib.suppress(OSError, ValueError):
        return [file, *(each for each in file.parent.rglob("*") if each.suffix != ".pyc")]
    return [file]


def bring_module(name: str) -> object:
    """Import a module. Raises ``Broken`` for a plugin that fails to import."""
    try:
        return importlib.import_module(name)
    except BaseException as error:
        if is_interrupt(error):
            raise
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            raise BrokenOfferError(
                f"there is no plugin module {name!r}; give the name of an importable module or "
                f"the path of a .py file."
            ) from error
        raise BrokenOfferError(
            f"plugin {name!r} does not import: {describe_at(error)}; mend it or leave it out."
        ) from error


def bring_file(path: Path) -> types.ModuleType:
    """Run a file as a separate module; an ``__init__.py`` may import its package relatively."""
    if not os.path.isfile(path):
        raise BrokenOfferError(
            f"there is no plugin file {str(path)!r}; give the path of an existing .py file or the "
            f"name of an importable module."
        )
    package = path.name == "__init__.py"
    stem = re.sub(r"\W", "_", path.parent.name if package else path.stem)
    # The digest keeps two files of one name, or an installed copy of this one, apart.
    name = f"{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)] if package else None
    )
    if spec is None or spec.loader is None:
        raise BrokenOfferError(
            f"plugin file {str(path)!r} is not Python; its name must end in .py."
        )
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and type hints look up their module there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if is_interrupt(error):
            raise
        line = line_within(path, error)
        where = f"{str(path)!r}, line {line}," if line else repr(str(path))
        raise BrokenOfferError(
            f"plugin file {where} raised {describe(error)}; mend the file or leave out --plugin."
        ) from error
    return module


def is_file(text: str) -> bool:
    """Return whether a text names a file rather than a module."""
    return text.endswith(".py") or os.sep in text or "/" in text


def entry_origin(entry: metadata.EntryPoint) -> Origin:
    """Return the origin of an entry point: its name, distribution and version."""
    if entry.dist is None:
        return Origin(entry.name, None, None)
    version = None
    with contextlib.suppress(Exception):
        version = entry.dist.version
    return Origin(entry.name, _name_distribution(entry.dist), version or "of no known version")


def module_origin(name: str) -> Origin:
    """Return a module's origin, which may be an installed distribution."""
    with contextlib.suppress(Exception):  # damaged metadata of any package may raise anything
        owners = _find_owners(tuple(sys.path)).get(name.partition(".")[0], [])
        if owners:
            return Origin(name, owners[0], metadata.version(owners[0]))
    return Origin(name, None, None)


@cache
def _find_owners(_: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the distributions of every package on this path; the search takes about a second."""
    return metadata.packages_distributions()


def find_uninstalled(installed: Iterable[metadata.EntryPoint], problems: list[str]) -> list[str]:
    """Return modules of the bundled plugins that no entry point names.

    In a source checkout without installation these are all of them. Otherwise they are the modules
    that are newer than the installed distribution.
    """
    named = {entry.module for entry in installed}
    try:
        package = importlib.import_module(BUNDLED)
    except ModuleNotFoundError:
        problems.append(
            "the bundled plugins were skipped because they are neither installed nor importable; "
            "install gnnbench, or put its folder plugins/ on PYTHONPATH."
        )
        return []
    names = [f"{BUNDLED}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    studies = importlib.import_module(STUDIES)
    names.remove(STUDIES)
    names += [f"{STUDIES}.{module.name}" for module in pkgutil.iter_modules(studies.__path__)]
    return sorted(set(names) - named)
