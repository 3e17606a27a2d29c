"""The TOML file of a program by command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gnnbench.errors import UsageError
from gnnbench.host.files import FileRefusedError, resolve
from gnnbench.host.toml import read_toml
from gnnbench.records import CommandProgram, Mode

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
#: The places in a command that gnnbench fills in.
PLACES = ("task", "folder", "python")
#: The longest patience, a day.
MOST_PATIENCE_S = 86_400


class ProgramTable(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=NAME)]
    command: Annotated[list[str], Field(min_length=1)]
    modes: Annotated[list[Mode], Field(min_length=1)]
    models: Annotated[list[str], Field(min_length=1)]
    environment: dict[str, str] = {}
    options: dict[str, Annotated[int, Field(ge=0)]] = {}
    patience: Annotated[int, Field(ge=1, le=MOST_PATIENCE_S)] = 600


def is_file(name: str) -> bool:
    """Whether the name of a program is that of a file."""
    return name.endswith(".toml") or os.sep in name


def read_program(path: Path) -> CommandProgram:
    """Read a program's file. Raises ``UsageError``, one sentence with the key."""
    file = resolve(path)
    try:
        content = read_toml(file)
    except FileRefusedError as error:
        raise UsageError(
            f"{path}: {error.reason}; give a program's TOML file, as `gnnbench programs new` "
            f"writes it."
        ) from error
    try:
        table = ProgramTable.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{path}: {_describe(error)}") from error
    for option in table.options:
        if option in PLACES or not any(f"{{{option}}}" in word for word in table.command):
            raise UsageError(
                f"{path}: option {option!r} has no effect; write {{{option}}} into command, and "
                f"call no option {', '.join(PLACES)}."
            )
    return CommandProgram(
        name=table.name,
        command=tuple(table.command),
        modes=tuple(dict.fromkeys(table.modes)),
        models=tuple(dict.fromkeys(table.models)),
        environment=dict(table.environment),
        folder=str(file.parent),
        patience_s=table.patience,
        options=dict(table.options),
    )


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "the file"
    if first["type"] == "extra_forbidden":
        return f"there is no key {key!r}; the keys are {', '.join(ProgramTable.model_fields)}."
    if first["type"] == "missing":
        return f"{key} is missing; see docs/programs.md for the keys of a program's file."
    return f"at {key}, {first['msg'].lower()}; mend its value."
