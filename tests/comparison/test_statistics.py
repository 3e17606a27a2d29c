"""Statistics against hand examples, exact tests by enumeration, and simulations of known truth."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from gnnbench.statistics import (
    CONFIDENCE,
    FEWEST_PAIRS,
    MARGIN,
    MOST_WARMUP,
    SIGNIFICANCE,
    Difference,
    bound_tail,
    compare_pairs,
    compare_samples,
    count_warmup,
    find_interval,
    rank_samples,
    rank_signs,
    spread,
)


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


def draw_skewed(random, size):
    """Times as they are: a floor, and a long tail."""
    return 1.0 + random.lognormal(-2.0, 1.0, size)


TRUE_MEDIAN = 1.0 + math.exp(-2.0)


@pytest.mark.parametrize("size", [12, 30])
def test_intervals_hold_the_median_as_often_as_they_say(size):
    random = np.random.default_rng(size)
    held = 0
    for _ in range(200):
        low, high = find_interval(draw_skewed(random, size))
        held += low <= TRUE_MEDIAN <= high
    assert CONFIDENCE == 0.95
    assert 0.90 <= held / 200 <= 0.99


def test_intervals_of_a_ratio_hold_it_as_often_as_they_say():
    random = np.random.default_rng(2)
    paired = apart = 0
    for _ in range(150):
        pace = draw_skewed(random, 24)
        ours, theirs = pace * random.lognormal(0, 0.05, 24), pace * random.lognormal(0, 0.05, 24)
        found = compare_pairs(ours, 1.3 * theirs)
        paired += found.low <= 1.3 <= found.high
        found = compare_samples(draw_skewed(random, 24), 1.3 * draw_skewed(random, 24))
        apart += found.low <= 1.3 <= found.high
    assert paired / 150 >= 0.90
    assert 0.90 <= apart / 150 <= 0.99


def test_an_interval_is_reproducible_and_within_the_samples():
    samples = draw_skewed(np.random.default_rng(1), 20)
    low, high = find_interval(samples)
    assert (low, high) == find_interval(list(samples))
    assert samples.min() <= low <= np.median(samples) <= high <= samples.max()
    assert find_interval([3.0]) == (3.0, 3.0)
    assert find_interval([3.0, 1.0]) == (1.0, 3.0)
    assert find_interval([2.0] * 5) == (2.0, 2.0)


def test_a_row_is_seldom_faster_than_itself():
    """At most 2 % of 200, in pairs and apart, with a pace that both share and times that are
    skewed."""
    random = np.random.default_rng(11)
    paired = apart = 0
    for _ in range(200):
        pace = draw_skewed(random, 29)
        ours, theirs = (pace * random.lognormal(0, 0.1, 29) for _ in range(2))
        paired += compare_pairs(ours, theirs).shown
        apart += compare_samples(draw_skewed(random, 29), draw_skewed(random, 29)).shown
    assert paired <= 4
    assert apart <= 4


def test_a_tenth_more_is_shown():
    """With 29 epochs and 5 % of noise of their own, nearly always; of pairs even where the
    machine's pace varies by far more than the tenth, which hides it from samples apart."""
    random = np.random.default_rng(12)
    paired = apart = unpaired = 0
    for _ in range(50):
        pace = draw_skewed(random, 29)
        ours, theirs = (pace * random.lognormal(0, 0.05, 29) for _ in range(2))
        found = compare_pairs(ours, 1.1 * theirs)
        paired += found.shown and found.ratio > 1.0
        unpaired += compare_samples(ours, 1.1 * theirs[::-1]).shown
        steady, other = (random.lognormal(0, 0.05, 29) for _ in range(2))
        apart += compare_samples(steady, 1.1 * other).shown
    assert paired >= 45
    assert apart >= 45
    assert unpaired < 0.8 * paired


def test_a_lasting_offset_within_the_margin_is_not_faster():
    """A row of the same strategy that is off by less than the margin in all epochs, and times
    so steady that chance is ruled out."""
    random = np.random.default_rng(13)
    for off in (0.010, 0.018):
        for _ in range(8):
            ours, theirs = (random.lognormal(0, 0.005, 97) for _ in range(2))
            for compare in (compare_pairs, compare_samples):
                assert not compare(ours, (1 + off) * theirs).shown
                assert not compare((1 + off) * ours, theirs).shown


def test_what_is_shown_is_off_by_more_than_the_margin():
    """To either side; twice the margin is seen where times are steady."""
    random = np.random.default_rng(14)
    ours, theirs = (random.lognormal(0, 0.005, 97) for _ in range(2))
    seen = set()
    for factor in np.linspace(0.95, 1.05, 21):
        for compare in (compare_pairs, compare_samples):
            found = compare(ours, factor * theirs)
            off = abs(math.log(found.ratio))
            if found.shown:
                assert off > math.log1p(MARGIN)
                seen.add(found.ratio > 1)
            if abs(math.log(factor)) >= 2 * math.log1p(MARGIN):
                assert found.shown
    assert seen == {True, False}


def try_all_signs(values):
    """The chance of a sum of positive ranks as large, by all 2^n signs of values without zeros."""
    values = np.array([value for value in values if value])
    sizes = np.abs(values)
    ranks = [np.mean(np.flatnonzero(np.sort(sizes) == size) + 1) for size in sizes]
    signs = np.array(list(itertools.product((0, 1), repeat=len(ranks))))
    return np.mean(signs @ ranks >= ranks @ (values > 0))


def try_all_splits(values, others):
    """The chance of values that are as often above others, by all ways to split them."""
    both = [*values, *others]

    def count(places):
        rest = [both[place] for place in range(len(both)) if place not in places]
        return sum(both[place] > other for place in places for other in rest)

    splits = itertools.combinations(range(len(both)), len(values))
    seen = count(tuple(range(len(values))))
    return np.mean([count(places) >= seen for places in splits])


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 1.0, -0.2, 2.0, 3.0, -0.1, 0.7, 0.9],
        [1.0, 1.0, -1.0, 2.0, 2.0, 2.0, -3.0, 0.5],
        [0.0, 1.0, 2.0, 3.0, -1.0, 0.0, 5.0],
        [-0.5, -1.0, 0.25],
    ],
    ids=["distinct", "tied", "zeros", "few"],
)
def test_signed_ranks_are_as_likely_as_all_signs_make_them(values):
    assert rank_signs(np.array(values)) == pytest.approx(try_all_signs(values), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "others"),
    [([2.0, 2.1, 1.35], [1.0, 1.1, 1.2, 1.3, 1.4]), ([5.0, 1.0, 7.0, 2.5], [4.0, 6.0])],
)
def test_rank_sums_are_as_likely_as_all_splits_make_them(values, others):
    found = rank_samples(np.array(values), np.array(others))
    assert found == pytest.approx(try_all_splits(values, others), rel=1e-12)


@pytest.mark.parametrize("digits", [1, 9], ids=["tied", "distinct"])
def test_ranks_of_many_values_are_scipys(digits):
    """At the sizes between which it is exact, and with ties it is not."""
    random = np.random.default_rng(5)
    for count in (14, 50, 51):
        values = np.round(random.normal(0.2, 1, count), digits)
        values[0] = 0.0 if digits == 1 else values[0]
        expected = scipy.stats.wilcoxon(values, alternative="greater").pvalue
        assert rank_signs(values) == pytest.approx(expected, rel=1e-12)
    for ours, theirs in ((8, 20), (20, 8), (9, 9), (3, 4)):
        pair = (np.round(random.normal(mean, 1, n), digits) for mean, n in ((1, ours), (0, theirs)))
        one, other = pair
        expected = scipy.stats.mannwhitneyu(one, other, alternative="greater").pvalue
        assert rank_samples(one, other) == pytest.approx(expected, rel=1e-12)


def test_the_chance_counts_on_both_sides():
    """With one value out of order the chance is below the bound on one side, not on two."""
    for compare, ours, theirs in (
        (compare_pairs, [1.0] * 8, [1.0, *(1.5 + 0.1 * n for n in range(7))]),
        (compare_samples, [1.0, 1.1, 1.2, 1.3, 1.4], [1.35, 2.1, 2.2, 2.3, 2.4]),
    ):
        found = compare(ours, theirs)
        assert found.low > 1.0
        assert not found.shown
        assert compare(ours, [1.45, *theirs[1:]]).shown
    one_sided = rank_signs(np.log([1.0, *(1.5 + 0.1 * n for n in range(7))]) - math.log1p(MARGIN))
    assert SIGNIFICANCE / 2 < one_sided == 2 / 2**8 < SIGNIFICANCE


def test_the_direction_is_theirs_over_ours():
    fast, slow = [1.0 + 0.01 * n for n in range(12)], [2.0 + 0.01 * n for n in range(12)]
    for compare in (compare_pairs, compare_samples):
        won, lost = compare(fast, slow), compare(slow, fast)
        assert won.shown
        assert lost.shown
        assert 1.0 < won.low <= won.ratio <= won.high
        assert lost.low <= lost.ratio <= lost.high < 1.0


def test_pairs_that_are_equal_or_few_show_nothing():
    equal = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert compare_pairs(equal, equal) == Difference(1.0, 1.0, 1.0, shown=False)
    few = [1.0] * (FEWEST_PAIRS - 1)
    assert not compare_pairs(few, [2.0] * len(few)).shown
    assert compare_pairs([1.0] * FEWEST_PAIRS, [2.0] * FEWEST_PAIRS).shown


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_samples_have_a_ratio_and_show_nothing(count):
    ours, theirs = [1.0, 1.5][:count], [3.0, 2.0][:count]
    paired, apart = compare_pairs(ours, theirs), compare_samples(ours, theirs)
    assert paired.ratio == apart.ratio == np.median(theirs) / np.median(ours)
    assert not paired.shown
    assert not apart.shown
    for found in (paired, apart):
        assert found.low <= found.ratio <= found.high


def test_some_equal_pairs_among_others_do_not_hide_a_difference():
    ours = [1.0] * 20
    theirs = [1.0] * 3 + [1.2 + 0.01 * n for n in range(17)]
    assert compare_pairs(ours, theirs).shown


def test_what_is_no_number_shows_nothing():
    clean, spoilt = [1.0] * 12, [2.0] * 11 + [math.nan]
    for compare in (compare_pairs, compare_samples):
        assert not compare(clean, spoilt).shown
        assert not compare(spoilt, clean).shown


def test_about_keeps_the_ratio_in_the_interval_and_needs_agreement():
    found = Difference(1.2, 1.1, 1.3, shown=True)
    assert found.about(1.25) == Difference(1.25, 1.1, 1.3, shown=True)
    assert found.about(1.4) == Difference(1.4, 1.1, 1.4, shown=True)
    # Figures that put it the other way round, or alike, leave nothing shown.
    assert not found.about(0.99).shown
    assert not found.about(1.0).shown
    # Nor do figures that are no further apart than two rows of one strategy are.
    assert not found.about(1.0 + MARGIN).shown
    assert not Difference(0.9, 0.85, 0.95, shown=True).about(1.0 / (1.0 + MARGIN)).shown
    assert not Difference(1.2, 0.9, 1.3, shown=False).about(1.2).shown


# --------------------------------------------------------------------------- counts


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
