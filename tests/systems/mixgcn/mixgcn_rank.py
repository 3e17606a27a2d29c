"""The ranks of a real run, a process each: they train a few models together, and rank 0 prints what
came out. Ranks are forked, so that they import once."""

from __future__ import annotations

import json
import os
import sys
import traceback

import torch

from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.price.folds import digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.run import train
from gnnbench.run.collectives import join, leave
from gnnbench_plugins.mixgcn.communication import MixGCNCommunication
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import ResidentMemory
from gnnbench_plugins.reference.native_kernel import NativeKernel

#: Model, layers, kernel and stages, 0 for a schedule of the part's own choice. Kernel 'native'
#: masks the gradients that it aggregates.
CASES = (
    ("gcn", 2, TorchKernel, 3),
    ("sage", 3, TorchKernel, 0),
    ("gin", 4, NativeKernel, 2),
)


def main() -> None:
    """Groups of as many ranks as each ``SIZE:PORT`` says, one group after the other."""
    torch.set_num_threads(1)
    for group in sys.argv[1:]:
        os.environ["WORLD_SIZE"], os.environ["MASTER_PORT"] = group.split(":")
        ranks = []
        for rank in range(int(os.environ["WORLD_SIZE"])):
            child = os.fork()
            if not child:
                os._exit(run_forked(rank))
            ranks.append(child)
        if any([os.waitpid(child, 0)[1] for child in ranks]):
            sys.exit(1)


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
    for model, num_layers, kernel, stages in CASES:
        workload = make_workload(model, num_layers, 2)
        platform = make_platform(processes.size)
        setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
        bundle = Bundle(
            MixGCNSampler(stages=stages),
            MixGCNPlacement(),
            MixGCNCommunication(),
            ResidentMemory(),
            kernel(),
        )
        trace = train(bundle, setting, ModelClock(platform, bundle.kernel), processes=processes)
        epoch = trace.epochs[-1]
        found.append(
            {
                "model": model,
                "layers": num_layers,
                "kernel": kernel.name,
                "stages": stages,
                "loss": [epoch.loss for epoch in trace.epochs],
                "bytes": dict(epoch.bytes),
                "peak_bytes": dict(trace.peak_bytes),
                "epoch_s": digest(epoch, "modelled").epoch_s,
                "notes": trace.notes,
            }
        )
    leave()
    if processes.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
