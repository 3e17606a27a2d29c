"""HyScale-GNN's tables and figures by its performance model.

``tables`` has Table 6 and Figure 11, ``hardware`` Table 4, ``figures`` Figures 8 and 10, and
``neighbourhoods`` sampled sizes on graphs too large to store.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.hyscale.figures import Figure8, Figure10
from gnnbench_plugins.studies.hyscale.hardware import Table4
from gnnbench_plugins.studies.hyscale.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Table4, *TABLES, Figure8, Figure10]
