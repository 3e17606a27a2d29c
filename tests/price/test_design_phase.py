"""The design phase: the rates that it finds in recorded spans."""

from dataclasses import replace

import pytest

from gnnbench import datasets, plugins
from gnnbench.comparison import make_setting
from gnnbench.machines.machine import Device, Hardware, Platform
from gnnbench.models import build
from gnnbench.price.design_phase import summarise_rounds, with_design_phase, with_rates
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import (
    AggregateWork,
    BatchProfile,
    BlockSize,
    CopyWork,
    EpochTrace,
    HostThreads,
    LossWork,
    ProductSize,
    RowsWork,
    SampleWork,
    Span,
    UpdateWork,
)
from gnnbench_plugins.hyscale.performance import Split, predict, trainer_seconds
from suites.epochs import make_request


def span(stage, label, seconds, work, layer=-1):
    return Span(0, stage, label, "host", (), work, (), 0, 0, layer, seconds, 0.0, seconds)


@pytest.fixture
def host():
    return Device(
        "host", "cpu", "made for a test", Hardware(1e9, 1e9, 2**30), cores=1, virtual=False
    )


@pytest.fixture
def setting(host):
    data = datasets.load("sbm:vertices=200,edges=800,features=100,classes=4")
    request = make_request(data, "local", "mini-batch", "hyscale")
    return make_setting(replace(request, platform=Platform("test", "", host, (), ())))


def test_predicted_with_its_own_rates_a_round_takes_what_was_recorded(setting, host):
    """Every second of two rounds is found again: in a stage, or in what no equation has."""
    recorded = [
        span("sample", "sample", 0.5, SampleWork(edges=100)),
        span("load", "load features", 1.0, RowsWork(rows=300, features=100, bytes=300 * 100 * 4)),
        span("aggregate", "aggregate forward", 2.0, AggregateWork(80, 50, 100), 0),
        span("update", "update forward", 3.0, UpdateWork(rows=50), 0),
        span("aggregate", "aggregate forward", 0.25, AggregateWork(20, 10, 256), 1),
        span("update", "update forward", 0.125, UpdateWork(rows=10), 1),
        span("update", "loss", 7.0, LossWork(rows=10)),
        span("update", "update backward", 0.375, UpdateWork(rows=10), 1),
        span("aggregate", "aggregate backward", 1.5, AggregateWork(20, 10, 256, backward=True), 1),
        span("update", "update backward", 4.0, UpdateWork(rows=50), 0),
        span("synchronize", "average and step", 9.0, CopyWork()),
    ]
    wall_s = 2 * (sum(each.seconds for each in recorded) + 5.0)
    found = summarise_rounds(setting, [*recorded, *recorded], wall_s, 2)
    assert found.vertices == (300, 50, 10)
    assert found.edges == (80, 20)
    assert found.fixed_s == pytest.approx(7.0 + 9.0 + 5.0)
    designed = replace(
        setting, platform=replace(setting.platform, host=with_rates(host, found, found))
    )
    seeds = setting.workload.batch_size
    profile = BatchProfile(seeds, found.vertices, found.edges, ((1, found.sample_s),))
    split = Split(seeds, HostThreads(1, 1, 1))
    prediction = predict(designed, [profile], (), split, 0, found.fixed_s)
    assert prediction.sample_s == pytest.approx(0.5)
    assert prediction.load_s == pytest.approx(1.0)
    assert prediction.train_cpu_s == pytest.approx(11.25)
    assert prediction.epoch_s(2) == pytest.approx(wall_s)


def test_a_product_before_the_sum_is_found_again_in_the_time_of_both(setting, host):
    """Its layer has no UPDATE to speak of, whose seconds are among those besides all stages."""
    workload = replace(setting.workload, dims=(100, 256, 16))
    layers = build(workload, {0}).shapes
    both = AggregateWork(80, 50, 256, product=ProductSize(300 * 100 * 256))
    recorded = [
        span("load", "load features", 1.0, RowsWork(rows=300, features=100, bytes=5_000)),
        span("aggregate", "aggregate forward", 2.0, both, 0),
        span("update", "update forward", 0.5, UpdateWork(rows=50), 0),
        span("aggregate", "aggregate backward", 3.0, both._replace(backward=True), 0),
        span("update", "update forward", 0.25, UpdateWork(rows=10), 1),
    ]
    few = replace(setting, workload=workload, layers=layers)
    found = summarise_rounds(few, recorded, 7.25, 1)
    assert found.fixed_s == pytest.approx(1.0)
    assert found.gather.at(100) == 5_000
    device = with_rates(host, found, found)
    sizes = ((300.0, 50.0), (80.0,), layers[:1])
    assert trainer_seconds(device, 1, *sizes, 4) == pytest.approx(5.0)
    assert trainer_seconds(device, 1, *sizes, 4, (120.0, 30.0)) == pytest.approx(5.0)


def test_a_smaller_round_takes_as_much_besides_its_stages(setting):
    """A quarter of a batch; what is rated by vertices and edges is of a whole one."""
    recorded = [span("sample", "sample", 1.0, SampleWork(edges=100))]
    found = summarise_rounds(setting, recorded, 3.0, 0.25)
    assert (found.sample_s, found.fixed_s) == (4.0, 2.0)


def test_the_rounds_are_other_ones_on_the_host_alone_and_their_median_counts(setting, host):
    """The host has as many cores as threads, and the first epoch warms up."""
    platform = replace(setting.platform, host=replace(host, cores=8), accelerators=(host,))
    workload = replace(setting.workload, threads=3, batch_size=20)
    asked = []

    def train_epochs(few):
        asked.append(few)
        walls = (90.0, 5.0, 80.0, 6.0)
        return [EpochTrace(n, (), {}, 0, 0, 40, 0.0, (), {}, s, 0.0) for n, s in enumerate(walls)]

    setting = replace(setting, workload=workload, platform=platform)
    designed = with_design_phase(setting, train_epochs, alone=True).platform
    assert (designed.round_s, designed.step_s, designed.host.cores) == (3.0, 0.0, 8)
    assert [(few.platform.host.cores, few.workload.threads) for few in asked] == [(3, 3), (1, 1)]
    for few in asked:
        assert few.platform.devices == (few.platform.host,)
        assert few.workload.seed != workload.seed
        assert few.dataset.train_mask.sum() == 2 * 20
        assert not (few.dataset.train_mask & ~setting.dataset.train_mask).any()


@pytest.mark.parametrize("model", ["gat", "ggcn", "gcn"])
def test_the_models_clock_takes_what_the_rounds_took(setting, host, model):
    """Forward and backward at rates of their own, by as many values an edge as the work counts;
    HyScale-GNN's Equation 10 finds the same seconds, attention's own edges among them."""
    layers = build(replace(setting.workload, model=model, dims=(100, 16, 8))).stack
    sizes = [BlockSize(300, 50, 80, own=True), BlockSize(50, 10, 20, own=True)]
    works = [layer.aggregate_work(size, 4) for layer, size in zip(layers, sizes, strict=True)]
    assert [work.features for work in works] == [layer.shape.summed_features for layer in layers]
    forward = [
        span("aggregate", "aggregate forward", 2.0 + number, work, number)
        for number, work in enumerate(works)
    ]
    back = [
        span("aggregate", "aggregate backward", 5.0 + number, work._replace(backward=True), number)
        for number, work in enumerate(works)
        if number or model != "gcn"
    ]
    few = replace(setting, layers=tuple(layer.shape for layer in layers))
    found = summarise_rounds(few, [*forward, *back], 50.0, 1)
    platform = Platform("", "", with_rates(host, found, found), (), (), round_s=found.fixed_s)
    kernel = plugins.load().part("kernel", "torch")()
    clock = ModelClock(platform, kernel)
    for each in [*forward, *back]:
        assert clock.seconds(each.work, "host", 0.0) == pytest.approx(each.seconds)
    recorded_s = sum(each.seconds for each in [*forward, *back])
    assert found.fixed_s == pytest.approx(50.0 - recorded_s)
    loss = LossWork(rows=10, features=8, macs=80)
    assert clock.seconds(loss, "host", 0.0) == pytest.approx(found.fixed_s)
    if model == "gcn":
        return
    vertices = [(size.num_src, size.num_dst) for size in sizes]
    counts = ([vertices[0][0], *(dst for _, dst in vertices)], [80, 20])
    taken_s = trainer_seconds(platform.host, 1, *counts, few.layers, 4)
    assert taken_s == pytest.approx(recorded_s)
