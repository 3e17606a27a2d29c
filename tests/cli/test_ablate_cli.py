"""``gnnbench ablate``: the papers' steps, one part at a time, and what cannot be taken apart."""

import json

from tests.commands import one_sentence, read_runs

QUICK = ("--dataset", "cora", "--epochs", "1", "--hidden", "8", "--threads", "1", "--no-check")


def labels_of(result):
    return [run["label"] for run in json.loads(result.stdout)["runs"]]


def test_hongtus_steps_are_figure_9s(run):
    result = run("ablate", "hongtu", *QUICK, "--json", "-")
    runs = read_runs(result)
    assert [r["label"] for r in runs] == ["vanilla", "+P2P", "+RU"]
    assert [r["parts"]["communication"] for r in runs] == ["vanilla", "hongtu", "hongtu"]
    crossed = [r["metrics"]["host_to_device_bytes"]["value"] for r in runs]
    assert crossed == sorted(crossed, reverse=True)
    assert crossed[0] > crossed[1] > crossed[2]
    assert runs[1]["metrics"]["reused_bytes"]["value"] < runs[2]["metrics"]["reused_bytes"]["value"]
    assert "Contribution of each step [modelled]" in result.stderr
    assert "x the speed of +P2P" in result.stderr


def test_hyscales_steps_are_figure_11s(run):
    runs = read_runs(run("ablate", "hyscale", *QUICK, "--batch-size", "64", "--json", "-"))
    assert [r["label"] for r in runs] == ["offload all", "+hybrid", "+DRM", "+TFP"]
    notes = [" ".join(r["notes"]) for r in runs]
    assert ["static split" in note for note in notes] == [True, True, False, False]
    epochs = [r["metrics"]["epoch_time"]["value"] for r in runs]
    assert epochs[3] < epochs[0]


def test_each_part_is_swapped_for_the_plain_one_and_refusals_say_why(run):
    result = run("ablate", "hongtu", "--each-part", *QUICK, "--json", "-")
    runs = {r["label"]: r for r in read_runs(result)}
    assert list(runs) == [
        "hongtu", "sampler=full-graph", "placement=single", "communication=none", "memory=resident",
    ]  # fmt: skip
    assert runs["sampler=full-graph"]["status"] == "done"
    refused = runs["communication=none"]
    assert refused["status"] == "skipped"
    assert "communication 'none' does not load it from there" in refused["reason"]
    assert "Contribution of each part [modelled]" in result.stderr
    assert "x the speed of hongtu" in result.stderr


def test_a_strategy_without_steps_is_taken_apart_by_part(run):
    result = run("ablate", "native", *QUICK, "--platform", "epyc7763x2-4xa5000", "--json", "-")
    assert result.exit_code == 0, result.output
    assert labels_of(result) == ["native", "placement=single", "kernel=torch"]


def test_there_is_nothing_to_take_out_of_the_reference(run):
    assert "nothing to take out" in one_sentence(run("ablate", "reference", *QUICK))
