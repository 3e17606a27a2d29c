"""``compare`` and ``ablate`` on devices made of this machine's cores: real ranks, pinned."""

import json
import os

import pytest

from gnnbench.comparison import frame
from tests.commands import run_python

GRAPH = "sbm:vertices=600,edges=3000,features=16,classes=4"
WORK = f"--dataset {GRAPH} --hidden 8".split()
#: Only prevents a hang.
HANGING_S = 600
#: A plugin that needs 5 samples of each time and not 100, and writes down the cores of each epoch.
FEW_SAMPLES = """
import contextlib, os
import gnnbench.comparison.frame
import gnnbench.run
from gnnbench.comparison import frame
from gnnbench.hookspecs import hookimpl

gnnbench.comparison.frame.ENOUGH_SAMPLES = 5
on_cores = gnnbench.run.on_cores


@contextlib.contextmanager
def write_cores(cores):
    with on_cores(cores):
        if cores:
            with open(f"{os.path.dirname(__file__)}/{os.environ['RANK']}.cores", "a") as file:
                print(*os.sched_getaffinity(0), file=file)
        yield


gnnbench.run.on_cores = write_cores


@hookimpl
def gnnbench_strategy():
    return []
"""


@pytest.fixture(autouse=True)
def never_probed(monkeypatch, tmp_path):
    """A machine without any measured rate."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def run_document(folder, *words):
    """The document of a command's two ranks, and its runs by label."""
    plugin = folder / "few_samples.py"
    plugin.write_text(FEW_SAMPLES)
    options = ("--plugin", str(plugin), "--epochs", "2", "--json", "-")
    done = run_python("-m", "gnnbench", *words, *WORK, *options, timeout=HANGING_S)
    assert done.returncode == 0, done.stderr
    cores = [set((folder / f"{rank}.cores").read_text().splitlines()) for rank in (0, 1)]
    assert [len(each) for each in cores] == [1, 1]
    assert cores[0] != cores[1]
    assert all(each.isdigit() for each in cores[0] | cores[1])
    document = json.loads(done.stdout)
    assert all(run["status"] == "done" for run in document["runs"])
    assert all(run["equivalence"]["equal"] is True for run in document["runs"])
    return document, {run["label"]: run for run in document["runs"]}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two cores")
def test_rows_on_devices_made_of_cores_are_measured_for_as_long_as_it_takes(tmp_path):
    words = ("compare", "--plugins", "hongtu", "--platform", "cores:1,1")
    document, runs = run_document(tmp_path, *words)
    assert set(runs) == {"hongtu", "hongtu·vanilla"}
    assert document["platform"]["name"] == "cores:1,1"
    for run in runs.values():
        assert run["work"]["devices"] == ["worker0", "worker1"]
        epochs = run["metrics"]["epoch_time"]
        assert epochs["provenance"] == "measured"
        assert len(epochs["samples"]) == 5  # and not the two that were asked for
    whole, plain = (runs[name]["metrics"] for name in ("hongtu", "hongtu·vanilla"))
    assert whole["host_to_device_bytes"]["value"] < plain["host_to_device_bytes"]["value"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a device and a host need two cores")
def test_a_host_with_a_core_of_its_own_trains_beside_a_device(tmp_path):
    """Each step of HyScale-GNN has the same losses, whichever devices train."""
    _, runs = run_document(tmp_path, "ablate", "hyscale", "--platform", "cores:1+1")
    alone = runs.pop("offload all")
    assert alone["work"]["devices"] == ["worker0"]
    assert list(runs) == ["+hybrid", "+DRM", "+TFP"]
    # Without DRM, the split is that of the plan, which assumes its rates.
    assert "host" in runs["+hybrid"]["work"]["devices"]
    for run in runs.values():
        assert run["loss"] == pytest.approx(alone["loss"], rel=1e-5)


def test_a_host_that_shares_the_process_of_its_device_needs_no_other(run, monkeypatch):
    monkeypatch.setattr(frame, "ENOUGH_SAMPLES", 2)
    words = ("--platform", "cores:1", "--dataset", "sbm:vertices=60,edges=200,features=4,classes=3")
    done = run(
        "compare", "--plugins", "hyscale", *words, "--no-plain", "--epochs", "1", "--json", "-"
    )
    assert done.exit_code == 0, done.output
    assert [run["status"] for run in json.loads(done.stdout)["runs"]] == ["done"]


@pytest.mark.parametrize(
    ("platform", "sentence"),
    [
        ("cores:1000", "is made of 1000 cores, and this process may use"),
        ("cores:1;1", "'cores:1;1' is not cores:A,B,... with the number of cores of each device"),
    ],
)
def test_cores_that_are_not_there_are_refused_once(run, platform, sentence):
    done = run("compare", "--plugins", "partition", "--platform", platform)
    assert done.exit_code == 2
    assert done.stderr.count(sentence) == 1
