"""MixGCN's Figures 9, 10 and 11: memory, communication volume and balance of MoP and of its peers.

Nothing is trained: what a worker holds, sends and computes in an epoch follows from how many
vertices and edges its part of the graph has and how many rows of others it reads. The engine counts
the same, byte for byte. The paper's figures are drawings without numbers, so there is nothing to
quote; what its section 4.3 says of them stands in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gnnbench import datasets
from gnnbench.constants import Bound
from gnnbench.footprint import ChunkSize, adjacency_bytes, in_flight_bytes, kept_bytes
from gnnbench.lowering.shardings import Piece
from gnnbench.models import build
from gnnbench.partitioning import choose_partitioner, deal_out, partition
from gnnbench.parts import LayerShape
from gnnbench.platforms import load_platform
from gnnbench.records import BlockSize, Cell, Dataset, Graph, IntArray, Table, TableRow, Workload
from gnnbench.studies import Reproduction
from gnnbench.units import format_si
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.studies.mixgcn.tables import foresee_counted

#: Real graphs, then stand-ins of two of the paper's (its Table 2) at a fraction of their size.
DATASETS = ("facebook_top8", "ego_twitter", "reddit:0.02", "orkut:0.01")
WORKERS: Bound[tuple[int, ...]] = (1, 2, 4, 8, 16, 32)
#: Where MoP's program is laid out: it has as many GPUs as the most workers.
PLATFORM = "xeon8462x4-32xh100"
#: Workers of a node (section 4.1), on which DistDGL is what everything is measured against.
NODE: Bound[int] = 8
#: Section 4.1: three layers with 128 hidden units.
HIDDEN: Bound[tuple[int, ...]] = (128, 128)
SEED: Bound[int] = 0

Marks = npt.NDArray[np.uint64]


# --------------------------------------------------------------------------- counts of a graph


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A graph cut into m parts. All arrays have a row for every distance and an entry a part.

    ``rows[h]`` are the vertices within h hops of a part, the part's own first; ``edges[h]`` their
    in-edges. ``read_by_peers``, ``(m,)``, are a part's rows that others read for one layer, each as
    often as it is read.
    """

    rows: IntArray
    edges: IntArray
    read_by_peers: IntArray

    @property
    def parts(self) -> int:
        return int(self.rows.shape[1])

    def chunk(self, part: int, hops: int) -> ChunkSize:
        """The block whose destinations are the vertices within ``hops`` of a part."""
        return ChunkSize(
            int(self.rows[hops + 1, part]),
            int(self.rows[hops, part]),
            int(self.edges[hops, part]),
            buffered=False,
        )


def cut_graph(graph: Graph, owner: IntArray, parts: int, hops: int) -> Cut:
    """Count what the parts of ``owner``, int64 ``(V,)``, at most 64 of them, have and read."""
    own: Marks = np.uint64(1) << owner.astype(np.uint64)
    marks, reached = own, [own]
    for _ in range(hops):
        marks = marks | _gather_marks(graph, marks)
        reached.append(marks)
    degrees = graph.degrees
    rows = np.zeros((hops + 1, parts), dtype=np.int64)
    edges = np.zeros((hops + 1, parts), dtype=np.int64)
    read_by_peers = np.zeros(parts, dtype=np.int64)
    for part in range(parts):
        bit = np.uint64(1 << part)
        for distance, within in enumerate(reached):
            found = (within & bit) != 0
            rows[distance, part] = np.count_nonzero(found)
            edges[distance, part] = degrees[found].sum()
        read = (reached[1] & ~own & bit) != 0
        read_by_peers += np.bincount(owner[read], minlength=parts)
    return Cut(rows, edges, read_by_peers)


def _gather_marks(graph: Graph, marks: Marks) -> Marks:
    """For each vertex, the marks of all its neighbours together."""
    gathered = np.zeros_like(marks)
    reading = np.flatnonzero(graph.degrees)
    if len(reading):
        starts = graph.indptr[reading]
        gathered[reading] = np.bitwise_or.reduceat(marks[graph.indices], starts)
    return gathered


# --------------------------------------------------------------------------- what a system takes


@dataclass(frozen=True, slots=True)
class Usage:
    """What a system takes of its workers: the fullest one's memory, and how much of that are rows
    and their gradients (not the adjacency and the weights); bytes between workers in an epoch,
    without the weights' gradients; the largest worker's arithmetic over the mean."""

    worker_bytes: int
    feature_bytes: int
    volume_bytes: float
    imbalance: float


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A graph and what is trained on it; cuts of the graph are made once."""

    graph: Graph
    workload: Workload

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> Job:
        """With a GCN's layers, in float32, as the paper's."""
        dims = (dataset.num_features, *HIDDEN, dataset.num_classes)
        return cls(dataset.graph, Workload("gcn", dims, 1, 1, (0,) * (len(dims) - 1), SEED))

    @property
    def layers(self) -> tuple[LayerShape, ...]:
        return _shapes_of(self.workload)

    @property
    def itemsize(self) -> int:
        return self.workload.itemsize

    @property
    def widths(self) -> list[int]:
        """f^0 .. f^{L-1}, of what is aggregated."""
        return [shape.in_features for shape in self.layers]

    @property
    def crossing(self) -> int:
        """Elements that cross for a row of a peer in an epoch: its row at every layer, and its
        gradient at every layer but the first, whose rows are the features."""
        return sum(self.widths) + sum(self.widths[1:])

    @property
    def model_bytes(self) -> int:
        """The weights and their gradients."""
        return 2 * sum(shape.parameters for shape in self.layers) * self.itemsize

    def cut_metis(self, parts: int) -> Cut:
        return _cut_metis(self.graph, parts, len(self.layers), self.workload.seed)

    def cut_randomly(self, parts: int) -> Cut:
        owner = deal_out(self.graph.num_vertices, parts, self.workload.seed)
        return cut_graph(self.graph, owner, parts, 1)


@cache
def _shapes_of(workload: Workload) -> tuple[LayerShape, ...]:
    return build(workload).shapes


@cache
def _cut_metis(graph: Graph, parts: int, hops: int, seed: int) -> Cut:
    owner = partition(graph, parts, choose_partitioner(graph), seed)
    return cut_graph(graph, owner, parts, hops)


def _imbalance(work: Sequence[float]) -> float:
    return max(work) / (sum(work) / len(work))


def _layer_work(shape: LayerShape, chunk: ChunkSize) -> int:
    return chunk.num_edges * shape.in_features + chunk.num_dst * shape.macs_per_row


def use_partitions(
    job: Job,
    cut: Cut,
    *,
    broadcasts: bool = False,
    stale_rows: bool = False,
    stale_gradients: bool = False,
    under_way: int = 0,
) -> tuple[int, int]:
    """Bytes of the fullest worker, and those of them that are features, of partition parallelism.

    Every worker has what its part needs from forward to backward, and beside it the rows that it
    puts together for a layer. Of ``stale_rows`` and ``stale_gradients`` it keeps all that it last
    read, and of those ``under_way`` for so many epochs as many copies.
    """
    alone, item = cut.parts == 1, job.itemsize
    found = []
    for part in range(cut.parts):
        chunk = cut.chunk(part, 0)
        held = chunk.num_dst * job.widths[0] * item
        in_flight = 0
        for number, shape in enumerate(job.layers):
            held += kept_bytes(shape, [chunk], item, copied=not alone)
            for backward in (False, True):
                if stale_rows and not alone and not backward:
                    continue
                size = in_flight_bytes(
                    shape, chunk, (chunk.num_dst, chunk.num_dst), item,
                    backward=backward, first=number == 0, copied=not alone,
                )  # fmt: skip
                in_flight = max(in_flight, size)
        if not alone:
            held += _held_for_peers(
                job, cut, part, broadcasts, stale_rows, stale_gradients, under_way
            )
        held += in_flight
        topology = adjacency_bytes(job.layers, chunk, item, TorchKernel())
        found.append((held + topology + job.model_bytes, held))
    return max(found)


def _held_for_peers(
    job: Job,
    cut: Cut,
    part: int,
    broadcasts: bool,
    stale_rows: bool,
    stale_gradients: bool,
    under_way: int,
) -> int:
    rows, returned = sum(job.widths), sum(job.widths[1:])
    read = int(cut.rows[1, part])
    halo, sent = read - int(cut.rows[0, part]), int(cut.read_by_peers[part])
    elements = 0
    if broadcasts:
        elements += int(cut.rows[0].max()) * max(job.widths)
    if stale_rows:
        kept = sum(shape.in_features for shape in job.layers if shape.cacheable)
        elements += read * kept + under_way * halo * rows
    if stale_gradients:
        elements += sent * returned * (1 + under_way)
    return elements * job.itemsize


def _balance(job: Job, cut: Cut) -> float:
    return _imbalance(
        [
            sum(_layer_work(shape, cut.chunk(part, 0)) for shape in job.layers)
            for part in range(cut.parts)
        ]
    )


def _halo(cut: Cut) -> int:
    """|R|, the remote neighbours of all workers."""
    return int((cut.rows[1] - cut.rows[0]).sum())


def use_partition(job: Job, workers: int) -> Usage:
    """Algorithm 1. Proposition 3.2: volume and memory go with |R|."""
    cut = job.cut_metis(workers)
    volume = _halo(cut) * job.crossing * job.itemsize
    return Usage(*use_partitions(job, cut), volume, _balance(job, cut))


def use_pipegcn(job: Job, workers: int) -> Usage:
    """The same rows, which are an epoch on their way and are kept meanwhile."""
    cut = job.cut_metis(workers)
    held = use_partitions(job, cut, stale_rows=True, stale_gradients=True, under_way=1)
    return Usage(*held, _halo(cut) * job.crossing * job.itemsize, _balance(job, cut))


def use_cagnet(job: Job, workers: int) -> Usage:
    """All rows to all others at every layer: (m - 1) |V| of them."""
    cut = job.cut_randomly(workers)
    volume = (workers - 1) * job.graph.num_vertices * job.crossing * job.itemsize
    return Usage(*use_partitions(job, cut, broadcasts=True), volume, _balance(job, cut))


def use_sancus(job: Job, workers: int) -> Usage:
    """The same in every other epoch; the features, which never change, have crossed in the first,
    which is not counted; gradients cross in all."""
    cut = job.cut_randomly(workers)
    held = use_partitions(job, cut, broadcasts=True, stale_rows=True)
    hidden = sum(job.widths[1:])
    volume = (workers - 1) * job.graph.num_vertices * (0.5 * hidden + hidden) * job.itemsize
    return Usage(*held, volume, _balance(job, cut))


def use_distdgl(job: Job, workers: int) -> Usage:
    """Features of all vertices within L hops cross before an iteration, and nothing after; what
    others compute of them is computed again."""
    cut, item, depth = job.cut_metis(workers), job.itemsize, len(job.layers)
    found, work = [], []
    for part in range(workers):
        chunks = [cut.chunk(part, depth - 1 - number) for number in range(depth)]
        held = int(cut.rows[0, part]) * job.widths[0] * item
        in_flight = 0
        for number, (shape, chunk) in enumerate(zip(job.layers, chunks, strict=True)):
            first = number == 0
            held += kept_bytes(shape, [chunk], item, copied=first)
            for backward in (False, True):
                size = in_flight_bytes(
                    shape, chunk, (chunk.num_dst, chunk.num_src), item,
                    backward=backward, first=first, copied=first,
                )  # fmt: skip
                in_flight = max(in_flight, size)
        held += in_flight
        topology = sum(adjacency_bytes(job.layers, chunk, item, TorchKernel()) for chunk in chunks)
        found.append((held + topology + job.model_bytes, held))
        work.append(sum(map(_layer_work, job.layers, chunks)))
    remote = int((cut.rows[depth] - cut.rows[0]).sum())
    return Usage(*max(found), remote * job.widths[0] * item, _imbalance(work))


def use_mixgcn(job: Job, workers: int) -> Usage:
    """Algorithm 2 on workers that aggregate and update, without the pipeline between the two, by
    the program that training executes.

    Proposition 3.4: every entry of a layer's rows is at one worker when it is aggregated and at one
    when it is updated, and crosses unless that is the same.
    """
    vertices, platform = job.graph.num_vertices, load_platform(PLATFORM)
    placement = MixGCNPlacement(accelerators=workers)
    whole = Piece(BlockSize(vertices, vertices, job.graph.num_edges), (0,), picks=False)
    outlook = foresee_counted(placement, platform, job.workload, (whole,))
    epoch, names = outlook.epoch, [device.name for device in placement.trainers(platform)]
    most = max(outlook.peak_bytes[name] for name in names)
    rows = most - whole.topology_bytes - job.model_bytes
    work = [epoch.work_by_device.get(name, 0.0) for name in names]
    return Usage(most, rows, epoch.bytes["all_to_all"], _imbalance(work))


SYSTEMS: Mapping[str, Callable[[Job, int], Usage]] = {
    "mixgcn": use_mixgcn,
    "partition": use_partition,
    "distdgl-full-graph": use_distdgl,
    "cagnet": use_cagnet,
    "pipegcn": use_pipegcn,
    "sancus": use_sancus,
}


# --------------------------------------------------------------------------- the tables


@cache
def load_jobs() -> tuple[dict[str, Job], tuple[str, ...]]:
    """The graphs that are here, and notes on those that are not."""
    return datasets.load_available(DATASETS, Job.of_dataset)


@cache
def usage_of(dataset: str, system: str, workers: int) -> Usage:
    """What a system takes to train a GCN on a data set of ``load_jobs``."""
    return SYSTEMS[system](load_jobs()[0][dataset], workers)


def _make_tables(
    name: str,
    title: str,
    quantity: Callable[[Usage], float],
    notes: tuple[str, ...],
    *,
    unit: str = "",
    normalised: bool = True,
) -> list[Table]:
    """One table a data set: a row a system, a column a number of workers."""
    jobs, absent = load_jobs()
    tables = []
    for dataset, job in jobs.items():
        base = quantity(usage_of(dataset, "distdgl-full-graph", NODE)) if normalised else 1.0
        rows = tuple(
            TableRow(
                system,
                tuple(Cell(quantity(usage_of(dataset, system, count)) / base) for count in WORKERS),
            )
            for system in SYSTEMS
        )
        widths = ", ".join(map(str, (*job.widths, job.layers[-1].out_features)))
        told = [f"GCN of widths {widths}, {job.graph.num_vertices:,} vertices"]
        if normalised:
            told.append(f"1 is DistDGL on a node of {NODE} workers, {format_si(base, unit)}")
        told += _name_smaller(dataset, quantity)
        tables.append(
            Table(
                name,
                f"{title}, {dataset}, by workers",
                tuple(str(count) for count in WORKERS),
                rows,
                (*told, *notes, *absent),
                axis="workers",
            )
        )
    return tables


def _name_smaller(dataset: str, quantity: Callable[[Usage], float]) -> list[str]:
    """Where, among several workers, a peer's number is below MoP's."""
    told = []
    for system in SYSTEMS:
        smaller = [
            str(count)
            for count in WORKERS[1:]
            if quantity(usage_of(dataset, system, count))
            < quantity(usage_of(dataset, "mixgcn", count))
        ]
        if smaller:
            told.append(f"{system} is below mixgcn with {', '.join(smaller)} workers")
    return told


class MixGCNFigure9(Reproduction):
    """Memory."""

    name: ClassVar[str] = "mixgcn-figure9"
    summary: ClassVar[str] = "MixGCN Figure 9: memory of its fullest worker, and of its peers'"
    left_out: ClassVar[str] = (
        "MixGCN Tables 1 (contributions) and 2 (graphs), Figures 1 to 6 (drawings)"
    )

    def run(self) -> tuple[Table, ...]:
        whole = _make_tables(
            self.name,
            "MixGCN Figure 9: memory of the fullest worker",
            lambda usage: usage.worker_bytes,
            ("the adjacency, which MoP has whole on every worker (section 5.2.1), is in it",),
            unit="B",
        )
        features = _make_tables(
            self.name,
            "MixGCN Figure 9: memory for rows and their gradients, of the fullest worker",
            lambda usage: usage.feature_bytes,
            ("Propositions 3.2 and 3.4: MoP's goes with |V| / m, the others' with what they read",),
            unit="B",
        )
        return tuple(table for pair in zip(whole, features, strict=True) for table in pair)


class MixGCNFigure10(Reproduction):
    """Communication volume."""

    name: ClassVar[str] = "mixgcn-figure10"
    summary: ClassVar[str] = "MixGCN Figure 10: bytes between workers in an epoch, and its peers'"

    def run(self) -> tuple[Table, ...]:
        return tuple(
            _make_tables(
                self.name,
                "MixGCN Figure 10: bytes between all workers in an epoch",
                lambda usage: usage.volume_bytes,
                (
                    "MoP's is constant up to (m - 1) / m, what a worker sends to others; "
                    "gradients of the weights, which all systems average, are not in it",
                    "sancus: a broadcast every other epoch, mean of two, without the first",
                ),
                unit="B",
            )
        )


class MixGCNFigure11(Reproduction):
    """Balance."""

    name: ClassVar[str] = "mixgcn-figure11"
    summary: ClassVar[str] = "MixGCN Figure 11: the largest worker's arithmetic over the mean"

    def run(self) -> tuple[Table, ...]:
        return tuple(
            _make_tables(
                self.name,
                "MixGCN Figure 11: most over mean arithmetic of the workers",
                lambda usage: usage.imbalance,
                ("additions of AGGREGATE and multiplications of UPDATE count the same",),
                normalised=False,
            )
        )


FIGURES: tuple[type[Reproduction], ...] = (MixGCNFigure9, MixGCNFigure10, MixGCNFigure11)
