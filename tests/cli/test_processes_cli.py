"""``compare --processes``: real ranks, and what happens when one of them is gone."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from gnnbench.cli.processes import LOST, RankFailed, find_culprit, run_ranks

COMPARE = ("compare", "--plugins", "mixgcn", "--hidden", "8", "--threads", "1")
#: Nothing of a run may be left this long after a rank is gone.
STOPPED_S = 30


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "gnnbench", *COMPARE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks_of(command):
    """The ranks of a running command, by number, once all have found each other."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        assert command.poll() is None, command.communicate()
        found = {}
        for child in psutil.Process(command.pid).children():
            try:
                # Besides the ranks' store, gloo connects every pair.
                if len([c for c in child.net_connections() if c.status == "ESTABLISHED"]) > 2:
                    found[int(child.environ()["RANK"])] = child
            except (psutil.NoSuchProcess, psutil.AccessDenied, KeyError):
                continue
        if len(found) == 3:
            return found
        time.sleep(0.1)
    raise AssertionError("the ranks did not find each other")


def test_a_killed_rank_ends_the_run_and_is_named():
    command = start("--processes", "3", "--epochs", "1000000", "--no-check")
    try:
        ranks = ranks_of(command)
        ranks[1].kill()
        killed_s = time.monotonic()
        _, said = command.communicate(timeout=STOPPED_S)
        assert time.monotonic() - killed_s < STOPPED_S
    finally:
        command.kill()
        command.wait()
    assert command.returncode == 3
    (error,) = [line for line in said.splitlines() if "error" in line]
    assert error.startswith("gnnbench: error: rank 1 was killed by SIGKILL, and the other ranks")
    assert not any(rank.is_running() for rank in ranks.values())


def test_ranks_end_with_whoever_started_them():
    command = start("--processes", "3", "--epochs", "1000000", "--no-check")
    try:
        ranks = ranks_of(command)
    finally:
        command.kill()
        command.communicate()
    _, alive = psutil.wait_procs(ranks.values(), timeout=STOPPED_S)
    assert not alive


def test_two_processes_train_the_same_model_on_this_machine(tmp_path):
    found = tmp_path / "found.json"
    command = start("--processes", "2", "--epochs", "2", "--json", str(found))
    text, said = command.communicate(timeout=120)
    assert (command.returncode, "error" in said) == (0, False)
    assert "device times are measured" in text
    (row,) = json.loads(found.read_text())["runs"]
    assert row["status"] == "done"
    assert row["equivalence"]["max_relative_loss_error"] < 1e-4
    assert row["metrics"]["all_to_all_bytes"]["value"] > 0
    assert row["metrics"]["epoch_time"]["provenance"] == "measured"
    assert any("2 processes (gloo); peak memory of each, measured" in n for n in row["notes"])


@pytest.mark.parametrize(
    ("statuses", "culprit"),
    [
        ((LOST, LOST, -9), 2),
        ((LOST, 3, LOST), 1),
        ((3, LOST, LOST), 0),
        ((None, None, LOST), 2),
        ((LOST, -11, 3), 1),
        ((0, 0, 3), 2),
    ],
)
def test_the_rank_to_blame_is_the_one_that_did_not_just_lose_the_others(statuses, culprit):
    assert find_culprit(statuses) == culprit


def test_a_rank_that_fails_says_why(monkeypatch):
    program = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit('gnnbench: error: no more room')\n"
        "time.sleep(60)"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **how: popen([words[0], "-c", program], **how)
    )
    began_s = time.monotonic()
    with pytest.raises(RankFailed, match=r"rank 1 ended with status 1, .* stopped: no more room"):
        run_ranks([], 3)
    assert time.monotonic() - began_s < STOPPED_S


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "1"), "1 is not in the range x>=2"),
        (("--processes", "2", "--fanouts", "x"), "'x' is not a list of whole numbers"),
        (("--processes", "2", "--set", "sampler"), "is not PART.option=value"),
    ],
)
def test_what_is_wrong_is_said_once_before_any_rank_starts(run, words, said):
    result = run(*COMPARE, *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_rank_of_another_number_is_told_so(run, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    result = run(*COMPARE, "--processes", "2")
    assert result.exit_code == 2
    assert "this is one of 4 ranks, and 2 are asked for" in result.stderr
