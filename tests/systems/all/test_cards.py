"""Fidelity cards: every bundled strategy has one, and names in it exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from gnnbench import plugins
from gnnbench.parts import HaloExchange, option_fields
from gnnbench.records import PART_KINDS
from tests.systems.training import registry

ROOT = Path(__file__).parents[3]
PLUGINS = ROOT / "plugins" / "gnnbench_plugins"
#: Strategies that this project made itself, or took from a paper's description of its rivals.
NOT_PUBLISHED = {"reference", "data-parallel", "native", "partition"}
#: Strategies whose systems have reproductions of their own: all of those are on their cards.
REPRODUCED = ("hyscale", "hpgnn", "hongtu", "mixgcn")
NAMES = [strategy.name for strategy in registry().strategies]


def clauses_of(strategy):
    card = strategy.card
    assert card is not None, f"strategy {strategy.name} has no card"
    return (*card.implemented, *card.simplified, *card.left_out, *card.validated)


def commands_of(strategy):
    """Return the reproductions by which a card says its strategy was validated."""
    commands = [clause.split(":")[0].split() for clause in strategy.card.validated]
    return {
        name for words in commands if words[:2] == ["gnnbench", "reproduce"] for name in words[2:]
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_something_under_each_heading_and_whose_maths_are_others(name):
    """A card names the option that makes other maths equal, and systems that are not published."""
    strategy = registry().strategy(name)
    card, every = strategy.card, clauses_of(strategy)
    for clauses in (card.implemented, card.simplified, card.left_out, card.validated):
        assert clauses
        assert all(clause == clause.strip() and not clause.endswith(".") for clause in clauses)
        assert len(set(clauses)) == len(clauses)
    assert any("not a published system" in clause for clause in every) == (name in NOT_PUBLISHED)

    bundles = [plugins.assemble(registry(), parts, {}) for parts in strategy.bundles.values()]
    links = [bundle.communication for bundle in bundles]
    sampled = any(isinstance(each, HaloExchange) and each.samples for each in links)
    stale = any(bundle.stale for bundle in bundles)
    told = [clause for clause in every if "other maths" in clause]
    assert len(told) == (stale or sampled)
    assert all(("; 1 is " if sampled else "; 0 is ") in clause for clause in told)


@pytest.mark.parametrize("name", NAMES)
def test_options_and_calls_that_a_card_names_are_there(name):
    strategy = registry().strategy(name)
    options = {
        f"{kind}.{option}"
        for bundle in strategy.bundles.values()
        for kind in PART_KINDS
        for option in option_fields(registry().part(kind, bundle.named(kind)))
    }
    for clause in clauses_of(strategy):
        for named in re.findall(r"`([\w.-]+)`", clause):
            assert named in options if named.count(".") == 1 else is_called(named), named


@cache
def sources():
    """Return the plugins' code, without the cards."""
    paths = [path for path in sorted(PLUGINS.glob("*/*.py")) if path.stem != "card"]
    return "".join(path.read_text("utf-8") for path in paths)


def is_called(name):
    """Return whether a plugin imports a name from its module, or calls it behind the module's name.

    A name of a single word may be called behind any object.
    """
    module, _, called = name.rpartition(".")
    imported = rf"from {re.escape(module)} import .*\b{called}\b"
    said = rf"\b{module.rpartition('.')[2]}\.{called}\b" if module else rf"\.{called}\("
    return re.search(f"{imported}|{said}", sources()) is not None


@pytest.mark.parametrize("name", NAMES)
def test_evidence_that_a_card_names_exists(name):
    strategy = registry().strategy(name)
    assert commands_of(strategy) <= set(registry().reproductions)
    for clause in strategy.card.validated:
        what = clause.split(":")[0]
        assert clause != what, f"{name}: what does {what} show?"
        if not what.startswith("gnnbench reproduce "):
            assert (ROOT / what).is_file(), f"{name}: {what}"
            assert is_about(what, strategy), f"{name}: {what} does not try it"


def is_about(path, strategy):
    """Return whether a test file names the strategy, its plugin, or its parts.

    The parts are one that no other strategy has, or all parts of one of its bundles.
    """
    text = (ROOT / path).read_text("utf-8")

    def parts_of(each):
        return [{(k, parts.named(k)) for k in PART_KINDS} for parts in each.bundles.values()]

    def named(part):
        return f'"{part}"' in text

    strangers = (other for other in registry().strategies if other is not strategy)
    others = {part for other in strangers for parts in parts_of(other) for part in parts}
    bundles = parts_of(strategy)
    return (
        named(strategy.name)
        or f"gnnbench_plugins.{registry().origin(strategy).plugin}." in text
        or any(named(part) for parts in bundles for _, part in parts - others)
        or any(all(named(part) for _, part in parts) for parts in bundles)
    )


@pytest.mark.parametrize("name", REPRODUCED)
def test_a_system_s_card_names_all_of_its_reproductions(name):
    every = {each for each in registry().reproductions if each.startswith(f"{name}-")}
    assert every
    assert every <= commands_of(registry().strategy(name))
