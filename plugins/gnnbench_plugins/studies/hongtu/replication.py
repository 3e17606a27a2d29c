"""HongTu's Table 3 on graphs that are at hand: how often partitions read a vertex.

Its own graphs, of up to 2.5 billion edges, are not here; real ones and stand-ins are cut into as
many parts as training cuts them, and real ones by one partition alone, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np

from gnnbench.constants import Constant
from gnnbench.partitioning import choose_partitioner, partition
from gnnbench.records import Cell, Graph, IntArray, Table, TableRow
from gnnbench.studies import Reproduction
from gnnbench_plugins.hongtu.sampler import cut_blocks
from gnnbench_plugins.studies.hongtu.figures import SEED, STAND_INS, load_jobs
from gnnbench_plugins.studies.hongtu.quoted import CUT_INTO, PARTITIONS, TABLE_3

#: Section 4.2: how much less vertex data a device holds for each doubling, percent.
LESS_A_DOUBLING: Mapping[str, Annotated[float, Constant("%", "quoted", "HongTu, section 4.2")]] = {
    "it-2004": 47.0,
    "ogbn-paper": 35.0,
    "friendster": 32.0,
}


def count_reads(graph: Graph, owner: IntArray, chunks: int) -> float:
    """The replication factor: vertices that all chunks read, their own among them, over |V|."""
    members = [np.flatnonzero(owner == slot) for slot in range(owner.max(initial=0) + 1)]
    blocks = cut_blocks(graph, members, chunks)
    return sum(block.num_src for row in blocks for block in row) / graph.num_vertices


def count_ranges(name: str) -> tuple[float, ...]:
    """The factors of a graph of ``load_jobs``, one for each of ``CUT_INTO``: of ``PARTITIONS`` at
    most, each cut into ranges, as training cuts them."""
    graph = load_jobs()[0][name].setting.dataset.graph
    few = {parts: min(parts, PARTITIONS) for parts in CUT_INTO}
    owners = {parts: cut_whole(graph, parts) for parts in {*few.values()}}
    return tuple(count_reads(graph, owners[few[parts]], parts // few[parts]) for parts in CUT_INTO)


def count_alone(name: str) -> tuple[float, ...]:
    """The same of as many partitions, without ranges."""
    graph = load_jobs()[0][name].setting.dataset.graph
    return tuple(count_reads(graph, cut_whole(graph, parts), 1) for parts in CUT_INTO)


def cut_whole(graph: Graph, partitions: int) -> IntArray:
    return partition(graph, partitions, choose_partitioner(graph), SEED)


def shrink_percent(alphas: Sequence[float]) -> float:
    """How much less of (1 + alpha) |V| / (m n), what section 4.2 says that a device holds of the
    vertices, each doubling of m n leaves on average."""
    return 100 * float(np.mean([1 - (1 + b) / (1 + a) / 2 for a, b in pairwise(alphas)]))


class Table3(Reproduction):
    """Replication factors by partitions."""

    name: ClassVar[str] = "hongtu-table3"
    summary: ClassVar[str] = "how often 2 to 512 partitions read a vertex, on graphs here"

    def run(self) -> tuple[Table, ...]:
        jobs, absent = load_jobs()
        columns = (*map(str, CUT_INTO), "less")
        ranges = {name: count_ranges(name) for name in jobs}
        real = {name: count_alone(name) for name in jobs if name not in STAND_INS}
        return (
            Table(
                name=self.name,
                title="HongTu Table 3: replication factors, by partitions",
                columns=columns,
                rows=tuple(quote(name, alphas) for name, alphas in TABLE_3.items()),
                notes=(
                    "vertices that all partitions read, over |V|; less: vertex data of a device, "
                    "(1 + alpha) |V| / partitions (section 4.2), at each doubling, by that formula "
                    "from the printed factors, beside what the text says",
                ),
            ),
            Table(
                name=self.name,
                title=f"the same of graphs at hand, {PARTITIONS} partitions cut into ranges",
                columns=columns,
                rows=tuple(tabulate(name, found) for name, found in ranges.items()),
                notes=(
                    f"as training cuts them: {PARTITIONS} partitions by METIS, then ranges of "
                    f"vertices with as many edges (section 4.1)",
                    *describe_stand_ins(ranges),
                    *absent,
                ),
            ),
            Table(
                name=self.name,
                title="the same of real graphs at hand, as many partitions",
                columns=columns,
                rows=tuple(tabulate(name, found) for name, found in real.items()),
                notes=("all partitions by METIS, and no ranges",),
            ),
        )


def describe_stand_ins(ranges: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """What sets stand-ins apart, whose factors are not the paper's."""
    place = CUT_INTO.index(PARTITIONS)
    ours = sorted(found[place] for name, found in ranges.items() if name in STAND_INS)
    theirs = sorted(found[place] for found in TABLE_3.values())
    if not ours:
        return ()
    return (
        f"stand-ins have the degrees of the paper's graphs and none of their communities: already "
        f"{PARTITIONS} partitions read {ours[0]:.2f} to {ours[-1]:.2f} times |V|, and the paper's "
        f"{theirs[0]:.2f} to {theirs[-1]:.2f}",
    )


def quote(name: str, alphas: Sequence[float]) -> TableRow:
    """A row of the paper, and what its formula makes of it beside what its text says."""
    less = Cell(shrink_percent(alphas), "%", quoted=LESS_A_DOUBLING[name])
    return TableRow(name, (*(Cell(alpha, "", "quoted") for alpha in alphas), less))


def tabulate(name: str, alphas: Sequence[float]) -> TableRow:
    """A row of a graph at hand."""
    less = Cell(shrink_percent(alphas), "%", "measured")
    return TableRow(name, (*(Cell(alpha, "", "measured") for alpha in alphas), less))
