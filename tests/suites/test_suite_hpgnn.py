"""``suites/hpgnn.py`` runs, and its figures are those of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

GRAPH = "sbm:vertices=600,edges=3000,features=256,classes=3"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch, import_suite: Callable[[str], ModuleType]) -> ModuleType:
    module = import_suite("hpgnn")
    monkeypatch.setattr(module, "REPEATS", 1)
    return module


def test_a_mini_batch_is_simulated_and_its_rates_are_tracked(suite: ModuleType) -> None:
    benchmark = suite.CycleModel()
    benchmark.setup(GRAPH)
    benchmark.time_mini_batch(GRAPH)
    cycles = benchmark.track_cycles(GRAPH)
    assert cycles == benchmark.track_cycles(GRAPH) > 0
    for track in (benchmark.track_wide_edge_words, benchmark.track_narrow_edge_words):
        assert track(GRAPH) > 0
        assert track.unit == "edge-words/s"
