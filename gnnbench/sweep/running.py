"""Carrying out one configuration and keeping it, and finding those of a grid still to do."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gnnbench
from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.host.files import open_input
from gnnbench.host.waiting import wait_briefly
from gnnbench.records import PART_KINDS
from gnnbench.report.results.kept import (
    Kept,
    KeptHeader,
    KeptStatus,
    identify_machine,
    list_kept,
    make_key,
    read_kept,
    write_kept,
)
from gnnbench.report.results.schema import ResultDocument
from gnnbench.sweep.grid import Configuration
from gnnbench.sweep.launching import Node, RunLostError, needs_command, run_command

if TYPE_CHECKING:
    from gnnbench.plugins import Registry

#: The distributions whose versions decide what training computes, and how fast.
LIBRARIES = ("torch", "dgl", "torch-geometric", "torch-sparse", "pyg-lib", "numpy", "scipy")
#: The packages of libraries that parts and models derive from: their versions stand for them.
IMPORT_NAMES = ("torch", "dgl", "torch_geometric", "numpy", "scipy")
#: The suffixes of the files of a package that are run.
SOURCE_SUFFIXES = (".py", ".so", ".toml")


@dataclass(frozen=True, slots=True)
class Task:
    """A configuration to carry out, the digest that it is kept by, and the folder."""

    configuration: Configuration
    key: str
    store: Path

    def to_json(self) -> dict[str, Any]:
        """Return the task as another process is told it."""
        described = self.configuration.to_json()
        return {"configuration": described, "key": self.key, "store": str(self.store)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Task:
        """Make the task that :meth:`to_json` describes."""
        configuration = Configuration.from_json(told["configuration"])
        return cls(configuration, told["key"], Path(told["store"]))


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a grid in a store: tasks to do, kept runs, and damaged files."""

    tasks: tuple[Task, ...]
    kept: tuple[Kept, ...]
    damaged: tuple[str, ...]


def find_tasks(
    configurations: Sequence[Configuration],
    store: Path,
    registry: Registry,
    *,
    retry: bool = False,
    here: str = "",
) -> Found:
    """Return the tasks to do: configurations that the store lacks, and with ``retry`` failed ones.

    If ``here`` names a machine, times measured on another machine do not count.
    """
    files: dict[str, list[Kept]] = {}
    damaged = []
    for path in list_kept(store):
        try:
            kept = read_kept(path)
        except UsageError as error:
            damaged.append(str(error))
        else:
            files.setdefault(kept.header.key, []).append(kept)
    contents, sources = dict[str, str](), SourceDigests(registry)
    tasks: list[Task] = []
    found: list[Kept] = []
    for configuration in configurations:
        key = find_key(configuration, contents, sources)
        usable = [kept for kept in files.get(key, ()) if _counts(kept, here)]
        answers = [kept for kept in usable if kept.header.status != "failed" or not retry]
        if answers:
            found += answers[:1]
        else:
            tasks.append(Task(configuration, key, store))
    return Found(tuple(tasks), tuple(found), tuple(damaged))


def _counts(kept: Kept, here: str) -> bool:
    """Whether a kept run counts: modelled times do anywhere, measured ones on their machine."""
    modelled = kept.document is None or kept.document.platform.modelled
    return modelled or not here or kept.header.machine == here


def find_key(configuration: Configuration, contents: dict[str, str], sources: SourceDigests) -> str:
    """Return the digest of everything that decides a configuration's result.

    It covers the configuration, the files that it names, and the sources of gnnbench and of the
    plugins in use. It also covers the versions of Python and of the libraries. ``contents`` keeps
    the digests of files from one configuration to the next.
    """
    from gnnbench.datasets import find_file as find_dataset
    from gnnbench.machines.describe import find_file as find_platform
    from gnnbench.plugins import find_file as find_plugin

    job = configuration.job
    names = tuple(map(str, (job.dataset, job.platform, *job.plugins)))
    finders = (find_dataset, find_platform, *[find_plugin] * len(job.plugins))
    for name, find in zip(names, finders, strict=True):
        if name not in contents:
            file = find(name)
            # This machine's own file exists only once it was probed.
            contents[name] = _digest(file) if file is not None and file.exists() else ""
    programs = tuple(map(str, job.programs))
    for name in programs:
        if name not in contents:
            contents[name] = _digest_program(name, sources.registry)
    return make_key(
        {
            "configuration": configuration.to_json(),
            "contents": {name: contents[name] for name in (*names, *programs)},
            "gnnbench": gnnbench.__version__,
            "libraries": list_versions(),
            "sources": sources.of(configuration),
        }
    )


def _digest_program(name: str, registry: Registry) -> str:
    """Return a text that changes with a program, and with the files that its command names."""
    from gnnbench.programs.rows import describe_content, find_program

    text, files = describe_content(find_program(name, registry))
    return " ".join((text, *map(_digest, files)))


@cache
def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed ``LIBRARIES``, by name."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


class SourceDigests:
    """Digests of the packages that the parts and the model of a configuration come from."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._digests: dict[str, str] = {}

    def of(self, configuration: Configuration) -> dict[str, str]:
        """Return the digest of each package in use, by the package's name."""
        registry = self.registry
        used: list[type] = [cast("type", registry.model(configuration.job.model_name))]
        for name, swaps in configuration.job.chosen:
            used += [registry.part(kind, part) for kind, part in swaps]
            for parts in registry.strategy(name).bundles.values():
                used += [registry.part(kind, parts.named(kind)) for kind in PART_KINDS]
        modules = {base.__module__ for each in used for base in each.__mro__}
        packages = {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names)
        return {name: self._digest(name) for name in sorted(packages - set(IMPORT_NAMES))}

    def _digest(self, package: str) -> str:
        """Return the digest of a package's or module's files; empty if it has none."""
        if package not in self._digests:
            self._digests[package] = _digest_sources(package)
        return self._digests[package]


def _digest_sources(package: str) -> str:
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    folders = list(getattr(module, "__path__", ()))
    files = [] if file is None else [Path(file)]
    for folder in folders:
        files += [path for path in Path(folder).rglob("*") if path.suffix in SOURCE_SUFFIXES]
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        digest.update(f"{path.name} {_digest(path)}\n".encode())
    return digest.hexdigest()[:20] if files else ""


def _digest(file: Path) -> str:
    """Return SHA-256 of a file's bytes. Raises ``UsageError`` if it cannot be read."""
    digest = hashlib.sha256()
    with open_input(file) as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()[:20]


def run_task(task: Task, node: Node) -> tuple[KeptStatus, str]:
    """Carry a configuration out and keep its result; return its end and the reason.

    The first node of several keeps the result. An exception of the run is kept as the result.
    Raises ``RunLostError`` if the run is to be run again.
    """
    wait_briefly()  # before anything imports torch
    began, start_s = datetime.now(timezone.utc), time.perf_counter()
    document: ResultDocument | None = None
    status: KeptStatus = "failed"
    try:
        needs = needs_command(task.configuration)
        document = run_command(task, node) if needs else _compare(task.configuration)
        if document is None:
            return "done", ""
        status, reason = _judge(document)
    except RunLostError:
        raise
    except UsageError as error:
        status, reason = "refused", str(error)
    except Exception as error:
        words = " ".join(str(error).split())
        reason = words if isinstance(error, GnnbenchError) else f"{type(error).__name__}: {words}"
    keep(task, status, reason, began, time.perf_counter() - start_s, document)
    return status, reason


def keep(
    task: Task,
    status: KeptStatus,
    reason: str,
    began: datetime,
    took_s: float,
    document: ResultDocument | None = None,
) -> None:
    """Keep the end of a task's run, which ``began`` then and took ``took_s`` seconds."""
    from gnnbench.comparison import describe_machine

    header = KeptHeader(
        schema_version=1,
        key=task.key,
        machine=identify_machine(describe_machine()),
        gnnbench=gnnbench.__version__,
        configuration=task.configuration.to_json(),
        status=status,
        reason=reason,
        began=began.isoformat(timespec="seconds"),
        took_s=took_s,
    )
    write_kept(task.store, header, document)


def _compare(configuration: Configuration) -> ResultDocument:
    from gnnbench.comparison import compare
    from gnnbench.plugins import load
    from gnnbench.programs.rows import make_request
    from gnnbench.report.results.schema import to_document

    registry = load(list(map(str, configuration.job.plugins)))
    request = make_request(configuration.job, registry)
    return to_document(compare(request, registry, command=("gnnbench", "sweep")))


def _judge(document: ResultDocument) -> tuple[KeptStatus, str]:
    """Return "failed" if a run failed, to be retried; a run that does not fit is an answer."""
    if document.interrupted:
        return "failed", document.interrupted
    failed = [f"{run.label}: {run.reason}" for run in document.runs if run.status == "error"]
    return ("failed", "; ".join(failed)) if failed else ("done", "")
