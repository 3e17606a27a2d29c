"""What is read off a timeline, of timelines that are drawn by hand."""

from __future__ import annotations

import pytest

from gnnbench.platforms.machine import Device
from gnnbench.price.folds import busy_by_stage, busy_seconds, digest, energy, imbalance, lay_out
from gnnbench.records import BYTE_KINDS, EpochTrace, Scheduled, Span, Work


def span(number, place, seconds=0.0, *, stage="update", resources=None, after=()):
    return Span(
        id=number, stage=stage, label=stage, place=place,
        resources=(place,) if resources is None else resources, work=Work("copy"), after=after,
        epoch=0, round=0, layer=0, seconds=seconds, wall_start_s=0.0, wall_s=0.0,
    )  # fmt: skip


def at(place, *intervals):
    """Spans of one place at (begin, end), whatever they hold."""
    return [
        Scheduled(span(number, place, end - begin), begin, end)
        for number, (begin, end) in enumerate(intervals)
    ]


def epoch(*spans):
    return EpochTrace(
        epoch=0, spans=spans, bytes=dict.fromkeys(BYTE_KINDS, 0), edges=0, vertices=0, seeds=0,
        loss=0.0, round_losses=(0.0,), work_by_device={}, wall_s=0.0, harness_s=0.0,
    )  # fmt: skip


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
        ([(5, 6), (0, 3)], 4),  # in whatever order they are listed
        ([(2, 3), (0, 10)], 10),
        ([(1, 4), (1, 2), (1, 3)], 3),  # begun together
        ([(1, 1)], 0),
        ([], 0),
    ],
)
def test_a_place_is_busy_while_anything_runs_there(intervals, busy_s):
    timeline = [*at("gpu", *intervals), *at("other", (0, 100))]
    assert busy_seconds(timeline, "gpu") == busy_s
    assert busy_seconds(timeline, "other") == 100
    assert busy_seconds(timeline, "nowhere") == 0


def test_energy_is_the_power_of_what_is_busy_and_of_nothing_else():
    def device(name, power_w):
        return Device(name, "gpu", "", 1.0, 1.0, 1, power_w=power_w)

    timeline = [*at("gpu", (0, 10), (2, 3), (20, 21)), *at("host", (1, 3)), *at("link", (0, 50))]
    assert energy(timeline, [device("gpu", 7.0), device("host", 100.0)]) == 11 * 7.0 + 2 * 100.0
    assert energy(timeline, [device("gpu", 7.0)]) == 77.0
    assert energy(timeline, [device("gpu", 7.0), device("idle", None)]) == 77.0
    assert energy(timeline, [device("gpu", None)]) is None
    assert energy(timeline, []) == 0.0


def test_an_epoch_ends_with_the_span_that_ends_last_wherever_it_is_listed():
    """The long transfer is listed first, holds a link of its own, and nothing waits for it."""
    made = epoch(
        span(0, "link", 9.0, stage="transfer"),
        span(1, "gpu", 1.0),
        span(2, "gpu", 2.0, after=(1,)),
    )
    result = digest(made, "modelled")
    assert result.epoch_s == 9.0
    assert [(item.start_s, item.end_s) for item in result.timeline] == [(0, 9), (0, 1), (1, 3)]


def test_a_timeline_keeps_waits_and_resources():
    """Two lanes: b waits for a though its lane is free; c needs both lanes; d passes c."""
    made = epoch(
        span(0, "x", 2.0),
        span(1, "y", 1.0, after=(0,)),
        span(2, "x", 1.0, resources=("x", "y")),
        span(3, "x", 3.0),
    )
    laid = [(item.start_s, item.end_s) for item in lay_out(made, "modelled")]
    # At 2 a is over: b, listed before c, takes y, so that d goes on x, and c after d.
    assert laid == [(0, 2), (2, 3), (5, 6), (2, 5)]


def test_a_stage_counts_its_busiest_resource_and_each_resource_it_holds():
    spans = (
        span(0, "gpu0", 1.0, stage="transfer", resources=("a", "b")),
        span(1, "gpu1", 2.0, stage="transfer", resources=("b", "c")),
        span(2, "gpu0", 4.0, stage="update"),
        span(3, "gpu1", 5.0, stage="aggregate", resources=()),
    )
    assert busy_by_stage(spans) == {"transfer": 3.0, "aggregate": 5.0, "update": 4.0}


def test_imbalance_counts_devices_that_do_nothing():
    assert imbalance({"a": 3.0, "b": 0.0, "c": 0.0}) == 3.0
    assert imbalance({"a": 2.0, "b": 4.0}) == pytest.approx(4 / 3)
