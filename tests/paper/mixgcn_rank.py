"""The ranks of a real run, a process each: they train a few models together, and rank 0 prints what
came out. Ranks are forked, so that they import once."""

from __future__ import annotations

import json
import os
import sys
import traceback

import torch

from gnnbench.clock.model import ModelClock
from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.engine import train
from gnnbench.engine.collectives import join, leave
from gnnbench.metrics import digest
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench_plugins.mixgcn.communication import MixGCNCommunication
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import ResidentMemory

CASES = (("gcn", 2), ("sage", 3), ("gin", 4))


def main() -> None:
    torch.set_num_threads(1)
    others = []
    for rank in range(1, int(os.environ["WORLD_SIZE"])):
        child = os.fork()
        if not child:
            os._exit(run_forked(rank))
        others.append(child)
    run(0)
    sys.exit(max(os.waitpid(child, 0)[1] for child in others))


def run_forked(rank: int) -> int:
    """The exit status."""
    try:
        run(rank)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run(rank: int) -> None:
    os.environ["RANK"] = str(rank)
    processes = join()
    found = []
    for model, num_layers in CASES:
        workload = make_workload(model, num_layers, 2)
        platform = make_platform(processes.size)
        setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
        bundle = Bundle(
            MixGCNSampler(),
            MixGCNPlacement(),
            MixGCNCommunication(),
            ResidentMemory(),
            TorchKernel(),
        )
        trace = train(bundle, setting, ModelClock(platform, bundle.kernel), collectives=processes)
        epoch = trace.epochs[-1]
        found.append(
            {
                "model": model,
                "layers": num_layers,
                "loss": [epoch.loss for epoch in trace.epochs],
                "bytes": dict(epoch.bytes),
                "peak_bytes": dict(trace.peak_bytes),
                "epoch_s": digest(epoch, "modelled").epoch_s,
                "notes": trace.notes,
            }
        )
    leave()
    if processes.rank == 0:
        json.dump(found, sys.stdout)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
