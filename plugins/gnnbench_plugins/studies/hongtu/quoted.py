"""What HongTu's paper prints: its graphs, and Tables 1, 5, 6, 7 and 9."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnnbench.constants import Bound

#: The paper's GB in Table 1.
GIB: Bound[float] = 2.0**30
#: m of every experiment (§7.1).
PARTITIONS: Bound[int] = 4


@dataclass(frozen=True, slots=True)
class PaperGraph:
    """A graph of Table 4 and how §7.1 trains on it.

    Counts are exact where a published graph has those that Table 4 rounds. ogbn-products' 62 M are
    of an undirected graph (Hu et al., "Open Graph Benchmark", 2020), reddit's 115 M are both
    directions of an edge; aggregation takes both, so the former count twice. ``original``,
    ``between`` and ``reused`` are Table 8's V_ori, V_ori - V_+p2p and V_+p2p - V_+ru in multiples
    of |V|, for ``chunks`` a partition. ``alpha`` is Table 3's replication factor for 4 partitions,
    and ``growth`` its growth from GCN's number of chunks to GAT's, twice as many.
    """

    label: str
    name: str
    vertices: int
    edges: int
    features: int
    classes: int
    hidden: int
    chunks: int
    original: float
    between: float
    reused: float
    alpha: float
    growth: float = 1.0

    def dims(self, layers: int) -> tuple[int, ...]:
        return (self.features, *[self.hidden] * (layers - 1), self.classes)


#: Whole partitions: their union is the graph, so V_+p2p = V_+ru = |V| whatever alpha is.
REDDIT = PaperGraph("RDT", "reddit", 232_965, 114_615_892, 602, 41, 256, 1, 4.0, 3.0, 0.0, 4.0)
PRODUCTS = PaperGraph(
    "OPT", "ogbn-products", 2_449_029, 2 * 61_859_140, 100, 47, 256, 1, 1.52, 0.52, 0.0, 1.52
)
IT_2004 = PaperGraph(
    "IT", "it-2004", 41_291_594, 1_150_725_436, 256, 64, 128, 8, 1.6, 0.26, 0.15, 1.35, 1.63 / 1.60
)
PAPERS = PaperGraph(
    "OPR", "ogbn-paper", 111_059_956, 1_615_685_872, 200, 172, 128, 32, 8.5, 0.77, 4.1, 1.52,
    10.6 / 8.50,
)  # fmt: skip
FRIENDSTER = PaperGraph(
    "FDS", "friendster", 65_600_000, 2_500_000_000, 256, 64, 128, 32, 10.7, 2.50, 5.09, 1.77,
    14.4 / 10.70,
)  # fmt: skip
SMALL = (REDDIT, PRODUCTS)
LARGE = (IT_2004, PAPERS, FRIENDSTER)
#: Table 1: topology, vertex and intermediate data, in the paper's GB.
TABLE_1: Mapping[str, tuple[float, float, float]] = {
    "it-2004": (12.8, 177.2, 108.3),
    "ogbn-paper": (18.0, 519.4, 425.3),
    "friendster": (28.9, 293.3, 179.3),
}
#: Table 5, seconds of GCN by HongTu-IM on one GPU, by layers, for RDT and OPT.
TABLE_5: Mapping[int, tuple[float, float]] = {2: (0.20, 0.32), 4: (0.39, 0.81), 8: (0.69, 1.76)}
#: Table 6, seconds by row, for RDT, OPT, IT, OPR and FDS; None is out of memory. "2/2" is 2 layers
#: on the two small graphs and 2 on the three large ones.
DEPTHS: Mapping[str, tuple[int, int]] = {"2/2": (2, 2), "4/3": (4, 3), "8/4": (8, 4)}
Seconds = tuple[float | None, ...]
TABLE_6: Mapping[tuple[str, str], Seconds] = {
    ("2/2", "Sancus"): (0.09, 0.37, None, None, None),
    ("2/2", "HongTu-IM"): (0.09, 0.29, None, None, None),
    ("2/2", "HongTu"): (0.13, 0.45, 3.6, 25.1, 15.5),
    ("2/2", "DistDGL"): (0.61, 0.58, 33.8, 1.95, 52.3),
    ("4/3", "Sancus"): (0.15, 0.65, None, None, None),
    ("4/3", "HongTu-IM"): (0.16, 0.55, None, None, None),
    ("4/3", "HongTu"): (0.23, 0.95, 6.0, 40.0, 25.1),
    ("4/3", "DistDGL"): (1.49, 4.13, 281.5, 6.95, 397.2),
    ("8/4", "Sancus"): (0.27, 1.16, None, None, None),
    ("8/4", "HongTu-IM"): (0.25, 1.04, None, None, None),
    ("8/4", "HongTu"): (0.45, 2.03, 8.3, 59.4, 34.6),
    ("8/4", "DistDGL"): (22.4, None, None, 19.2, None),
}
#: Table 7, seconds: GCN by DistGNN and HongTu, GAT by DistGNN and HongTu.
TABLE_7: Mapping[tuple[int, str], Seconds] = {
    (2, "IT"): (38.9, 3.6, 151.3, 7.5),
    (2, "OPR"): (213.5, 25.1, None, 42.4),
    (2, "FDS"): (183.0, 15.5, None, 27.5),
    (3, "IT"): (59.5, 6.0, None, 12.7),
    (3, "OPR"): (312.6, 40.0, None, 65.6),
    (3, "FDS"): (277.5, 25.1, None, 42.8),
    (4, "IT"): (85.7, 8.3, None, 17.5),
    (4, "OPR"): (None, 59.4, None, 95.0),
    (4, "FDS"): (369.4, 34.6, None, 58.0),
}
#: Table 9, seconds of 100 epochs and of the preprocessing, for it-2004, ogbn-paper, friendster.
TABLE_9: Mapping[str, tuple[float, float, float]] = {
    "HongTu w/o CD": (502.8, 6260.2, 4907.5),
    "HongTu w/ CD": (359.6, 2513.0, 1554.1),
    "Preprocessing": (4.5, 33.9, 22.7),
}
#: The cells that the one constant is fitted on: GCN of 2, 3 and 4 layers on it-2004.
FITTED: Mapping[int, float] = {2: 3.6, 3: 6.0, 4: 8.3}
