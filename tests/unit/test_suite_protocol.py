"""``suites.protocol`` measures what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gnnbench import datasets
from gnnbench.engine.machinery import Replicas
from suites import protocol

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def small_graph():
    return datasets.load("sbm:vertices=400,edges=2400,features=12,classes=4")


def test_the_measurement_of_this_machine_runs(small_graph):
    """``suites.protocol``: three ratios, each of epochs that really ran."""
    findings = protocol.measure(small_graph, "small", "gcn", "torch", protocol.Options(3, 40))
    assert [found.what for found in findings] == [
        "one-stage prefetching / no prefetching",
        "two-stage prefetching / no prefetching",
        "bare loop / no prefetching",
    ]
    for found in findings:
        first_s, second_s = found.seconds
        assert first_s > 0
        assert found.speedup.ratio == pytest.approx(second_s / first_s)


def test_the_bare_loop_is_the_same_training(monkeypatch, small_graph):
    """Both step with the same gradients: the harness is measured against nothing less."""
    setting = protocol.make_setting(small_graph, "sage", 40)
    stepped = []
    step = Replicas.step

    def keep(replicas, gradients):
        stepped.append([gradient.clone() for gradient in gradients])
        step(replicas, gradients)

    monkeypatch.setattr(Replicas, "step", keep)
    protocol.make_epoch(setting, 0, "torch")(0)
    engine, stepped[:] = list(stepped), []
    protocol.make_bare_loop(setting, "torch")(0)
    assert len(stepped) == len(engine) == 3
    for ours, theirs in zip(engine, stepped, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
