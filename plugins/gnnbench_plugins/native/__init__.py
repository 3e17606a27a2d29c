"""gnnbench's native kernels on one device, the machine's CPU."""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.reference.native_kernel import NativeKernel


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [NativeKernel]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
