"""HongTu's tables, from the paper's sizes and volumes, and its figures, of graphs at hand.

``quoted`` is what the paper prints, ``server`` predicts epochs by its volumes, with attention as
``engine`` prices it, ``peers`` those of other systems, ``footprint`` bytes; ``assumptions`` says
which of what they rest on would have to be otherwise. ``tables`` has Tables 1, 5, 6, 7 and 9,
``breakdown`` Figures 9 and 11 and sections 7.3 and 7.4, ``figures`` Table 8 and Figure 10,
``replication`` Table 3, and ``accuracy`` Figure 8.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hongtu.accuracy import Figure8
from gnnbench_plugins.studies.hongtu.breakdown import BREAKDOWNS
from gnnbench_plugins.studies.hongtu.figures import FIGURES
from gnnbench_plugins.studies.hongtu.replication import Table3
from gnnbench_plugins.studies.hongtu.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [*TABLES, Table3, *BREAKDOWNS, *FIGURES, Figure8]
