"""``compare --processes``: real ranks, and what happens when one of them is gone."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from gnnbench.cli.processes import LEFT, LOST, SILENT, RankFailed, find_culprit, run_ranks

GRAPH = "sbm:vertices=600,edges=3000,features=16,classes=4"
WORK = f"--dataset {GRAPH} --hidden 8 --threads 1".split()
COMPARE = ["compare", "--plugins", "mixgcn", *WORK]
#: Protects from hanging alone.
HANGING_S = 600


def start(*words, compare=COMPARE, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "gnnbench", *compare, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def start_instead(monkeypatch, program):
    """Have ``run_ranks`` start a program instead of the command."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **how: popen([words[0], "-c", program], **how)
    )


def ranks_of(command, count=3):
    """The ranks of a running command, by number, once all have found each other."""
    while True:
        assert command.poll() is None, command.communicate()
        found = {}
        for child in psutil.Process(command.pid).children():
            try:
                # Besides the ranks' store, gloo connects every pair.
                if len([c for c in child.net_connections() if c.status == "ESTABLISHED"]) > 2:
                    found[int(child.environ()["RANK"])] = child
            except (psutil.NoSuchProcess, psutil.AccessDenied, KeyError):
                continue
        if len(found) == count:
            return found
        time.sleep(0.1)


@pytest.fixture
def training():
    """A command of three ranks that trains for ever, and its ranks."""
    command = start("--processes", "3", "--epochs", "1000000", "--no-check", "--patience", "30")
    try:
        yield command, ranks_of(command)
    finally:
        command.kill()
        command.communicate()


def ends(command):
    """The error of a command that ends."""
    _, said = command.communicate(timeout=HANGING_S)
    (error,) = [line for line in said.splitlines() if "error" in line]
    return error.removeprefix("gnnbench: error: ")


def test_a_killed_rank_ends_the_run_and_is_named(training):
    """Until then nobody listens but on the loopback: neither the command, whose ranks meet, nor a
    rank, whose peers connect to it."""
    command, ranks = training
    listening = [
        connection.laddr.ip
        for process in (psutil.Process(command.pid), *ranks.values())
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 4
    assert {ipaddress.ip_address(ip).is_loopback for ip in listening} == {True}
    ranks[1].kill()
    assert ends(command).startswith("rank 1 was killed by SIGKILL, and the other ranks")
    assert command.returncode == 3
    assert not any(rank.is_running() for rank in ranks.values())


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["hongtu", "partition", "hyscale", "p3"])
def test_a_killed_rank_of_any_kind_of_schedule_is_named(strategy):
    """Its peers wait for messages of it, or for an all-reduce."""
    compare = ["compare", "--plugins", strategy, "--no-plain", *WORK]
    endless = ("--epochs", "1000000", "--no-check", "--patience", "30")
    command = start("--processes", "3", *endless, compare=compare)
    try:
        ranks_of(command)[2].kill()
        assert ends(command).startswith("rank 2 was killed by SIGKILL, and the other ranks")
        assert command.returncode == 3
    finally:
        command.kill()
        command.communicate()


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_to_the_command_ends_all_ranks_and_is_said_once(training, name, status):
    """SIGINT as a terminal sends it: to the command and to every rank."""
    command, ranks = training
    if name == "SIGINT":
        for rank in ranks.values():
            rank.send_signal(signal.SIGINT)
    command.send_signal(getattr(signal, name))
    assert ends(command) == {"SIGINT": "interrupted.", "SIGTERM": "terminated."}[name]
    assert command.returncode == status
    assert not any(rank.is_running() for rank in ranks.values())


@pytest.mark.long
def test_ranks_that_are_stopped_all_at_once_are_not_waited_for(training):
    """None of them is left to miss another."""
    command, ranks = training
    for rank in ranks.values():
        rank.suspend()
    assert ends(command).startswith("rank 0 was stopped by a signal, did not go on for 30 s")
    assert command.returncode == 3
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
    _, alive = psutil.wait_procs(ranks, timeout=HANGING_S)
    assert not alive


#: Two ranks, of which the second never does its part of what the first one waits for.
HANGING = """
import sys, time, torch
from gnnbench import signals
from gnnbench.run.collectives import PeerLost, join
processes = join(3)
if processes.rank: time.sleep(100)
try:
    WAITING
except PeerLost as error:
    print(f"gnnbench: error: {error}", file=sys.stderr)
    signals.leave(error.exit_status)
"""


@pytest.mark.parametrize(
    ("waiting", "where"),
    [
        ("processes.sum(torch.ones(1, dtype=torch.float64))", "an all-reduce"),
        ("processes.receive(3, torch.float64, 1, 7).wait()", "receiving from rank 1"),
    ],
)
def test_a_rank_that_hangs_is_named_after_as_long_as_was_asked_for(
    monkeypatch, capfd, waiting, where
):
    start_instead(monkeypatch, HANGING.replace("WAITING", waiting))
    with pytest.raises(RankFailed, match="rank 1 did not answer: the other ranks waited 3 s for"):
        run_ranks([], 2, 3)
    said = capfd.readouterr().err
    assert f"rank 0 waited 3 s for the other ranks in {where}, and one of them did not" in said


#: A rank that ends with 6 inside its group, or after it has left it; threads of a group that wait
#: for another rank abort what is taken down around them, for which an exit handler stands here.
ENDING = """
import atexit, os, sys
from gnnbench import signals
from gnnbench.run.collectives import join, leave
join(30)
atexit.register(lambda: (sys.stdout.flush(), os._exit(99)))
if sys.argv[1] == "outside": leave()
print("said")
signals.leave(6)
"""


@pytest.mark.parametrize(("where", "status"), [("inside", 6), ("outside", 99)])
def test_a_rank_that_is_not_done_with_the_others_ends_at_once(where, status):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ended = subprocess.run(
        [sys.executable, "-c", ENDING, where],
        env=os.environ | alone,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (status, "said\n")


def test_ranks_that_torchrun_starts_train_together(tmp_path):
    """They find who they are in its environment, and rank 0 alone writes and prints."""
    found = tmp_path / "found.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = ["--nproc-per-node", "2", "-m", "gnnbench", *COMPARE, "--epochs", "2"]
    ended = subprocess.run(
        [*launcher, *words, "--json", str(found)],
        capture_output=True,
        text=True,
        timeout=HANGING_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("gnnbench compare") == 1
    runs = {each["label"]: each for each in json.loads(found.read_text())["runs"]}
    assert runs["mixgcn"]["equivalence"]["equal"] is True
    assert any("2 processes (gloo)" in note for note in runs["mixgcn"]["notes"])


def test_ranks_with_other_data_say_so_and_train_nothing():
    """As two machines may have, each with its own version of a file."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = []
    for rank, graph in enumerate((GRAPH, GRAPH.replace("3000", "3001"))):
        environment = dict(
            RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        words = [graph if word == GRAPH else word for word in COMPARE]
        ranks.append(start("--json", "-", compare=words, env={**os.environ, **environment}))
    for rank in ranks:
        said, error = rank.communicate(timeout=HANGING_S)
        assert rank.returncode == 2
        assert said == ""
        assert len(error.splitlines()) == 1
        assert "the data set of rank 1 is sbm:vertices=600,edges=3001" in error
        assert "that of rank 0 is sbm:vertices=600,edges=3000" in error


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
        ((LOST, LEFT, LOST), 1),
        ((LEFT, None, LOST), 0),
        ((SILENT, LEFT, None), 1),
        ((LEFT, 3, LOST), 1),
    ],
)
def test_the_rank_to_blame_is_the_one_that_did_not_just_lose_the_others(statuses, culprit):
    assert find_culprit(statuses) == culprit


def test_of_ranks_that_did_not_answer_the_one_that_never_met_the_others_is_to_blame():
    assert find_culprit((SILENT, None, None), (True, True, False)) == 2
    assert find_culprit((SILENT, None, None), (True, False, True)) == 1
    assert find_culprit((SILENT, None, None), (True, True, True)) == 1


def test_a_rank_that_fails_says_why(monkeypatch):
    program = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit('gnnbench: error: no more room')\n"
        "time.sleep(600)"
    )
    start_instead(monkeypatch, program)
    with pytest.raises(RankFailed, match=r"rank 1 ended with status 1, .* stopped: no more room"):
        run_ranks([], 3, HANGING_S)


@pytest.fixture
def no_rank_starts(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a rank began")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def test_a_number_of_processes_that_no_row_has_devices_for(run, no_rank_starts):
    """The platform's 16 devices, and those of a strategy's options; here as many as asked for."""
    words = ("--processes", "3", "--platform", "xeon8462-8xh100-8xspu")
    result = run(*COMPARE, *words)
    assert result.exit_code == 2
    assert (
        "'--processes': 3 are asked for, and 16 devices of xeon8462-8xh100-8xspu" in result.stderr
    )
    assert "ask for 16, or set placement.accelerators" in result.stderr
    for asked in (("--processes", "16", *words[2:]), ("--processes", "3")):
        assert "a rank began" in run(*COMPARE, *asked).stderr


def test_more_processes_than_there_is_memory_for(run, monkeypatch, no_rank_starts):
    monkeypatch.setattr("gnnbench.cli.workers.memory_bytes", lambda: 10**9)
    result = run(*COMPARE, "--processes", "6")
    assert result.exit_code == 2
    assert "6 processes take 1.20 GB or more, and this machine has 1.00 GB" in result.stderr
    assert "ask for 5 at most" in result.stderr


def test_a_strategy_or_an_option_that_is_none_is_refused_before_a_rank_starts(run, no_rank_starts):
    for words, says in (
        (("--set", "placement.accelerator=2"), "has no option 'accelerator'"),
        (("--swap", "kernel=fast"), "there is no kernel 'fast'"),
        (("--model", "gnc"), "there is no model 'gnc'"),
        (("--platform", "nowhere"), "nowhere"),
    ):
        result = run(*COMPARE, "--processes", "2", *words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert says in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "1"), "'1' is not a whole number from 2 to"),
        (("--processes", "2", "--patience", "0"), "'0' is not a whole number from 1 to 86,400"),
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


# --------------------------------------------------------------------------- before they train

#: A rank's beginning: what it needs to report, and which one it is.
BEGIN = """
import os, sys, time
from gnnbench.rank import DONE, JOINED, report
rank = int(os.environ["RANK"])
"""


def test_a_rank_that_leaves_its_work_undone_is_named_and_not_those_that_lose_it(monkeypatch):
    start_instead(monkeypatch, BEGIN + "if rank == 1: sys.exit(0)\nreport(DONE)\nsys.exit(5)")
    with pytest.raises(RankFailed, match=r"rank 1 ended before the work was done, and the other"):
        run_ranks([], 3, HANGING_S)


def test_a_rank_that_leaves_early_ends_a_run_in_which_nobody_misses_it(monkeypatch):
    start_instead(monkeypatch, BEGIN + "if rank == 1: sys.exit(0)\ntime.sleep(3600)")
    with pytest.raises(RankFailed, match=r"rank 1 ended before the work was done, and the other"):
        run_ranks([], 3, HANGING_S)


def test_ranks_that_do_nothing_are_ended_after_as_long_as_was_asked_for(monkeypatch):
    """All hang before they have met: no other is there to give one up."""
    start_instead(monkeypatch, BEGIN + "if not rank: report(JOINED)\ntime.sleep(3600)")
    with pytest.raises(RankFailed, match=r"no rank did anything for 3 s.* rank 1 had not met"):
        run_ranks([], 2, 3)


#: Ranks of which the last never comes to meet the others.
LOADING = """
import os, sys, time
if os.environ["RANK"] == "1":
    while True:
        time.sleep(0.02)
        sum(range(20_000))
from gnnbench.run.collectives import PeerLost, join
try:
    join(3)
except PeerLost as error:
    sys.exit(error.exit_status)
"""


def test_patience_covers_what_comes_before_training(monkeypatch):
    start_instead(monkeypatch, LOADING)
    with pytest.raises(RankFailed, match="rank 1 did not answer: the other ranks waited 3 s for"):
        run_ranks([], 2, 3)


# --------------------------------------------------------------------------- what they import

NO_STRATEGY = """
from gnnbench.hookspecs import hookimpl
@hookimpl
def gnnbench_strategy():
    return []
"""
#: A plugin that prints as it is imported, in every way there is.
CHATTY = (
    """
import ctypes, os, subprocess
print("chatter by print")
subprocess.run(["echo", "chatter by a child"])
ctypes.CDLL(None).puts(b"chatter by C")
"""
    + NO_STRATEGY
)
#: The command, without the current folder on its own path.
STARTER = """
import sys
sys.path.remove("")
from gnnbench.__main__ import start
start()
"""


def start_elsewhere(folder, path, *words):
    """The command in a folder, with another one first in PYTHONPATH."""
    found = (str(path), os.environ.get("PYTHONPATH", ""))
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, *COMPARE, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


#: Tells that it was imported.
INTRUDER = "import os, sys; os.write(2, b'an intruder was imported\\n')"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What two processes print in a folder full of libraries' names, with a plugin that prints."""
    folder = tmp_path_factory.mktemp("trained")
    here, asked_for = folder / "here", folder / "asked for"
    (here / "gnnbench").mkdir(parents=True)
    (here / "gnnbench" / "__init__.py").write_text(INTRUDER)
    for name in ("psutil", "click", "torch", "sitecustomize", "json"):
        (here / f"{name}.py").write_text(INTRUDER)
    asked_for.mkdir()
    (asked_for / "chatty.py").write_text(CHATTY)
    words = ("--processes", "2", "--epochs", "2", "--plugin", "chatty", "--json", "-")
    command = start_elsewhere(here, asked_for, *words)
    text, said = command.communicate(timeout=HANGING_S)
    assert command.returncode == 0, said
    return text, said


def test_two_processes_train_the_same_model_on_this_machine(trained):
    text, said = trained
    assert "error" not in said
    assert "times are measured" in said
    runs = {each["label"]: each for each in json.loads(text)["runs"]}
    assert all(each["status"] == "done" for each in runs.values())
    row = runs["mixgcn"]
    assert row["equivalence"]["equal"] is True
    assert row["metrics"]["all_to_all_bytes"]["value"] > 0
    assert row["metrics"]["epoch_time"]["provenance"] == "measured"
    assert any("2 processes (gloo); peak memory of each, measured" in n for n in row["notes"])


def test_ranks_import_nothing_from_the_current_folder_but_what_pythonpath_has(trained):
    """Neither a library of theirs nor another gnnbench; from PYTHONPATH as the user set it."""
    _, said = trained
    assert "intruder" not in said
    assert "chatter by print" in said


def test_a_document_on_standard_output_is_alone_there_in_every_process(trained, tmp_path):
    (tmp_path / "chatty.py").write_text(CHATTY)
    words = ("--epochs", "1", "--plugin", "chatty", "--json", "-")
    command = start_elsewhere(tmp_path, tmp_path, *words)
    alone = command.communicate(timeout=HANGING_S)
    assert command.returncode == 0, alone[1]
    # By the command, and by rank 0; what rank 1 says is kept.
    for (text, said), times in ((alone, 1), (trained, 2)):
        assert json.loads(text)["runs"][0]["status"] == "done"
        for how in ("print", "a child", "C"):
            assert said.count(f"chatter by {how}") == times
