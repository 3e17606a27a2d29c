"""``suites/hpgnn.py`` runs, and its figures are those of a simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
GRAPH = "sbm:vertices=600,edges=3000,features=256,classes=3"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The suite as asv imports it, from a package of the repository's root."""
    sys.path.insert(0, str(ROOT))
    try:
        import suites.hpgnn
    finally:
        sys.path.remove(str(ROOT))
    monkeypatch.setattr(suites.hpgnn, "REPEATS", 1)
    return suites.hpgnn


def test_a_mini_batch_is_simulated_and_its_rates_are_tracked(suite: ModuleType) -> None:
    benchmark = suite.CycleModel()
    benchmark.setup(GRAPH)
    benchmark.time_mini_batch(GRAPH)
    cycles = benchmark.track_cycles(GRAPH)
    assert cycles == benchmark.track_cycles(GRAPH) > 0
    for track in (benchmark.track_wide_edge_words, benchmark.track_narrow_edge_words):
        assert track(GRAPH) > 0
        assert track.unit == "edge-words/s"
