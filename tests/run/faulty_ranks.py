"""Ranks on several nodes that add up numbers until something happens to one of them.

``NODES RANKS PATIENCE FAULT FAULT..``: prints a line for each fault, with each rank's exit status,
what it said, and how long it took to end.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from gnnbench.cli import exit_status_of
from gnnbench.cli.options import CommandLine
from gnnbench.cli.processes import joined
from gnnbench.host import signals
from gnnbench.host.rank import read_place
from tests.networks import Network, make_network

#: The rank that something happens to.
VICTIM = 1


def work(patience_s: float, ready: int, fault: str) -> None:
    place = read_place()
    assert place is not None
    signals.insist()
    with joined(place, patience_s) as processes:
        processes.sum(torch.ones(1))
        os.write(ready, b"r")
        while fault == "interrupted" and place.rank == VICTIM:
            time.sleep(1.0)
        while True:
            processes.sum(torch.ones(1))
            time.sleep(0.01)


def start(network: Network, rank: int, size: int, do: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        network.enter(rank, size)
        signals.take()
        status = exit_status_of(do, CommandLine(("gnnbench",)))
        signals.leave(status)
    return child


def main() -> None:
    nodes, size, patience_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    os.environ["MASTER_PORT"] = "29555"
    for fault in sys.argv[4:]:
        print(json.dumps(run(nodes, size, patience_s, fault)), flush=True)


def run(nodes: int, size: int, patience_s: float, fault: str) -> dict[int, tuple[int, str, float]]:
    reading, ready = os.pipe()
    said = [os.memfd_create(f"rank {rank}") for rank in range(size)]
    own = os.dup(2)
    children = dict[int, int]()
    # Whoever is interrupted waits for much longer.
    patience_s = 60.0 if fault == "interrupted" else patience_s
    do = partial(work, patience_s, ready, fault)
    with make_network(nodes) as network:
        for rank in range(size):
            if rank != VICTIM or fault not in ("absent", "terminated"):
                os.dup2(said[rank], 2)
                children[start(network, rank, size, do)] = rank
                os.dup2(own, 2)
        victims = [child for child, rank in children.items() if rank == VICTIM]
        began_s = time.monotonic()
        if fault not in ("absent", "terminated"):
            for _ in children:
                os.read(reading, 1)
            began_s = time.monotonic()
        if fault in ("terminated", "interrupted"):  # while they wait for one that does not come
            time.sleep(1.0)
            for child in children.keys() - victims:
                os.kill(child, signal.SIGTERM)
        if fault == "cut":
            network.cut(VICTIM * nodes // size)
        elif fault in ("killed", "stopped"):
            os.kill(victims[0], signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
        found = {}
        while children:
            if fault in ("stopped", "interrupted") and len(children) == 1:
                os.kill(victims[0], signal.SIGCONT if fault == "stopped" else signal.SIGTERM)
            child, status = os.wait()
            rank = children.pop(child)
            took_s = time.monotonic() - began_s
            words = os.pread(said[rank], 1 << 20, 0).decode()
            found[rank] = (os.waitstatus_to_exitcode(status), words, took_s)
    return found


if __name__ == "__main__":
    main()
