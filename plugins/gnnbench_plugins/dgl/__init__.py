"""The Deep Graph Library as a peer: its kernels and its own neighbour sampler."""

from pathlib import Path

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import CommandProgram, Strategy, read_strategies
from gnnbench_plugins.dgl.kernel import DGLKernel
from gnnbench_plugins.dgl.sampler import DGLLoader, DGLSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [DGLSampler, DGLLoader, DGLKernel]


@hookimpl
def gnnbench_program() -> list[CommandProgram]:
    folder, start = str(Path(__file__).parent), ("{python}", "{folder}/loop.py", "{task}")
    models = ("gcn", "sage", "gat", "gin")
    return [
        CommandProgram(
            name="dgl-loop",
            command=(*start, "--workers", "{workers}", "--stages", "{stages}"),
            modes=("full-graph", "mini-batch"),
            models=models,
            folder=folder,
            peer="dgl",
            options={"workers": 0, "stages": 0},
        ),
        CommandProgram(
            name="dgl-ddp",
            command=(*start, "--ranks", "{ranks}"),
            modes=("mini-batch",),
            models=models,
            folder=folder,
            options={"ranks": 2},
        ),
        CommandProgram(
            name="distdgl-loop",
            command=("{python}", "{folder}/distdgl_loop.py", "{task}", "--ranks", "{ranks}"),
            modes=("mini-batch",),
            models=models,
            folder=folder,
            options={"ranks": 2},
        ),
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
