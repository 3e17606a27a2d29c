"""The Deep Graph Library as a peer: its kernels and its own neighbour sampler."""

from __future__ import annotations

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
    return [
        CommandProgram(
            name="dgl-loop",
            command=("{python}", "{folder}/loop.py", "{task}"),
            modes=("full-graph", "mini-batch"),
            models=("gcn", "sage", "gat", "gin"),
            folder=str(Path(__file__).parent),
            peer="dgl",
        )
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
