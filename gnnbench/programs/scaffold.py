"""A new program: a training script that works, and its TOML file."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

from gnnbench.errors import UsageError
from gnnbench.host.files import explain, publish
from gnnbench.programs.files import NAME

#: Templates by the ending of the file that they become.
_TEMPLATES = {".py": "program.py.template", ".toml": "program.toml.template"}


def create_program(name: str, folder: Path) -> tuple[Path, ...]:
    """Write ``NAME.py`` and ``NAME.toml`` into a folder, and return both.

    Raises ``UsageError`` for a name that no program may have, and if a file exists already.
    """
    if not re.match(NAME, name):
        raise UsageError(
            f"{name!r} is no name for a program; use letters, digits, '-', '_' and '.'."
        )
    files = {folder / f"{name}{ending}": template for ending, template in _TEMPLATES.items()}
    for file in files:
        if file.exists():
            raise UsageError(f"{file} exists already; choose another name or another folder.")
    templates = resources.files(__package__) / "templates"
    for file, template in files.items():
        text = (templates / template).read_text(encoding="utf-8")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with publish(file, overwrite=False) as stream:
                stream.write(Template(text).substitute(name=name).encode())
        except OSError as error:
            raise UsageError(
                f"{file} cannot be written: {explain(error)}; choose another folder."
            ) from error
    return tuple(files)
