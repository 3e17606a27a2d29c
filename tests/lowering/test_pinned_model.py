"""Small runs of every strategy do what they have done; ``python -m tests.pins`` makes the table."""

import pytest

from gnnbench.errors import DatasetError, MissingDependencyError
from gnnbench.machines import list_platforms
from gnnbench.models import MODELS
from gnnbench.parts import option_fields
from tests import pins
from tests.pins.combinations import Combination, parse_line
from tests.pins.recording import load_registry, plan

COMBINATIONS = pins.read_list()
#: Of each kind of schedule some: between them they see the faults that ``tests.mutants`` has for
#: this file. All others are long together.
QUICK = {
    "hongtu a100 sbm dtype=float32 epochs=3",
    "hongtu:communication=vanilla a100 sbm dtype=float32 epochs=3",
    "hongtu a100 sbm communication.p2p=false communication.reuse=false",
    "hongtu:memory=hongtu-cache a100 sbm model=gat",
    "partition a100 sbm dtype=float32 epochs=3",
    "sancus a100 rmat communication.stale_gradients=true dtype=float32 epochs=3",
    "pipegcn a100 sbm dtype=float32 epochs=3",
    "bnsgcn a100 sbm communication.rate=0.4 dtype=float32 epochs=3",
    "neutronstar a100 sbm dtype=float32 epochs=3",
    "distgnn cluster sbm dtype=float32 epochs=3",
    "mixgcn a100 rmat sampler.schedule=reordered dtype=float32 epochs=3",
    "hyscale a5000 sbm dtype=float32 epochs=3",
    "hyscale u250 rmat dtype=float32 epochs=3",
    "pagraph a5000 sbm dtype=float32 epochs=3",
    "p3 a5000 sbm dtype=float32 epochs=3",
    "salient a5000 sbm dtype=float32 epochs=3",
    "hpgnn ryzen sbm dtype=float32 epochs=3",
    "distdgl-v2 a5000 sbm dtype=float32 epochs=3",
    "hongtu-im a100 rmat model=gat dtype=float32 epochs=3",
    "native ryzen sbm dtype=float32 epochs=3",
    "hyscale:communication=hongtu a5000 sbm placement.cpu_trainer=false dtype=float32 epochs=3",
}
#: Draws with compiled routines that are not installed everywhere.
NOT_EVERYWHERE = {("sampler", "pyg")}
#: Of no use where times are modelled (rates to measure before a run), a place on this machine, or
#: what rests on computed values, which a dry run has none of (``test_staleness``).
NOT_MODELLED = {
    ("placement", "design"),
    ("memory", "spill_dir"),
    ("communication", "metric"),
    ("communication", "change"),
}


def check(combination: Combination) -> None:
    try:
        found = pins.record(combination)
    except (DatasetError, MissingDependencyError) as error:
        pytest.skip(str(error))
    assert not pins.compare(combination, pins.load().get(str(combination)), found)
    planned = pins.record_dry_run(combination)
    for epoch, trained in zip(planned.get("epochs", ()), found.get("epochs", ()), strict=True):
        epoch["loss"] = trained["loss"]
        if "kernel.masked=true" in combination.settings:  # whose price is that of its masks
            for name in ("epoch_s", "waits_s", "stage_s", "timeline", "labels", "energy_j"):
                epoch[name] = trained[name]
    assert not pins.find_differences(found, planned)


@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if str(c) in QUICK], ids=str)
def test_a_run_does_what_it_has_done(combination):
    check(combination)


@pytest.mark.long
@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if str(c) not in QUICK], ids=str)
def test_every_other_run_does_what_it_has_done(combination):
    check(combination)


def test_the_table_has_every_combination_of_the_list_and_no_other():
    names = [str(each) for each in COMBINATIONS]
    assert set(pins.load()) == set(names)
    assert len(names) >= 150
    assert set(names) >= QUICK


def test_every_strategy_mode_platform_model_and_part_is_in_the_table():
    registry = load_registry()
    rows = [plan(each) for each in COMBINATIONS]
    assert {(row.strategy, row.mode) for row in rows} == {
        (strategy.name, mode) for strategy in registry.strategies for mode in strategy.bundles
    }
    bundled = {row.name for row in list_platforms()} - {"local"}
    assert {each.platform for each in COMBINATIONS} >= bundled
    assert {each.model for each in COMBINATIONS} >= {*MODELS, *registry.models}
    trained = {(kind, row.parts.named(kind)) for row in rows for kind, _ in registry.parts}
    assert set(registry.parts) - trained <= NOT_EVERYWHERE
    on_cora = {each.name for each in COMBINATIONS if each.dataset == "cora"}
    assert on_cora == {strategy.name for strategy in registry.strategies}
    assert sum(each.dataset == "amazon_photo" for each in COMBINATIONS) >= 10


def test_every_option_of_every_part_is_set_in_the_table():
    registry = load_registry()
    used = set()
    for each in COMBINATIONS:
        parts = plan(each).parts
        for kind, options in each.options.items():
            part = registry.part(kind, parts.named(kind))
            used |= {(kind, option) for option in options if option in option_fields(part)}
    due = {
        (kind, option)
        for (kind, _), part in registry.parts.items()
        for option in option_fields(part)
    }
    missing = due - used - NOT_MODELLED
    assert not missing


@pytest.mark.parametrize(
    ("before", "now", "count"),
    [
        ({"a": {"b": 1.0}}, {"a": {"b": 1.0}}, 0),
        ({"a": {"b": 1.0}}, {"a": {"b": 1.0 + 1e-13}}, 0),
        ({"a": {"b": 1.0}}, {"a": {"b": 1.0 + 1e-11}}, 1),
        ({"a": {"b": 0.0}}, {"a": {"b": 1e-15}}, 1),
        ({"a": {"b": 1.0}}, {"a": {}}, 1),
        ({"a": {}}, {"a": {"c": 0.0}}, 1),
        ({"a": 1.0, "b": 2}, {"a": 3.0, "b": 4}, 2),
        ({"a": [1, 2]}, {"a": [1, 3]}, 1),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, 1),
        ({"a": "x"}, {"a": "y"}, 1),
        ({"loss": 1.0}, {"loss": 1.0 + 1e-8}, 1),
    ],
)
def test_a_difference_is_seen(before, now, count):
    assert len(pins.find_differences(before, now)) == count


@pytest.mark.parametrize(("dtype", "off", "count"), [("float64", 1e-8, 1), ("float32", 1e-5, 0)])
def test_losses_agree_as_far_as_their_type_lets_them(dtype, off, count):
    combination = parse_line(f"hongtu a100 sbm dtype={dtype}")
    before = {"epochs": [{"loss": 1.0, "epoch_s": 1.0}]}
    now = {"epochs": [{"loss": 1.0 + off, "epoch_s": 1.0}]}
    assert len(pins.compare(combination, before, now)) == count
    now["epochs"][0]["epoch_s"] += off
    assert len(pins.compare(combination, before, now)) == count + 1
