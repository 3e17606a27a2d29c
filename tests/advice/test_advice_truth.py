"""The advice against every combination there is, for a few questions."""

import math

import pytest

from suites.advice import WITHIN, judge_all, list_questions, list_sample


@pytest.mark.long
@pytest.mark.parametrize("asked", list_sample(), ids=str)
def test_the_first_choice_is_about_as_fast_as_the_fastest_of_all(asked):
    (verdict,) = judge_all([asked])
    assert math.isfinite(verdict.best_s)
    assert verdict.ratio <= WITHIN, verdict
    assert verdict.combinations > verdict.plans / 10


def test_there_are_sixty_questions_and_each_once():
    asked = list_questions()
    assert len(asked) >= 60
    assert len(set(asked)) == len(asked)
    assert {each.mode for each in asked} == {"full-graph", "mini-batch"}
