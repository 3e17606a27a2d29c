"""``compare --processes``: real ranks, and what happens when one of them is gone."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from gnnbench.cli.processes import LOST, SILENT, RankFailed, find_culprit, run_ranks

GRAPH = "sbm:vertices=600,edges=3000,features=16,classes=4"
COMPARE = f"compare --plugins mixgcn --dataset {GRAPH} --hidden 8 --threads 1".split()
#: Nothing of a run may be left this long after a rank is gone.
STOPPED_S = 30


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "gnnbench", *COMPARE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_instead(monkeypatch, program):
    """Have ``run_ranks`` start a program instead of the command."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **how: popen([words[0], "-c", program], **how)
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


#: Waits for its starter, and says that it does: in one write, since three share the pipe.
WAITING = """
import os, time
from gnnbench.cli.processes import end_with_starter
end_with_starter()
os.write(1, b"waiting\\n")
time.sleep(100)
"""
#: Starts three of them.
STARTING = f"""
import subprocess
from gnnbench.cli.processes import run_ranks
popen = subprocess.Popen
def start(words, **how):
    return popen([words[0], "-c", {WAITING!r}], **how | {{"stdout": None}})
subprocess.Popen = start
run_ranks([], 3, 60)
"""


def test_ranks_end_with_whoever_started_them():
    starter = subprocess.Popen([sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True)
    try:
        said = [starter.stdout.readline() for _ in range(3)]
        ranks = psutil.Process(starter.pid).children()
    finally:
        starter.kill()
        starter.communicate()
    assert (said, len(ranks)) == (["waiting\n"] * 3, 3)
    _, alive = psutil.wait_procs(ranks, timeout=STOPPED_S)
    assert not alive


#: Two ranks, of which the second never comes to add up numbers.
HANGING = """
import sys, time, torch
from gnnbench.engine.collectives import PeerLost, join
processes = join(3)
if processes.rank: time.sleep(100)
try:
    processes.sum(torch.ones(1, dtype=torch.float64))
except PeerLost as error:
    print(f"gnnbench: error: {error}", file=sys.stderr)
    sys.exit(error.exit_status)
"""


def test_a_rank_that_hangs_is_named_after_as_long_as_was_asked_for(monkeypatch, capfd):
    start_instead(monkeypatch, HANGING)
    with pytest.raises(RankFailed, match="rank 1 did not answer: the other ranks waited 3 s for"):
        run_ranks([], 2, 3)
    said = capfd.readouterr().err
    assert "rank 0 waited 3 s for the other ranks in a sum, and one of them did not come" in said


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
        ((SILENT, None, LOST), 1),
        ((SILENT, None, 3), 2),
        ((None, LOST, -9), 2),
        ((0, SILENT, LOST), 1),
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
    start_instead(monkeypatch, program)
    began_s = time.monotonic()
    with pytest.raises(RankFailed, match=r"rank 1 ended with status 1, .* stopped: no more room"):
        run_ranks([], 3, 60)
    assert time.monotonic() - began_s < STOPPED_S


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "1"), "1 is not in the range x>=2"),
        (("--processes", "2", "--patience", "0"), "0 is not in the range 1<=x<=86400"),
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
