"""HP-GNN's comparisons: ``designs`` has the published explorations, ``platforms`` Tables 5
and 7, ``rivals`` the accelerators."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hpgnn.designs import Designs
from gnnbench_plugins.studies.hpgnn.platforms import Table5, Table7
from gnnbench_plugins.studies.hpgnn.rivals import Rivals


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Designs, Table5, Table7, Rivals]
