"""The design space explorations whose workloads HP-GNN's authors published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gnnbench.constants import Bound
from gnnbench.records import Table
from gnnbench.studies import Reproduction
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.hpgnn.design import Batch, Convention, Macs, chart, explore

WIDTHS: Bound[tuple[int, ...]] = (128, 128, 128)
#: Mini-batches of the authors' script: |B|, |E| and f = 128 at every layer.
WORKLOADS: Mapping[str, Batch] = {
    "neighbours": Batch((102483, 9000, 1024), (137420, 8505), WIDTHS),
    "subgraph": Batch((2750, 2750, 2750), (54510, 54510), WIDTHS),
}
#: What n and m are a design of, and which m there are.
CONVENTIONS: Mapping[Convention, tuple[str, Macs]] = {
    "paper": ("a die's designs, forward and backward", "square"),
    "script": ("a whole board's designs, forward only, times the dies", "power"),
}


class Designs(Reproduction):
    """Every design for the published workloads, on the U250: nothing of it is quoted."""

    name: ClassVar[str] = "hpgnn-designs"
    summary: ClassVar[str] = "HP-GNN's design space exploration: all designs, the best, its equals"
    left_out: ClassVar[str] = (
        "HP-GNN Tables 1 (its API), 2 (sizes of samples), 3 (platforms) and 4 (graphs), "
        "Figures 1 to 7 (drawings)"
    )

    def run(self) -> tuple[Table, ...]:
        board = load_board("u250")
        return tuple(
            chart(
                explore(batch, board, convention=convention, macs=macs),
                f"{self.name}-{workload}-{convention}",
                f"{workload}, |B| {', '.join(f'{b:,}' for b in batch.vertices)}, "
                f"|E| {', '.join(f'{e:,}' for e in batch.edges)}: {meaning}",
            )
            for workload, batch in WORKLOADS.items()
            for convention, (meaning, macs) in CONVENTIONS.items()
        )
