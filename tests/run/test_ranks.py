"""Every strategy of several devices, trained by as many processes: what one process computes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from gnnbench.price.dry_run import DryRun
from tests.run import ranks
from tests.run.ranks import ADAPTIVE, STRATEGIES, TOO_LARGE, VARIANTS, Case, sum_up, train_case

#: Protects from hanging alone.
HANGING_S = 1800
#: Rows that go other ways are held on these alone.
ALL_WAYS = (("small", "gcn"), ("cora", "gcn"))
#: They aggregate some columns at a time, and attention needs whole rows; or some rows, which are
#: scaled for sums.
FOR_SUMS = ("mixgcn", "p3", "bnsgcn", "neugraph")


def find_ports(count):
    """Ports that are free, all at once."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def list_strategies(dataset, model):
    return (*STRATEGIES, *VARIANTS) if (dataset, model) in ALL_WAYS else STRATEGIES


@cache
def train_in_processes(dataset, model, sizes=(2, 4), how=""):
    """By size, what groups of so many real ranks found of every strategy; ``how`` they send."""
    ports = find_ports(len(sizes))
    groups = ",".join(f"{size}:{port}{how}" for size, port in zip(sizes, ports, strict=True))
    names = [*TOO_LARGE.values(), *list_strategies(dataset, model)]
    command = subprocess.Popen(
        [sys.executable, ranks.__file__, groups, dataset, model, *names],
        env=os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said = command.communicate(timeout=HANGING_S)[0]
        assert command.returncode == 0
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
            command.communicate()
    return dict(zip(sizes, map(json.loads, said.splitlines()), strict=True))


def hold(strategy, dataset, model, processes, sizes=(2, 4), how=""):
    """What so many processes computed against one process, and what they sent against the program
    gone through without one."""
    case = Case(strategy, dataset, model)
    found = train_in_processes(dataset, model, sizes, how)[processes][strategy]
    if model == "gat" and strategy in FOR_SUMS:
        assert "choose" in found
        return
    assert not isinstance(found, str), found
    alone = sum_up(train_case(case, processes))
    for what in ("loss", "round losses", "epoch_s"):
        assert found[what] == pytest.approx(alone[what], rel=1e-9, abs=0), what
    for name, values in alone["parameters"].items():
        trained = np.asarray(found["parameters"][name])
        allowed = np.maximum(1e-6 * np.abs(values), 1e-9)
        assert trained.shape == allowed.shape, name
        assert (np.abs(trained - values) <= allowed).all(), name
    assert found["bytes"] == alone["bytes"]
    assert found["peak bytes"] == alone["peak bytes"]
    if strategy != ADAPTIVE:
        assert found["bytes"] == [
            {kind: size for kind, size in epoch.bytes.items() if size}
            for epoch, _ in DryRun(*case.find(processes)).run_epochs(len(alone["loss"]))
        ]


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("strategy", list_strategies("small", "gcn"))
def test_processes_train_what_one_process_trains(strategy, processes):
    """On a small graph, GCN; each group of ranks is started once for all strategies."""
    hold(strategy, "small", "gcn", processes)


@pytest.mark.parametrize("strategy", list_strategies("small", "gcn"))
def test_ranks_that_share_memory_train_what_one_process_trains(strategy):
    """As devices made of one machine's cores do: what they send is not in messages."""
    hold(strategy, "small", "gcn", 3, (3,), ":shared")


def test_a_row_that_runs_out_of_memory_ends_in_all_processes_and_the_next_goes_on():
    """It comes first in each group; that the others are right is tested above."""
    found = train_in_processes("small", "gcn")
    for size, strategy in TOO_LARGE.items():
        assert "out of memory: rows and gradients in flight needs" in found[size][strategy]


#: Of both graphs and all models; each pair takes minutes, in which all strategies train.
REAL = [("cora", "gcn"), ("cora", "gat"), ("amazon_photo", "sage")]


@pytest.mark.long
@pytest.mark.parametrize(("dataset", "model"), REAL)
def test_processes_train_what_one_process_trains_on_real_graphs(dataset, model):
    """One test for all that a group of ranks trains, so that no other worker starts it again."""
    for processes in (2, 4):
        for strategy in list_strategies(dataset, model):
            hold(strategy, dataset, model, processes)
