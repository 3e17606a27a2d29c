"""Rows that a device picks out of the features it has, on the host by the run's own threads."""

import dataclasses

import pytest

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_this_host, make_workload
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.run import columns, features, input_rows, train


@pytest.mark.parametrize("strategy", ["reference", "p3"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_host_picks_by_the_threads_of_the_run(registry, strategy, threads, monkeypatch):
    found: list[int] = []
    gather, pick = features.gather_rows, features.pick_rows
    picking = False

    def keep_threads(*args, threads, **rest):
        if picking:
            found.append(threads)
        return gather(*args, threads=threads, **rest)

    def pick_rows(*args):
        nonlocal picking
        picking = True
        try:
            return pick(*args)
        finally:
            picking = False

    monkeypatch.setattr(features, "gather_rows", keep_threads)
    monkeypatch.setattr(input_rows, "pick_rows", pick_rows)
    monkeypatch.setattr(columns, "pick_rows", pick_rows)
    workload = dataclasses.replace(make_workload("sage", 2), threads=threads)
    setting = Setting(make_dataset(), make_this_host(), workload, build(workload).shapes)
    parts = registry.strategy(strategy).bundles["mini-batch"]
    if strategy == "reference":
        parts = dataclasses.replace(parts, memory="resident", communication="none")
    bundle = plugins.assemble(registry, parts, {})
    train(bundle, setting, WallClock())
    assert found
    assert set(found) == {threads}
