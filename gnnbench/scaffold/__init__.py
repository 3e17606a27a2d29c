"""Writes a new strategy as a package that can be installed, run, checked and then changed."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

from gnnbench import plugins
from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.files import explain, is_full, publish_folder
from gnnbench.report.results.output import make_folder

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

    It offers a strategy ``name`` with a new placement and a new communication. With nothing
    written, raises ``UsageError`` if the name is not lower-case words joined by hyphens, or if a
    plugin offers it already. ``UsageError`` also says that ``folder/gnnbench-NAME`` exists or
    cannot be written; ``GnnbenchError``, that the disk is full.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a strategy; use lower-case letters and digits, starting "
            f"with a letter, in words joined by hyphens (such as even-split)."
        )
    _refuse_taken(name)
    package = f"gnnbench-{name}"
    target = folder / package
    make_folder(folder)
    words = {
        "name": name,
        "package": package,
        "module": package.replace("-", "_"),
        "classname": "".join(word.capitalize() for word in name.split("-")),
    }
    templates = resources.files(__package__) / "templates"
    texts = {
        place.format(module=words["module"]): Template(
            (templates / template).read_text(encoding="utf-8")
        ).substitute(words)
        for template, place in _FILES.items()
    }
    try:
        with publish_folder(target) as made:
            for place, text in texts.items():
                (made / place).parent.mkdir(parents=True, exist_ok=True)
                (made / place).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise UsageError(
            f"{target} exists already; choose another name or another folder."
        ) from error
    except OSError as error:
        kind = GnnbenchError if is_full(error) else UsageError
        raise kind(
            f"{target} cannot be written: {explain(error)}; choose another name or another folder."
        ) from error
    return tuple(sorted(target / place for place in texts))


def _refuse_taken(name: str) -> None:
    """Refuse a name that is on offer: two plugins with one name would stop every command."""
    registry = plugins.load()
    offered = {
        "strategy": {strategy.name for strategy in registry.strategies},
        "placement": {part.name for part in registry.parts_of("placement")},
        "communication": {part.name for part in registry.parts_of("communication")},
    }
    for what, names in offered.items():
        if name in names:
            raise UsageError(f"a {what} {name!r} is offered already; choose another name.")
