"""A store of results: a folder with one file for every finished run.

A file is JSON lines: the configuration and the outcome, and then, if there is one, the result as
``--json`` writes it. It appears whole or not at all. Its name identifies the configuration and the
machine, so that copying files merges the stores of two machines.
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
from gnnbench.host.files import explain, publish, read_text
from gnnbench.report.results.schema import ResultDocument, parse_json, read_json

ENDING = ".jsonl"
#: More than any comparison writes.
_LIMIT_BYTES = 1 << 30

#: ``refused`` is an answer, as out of memory is: these parts or this machine do not fit together.
KeptStatus = Literal["done", "failed", "refused"]


class KeptHeader(BaseModel):
    """The configuration, the machine and the outcome; ``reason`` says why a run is not done."""

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
    """Return a digest of everything that decides a run; the order of keys does not matter."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def identify_machine(machine: Mapping[str, object]) -> str:
    """Return a short name of a machine, made of facts that do not change from run to run."""
    lasting = {name: machine.get(name) for name in ("cpu", "cores", "memory_bytes", "gpu")}
    return make_key(lasting)[:8]


def name_kept(store: Path, key: str, machine: str) -> Path:
    """Return the file of a run on a machine."""
    return store / f"{key}.{machine}{ENDING}"


def write_kept(store: Path, header: KeptHeader, document: ResultDocument | None) -> Path:
    """Keep a run, whole or not at all, in place of an earlier one."""
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
    """Read a file of a store. Raises ``UsageError`` if it is damaged or is no kept run."""
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
    """Read a result file, or the result in a kept run. Raises ``UsageError`` without a result."""
    if path.suffix != ENDING:
        return read_json(path)
    kept = read_kept(path)
    if kept.document is None:
        raise UsageError(f"{path} has no result: {kept.header.status}: {kept.header.reason}")
    return kept.document


def list_kept(store: Path) -> Iterator[Path]:
    """Yield the files of a store, by name. Raises ``UsageError`` if there is no such folder."""
    if not store.is_dir():
        raise UsageError(f"there is no folder {store}; name the store of a sweep, such as results.")
    yield from sorted(store.glob(f"*{ENDING}"))
