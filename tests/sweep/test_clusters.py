"""Sweeps on clusters: nodes and processes of a run, lost jobs, and jobs of an earlier sweep."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace

import psutil
import pytest

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.jobs.groups import Spread
from gnnbench.report.results.kept import KeptHeader, list_kept, read_kept, write_kept
from gnnbench.sweep import Configuration, launching, on_slurm, read_grid
from gnnbench.sweep.carrying import ALONE, carry_out, mark_of
from gnnbench.sweep.launching import RunLostError, run_command
from gnnbench.sweep.on_ray import describe_share
from gnnbench.sweep.on_slurm import TRIES, SlurmExecutor
from gnnbench.sweep.running import Task
from tests.commands import one_sentence, read_document, read_runs, run_python

GRAPH = "sbm:vertices=60,edges=200,features=4,classes=3"
GRID = f"""
datasets = ["{GRAPH}"]
strategies = ["partition"]
platforms = ["epyc7543x4-4xa100"]
set = ["placement.accelerators=2"]
epochs = 1
hidden = 4
"""


@pytest.fixture
def write(tmp_path):
    def write_grid(lines=""):
        path = tmp_path / "sweep.toml"
        path.write_text(GRID + lines)
        return path

    return write_grid


def test_a_spread_is_kept_and_one_process_is_as_before(write):
    several = read_grid(write("nodes = [1, 2]\nprocesses = [2, 4]\ngpus = 2")).configurations
    assert len(set(several)) == 4
    for each in several:
        assert Configuration.from_json(each.to_json()) == each
    told = several[-1].to_json()
    assert [told[name] for name in ("nodes", "processes", "gpus")] == [2, 4, 2]
    assert several[-1].label.endswith(" · nodes 2 · processes 4 · gpus 2")
    assert several[-1].node_cores == 2
    (plain,) = read_grid(write("processes = 1")).configurations
    assert not {"nodes", "processes", "gpus"} & plain.to_json().keys()


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("nodes = 2\nprocesses = 3", "processes is 3 on 2 nodes; give a multiple of the nodes"),
        ("nodes = 2", "processes is 1 on 2 nodes"),
        ("nodes = 2\nprocesses = 2\ngpus = 1", "gpus is 1 on 2 nodes"),
        ("processes = 1025", "processes is 1025; give a whole number from 1 to 1,024"),
        ("nodes = 0", "nodes is 0; give a whole number from 1"),
        ('programs = ["x"]\nprocesses = 2', "programs are named, and processes is 2"),
        ("nodes = 2\nprocesses = 2", "the runs are on this machine alone; use --executor slurm"),
        ("gpus = 1024", "gpus is 1,024, and this machine has"),
    ],
)
def test_a_spread_that_cannot_be_meant_is_refused(run, write, tmp_path, lines, sentence):
    said = one_sentence(run("sweep", write(lines), "--store", tmp_path / "store"))
    assert sentence in said
    assert not list(tmp_path.glob("store/*"))


class Slurm:
    """Slurm's commands, with jobs that end in the states of ``script``, each the next.

    A state is the job's name for the end, with what the run does before.
    """

    def __init__(self, script=()):
        self.script = list(script)
        self.jobs = []

    def run(self, words, input="", **how):
        answer = {"sbatch": self.submit, "squeue": self.list_jobs}[words[0]](words)
        return subprocess.CompletedProcess(words, 0, answer, "")

    def submit(self, words):
        name = next(word.partition("=")[2] for word in words if "--job-name" in word)
        self.jobs.append([name, self.script.pop(0) if self.script else "RUNNING"])
        return ""

    def list_jobs(self, words):
        lines = [f"{number}|{state}|{name}" for number, (name, state) in enumerate(self.jobs)]
        return "\n".join([*lines, "99|RUNNING|of another | user"])


@pytest.fixture
def tasks(write, tmp_path):
    grid = read_grid(write("seeds = [0, 1, 2]"))
    return [Task(each, f"key{each.job.seed}", tmp_path) for each in grid.configurations]


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Open an executor on a Slurm of scripted jobs."""
    monkeypatch.setattr(on_slurm, "POLL_S", 0.0)
    monkeypatch.setattr(on_slurm.shutil, "which", lambda program: program)

    def begin(slurm, jobs=1):
        monkeypatch.setattr(on_slurm.subprocess, "run", slurm.run)
        return SlurmExecutor(jobs, tmp_path)

    return begin


def keep(task, status="done", reason=""):
    header = KeptHeader(
        schema_version=1,
        key=task.key,
        machine="node",
        gnnbench="0",
        configuration={},
        status=status,
        reason=reason,
        began="",
        took_s=0.0,
    )
    write_kept(task.store, header, None)


@pytest.mark.parametrize(
    ("begun", "states", "end", "submitted"),
    [
        (True, ["OUT_OF_MEMORY"], "failed", 1),
        (False, ["FAILED", "FAILED", "FAILED"], "lost", TRIES),
        (True, ["NODE_FAIL", "PREEMPTED", "FAILED"], "lost", TRIES),
        (True, ["CANCELLED"], "lost", 1),
    ],
)
def test_a_lost_job_is_submitted_again_and_kept_only_if_the_run_ended_it(
    start, tasks, monkeypatch, begun, states, end, submitted
):
    """A mark that a job leaves belongs to that job."""
    slurm = Slurm(states)
    submit = slurm.submit

    def submit_and_begin(words):
        if begun and len(slurm.jobs) == 0:
            mark_of(tasks[0]).touch()
        return submit(words)

    monkeypatch.setattr(slurm, "submit", submit_and_begin)
    ((task, status, reason),) = start(slurm).run(tasks[:1])
    assert (task, status, len(slurm.jobs)) == (tasks[0], end, submitted)
    assert f"its Slurm job ended as {states[-1]}; see " in reason
    assert [read_kept(each).header.status for each in list_kept(task.store)] == (
        ["failed"] if end == "failed" else []
    )
    assert not mark_of(task).exists()


def test_jobs_of_a_killed_sweep_are_waited_for(start, tasks, monkeypatch):
    """One is done, one runs, and one was never submitted."""
    slurm = Slurm(["COMPLETED"])
    keep(tasks[0])
    killed = start(slurm, jobs=2).run(tasks)
    assert next(killed) == (tasks[0], "done", "")  # it ended when the store had been read
    slurm.jobs = [[start(slurm)._name(tasks[1]), "RUNNING"]]
    asked = slurm.list_jobs

    def run_on(words):
        if len(slurm.jobs) > 1:
            slurm.jobs = [[name, "COMPLETED"] for name, _ in slurm.jobs]
            keep(tasks[1])
            keep(tasks[2], "refused", "it cannot work")
        return asked(words)

    monkeypatch.setattr(slurm, "list_jobs", run_on)
    ends = {task.key: status for task, status, _ in start(slurm, jobs=2).run(tasks)}
    assert ends == {"key0": "done", "key1": "done", "key2": "refused"}
    assert len(slurm.jobs) == 2


def test_a_failure_that_is_retried_is_no_answer(start, tasks, monkeypatch):
    keep(tasks[0], "failed", "earlier")
    slurm = Slurm(["CANCELLED"])
    ((_, status, _),) = start(slurm).run(tasks[:1])
    assert status == "lost"


def test_a_job_asks_for_what_its_run_needs(start, tasks, monkeypatch):
    slurm, asked = Slurm(["CANCELLED"] * 2), []
    answer = slurm.run

    def run(words, input="", **how):
        asked.append((words, input))
        return answer(words)

    monkeypatch.setattr(slurm, "run", run)
    job = replace(tasks[0].configuration.job, threads=3, platform="local")
    wide = Configuration(job, Spread(nodes=2, processes=4, gpus=8))
    task = replace(tasks[0], configuration=wide)
    list(start(slurm).run([tasks[1], task]))
    (plain, _), (words, script) = [each for each in asked if each[0][0] == "sbatch"]
    assert {"--nodes=1", "--cpus-per-task=1"} <= set(plain)
    assert not any("gpus" in word or word == "--exclusive" for word in plain)
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=6"} <= set(words)
    assert {"--gpus-per-node=4", "--exclusive", "--chdir=/"} <= set(words)
    assert "srun --nodes=2 --ntasks-per-node=1 --cpus-per-task=6 --ntasks=2 " in script
    assert describe_share(task) == {"num_cpus": 6, "num_gpus": 4}
    for visible, chosen in (("7,5,3,1,0", "7,5,3,1"), (None, "0,1,2,3")):
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert launching.choose_devices(wide) == {"CUDA_VISIBLE_DEVICES": chosen}


@pytest.fixture
def instead(monkeypatch):
    """Run a program instead of the command of a configuration."""

    def run_instead(program):
        command = [sys.executable, "-S", "-c", program]
        monkeypatch.setattr(launching, "spell_command", lambda words: [*command, *words])
        monkeypatch.setattr(launching, "_spell_torchrun", lambda configuration, node: [])

    return run_instead


@pytest.mark.parametrize(
    ("nodes", "status", "said", "kind"),
    [
        (2, 3, "rank 1 on n1 is gone: it was killed, or its node has failed.", RunLostError),
        (2, 3, "rank 1 on n1 has failed: no memory.", GnnbenchError),
        (2, 137, "rank 1 on n0 is gone: it was killed, or its node has failed.", GnnbenchError),
        (1, 3, "rank 1 was killed by SIGKILL, and the other ranks were stopped.", GnnbenchError),
        (1, 2, "there is no strategy 'hongto'.", UsageError),
    ],
)
def test_only_a_lost_node_means_run_again(tasks, instead, nodes, status, said, kind):
    say = "import sys; print('noise', file=sys.stderr); "
    instead(f"{say}print({'gnnbench: error: ' + said!r}, file=sys.stderr); sys.exit({status})")
    task = replace(tasks[0], configuration=spread_task(tasks[0], nodes))
    with pytest.raises(GnnbenchError) as raised:
        run_command(task, ALONE)
    assert (type(raised.value), str(raised.value)) == (kind, said)
    ends = [] if kind is RunLostError else ["refused" if kind is UsageError else "failed"]
    with nullcontext() if ends else pytest.raises(RunLostError):
        carry_out(task, os.getcwd())
    assert [read_kept(each).header.status for each in list_kept(task.store)] == ends
    assert not list(task.store.glob(".*"))


def spread_task(task, nodes):
    return Configuration(task.configuration.job, Spread(nodes=nodes, processes=2))


def test_ranks_end_with_the_process_of_their_run(tasks, tmp_path, instead, monkeypatch):
    instead(
        "import os, sys, time; open('pid', 'w').write(str(os.getpid())); "
        "os.rename('pid', 'began'); time.sleep(600)"
    )
    monkeypatch.chdir(tmp_path)
    task = replace(tasks[0], configuration=spread_task(tasks[0], 1))
    process = multiprocessing.get_context("fork").Process(target=run_command, args=(task, ALONE))
    process.start()
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    ranks = psutil.Process(int((tmp_path / "began").read_text()))
    process.kill()
    process.join()
    assert not psutil.wait_procs([ranks], timeout=60)[1]


def test_a_job_on_two_nodes_trains_what_one_process_trains(
    run, write, tmp_path, stub_slurm, monkeypatch
):
    """torchrun joins a rank on each node, and the first node keeps the result."""
    monkeypatch.setattr(on_slurm, "POLL_S", 0.2)
    monkeypatch.chdir(tmp_path)
    words = ("sweep", write("nodes = 2\nprocesses = 2"), "--executor", "slurm")
    assert run(*words).exit_code == 0
    (kept,) = map(read_kept, list_kept(tmp_path / "results"))
    assert not list((tmp_path / "results").glob(".*"))
    assert "2 processes (gloo)" in " ".join(kept.document.runs[0].notes)
    job = kept.header.configuration
    same = ("--dataset", GRAPH, "--platform", job["platform"], "--set", *job["set"])
    words_alone = ("--epochs", 1, "--hidden", 4, "--threads", 1, "--no-plain", "--json", "-")
    (alone,) = read_runs(run("compare", "--plugins", "partition", *same, *words_alone))
    ours = kept.document.runs[0]
    for name in ("device_to_device_bytes", "epoch_time"):
        assert ours.metrics[name].value == alone["metrics"][name]["value"]
    assert ours.loss == pytest.approx(alone["loss"], rel=1e-5)
    del job["nodes"], job["processes"]
    write_kept(tmp_path / "results", kept.header.model_copy(update={"key": "a"}), kept.document)
    (table,) = read_document(run("report", "results", "--json", "-"))["tables"]
    alone, spread = sorted((row["label"] for row in table["rows"]), key=len)
    assert spread == f"{alone} · nodes 2 · processes 2"
    assert run(*words).exit_code == 0
    assert stub_slurm() == 1


@pytest.mark.long
def test_a_placement_group_holds_two_nodes_of_ray(write, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed for this Python")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        words = ("sweep", write("nodes = 2\nprocesses = 2"), "--executor", "ray", "--json", "-")
        done = run_python(
            *("-m", "gnnbench", *words, "--store", tmp_path / "store"),
            env=os.environ | {"RAY_ADDRESS": cluster.address},
        )
    finally:
        cluster.shutdown()
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["done"] == 1
    (kept,) = map(read_kept, list_kept(tmp_path / "store"))
    assert "2 processes (gloo)" in " ".join(kept.document.runs[0].notes)


#: Kills the first process that it trains in.
DYING = """
import os, pathlib, signal
from gnnbench.hookspecs import hookimpl
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.reference.kernel import TorchKernel

DIED = pathlib.Path(__file__).with_name("died")

class Dying(TorchKernel):
    name = "dying"

    def begin(self, setting):
        if not DIED.exists():
            DIED.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        TorchKernel.begin(self, setting)

@hookimpl
def gnnbench_kernel():
    return [Dying]

@hookimpl
def gnnbench_strategy():
    parts = Parts("full-graph", "single", "none", "resident", "dying")
    return [Strategy("dying", "dies once", "gnnbench", {"full-graph": parts})]
"""


@pytest.mark.long
def test_a_run_whose_ray_worker_is_killed_is_run_again(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed for this Python")
    (tmp_path / "plugin.py").write_text(DYING)
    lines = GRID.replace('"partition"', '"dying"').replace("set = ", "#")
    (tmp_path / "sweep.toml").write_text(f'{lines}plugins = ["{tmp_path}/plugin.py"]')
    words = ("sweep", tmp_path / "sweep.toml", "--executor", "ray", "--store", tmp_path / "store")
    done = run_python("-m", "gnnbench", *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (tmp_path / "died").exists()
    (kept,) = map(read_kept, list_kept(tmp_path / "store"))
    assert kept.header.status == "done"


def test_a_worker_of_ray_that_is_told_to_end_keeps_nothing():
    """Ray's handler of SIGTERM raises SystemExit, which a run would keep as its failure."""
    done = run_python(
        "-c",
        "import os, signal, sys\n"
        "from gnnbench.sweep import on_ray\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        "on_ray.carry_out = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "on_ray.carry_out_in_worker(None, '/')\n",
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
