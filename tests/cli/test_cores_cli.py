"""``compare`` and ``ablate`` on devices made of this machine's cores: real ranks, pinned."""

from __future__ import annotations

import collections
import contextlib
import json
import subprocess
import sys
import time

import psutil
import pytest

GRAPH = "sbm:vertices=600,edges=3000,features=16,classes=4"
WORK = f"--dataset {GRAPH} --hidden 8 --batch-size 128".split()
#: Protects from hanging alone.
HANGING_S = 600


@pytest.fixture(autouse=True)
def never_probed(monkeypatch, tmp_path):
    """A machine of which nothing was measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "gnnbench", *words, *WORK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_document(*words):
    """The runs of a command's result, by their labels."""
    command = start(*words, "--epochs", "2", "--json", "-")
    text, said = command.communicate(timeout=HANGING_S)
    assert command.returncode == 0, said
    document = json.loads(text)
    assert all(run["status"] == "done" for run in document["runs"])
    return document, {run["label"]: run for run in document["runs"]}


def test_rows_on_devices_made_of_cores_are_measured_for_as_long_as_it_takes():
    document, runs = run_document("compare", "--plugins", "hongtu", "--platform", "cores:1,1")
    assert set(runs) == {"hongtu", "hongtu·vanilla"}
    assert document["platform"]["name"] == "cores:1,1"
    for run in runs.values():
        assert run["work"]["devices"] == ["worker0", "worker1"]
        assert run["equivalence"]["equal"] is True
        epochs = run["metrics"]["epoch_time"]
        assert epochs["provenance"] == "measured"
        assert len(epochs["samples"]) > 2  # more than were asked for: as many as times need
    whole, plain = (runs[name]["metrics"] for name in ("hongtu", "hongtu·vanilla"))
    assert whole["host_to_device_bytes"]["value"] < plain["host_to_device_bytes"]["value"]


def test_a_host_with_a_core_of_its_own_trains_beside_a_device():
    """HyScale-GNN step by step: the same losses, whoever takes part."""
    _, runs = run_document("ablate", "hyscale", "--platform", "cores:1+1")
    alone = runs.pop("offload all")
    assert alone["work"]["devices"] == ["worker0"]
    assert list(runs) == ["+hybrid", "+DRM", "+TFP"]
    # Without DRM the split is that of the plan, by rates that are assumed.
    assert "host" in runs["+hybrid"]["work"]["devices"]
    for run in runs.values():
        assert run["loss"] == pytest.approx(alone["loss"], rel=1e-5)
        assert run["equivalence"]["equal"] is True


def test_a_killed_device_is_named():
    """While it is on its own core, which is no other's."""
    words = ("compare", "--plugins", "partition", "--platform", "cores:1,1", "--no-check")
    command = start(*words, "--epochs", "1000000")
    try:
        # Where a process is seen again and again: a library that starts tries each core once.
        seen = collections.defaultdict(collections.Counter)
        while len(seen) < 2 or min(max(each.values()) for each in seen.values()) < 4:
            assert command.poll() is None, command.communicate()
            for child in psutil.Process(command.pid).children():
                # What a library asks the system for when it is loaded is soon gone.
                with contextlib.suppress(psutil.NoSuchProcess):
                    if len(child.cpu_affinity()) == 1:
                        seen[child.pid].update(child.cpu_affinity())
            time.sleep(0.1)
        (one, _), (other, _) = (each.most_common(1)[0] for each in seen.values())
        assert one != other
        for child in psutil.Process(command.pid).children():
            if child.environ()["RANK"] == "1":
                child.kill()
        _, said = command.communicate(timeout=HANGING_S)
        assert "rank 1 was killed by SIGKILL" in said
        assert command.returncode == 3
    finally:
        command.kill()
        command.communicate()


@pytest.mark.parametrize(
    ("platform", "sentence"),
    [
        ("cores:1000", "is made of 1000 cores, and this process may use"),
        ("cores:1;1", "'cores:1;1' is not cores:A,B,... with so many cores for each device"),
    ],
)
def test_cores_that_are_not_there_are_refused_once(run, platform, sentence):
    done = run("compare", "--plugins", "partition", "--platform", platform)
    assert done.exit_code == 2
    assert done.stderr.count(sentence) == 1
