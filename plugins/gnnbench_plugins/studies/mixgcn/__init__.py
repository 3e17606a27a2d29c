"""MixGCN's tables and figures.

``tables`` has Tables 4 and 5, ``figures`` Figures 9 to 11, ``throughput`` Figure 7, ``epochs``
Figure 8; ``accelerators`` has Figure 12 and Table 3, with the sparse accelerator's ``rivals`` and a
CPU, and ``leads`` says what would have to be otherwise for the paper's.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.mixgcn import accelerators
from gnnbench_plugins.studies.mixgcn.epochs import EPOCH_FIGURES
from gnnbench_plugins.studies.mixgcn.figures import FIGURES
from gnnbench_plugins.studies.mixgcn.tables import TABLES
from gnnbench_plugins.studies.mixgcn.throughput import Figure7


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [*TABLES, Figure7, *EPOCH_FIGURES, *FIGURES, *accelerators.TABLES]
