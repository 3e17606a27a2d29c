"""What all tests share: signals, threads, the command line in this process."""

import importlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from gnnbench.cli import main
from gnnbench.host.waiting import wait_briefly
from tests.watchdog import Watchdog

ROOT = Path(__file__).resolve().parents[1]

# As under CI: the same examples each time, and none is refused because the machine is busy.
settings.load_profile("ci")
# As on the command line, before anything imports torch.
wait_briefly()
# What a shell runs in the background ignores interrupts, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Tables are as wide as in a file, whatever terminal the tests are run from.
os.environ.pop("COLUMNS", None)
# What a command writes on standard error does not depend on how long it takes.
os.environ["GNNBENCH_QUIET"] = "1"
# Parts of commands that tests stop are no other command's.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="gnnbench-tests-")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Graphs as small as the tests' only wait for a second thread, and the machine may be busy."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs the command line in this process."""

    def run_command(*words: str | Path) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words])

    return run_command


@pytest.fixture(scope="session")
def registry() -> Any:
    """Return the registry of the installed plugins."""
    from gnnbench import plugins

    return plugins.load()


@pytest.fixture
def watchdog(request: pytest.FixtureRequest) -> Iterator[Watchdog]:
    """Ends a test, and the process, that stands still: neither a tick of it nor any work."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    made = Watchdog(showing=capture.global_and_fixture_disabled() if capture else None)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def no_hang_and_no_leak(watchdog: Watchdog) -> Iterator[None]:
    """A test that hangs is killed with the stacks of all threads; one that leaks a thread fails."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(scope="session")
def import_suite() -> Callable[[str], ModuleType]:
    """A module of ``suites/`` by name, as asv imports it: from a package of the repository's root,
    which is on the path no longer than that takes."""

    def import_named(name: str) -> ModuleType:
        sys.path.insert(0, str(ROOT))
        try:
            return importlib.import_module(f"suites.{name}")
        finally:
            sys.path.remove(str(ROOT))

    return import_named
