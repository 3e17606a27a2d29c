"""``suites/mixgcn.py`` runs, and its figures are those of an order and a plan."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

GRAPH = "sbm:vertices=600,edges=1500,features=8,classes=3"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch, import_suite: Callable[[str], ModuleType]) -> ModuleType:
    module = import_suite("mixgcn")
    monkeypatch.setattr(module, "GRAPHS", [GRAPH])
    return module


def test_every_step_of_ordering_and_planning_can_be_timed(suite: ModuleType) -> None:
    count = 0
    for benchmark in (suite.Ordering(), suite.Planning()):
        benchmark.setup(GRAPH)
        for name in dir(benchmark):
            if name.startswith("time_"):
                getattr(benchmark, name)(GRAPH)
                count += 1
    assert count == 6


def test_tracked_figures_agree_with_each_other(suite: ModuleType) -> None:
    benchmark = suite.Plan()
    figures = benchmark.setup_cache()
    tracked = {
        name: getattr(benchmark, name)(figures, GRAPH)
        for name in dir(benchmark)
        if name.startswith("track_")
    }
    assert len(tracked) == len(figures) == 5
    width = tracked["track_bandwidth"]
    assert tracked["track_stages"] == min(-(-1200 // (600 - width)), 64)
    # Forward f^0, f^1 to update, twice f^1 between layers, and backward.
    assert tracked["track_all_to_all_bytes"] == 600 * 4 * (8 + 4 * 128 + 4 * 128)
