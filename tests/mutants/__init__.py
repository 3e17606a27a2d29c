"""Small faults put into the code on purpose, and the test that sees each of them.

``python -m tests.mutants`` plants the faults listed in the ``*.toml`` files beside this one in
copies of the tree, one fault at a time, and runs the quick tests on each copy. The tests that a
fault's entry names come first. The rest follows where they all pass. A fault that no test sees has
*survived*: it needs a test. The command takes hours, so it is no part of ``make test``. With
``--likely`` it runs the named tests alone.

An entry stands under its file. It has a sentence of its own on what it ``breaks``, the ``old``
text, the ``new`` text and the likely ``tests``, by default those at the head of its list. The
``old`` text must stand in the file exactly once; otherwise the entry is stale, and refused before
anything runs.

The command forks the tests' processes from one that has imported torch, DGL and PyG already.
"""

import contextlib
import ctypes
import multiprocessing
import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: The folders that a copy of the tree needs. Compiled kernels lie beside the code.
COPIED = ("gnnbench", "plugins", "suites", "tests", "cython_ext", "docs", "results")
#: The contracts of test files, by file.
CONTRACTS = "contracts.toml"
#: A run that prints nothing for this long hangs, which is how some faults show.
SILENT_S = 600.0
#: The packages that a forked process imports anew, from the tree with the fault.
OWN = ("gnnbench", "gnnbench_plugins", "tests", "suites")
#: Errors of pytest about its arguments. They say nothing about a fault.
UNUSABLE = ("ERROR: usage:", "ERROR: file or directory not found", "ERROR: not found")
#: ``prctl``'s request for a signal when the parent process ends.
PR_SET_PDEATHSIG = 1
#: Tests run in processes that are forked from one server.
NURSERY = multiprocessing.get_context("forkserver")


class StaleError(Exception):
    """The text of a mutant is not in the tree exactly once."""


@dataclass(frozen=True)
class Mutant:
    """A fault: in ``file``, ``old`` becomes ``new``. ``tests`` are those that should see it."""

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
            raise StaleError(
                f"{self.breaks} Its text is {count} times in {self.file}; mend the entry."
            )
        if self.old == self.new:
            raise StaleError(f"{self.breaks} It changes nothing.")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Verdict:
    """The test that saw a fault, or an empty string, and how long the tests took."""

    mutant: Mutant
    killed_by: str
    seconds: float


def load(directory: Path = HERE) -> tuple[Mutant, ...]:
    """The mutants of all lists. Raises ``ValueError`` for a sentence that comes twice."""
    mutants = []
    for path in sorted(directory.glob("*.toml")):
        if path.name != CONTRACTS:
            files = tomllib.loads(path.read_text(encoding="utf-8"))
            usual = files.pop("tests", ())
            for file, entries in files.items():
                for entry in entries:
                    tests = tuple(entry.pop("tests", usual))
                    mutants.append(Mutant(file=file, tests=tests, **entry))
    told = [mutant.breaks for mutant in mutants]
    if twice := sorted({sentence for sentence in told if told.count(sentence) > 1}):
        raise ValueError(f"several mutants are called {twice[0]!r}; say of each what it breaks")
    return tuple(mutants)


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
    """Return the first test that fails in the tree ``root``, or an empty string.

    Raises ``RuntimeError`` where the tests cannot be run, or are stopped from outside.
    """
    words = (
        "-x", "-v", "--tb=no", "-m", "not long", "-p", "no:cacheprovider", "-n", "0", *tests,
    )  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root}:{root / 'plugins'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GNNBENCH_DATA": os.environ.get("GNNBENCH_DATA", str(ROOT.parent / "shared" / "data")),
    }
    reader, writer = NURSERY.Pipe(duplex=False)
    process = NURSERY.Process(target=be_pytest, args=(root, words, environment, writer))
    process.start()
    writer.close()
    said = ""
    try:
        for line in read_lines(reader):
            said = line.strip()[:100] or said
            if (found := next((text for text in UNUSABLE if text in line), None)) is not None:
                # Standard output and standard error share the pipe, and may share a line.
                raise RuntimeError(f"the tests cannot be run: {said[said.index(found) :]}")
            if " FAILED" in line or " ERROR" in line or line.startswith(("ERROR", "FAILED")):
                return line.split(" FAILED")[0].split(" ERROR")[0].strip()
        process.join()
        status = process.exitcode or 0
        if status in (0, 5):  # 5: nothing to run
            return ""
        if -status in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            raise RuntimeError(f"the tests were stopped from outside, after: {said}")
        return f"pytest ended with {status}: {said}"
    except TimeoutError:
        return f"hangs after: {said}"
    finally:
        if process.is_alive() and process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        reader.close()


def be_pytest(
    root: Path, words: Sequence[str], environment: dict[str, str], writer: Connection
) -> None:
    """Run pytest in the tree ``root`` in this forked process, and print to ``writer``."""
    os.setsid()  # so that a fault that hangs ends with all the processes it started
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for descriptor in (1, 2):
        os.dup2(writer.fileno(), descriptor)
    writer.close()
    os.chdir(root)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = True
    elsewhere = [path for path in sys.path if Path(path or ROOT).resolve() not in own_paths()]
    sys.path[:] = [str(root), str(root / "plugins"), *elsewhere]
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        del sys.modules[name]
    import pytest

    status = int(pytest.main(list(words)))
    sys.stdout.flush()
    os._exit(status)


def own_paths() -> tuple[Path, ...]:
    return (ROOT, ROOT / "plugins")


def read_lines(reader: Connection) -> Iterator[str]:
    """Yield the lines of a pipe; raise ``TimeoutError`` after ``SILENT_S`` of silence."""
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while selector.select(SILENT_S):
            piece = os.read(reader.fileno(), 1 << 16)
            if not piece:
                if text:
                    yield text.decode(errors="replace")
                return
            *lines, text = (text + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
    raise TimeoutError


def judge(mutant: Mutant, root: Path, *, likely_only: bool) -> Verdict:
    """Run the tests on a fault, the likely ones first."""
    began_s = time.monotonic()
    with planted(mutant, root):
        killed_by = run_tests(root, mutant.tests)
        if not killed_by and not likely_only:
            killed_by = run_tests(root, [f"--deselect={name}" for name in mutant.tests])
    return Verdict(mutant, killed_by, time.monotonic() - began_s)


def list_guards(mutants: Sequence[Mutant]) -> dict[str, str]:
    """Return what each test file guards: the faults that name it alone, or its contract.

    A fault names a file alone where its ``tests`` have no other. Contracts are in
    ``contracts.toml``, by file. A file with neither has an empty string.
    """
    contracts = tomllib.loads((HERE / CONTRACTS).read_text(encoding="utf-8"))
    guards = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = str(path.relative_to(ROOT))
        alone = [mutant.breaks for mutant in mutants if mutant.tests == (file,)]
        faults = f"{len(alone)} faults alone: {' '.join(alone)}" if alone else ""
        guards[file] = faults or contracts.get(file, "")
    return guards
