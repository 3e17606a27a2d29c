"""HongTu's tables, from the paper's sizes and volumes, and its figures, of graphs at hand."""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hongtu.figures import FIGURES
from gnnbench_plugins.studies.hongtu.tables import TABLES


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [*TABLES, *FIGURES]
