"""``suites/hongtu.py`` runs, and its figures are those of a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def suite(import_suite: Callable[[str], ModuleType]) -> ModuleType:
    return import_suite("hongtu")


def test_every_stage_of_planning_can_be_timed(suite: ModuleType) -> None:
    benchmark = suite.Planning()
    timed = [getattr(benchmark, name) for name in dir(benchmark) if name.startswith("time_")]
    assert len(timed) == 6
    assert benchmark.params == [suite.GRAPHS, suite.CHUNKS]
    values = ("cora", min(suite.CHUNKS))
    benchmark.setup(*values)
    for call in timed:
        call(*values)


@pytest.mark.long
def test_tracked_volumes_fall_and_more_chunks_take_less_memory(suite: ModuleType) -> None:
    """Table 8, and Figure 10: what chunks save in memory they cost in rows."""
    benchmark = suite.Plan()
    figures = benchmark.setup_cache()
    tracked = {
        (name, *values): getattr(benchmark, name)(figures, *values)
        for name in dir(benchmark)
        if name.startswith("track_")
        for values in itertools.product(*benchmark.params)
    }
    few, many = suite.CHUNKS
    for graph in suite.GRAPHS:
        for chunks in suite.CHUNKS:
            rows = ("track_original_rows", "track_rows_with_p2p", "track_rows_with_reuse")
            original, with_p2p, with_reuse = (tracked[name, graph, chunks] for name in rows)
            assert original > with_p2p > with_reuse > 0
        peak, host = "track_peak_device_bytes", "track_host_bytes"
        assert tracked[peak, graph, many] < tracked[peak, graph, few]
        assert tracked[host, graph, many] > tracked[host, graph, few]
