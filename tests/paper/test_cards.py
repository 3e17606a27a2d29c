"""Fidelity cards: what they name is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from gnnbench import plugins
from gnnbench.parts import option_fields
from gnnbench.plugins import Registry
from gnnbench.records import PART_KINDS, Strategy

ROOT = Path(__file__).parents[2]
#: Of these somebody has written what is there and what is not.
CARDED = ("hyscale", "hpgnn", "distdgl", "distdgl-v2", "pagraph", "p3")


@cache
def registry() -> Registry:
    return plugins.load()


def carded() -> list[Strategy]:
    return [strategy for strategy in registry().strategies if strategy.card is not None]


def test_the_mini_batch_systems_have_cards():
    assert set(CARDED) <= {strategy.name for strategy in carded()}


@pytest.mark.parametrize("name", CARDED)
def test_a_card_says_something_under_each_heading(name):
    card = registry().strategy(name).card
    assert card is not None
    for clauses in (card.implemented, card.simplified, card.left_out, card.validated):
        assert clauses
        assert all(clause == clause.strip() and not clause.endswith(".") for clause in clauses)


def test_options_that_cards_name_are_those_of_the_strategies_parts():
    for strategy in carded():
        assert strategy.card is not None
        there = {
            f"{kind}.{option}"
            for bundle in strategy.bundles.values()
            for kind in PART_KINDS
            for option in option_fields(registry().part(kind, bundle.named(kind)))
        }
        for clause in (*strategy.card.implemented, *strategy.card.simplified):
            for named in re.findall(r"`(\w+\.\w+)`", clause):
                assert named in there, f"{strategy.name}: {named}"


def test_what_cards_were_validated_against_exists():
    for strategy in carded():
        assert strategy.card is not None
        for clause in strategy.card.validated:
            what = clause.split(":")[0]
            if what.startswith("gnnbench reproduce "):
                for name in what.split()[2:]:
                    assert name in registry().reproductions, f"{strategy.name}: {name}"
            else:
                assert (ROOT / what).is_file(), f"{strategy.name}: {what}"
