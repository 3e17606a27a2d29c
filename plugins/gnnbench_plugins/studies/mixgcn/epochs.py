"""MixGCN's Figure 8: where an epoch of MixGCN-CPU goes without the pipeline.

The figure is a drawing without numbers; section 4.2 says what its longest bar is.
"""

from __future__ import annotations

from typing import ClassVar

from gnnbench.platforms import load_platform
from gnnbench.records import Cell, Stage, Table, TableRow
from gnnbench.studies import Reproduction
from gnnbench_plugins.mixgcn.ordering import keep_order
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.studies.mixgcn.tables import PLATFORM, QUOTED, Case, Ordered

#: Two of the paper's five graphs, by stand-ins.
GRAPHS = ("reddit:0.02", "orkut:0.01")
STAGES: tuple[Stage, ...] = ("aggregate", "update", "transfer")


class Figure8(Reproduction):
    """Where an epoch of MixGCN-CPU goes without the pipeline."""

    name: ClassVar[str] = "mixgcn-figure8"
    summary: ClassVar[str] = "shares of aggregation, update and exchange, MixGCN-CPU, no pipeline"

    def run(self) -> tuple[Table, ...]:
        platform, placement = load_platform(PLATFORM), MixGCNPlacement(sparse="host")
        rows, heaviest = [], {}
        for spec in GRAPHS:
            case = Case.of_stand_in(spec, QUOTED[spec])
            order = keep_order(case.graph)
            found = Ordered(case, order, order, None).foresee(order, 1, placement, platform)
            stages = [found.busy_s.get(stage, 0.0) for stage in STAGES]
            shares = [100 * each / sum(stages) for each in stages]
            heaviest[spec] = shares[0]
            cells = (Cell(found.epoch_s, "s"), *(Cell(each, "%") for each in shares))
            rows.append(TableRow(spec, cells))
        first = max(heaviest, key=lambda spec: heaviest[spec])
        return (
            Table(
                name=self.name,
                title="MixGCN Figure 8: where an epoch of MixGCN-CPU goes without the pipeline",
                columns=("epoch", "aggregate", "update", "exchange"),
                rows=tuple(rows),
                notes=(
                    f"priced on {PLATFORM}, one node of the paper's four; the busiest device's or "
                    f"port's time in each, in whole; two of the paper's graphs, by stand-ins",
                    f"section 4.2: aggregation is the bottleneck on Reddit; here its share is "
                    f"largest on {first}",
                ),
            ),
        )


EPOCH_FIGURES: tuple[type[Reproduction], ...] = (Figure8,)
