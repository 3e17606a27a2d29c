"""Which assumption would bring a number to the paper's: on a model whose factors are known."""

import math
from dataclasses import dataclass, replace

import pytest

from gnnbench.reproduce.sensitivity import (
    Assumption,
    Quantity,
    find_contradictions,
    find_factor,
    find_remedies,
)


@dataclass(frozen=True)
class Roof:
    """Seconds of moving and computing that overlap."""

    bytes_per_s: float = 10.0
    flop_per_s: float = 100.0

    def seconds(self, size: float, work: float) -> float:
        return max(size / self.bytes_per_s, work / self.flop_per_s)


MEMORY = Assumption[Roof](
    "memory bandwidth",
    10.0,
    "B/s",
    "a datasheet",
    lambda model, factor: replace(model, bytes_per_s=factor * model.bytes_per_s),
)
PEAK = Assumption[Roof](
    "peak",
    100.0,
    "FLOP/s",
    "a datasheet",
    lambda model, factor: replace(model, flop_per_s=factor * model.flop_per_s),
)


def bound_by_memory(quoted: float | None) -> Quantity[Roof]:
    return Quantity("streaming", lambda model: model.seconds(100.0, 100.0), quoted, "s")


BOUND_BY_PEAK = Quantity[Roof]("product", lambda model: model.seconds(1.0, 1000.0), 10.0, "s")
#: Bytes take 2 of its 2.5 s.
BOTH = Quantity[Roof]("both", lambda model: model.seconds(20.0, 250.0), 2.5, "s")


@pytest.mark.parametrize("power", [1.0, -1.0, 0.5, 3.0])
@pytest.mark.parametrize("target", [0.31, 0.9, 1.0, 7.7])
def test_a_power_law_is_inverted(power: float, target: float) -> None:
    factor, reached = find_factor(lambda x: x**power, target)
    expected = target ** (1 / power)
    if 1 / 64 <= expected <= 64:
        assert factor == pytest.approx(expected, rel=3e-3)
        assert reached == pytest.approx(target, rel=3e-3)
    else:
        assert factor is None


def test_the_factor_nearest_one_is_found_where_there_are_two() -> None:
    """(log x)^2 - log x = 0.1 at log x = 1.09 and -0.09."""
    factor, _ = find_factor(lambda x: 5 + math.log(x) ** 2 - math.log(x), 5.1)
    assert factor == pytest.approx(math.exp(-0.0916), rel=2e-3)


def test_what_cannot_be_reached_says_how_near_it_comes() -> None:
    """Beyond twice the bandwidth the products take the time: 5 s of 10, and 3 are asked for."""
    factor, nearest = find_factor(lambda x: max(10.0 / x, 5.0), 3.0)
    assert factor is None
    assert nearest == 5.0


def test_remedies_say_what_else_moves() -> None:
    remedies = find_remedies(Roof(), bound_by_memory(5.0), [PEAK, MEMORY], [BOUND_BY_PEAK, BOTH])
    assert [remedy.assumption.label for remedy in remedies] == ["memory bandwidth", "peak"]
    memory, peak = remedies
    assert memory.factor == pytest.approx(2.0, rel=2e-3)
    product, both = memory.moves
    assert product.before == product.after == 10.0
    assert both.before == both.after == 2.5
    # The product never takes 100 B in 5 s, however fast it is.
    assert peak.factor is None
    assert peak.nearest == 10.0


def test_a_slower_memory_moves_what_it_comes_to_bound() -> None:
    memory = find_remedies(Roof(), bound_by_memory(20.0), [MEMORY], [BOTH])[0]
    assert memory.factor == pytest.approx(0.5, rel=2e-3)
    assert memory.moves[0].after == pytest.approx(4.0, rel=2e-3)
    assert memory.moves[0].share == pytest.approx(0.6, rel=5e-3)


def test_sentences_stand_for_what_is_far_off_alone() -> None:
    near, far, unknown = bound_by_memory(9.0), bound_by_memory(5.0), bound_by_memory(None)
    assert find_contradictions(Roof(), [near, unknown], [MEMORY], [BOTH]) == ()
    (found,) = find_contradictions(Roof(), [near, far], [MEMORY, PEAK], [BOUND_BY_PEAK, BOTH])
    assert found[:3] == ("streaming", "10.0 s", "5.00 s")
    assert found.remedy == "memory bandwidth 2 times as large: 20.0 B/s for 10.0 B/s"
    assert found.sentence == (
        "streaming is 10.0 s for 5.00 s; memory bandwidth 2 times as large would "
        "bring it there, 20.0 B/s for 10.0 B/s (a datasheet), and moves nothing else of the 2 "
        "numbers held beside it; of 1 others none does alone"
    )


def test_a_sentence_lists_three_remedies_and_counts_what_does_not_help() -> None:
    alike = [replace(MEMORY, label=f"memory {number}") for number in range(4)]
    (found,) = find_contradictions(Roof(), [bound_by_memory(5.0)], [*alike, PEAK])
    assert found.sentence.count("would bring it there") == 3
    assert found.sentence.endswith("; of 1 others none does alone")


def test_a_sentence_names_the_numbers_that_leave_the_papers() -> None:
    (found,) = find_contradictions(Roof(), [bound_by_memory(20.0)], [MEMORY], [BOTH])
    assert found.sentence.endswith("and moves both from 2.50 s to 4.00 s (paper 2.50 s, +60 %)")


def test_a_sentence_says_where_nothing_helps() -> None:
    (found,) = find_contradictions(Roof(), [bound_by_memory(5.0)], [PEAK])
    assert found.remedy == "no single assumption, up to 64 times larger or smaller"
    assert found.sentence.endswith(
        "no single assumption brings it there, up to 64 times larger or smaller; the nearest "
        "by each: peak (10.0 s)"
    )
