"""Workers of a sweep that start soon, and Slurms of one machine."""

import multiprocessing
import shutil
import sys
from importlib.metadata import entry_points
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.sweep.slurms import count_jobs, run_slurm

STUB = Path(__file__).with_name("stub_slurm.py")


@pytest.fixture(scope="module")
def forked_workers():
    """Workers are forks of one process that has imported every plugin."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([each.module for each in entry_points(group="gnnbench")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda how: context)
        yield
    forkserver._forkserver._stop()


@pytest.fixture
def stub_slurm(tmp_path, monkeypatch):
    """Put Slurm's commands on the path; a function that counts their jobs."""
    commands, jobs = tmp_path / "bin", tmp_path / "jobs"
    commands.mkdir()
    jobs.mkdir()
    for name in ("sbatch", "squeue", "srun", "scontrol"):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} {name} "$@"\n')
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    monkeypatch.setenv("STUB_SLURM", str(jobs))
    return lambda: len(list(jobs.iterdir()))


@pytest.fixture
def real_slurm(tmp_path, monkeypatch):
    """Start a Slurm of this machine; a function that counts its jobs."""
    if not all(map(shutil.which, ("munged", "slurmctld", "slurmd"))):
        pytest.skip("Slurm is not installed; Debian's packages are slurm-wlm and munge")
    with run_slurm(tmp_path / "slurm") as settings:
        monkeypatch.setenv("SLURM_CONF", str(settings))
        yield count_jobs
