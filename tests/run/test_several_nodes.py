"""Ranks on several nodes, which are network namespaces: what they compute, and what they say when
one of them is gone. No test sets a network interface."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.networks import NETWORK, make_network, need_networks
from tests.run import faulty_ranks
from tests.run.test_ranks import EVERYTHING, STRATEGIES, hold

ROOT = Path(__file__).resolve().parents[2]
HANGING_S = 600
PATIENCE_S = 4

pytestmark = pytest.mark.usefixtures("networks")


@pytest.fixture(scope="module")
def networks():
    need_networks()


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("gcn", ((2, "2 nodes"), (4, "2 nodes"), (4, "4 nodes"))),
        ("sage", ((4, "2 nodes"),)),
        ("gat", ((4, "2 nodes"),)),
    ],
)
def test_nodes_train_what_one_process_trains(model, kinds):
    groups = tuple((*kind, ("partition",)) for kind in kinds)
    for group in groups:
        hold("partition", "small", model, groups, group)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "names", "kinds"),
    [
        ("gcn", EVERYTHING, ((2, "2 nodes"), (4, "2 nodes"), (4, "4 nodes"))),
        # Here no variant: the host's 8 cores are too few for 2 sampling workers in each of 8 ranks.
        ("gcn", STRATEGIES, ((8, "4 nodes"),)),
        ("sage", STRATEGIES, ((4, "2 nodes"), (4, "4 nodes"))),
        ("gat", STRATEGIES, ((4, "2 nodes"), (4, "4 nodes"))),
    ],
)
def test_nodes_train_every_strategy_alike(model, names, kinds):
    groups = tuple((*kind, names) for kind in kinds)
    for group in groups:
        for strategy in names:
            hold(strategy, "small", model, groups, group)


#: Rank 1 is killed, stopped, cut off with its node, or never started. The other ranks get SIGTERM,
#: while they meet or while they wait in a step for rank 1.
FAULTS = ("killed", "stopped", "cut", "absent", "terminated", "interrupted")


@cache
def find_what_was_said(nodes, size):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            faulty_ranks.__name__,
            *map(str, (nodes, size, PATIENCE_S)),
            *FAULTS,
        ],
        cwd=ROOT,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "FATAL", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=HANGING_S,
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {
        fault: {int(rank): told for rank, told in line.items()}
        for fault, line in zip(FAULTS, lines, strict=True)
    }


@pytest.mark.parametrize(
    ("nodes", "size"),
    [(2, 4), *(pytest.param(*each, marks=pytest.mark.long) for each in ((2, 2), (4, 4), (4, 8)))],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_at_fault_is_named_on_every_node_within_patience(nodes, size, fault):
    found = find_what_was_said(nodes, size)[fault]
    node = faulty_ranks.VICTIM * nodes // size
    lost = {rank for rank in range(size) if rank * nodes // size == node}
    for rank, (status, said, took_s) in found.items():
        if rank == faulty_ranks.VICTIM and fault in ("killed", "interrupted"):
            continue
        assert said.count("\n") == 1, said
        assert took_s < PATIENCE_S + 10  # on a busy machine
        error = said.removeprefix("gnnbench: error: ")
        if fault in ("terminated", "interrupted"):
            assert (status, error) == (143, "terminated.\n")
            continue
        assert status == 3, said
        if fault == "absent":
            assert error.startswith("rank 1 of ")
            assert " did not connect to " in error
        elif fault == "killed":
            assert error.startswith(f"rank 1 on node{node} is gone: it was killed, or its node")
        elif fault == "stopped" or rank not in lost:
            named = [1] if fault == "stopped" else sorted(lost)
            words = " and ".join(f"rank {each} on node{node}" for each in named)
            assert error.startswith(f"{words} did not answer for ")
            assert "stopped by a signal, or cut off; check the network" in error
        else:
            assert "cut off" in error


def test_torchrun_on_two_nodes_writes_one_result(tmp_path):
    compare = (
        "compare --plugins partition --no-plain --epochs 2 --hidden 8 --threads 1 "
        "--dataset sbm:vertices=600,edges=3000,features=16,classes=4 --json result.json"
    )
    launch = f"--nnodes 2 --nproc-per-node 1 --master-addr {NETWORK}.1 --master-port 29511"
    with make_network(2) as network:
        running = []
        for node, name in enumerate(network.nodes):
            (tmp_path / name).mkdir()
            words = f"{launch} --node-rank {node} -m gnnbench {compare}".split()
            torchrun = [sys.executable, "-m", "torch.distributed.run", *words]
            running.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, *torchrun],
                    cwd=tmp_path / name,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        said = [each.communicate(timeout=HANGING_S) for each in running]
        assert [each.returncode for each in running] == [0, 0], said
        assert "partition" in said[0][0]
        assert said[1][0] == ""
        written = list(tmp_path.glob("*/result.json"))
        assert [path.parent.name for path in written] == [network.nodes[0]]
    document = json.loads(written[0].read_text())
    assert {run["status"] for run in document["runs"]} == {"done"}
    assert all(run["equivalence"]["equal"] for run in document["runs"])
    assert document["runs"][0]["metrics"]["epoch_time"]["provenance"] == "measured"
    assert document["platform"]["name"] == "local"
    assert document["platform"]["description"].startswith("2 nodes, ")
