"""HongTu's Table 8 and Figure 10 on graphs that are at hand: rows that cross, and what more chunks
do to memory and time.

Real graphs and stand-ins are partitioned, cut and ordered as for training, and counted; nothing is
trained. The paper's own graphs stand beside them: Table 8 quoted, Figure 10, a drawing without
numbers, predicted from Tables 3 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, ClassVar

from gnnbench import datasets
from gnnbench.constants import Bound, Constant
from gnnbench.models import build
from gnnbench.parts import OffloadingMemory, Setting
from gnnbench.platforms import load_platform
from gnnbench.records import Cell, Contradiction, Dataset, Provenance, Table, TableRow, Workload
from gnnbench.sensitivity import Assumption, Quantity, find_contradictions
from gnnbench.studies import Reproduction
from gnnbench_plugins.hongtu.counts import ChunkCounts
from gnnbench_plugins.hongtu.memory import HongTuMemory
from gnnbench_plugins.hongtu.outlook import PathStep, foresee, price_path
from gnnbench_plugins.hongtu.planner import count_rounds
from gnnbench_plugins.hongtu.sampler import HongTuSampler
from gnnbench_plugins.studies.hongtu.assumptions import list_assumptions
from gnnbench_plugins.studies.hongtu.quoted import (
    LARGE,
    PARTITIONS,
    PaperGraph,
    Range,
    show_range,
)
from gnnbench_plugins.studies.hongtu.server import (
    HOST_STAGE,
    LINK_STAGES,
    PLATFORM,
    Server,
    assemble,
    fit_notes,
    fitted_server,
    make_kernel,
    make_workload,
    multiply_chunks,
    place_graph,
)

#: Stand-ins of the paper's graphs at a fraction of their size.
STAND_INS = ("it-2004:0.002", "ogbn-papers100M:0.001", "friendster:0.001")
#: Real graphs, then stand-ins.
DATASETS = ("ego_twitter", "facebook_top8", "coauthor_physics", *STAND_INS)
#: n of it-2004 and of the two others (section 7.1).
CHUNKS: Bound[tuple[int, ...]] = (8, 32)
#: Section 7.3: least and most of the rows that deduplication removed, percent.
GONE_PERCENT: Annotated[tuple[float, float], Constant("%", "quoted", "HongTu, section 7.3")] = (
    25.0,
    71.0,
)
HIDDEN: Bound[int] = 128
SEED: Bound[int] = 0

#: Figure 10: so many times the initial chunks; 3 is not among Table 3's numbers of partitions.
TIMES: Bound[tuple[int, ...]] = (1, 2, 4)
#: Section 7.5, at four times the chunks.
LESS_MEMORY = "51-65"
LONGER: Annotated[Range, Constant("", "quoted", "HongTu, section 7.5")] = (1.5, 2.2)
#: A growth outside of that range is explained however little it is off.
ANY: Bound[float] = 1e-3


# --------------------------------------------------------------------------- graphs at hand


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A graph and a 2-layer GCN to train on it."""

    setting: Setting

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> Job:
        dims = (dataset.num_features, HIDDEN, dataset.num_classes)
        workload = Workload("gcn", dims, 1, 1, (0,) * (len(dims) - 1), SEED)
        return cls(Setting(dataset, load_platform(PLATFORM), workload, build(workload).shapes))


@cache
def load_jobs() -> tuple[dict[str, Job], tuple[str, ...]]:
    """The graphs that are here, and notes on those that are not."""
    return datasets.load_available(DATASETS, Job.of_dataset)


@cache
def count_job(name: str, chunks: int) -> ChunkCounts:
    """What the chunks of a graph of ``load_jobs`` read, partitioned and ordered as for training."""
    job = load_jobs()[0][name]
    rounds = HongTuSampler(chunks_per_partition=chunks).chunks(job.setting, PARTITIONS).rounds
    return count_rounds(job.setting.dataset.graph, rounds, PARTITIONS, threads=0)


# --------------------------------------------------------------------------- Table 8


@dataclass(frozen=True, slots=True)
class Duplication:
    """V_ori, V_+p2p and V_+ru in multiples of |V|, of so many chunks in all."""

    chunks: int
    original: float
    with_p2p: float
    with_reuse: float

    @classmethod
    def of_paper(cls, graph: PaperGraph) -> Duplication:
        with_p2p = graph.original - graph.between
        chunks = PARTITIONS * graph.chunks
        return cls(chunks, graph.original, with_p2p, with_p2p - graph.reused)

    @classmethod
    def of_counts(cls, counts: ChunkCounts) -> Duplication:
        vertices = float(counts.vertices.sum())
        volumes = (counts.neighbours, counts.transition, counts.loaded)
        return cls(counts.vertices.size, *(float(rows.sum()) / vertices for rows in volumes))

    @property
    def gone_percent(self) -> float:
        """Of V_ori, what crosses the host link no more."""
        return 100 * (1 - self.with_reuse / self.original)

    @property
    def most_percent(self) -> float:
        """What would be gone if each vertex crossed once: all are read, by their own chunk."""
        return 100 * (1 - 1 / self.original)

    @property
    def chunk_percent(self) -> float:
        """How much of the graph a chunk reads on average."""
        return 100 * self.original / self.chunks

    @property
    def is_inside(self) -> bool:
        """Whether as much is gone as section 7.3 says."""
        least, most = GONE_PERCENT
        return least <= self.gone_percent <= most

    def tabulate(self, label: str, provenance: Provenance) -> TableRow:
        values = (
            (self.original, "|V|"),
            (self.original - self.with_p2p, "|V|"),
            (self.with_p2p - self.with_reuse, "|V|"),
            (self.gone_percent, "%"),
            (self.most_percent, "%"),
            (self.chunk_percent, "%"),
        )
        cells = (Cell(self.chunks, "", provenance), *(Cell(v, u, provenance) for v, u in values))
        return TableRow(label, cells)


class Table8(Reproduction):
    """What deduplication removes."""

    name: ClassVar[str] = "hongtu-table8"
    summary: ClassVar[str] = "rows that deduplication keeps off the host links, on graphs here"

    def run(self) -> tuple[Table, ...]:
        jobs, absent = load_jobs()
        theirs = {graph.name: Duplication.of_paper(graph) for graph in LARGE}
        ours = [
            (name, Duplication.of_counts(count_job(name, chunks)))
            for chunks in CHUNKS
            for name in jobs
        ]
        columns = ("chunks", "V_ori", "P2P", "RU", "gone", "at most", "a chunk")
        return (
            Table(
                name=self.name,
                title="HongTu Table 8: rows over the host links in a pass over all chunks",
                columns=columns,
                rows=tuple(found.tabulate(name, "quoted") for name, found in theirs.items()),
                notes=(
                    "P2P: V_ori - V_+p2p; RU: V_+p2p - V_+ru; gone: both together, 1 - V_+ru / "
                    "V_ori; at most: where each vertex crosses once, 1 - |V| / V_ori; a chunk: how "
                    "much of all vertices it reads",
                ),
            ),
            Table(
                name=self.name,
                title="the same of graphs at hand",
                columns=columns,
                rows=tuple(found.tabulate(name, "measured") for name, found in ours),
                notes=(
                    f"{PARTITIONS} partitions by METIS, or what the sampler takes for it, batches "
                    f"in the order of its local search",
                    *explain_outside(ours, list(theirs.values())),
                    *absent,
                ),
            ),
        )


def explain_outside(
    ours: Sequence[tuple[str, Duplication]], theirs: Sequence[Duplication]
) -> tuple[str, ...]:
    """Which graphs lose less or more than the paper's do, and how they differ."""
    outside = [(name, found) for name, found in ours if not found.is_inside]
    if not outside:
        return ()
    inside = [found for _, found in ours if found.is_inside]
    names = ", ".join(f"{name} in {found.chunks} chunks" for name, found in outside)
    least, most = GONE_PERCENT
    spans = [
        f"{_span(found)} {where}"
        for found, where in (
            ([found for _, found in outside], "there"),
            (inside, "of the others"),
            (theirs, "of the paper's graphs"),
        )
        if found
    ]
    return (
        f"outside section 7.3's {least:g} to {most:g} %: {names}. More is gone the more of the "
        f"graph a chunk reads, since the next one finds it there: {', '.join(spans)}",
    )


def _span(found: Sequence[Duplication]) -> str:
    """``"5 to 8.4 %"``: what a chunk reads."""
    shares = sorted(each.chunk_percent for each in found)
    ends = dict.fromkeys(f"{share:.2g}" for share in (shares[0], shares[-1]))
    return f"{' to '.join(ends)} %"


# --------------------------------------------------------------------------- Figure 10


@dataclass(frozen=True, slots=True)
class Strain:
    """What a number of chunks takes of the fullest device, and of time for an epoch, with the steps
    that decide about it."""

    device_bytes: int
    epoch_s: float
    path: Sequence[PathStep]

    @classmethod
    def of_counts(cls, counts: ChunkCounts, setting: Setting, memory: OffloadingMemory) -> Strain:
        found = foresee(counts, assemble(memory), setting)
        fullest = max(found.peak_bytes[device.name] for device in setting.platform.accelerators)
        return cls(fullest, found.epoch_s, found.path)


def list_alphas(graph: PaperGraph) -> list[float]:
    """Table 3's replication factors at ``TIMES`` the chunks that section 7.1 trains GCN with."""
    return [graph.replication(times * PARTITIONS * graph.chunks) for times in TIMES]


def strain_paper(graph: PaperGraph, memory: OffloadingMemory) -> list[Strain]:
    """The paper's graph at ``TIMES`` its chunks, its volumes growing as alpha does."""
    setting = place_graph(graph, make_workload(graph.dims(2)), fitted_server().platform)
    first, *_ = alphas = list_alphas(graph)
    return [
        Strain.of_counts(multiply_chunks(graph, times, alpha / first), setting, memory)
        for times, alpha in zip(TIMES, alphas, strict=True)
    ]


def strain_job(name: str, memory: OffloadingMemory) -> list[Strain]:
    """A graph at hand at ``TIMES`` the least of ``CHUNKS``."""
    setting = load_jobs()[0][name].setting
    return [
        Strain.of_counts(count_job(name, times * CHUNKS[0]), setting, memory) for times in TIMES
    ]


@dataclass(frozen=True, slots=True)
class Growth:
    """A graph at ``TIMES`` its first chunks, and whether section 7.5 has ranges for it."""

    label: str
    strains: Sequence[Strain]
    quoted: bool


class Figure10(Reproduction):
    """Memory and time with more chunks."""

    name: ClassVar[str] = "hongtu-figure10"
    summary: ClassVar[str] = "device memory and epochs with 1, 2 and 4 times the chunks"

    def run(self) -> tuple[Table, ...]:
        _, absent = load_jobs()
        waiting, staying = (
            strain_all(HongTuMemory(topology=where)) for where in ("host", "device")
        )
        longer = [
            there.epoch_s / here.epoch_s - 1
            for one, other in zip(waiting, staying, strict=True)
            for there, here in zip(one.strains, other.strains, strict=True)
        ]
        columns = tuple(f"{times}x chunks" for times in TIMES)
        title = "HongTu Figure 10: memory of the fullest device, by chunks of a partition"
        return (
            Table(
                name=self.name,
                title=title,
                columns=(*columns, "less"),
                rows=tuple(map(tabulate_memory, waiting)),
                notes=(
                    f"2-layer GCN, {HIDDEN} hidden; as the ledger of a run with "
                    f"memory.topology=host has it: the model, and one layer of one chunk with its "
                    f"topology. On small dense graphs rows that a batch brings in for peers do not "
                    f"shrink much",
                    "section 7.5 has one range for its three graphs, and does not say how many "
                    "chunks it began with: taken to be those of section 7.1; nor what of the "
                    "topologies is on a device",
                    *absent,
                ),
            ),
            Table(
                name=self.name,
                title=f"{title}, with all topologies on the devices",
                columns=(*columns, "less"),
                rows=tuple(map(tabulate_memory, staying)),
                notes=(
                    "with memory.topology=device: the adjacencies of all chunks, as kernel 'torch' "
                    "keeps them for both directions, stay there and do not shrink",
                ),
            ),
            Table(
                name=self.name,
                title="HongTu Figure 10: seconds of an epoch, by chunks of a partition",
                columns=(*columns, "longer"),
                rows=tuple(map(tabulate_time, waiting)),
                notes=(
                    f"topologies cross with their chunks, which makes these epochs "
                    f"{min(longer):.1%} to {max(longer):.0%} longer than they are with all on the "
                    f"devices",
                    "on the paper's graphs all volumes of Table 8 grow as alpha does in Table 3; "
                    "that fewer rows stay from batch to batch where chunks are smaller is left out",
                    *fit_notes()[:1],
                    "on graphs at hand picked rows cross the host links as fast as blocks",
                ),
                contradictions=explain_times(waiting),
            ),
        )


def strain_all(memory: OffloadingMemory) -> list[Growth]:
    """The paper's graphs, and those at hand; labels say from how many chunks on."""
    return [
        *(
            Growth(f"{graph.name}, from {graph.chunks}", strain_paper(graph, memory), quoted=True)
            for graph in LARGE
        ),
        *(
            Growth(f"{name}, from {CHUNKS[0]}", strain_job(name, memory), quoted=False)
            for name in load_jobs()[0]
        ),
    ]


@dataclass(frozen=True)
class Stretch:
    """The server, and multiples of the rows that cross, and are added to, at the most chunks."""

    server: Server
    volume: float = 1.0

    def longer(self, strains: Sequence[Strain]) -> float:
        """How many times as long an epoch becomes."""
        few, many = (
            price_path(strain.path, self.server.platform, make_kernel("gcn"))
            for strain in (strains[0], strains[-1])
        )
        moved = (*LINK_STAGES, HOST_STAGE)
        grown = sum(
            seconds * (self.volume if stage in moved else 1.0) for stage, seconds in many.items()
        )
        return grown / sum(few.values())


def explain_times(growths: Sequence[Growth]) -> tuple[Contradiction, ...]:
    """Of each of the paper's graphs whose epochs grow less or more than section 7.5 says."""
    low, high = LONGER
    asked = [
        (graph, _ask_longer(graph, growth.strains))
        for graph, growth in zip(LARGE, growths, strict=False)
    ]
    model = Stretch(fitted_server())
    told: list[Contradiction] = []
    for graph, quantity in asked:
        value = quantity.predict(model)
        if low <= value <= high:
            continue
        first, *_, last = list_alphas(graph)
        volume = Assumption[Stretch](
            "rows that cross at four times the chunks, over those at the first number",
            last / first, "x", "alpha, HongTu Table 3",
            lambda model, factor: replace(model, volume=factor),
        )  # fmt: skip
        # Not the last, of GAT's edges, of which GCN has none.
        rates = [_of_server(each) for each in list_assumptions(model.server)[:-1]]
        nearest = replace(quantity, quoted=low if value < low else high)
        others = [other for _, other in asked]
        told += find_contradictions(model, [nearest], [volume, *rates], others, tolerance=ANY)
    return tuple(told)


def _ask_longer(graph: PaperGraph, strains: Sequence[Strain]) -> Quantity[Stretch]:
    """How many times as long an epoch becomes; beside it the nearer end of the paper's range."""

    def predict(model: Stretch) -> float:
        return model.longer(strains)

    return Quantity(f"the growth of {graph.name}'s epoch", predict, LONGER[0], "x")


def _of_server(assumption: Assumption[Server]) -> Assumption[Stretch]:
    """The same of a stretch, which rests on it through its server."""

    def scale(model: Stretch, factor: float) -> Stretch:
        return replace(model, server=assumption.scale(model.server, factor))

    return Assumption(
        assumption.label, assumption.stated, assumption.unit, assumption.source, scale
    )


def tabulate_memory(growth: Growth) -> TableRow:
    """Bytes, and how many percent less they become."""
    sizes = [strain.device_bytes for strain in growth.strains]
    quoted = LESS_MEMORY if growth.quoted else ""
    less = Cell(100 * (1 - sizes[-1] / sizes[0]), "%", quoted_text=quoted)
    return TableRow(growth.label, (*(Cell(size, "B") for size in sizes), less))


def tabulate_time(growth: Growth) -> TableRow:
    """Seconds, and how many times as long they become."""
    seconds = [strain.epoch_s for strain in growth.strains]
    longer = Cell(
        seconds[-1] / seconds[0], "x", quoted_text=show_range(LONGER) if growth.quoted else ""
    )
    return TableRow(growth.label, (*(Cell(each, "s") for each in seconds), longer))


FIGURES: tuple[type[Reproduction], ...] = (Table8, Figure10)
