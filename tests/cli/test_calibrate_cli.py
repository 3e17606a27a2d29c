"""``gnnbench platforms calibrate``: a described machine, and runs that it is said to have measured.

The runs are modelled there, and their stages are then made a known number of times as long.
"""

import json
import math
from collections import defaultdict

import pytest

from gnnbench.machines import load_platform
from gnnbench.machines.describe import local_path
from gnnbench.machines.machine import PathTimes
from gnnbench.price.model_error import FEWEST_GROUPS
from tests.commands import one_sentence, read_document

HOST = """
name = "bench"
description = "a host without accelerators"
step = { value = 2, unit = "ms", source = "s" }
[host]
model = "a processor"
cores = { value = 4, source = "s" }
flops = { value = 0.1, unit = "TFLOP/s", source = "s" }
memory_bandwidth = { value = 205, unit = "GB/s", source = "s" }
core_bandwidth = { value = 10, unit = "GB/s", source = "s" }
memory = { value = 8, unit = "GiB", source = "s" }
sampling = { value = 20, unit = "Medges/s", source = "s" }
launch = { value = 5, unit = "us", source = "s" }
"""
GRAPH = "sbm:vertices=300,edges=1200,features=16,classes=4"
MODES = {"mini-batch": "sampler", "full-graph": "kernel"}
#: How many times as long as modelled each stage is said to have taken.
TIMES = {
    "sample": 3.0,
    "load": 0.5,
    "transfer": 7.0,
    "aggregate": 1.25,
    "update": 4.0,
    "synchronize": 2.5,
}
LOSSES = ("--no-check", "--epochs", "2")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def machine(tmp_path):
    """The machine's file, without and with the time of a step."""
    plain, stepped = tmp_path / "plain.toml", tmp_path / "stepped.toml"
    stepped.write_text(HOST)
    plain.write_text("".join(line for line in HOST.splitlines(True) if "step" not in line))
    return plain, stepped


@pytest.fixture
def measure(run, tmp_path):
    """Models a run, and changes it to a run of one row that the platform measured."""

    def make(platform, strategy, *words, times=TIMES, harness_s=0.0, change=None):
        made = tmp_path / f"{strategy}{len(list(tmp_path.iterdir()))}.json"
        given = ("--dataset", GRAPH, "--platform", platform, "--json", made, *LOSSES, *words)
        assert run("compare", "--plugins", strategy, *given).exit_code == 0
        document = json.loads(made.read_text())
        document["platform"]["modelled"] = False
        document["machine"] |= {"cpu": load_platform(str(platform)).host.model, "gpu": None}
        document["runs"] = [each for each in document["runs"] if each["strategy"] == strategy]
        for each in document["runs"]:
            for stage, entry in each["stages"].items():
                entry |= {"value": times[stage] * entry["value"], "provenance": "measured"}
            epoch_s = harness_s + sum(entry["value"] for entry in each["stages"].values())
            metrics = each["metrics"]
            metrics["epoch_time"] = {"value": epoch_s, "unit": "s", "provenance": "measured"}
            metrics["harness_overhead"] |= {"value": harness_s / epoch_s, "samples": []}
        if change is not None:
            change(document)
        made.write_text(json.dumps(document))
        return made

    return make


def plan(run, platform, strategy, mode):
    words = ("--dataset", GRAPH, "--mode", mode, "--epochs", "2", "--platform", platform)
    (found,) = read_document(run("plan", strategy, *words, "--json", "-"))["runs"]
    return found


@pytest.mark.parametrize("mode", ["mini-batch", "full-graph"])
def test_a_plan_on_the_calibrated_platform_is_the_run(run, machine, measure, tmp_path, mode):
    """Every stage has its own factor, and a plan of the same run then gives its stages and epoch.

    A full-graph epoch is a little more than its stages, which two threads share. A second
    calibration by the same run changes nothing.
    """
    near = 1e-12 if mode == "mini-batch" else 1e-3
    plain, out = machine[0], tmp_path / "out.toml"
    made = measure(plain, "reference", "--mode", mode)
    (measured,) = json.loads(made.read_text())["runs"]
    found = read_document(
        run(
            "platforms",
            "calibrate",
            "--run",
            made,
            plain,
            "--out",
            out,
            "--json",
            "-",
        )
    )
    found = found["paths"][f"torch {mode}"]
    assert {stage: each["times"] for stage, each in found["stages"].items()} == {
        stage: pytest.approx(TIMES[stage], rel=1e-12) for stage in measured["stages"]
    }
    assert {"aggregate", "update"} <= set(found["stages"])
    planned = plan(run, out, "reference", mode)
    for stage, entry in measured["stages"].items():
        assert planned["stages"][stage]["value"] == pytest.approx(entry["value"], rel=1e-12)
    epoch_s = measured["metrics"]["epoch_time"]["value"]
    assert planned["metrics"]["epoch_time"]["value"] == pytest.approx(epoch_s, rel=near)
    (epoch,) = found["measured_epochs"]
    assert (epoch["measured"], epoch["after"]) == (epoch_s, pytest.approx(epoch_s, rel=near))
    assert epoch["before"] == pytest.approx(
        plan(run, plain, "reference", mode)["metrics"]["epoch_time"]["value"], rel=1e-12
    )
    again = tmp_path / "again.toml"
    run("platforms", "calibrate", "--run", made, out, "--out", again)
    assert load_platform(str(again)).calibration == load_platform(str(out)).calibration


def test_the_numbers_are_marked_fitted_and_predictions_have_no_basis(
    run, machine, measure, tmp_path
):
    plain, out = machine[0], tmp_path / "out.toml"
    made = measure(plain, "reference", "--mode", "mini-batch")
    said = run("platforms", "calibrate", "--run", made, plain, "--out", out).stdout
    assert f"wrote {out}" in said
    platform = load_platform(str(out))
    mark = platform.mark("calibration.torch mini-batch.sample")
    assert mark.kind == "fitted"
    assert mark.fitted_on[0].startswith(f"{made.name} (sha256 ")
    assert "reference mini-batch gcn on" in platform.sources["calibration.torch mini-batch.sample"]
    assert platform.calibrated("torch", "mini-batch").sample == pytest.approx(3.0)
    assert platform.calibrated("torch", "mini-batch").recompute == 1.0
    assert "calibration.torch mini-batch.recompute" not in platform.sources
    assert platform.calibrated("torch", "full-graph") == PathTimes()
    assert "groups of epochs: 1, and a basis needs 8" in said
    words = ("plan", "reference", "--dataset", GRAPH, "--platform", out, "--mode")
    assert (
        "no basis: 8 groups of epochs measured on the platform are needed, and there are 1 "
        "(torch, sampled) (see gnnbench platforms calibrate)"
    ) in " ".join(run(*words, "mini-batch").stdout.split())
    assert "reproduce validation" in run(*words, "full-graph").stdout
    epoch = plan(run, out, "reference", "mini-batch")["metrics"]["epoch_time"]
    assert "error_factor" not in epoch


def test_steps_take_what_the_harness_took(run, machine, measure, tmp_path):
    """The platform says 2 ms a step; the run's harness took 30 ms in all, whatever the stages."""
    _, stepped = machine
    made, out = (
        measure(machine[0], "reference", "--mode", "full-graph", harness_s=0.03),
        tmp_path / "o.toml",
    )
    words = ("platforms", "calibrate", "--run", made, stepped, "--out", out)
    found = read_document(run(*words, "--json", "-"))
    found = found["paths"]["torch full-graph"]
    (epoch,) = found["measured_epochs"]
    assert epoch["after"] == pytest.approx(epoch["measured"], rel=1e-3)
    assert epoch["before"] != pytest.approx(epoch["measured"], rel=0.1)
    planned = plan(run, out, "reference", "full-graph")["metrics"]["epoch_time"]["value"]
    assert planned == pytest.approx(epoch["measured"], rel=1e-3)
    platform = load_platform(str(out))
    assert platform.calibrated("torch", "full-graph").step_s == found["step"] > 0.0
    assert platform.step_s == 2e-3


def test_each_group_is_predicted_by_the_others(run, machine, measure, tmp_path):
    """Three models take other multiples of their plans, and the sums of the others predict each.

    An epoch of another kernel is of no group with them.
    """
    plain, out = machine[0], tmp_path / "out.toml"
    factors = {"gcn": 1.0, "sage": 2.0, "gin": 5.0}
    full = ("--mode", "full-graph")
    paths = [
        measure(plain, "reference", *full, "--model", name, times=dict.fromkeys(TIMES, factor))
        for name, factor in factors.items()
    ]
    took_s = [json.loads(path.read_text())["runs"][0]["stages"] for path in paths]
    paths.append(measure(plain, "pyg", *full, times=dict.fromkeys(TIMES, 9.0)))
    runs = [word for path in paths for word in ("--run", path)]
    words = ("platforms", "calibrate", *runs, plain, "--out", out, "--json", "-")
    found = read_document(run(*words))["paths"]
    assert list(found) == ["torch full-graph", "pyg full-graph"]
    (alone,) = found["pyg full-graph"]["measured_epochs"]
    assert alone["left_out"] is None
    assert found["pyg full-graph"]["stages"]["aggregate"]["times"] == pytest.approx(9.0)
    found, errors = found["torch full-graph"], []
    for number, epoch in enumerate(found["measured_epochs"]):
        planned, expected_s = [], 0.0
        for stages, factor in zip(took_s, factors.values(), strict=True):
            planned.append({stage: entry["value"] / factor for stage, entry in stages.items()})
        for stage, planned_s in planned[number].items():
            others = [other for other in range(3) if other != number]
            measured_s = sum(took_s[other][stage]["value"] for other in others)
            expected_s += planned_s * measured_s / sum(planned[other][stage] for other in others)
        assert epoch["left_out"] == pytest.approx(expected_s, rel=1e-2)
        errors.append(abs(math.log(epoch["left_out"] / epoch["measured"])))
    # Four fifths of three groups are all three.
    assert found["groups"] == 3
    assert found["error_factor"] == pytest.approx(math.exp(max(errors)))
    known = load_platform(str(out)).calibrated("torch", "full-graph")
    assert known.error_factor == found["error_factor"]


def test_a_basis_needs_enough_groups(run, machine, measure, tmp_path):
    plain, out = machine[0], tmp_path / "out.toml"
    made = measure(plain, "reference", "--mode", "full-graph")
    run("platforms", "calibrate", "--run", made, plain, "--out", out)
    text = out.read_text()
    assert text.count("groups = {value = 1,") == 1
    enough = f'error_factor = {{ value = 1.5, source = "s" }}\ngroups = {{value = {FEWEST_GROUPS},'
    out.write_text(text.replace("groups = {value = 1,", enough))
    found = plan(run, out, "reference", "full-graph")
    assert found["metrics"]["epoch_time"]["error_factor"] == 1.5
    assert found["work"]["own_error"] == [FEWEST_GROUPS, 1.5]
    words = ("compare", "--plugins", "reference", "--dataset", GRAPH, "--platform", out, *LOSSES)
    said = " ".join(run(*words, "--mode", "full-graph").stdout.split())
    assert (
        "80 % of 8 groups of epochs measured on the platform (torch, full graph) lie within 1.5x"
    ) in said


REFUSED = {
    "modelled": (
        lambda d: d["platform"].update(modelled=True),
        "has times modelled on bench, and calibration needs measured ones",
    ),
    "elsewhere": (
        lambda d: d["machine"].update(cpu="another"),
        "was run on another with no GPU, and platform bench describes a processor with no GPU",
    ),
    "no stages": (
        lambda d: d["runs"][0].update(stages={}),
        "has no finished run with measured stages",
    ),
    "other data": (
        lambda d: d["dataset"].update(digest="0" * 16),
        "with digest 0000000000000000, and it has",
    ),
    "other work": (
        lambda d: d["runs"][0]["work"].update(seeds=7),
        "seeds and",
    ),
    "ablate": (lambda d: d.update(command=["gnnbench", "ablate"]), "is of gnnbench ablate"),
    "unknown strategy": (
        lambda d: d["runs"][0].update(strategy="nobody"),
        "there is no strategy 'nobody' here",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_run_of_something_else_is_refused(run, machine, measure, case):
    change, says = REFUSED[case]
    made = measure(machine[0], "reference", "--mode", "full-graph", change=change)
    result = run("platforms", "calibrate", "--run", made, machine[0])
    assert says in one_sentence(result)


def test_wrong_usage(run, machine, tmp_path):
    text = tmp_path / "text.json"
    text.write_text("no JSON")
    words = ("platforms", "calibrate", machine[0])
    assert "is not strict JSON" in one_sentence(run(*words, "--run", text))
    assert "there is no" in one_sentence(run(*words, "--run", tmp_path / "none.json")).lower()
    assert "--save keeps the platform 'local'" in one_sentence(run(*words, "--run", text, "--save"))


def test_stages_come_from_a_profilers_trace(run, machine, measure, tmp_path):
    """Two steps of PyTorch's profiler on two threads: the busiest thread of a stage counts."""
    plain, out = machine[0], tmp_path / "out.toml"
    made, trace = measure(plain, "reference", "--mode", "full-graph"), tmp_path / "trace.json"

    def span(name, tid, dur_us):
        lasts = {"ph": "X", "ts": 0, "dur": dur_us}
        return {**lasts, "name": name, "cat": "user_annotation", "pid": 1, "tid": tid}

    spans = [span(f"ProfilerStep#{step}", tid, 9e6) for step in (3, 4) for tid in (1, 2)]
    spans += [span("aggregate", 1, 1e6), span("aggregate", 1, 2e6), span("aggregate", 2, 2.5e6)]
    trace.write_text(json.dumps({"traceEvents": [*spans, span("aten::mm", 1, 5e6)]}))
    words = ("platforms", "calibrate", "--run", made, plain, "--out", out)
    found = read_document(run(*words, "--trace", trace, "--json", "-"))["paths"]
    found = found["torch full-graph"]
    assert set(found["stages"]) == {"aggregate"}
    assert found["stages"]["aggregate"]["measured"] == pytest.approx(1.5)
    mark = load_platform(str(out)).mark("calibration.torch full-graph.aggregate")
    assert trace.name in str(mark.fitted_on)
    for content, says in (
        ('{"traceEvents": 3}', "is no Chrome trace (TypeError"),
        ('{"traceEvents": []}', "has no span of a stage; name spans sample, load"),
    ):
        trace.write_text(content)
        assert says in one_sentence(run(*words, "--trace", trace))
    assert "--trace is of one run" in one_sentence(run(*words, "--run", made, "--trace", trace))


def test_stages_are_the_medians_of_all_repeats(run, machine, measure, tmp_path):
    def repeat(document):
        (first,) = document["runs"]
        for number, factor in ((1, 4.0), (2, 2.0)):
            again = json.loads(json.dumps(first)) | {"repeat": number}
            for entry in (*again["stages"].values(), again["metrics"]["epoch_time"]):
                entry["value"] *= factor
            document["runs"].append(again)

    words = ("platforms", "calibrate", machine[0], "--out")
    mode = ("reference", "--mode", "full-graph")
    once, thrice = (
        read_document(run(*words, tmp_path / f"out{n}.toml", "--run", made, "--json", "-"))
        for n, made in enumerate(
            (measure(machine[0], *mode), measure(machine[0], *mode, change=repeat))
        )
    )
    stages, again = (each["paths"]["torch full-graph"]["stages"] for each in (once, thrice))
    assert stages.keys() == again.keys()
    for name, stage in stages.items():
        assert again[name]["measured"] == pytest.approx(2 * stage["measured"])


def test_local_is_calibrated_by_a_trace_of_compare_and_kept(run, tmp_path):
    """The trace is of the last epoch, and says of each span what stage it is of."""
    files = ("--trace", tmp_path / "trace.json", "--json", tmp_path / "run.json")
    words = ("--dataset", GRAPH, "--platform", "local", "--mode", "full-graph", *LOSSES)
    assert run("compare", "--plugins", "reference", *words, *files).exit_code == 0
    words = ("platforms", "calibrate", "--run", tmp_path / "run.json", "--save", "--json", "-")
    found = read_document(run(*words, "--trace", tmp_path / "trace.json"))["paths"]
    found = found["torch full-graph"]["stages"]
    lasted_s = defaultdict(float)
    for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]:
        if event["ph"] == "X":
            lasted_s[event["args"]["stage"], event["tid"]] += event["dur"] / 1e6
    for stage, each in found.items():
        busiest_s = max(seconds for (named, _), seconds in lasted_s.items() if named == stage)
        assert each["measured"] == pytest.approx(busiest_s)
    assert local_path().is_file()
    times = load_platform("local").calibrated("torch", "full-graph")
    assert times.aggregate == found["aggregate"]["times"]
    assert "calibration.torch full-graph.aggregate" in run("platforms", "show", "local").stdout
