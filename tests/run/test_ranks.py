"""Every strategy of several devices, trained by as many processes: what one process computes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gnnbench.price.dry_run import DryRun
from tests.run import ranks
from tests.run.ranks import ADAPTIVE, STRATEGIES, TOO_LARGE, VARIANTS, Case, sum_up, train_case

ROOT = Path(__file__).resolve().parents[2]
#: Protects from hanging alone.
HANGING_S = 1800
#: They aggregate some columns at a time, and attention needs whole rows; or some rows, which are
#: scaled for sums.
FOR_SUMS = ("mixgcn", "p3", "bnsgcn", "neugraph")
#: Groups of ranks by their size and by how they send, and what each of them trains. The quick ones
#: train every strategy and variant once, and the two that exchange with all others both ways.
BY_MESSAGES = (3, "messages", (TOO_LARGE[3], *STRATEGIES))
IN_MEMORY = (2, "shared", (TOO_LARGE[2], "p3", "mixgcn", *VARIANTS))
QUICK = (BY_MESSAGES, IN_MEMORY)
EVERYTHING = (*STRATEGIES, *VARIANTS)


def find_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@cache
def train_in_processes(dataset, model, groups):
    words = [
        ":".join((str(size), str(port), how, *names))
        for (size, how, names), port in zip(groups, find_ports(len(groups)), strict=True)
    ]
    command = subprocess.Popen(
        [sys.executable, "-m", ranks.__name__, dataset, model, *words],
        cwd=ROOT,
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
    return dict(zip(groups, map(json.loads, said.splitlines()), strict=True))


def hold(strategy, dataset, model, groups, group):
    """Compare a group's results with one process, and what it sent with the dry run."""
    case, devices = Case(strategy, dataset, model), group[0]
    found = train_in_processes(dataset, model, groups)[group][strategy]
    if model == "gat" and strategy in FOR_SUMS:
        assert "choose " in found.lower()
        return
    assert not isinstance(found, str), found
    alone = sum_up(train_case(case, devices))
    for what in ("loss", "round losses", "epoch_s"):
        assert found[what] == pytest.approx(alone[what], rel=1e-9, abs=0), what
    for name, values in alone["parameters"].items():
        trained = np.asarray(found["parameters"][name])
        allowed = np.maximum(1e-6 * np.abs(values), 1e-9)
        assert trained.shape == allowed.shape, name
        assert (np.abs(trained - values) <= allowed).all(), name
    assert found["bytes"] == alone["bytes"]
    assert found["peak bytes"] == alone["peak bytes"]
    crosses = any("host_to_host" in sizes for sizes in found["bytes"])
    assert len(found["unsent"]) == crosses
    if strategy != ADAPTIVE:
        assert found["bytes"] == [
            {kind: size for kind, size in epoch.bytes.items() if size}
            for epoch, _ in DryRun(*case.find(devices)).run_epochs(len(alone["loss"]))
        ]


@pytest.mark.parametrize(
    ("group", "strategy"),
    [
        pytest.param(group, name, id=f"{group[0]} {group[1]} {name}")
        for group in QUICK
        for name in group[2]
    ],
)
def test_processes_train_what_one_process_trains(group, strategy):
    """Each group first runs out of memory in all ranks, and then trains right."""
    if strategy == TOO_LARGE[group[0]]:
        refused = train_in_processes("small", "gcn", QUICK)[group][strategy]
        needed = r"out of memory: [\d,]+ bytes are needed for rows and gradients in flight"
        assert re.search(needed, refused)
    else:
        hold(strategy, "small", "gcn", QUICK, group)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dataset", "model", "names", "kinds"),
    [
        ("small", "gcn", EVERYTHING, ((2, "messages"), (4, "shared"))),
        ("cora", "gcn", EVERYTHING, ((4, "messages"),)),
        ("cora", "gat", STRATEGIES, ((4, "messages"),)),
        ("amazon_photo", "sage", STRATEGIES, ((2, "messages"),)),
    ],
)
def test_every_strategy_is_trained_alike_by_groups_of_other_sizes(dataset, model, names, kinds):
    """One test for all that a group of ranks trains, so that no other worker starts it again."""
    groups = tuple((size, how, (TOO_LARGE[size], *names)) for size, how in kinds)
    for group in groups:
        for strategy in names:
            hold(strategy, dataset, model, groups, group)
