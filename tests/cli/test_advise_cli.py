"""``gnnbench advise`` and ``gnnbench matrix``."""

import json

import pytest
from click.testing import CliRunner

from gnnbench.advice import preparation
from gnnbench.cli import main
from gnnbench.machines import describe
from gnnbench.records import PART_KINDS
from tests.commands import one_sentence, read_document

SMALL = ("--dataset", "sbm:vertices=300,edges=2k,features=12,classes=3", "--hidden", "8")
ON = ("--platform", "epyc7763x2-4xa5000", "--batch-size", "64", "--fanouts", "4,3")
FEW = ("--plugins", "hongtu,partition,data-parallel,hyscale")


@pytest.fixture(scope="module")
def advised():
    """A document, and the words on the screen."""
    result = CliRunner().invoke(main, ["advise", *SMALL, *ON, *FEW, "--json", "-"])
    return read_document(result), " ".join(result.stderr.split())


def test_choices_have_parts_settings_time_memory_and_a_reason(advised):
    document, _ = advised
    assert document["schema"] == 1
    assert {answer["mode"] for answer in document["answers"]} == {"full-graph", "mini-batch"}
    for mode in ("full-graph", "mini-batch"):
        choices = [each for each in document["choices"] if each["mode"] == mode]
        times = [each["epoch_time"] for each in choices if each["fits"]]
        assert times == sorted(times)
        for each in choices:
            assert list(each["parts"]) == list(PART_KINDS)
            low, high = each["interval"]
            assert low < each["epoch_time"] < high
            assert each["peak_device_bytes"] > 0
            assert each["reason"].endswith(".")
    fastest = min(each["epoch_time"] for each in document["choices"])
    assert document["choices"][0]["epoch_time"] == fastest


def test_no_choice_is_trained_where_none_is_to_be(run, monkeypatch):
    monkeypatch.setattr(preparation, "count_trained", lambda question: 1)
    words = ("advise", *SMALL, *ON, "--plugins", "hongtu", "--mode", "full-graph", "--json", "-")
    for given, trained in ((), 1), (("--train", "0"), 0):
        choices = read_document(run(*words, *given))["choices"]
        assert sum(each["trained"] is not None for each in choices) == trained


def test_a_choice_is_what_plan_says_of_it(run, advised):
    best = next(each for each in advised[0]["choices"] if each["mode"] == "full-graph")
    hongtu = {"sampler": "hongtu", "placement": "hongtu", "communication": "hongtu"}
    hongtu |= {"memory": "hongtu", "kernel": "torch"}
    swaps = [
        word
        for kind, name in best["parts"].items()
        if hongtu[kind] != name
        for word in ("--swap", f"{kind}={name}")
    ]
    sets = [word for key, text in best["options"].items() for word in ("--set", f"{key}={text}")]
    planned = read_document(
        run("plan", "hongtu", *SMALL, *ON, "--epochs", "1", *swaps, *sets, "--json", "-")
    )
    (one,) = planned["runs"]
    assert one["metrics"]["epoch_time"]["value"] == best["epoch_time"]
    assert one["metrics"]["peak_device_bytes"]["value"] == best["peak_device_bytes"]


def test_the_screen_says_what_to_use_and_what_would_change_it(advised):
    document, words = advised
    for mode in ("Full graph, every neighbour", "Mini-batch, uniform"):
        assert mode in words
    best = document["choices"][0]
    assert f"use {best['label']}" in words
    assert "[modelled]" in words
    assert "less than it takes" in words
    assert "PCIe" in words


def test_the_cheapest_platform_within_a_time(run, monkeypatch):
    words = ("advise", *SMALL, "--plugins", "hongtu-im,partition", "--mode", "full-graph")
    words += ("--within",)
    document = read_document(run(*words, "1000", "--json", "-"))
    assert [offer["in_time"] for offer in document["offers"]] == [True]
    # None will do: of three that are listed, one does not say what it draws.
    three = ("epyc7763x2-4xa5000", "r6i-12xlarge", "xeon6246r")
    listed = {entry.name: entry for entry in describe.list_platforms()}
    monkeypatch.setattr(describe, "list_platforms", lambda: [listed[name] for name in three])
    late = run(*words, "1e-9", "--json", "-")
    assert late.exit_code == 4
    offers = json.loads(late.stdout)["offers"]
    assert [offer["in_time"] for offer in offers] == [False, False]
    assert [offer["platform"] for offer in offers] == ["xeon6246r", "epyc7763x2-4xa5000"]
    assert "--within chooses the platform" in one_sentence(
        run(*words, "1", "--platform", "p3-2xlarge")
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device-memory", "none"), "such as 24GB"),
        (("--device-memory", "4GB", "--platform", "r6i-12xlarge"), "no accelerator"),
        (("--set", "memory.colour=red"), "has an option 'colour'"),
        (("--target", "beauty"), "beauty"),
    ],
)
def test_what_cannot_be_is_refused(run, words, said):
    result = run("advise", *SMALL, *words)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_the_matrix_prints_the_front_and_counts_refusals(run):
    axes = ("epoch_time", "peak_device_bytes", "link_bytes")
    result = run("matrix", *SMALL, *ON, "--plugins", "hongtu,hongtu-im,partition", "--json", "-")
    document = read_document(result)
    cells = document["cells"]
    assert document["combinations"] == len(cells) == 2 * 1 * 2 * 3 * 1
    front = [[cell[name] for name in axes] for cell in cells if cell.get("on_front")]
    done = [[cell[name] for name in axes] for cell in cells if cell["status"] == "done"]
    assert 0 < len(front) < len(done)
    for cell in done:
        assert any(all(a <= b for a, b in zip(f, cell, strict=True)) for f in front)
    refused = sum(each["count"] for each in document["refused"])
    assert refused == len(cells) - len(done)
    assert (
        f"{len(cells)} combinations: {len(done)} planned, 0 do not fit a memory, {refused} cannot "
        f"work together."
    ) in result.stderr
