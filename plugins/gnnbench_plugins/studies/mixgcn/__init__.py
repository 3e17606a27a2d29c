"""MixGCN's tables and figures.

``tables`` has Table 4 and ``throughput`` Figure 7; ``accelerators`` has Figure 12 and Table 3, with
the sparse accelerator's ``rivals`` and a CPU, and ``leads`` says which numbers would have to be
otherwise for the paper's.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.mixgcn.accelerators import Figure12, Table3
from gnnbench_plugins.studies.mixgcn.tables import Table4
from gnnbench_plugins.studies.mixgcn.throughput import Figure7


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Table4, Figure7, Figure12, Table3]
