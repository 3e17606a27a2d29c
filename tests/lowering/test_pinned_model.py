"""Small runs of every strategy do what they have done; ``python -m tests.pins`` makes the table."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
from click.testing import CliRunner

from gnnbench.cli import main
from gnnbench.errors import DatasetError, MissingDependency, UsageError
from gnnbench.models import MODELS
from gnnbench.parts import option_fields
from gnnbench.platforms import list_platforms
from gnnbench.records import BYTE_KINDS
from tests import pins
from tests.pins.__main__ import main as run_pins
from tests.pins.combinations import Combination, parse_line
from tests.pins.recording import load_registry, plan, set_up

pytestmark = pytest.mark.usefixtures("one_thread")

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
    except (DatasetError, MissingDependency) as error:
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


# --------------------------------------------------------------------------- what is in the table


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
    """On some part of its kind that has it: parts of a kind call the same thing the same."""
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


# --------------------------------------------------------------------------- what a record is


@pytest.mark.parametrize(
    "line",
    [
        "hongtu:communication=vanilla a100 sbm model=gat layers=3 memory.topology=host",
        "hyscale a5000 sbm communication.stages=1 batch_size=24 fanouts=3,2",
        "mixgcn spu rmat model=sage",
    ],
)
def test_a_record_is_what_compare_says_for_the_same_words(line):
    """Of the same strategy, data, model and options, in the type that the command trains in."""
    combination = dataclasses.replace(parse_line(line), dtype="float32")
    words = [
        *("compare", "--plugins", combination.strategy, "--platform", combination.platform),
        *("--dataset", combination.dataset, "--model", combination.model),
        *("--layers", str(combination.layers), "--hidden", str(combination.hidden)),
        *("--epochs", str(combination.epochs), "--seed", str(combination.seed)),
        *("--threads", "1", "--no-plain", "--json", "-"),
        *(word for setting in combination.settings for word in ("--set", setting)),
    ]
    if "fanouts" in line:  # they would have no effect on a full graph
        words += ["--batch-size", str(combination.batch_size)]
        words += ["--fanouts", ",".join(map(str, combination.counts))]
    found = pins.record(combination)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    (run,) = json.loads(result.stdout)["runs"]
    epochs = found["epochs"]

    def mean(values):
        return pytest.approx(sum(values) / len(values), rel=1e-13, abs=0)

    assert run["loss"] == pytest.approx([epoch["loss"] for epoch in epochs], rel=1e-13, abs=0)
    metrics = {name: metric["value"] for name, metric in run["metrics"].items()}
    assert metrics["epoch_time"] == mean([epoch["epoch_s"] for epoch in epochs])
    assert metrics["imbalance"] == mean([epoch["imbalance"] for epoch in epochs])
    if "energy" in metrics:
        assert metrics["energy"] == mean([epoch["energy_j"] for epoch in epochs])
    # Of a machine of one host nothing crosses between hosts, and it has no such metric.
    nodes = {"host_to_host"} - {name.removesuffix("_bytes") for name in metrics}
    for kind in (kind for kind in BYTE_KINDS if kind not in nodes):
        assert metrics[f"{kind}_bytes"] == mean([epoch["bytes"].get(kind, 0) for epoch in epochs])
    edges = mean([epoch["edges"] for epoch in epochs])
    assert metrics["throughput_edges"] * metrics["epoch_time"] == edges
    vertices = mean([epoch["vertices"] for epoch in epochs])
    assert metrics["throughput_vertices"] * metrics["epoch_time"] == vertices
    peaks = found["peak_bytes"]
    devices = [size for name, size in peaks.items() if name not in ("host", "disk")]
    assert metrics["peak_host_bytes"] == peaks["host"]
    assert metrics["peak_device_bytes"] == max(devices)
    for stage, metric in run["stages"].items():
        assert metric["value"] == mean([epoch["stage_s"].get(stage, 0.0) for epoch in epochs])
    assert {stage for epoch in epochs for stage in epoch["stage_s"]} == set(run["stages"])
    work = run["work"]
    assert (work["updates"], work["seeds"]) == (epochs[0]["updates"], epochs[0]["seeds"])


def test_the_list_is_read_as_it_says():
    read = parse_line(
        "hongtu:kernel=native/full-graph a100 cora model=gat memory.topology=host lends"
    )
    assert read.swaps == (("kernel", "native"),)
    assert (read.name, read.mode, read.dataset) == ("hongtu", "full-graph", "cora")
    assert (read.platform, read.model, read.lends) == ("epyc7543x4-4xa100", "gat", True)
    assert read.options == {"memory": {"topology": "host"}}
    assert (read.dtype, read.counts) == ("float64", (5, 4))
    assert parse_line("hyscale a5000 sbm layers=3").counts == (5, 4, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hongtu a100", "lacks"),
        ("hongtu/whole a100 sbm", "no mode 'whole'"),
        ("hongtu a100 sbm width=3", "what is 'width=3'"),
        ("hongtu a100 sbm model=gat model=gin", "what is 'model=gin'"),
        ("hongtu a100 sbm memory.topology", "what is 'memory.topology'"),
    ],
)
def test_a_line_that_says_nothing_clear_is_refused(line, said):
    with pytest.raises(ValueError, match=said):
        parse_line(line)


def test_a_combination_is_listed_once_and_has_options_of_its_parts(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("hongtu a100 sbm model=gat layers=3\nhongtu a100 sbm layers=3  model=gat\n")
    with pytest.raises(ValueError, match="in the list twice"):
        pins.read_list(path)
    with pytest.raises(UsageError, match="chunks"):
        set_up(parse_line("hyscale a5000 sbm sampler.chunks_per_partition=3"))


# --------------------------------------------------------------------------- what is a difference


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


def leaves(value, path=()):
    """Every number and text of a record, by its place."""
    pairs = (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list) else ()
    )  # fmt: skip
    if not pairs:
        return [path]
    return [place for key, part in pairs for place in leaves(part, (*path, key))]


def test_a_record_that_is_off_in_one_place_is_told_with_its_place():
    name = "hongtu a100 sbm dtype=float32 epochs=3"
    combination, before = parse_line(name), pins.load()[name]
    places, text = leaves(before), json.dumps(before)
    assert len(places) > 100
    for *path, last in places:
        part = now = json.loads(text)
        for key in path:
            part = part[key]
        part[last] = f"{part[last]}0" if isinstance(part[last], str) else part[last] * 1.01 + 1
        where = ": ".join(map(str, (name, *path, last)))
        (said,) = pins.compare(combination, before, now)
        assert said.startswith(f"{where}: ")
        assert said.endswith(f" before, {part[last]} now")


def test_the_command_compares_and_writes_what_is_asked_for(tmp_path, monkeypatch, capsys):
    line = "reference a5000 rmat dtype=float32 epochs=3"
    table = {line: pins.load()[line]}
    monkeypatch.setattr("tests.pins.TABLE", tmp_path / "values.json")
    monkeypatch.setattr("tests.pins.__main__.read_list", lambda: (parse_line(line),))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["pins", *words])
        status = run_pins()
        return status, capsys.readouterr().out.splitlines()

    status, said = run()
    assert (status, said[0]) == (1, f"{line}: not in values.json")
    assert run("--write")[0] == 0
    assert list(pins.load()) == [line]
    assert not pins.compare(parse_line(line), table[line], pins.load()[line])
    assert run("--only", "refer")[0] == 0
    assert run("--only", "hongtu")[0] == 2
    table[line]["epochs"][1]["edges"] += 1
    edges = table[line]["epochs"][1]["edges"]
    pins.write({**table, "gone a100 sbm": {}})
    status, said = run()
    assert status == 1
    assert said[0] == f"{line}: epochs: 1: edges: {edges} before, {edges - 1} now"
    assert said[1] == "gone a100 sbm: in values.json, and not in the list"
    assert run("--write")[0] == 0
    assert run()[0] == 0
