"""HongTu's tables, from the paper's sizes and volumes, and its figures, of graphs at hand.

``quoted`` is what the paper prints, ``server`` predicts epochs by its volumes, ``footprint`` bytes;
``tables`` has Tables 1, 6, 7 and 9, with what ``further_layer`` makes of Table 5; ``figures`` has
Table 8 and Figure 10.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hongtu.figures import FIGURES
from gnnbench_plugins.studies.hongtu.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [*TABLES, *FIGURES]
