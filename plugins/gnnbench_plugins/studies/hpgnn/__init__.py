"""HP-GNN's comparisons: ``optimisations`` has Table 6, ``platforms`` Table 7."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.hpgnn.optimisations import Table6
from gnnbench_plugins.studies.hpgnn.platforms import Table7


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Table6, Table7]
