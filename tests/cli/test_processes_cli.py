"""``compare --processes``: real ranks, and what happens when one of them is gone."""

import contextlib
import ipaddress
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from unittest.mock import Mock

import psutil
import pytest

from gnnbench.cli import processes
from gnnbench.cli.processes import LEFT, LOST, SILENT, RankFailedError, find_culprit, run_ranks
from gnnbench.host import signals
from tests.commands import one_sentence

GRAPH = "sbm:vertices=600,edges=3000,features=16,classes=4"
WORK = f"--dataset {GRAPH} --hidden 8 --threads 1".split()
COMPARE = ["compare", "--plugins", "mixgcn", *WORK]
#: Only prevents a hang.
HANGING_S = 600


@pytest.fixture(autouse=True)
def no_lasting_watch(monkeypatch):
    """This process goes on after a command as a rank, so nothing may watch it for signals."""
    monkeypatch.setattr(signals, "insist", lambda: None)
    monkeypatch.setattr(signals, "explain_by", lambda find_fault: None)


def start_python(*words, **how):
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
    )


def start_instead(monkeypatch, program):
    """Have ``run_ranks`` start a program instead of the command."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **how: popen([words[0], "-c", program], **how)
    )


#: A rank that only waits. One write announces it, since three ranks share the pipe.
WAITING = """
import os, time
from gnnbench.cli.processes import end_with_starter
end_with_starter()
os.write(1, b"waiting\\n")
time.sleep(600)
"""
#: The command with three such ranks.
STARTING = f"""
import subprocess
import gnnbench.cli.workers
from gnnbench.__main__ import start
popen = subprocess.Popen
def start_waiting(words, **how):
    return popen([words[0], "-c", {WAITING!r}], **how | {{"stdout": None}})
subprocess.Popen = start_waiting
gnnbench.cli.workers.check_processes = lambda *given: 3
start()
"""


@pytest.fixture
def waiting():
    """A command of three ranks that wait, and its ranks."""
    command = start_python("-c", STARTING, *COMPARE, "--processes", "3", "--patience", "2")
    ranks = []
    try:
        assert [command.stdout.readline() for _ in range(3)] == ["waiting\n"] * 3
        ranks = psutil.Process(command.pid).children()
        assert len(ranks) == 3
        yield command, ranks
    finally:
        for process in (command, *ranks):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        command.communicate()


@pytest.mark.parametrize(
    ("number", "status", "error"),
    [
        (signal.SIGINT, 130, "gnnbench: error: interrupted."),
        (signal.SIGTERM, 143, "gnnbench: error: terminated."),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_a_signal_to_the_command_ends_all_ranks_and_is_said_once(waiting, number, status, error):
    """A terminal sends SIGINT to the command and to every rank. After SIGKILL, the command cannot
    stop its ranks."""
    command, ranks = waiting
    if number == signal.SIGINT:
        for rank in ranks:
            rank.send_signal(number)
    command.send_signal(number)
    # A rank that outlived the command would hold its output open.
    assert command.communicate(timeout=60)[1].strip() == error
    assert command.returncode == status
    assert not psutil.wait_procs(ranks, timeout=60 if number == signal.SIGKILL else 0)[1]


def test_ranks_that_are_stopped_all_at_once_are_not_waited_for(waiting):
    """No rank is left to miss another."""
    command, ranks = waiting
    for rank in ranks:
        rank.suspend()
    _, said = command.communicate(timeout=HANGING_S)
    assert "rank 0 was stopped by a signal, did not go on for 2 s, and was ended" in said
    assert command.returncode == 3
    assert not any(rank.is_running() for rank in ranks)


#: Three ranks: ranks 0 and 2 wait for rank 1, which does nothing.
HANGING = """
import sys, time, torch
from gnnbench.host import signals
from gnnbench.host.rank import read_place
from gnnbench.run.collectives import PeerLostError
from gnnbench.run.joining import join
processes = join(read_place(), 5)
try:
    if processes.rank == 0: processes.sum(torch.ones(1, dtype=torch.float64))
    if processes.rank == 2: processes.receive(3, torch.float64, 1, 7).wait()
    time.sleep(100)
except PeerLostError as error:
    with open(f"{FOLDER}/{processes.rank}", "w") as file: file.write(str(error))
    signals.leave(error.exit_status)
"""


def test_a_rank_that_hangs_is_named_after_as_long_as_was_asked_for(monkeypatch, tmp_path):
    start_instead(monkeypatch, HANGING.replace("FOLDER", repr(str(tmp_path))))
    with pytest.raises(RankFailedError, match="rank 1 did not answer for 5 s, so all ranks"):
        run_ranks([], 3, 5)
    for rank, where in ((0, "an all-reduce"), (2, "receiving from rank 1")):
        said = (tmp_path / str(rank)).read_text()
        # The first of them that gives up says it to the others, too.
        assert said.startswith("rank 1 did not take part: rank"), said
        assert f"rank {rank} waited 5 s in {where}" in said or f"rank {2 - rank} waited" in said


#: A rank that ends with 6 inside its group, then a rank that ends after it has left the group.
#: Threads of a group that wait for another rank abort an interpreter that is taken down around
#: them; an exit handler stands for that here.
ENDING = """
import atexit, os
from gnnbench.host import signals
from gnnbench.host.rank import read_place
from gnnbench.run.joining import join
for where in ("inside", "outside"):
    if os.fork() == 0:
        processes = join(read_place(), 30)
        atexit.register(os._exit, 99)
        if where == "outside": processes.leave()
        print(where)
        signals.leave(6)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_a_rank_that_is_not_done_with_the_others_ends_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ended = start_python("-u", "-c", ENDING, env=os.environ | alone)
    said, error = ended.communicate(timeout=HANGING_S)
    assert (said.split(), error) == (["inside", "6", "outside", "99"], "")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("what", ["data set", "workload", "version of gnnbench"])
def test_ranks_with_other_data_say_so_and_train_nothing(run, monkeypatch, rank, what):
    """Two machines may have different versions of a file."""

    class Pair(Mock):
        def gather(self, told):
            self.own = told[what]
            other = told | {what: "another"}
            return [told, other] if rank == 0 else [other, told]

    pair = Pair(rank=rank, accounting=nullcontext)
    monkeypatch.setattr("gnnbench.run.joining.join", lambda *given: pair)
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run(*COMPARE, "--json", "-")
    values = (pair.own, "another") if rank == 0 else ("another", pair.own)
    assert result.stderr == (
        f"gnnbench: error: the {what} of rank 1 is {values[1]}, and rank 0 has {values[0]}; "
        f"give all ranks the same.\n"
    )
    assert (result.exit_code, result.stdout) == (2, "")


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


@pytest.mark.parametrize(
    ("joined", "culprit"), [((True, True, False), 2), ((True, False, True), 1), ((True,) * 3, 1)]
)
def test_a_rank_that_never_met_the_others_is_to_blame_first(joined, culprit):
    assert find_culprit((SILENT, None, None), joined) == culprit


def test_a_rank_that_fails_says_why(monkeypatch):
    program = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit('gnnbench: error: no more room')\n"
        "time.sleep(600)"
    )
    start_instead(monkeypatch, program)
    with pytest.raises(
        RankFailedError, match=r"rank 1 ended with status 1, .* stopped: no more room"
    ):
        run_ranks([], 3, HANGING_S)


def test_ranks_that_only_lost_each_other_say_why(monkeypatch):
    program = (
        "import os, sys\n"
        "if os.environ['RANK'] == '1': print('gnnbench: error: no route', file=sys.stderr)\n"
        "sys.exit(5)"
    )
    start_instead(monkeypatch, program)
    with pytest.raises(RankFailedError, match=r"rank 0 ended with status 5, .* stopped: no route"):
        run_ranks([], 2, HANGING_S)


def test_a_loopback_that_is_down_is_said_before_any_rank_starts(run, no_rank_starts, monkeypatch):
    down = {name: each._replace(isup=False) for name, each in psutil.net_if_stats().items()}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: down)
    result = run(*COMPARE, "--processes", "2", "--epochs", "1")
    assert result.exit_code == 3
    assert "no network interface that is up has this address; bring the loop" in result.stderr


def test_an_interface_that_other_hosts_need_must_be_there(run, monkeypatch):
    for variable, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "192.0.2.1",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "lo,none0",
    }.items():
        monkeypatch.setenv(variable, value)
    result = run(*COMPARE, "--epochs", "1")
    assert result.exit_code == 2
    assert "GLOO_SOCKET_IFNAME is 'lo,none0', and this machine has no network interface" in (
        result.stderr
    )


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
    said = one_sentence(run(*COMPARE, "--processes", "6"))
    assert "6 processes take 1.20 GB or more, and this machine has 1.00 GB" in said
    assert "ask for 5 at most" in said


def test_a_strategy_or_an_option_that_is_none_is_refused_before_a_rank_starts(run, no_rank_starts):
    for words, says in (
        (("--set", "placement.accelerator=2"), "has no option 'accelerator'"),
        (("--swap", "kernel=fast"), "there is no kernel 'fast'"),
        (("--model", "gnc"), "there is no model 'gnc'"),
        (("--platform", "nowhere"), "nowhere"),
        (("--processes", "1"), "'1' is not a whole number from 2 to"),
        (("--patience", "0"), "'0' is not a whole number from 1 to 86,400"),
        (("--fanouts", "x"), "'x' is not a list of whole numbers"),
        (("--set", "sampler"), "is not PART.option=value"),
    ):
        result = run(*COMPARE, "--processes", "2", *words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert says in result.stderr


def test_a_rank_of_another_number_is_told_so(run, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "this is one of 4 ranks, and 2 are asked for" in one_sentence(
        run(*COMPARE, "--processes", "2")
    )


#: A rank's beginning: what it needs to report, and which one it is.
BEGIN = """
import os, sys, time
from gnnbench.host.rank import DONE, JOINED, report
rank = int(os.environ["RANK"])
"""


@pytest.mark.parametrize("others", ["report(DONE)\nsys.exit(5)", "time.sleep(3600)"])
def test_a_rank_that_leaves_its_work_undone_is_named(monkeypatch, others):
    """The others lose it, or do not miss it."""
    start_instead(monkeypatch, f"{BEGIN}if rank == 1: sys.exit(0)\n{others}")
    with pytest.raises(
        RankFailedError, match=r"rank 1 ended before the work was done, and the other"
    ):
        run_ranks([], 3, HANGING_S)


def test_ranks_that_do_nothing_are_ended_after_as_long_as_was_asked_for(monkeypatch):
    """All hang before they have met: no other is there to give one up."""
    start_instead(monkeypatch, BEGIN + "if not rank: report(JOINED)\ntime.sleep(3600)")
    with pytest.raises(RankFailedError, match=r"no rank did anything for 3 s.* rank 1 had not met"):
        run_ranks([], 2, 3)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_rank_that_goes_on_in_between_was_never_stopped_for_long(monkeypatch, goes_on):
    """Looks 1 s apart: stopped for 2 s, going on in one look or not, and stopped for 2 s again."""
    stopped, running = psutil.STATUS_STOPPED, psutil.STATUS_RUNNING
    states = [stopped, stopped, running if goes_on else stopped, stopped, stopped]
    process = Mock()
    process.cpu_times.side_effect = ((number, 0.0) for number in itertools.count())
    process.status.side_effect = states
    monkeypatch.setattr(psutil, "Process", lambda number: process)
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr(processes, "time", Mock(monotonic=lambda: next(clock)))
    rank = processes.Rank(Mock(pid=1), Mock())
    pulse = processes._Pulse([rank], 3.0)
    with nullcontext() if goes_on else pytest.raises(RankFailedError, match="rank 0 was stopped"):
        for _ in states:
            pulse.feel()


#: Ranks of which the last never comes to meet the others.
LOADING = """
import os, sys, time
if os.environ["RANK"] == "1":
    while True:
        time.sleep(0.02)
        sum(range(20_000))
from gnnbench.host.rank import read_place
from gnnbench.run.collectives import PeerLostError
from gnnbench.run.joining import join
try:
    join(read_place(), 3)
except PeerLostError as error:
    sys.exit(error.exit_status)
"""


def test_patience_covers_what_comes_before_training(monkeypatch):
    start_instead(monkeypatch, LOADING)
    with pytest.raises(RankFailedError, match="rank 1 did not answer for 3 s, so all ranks"):
        run_ranks([], 2, 3)


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
    """A Python program in a folder, with another folder first in PYTHONPATH."""
    found = (str(path), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    environment["GLOO_SOCKET_IFNAME"] = "none0"  # of a cluster: ranks of one machine need none
    return start_python(*words, cwd=folder, env=environment)


def check_training(text, said, chats):
    """A document is alone on standard output. A plugin's ``chats`` are on standard error."""
    assert "error" not in said
    for how in ("print", "a child", "C"):
        assert said.count(f"chatter by {how}") == chats
    runs = {each["label"]: each for each in json.loads(text)["runs"]}
    assert {each["status"] for each in runs.values()} == {"done"}
    row = runs["mixgcn"]
    assert row["equivalence"]["equal"] is True
    assert row["metrics"]["all_to_all_bytes"]["value"] > 0
    assert row["metrics"]["epoch_time"]["provenance"] == "measured"
    assert "2 processes (gloo)" in row["notes"]
    peak = row["metrics"]["peak_rank_bytes"]
    assert (peak["provenance"], peak["unit"], peak["value"]) == (
        "measured",
        "B",
        max(peak["samples"]),
    )
    assert len(peak["samples"]) == 2


TWO_EPOCHS = ("--epochs", "2", "--plugin", "chatty", "--json", "-")


def test_two_processes_train_the_same_model_and_import_nothing_from_here(tmp_path):
    """The current folder is full of libraries' names. PYTHONPATH stays as the user set it."""
    here, asked_for = tmp_path / "here", tmp_path / "asked for"
    intruder = "import os, sys; os.write(2, b'an intruder was imported\\n')"
    (here / "gnnbench").mkdir(parents=True)
    (here / "gnnbench" / "__init__.py").write_text(intruder)
    for name in ("psutil", "click", "torch", "sitecustomize", "json"):
        (here / f"{name}.py").write_text(intruder)
    asked_for.mkdir()
    (asked_for / "chatty.py").write_text(CHATTY)
    words = ("-c", STARTER, *COMPARE, "--processes", "2", *TWO_EPOCHS)
    command = start_elsewhere(here, asked_for, *words)
    text, said = command.communicate(timeout=HANGING_S)
    assert command.returncode == 0, said
    assert "intruder" not in said
    assert "times are measured" in said
    # The command and rank 0 chat here. The output of rank 1 is kept.
    check_training(text, said, 2)


def test_ranks_that_torchrun_starts_train_together(tmp_path):
    """Each rank finds its number in the environment. Rank 0 alone writes and prints."""
    (tmp_path / "chatty.py").write_text(CHATTY)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = (*launcher, "-m", "gnnbench", *COMPARE, *TWO_EPOCHS)
    command = start_elsewhere(tmp_path, tmp_path, *words)
    text, said = command.communicate(timeout=HANGING_S)
    assert command.returncode == 0, said
    assert said.count("gnnbench compare ·") == 1
    check_training(text, said, 2)


def ranks_of(command, count=3):
    """The ranks of a running command, by number, once all have found each other."""
    while True:
        assert command.poll() is None, command.communicate()
        found = {}
        for child in psutil.Process(command.pid).children():
            try:
                # Gloo connects every pair; each rank also has a connection to the store.
                if len([c for c in child.net_connections() if c.status == "ESTABLISHED"]) > 2:
                    found[int(child.environ()["RANK"])] = child
            except (psutil.NoSuchProcess, psutil.AccessDenied, KeyError):
                continue
        if len(found) == count:
            return found
        time.sleep(0.1)


@pytest.fixture
def training(request):
    """A command of three ranks that trains until it is stopped, and its ranks."""
    compare = ["compare", "--plugins", request.param, "--no-plain", *WORK, "--no-check"]
    endless = ("--processes", "3", "--epochs", "1000000", "--patience", "30")
    command = start_python("-m", "gnnbench", *compare, *endless)
    try:
        yield command, ranks_of(command)
    finally:
        command.kill()
        command.communicate()


@pytest.mark.parametrize(
    "training",
    [
        "mixgcn",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("hongtu", "partition", "hyscale", "p3")
        ),
    ],
    indirect=True,
)
def test_a_killed_rank_ends_the_run_and_is_named(training):
    """Its peers wait for a message or an all-reduce. All sockets listen on the loopback alone."""
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
    _, said = command.communicate(timeout=HANGING_S)
    (error,) = [line for line in said.splitlines() if "error" in line]
    assert error.startswith("gnnbench: error: rank 1 was killed by SIGKILL, and the other ranks")
    assert command.returncode == 3
    assert not any(rank.is_running() for rank in ranks.values())
