"""Simulation speed and results of MixGCN's cycle models, on one core.

``track`` figures depend on the seed alone, so they change only with a model.
``python -m suites.machines`` prints the edges a second of every machine on the stand-ins of
MixGCN's Table 2, at both widths. It takes the processor time of the best of three runs.
"""

from __future__ import annotations

import sys
import time
from typing import ClassVar

from gnnbench.datasets.standins import draw_stand_in
from gnnbench.kernels.dispatch import SparseMatrix
from gnnbench_plugins.studies.mixgcn.accelerators import HIDDEN, ORIGINALS, draw_mask, make_machines

#: Stand-ins of a dense and a sparse graph, each with the matching scale of the machines.
GRAPHS = {"reddit": 32, "orkut": 64}
MACHINES = [machine.name for machine in make_machines()]
WIDTH = 128


class Machines:
    """Aggregation of 128 features with half of the outputs wanted."""

    params: ClassVar = [list(GRAPHS), MACHINES]
    param_names: ClassVar[list[str]] = ["graph", "machine"]
    timeout = 600

    def setup(self, graph: str, machine: str) -> None:
        divisor = GRAPHS[graph]
        drawn = draw_stand_in(f"{graph}:{1 / divisor}")
        self.matrix = SparseMatrix(drawn.indptr, drawn.indices, drawn.num_vertices)
        self.mask = draw_mask(drawn.num_vertices, WIDTH)
        self.machine = make_machines(divisor)[MACHINES.index(machine)]

    def time_simulate(self, graph: str, machine: str) -> None:
        self.machine.run(self.matrix, WIDTH, self.mask)

    def track_modelled_seconds(self, graph: str, machine: str) -> float:
        return self.machine.run(self.matrix, WIDTH, self.mask).seconds

    def track_hbm_bytes(self, graph: str, machine: str) -> float:
        return float(self.machine.run(self.matrix, WIDTH, self.mask).total_bytes)

    def track_occupancy(self, graph: str, machine: str) -> float:
        return self.machine.run(self.matrix, WIDTH, self.mask).occupancy

    track_modelled_seconds.unit = "seconds"  # type: ignore[attr-defined]
    track_hbm_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_occupancy.unit = "share"  # type: ignore[attr-defined]


def main(titles: list[str]) -> None:
    """Simulate every graph, or the named ones."""
    for original in ORIGINALS:
        if titles and original.title not in titles:
            continue
        drawn = draw_stand_in(f"{original.stand_in}:{1 / original.divisor}")
        matrix = SparseMatrix(drawn.indptr, drawn.indices, drawn.num_vertices)
        for width in sorted({original.features, HIDDEN}):
            mask = draw_mask(drawn.num_vertices, width)
            for machine in make_machines(original.divisor):
                taken_s = []
                for _ in range(3):
                    began_s = time.process_time()
                    machine.run(matrix, width, mask)
                    taken_s.append(time.process_time() - began_s)
                rate = matrix.num_edges / min(taken_s) / 1e6
                print(f"{original.title:12}{width:5}  {machine.name:8}{rate:8.0f} M edges/s")


if __name__ == "__main__":
    main(sys.argv[1:])
