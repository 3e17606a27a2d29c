"""Statistics against hand examples, Student's intervals, and simulations of known truth."""

import math
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from gnnbench.comparison import yardstick
from gnnbench.price.metrics import YARDSTICK
from gnnbench.statistics import (
    CONFIDENCE,
    FEWEST_PAIRS,
    FEWEST_SEEDS,
    MARGIN,
    MARGIN_APART,
    MOST_SAMPLES,
    MOST_WARMUP,
    Difference,
    bound_tail,
    compare_pairs,
    compare_samples,
    compare_seeds,
    count_warmup,
    find_centre,
    find_seed_interval,
    spread,
)
from suites.faster import draw_noise


@pytest.mark.parametrize(
    ("samples", "cut"),
    [
        ([], 0),
        ([5.0], 0),
        # The first of two is all that may go; of three too.
        ([9.0, 5.0], 1),
        ([204.0, 78.0, 53.0], 1),
        # Two cold epochs, then steady; three of nine, of which a quarter may go, and of twelve.
        ([204.0, 78.0, 53.0, 52.0, 51.0, 52.0, 53.0, 51.0], 2),
        ([50.0, 30.0, 20.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0], 2),
        ([50.0, 30.0, 20.0, *[10.0] * 9], 3),
        # Nothing to leave out but the first, which always goes.
        ([10.0] * 12, 1),
        ([10.0, 11.0, 10.0, 11.0, 10.0, 11.0, 10.0, 11.0], 1),
        # A drift to the end: at most a quarter, and at most five.
        ([float(n) for n in range(10, 0, -1)], 2),
        ([*[20.0] * 9, *[10.0] * 21], MOST_WARMUP),
    ],
)
def test_warm_up_of_series_made_by_hand(samples, cut):
    assert count_warmup(samples) == cut


def test_the_cut_is_where_the_standard_error_of_the_rest_is_least():
    """By MSER's definition, term by term."""
    random = np.random.default_rng(4)
    for _ in range(50):
        samples = random.gamma(3.0, size=random.integers(2, 25)).tolist()

        def error(cut, samples=samples):
            rest = samples[cut:]
            mean = sum(rest) / len(rest)
            return sum((value - mean) ** 2 for value in rest) / len(rest) ** 2

        cuts = range(1, max(1, min(MOST_WARMUP, len(samples) // 4)) + 1)
        best = min(cuts, key=error)
        assert error(count_warmup(samples)) == pytest.approx(error(best))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([1.0, 2.0, 3.0], 0.0),
        ([0.0] * 5, 0.0),
        ([4.0] * 9, 0.0),
        ([8.0, 9.0, 10.0, 11.0, 12.0], 0.1),
    ],
)
def test_spread_is_half_the_interquartile_range_over_the_median(samples, expected):
    assert spread(samples) == pytest.approx(expected)


def draw_twice(random, correlation, count, deviation):
    """Times of two rows of one strategy, whose noise lasts over turns and is independent."""
    return [np.exp(draw_noise(random, correlation, count, deviation)) for _ in range(2)]


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.98])
@pytest.mark.parametrize("count", [9, 29, 97])
def test_noise_that_lasts_makes_no_row_faster_than_itself(correlation, count):
    """At most 5 % of 300, and three deviations of that count, with noise of a fifth."""
    random = np.random.default_rng(count)
    pairs = [draw_twice(random, correlation, count, 0.2) for _ in range(300)]
    most = 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)
    assert sum(compare_pairs(*pair).shown for pair in pairs) <= most
    assert sum(compare_samples(*pair).shown for pair in pairs) <= most


def test_intervals_hold_the_ratio_as_often_as_they_say():
    random = np.random.default_rng(2)
    for correlation in (0.0, 0.9):
        held = 0
        for _ in range(100):
            ours, theirs = draw_twice(random, correlation, 29, 0.05)
            found = compare_pairs(ours, 1.3 * theirs)
            held += found.low <= 1.3 <= found.high
        assert held >= 100 * CONFIDENCE - 3


def test_a_tenth_more_is_shown():
    """With 97 epochs and 2 % of noise of their own, nearly always; of pairs even where the
    machine's pace varies by far more than the tenth, which hides it from samples apart."""
    random = np.random.default_rng(12)
    paired = apart = 0
    for _ in range(40):
        pace = 1.0 + random.lognormal(-2.0, 1.0, 97)
        ours, theirs = (pace * random.lognormal(0, 0.02, 97) for _ in range(2))
        found = compare_pairs(ours, 1.1 * theirs)
        paired += found.shown and found.ratio > 1.0
        apart += compare_samples(ours, 1.1 * theirs[::-1]).shown
    assert paired >= 38
    assert apart < 0.5 * paired


def test_noise_that_lasts_is_said_to_and_widens_the_interval():
    random = np.random.default_rng(3)
    fresh = compare_pairs(*draw_twice(random, 0.0, 97, 0.1))
    lasting = compare_pairs(*draw_twice(random, 0.98, 97, 0.1))
    assert fresh.why_not == ""
    assert lasting.why_not.startswith("noise lasts over turns: 97 epochs say as much as")
    assert math.log(lasting.high / lasting.low) > 3 * math.log(fresh.high / fresh.low)
    one, other = np.exp(draw_noise(random, 0.98, 97, 0.1)), random.lognormal(0, 0.1, 97)
    for pair in ((one, other), (other, one)):
        assert compare_samples(*pair).why_not.startswith("noise lasts over turns: 97 epochs say")
    assert compare_samples(other, other[::-1]).why_not == ""


def test_independent_values_have_students_interval():
    logs = np.array([0.1, 0.3, 0.2, 0.45])
    found = find_centre(logs, lasting=False)
    half = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, 3) * logs.std(ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((logs.mean() - half, logs.mean() + half), 5e-3)
    assert found.independent == pytest.approx(4)


def test_seeds_have_an_interval_from_three_on():
    assert find_seed_interval([2.0] * (FEWEST_SEEDS - 1)) is None
    low, high = find_seed_interval([2.0, 2.1, 2.2])
    assert low < 2.0 < 2.2 < high
    # Pairs of seeds: the seeds differ by far more than the rows do.
    ours, theirs = [1.0, 3.0, 2.0], [1.21, 3.6, 2.4]
    found = compare_seeds(ours, theirs)
    assert found.shown
    assert found.ratio == pytest.approx(1.2)
    assert not compare_seeds(ours[:2], theirs[:2]).shown


def test_long_series_are_averaged_and_one_outlier_changes_little():
    random = np.random.default_rng(5)
    ours, theirs = draw_twice(random, 0.0, 10 * MOST_SAMPLES, 0.05)
    found = compare_pairs(ours, 1.05 * theirs)
    assert found.shown
    assert found.high / found.low < 1.04
    ours, theirs = draw_twice(random, 0.0, 40, 0.02)
    before = compare_pairs(ours, 1.2 * theirs)
    theirs[7] *= 50
    after = compare_pairs(ours, 1.2 * theirs)
    assert after.low == pytest.approx(before.low, rel=0.02)


def test_the_interval_decides_and_nothing_else():
    beyond, within = 1.0 + 1.01 * MARGIN, 1.0 + 0.99 * MARGIN
    assert Difference(1.2, beyond, 1.3).shown
    assert not Difference(1.2, within, 1.3).shown
    assert Difference(0.8, 0.7, 1 / beyond).shown
    assert not Difference(0.8, 0.7, 1 / within).shown
    assert not Difference(1.2, beyond, 1.3, margin=MARGIN_APART).shown
    assert not Difference(2.0, 0.0, math.inf).shown


def test_about_and_joined_widen_the_interval():
    found = Difference(1.2, 1.1, 1.3)
    assert found.about(1.25) == Difference(1.25, 1.1, 1.3)
    assert found.about(1.4) == Difference(1.4, 1.1, 1.4)
    assert not found.about(0.99).shown
    assert found.joined(Difference(1.0, 0.95, 1.2)) == Difference(1.2, 0.95, 1.3)


def test_the_direction_is_theirs_over_ours():
    """The other way round the interval is the reciprocal, although one of the two is steadier."""
    fast, slow = [1.0 + 0.001 * n for n in range(12)], [2.0 + 0.1 * (n % 5) for n in range(12)]
    for compare in (compare_pairs, compare_samples):
        won, lost = compare(fast, slow), compare(slow, fast)
        assert 1.0 < won.low < won.ratio < won.high
        assert (won.low, won.high) == pytest.approx((1 / lost.high, 1 / lost.low))
        assert won.ratio == pytest.approx(1 / lost.ratio)


def test_pairs_that_are_equal_or_few_show_nothing():
    equal = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    found = compare_pairs(equal, equal)
    assert (found.low, found.ratio, found.high) == pytest.approx((1.0, 1.0, 1.0))
    assert not found.shown
    for compare in (compare_pairs, compare_samples):
        few = [1.0] * (FEWEST_PAIRS - 1)
        found = compare(few, [2.0] * len(few))
        assert found.ratio == 2.0
        assert not found.shown
        assert found.why_not.startswith("7 epochs are too few to show one")
        assert compare([1.0] * FEWEST_PAIRS, [2.0] * FEWEST_PAIRS).shown


def test_another_pace_of_the_machine_makes_no_difference_alone():
    """Times are twice as long because everything is, or the yardstick alone is; and a row that
    takes twice as long beside an unchanged yardstick is slower."""
    random = np.random.default_rng(8)
    before, after = draw_twice(random, 0.0, 60, 0.01)
    pace, later = (0.001 * each for each in draw_twice(random, 0.0, 60, 0.01))
    same = compare_samples(2 * after, before, (2 * later, pace))
    assert not same.shown
    assert same.low < 0.52
    assert same.high > 0.98
    assert not compare_samples(after, before, (2 * later, pace)).shown
    assert compare_samples(2 * after, before, (later, pace)).high < 0.55
    assert compare_samples(2 * after, before).shown


def test_the_yardstick_s_time_leaves_out_the_warm_up(monkeypatch):
    measured = iter((9.0, 5.0, 1.0, 3.0, 2.0))
    setting = SimpleNamespace(
        platform=SimpleNamespace(virtual=False), workload=SimpleNamespace(threads=1)
    )
    timer = SimpleNamespace(measure=lambda: next(measured))
    monkeypatch.setattr(yardstick, "Yardstick", lambda threads: timer)
    paces = yardstick.Paces(setting)
    for _ in range(5):
        paces.measure()
    metric = paces.state({}, 2)[YARDSTICK]
    assert (metric.value, metric.samples, metric.warmup) == (2.0, (9.0, 5.0, 1.0, 3.0, 2.0), 2)


def test_what_is_no_number_shows_nothing():
    clean, spoilt = [1.0] * 12, [2.0] * 11 + [math.nan]
    for compare in (compare_pairs, compare_samples):
        assert not compare(clean, spoilt).shown
        assert not compare(spoilt, clean).shown


def test_the_ratio_is_that_of_the_medians():
    ours, theirs = [1.0, 1.1, 1.2] * 4, [2.0, 2.5, 2.1] * 4
    for compare in (compare_pairs, compare_samples):
        assert compare(ours, theirs).ratio == median(theirs) / median(ours)


@pytest.mark.parametrize(
    ("size", "marked", "drawn"), [(20, 9, 6), (1000, 10, 10), (300, 150, 140), (7, 1, 6)]
)
def test_no_count_is_likelier_than_its_bound(size, marked, drawn):
    """Of sums of five hypergeometric counts, against their exact distribution."""
    exact = np.ones(1)
    law = scipy.stats.hypergeom(size, marked, drawn)
    for _ in range(5):
        exact = np.convolve(exact, law.pmf(np.arange(min(marked, drawn) + 1)))
    values = np.arange(len(exact))
    for count in values[exact > 0]:
        off = count - 5 * law.mean()
        beyond = exact[np.abs(values - 5 * law.mean()) >= abs(off) - 1e-9].sum()
        bound = bound_tail(off, 5 * law.var())
        assert beyond <= math.exp(bound) + 1e-12
        assert bound >= 3 * math.log(max(beyond, 1e-300)) - 3


def test_a_sum_without_variance_is_its_mean():
    assert bound_tail(0.5, 0.0) == -math.inf
    assert bound_tail(1e-9, 0.0) == 0.0
