"""A store of results: a folder in which every finished run has a file of its own.

A file is JSON lines: what was run and how it ended, and then, where there is one, the result as
``--json`` writes it. It appears whole or not at all, under a name that says what was run and on
which machine, so that the stores of two machines are made one by copying their files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.files import explain, publish, read_text
from gnnbench.results.schema import ResultDocument, parse_json, read_json

ENDING = ".jsonl"
#: Beyond what any comparison writes.
_LIMIT_BYTES = 1 << 30

#: ``refused`` is an answer, as out of memory is: these parts or this machine do not fit together.
KeptStatus = Literal["done", "failed", "refused"]


class KeptHeader(BaseModel):
    """What was run, where, and how it ended; ``reason`` says why where it was not done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1]
    key: str
    machine: str
    gnnbench: str
    configuration: dict[str, JsonValue]
    status: KeptStatus
    reason: str
    began: str
    took_s: float


@dataclass(frozen=True, slots=True)
class Kept:
    """One file of a store."""

    path: Path
    header: KeptHeader
    document: ResultDocument | None


def make_key(content: Mapping[str, object]) -> str:
    """A digest of what decides a run, the same for the same content in any order."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def identify_machine(machine: Mapping[str, object]) -> str:
    """A short name of a machine, of what does not change from run to run."""
    lasting = {name: machine.get(name) for name in ("cpu", "cores", "memory_bytes", "gpu")}
    return make_key(lasting)[:8]


def name_kept(store: Path, key: str, machine: str) -> Path:
    """The file of a run on a machine."""
    return store / f"{key}.{machine}{ENDING}"


def write_kept(store: Path, header: KeptHeader, document: ResultDocument | None) -> Path:
    """Keep a run, whole or not at all; what was kept of it before is replaced."""
    path = name_kept(store, header.key, header.machine)
    lines = [header.model_dump(mode="json")]
    if document is not None:
        lines.append(document.model_dump(mode="json", by_alias=True))
    text = "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)
    try:
        with publish(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise GnnbenchError(f"{path} could not be written: {explain(error)}.") from error
    return path


def read_kept(path: Path) -> Kept:
    """A file of a store. Raises ``UsageError`` for one that is damaged or is none."""
    first, _, rest = read_text(path, _LIMIT_BYTES).partition("\n")
    try:
        header = KeptHeader.model_validate_json(first)
    except ValidationError as error:
        raise UsageError(
            f"{path} is not a kept run: its first line does not say what was run; delete it and "
            f"sweep again."
        ) from error
    return Kept(path, header, parse_json(path, rest) if rest.strip() else None)


def read_result(path: Path) -> ResultDocument:
    """A result file, or the result in a kept run. Raises ``UsageError`` where there is none."""
    if path.suffix != ENDING:
        return read_json(path)
    kept = read_kept(path)
    if kept.document is None:
        raise UsageError(f"{path} has no result: {kept.header.status}: {kept.header.reason}")
    return kept.document


def list_kept(store: Path) -> Iterator[Path]:
    """The files of a store, by name. Raises ``UsageError`` where there is no such folder."""
    if not store.is_dir():
        raise UsageError(f"there is no folder {store}; name the store of a sweep, such as results.")
    yield from sorted(store.glob(f"*{ENDING}"))
