"""The result file: exactly the contract's keys, strict JSON, written whole or not at all."""

import json
import os
from dataclasses import replace

import pytest

from gnnbench.errors import UsageError
from gnnbench.records import Equivalence, Metric, Workload
from gnnbench.report.results.schema import dump_json, read_json, to_document, write_json
from tests.report.example_comparison import FAULT, every_status, make_comparison, make_run


@pytest.fixture
def content():
    return json.loads(dump_json(to_document(every_status())))


def test_keys_of_the_setting_are_the_contracts(content):
    assert list(content) == [
        "schema", "created", "gnnbench", "command", "machine", "dataset", "workload", "platform",
        "runs", "noise", "interrupted",
    ]  # fmt: skip
    assert content["schema"] == 1
    assert content["command"][:2] == ["gnnbench", "compare"]
    machine = {"cpu", "cores", "memory_bytes", "gpu", "os", "python", "torch", "threads"}
    assert machine <= set(content["machine"])
    assert content["machine"]["gpu"] is None
    dataset = {
        "name", "num_vertices", "num_edges", "edge_convention", "num_features", "num_classes",
        "digest",
    }  # fmt: skip
    assert dataset <= set(content["dataset"])
    workload = {"model", "layers", "dims", "epochs", "batch_size", "fanouts", "seed"}
    assert workload <= set(content["workload"])
    assert (content["workload"]["layers"], content["workload"]["dims"]) == (2, [8415, 256, 5])
    assert content["platform"]["name"] == "epyc7763x2-4xa5000"


def test_run_keys_are_the_contracts(content):
    keys = [
        "strategy", "label", "mode", "parts", "repeat", "status", "reason", "loss", "accuracy",
        "equivalence", "work", "metrics", "stages", "notes",
    ]  # fmt: skip
    assert all(list(run) == keys for run in content["runs"])
    done = content["runs"][0]
    assert list(done["parts"]) == ["sampler", "placement", "communication", "memory", "kernel"]
    assert done["loss"] == [1.5, 0.8, 0.4123]
    assert set(done["accuracy"]) == {"train", "val", "test"}
    assert done["equivalence"] == {
        "reference": "full-graph", "max_relative_loss_error": 3e-7, "equal": True, "fault": "",
        "sampling": "every neighbour", "updates": 0, "looked_at": [0, 0],
    }  # fmt: skip
    assert done["work"] == {
        "updates": 1, "seeds": 8621, "edges": 10**9, "devices": ["gpu0"],
        "sampling": "every neighbour", "kind": None, "different": [], "ranked": True,
        "why_not": "",
    }  # fmt: skip
    assert done["stages"]["transfer"] == {"value": 0.059, "provenance": "modelled"}


def test_a_run_that_may_not_win_says_why(content):
    faulty, unchecked = content["runs"][5:7]
    assert (faulty["equivalence"]["equal"], faulty["equivalence"]["fault"]) == (False, FAULT)
    assert faulty["work"]["ranked"] is False
    assert faulty["work"]["why_not"] == f"not equal to the reference: {FAULT}"
    assert unchecked["work"]["ranked"] is True
    assert content["runs"][2]["work"] is None


def test_warm_up_noise_and_an_interrupt_are_told():
    run = make_run("a", provenance="measured")
    steady = Metric(0.052, "s", "measured", (0.2, 0.052, 0.052), warmup=1)
    run = replace(run, metrics={**run.metrics, "epoch_time": steady})
    comparison = replace(make_comparison(run), noise="it was loud", interrupted="ended.")
    document = json.loads(dump_json(to_document(comparison)))
    assert (document["noise"], document["interrupted"]) == ("it was loud", "ended.")
    written = document["runs"][0]["metrics"]
    assert written["epoch_time"]["warmup"] == 1
    assert written["epoch_time"]["samples"] == [0.2, 0.052, 0.052]
    assert "warmup" not in written["wall_time"]


def test_every_status_its_reason_and_its_samples_stay(content):
    assert [run["status"] for run in content["runs"]] == [
        "done", "done", "out-of-memory", "skipped", "error", "done", "done",
    ]  # fmt: skip
    assert "1,161,044,380 bytes" in content["runs"][2]["reason"]
    assert content["runs"][6]["equivalence"] is None
    metrics = content["runs"][1]["metrics"]
    assert metrics["epoch_time"] == {
        "value": 0.214, "unit": "s", "provenance": "modelled", "samples": [0.214, 0.2185, 0.207],
    }  # fmt: skip
    assert metrics["wall_time"]["provenance"] == "measured"
    assert set(metrics["throughput_edges"]) == {"value", "unit", "provenance"}


def test_what_is_not_finite_is_null_or_left_out_with_a_note():
    run = make_run("hongtu")
    run = replace(
        run,
        loss=(1.0, float("nan"), float("inf")),
        equivalence=Equivalence("full-graph", float("nan"), "the loss is no number"),
        metrics={**run.metrics, "energy": Metric(float("nan"), "J", "modelled")},
    )
    written = json.loads(dump_json(to_document(make_comparison(run))))["runs"][0]
    assert written["loss"] == [1.0, None, None]
    assert written["equivalence"]["max_relative_loss_error"] is None
    assert "energy" not in written["metrics"]
    assert "energy is left out: it is not a finite number" in written["notes"]


def test_write_and_read_back(tmp_path):
    document = to_document(every_status())
    path = tmp_path / "result.json"
    path.write_text("old")
    write_json(document, path)
    assert dump_json(read_json(path)) == dump_json(document) == path.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not strict JSON"),
        ('{"schema": NaN}', "NaN is not JSON"),
        ('{"schema": 2}', "at schema"),
        ("[]", "the top level"),
        ("[" * 100_000, "nests too deep"),
        ("1" * 10_000, "not strict JSON"),
        ("\udcff", "not text in UTF-8"),
    ],
)
def test_what_is_no_result_file_is_refused(tmp_path, text, says):
    path = tmp_path / "result.json"
    path.write_bytes(os.fsencode(text))
    with pytest.raises(UsageError, match=says):
        read_json(path)


def test_a_file_may_lack_what_has_a_default_and_nothing_else(tmp_path, content):
    path, work = tmp_path / "result.json", content["workload"]
    decay = Workload("gcn", (2, 2), 1, 1, (1,), 0).weight_decay
    content["workload"] = {name: work[name] for name in work if name != "weight_decay"}
    path.write_text(json.dumps(content))
    assert read_json(path).workload.weight_decay == decay
    content["workload"] = {name: work[name] for name in work if name != "batch_size"}
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"workload\.batch_size"):
        read_json(path)


def test_unknown_keys_and_missing_files_are_refused(tmp_path, content):
    content["runs"][0]["bonus"] = 1
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"runs\.0\.bonus"):
        read_json(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_json(tmp_path / "none.json")
