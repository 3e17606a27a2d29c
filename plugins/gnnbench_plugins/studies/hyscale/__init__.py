"""HyScale-GNN's tables and figures by its performance model.

``tables`` has them all, ``neighbourhoods`` sampled sizes on graphs too large to store,
``convergence`` the rounds that DRM takes to settle.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hyscale.convergence import Convergence
from gnnbench_plugins.studies.hyscale.figures import Figure8, Figure10
from gnnbench_plugins.studies.hyscale.hardware import Table4
from gnnbench_plugins.studies.hyscale.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Table4, *TABLES, Figure8, Figure10, Convergence]
