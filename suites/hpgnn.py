"""Simulation speed of HP-GNN's cycle model: 1,024 seeds with fan-outs 25 and 10.

The simulation runs on one core. Cycles depend on the seed alone, so they change only with the
sampler, the layout or the model.
"""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

from gnnbench import datasets
from gnnbench.kernels.dispatch import fpga
from gnnbench.machines import load_platform
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import Workload
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.hpgnn.cycles import make_machine, run_iteration
from gnnbench_plugins.hpgnn.resources import Design, count_words
from gnnbench_plugins.hpgnn.sampler import HpgnnSampler
from suites.graphs import find_real

#: Real graphs, or a random graph if the shared graphs are missing.
GRAPHS = find_real(
    "coauthor_physics", "ego_twitter", otherwise="rmat:vertices=65536,edges=950000,features=1"
)

WIDTH = 256
DESIGN = Design(n=4, m=256)
REPEATS = 5


class CycleModel:
    """A two-layer GCN, 256 wide, on the U250."""

    params: ClassVar[list[list[str]]] = [GRAPHS]
    param_names: ClassVar[list[str]] = ["graph"]
    timeout = 600

    def setup(self, graph: str) -> None:
        workload = Workload("gcn", (WIDTH, WIDTH, 8), 1, 1024, (25, 10), 0, threads=1)
        self.layers = build(workload).shapes
        platform = load_platform("epyc7763x2-4xu250")
        sampler = HpgnnSampler()
        sampler.begin(Setting(datasets.load(graph), platform, workload, self.layers))
        self.blocks = sampler.sample(sampler.rounds(0)[0], 0, 1)
        self.machine = make_machine(load_board("u250"), DESIGN)

    def time_mini_batch(self, graph: str) -> None:
        """Time both layers, forward and backward."""
        run_iteration(self.blocks, self.layers, self.machine, DESIGN.m)

    def track_cycles(self, graph: str) -> float:
        return float(run_iteration(self.blocks, self.layers, self.machine, DESIGN.m)[1])

    track_cycles.unit = "cycles"  # type: ignore[attr-defined]

    def track_wide_edge_words(self, graph: str) -> float:
        """Track the words of 16 lanes a second of edges through layer 1, for 256 features."""
        return self._rate(count_words(WIDTH, 4))

    track_wide_edge_words.unit = "edge-words/s"  # type: ignore[attr-defined]

    def track_narrow_edge_words(self, graph: str) -> float:
        """Track the words a second for rows of one word, which are the slowest."""
        return self._rate(1)

    track_narrow_edge_words.unit = "edge-words/s"  # type: ignore[attr-defined]

    def _rate(self, row_words: int) -> float:
        """Return the rate of the fastest of a few runs, which other programs slowed down least."""
        stream = self.blocks[0].forward
        seconds = []
        for _ in range(REPEATS):
            began = perf_counter()
            fpga.simulate_aggregation(
                stream.src, stream.dst, stream.address, stream.num_dst, row_words, self.machine
            )
            seconds.append(perf_counter() - began)
        return row_words * len(stream.src) / min(seconds)
