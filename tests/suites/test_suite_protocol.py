"""``suites.protocol`` measures what it says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.run.replicas import Replicas
from suites import protocol

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def small_graph():
    return datasets.load("sbm:vertices=400,edges=2400,features=12,classes=4")


def test_the_measurement_of_this_machine_runs(small_graph):
    """``suites.protocol``: three ratios, each of epochs that really ran."""
    findings = protocol.measure(small_graph, "small", "gcn", "torch", protocol.Options(0.0, 40))
    assert [found.what for found in findings] == [
        "one-stage prefetching / no prefetching",
        "two-stage prefetching / no prefetching",
        "bare loop / engine",
    ]
    for found in findings:
        assert min(found.seconds) > 0
        assert 0 < found.ratio.low <= found.ratio.median <= found.ratio.high


def test_turns_are_as_many_as_asked_and_in_every_order():
    ran = []
    epochs = {name: lambda turn, name=name: ran.append((turn, name)) for name in "abc"}
    seconds = protocol.take_turns(epochs, 0.0)
    assert {name: len(taken) for name, taken in seconds.items()} == dict.fromkeys("abc", 5)
    turns = [[name for at, name in ran[3:] if at == turn] for turn in range(1, 6)]
    assert ["".join(turn) for turn in turns] == ["abc", "acb", "bca", "bac", "cab"]


def test_a_ratio_is_of_what_ran_in_the_same_turn():
    """A machine that is twice as slow for a while slows both alike."""
    ours = [1.0, 2.0, 1.0, 4.0, 3.0]
    ratio = protocol.find_ratio(ours, [1.5 * seconds for seconds in ours])
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    mixed = protocol.find_ratio([1.0] * 5, [1.0, 1.1, 1.2, 1.3, 1.4])
    assert mixed.median == pytest.approx(1.2)
    assert 1.0 <= mixed.low < 1.2 < mixed.high <= 1.4


def test_a_disturbed_round_does_not_move_the_ratio_of_epochs():
    bare = np.tile([0.5, 10.0, 10.0, 5.0], (7, 1))
    ours = bare * 1.01
    ours[2, 1] = bare[4, 3] = 1000.0
    ratio = protocol.find_epoch_ratio(bare, ours)
    assert (ratio.median, ratio.low) == pytest.approx((1.01, 1.01))


@pytest.mark.parametrize("cores", [2, 3])
def test_a_line_says_where_nothing_is_prefetched(monkeypatch, small_graph, cores):
    local = protocol.load_platform(protocol.LOCAL)
    host = replace(local.host, cores=cores)
    monkeypatch.setattr(protocol, "load_platform", lambda name: replace(local, host=host))
    findings = protocol.measure(small_graph, "small", "gcn", "torch", protocol.Options(0.0, 40))
    assert [found.same for found in findings] == [cores == 2, cores == 2, False]


def test_the_bare_loop_is_the_same_training(monkeypatch, small_graph):
    """Both step with the same gradients: the harness is measured against nothing less."""
    setting = protocol.make_setting(small_graph, "sage", 40)
    stepped = []
    step = Replicas.step

    def keep(replicas, gradients):
        stepped.append([gradient.clone() for gradient in gradients])
        step(replicas, gradients)

    monkeypatch.setattr(Replicas, "step", keep)
    trace = protocol.make_epoch(setting, 0, "torch")(0)
    engine, stepped[:] = list(stepped), []
    summed = sum(protocol.make_bare_loop(setting, "torch")(0))
    assert summed == pytest.approx(trace.loss * len(small_graph.train_ids), rel=1e-12)
    assert len(stepped) == len(engine) == 3
    for ours, theirs in zip(engine, stepped, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
