"""MixGCN's tables and figures.

``tables`` has Tables 4 and 5, ``figures`` Figures 9 to 11; ``accelerators`` has Figure 12 and
Table 3, with the sparse accelerator's ``rivals`` and a CPU.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.mixgcn import accelerators
from gnnbench_plugins.studies.mixgcn.figures import FIGURES
from gnnbench_plugins.studies.mixgcn.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [*TABLES, *FIGURES, *accelerators.TABLES]
