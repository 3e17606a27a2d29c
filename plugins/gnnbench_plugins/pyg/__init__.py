"""PyTorch Geometric as a peer: its message passing and, if it can draw, its own sampler.

``pyg-multi-gpu`` is HyScale-GNN's multi-GPU baseline (Figure 10).
"""

from __future__ import annotations

from pathlib import Path

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import CommandProgram, Parts, Strategy
from gnnbench_plugins.pyg.card import PYG, PYG_MULTI_GPU
from gnnbench_plugins.pyg.kernel import PyGKernel
from gnnbench_plugins.pyg.sampler import PyGSampler, can_draw


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [PyGSampler, PyGKernel]


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
    mini_batch = Parts(
        sampler="pyg" if can_draw() else "neighbour",
        placement="single",
        communication="vanilla",
        memory="host",
        kernel="pyg",
    )
    full_graph = Parts("full-graph", "single", "none", "resident", "pyg")
    return [
        Strategy(
            name="pyg",
            summary="PyTorch Geometric on one device",
            source="Fey and Lenssen, Fast Graph Representation Learning with PyTorch Geometric, "
            "2019",
            bundles={"mini-batch": mini_batch, "full-graph": full_graph},
            plain="reference",
            card=PYG,
        ),
        Strategy(
            name="pyg-multi-gpu",
            summary="PyTorch Geometric on all accelerators, features on the host",
            source="HyScale-GNN, section VI-E1 and Figure 10: the multi-GPU baseline",
            # PyG's own sampler draws other neighbours of a vertex if a round is split differently.
            bundles={"mini-batch": Parts("neighbour", "data-parallel", "vanilla", "host", "pyg")},
            plain="data-parallel",
            card=PYG_MULTI_GPU,
        ),
    ]
