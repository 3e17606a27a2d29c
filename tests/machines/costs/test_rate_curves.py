"""Effective rates by the width of rows: what stands between two widths that are given."""

import pytest

from gnnbench.machines.machine import Device, Hardware, MemoryRates, RateCurve

#: A value takes 1/40 s in rows of 10 and 1/100 s in rows of 100; a core alone takes longer.
CURVE = RateCurve((10, 100), (40.0, 100.0), (8.0, 25.0))


def test_a_value_s_time_is_linear_in_one_over_the_width():
    """Rows have fixed costs: of a / width + b a value, b = 1/120 and a = 1/6 here."""
    for width in (10, 12, 20, 40, 50, 99, 100):
        assert CURVE.at(width) == pytest.approx(1 / (1 / 6 / width + 1 / 120), rel=1e-12), width


@pytest.mark.parametrize(("width", "rate"), [(1, 40.0), (9.5, 40.0), (101, 100.0), (1e6, 100.0)])
def test_beyond_the_ends_a_rate_is_that_of_the_end(width, rate):
    assert CURVE.at(width) == rate


@pytest.mark.parametrize(
    ("threads", "width", "rate"),
    [(0, 10, 40.0), (1, 10, 8.0), (4, 10, 32.0), (5, 10, 40.0), (9, 10, 40.0), (3, 100, 75.0)],
)
def test_threads_have_their_cores_rates_up_to_that_of_all(threads, width, rate):
    assert CURVE.at(width, threads) == rate


def test_a_curve_of_three_widths_is_met_at_each_and_between_its_neighbours():
    curve = RateCurve((4, 8, 16), (1.0, 3.0, 2.0), (1.0, 3.0, 2.0))
    assert [curve.at(width) for width in (4, 8, 16)] == [1.0, 3.0, 2.0]
    # Between 8 and 16, a value at 12 is two thirds of the way in 1 / width.
    assert curve.at(12) == pytest.approx(1 / (1 / 3 / 3 + 2 / 3 / 2), rel=1e-12)


def test_a_device_without_curves_has_its_plain_rates():
    plain = Device(
        "x",
        "cpu",
        "",
        Hardware(100.0, 50.0, 1),
        cores=4,
        memory=MemoryRates(core_bandwidth_bytes_per_s=20.0),
    )
    assert plain.gather_bytes_per_s(3) == 50.0
    assert plain.gather_bytes_per_s(3, threads=2) == 40.0
    assert plain.aggregate_backward_bytes_per_s(3, threads=1) == 20.0
    assert plain.update_flop_per_s(3, threads=1) == 25.0
    assert plain.update_flop_per_s(3, threads=9) == 100.0
