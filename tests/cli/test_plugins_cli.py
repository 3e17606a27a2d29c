"""``gnnbench plugins``."""

import json

import pytest

import gnnbench.check
from gnnbench import datasets
from gnnbench.check import CheckOutcome, graphs
from tests.commands import one_sentence, read_document

PLUGIN = """
from gnnbench.hookspecs import hookimpl
from gnnbench.records import Parts, Strategy

@hookimpl
def gnnbench_strategy():
    parts = Parts("full-graph", "single", "none", "resident", "torch")
    return [Strategy("mine", "an example", "nowhere", {"full-graph": parts})]
"""


def test_list_names_strategies_parts_and_their_distribution(run):
    result = run("plugins")
    assert result.exit_code == 0
    assert result.stdout == run("plugins", "list").stdout
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    for name in ("reference", "pyg", "dgl", "native", "hyscale", "hongtu"):
        assert "gnnbench 0." in rows[name]


def test_list_as_json(run):
    content = json.loads(run("plugins", "--json", "-").stdout)
    assert content["schema"] == 1
    names = [strategy["name"] for strategy in content["strategies"]]
    assert names == sorted(names)
    assert set(content["parts"]) == {
        "sampler", "placement", "communication", "memory", "kernel",
    }  # fmt: skip


def test_show_a_strategy_with_the_options_of_its_parts(run):
    text = run("plugins", "show", "hongtu").stdout
    assert "--set memory.device_bytes (a size in bytes" in text
    content = json.loads(run("plugins", "show", "hongtu", "--json", "-").stdout)
    bundle = content["strategies"][0]["bundles"]["full-graph"]
    assert list(bundle) == ["sampler", "placement", "communication", "memory", "kernel"]


def test_show_a_part(run):
    assert "communication vanilla" in run("plugins", "show", "communication=vanilla").stdout
    assert "communication vanilla" in run("plugins", "show", "vanilla").stdout


@pytest.mark.parametrize("name", ["hongto", "communication=hongto", "transport=x"])
def test_show_what_is_not_there(run, name):
    one_sentence(run("plugins", "show", name))


def test_a_plugin_file_is_listed(run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    assert "mine" in run("plugins", "list", "--plugin", file).stdout
    assert "mine" in run("plugins", "--plugin", file).stdout
    assert run("plugins", "show", "mine", "--plugin", file).exit_code == 0


@pytest.mark.parametrize(
    ("status", "code"), [("passed", 0), ("failed", 1), ("not-reached", 1), ("not-applicable", 0)]
)
def test_check_exits_1_when_a_check_fails(run, monkeypatch, status, code):
    outcomes = (CheckOutcome("same-maths", status, "because.", "a promise"),)
    monkeypatch.setattr(gnnbench.check, "check_strategy", lambda *_, **__: outcomes)
    result = run("plugins", "check", "reference", "--json", "-")
    assert result.exit_code == code
    document = json.loads(result.stdout)
    assert document["strategy"] == "reference"
    assert document["checks"] == [
        {"check": "same-maths", "status": status, "reason": "because.", "why": "a promise"}
    ]
    assert {name for name, count in document["counts"].items() if count} == {status}
    assert "because." in result.stderr


def test_check_of_a_part_with_its_options_and_a_dataset(run, tmp_path):
    file = tmp_path / "small.npz"
    datasets.save_npz(graphs.make_cliques((2, 3, 5), 3), file)
    words = ("--set", "sampler.method=walk", "--set", "sampler.steps=3", "--dataset", file)
    document = read_document(run("plugins", "check", "sampler=saint", *words, "--json", "-"))
    assert document["part"] == "sampler=saint"
    reasons = {check["check"]: check["reason"] for check in document["checks"]}
    assert "mini-batch on small: 30 training vertices" in reasons["every-vertex-once"]
    assert "sampler.method=node" not in reasons["every-choice"]
    assert "sampling-law" in reasons


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("kernel=nativ",), "there is no kernel 'nativ' (did you mean 'native'?)"),
        (("transport=x",), "there is no part 'transport'"),
        (("native", "--set", "sampler.colour=red"), "has no option 'colour'"),
        (("hyscale", "--set", "communication.stages=two"), "stages"),
        (("native", "--set", "threads"), "is not PART.option=value"),
        (("native", "--dataset", "nowhere"), "there is no dataset 'nowhere'"),
    ],
)
def test_check_of_what_cannot_be_is_refused_in_a_sentence(run, words, says):
    assert says in one_sentence(run("plugins", "check", *words))


def test_new_writes_a_package_once(run, tmp_path):
    result = run("plugins", "new", "even-split", "--out", tmp_path, "--json", "-")
    files = read_document(result)["files"]
    assert str(tmp_path / "gnnbench-even-split" / "pyproject.toml") in files
    assert "plugins check even-split" in result.stderr
    assert "exists already" in one_sentence(run("plugins", "new", "even-split", "--out", tmp_path))
