"""PyTorch Geometric as a peer: its message passing and, where it can draw, its own sampler."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Kernel, MiniBatchSampler
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.pyg.kernel import PyGKernel
from gnnbench_plugins.pyg.sampler import PyGSampler, can_draw


@hookimpl
def gnnbench_sampler() -> list[type[MiniBatchSampler]]:
    return [PyGSampler]


@hookimpl
def gnnbench_kernel() -> list[type[Kernel]]:
    return [PyGKernel]


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
        )
    ]
