"""gnnbench's native kernels on one device, the machine's CPU."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Parts, Strategy, read_card
from gnnbench_plugins.reference.native_kernel import NativeKernel


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [NativeKernel]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="native",
            summary="gnnbench's own kernels on one device",
            source="gnnbench.kernels",
            bundles={
                "full-graph": Parts("full-graph", "host", "none", "resident", "native"),
                "mini-batch": Parts("neighbour", "host", "vanilla", "host", "native"),
            },
            plain="reference",
            card=read_card(__file__, "native"),
        )
    ]
