"""DistDGL's server, graph store and loader in a plain training loop, all on this machine.

The script is a program of gnnbench and imports nothing of it: ``python distdgl_loop.py TASK_FOLDER
[--ranks N]``. One server holds the graph as one partition, because DistDGL has a partition for each
machine. Trainers read the partition in shared memory, as trainers do beside their server.
"""

from __future__ import annotations

import argparse
import atexit
import os
import socket
import subprocess
import sys
from typing import Any

import torch
from loop import NAMES, Net, import_dgl, make_graph, state_maths  # beside this script
from plain_loop import Data, Trainer, read_parameters, start, write_parameters


def prepare(options: argparse.Namespace) -> None:
    """Partition the graph, and start the server; other processes inherit the environment."""
    dgl, data, folder = import_dgl(), Data(0, options), options.folder
    graph = make_graph(dgl, data)
    graph.ndata["x"], graph.ndata["y"] = data.x, data.y
    graph.ndata["train"] = torch.zeros(len(data.y), dtype=torch.bool).index_fill(
        0, data.train, True
    )
    options.graph = f"gnnbench-{os.getpid()}"  # also the name of shared memory
    dgl.distributed.partition_graph(graph, options.graph, 1, folder, num_hops=1)
    with socket.socket() as free, open(f"{folder}/machines.txt", "w") as machines:
        free.bind(("127.0.0.1", 0))
        machines.write("{} {}\n".format(*free.getsockname()))
    os.environ |= {
        "DGL_DIST_MODE": "distributed",
        "DGL_IP_CONFIG": f"{folder}/machines.txt",
        "DGL_CONF_PATH": f"{folder}/{options.graph}.json",
        "DGL_NUM_SERVER": "1",
        "DGL_NUM_CLIENT": str(options.ranks),
        "DGL_NUM_SAMPLER": "0",
        "DGL_GRAPH_FORMAT": "csc",
    }
    role = {"DGL_ROLE": "server", "DGL_SERVER_ID": "0"}
    server = subprocess.Popen(
        [sys.executable, __file__],
        env=os.environ | role,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    atexit.register(server.wait)  # after DGL's own exit, which ends the server


def train(rank: int, options: argparse.Namespace) -> None:
    """Train the task in one of the processes."""
    data, dgl = Data(rank, options), import_dgl()
    dgl.seed(data.task["seed"] + rank)
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    net, names = Net(dgl, data.task), NAMES[data.task["model"]]
    read_parameters(net.layers, names, data.begin)
    trainer = Trainer(data, net)
    graph = dgl.distributed.DistGraph(options.graph)
    mine = dgl.distributed.node_split(graph.ndata["train"], graph.get_partition_book())
    sampler = dgl.dataloading.NeighborSampler(
        [fanout or -1 for fanout in reversed(data.task["fanouts"])]
    )
    loader = dgl.dataloading.DistNodeDataLoader(
        graph, mine, sampler, batch_size=data.batch_size, shuffle=True, drop_last=False
    )

    def run_epoch() -> Any:
        losses, updates, seeds = 0.0, 0, 0
        edges = [0] * data.task["layers"]
        with trainer.join():
            for inputs, outputs, blocks in trainer.await_batches(loader):
                rows, labels = graph.ndata["x"][inputs], graph.ndata["y"][outputs]
                losses += trainer.step(trainer.model(blocks, rows), labels) * len(labels)
                updates, seeds = updates + 1, seeds + len(labels)
                drawn = (block.num_edges() for block in blocks)
                edges = [sum(pair) for pair in zip(edges, drawn, strict=True)]
        return trainer.report(losses, updates, seeds, edges)

    trainer.serve(
        run_epoch,
        lambda: write_parameters(net.layers, names, data.begin),
        versions={"torch": torch.__version__, "dgl": dgl.__version__},
        **state_maths(data),
    )
    dgl.distributed.exit_client()


if __name__ == "__main__":
    if os.environ.get("DGL_ROLE") == "server":
        import_dgl().distributed.initialize(os.environ["DGL_IP_CONFIG"])
    else:
        start(train, prepare=prepare)
