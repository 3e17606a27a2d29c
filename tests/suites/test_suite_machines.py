"""The benchmark of MixGCN's cycle models runs, and its figures follow from the seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch, import_suite: Callable[[str], ModuleType]) -> ModuleType:
    """On a graph small enough for a test."""
    module = import_suite("machines")
    assert module.__file__ == str(ROOT / "suites" / "machines.py")
    monkeypatch.setattr(module, "GRAPHS", {"orkut": 512})
    return module


def test_every_machine_is_timed_and_tracked(suite: ModuleType) -> None:
    graphs, machines = suite.Machines.params
    assert graphs == ["reddit", "orkut"]
    assert machines == ["SPU", "HyGCN", "AWB-GCN"]
    seconds = {}
    for machine in machines:
        benchmark = suite.Machines()
        benchmark.setup("orkut", machine)
        assert benchmark.machine.name == machine
        benchmark.time_simulate("orkut", machine)
        seconds[machine] = benchmark.track_modelled_seconds("orkut", machine)
        assert benchmark.track_modelled_seconds("orkut", machine) == seconds[machine]
        # Every row that has an edge is read at least once, and half of the outputs are written.
        outputs = 4 * suite.WIDTH * benchmark.matrix.num_dst
        assert benchmark.track_hbm_bytes("orkut", machine) > 1.4 * outputs
        assert 0 < benchmark.track_occupancy("orkut", machine) < 1
    assert len(set(seconds.values())) == 3
