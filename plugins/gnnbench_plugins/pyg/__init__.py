"""PyTorch Geometric as a peer: its message passing and, if it can draw, its own sampler.

``pyg-multi-gpu`` is HyScale-GNN's multi-GPU baseline (Figure 10).
"""

from dataclasses import replace
from pathlib import Path

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import CommandProgram, Strategy, read_strategies
from gnnbench_plugins.pyg.kernel import PyGKernel
from gnnbench_plugins.pyg.sampler import PyGLoader, PyGSampler, can_draw


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [PyGSampler, PyGLoader, PyGKernel]


@hookimpl
def gnnbench_program() -> list[CommandProgram]:
    folder, start = str(Path(__file__).parent), ("{python}", "{folder}/loop.py", "{task}")
    models = ("gcn", "sage", "gat", "gin")
    return [
        CommandProgram(
            name="pyg-loop",
            command=(*start, "--workers", "{workers}", "--stages", "{stages}"),
            modes=("full-graph", "mini-batch"),
            models=models,
            folder=folder,
            peer="pyg",
            options={"workers": 0, "stages": 0},
        ),
        CommandProgram(
            name="pyg-ddp",
            command=(*start, "--ranks", "{ranks}"),
            modes=("mini-batch",),
            models=models,
            folder=folder,
            options={"ranks": 2},
        ),
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    single, several = read_strategies(__file__)
    if can_draw():
        return [single, several]
    mini_batch = replace(single.bundles["mini-batch"], sampler="pyg-loader")
    return [replace(single, bundles={**single.bundles, "mini-batch": mini_batch}), several]
