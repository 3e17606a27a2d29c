"""Plans of training with HongTu, from counts of a graph's chunks: ``gnnbench plan hongtu``.

A dataset is partitioned as for training. A stream of edges is too large for that. Its vertices are
cut into ranges of balanced edges, in id order, and batches run in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import psutil

from gnnbench.constants import Bound
from gnnbench.datasets.partitioning import cut_ranges
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.kernels.dispatch import (
    ChunkMarks,
    RmatStream,
    count_chunks,
    count_degrees,
    count_replicas,
    counting_bytes,
    mark_neighbours,
)
from gnnbench.kernels.dispatch.streams import MOST_COUNTS, MOST_PIECES
from gnnbench.kernels.reference.streams import LabelArray
from gnnbench.lowering.capacity import TrainerCapacity
from gnnbench.lowering.memory import open_ledger
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.records import (
    Cell,
    Dataset,
    Graph,
    IndexArray,
    IntArray,
    PartKind,
    Round,
    Table,
    TableRow,
)
from gnnbench.reproduce.studies import Planner, PlanRequest
from gnnbench.units import format_si
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.counts import ChunkCounts, PartitionHomes, plan_units
from gnnbench_plugins.hongtu.outlook import STAGES, Outlook, foresee, make_setting
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import TwoLevelPartition

#: Table 3 goes up to 512 partitions.
FINEST: Bound[int] = 512


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Counts of a graph: its chunks, and how often vertices are replicated.

    ``replicas`` are as :func:`count_replicas` gives them for ``finest`` ranges. They are None if
    the number of partitions does not divide a power of two.
    """

    setting: Setting
    isolated: int
    chunks: ChunkCounts
    replicas: IntArray | None
    finest: int
    notes: tuple[str, ...]

    @property
    def vertices(self) -> int:
        return self.setting.dataset.graph.num_vertices


class HongTuPlanner(Planner):
    """A planner that counts neighbour sets and reads the training program that follows.

    For a dataset the program is made of its real chunks, outside this planner.
    """

    name: ClassVar[str] = "hongtu"
    summary: ClassVar[str] = "memory, host-device rows and epoch time, from the chunks' sizes"
    # No file is written.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {"memory": ("spill_dir",)}

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        prospect = Prospect(bundle, request)
        counted = count(prospect)
        tables = (
            tabulate_chunks(counted),
            *tabulate_replicas(counted),
            tabulate_volumes(counted),
        )
        if isinstance(request.graph, Dataset):
            return tables
        outlook = prospect.foresee(counted)
        return (*tables, prospect.tabulate_memory(outlook), prospect.tabulate_epoch(outlook))


class Prospect:
    """A request for this strategy: its parts by their own types, and quantities from counts."""

    def __init__(self, bundle: Bundle, request: PlanRequest) -> None:
        sampler, placement = bundle.sampler, bundle.placement
        if not (isinstance(sampler, TwoLevelPartition) and isinstance(placement, HongTuPlacement)):
            raise IncompatiblePartsError("a plan for hongtu needs hongtu's sampler and placement.")
        self.bundle, self.request, self.sampler = bundle, request, sampler
        self.devices = placement.trainers(request.platform)
        self.shapes = build(request.workload, model=request.model).shapes
        if not request.platform.accelerators:
            raise UsageError(
                f"platform {request.platform.name} has no accelerators to plan for; choose another "
                f"by --platform."
            )
        self._check_communication(placement)

    def _check_communication(self, placement: HongTuPlacement) -> None:
        """Raise if the parts' row traffic does not follow from counts."""
        communication = self.bundle.communication
        if not isinstance(communication, HongTuCommunication):
            raise IncompatiblePartsError("a plan for hongtu needs hongtu's communication.")
        counted = placement.numa_aware and communication.buffers == "merged"
        if not (counted or isinstance(self.request.graph, Dataset)):
            raise UsageError(
                "a plan from sizes alone knows rows at their device's socket and merged buffers "
                "only; leave out placement.numa_aware and communication.buffers."
            )

    @property
    def capacity(self) -> TrainerCapacity:
        """The capacity of the devices."""
        ledger = open_ledger(self.bundle, self.request.platform, self.devices)
        itemsize = self.request.workload.itemsize
        return TrainerCapacity(self.bundle, ledger, self.devices, self.shapes, itemsize)

    @property
    def partitions(self) -> int:
        """m, the number of partitions."""
        return len(self.devices)

    @property
    def threads(self) -> int:
        return self.request.workload.threads

    def check_size(self, vertices: int, chunks: int) -> None:
        """Raise ``UsageError`` unless this many chunks a partition can be counted here."""
        m = self.partitions
        if vertices < m * chunks:
            raise UsageError(
                f"{vertices:,} vertices cannot fill {count_nouns(m, 'partition')} of "
                f"{count_nouns(chunks, 'chunk')}; lower sampler.chunks_per_partition."
            )
        if m * chunks > MOST_PIECES or m * m * chunks > MOST_COUNTS:
            raise UsageError(
                f"{m} partitions of {chunks} chunks are more than a plan can count; lower "
                f"sampler.chunks_per_partition."
            )

    def check_memory(self, vertices: int, pieces: int) -> None:
        """Raise ``UsageError`` if this machine lacks the memory to count ``vertices`` vertices."""
        needed = counting_bytes(vertices, pieces, self.threads)
        available = psutil.virtual_memory().available
        if needed > available:
            raise UsageError(
                f"counting {vertices:,} vertices in {pieces} ranges takes "
                f"{format_si(needed, 'B')} of memory and {format_si(available, 'B')} are free; "
                f"plan for fewer vertices or chunks."
            )

    def settle(self, vertices: int, edges: int) -> Setting:
        """Return the setting of a graph of this size; the memory settles where topologies lie."""
        request = self.request
        setting = make_setting(vertices, edges, request.platform, request.workload, request.model)
        self.bundle = self.bundle.settle(setting)
        return setting

    def holds(self, chunks: ChunkCounts) -> bool:
        """Return whether the devices hold chunks of such sizes."""
        anywhere = PartitionHomes(self.request.platform, [0] * self.partitions)
        plans, _ = plan_units(chunks, self.bundle.communication, anywhere)
        by_device = zip(*plans, strict=True)
        return self.capacity.fits([[plan.chunk for plan in plans] for plans in by_device])

    def foresee(self, counted: Counted) -> Outlook:
        """Predict an epoch of training on the counted chunks."""
        return foresee(counted.chunks, self.bundle, counted.setting)

    def tabulate_memory(self, outlook: Outlook) -> Table:
        """Return the bytes that the fullest device and the hosts need, beside their capacities."""
        hosts, memory = self.request.platform.hosts, self.bundle.memory
        held = (
            (
                "fullest device",
                max(outlook.peak_bytes[device.name] for device in self.devices),
                min(map(memory.capacity_bytes, self.devices)),
            ),
            *(
                (host.name, outlook.peak_bytes[host.name], memory.host_capacity_bytes(host))
                for host in hosts
            ),
        )
        rows = [
            TableRow(
                label,
                (
                    Cell(size, "B"),
                    Cell(limit, "B"),
                    Cell(text="fits" if size <= limit else "does not fit"),
                ),
            )
            for label, size, limit in held
        ]
        nothing, whose = Cell(), "host" if len(hosts) == 1 else "hosts"
        rows += [
            TableRow(f"of the {whose}: {name}", (Cell(size, "B"), nothing, nothing))
            for name, size in outlook.host_bytes.items()
            if size
        ]
        return Table(
            name="memory",
            title="memory",
            columns=("needed", "there is", ""),
            rows=tuple(rows),
            notes=(outlook.reason,) if outlook.reason else (),
        )

    def tabulate_epoch(self, outlook: Outlook) -> Table:
        """Return the seconds of an epoch by stage."""
        stages = [(stage, outlook.stages_s[stage]) for stage in STAGES if stage in outlook.stages_s]
        rows = [
            TableRow(label, (Cell(seconds, "s"), Cell(100 * seconds / outlook.epoch_s, "%")))
            for label, seconds in (*stages, ("epoch", outlook.epoch_s))
        ]
        return Table(
            name="epoch",
            title=f"one epoch on {self.request.platform.name}",
            columns=("seconds", "share"),
            rows=tuple(rows),
            notes=("stages on the path that decides how long the epoch takes",),
        )


# --------------------------------------------------------------------------- a stored graph


def count(prospect: Prospect) -> Counted:
    """Count the chunks of the request's graph, of a dataset or of a stream."""
    graph = prospect.request.graph
    if isinstance(graph, RmatStream):
        return count_stream(graph, prospect)
    return count_dataset(graph, prospect)


def count_dataset(dataset: Dataset, prospect: Prospect) -> Counted:
    """Count the chunks that training on a dataset would have, in the order it would run them."""
    request, sampler, graph = prospect.request, prospect.sampler, dataset.graph
    setting = Setting(dataset, request.platform, request.workload, prospect.shapes, request.model)
    reason = prospect.bundle.refusal(setting)
    if reason is not None:
        raise IncompatiblePartsError(reason)
    prospect.check_size(graph.num_vertices, max(sampler.chunks_per_partition, 1))
    prospect.check_memory(graph.num_vertices, FINEST)
    prospect.bundle = prospect.bundle.begin(setting)
    cut = sampler.chunks(setting, prospect.partitions, prospect.capacity)
    rounds, owner = cut.rounds, cut.owner
    m = prospect.partitions
    replicas = None
    finest = count_finest(graph.num_vertices)
    if finest % m == 0:
        labels = label_ranges(graph, owner, m, finest // m)
        lines = mark_neighbours(graph, labels, finest, threads=prospect.threads)
        replicas = count_replicas(lines, labels, finest, threads=prospect.threads)
    with request.counting("neighbour sets", graph.num_edges) as advance:
        chunks = count_rounds(graph, rounds, m, prospect.threads, advance)
    return Counted(
        setting=setting,
        isolated=int(np.count_nonzero(graph.degrees == 0)),
        chunks=chunks,
        replicas=replicas,
        finest=finest,
        notes=(
            *cut.notes,
            *prospect.bundle.chosen.get("memory", ()),
            f"partitions of alpha: the {m} of training, each cut into ranges of balanced edges, "
            f"or neighbouring ones joined",
        ),
    )


def count_rounds(
    graph: Graph,
    rounds: Sequence[Round],
    partitions: int,
    threads: int,
    advance: Callable[[int], None] | None = None,
) -> ChunkCounts:
    """Count the chunks of a graph, in the order they run."""
    n = len(rounds)
    labels = np.zeros(graph.num_vertices, dtype=np.uint16)
    for j, round_ in enumerate(rounds):
        for unit in round_.units:
            labels[unit.output_ids] = unit.slot * n + j
    lines = mark_neighbours(graph, labels, partitions * n, threads=threads, advance=advance)
    marks = count_chunks(lines, labels, partitions, n, threads=threads)
    each = partitions * n
    return as_counts(
        marks,
        np.bincount(labels, minlength=each),
        np.bincount(labels, weights=graph.degrees, minlength=each).astype(np.int64),
    )


def label_ranges(graph: Graph, owner: IntArray, partitions: int, ranges: int) -> LabelArray:
    """Cut partitions into ranges of balanced edges, numbered one partition after the other."""
    labels = np.zeros(graph.num_vertices, dtype=np.uint16)
    for i in range(partitions):
        for k, members in enumerate(cut_ranges(graph, np.flatnonzero(owner == i), ranges)):
            labels[members] = i * ranges + k
    return labels


# --------------------------------------------------------------------------- a stream


def _check_ranges(sampler: TwoLevelPartition, m: int, finest: int) -> None:
    """Refuse chunks that are not made of the ``finest`` ranges, and partitioners."""
    n = sampler.chunks_per_partition
    if n < 0 or (n == 0 and finest % m):
        raise UsageError(
            f"sampler.chunks_per_partition is {n}; give each partition at least 1 chunk"
            + (f", since {m} partitions do not divide {finest} ranges." if n == 0 else ".")
        )
    if sampler.partitioner not in ("auto", "range"):
        raise UsageError(
            f"a stream of edges cannot be partitioned by {sampler.partitioner}; leave out "
            f"sampler.partitioner."
        )


def count_stream(stream: RmatStream, prospect: Prospect) -> Counted:
    """Count the chunks of a graph that is not stored: ranges of vertices with balanced edges."""
    sampler, threads, m = prospect.sampler, prospect.threads, prospect.partitions
    request = prospect.request
    n, finest = sampler.chunks_per_partition, count_finest(stream.vertices)
    _check_ranges(sampler, m, finest)
    prospect.check_size(stream.vertices, max(n, 1))
    pieces = finest if n == 0 or finest % (m * n) == 0 else m * n
    prospect.check_memory(stream.vertices, pieces)
    with request.counting("degrees", stream.edges) as advance:
        degrees = count_degrees(stream, threads=threads, advance=advance)
    isolated = stream.vertices - int(np.count_nonzero(degrees))
    bounds = cut_balanced(degrees, pieces)
    in_edges = np.array([degrees[a:b].sum(dtype=np.int64) for a, b in pairwise(bounds)])
    del degrees
    labels = np.repeat(np.arange(pieces, dtype=np.uint16), np.diff(bounds))
    with request.counting("neighbour sets", stream.edges) as advance:
        lines = mark_neighbours(stream, labels, pieces, threads=threads, advance=advance)

    def count(chunks: int) -> ChunkCounts:
        marks = count_chunks(lines, labels, m, chunks, pieces=pieces, threads=threads)
        whole = (m * chunks, -1)
        return as_counts(
            marks,
            np.diff(bounds).reshape(whole).sum(axis=1),
            in_edges.reshape(whole).sum(axis=1),
        )

    notes = [
        "partitions and chunks are ranges of vertices with balanced edges, because METIS and "
        "Algorithm 4 need a stored graph; ids are shuffled, so ranges have no locality, and a "
        "better partition moves fewer rows",
        "edges are drawn independently: one that comes twice counts twice in |E|, once in "
        "neighbour sets",
    ]
    setting = prospect.settle(stream.vertices, int(in_edges.sum()))
    if n:
        chunks = count(n)
    else:
        chunks, note = choose_least(count, prospect, finest // m)
        notes.append(note)
    return Counted(
        setting=setting,
        isolated=isolated,
        chunks=chunks,
        replicas=(
            count_replicas(lines, labels, pieces, threads=threads) if pieces == finest else None
        ),
        finest=finest,
        notes=(*notes, *prospect.bundle.chosen.get("memory", ())),
    )


def choose_least(
    count: Callable[[int], ChunkCounts], prospect: Prospect, most: int
) -> tuple[ChunkCounts, str]:
    """Return the least power of two of chunks a partition that the devices hold, else ``most``."""
    told = f"{format_si(prospect.capacity.device_bytes, 'B')} a device"
    n = 1
    while True:
        chunks = count(n)
        if prospect.holds(chunks):
            return chunks, f"chunks a partition: {n}, the least power of two that fits {told}"
        if n == most:
            return chunks, f"chunks a partition: {n}, the most that are counted, do not fit {told}"
        n *= 2


def cut_balanced(degrees: IndexArray, ranges: int) -> IntArray:
    """Return the bounds of ranges of consecutive vertices, int64 ``(ranges + 1,)``.

    Follows ``datasets.partitioning.cut_ranges``, for all vertices at once and without an array
    of their sums: a vertex weighs its degree and one.
    """
    stretch = 1 << 20
    total = int(degrees.sum(dtype=np.int64)) + len(degrees)
    targets = np.array([total * c // ranges for c in range(1, ranges)], dtype=np.int64)
    bounds = [np.zeros(1, dtype=np.int64)]
    before = 0
    for first in range(0, len(degrees), stretch):
        weight = np.cumsum(degrees[first : first + stretch] + np.int64(1)) + before
        after = int(weight[-1])
        # A target is in the stretch whose end first exceeds it.
        here = targets[(targets >= before) & (targets < after)]
        bounds.append(first + np.searchsorted(weight, here, side="right"))
        before = after
    bounds.append(np.array([len(degrees)]))
    return np.concatenate(bounds)


# --------------------------------------------------------------------------- what was counted


def count_finest(vertices: int) -> int:
    """Return the most partitions of Table 3 that the vertices can fill: a power of two."""
    return min(FINEST, 1 << (vertices.bit_length() - 1))


def as_counts(marks: ChunkMarks, vertices: IntArray, in_edges: IntArray) -> ChunkCounts:
    """Return counts for predictions; sizes of chunks come by partition, then chunk."""
    n, m = marks.transition.shape
    return ChunkCounts(
        vertices=vertices.reshape(m, n).T.astype(np.float64),
        edges=in_edges.reshape(m, n).T.astype(np.float64),
        neighbours=marks.neighbours.astype(np.float64),
        transition=marks.transition.astype(np.float64),
        loaded=marks.loaded.astype(np.float64),
        kept=marks.kept.astype(np.float64),
    )


def count_nouns(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tabulate_chunks(counted: Counted) -> Table:
    """Return the sizes of the graph and of its chunks."""
    chunks = counted.chunks
    n, m = chunks.vertices.shape
    read = chunks.neighbours.sum(axis=2)
    sizes = {
        "vertices": chunks.vertices,
        "in-edges": chunks.edges,
        "rows read, |N_ij|": read,
    }
    share = 100 * counted.isolated / counted.vertices
    return Table(
        name="chunks",
        title=f"{count_nouns(m, 'partition')} of {count_nouns(n, 'chunk')}",
        columns=("all chunks", "mean", "largest"),
        rows=tuple(
            TableRow(
                label,
                tuple(
                    Cell(value, "", "measured")
                    for value in (int(size.sum()), float(size.mean()), int(size.max()))
                ),
            )
            for label, size in sizes.items()
        ),
        notes=(
            f"in-edges: both directions of an edge, no self loops; {share:.3g} % of the vertices "
            f"have none",
            *counted.notes,
        ),
    )


def tabulate_replicas(counted: Counted) -> tuple[Table, ...]:
    """Return HongTu's Table 3 for this graph; nothing if the partitions are no power of two."""
    if counted.replicas is None:
        return ()
    alpha = counted.replicas[:, ::-1] / counted.vertices
    rows = zip(("in-neighbours", "and own vertices"), alpha, strict=True)
    return (
        Table(
            name="replication",
            title="neighbour replication factor alpha by number of partitions",
            columns=tuple(str(2 << k) for k in range(alpha.shape[1])),
            rows=tuple(
                TableRow(label, tuple(Cell(float(value), "", "measured") for value in values))
                for label, values in rows
            ),
            notes=(
                "the average number of partitions that need a vertex (section 2.4); what is moved "
                "contains the chunks' own vertices, whose rows every model reads",
            ),
        ),
    )


def tabulate_volumes(counted: Counted) -> Table:
    """Return the rows that cross the host link in one layer, section 5.3."""
    chunks = counted.chunks
    volumes = {
        "V_ori": chunks.neighbours.sum(),
        "V_+p2p": chunks.transition.sum(),
        "V_+ru": chunks.loaded.sum(),
    }
    return Table(
        name="volumes",
        title="rows between host and devices, a pass over all chunks",
        columns=("rows", "|V|"),
        rows=tuple(
            TableRow(
                label,
                (
                    Cell(int(rows), "rows", "measured"),
                    Cell(float(rows) / counted.vertices, "|V|", "measured"),
                ),
            )
            for label, rows in volumes.items()
        ),
    )
