"""From a trace made by hand to metrics worked out by hand."""

import numpy as np
import pytest

from gnnbench.machines.machine import Device, Hardware, Link, Platform
from gnnbench.price.folds import busy_by_stage, busy_seconds, digest, energy, imbalance, lay_out
from gnnbench.price.metrics import summarise
from gnnbench.records import BYTE_KINDS, CopyWork, EpochTrace, Metric, Scheduled, Span, Trace
from gnnbench.statistics import count_warmup


def span(id, stage, place, seconds, after=(), resources=None, wall_start_s=0.0, wall_s=0.0):
    return Span(
        id=id, stage=stage, label=stage, place=place,
        resources=(place,) if resources is None else resources, work=CopyWork(), after=after,
        epoch=0, round=0, layer=-1, seconds=seconds, wall_start_s=wall_start_s, wall_s=wall_s,
    )  # fmt: skip


def epoch(spans=(), index=0, wall_s=2.0, harness_s=0.5, work=None, **counted):
    sizes = dict.fromkeys(BYTE_KINDS, 0) | {k: v for k, v in counted.items() if k in BYTE_KINDS}
    return EpochTrace(
        epoch=index, spans=tuple(spans), bytes=sizes, edges=counted.get("edges", 0),
        vertices=counted.get("vertices", 0), seeds=counted.get("seeds", 0), loss=1.0,
        round_losses=(1.0,), work_by_device=work or {}, wall_s=wall_s, harness_s=harness_s,
    )  # fmt: skip


#: Two trainers: sampling, two transfers on their own links, two trainings, one synchronisation.
SPANS = (
    span(0, "sample", "host", 1.0, resources=("host.sample",), wall_start_s=0.1, wall_s=0.2),
    span(1, "transfer", "link0", 2.0, (0,), wall_start_s=0.3, wall_s=0.1),
    span(2, "transfer", "link1", 3.0, (0,), wall_start_s=0.4, wall_s=0.1),
    span(3, "update", "gpu0", 5.0, (1,), wall_start_s=0.5, wall_s=0.4),
    span(4, "update", "gpu1", 1.0, (2,), wall_start_s=0.9, wall_s=0.1),
    span(5, "update", "gpu1", 1.5, (4,), wall_start_s=1.0, wall_s=0.2),
    span(6, "synchronize", "host", 0.5, (3, 5), wall_start_s=1.2, wall_s=0.3),
)


def test_a_modelled_epoch_is_laid_out_by_the_scheduler():
    laid = [(item.start_s, item.end_s) for item in lay_out(epoch(SPANS), "modelled")]
    assert laid == [(0, 1), (1, 3), (1, 4), (3, 8), (4, 5), (5, 6.5), (8, 8.5)]
    assert digest(epoch(SPANS), "modelled").epoch_s == 8.5


def test_an_epoch_ends_with_the_span_that_ends_last_wherever_it_is_listed():
    """The long transfer is listed first, holds a link of its own, and nothing waits for it."""
    result = digest(
        epoch((span(0, "transfer", "link", 9.0), *(span(n, "update", "gpu", n) for n in (1, 2)))),
        "modelled",
    )
    assert result.epoch_s == 9.0
    assert [(item.start_s, item.end_s) for item in result.timeline] == [(0, 9), (0, 1), (1, 3)]


def test_a_timeline_keeps_waits_and_resources():
    """Two lanes: b waits for a though its lane is free; c needs both lanes; d passes c."""
    spans = (
        span(0, "update", "x", 2.0),
        span(1, "update", "y", 1.0, (0,)),
        span(2, "update", "x", 1.0, resources=("x", "y")),
        span(3, "update", "x", 3.0),
    )
    laid = [(item.start_s, item.end_s) for item in lay_out(epoch(spans), "modelled")]
    # At 2 a is over: b, listed before c, takes y, so that d goes on x, and c after d.
    assert laid == [(0, 2), (2, 3), (5, 6), (2, 5)]


def test_a_measured_epoch_stands_as_it_happened():
    result = digest(epoch(SPANS, wall_s=1.75), "measured")
    assert result.epoch_s == 1.75
    assert [item.start_s for item in result.timeline] == [0.1, 0.3, 0.4, 0.5, 0.9, 1.0, 1.2]
    assert result.timeline[0].end_s == pytest.approx(0.3)


def test_an_epoch_without_spans_takes_no_time():
    assert digest(epoch(), "modelled").epoch_s == 0.0
    assert digest(epoch(), "modelled").stages == {}


def test_a_stage_is_as_busy_as_its_busiest_resource():
    assert busy_by_stage(SPANS) == {
        "sample": 1.0,
        "transfer": 3.0,
        "update": 5.0,  # gpu0's 5 against gpu1's 1 + 1.5
        "synchronize": 0.5,
    }
    assert list(busy_by_stage(SPANS)) == ["sample", "transfer", "update", "synchronize"]


def test_a_stage_counts_each_resource_that_it_holds_and_places_where_it_holds_none():
    spans = (
        span(0, "transfer", "gpu0", 1.0, resources=("a", "b")),
        span(1, "transfer", "gpu1", 2.0, resources=("b", "c")),
        span(2, "load", "host", 1.0, resources=()),
        span(3, "load", "host", 4.0, resources=()),
    )
    assert busy_by_stage(spans) == {"transfer": 3.0, "load": 5.0}


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ({"gpu0": 6.0, "gpu1": 3.0, "gpu2": 3.0}, 1.5),
        ({"gpu0": 3.0, "gpu1": 0.0, "gpu2": 0.0}, 3.0),
        ({"gpu0": 5.0}, 1.0),
        ({"gpu0": 0.0, "gpu1": 0.0}, 1.0),
        ({}, 1.0),
    ],
)
def test_imbalance_is_the_largest_over_the_mean(work, expected):
    assert imbalance(work) == expected


def device(name, power_w):
    return Device(name, "gpu", "a GPU", Hardware(1e12, 1e11, 10**9, power_w=power_w))


def test_energy_is_power_times_busy_seconds():
    """host 1 + 0.5 s, gpu0 5 s, gpu1 1 + 1.5 s; links and waiting draw nothing."""
    timeline = lay_out(epoch(SPANS), "modelled")
    devices = [device("host", 100.0), device("gpu0", 10.0), device("gpu1", 20.0)]
    assert energy(timeline, devices) == 150.0 + 50.0 + 50.0
    # A device that was idle needs no power, one that was busy does.
    assert energy(timeline, [*devices, device("gpu2", None)]) == 250.0
    assert energy(timeline, [*devices[:2], device("gpu1", None)]) is None


def at(place, intervals):
    return [
        Scheduled(span(number, "update", place, end_s - begin_s), begin_s, end_s)
        for number, (begin_s, end_s) in enumerate(intervals)
    ]


@pytest.mark.parametrize(
    ("intervals", "busy_s"),
    [
        ([(0, 3), (5, 6)], 4),  # a gap
        ([(0, 10), (2, 3)], 10),  # one inside another
        ([(0, 10), (2, 3), (4, 5)], 10),
        ([(0, 10), (2, 3), (9, 12)], 12),  # and one that begins inside and ends outside
        ([(0, 10), (2, 3), (11, 12)], 11),
        ([(0, 4), (4, 6)], 6),  # one after the other
        ([(0, 4), (3, 6)], 6),
        ([(1, 4), (1, 2), (1, 4)], 3),  # begun together
        ([(1, 1)], 0),
        ([], 0),
    ],
)
def test_a_place_is_busy_while_anything_runs_there(intervals, busy_s):
    for order in (intervals, intervals[::-1]):
        timeline = [*at("gpu", order), *at("other", [(0, 100)])]
        assert busy_seconds(timeline, "gpu") == busy_s
        assert busy_seconds(timeline, "other") == 100
        assert busy_seconds(timeline, "nowhere") == 0


def test_energy_is_a_metric_where_every_busy_device_has_a_power():
    metrics, _ = summarised(devices=(device("host", 2.0), device("gpu0", 1.0), device("gpu1", 1.0)))
    assert metrics["energy"].value == (3.0 + 5.0 + 2.5 + 2 * 4.25) / 2
    assert metrics["energy"].samples == (10.5, 8.5)
    assert (metrics["energy"].unit, metrics["energy"].provenance) == ("J", "modelled")
    assert "energy" not in summarised(devices=(device("host", 2.0), device("gpu0", None)))[0]
    assert "energy" not in summarised()[0]


def test_an_epoch_on_a_platform_shares_the_lanes_that_its_links_share():
    link = Link("host-gpu0", ("host", "gpu0"), 1e9, shared=True)
    platform = Platform("made", "", device("host", 1.0), (device("gpu0", 1.0),), (link,))
    spans = [span(n, "transfer", link.name, 2.0, resources=("host>gpu0",)) for n in range(2)]
    assert [at.end_s for at in digest(epoch(spans), "modelled").timeline] == [2.0, 4.0]
    shared = digest(epoch(spans), "modelled", platform)
    assert [(at.start_s, at.end_s) for at in shared.timeline] == [(0.0, 4.0)] * 2


def summarised(provenance="modelled", reached=None, devices=()):
    epochs = (
        epoch(
            SPANS,
            wall_s=2.0,
            harness_s=0.5,
            edges=850,
            vertices=85,
            host_to_device=100,
            reused=7,
            work={"gpu0": 3.0, "gpu1": 1.0},
        ),
        epoch(
            (span(0, "sample", "host", 4.25, wall_s=1.0),),
            index=1,
            wall_s=4.0,
            harness_s=3.0,
            edges=850,
            vertices=85,
            host_to_device=300,
            work={"gpu0": 1.0, "gpu1": 1.0},
        ),
    )
    trace = Trace(epochs, {"host": 900, "gpu0": 30, "gpu1": 40}, {}, preprocessing_s=0.75)
    platform = Platform("made", "", devices[0], devices[1:], ()) if devices else None
    digests = [digest(item, provenance, platform) for item in epochs]
    return summarise(trace, digests, provenance, ["host"], reached)


def test_times_are_medians_and_counts_means_over_epochs_with_their_samples():
    metrics, _ = summarised()
    expected = {
        "epoch_time": ((8.5 + 4.25) / 2, "s", (8.5, 4.25)),
        "wall_time": (3.0, "s", (2.0, 4.0)),
        # The work of an epoch over the time of one: 850 / 6.375.
        "throughput_edges": (850 / 6.375, "edges/s", ()),
        "throughput_vertices": (85 / 6.375, "vertices/s", ()),
        "host_to_device_bytes": (200.0, "B", (100.0, 300.0)),
        "device_to_host_bytes": (0.0, "B", (0.0, 0.0)),
        "reused_bytes": (3.5, "B", (7.0, 0.0)),
        "imbalance": (1.25, "1", (1.5, 1.0)),
        "harness_overhead": (0.5, "1", (0.25, 0.75)),
        "preprocessing_time": (0.75, "s", ()),
        "peak_device_bytes": (40.0, "B", ()),
        "peak_host_bytes": (900.0, "B", ()),
    }
    for name, (value, unit, samples) in expected.items():
        assert metrics[name].value == pytest.approx(value, rel=1e-12), name
        assert metrics[name].unit == unit, name
        assert metrics[name].samples == pytest.approx(samples), name


def measured_epochs(*wall_s, edges=1000):
    epochs = [
        epoch((span(0, "update", "host", s, wall_s=s),), i, wall_s=s, harness_s=s / 4, edges=edges)
        for i, s in enumerate(wall_s)
    ]
    return epochs, [digest(each, "measured") for each in epochs]


def test_cold_epochs_are_in_the_samples_and_in_no_summary():
    """204, 78, 53, 52, 51, ... ms: the steady epoch takes 52, and so does whatever is told of
    it."""
    cold = (0.204, 0.078, 0.053, 0.052, 0.051, 0.052, 0.053, 0.051, 0.052, 0.052)
    epochs, digests = measured_epochs(*cold)
    warmup = count_warmup(cold)
    trace = Trace(tuple(epochs), {"host": 1}, {}, 0.0)
    metrics, stages = summarise(trace, digests, "measured", "host", None, warmup)
    assert metrics["epoch_time"].value == 0.052
    assert metrics["epoch_time"].samples == cold
    assert metrics["epoch_time"].steady == cold[warmup:]
    assert metrics["wall_time"].value == stages["update"].value == 0.052


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_edges_a_second_times_the_epoch_are_the_edges(warmup):
    epochs, digests = measured_epochs(0.9, 0.1, 0.4, 0.1, 0.2, 0.7)
    trace = Trace(tuple(epochs), {"host": 1}, {}, 0.0)
    metrics, _ = summarise(trace, digests, "measured", "host", None, warmup)
    edges = metrics["throughput_edges"].value * metrics["epoch_time"].value
    assert edges == pytest.approx(1000, rel=1e-12)
    assert metrics["epoch_time"].value == np.median([0.9, 0.1, 0.4, 0.1, 0.2, 0.7][warmup:])


def test_what_this_machine_took_is_measured_on_every_platform():
    for provenance in ("modelled", "measured"):
        metrics, stages = summarised(provenance)
        own = {"wall_time", "preprocessing_time", "harness_overhead"}
        for name, metric in metrics.items():
            assert metric.provenance == ("measured" if name in own else provenance), name
        assert {metric.provenance for metric in stages.values()} == {provenance}


def test_the_memory_of_each_rank_is_measured_where_several_trained():
    assert "peak_rank_bytes" not in summarised()[0]
    trace = Trace((epoch(),), {"host": 900}, {}, 0.0, rank_bytes=(5, 9, 7))
    metrics, _ = summarise(trace, [digest(epoch(), "modelled")], "modelled", ["host"], None)
    assert metrics["peak_rank_bytes"] == Metric(9.0, "B", "measured", (5.0, 9.0, 7.0))


def test_a_stage_missing_from_an_epoch_counts_as_nothing_there():
    _, stages = summarised()
    assert stages["sample"].samples == (1.0, 4.25)
    assert stages["update"].samples == (5.0, 0.0)
    assert "recompute" not in stages


def test_time_to_accuracy_is_there_when_it_was_reached():
    assert "time_to_accuracy" not in summarised()[0]
    modelled = [summarised(reached=n)[0]["time_to_accuracy"].value for n in (1, 2)]
    assert modelled == [8.5, 8.5 + 4.25]
    measured = [summarised("measured", reached=n)[0]["time_to_accuracy"] for n in (1, 2)]
    one_s = summarised("measured")[0]["epoch_time"].value
    # With the preparation, which is measured as well.
    assert [metric.value for metric in measured] == [0.75 + one_s, 0.75 + 2 * one_s]


def test_a_lone_host_is_its_own_device():
    trace = Trace((epoch(),), {"host": 900}, {}, 0.0)
    metrics, _ = summarise(trace, [digest(epoch(), "modelled")], "modelled", ["host"], None)
    assert metrics["peak_device_bytes"].value == 900.0
    assert metrics["throughput_edges"].value == 0.0


@pytest.mark.parametrize("peaks", [{"host": 3, "host1": 9}, {"host": 9, "host1": 3}])
def test_the_fullest_of_several_hosts_counts(peaks):
    epochs = (epoch(SPANS),)
    trace = Trace(epochs, {**peaks, "gpu0": 5}, {}, 0.0)
    metrics, _ = summarise(
        trace, [digest(epochs[0], "modelled")], "modelled", ["host", "host1"], None
    )
    assert metrics["peak_host_bytes"].value == 9.0
    assert metrics["peak_device_bytes"].value == 5.0
