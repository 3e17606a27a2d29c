"""HP-GNN's comparisons: ``designs`` has the published explorations, ``platforms`` Tables 5
and 7, ``optimisations`` Table 6, ``rivals`` the accelerators of Table 8."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hpgnn.designs import Designs
from gnnbench_plugins.studies.hpgnn.optimisations import Table6
from gnnbench_plugins.studies.hpgnn.platforms import Table5, Table7
from gnnbench_plugins.studies.hpgnn.rivals import Rivals


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Designs, Table5, Table6, Table7, Rivals]
