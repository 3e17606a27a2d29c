"""Long tests come last, and only where all others pass."""

from __future__ import annotations

import os

import pytest

# As on the command line, before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=is_long)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if item.session.testsfailed and nextitem is not None and is_long(nextitem):
        item.session.shouldstop = "a test failed, so the long ones are left out"
