"""Trains on emulated accelerators or CUDA's, and on the CPU: a process of its own.

Torch makes the threads of its autograd once, for the devices that there are at the first backward
pass; and it has one such backend in a process.

``python training.py LIBRARY`` reads cases from standard input and prints what came out, as JSON;
``python training.py`` trains on the CUDA devices that there are, each as several if need be.
"""

import dataclasses
import gc
import json
import sys
import types
from functools import cache
from typing import Any

import numpy as np
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.datasets import build
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build as build_model
from gnnbench.parts import Setting
from gnnbench.plugins import Registry
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import Dataset, Parts, Trace, Workload
from gnnbench.run import train

EMULATED = "emulated"
#: The larger graph: vertices, edges drawn, classes and hidden features.
VERTICES, EDGES, CLASSES, HIDDEN = 20_000, 100_000, 16, 128


def load_backend(library: str) -> types.ModuleType:
    """Make ``torch.device("emulated:0")`` one, and ``torch.emulated`` its module."""
    torch.ops.load_library(library)
    torch.utils.rename_privateuse1_backend(EMULATED)
    operators = torch.ops.emulated
    module = types.ModuleType(f"torch.{EMULATED}")
    module.__dict__.update(
        is_available=lambda: True,
        synchronize=lambda device=None: None,
        manual_seed_all=lambda seed: None,
        _is_in_bad_fork=lambda: False,
        **{
            name: getattr(operators, name)
            for name in (
                "device_count",
                "current_device",
                "memory_allocated",
                "max_memory_allocated",
                "reset_peak_memory_stats",
            )
        },
    )
    torch._register_device_module(EMULATED, module)
    return module


@cache
def registry() -> Registry:
    return plugins.load()


@cache
def large_graph(features: int) -> Dataset:
    """Vertices that mostly know those near them, and a few that many know."""
    random = np.random.default_rng(1)
    ends = random.integers(0, VERTICES, EDGES)
    near = ends + np.rint(random.normal(0.0, 200.0, EDGES)).astype(np.int64)
    far = (random.pareto(1.2, EDGES) * 200.0).astype(np.int64)
    others = np.where(random.random(EDGES) < 0.85, near, far) % VERTICES
    apart = ends != others
    return build(
        "large",
        np.stack([ends[apart], others[apart]]),
        num_vertices=VERTICES,
        features=random.standard_normal((VERTICES, features), dtype=np.float32),
        labels=random.integers(0, CLASSES, VERTICES),
    )


def place(device: str, index: int) -> str:
    """What torch calls the accelerator of that number on a kind of ``device``."""
    if device == "cpu":
        return device
    return f"{device}:{index % getattr(torch, device).device_count()}"


def make_setting(case: dict[str, Any], device: str) -> Setting:
    """``features`` of a case asks for the larger graph, float32; else the small one, float64.
    Devices that are ``here`` are measured, and their stages run on threads."""
    virtual = not case.get("here")
    model, features = case["model"], case.get("features")
    if features is None:
        dataset, workload = make_dataset(), make_workload(model, 2)
    else:
        dataset = large_graph(features)
        workload = Workload(
            model=model,
            dims=(features, HIDDEN, CLASSES),
            epochs=2,
            batch_size=1024,
            fanouts=(25, 10),
            seed=5,
            dtype="float32",
        )
    platform = make_platform(case["accelerators"])
    platform = dataclasses.replace(
        platform,
        host=dataclasses.replace(platform.host, virtual=virtual),
        accelerators=tuple(
            replace_fields(
                accelerator, virtual=virtual, memory_bytes=10**10, torch_device=place(device, index)
            )
            for index, accelerator in enumerate(platform.accelerators)
        ),
    )
    return Setting(dataset, platform, workload, build_model(workload).shapes)


def run(case: dict[str, Any], device: str) -> Trace:
    parts = Parts(*case["parts"])
    setting = make_setting(case, device)
    bundle = plugins.assemble(registry(), parts, case.get("options", {}))
    virtual = setting.platform.virtual
    clock = ModelClock(setting.platform, bundle.kernel) if virtual else WallClock()
    return train(bundle, setting, clock)


def losses(trace: Trace) -> list[float]:
    return [loss for epoch in trace.epochs for loss in epoch.round_losses]


def compare(case: dict[str, Any], device: str) -> dict[str, Any]:
    """What both runs of a case found, and by torch's device, bytes: the allocator's peak, the
    ledger's, and what is held after the run that was not before."""
    backend = getattr(torch, device)
    names = [place(device, index) for index in range(case["accelerators"])]
    indices = sorted({torch.device(name).index for name in names})
    before = {index: backend.memory_allocated(index) for index in indices}
    for index in indices:
        backend.reset_peak_memory_stats(index)
    there, here = run(case, device), run(case, "cpu")
    gc.collect()
    return {
        "device": device,
        "losses": losses(there),
        "expected": losses(here),
        "parameters": max(
            float(np.abs(there.parameters[name] - values).max() / np.abs(values).max())
            for name, values in here.parameters.items()
        ),
        "peak_bytes": [backend.max_memory_allocated(index) - before[index] for index in indices],
        "ledger_bytes": [
            sum(
                there.peak_bytes.get(f"gpu{number}", 0)
                for number, name in enumerate(names)
                if torch.device(name).index == index
            )
            for index in indices
        ],
        "left_bytes": [backend.memory_allocated(index) - before[index] for index in indices],
    }


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        load_backend(sys.argv[1])
        device = EMULATED
    else:
        torch.cuda.init()  # Before anything is asked of its allocator.
        device = "cuda"
    json.dump([compare(case, device) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
