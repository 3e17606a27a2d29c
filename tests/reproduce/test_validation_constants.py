"""A constant that is changed by a factor of two moves the ledger, which says what got worse."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomlkit

from gnnbench_plugins.studies.validation.published import (
    Aggregation,
    FullGraphEpoch,
    LayerForward,
    PublishedCell,
    read_sources,
)

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gnnbench", "plugins/gnnbench_plugins")
LIBRARIES = sorted((ROOT / "plugins/gnnbench_plugins").glob("*/library.toml"))
Way = tuple[str | int, ...]
#: A platform's file, the way to one of its constants.
PLATFORM_CONSTANTS = (
    ("r6i-12xlarge", ("host", "launch")),
    ("r6i-16xlarge", ("host", "memory_bandwidth")),
    ("p3-2xlarge", ("accelerators", 0, "memory_bandwidth")),
    ("p3-2xlarge", ("accelerators", 0, "flops")),
)
#: As many measurements are predicted again with a changed constant.
MOST = 6


def is_quick(cell: PublishedCell) -> bool:
    """Whether nothing has to be gone through round by round for it."""
    task = cell.task
    whole = isinstance(task, FullGraphEpoch) and task.system == "library"
    return whole or isinstance(task, Aggregation | LayerForward)


def list_quick_cells(**fields: str) -> list[str]:
    """Ids of those with these values: of many, ``MOST`` that are spread over all."""
    ids = [
        cell.id
        for source in read_sources()
        for cell in source.cell
        if is_quick(cell) and all(getattr(cell, name) == its for name, its in fields.items())
    ]
    return ids[:: -(-len(ids) // MOST)]


def change_constant(text: str, way: Way, factor: float) -> str:
    """A TOML file with one of its constants multiplied, and taken for plausible all the same."""
    document = tomlkit.parse(text)
    number = document
    for step in way:
        number = number[step]
    number["value"] = number["value"] * factor
    if "plausible" in number:
        number["plausible"] = [0, 1e30]
    return tomlkit.dumps(document)


def copy_project(folder: Path, changed: Path, text: str) -> None:
    """Both packages and the tests as links to what there is, but for one file."""
    for name in (*PACKAGES, "tests"):
        link_all(ROOT / name, folder / name, changed)
    (folder / changed.relative_to(ROOT)).write_text(text)


def link_all(there: Path, copy: Path, changed: Path) -> None:
    """Folders that the changed file is in are made, and everything else in them is a link."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    if there in changed.parents:
        copy.mkdir()
        for path in there.iterdir():
            link_all(path, copy / path.name, changed)
    elif there != changed:
        copy.symlink_to(there)


#: ``python -m tests.ledger`` in several folders, by processes that share what takes longest, which
#: is to load the libraries: each is forked before anything of this project is loaded. The
#: arguments are a folder and an expression for ids, and again.
LEDGERS = """
import os, runpy, sys
from contextlib import suppress
from types import ModuleType
os.environ["DGLBACKEND"] = "pytorch"
sys.modules["dgl.graphbolt"] = ModuleType("dgl.graphbolt")  # not every DGL has one that loads
for library in ("torch", "dgl", "torch_geometric"):
    with suppress(ImportError):
        __import__(library)
assert not any(name.split(".")[0] in ("gnnbench", "gnnbench_plugins") for name in sys.modules)
for folder, only in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    os.chdir(folder)
    sys.path[:0] = [folder, folder + "/plugins"]
    sys.argv = ["tests.ledger", "--only", only]
    sys.stdout = sys.stderr = open("printed", "w")
    status = 3
    try:
        runpy.run_module("tests.ledger", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    finally:
        import gnnbench
        assert gnnbench.__file__.startswith(folder)
        sys.stdout.flush()
        open("status", "w").write(str(status))
        os._exit(0)
"""
Done = tuple[int, str]


def run_ledgers(folders: Mapping[Path, list[str]]) -> dict[Path, Done]:
    """``python -m tests.ledger`` in each copy for those ids: how it ended, and what it printed."""
    words = [
        word
        for folder, ids in folders.items()
        for word in (str(folder), f"^({'|'.join(map(re.escape, ids))})$")
    ]
    environment = {name: its for name, its in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", LEDGERS, *words],
        cwd=next(iter(folders)),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        folder: (int((folder / "status").read_text()), (folder / "printed").read_text())
        for folder in folders
    }


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory) -> dict[tuple[object, ...], Done]:
    """By a file, the way to its constant and the factor that it was changed by."""
    made: dict[tuple[object, ...], Path] = {}
    wanted: dict[Path, list[str]] = {}
    for (path, way), ids in CHANGES.items():
        for factor in (1.0,) if (path, way) == UNCHANGED else (2.0, 0.5):
            folder = made[path, way, factor] = tmp_path_factory.mktemp("copy")
            copy_project(folder, path, change_constant(path.read_text(), way, factor))
            wanted[folder] = ids
    done = run_ledgers(wanted)
    return {change: done[folder] for change, folder in made.items()}


def hold(ledgers: Mapping[tuple[object, ...], Done], path: Path, way: Way) -> None:
    """Twice and half of the constant fail, and one of the two names measurements that got worse."""
    worse = []
    for factor in (2.0, 0.5):
        status, printed = ledgers[path, way, factor]
        assert status == 1, printed
        lines = printed.splitlines()
        assert {line.partition(":")[0] for line in lines[:-1]} <= set(CHANGES[path, way])
        worse += [line for line in lines if "WORSE" in line]
    assert worse


#: Where devices compute for longer than a library's calls take, as in all of PyG's full-graph
#: epochs, these cost nothing: a mini-batch of small layers shows them.
CALLS_SHOW = {"pyg": ["salient-arxiv-pyg-train"]}
PLATFORMS = ROOT / "gnnbench" / "platforms"
#: What is predicted without any change.
UNCHANGED = PLATFORMS / "p3-2xlarge.toml", ("host", "launch")


def list_changes() -> dict[tuple[Path, Way], list[str]]:
    """Ids of the measurements that are predicted again for each constant."""
    changes: dict[tuple[Path, Way], list[str]] = {
        (PLATFORMS / f"{platform}.toml", way): list_quick_cells(machine=platform)
        for platform, way in PLATFORM_CONSTANTS
    }
    for path in LIBRARIES:
        kernel = {"reference": "torch"}.get(path.parent.name, path.parent.name)
        ids = CALLS_SHOW.get(kernel) or list_quick_cells(kernel=kernel)
        changes[path, ("call_s",)] = ids
    changes[UNCHANGED] = list_quick_cells(machine="p3-2xlarge")
    return changes


CHANGES = list_changes()


@pytest.mark.parametrize(("platform", "way"), PLATFORM_CONSTANTS)
def test_a_platforms_constant_moves_the_ledger(platform, way, ledgers):
    hold(ledgers, PLATFORMS / f"{platform}.toml", way)


@pytest.mark.parametrize("path", LIBRARIES, ids=lambda path: path.parent.name)
def test_a_librarys_constant_moves_the_ledger(path, ledgers):
    hold(ledgers, path, ("call_s",))


def test_nothing_moves_where_nothing_is_changed(ledgers):
    status, printed = ledgers[(*UNCHANGED, 1.0)]
    assert status == 0, printed
