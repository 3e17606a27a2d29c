"""Long tests come last, and only where all others pass."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# As on the command line, before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Tables are as wide as in a file, whatever terminal the tests are run from.
os.environ.pop("COLUMNS", None)


def is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=is_long)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if item.session.testsfailed and nextitem is not None and is_long(nextitem):
        item.session.shouldstop = "a test failed, so the long ones are left out"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Graphs as small as the tests' only wait for a second thread, and the machine may be busy."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
