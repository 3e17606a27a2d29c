"""HongTu's tables and figures, predicted from the paper's sizes and volumes.

``quoted`` is what the paper prints, ``server`` predicts epochs by its volumes, with attention as
``engine`` prices it, and ``peers`` those of other systems; ``assumptions`` says which rates would
have to be otherwise. ``tables`` has Tables 1, 5, 6, 7 and 9, ``headlines`` what the abstract says,
``breakdown`` Figures 9 and 11 and sections 7.3 and 7.4, and ``figures`` Figure 10.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.hongtu.breakdown import BREAKDOWNS
from gnnbench_plugins.studies.hongtu.figures import Figure10
from gnnbench_plugins.studies.hongtu.headlines import Headlines
from gnnbench_plugins.studies.hongtu.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [*TABLES, *BREAKDOWNS, Figure10, Headlines]
