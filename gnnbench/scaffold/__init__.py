"""Writes a new strategy as a package that can be installed, run, checked and then changed."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

from gnnbench import plugins
from gnnbench.errors import UsageError

__all__ = ["create"]

#: A distribution name, an import name and a strategy name are all made from it.
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

#: Each template and the file made from it, relative to the new package's folder.
_FILES = {
    "pyproject.toml.template": "pyproject.toml",
    "README.md.template": "README.md",
    "package.py.template": "src/{module}/__init__.py",
    "placement.py.template": "src/{module}/placement.py",
    "communication.py.template": "src/{module}/communication.py",
    "test_conformance.py.template": "tests/test_conformance.py",
}


def create(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the package ``gnnbench-NAME`` into ``folder`` and return the files, sorted.

    It offers a strategy ``name`` with a placement and a communication of its own. Raises
    ``UsageError``, with nothing written, for a name that is not lower-case words joined by hyphens
    or that a plugin offers already, and where ``folder/gnnbench-NAME`` exists.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a strategy; use lower-case letters and digits, starting "
            f"with a letter, in words joined by hyphens (such as even-split)."
        )
    _refuse_taken(name)
    package = f"gnnbench-{name}"
    target = folder / package
    if target.exists():
        raise UsageError(f"{target} exists already; choose another name or another folder.")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; give one to write {package} into.")

    words = {
        "name": name,
        "package": package,
        "module": package.replace("-", "_"),
        "classname": "".join(word.capitalize() for word in name.split("-")),
    }
    templates = resources.files(__package__) / "templates"
    written = []
    for template, place in _FILES.items():
        path = target / place.format(module=words["module"])
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (templates / template).read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(words), encoding="utf-8")
        written.append(path)
    return tuple(sorted(written))


def _refuse_taken(name: str) -> None:
    """Two plugins that offer one name would stop every command, so it does not come to that."""
    registry = plugins.load()
    offered = {
        "strategy": {strategy.name for strategy in registry.strategies},
        "placement": {part.name for part in registry.parts_of("placement")},
        "communication": {part.name for part in registry.parts_of("communication")},
    }
    for what, names in offered.items():
        if name in names:
            raise UsageError(f"a {what} {name!r} is offered already; choose another name.")
