"""A constant that is changed by a factor of two moves the ledger, which says what got worse."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
#: A platform's file, the way to one of its constants, and whether it is a time rather than a rate.
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


def change_constant(text: str, way: tuple[str | int, ...], factor: float) -> str:
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
    """Both packages as links to the files that there are, compiled modules too, but for one."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            copy = folder / path.relative_to(ROOT)
            if path.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(text) if path == changed else copy.symlink_to(path)
    (folder / "tests").symlink_to(ROOT / "tests")


def run_ledger(folder: Path, ids: list[str]) -> subprocess.CompletedProcess[str]:
    """``python -m tests.ledger`` of the copy."""
    found = os.pathsep.join((str(folder), str(folder / "plugins")))
    only = f"^({'|'.join(map(re.escape, ids))})$"
    return subprocess.run(
        [sys.executable, "-m", "tests.ledger", "--only", only],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        check=False,
    )


def hold(folder: Path, path: Path, way: tuple[str | int, ...], ids: list[str]) -> None:
    """Twice and half of the constant fail, and one of the two names measurements that got worse."""
    worse = []
    for factor in (2.0, 0.5):
        copy = folder / str(factor)
        copy_project(copy, path, change_constant(path.read_text(), way, factor))
        done = run_ledger(copy, ids)
        assert done.returncode == 1, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert {line.partition(":")[0] for line in lines[:-1]} <= set(ids)
        worse += [line for line in lines if "WORSE" in line]
    assert worse


@pytest.mark.parametrize(("platform", "way"), PLATFORM_CONSTANTS)
def test_a_platforms_constant_moves_the_ledger(platform, way, tmp_path):
    path = ROOT / "gnnbench" / "platforms" / f"{platform}.toml"
    hold(tmp_path, path, way, list_quick_cells(machine=platform))


#: Where devices compute for longer than a library's calls take, as in all of PyG's full-graph
#: epochs, these cost nothing: a mini-batch of small layers shows them.
CALLS_SHOW = {"pyg": ["salient-arxiv-pyg-train"]}


@pytest.mark.parametrize("path", LIBRARIES, ids=lambda path: path.parent.name)
def test_a_librarys_constant_moves_the_ledger(path, tmp_path):
    kernel = {"reference": "torch"}.get(path.parent.name, path.parent.name)
    ids = CALLS_SHOW.get(kernel) or list_quick_cells(kernel=kernel)
    hold(tmp_path, path, ("call_s",), ids)


def test_nothing_moves_where_nothing_is_changed(tmp_path):
    path = ROOT / "gnnbench" / "platforms" / "p3-2xlarge.toml"
    copy_project(tmp_path, path, change_constant(path.read_text(), ("host", "launch"), 1.0))
    done = run_ledger(tmp_path, list_quick_cells(machine="p3-2xlarge"))
    assert done.returncode == 0, done.stdout + done.stderr
