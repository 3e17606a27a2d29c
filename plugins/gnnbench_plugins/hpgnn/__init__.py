"""HP-GNN (Lin, Zhang and Prasanna, FPGA 2022): mini-batch training on a CPU and an FPGA.

``program`` is its interface and parser, ``resources`` and ``design`` are Equations 3 to 11 and the
design space exploration. ``layout`` has the passes RMT and RRA. ``cycles`` is the accelerator cycle
by cycle (its rules stand there and in ``gnnbench.kernels.reference.fpga``), ``boards`` the FPGA
boards. ``generator`` makes the design's code from ``templates/``, with a model's functions as C++
``expressions``. ``host_files`` has the inputs and outputs of the generated host program. The other
modules are the strategy's parts.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench.reproduce.studies import Planner
from gnnbench_plugins.hpgnn.communication import HpgnnCommunication
from gnnbench_plugins.hpgnn.kernel import HpgnnKernel
from gnnbench_plugins.hpgnn.placement import HpgnnPlacement
from gnnbench_plugins.hpgnn.planner import HpgnnPlanner
from gnnbench_plugins.hpgnn.sampler import (
    HpgnnLayerwiseSampler,
    HpgnnSaintSampler,
    HpgnnSampler,
)


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [
        HpgnnSampler,
        HpgnnSaintSampler,
        HpgnnLayerwiseSampler,
        HpgnnPlacement,
        HpgnnCommunication,
        HpgnnKernel,
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)


@hookimpl
def gnnbench_planner() -> list[type[Planner]]:
    return [HpgnnPlanner]
