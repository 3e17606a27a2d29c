"""The numbers that HongTu's paper prints: its graphs, and Tables 1, 3, 5, 6, 7 and 9."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gnnbench.constants import Bound, Constant

#: A row of seconds; None where the paper ran out of memory.
Seconds = tuple[float | None, ...]
#: The paper's GB in Table 1, which its numbers show to be GiB.
GIB: Bound[float] = 2.0**30
#: m of every experiment (§7.1).
PARTITIONS: Bound[int] = 4
#: Table 3: into how many partitions its graphs are cut, and the replication factor of each.
CUT_INTO: Bound[tuple[int, ...]] = (2, 4, 8, 16, 32, 64, 128, 256, 512)
TABLE_3: Mapping[str, tuple[float, ...]] = {
    "it-2004": (1.23, 1.35, 1.46, 1.52, 1.60, 1.63, 1.71, 1.76, 1.85),
    "ogbn-paper": (1.25, 1.52, 2.13, 3.02, 4.46, 6.34, 8.50, 10.6, 12.3),
    "friendster": (1.32, 1.77, 2.68, 3.86, 5.48, 7.70, 10.70, 14.4, 18.1),
}


@dataclass(frozen=True, slots=True)
class PaperGraph:
    """A graph of Table 4 and how §7.1 trains on it.

    Counts are exact where a published graph has those that Table 4 rounds. ogbn-products' 62 M are
    of an undirected graph (Hu et al., "Open Graph Benchmark", 2020), reddit's 115 M are both
    directions of an edge; aggregation takes both, so the former count twice. ``original``,
    ``between`` and ``reused`` are Table 8's V_ori, V_ori - V_+p2p and V_+p2p - V_+ru in multiples
    of |V|, for ``chunks`` a partition.
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

    def replication(self, partitions: int) -> float:
        """Return Table 3's factor of a number of partitions.

        Raises ``ValueError`` for a number and ``KeyError`` for a graph that the table lacks.
        """
        return TABLE_3[self.name][CUT_INTO.index(partitions)]

    def dims(self, layers: int) -> tuple[int, ...]:
        return (self.features, *[self.hidden] * (layers - 1), self.classes)


#: Whole partitions: their union is the graph, so V_+p2p = V_+ru = |V| whatever alpha is.
REDDIT = PaperGraph("RDT", "reddit", 232_965, 114_615_892, 602, 41, 256, 1, 4.0, 3.0, 0.0)
PRODUCTS = PaperGraph(
    "OPT", "ogbn-products", 2_449_029, 2 * 61_859_140, 100, 47, 256, 1, 1.52, 0.52, 0.0
)
IT_2004 = PaperGraph(
    "IT", "it-2004", 41_291_594, 1_150_725_436, 256, 64, 128, 8, 1.6, 0.26, 0.15,
)  # fmt: skip
PAPERS = PaperGraph(
    "OPR", "ogbn-paper", 111_059_956, 1_615_685_872, 200, 172, 128, 32, 8.5, 0.77, 4.1,
)  # fmt: skip
FRIENDSTER = PaperGraph(
    "FDS", "friendster", 65_600_000, 2_500_000_000, 256, 64, 128, 32, 10.7, 2.50, 5.09,
)  # fmt: skip
SMALL = (REDDIT, PRODUCTS)
LARGE = (IT_2004, PAPERS, FRIENDSTER)
#: Table 1: topology, vertex and intermediate data, in the paper's GB.
TABLE_1: Mapping[str, tuple[float, float, float]] = {
    "it-2004": (12.8, 177.2, 108.3),
    "ogbn-paper": (18.0, 519.4, 425.3),
    "friendster": (28.9, 293.3, 179.3),
}
#: Table 5, seconds on one GPU, or one CPU server (DistGNN), by layers and system: GCN on RDT and
#: OPT, GAT on RDT and OPT; None is out of memory.
TABLE_5: Mapping[tuple[int, str], Seconds] = {
    (2, "DistGNN"): (4.2, 10.1, 40.7, 49.9),
    (2, "DGL"): (0.19, 0.27, 0.86, 1.22),
    (2, "HongTu-IM"): (0.20, 0.32, 0.77, 1.14),
    (2, "HongTu"): (0.33, 0.84, 1.15, 1.93),
    (4, "DistGNN"): (7.78, 22.9, 77.9, 220.8),
    (4, "DGL"): (0.39, 0.82, 1.35, 2.19),
    (4, "HongTu-IM"): (0.39, 0.81, 1.21, 2.01),
    (4, "HongTu"): (0.62, 2.09, 2.21, 3.82),
    (8, "DistGNN"): (15.1, 46.2, 148.4, 418.6),
    (8, "DGL"): (0.78, 1.92, 2.77, None),
    (8, "HongTu-IM"): (0.69, 1.76, 2.43, None),
    (8, "HongTu"): (1.15, 4.14, 4.50, 8.23),
}
#: Table 6, seconds by row, for RDT, OPT, IT, OPR and FDS; None is out of memory. "2/2" is 2 layers
#: on the two small graphs and 2 on the three large ones.
DEPTHS: Mapping[str, tuple[int, int]] = {"2/2": (2, 2), "4/3": (4, 3), "8/4": (8, 4)}
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
#: The depths that the three large graphs are trained with.
LAYERS: Bound[tuple[int, ...]] = (2, 3, 4)
#: Least and most, as the text prints them.
Range = tuple[float, float]
#: By graph.
Ranges = tuple[Range, Range, Range]
Shares = tuple[float, float, float]
#: Section 7.4, percent of an epoch: GPU computation, and communication over links, of GCN.
GCN_GPU: Annotated[Range, Constant("%", "quoted", "HongTu, section 7.4")] = (10, 14)
GCN_LINKS: Annotated[Range, Constant("%", "quoted", "HongTu, section 7.4")] = (58, 61)
#: The same of GAT: on it-2004, ogbn-paper and friendster, and all together.
GAT_GPU: Annotated[Shares, Constant("%", "quoted", "HongTu, section 7.4")] = (
    54.0,
    28.0,
    35.0,
)
GAT_LINKS: Annotated[Range, Constant("%", "quoted", "HongTu, section 7.4")] = (36, 50)
#: Gradients that the CPU adds up, of either model.
CPU_SHARE: Annotated[Range, Constant("%", "quoted", "HongTu, section 7.4")] = (8, 30)
#: GAT's GPU computation over GCN's, and how much less GCN communicates, percent.
GAT_OVER_GCN: Annotated[float, Constant("", "quoted", "HongTu, section 7.4")] = 4.5
GCN_LESS: Annotated[Range, Constant("%", "quoted", "HongTu, section 7.4")] = (21, 29)
#: Section 7.3, percent of the time of communication, on it-2004, ogbn-paper and friendster: what
#: sharing rows between GPUs saves, and what reusing them further does.
P2P_SAVES: Annotated[Ranges, Constant("%", "quoted", "HongTu, section 7.3")] = (
    (23, 26),
    (23, 27),
    (39, 42),
)
RU_SAVES: Annotated[Ranges, Constant("%", "quoted", "HongTu, section 7.3")] = (
    (9, 12),
    (39, 42),
    (36, 37),
)
#: Section 7.5: speed-ups over the baseline, on the same graphs.
SPEEDUPS: Mapping[str, tuple[Range, ...]] = {
    "gcn": ((1.4, 1.5), (2.5, 2.7), (3.2, 3.4)),
    "gat": ((1.3, 1.3), (2.3, 2.4), (2.6, 2.8)),
}
#: Section 7.6: speed-ups of four GPUs over one.
SCALING: Mapping[str, Range] = {"gcn": (3.3, 3.7), "gat": (3.4, 3.8)}


def show_range(ends: Range) -> str:
    """Format a range as a cell quotes it: ``"1.3-1.5"``."""
    low, high = ends
    return f"{low:g}-{high:g}"


def show_growth(ends: Range) -> str:
    """Format the excess over 1 in percent, as a cell quotes it: ``"30-50"`` of ``(1.3, 1.5)``."""
    return "-".join(f"{100 * (end - 1):.0f}" for end in ends)


def middle(ends: Range) -> float:
    """Return the middle of a range."""
    return (ends[0] + ends[1]) / 2


#: What is left of GCN's epochs for the CPU, percent.
GCN_CPU = 100 - middle(GCN_GPU) - middle(GCN_LINKS)
