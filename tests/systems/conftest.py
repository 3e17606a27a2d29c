"""All tests of this folder run on one thread."""

import pytest

from gnnbench.machines.machine import Link


@pytest.fixture(scope="module", autouse=True)
def on_one_thread(one_thread):
    """No test needs a second thread for graphs as small as these."""


@pytest.fixture
def slow_links(monkeypatch):
    """Links take twice as long, as a kind of link with a price of its own might."""
    crossing_s = Link.crossing_s
    monkeypatch.setattr(Link, "crossing_s", lambda *given: 2 * crossing_s(*given))
