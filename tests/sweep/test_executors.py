"""Executors of sweeps: what a lost process leaves, and measured runs one at a time."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gnnbench.report.results.kept import list_kept
from gnnbench.sweep import Configuration, carrying, executors, read_grid
from gnnbench.sweep.carrying import carry_out, keep_loss
from gnnbench.sweep.executors import LocalExecutor
from gnnbench.sweep.running import Task
from gnnbench.sweep.turns import hold_machine, is_measured

GRID = """
datasets = ["sbm:vertices=60,edges=200,features=4,classes=3"]
strategies = ["reference"]
platforms = ["epyc7543x4-4xa100"]
"""


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(GRID)
    (configuration,) = read_grid(path).configurations
    return Task(configuration, "a-key", tmp_path)


def die(task, node):
    os.kill(os.getpid(), signal.SIGKILL)


def test_only_a_run_that_had_begun_is_kept_as_failed(task):
    assert keep_loss(task, "it was cancelled") == (task, "lost", "it was cancelled")
    assert not list(list_kept(task.store))
    context = multiprocessing.get_context("fork")
    process = context.Process(target=carry_out_with, args=(die, task))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert keep_loss(task, "it was killed")[1] == "failed"
    assert len(list(list_kept(task.store))) == 1
    assert keep_loss(task, "it is kept already")[1] == "lost"


def carry_out_with(run, task):
    carrying.run_task = run
    carry_out(task, os.getcwd())


def test_a_process_that_ends_before_it_serves_loses_its_tasks_alone(task, monkeypatch):
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda how: context)
    monkeypatch.setattr(executors, "_serve", lambda end, folder: os._exit(1))
    tasks = [task, replace(task, key="b-key")]
    ended = list(LocalExecutor(1).run(tasks))
    assert [(one.key, status) for one, status, _ in ended] == [("a-key", "lost"), ("b-key", "lost")]
    assert not list(list_kept(task.store))


def test_processes_start_in_the_root_folder_and_runs_in_the_sweeps(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with carrying.start_in_root() as folder:
        assert os.getcwd() == "/"
    assert os.getcwd() == folder == str(tmp_path)
    seen = []

    def run(task, node):
        seen.append(os.getcwd())
        return "done", ""

    monkeypatch.setattr(carrying, "run_task", run)
    monkeypatch.chdir("/")
    assert carry_out(task, folder) == ("done", "")
    assert seen == [folder]
    assert not list(tmp_path.glob(".*"))


def test_measured_runs_wait_for_each_other(task, tmp_path):
    assert not is_measured(task)
    local = replace(task.configuration.job, platform="local")
    assert is_measured(replace(task, configuration=Configuration(local)))
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with hold_machine(tmp_path):
        process = context.Process(target=hold_and_tell, args=(tmp_path, theirs))
        process.start()
        assert not ours.poll(0.3)
        released_s = time.monotonic()
    assert ours.poll(60)
    assert ours.recv() >= released_s
    process.join()


def hold_and_tell(folder, end):
    with hold_machine(folder):
        end.send(time.monotonic())


@pytest.mark.parametrize("failed", ["m1", "m2"])
def test_a_result_of_one_machine_goes_before_a_failure_of_another(tmp_path, monkeypatch, failed):
    task = SimpleNamespace(store=tmp_path, key="key")
    for machine in ("m1", "m2"):
        (tmp_path / f"key.{machine}{carrying.ENDING}").touch()

    def read(path):
        status = "failed" if f".{failed}." in path.name else "done"
        return SimpleNamespace(header=SimpleNamespace(status=status, reason=""))

    monkeypatch.setattr(carrying, "read_kept", read)
    assert carrying.find_end(task) == (task, "done", "")
