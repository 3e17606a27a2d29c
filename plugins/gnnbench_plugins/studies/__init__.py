"""The papers' tables and figures beside this project's: a plugin for each paper.

A study reads what its system's plugin computes; no system reads a study. Here every constant is
looked up that the model rests on: of code by annotations, of TOML files by their tables.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import gnnbench
import gnnbench_plugins
from gnnbench.constants import MarkedNumber, find_constants, find_marked, read_number
from gnnbench.host.toml import read_toml

PACKAGES = (gnnbench, gnnbench_plugins)


@cache
def list_constants() -> tuple[MarkedNumber, ...]:
    """List the constants of both packages: of TOML files by their names, then of modules."""
    found = [number for package in PACKAGES for number in _read_files(_folder(package))]
    found += [number for package in PACKAGES for number in _read_modules(package)]
    return tuple(found)


@cache
def find_fitted(result: str) -> tuple[str, ...]:
    """Return the names of the constants that were fitted on a result.

    ``result`` is the id of a cell of the ledger, or a table's name with what of it in parentheses.
    """
    found = (_name(number) for number in list_constants() if result in number.fitted_on)
    return tuple(dict.fromkeys(found))


def _name(number: MarkedNumber) -> str:
    """Name a constant of a library or a platform with its folder or file: ``"dgl.call_s"``."""
    path = Path(number.place)
    if path.suffix != ".toml" or path.name == "devices.toml":
        return number.name
    return f"{path.parent.name if path.name == 'library.toml' else path.stem}.{number.name}"


def _folder(package: ModuleType) -> Path:
    return Path(package.__path__[0])


def _read_files(folder: Path) -> Iterator[MarkedNumber]:
    for path in sorted(folder.rglob("*.toml")):
        for name, table in find_marked(read_toml(path)):
            yield read_number(path.relative_to(folder.parent).as_posix(), name, table)


def _read_modules(package: ModuleType) -> Iterator[MarkedNumber]:
    folder = _folder(package)
    for path in sorted(folder.rglob("*.py")):
        if "Constant(" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            yield from find_constants(importlib.import_module(name))
