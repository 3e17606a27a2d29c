"""Small faults put into the code on purpose, and whether a test sees each of them.

``python -m tests.mutants`` puts the faults listed in the ``*.toml`` files beside this one into a
copy of the tree, one at a time, and runs the quick tests on it: first those that the fault's entry
names, and the whole rest where they all pass. A fault that no test sees has *survived*: it needs a
test. It is no part of ``make test``, since it takes hours; with ``--likely`` the rest is left out.

An entry is a ``[[mutant]]`` with a ``name``, a sentence of what it ``breaks``, the ``file``, the
``old`` text, which must stand there exactly once, the ``new`` one, and the likely ``tests``. One
whose text is not there any more is stale, and refused before anything runs.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: What a copy of the tree needs; compiled kernels lie beside the code.
COPIED = ("gnnbench", "plugins", "suites", "tests", "cython_ext", "docs", "results")
#: A run that says nothing for so long hangs, which is how some faults show.
SILENT_S = 600.0


#: What pytest says of words that it does not take; of a fault this says nothing.
UNUSABLE = ("ERROR: usage:", "ERROR: file or directory not found", "ERROR: not found")


class Stale(Exception):
    """The text of a mutant is not in the tree exactly once."""


@dataclass(frozen=True)
class Mutant:
    """A fault: in ``file``, ``old`` becomes ``new``. ``tests`` are those that should see it."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def find(self, root: Path) -> str:
        """The file's text with the fault in it; raises ``Stale``."""
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            raise Stale(f"{self.name}: its text is {count} times in {self.file}; mend the entry.")
        if self.old == self.new:
            raise Stale(f"{self.name}: it changes nothing.")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Verdict:
    """Whether a fault was seen, and by which test; empty where none did."""

    mutant: Mutant
    killed_by: str
    seconds: float


def load(directory: Path = HERE) -> tuple[Mutant, ...]:
    """The mutants of all files, by file and place in it. Raises ``ValueError`` for a name that
    comes twice."""
    mutants = tuple(
        Mutant(**{**entry, "tests": tuple(entry["tests"])})
        for path in sorted(directory.glob("*.toml"))
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    )
    names = [mutant.name for mutant in mutants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several mutants are called {twice[0]!r}; give each a name of its own")
    return mutants


def copy_tree(target: Path) -> None:
    """The tree that the tests run on, without what they or a build have left."""
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis", "asv", "asv-html")
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith(".git"):
            shutil.copy2(path, target / path.name)


@contextmanager
def planted(mutant: Mutant, root: Path) -> Iterator[None]:
    """The fault stands in the tree ``root`` for the body."""
    path = root / mutant.file
    faulty, original = mutant.find(root), path.read_text(encoding="utf-8")
    path.write_text(faulty, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(original, encoding="utf-8")


def run_tests(root: Path, tests: Sequence[str]) -> str:
    """The first test that fails in the tree ``root``; empty where all pass."""
    words = (
        sys.executable, "-m", "pytest", "-x", "-v", "--tb=no", "-m", "not long",
        "-p", "no:cacheprovider", "-n", "0", *tests,
    )  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root}:{root / 'plugins'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GNNBENCH_DATA": os.environ.get("GNNBENCH_DATA", str(ROOT.parent / "shared" / "data")),
    }
    process = subprocess.Popen(
        words,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = ""
    try:
        for line in read_lines(process):
            said = line.strip() or said
            if (found := next((text for text in UNUSABLE if text in line), None)) is not None:
                # Behind what pytest was about to say when its other stream spoke.
                raise RuntimeError(f"the tests cannot be run: {said[said.index(found) :]}")
            if " FAILED" in line or " ERROR" in line or line.startswith(("ERROR", "FAILED")):
                return line.split(" FAILED")[0].split(" ERROR")[0].strip()
        status = process.wait()
        if status in (0, 5):  # 5: nothing to run
            return ""
        if -status in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            raise RuntimeError(f"the tests were stopped from outside, after: {said}")
        return f"pytest ended with {status}: {said}"
    except TimeoutError:
        return f"hangs after: {said}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a process says; ``TimeoutError`` where it says nothing for long."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(SILENT_S):
            line = process.stdout.readline()
            if not line:
                return
            yield line
    raise TimeoutError


def judge(mutant: Mutant, root: Path, *, likely_only: bool) -> Verdict:
    """Run the tests on a fault, the likely ones first."""
    began_s = time.monotonic()
    with planted(mutant, root):
        killed_by = run_tests(root, mutant.tests)
        if not killed_by and not likely_only:
            killed_by = run_tests(root, [f"--deselect={name}" for name in mutant.tests])
    return Verdict(mutant, killed_by, time.monotonic() - began_s)
