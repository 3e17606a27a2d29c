"""HongTu's Tables 1, 5, 6, 7 and 9: the paper's numbers, and what is predicted instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from gnnbench.agreement import describe_agreement, find_error, format_share, measure_agreement
from gnnbench.platforms.machine import Platform
from gnnbench.records import Cell, Contradiction, Table, TableRow
from gnnbench.studies import Reproduction
from gnnbench.units import format_si
from gnnbench_plugins.studies.hongtu.assumptions import explain, time_case
from gnnbench_plugins.studies.hongtu.footprint import (
    intermediate_bytes,
    topology_bytes,
    vertex_bytes,
)
from gnnbench_plugins.studies.hongtu.peers import OVERFLOW, PEERS_NOTE, predict_peer
from gnnbench_plugins.studies.hongtu.quoted import (
    DEPTHS,
    GIB,
    LARGE,
    PARTITIONS,
    PRODUCTS,
    SMALL,
    TABLE_1,
    TABLE_5,
    TABLE_6,
    TABLE_7,
    TABLE_9,
    PaperGraph,
    Seconds,
)
from gnnbench_plugins.studies.hongtu.server import (
    Case,
    Method,
    fit_notes,
    fitted_server,
    foresee_case,
)

#: The systems of the paper that HongTu's parts stand for.
OURS: dict[str, Method] = {"HongTu": "+RU", "HongTu-IM": "in memory"}
FITS = "fits"


def quote(seconds: float | None) -> Cell:
    """A time that nobody predicts."""
    if seconds is None:
        return Cell(provenance="quoted", text=OVERFLOW)
    return Cell(seconds, "s", "quoted")


def predict_cell(case: Case, quoted: float | None) -> Cell:
    """A predicted epoch, or words where the ledger of training says that a GPU is full. ``quoted``
    is None where the paper ran out of memory."""
    words = OVERFLOW if quoted is None else ""
    if foresee_case(case).reason:
        return Cell(unit="s", quoted=quoted, text=OVERFLOW, quoted_text=words)
    return Cell(fitted_server().epoch_s(case), "s", quoted=quoted, quoted_text=words)


def explain_cells(cells: Iterable[tuple[Case, Cell]]) -> tuple[Contradiction, ...]:
    """The sensitivity of those that are far from the paper's."""
    return explain(time_case(case, cell.quoted) for case, cell in cells if cell.value is not None)


def sum_up(ours: Iterable[Cell], peers: Iterable[Cell]) -> str:
    """The errors of HongTu's own cells apart from those of its peers; none of either was fitted
    on."""
    told = [
        f"{who}: {describe_agreement(measure_agreement(cells))}"
        for who, cells in (("HongTu", tuple(ours)), ("peers", tuple(peers)))
    ]
    return f"nothing was fitted on these cells; {'; '.join(told)}"


@dataclass(frozen=True, slots=True)
class Epochs:
    """The cells of a table of epochs as they are predicted: HongTu's own with their cases, and its
    peers'. ``table`` is ``"t5"``, ``"t6"`` or ``"t7"``."""

    table: str
    gpus: int = PARTITIONS
    own: list[tuple[Case, Cell]] = field(default_factory=list)
    peers: list[Cell] = field(default_factory=list)

    def predict(
        self, system: str, model: str, graph: PaperGraph, layers: int, quoted: float | None
    ) -> Cell:
        """A system's epoch beside the paper's seconds, which are None where its memory was full."""
        if system not in OURS:
            self.peers.append(predict_peer(self.table, system, model, graph, layers, quoted))
            return self.peers[-1]
        case = Case(graph, model, layers, OURS[system], self.gpus)
        self.own.append((case, predict_cell(case, quoted)))
        return self.own[-1][1]

    def notes(self, *of_table: str) -> tuple[str, ...]:
        """What was fitted and how large errors are, and a table's own notes."""
        errors = sum_up((cell for _, cell in self.own), self.peers)
        return (*fit_notes(), errors, *of_table)


class Table1(Reproduction):
    """Memory of 3-layer GCN on the three large graphs."""

    name: ClassVar[str] = "hongtu-table1"
    summary: ClassVar[str] = "memory of topology, vertex and intermediate data, 3-layer GCN"
    left_out: ClassVar[str] = "HongTu Tables 2 (systems) and 4 (graphs), Figures 1 to 7 (drawings)"

    def run(self) -> tuple[Table, ...]:
        rows = []
        for graph in LARGE:
            held = foresee_case(Case(graph, "gcn", 3)).host_bytes
            sizes = (topology_bytes(graph), vertex_bytes(graph, 3), intermediate_bytes(graph, 3))
            cells = [
                Cell(value=size / GIB, unit="GiB", quoted=quoted)
                for size, quoted in zip(sizes, TABLE_1[graph.name], strict=True)
            ]
            cells.append(Cell(value=sum(held.values()) / GIB, unit="GiB"))
            rows.append(TableRow(graph.name, tuple(cells)))
        return (
            Table(
                name=self.name,
                title="HongTu Table 1: memory of 3-layer full-graph GCN training",
                columns=("topology", "vertex data", "intermediate data", "host, as trained here"),
                rows=tuple(rows),
                notes=(
                    "the paper's GB are taken as GiB; topology 12 |E| bytes (two 32-bit indices "
                    "and a weight an edge), vertex data 8 (f^0 + .. + f^L) |V| (representations "
                    "and gradients of every layer), intermediate data "
                    "4 (2 (f^1 + .. + f^L) + f^L) |V| (H W and its aggregate, and the loss's "
                    "softmax)",
                    "the paper states none of these formulas: they are the ones with whole "
                    "coefficients that its nine numbers follow",
                    "|V| and |E| are Table 4's, exact where it rounds a published graph; its "
                    "friendster (65.6 M, 2.5 B) is 4 % smaller than Table 1 was computed for",
                    "the last column is what a run of strategy hongtu holds on the host: two "
                    "gradient buffers instead of one a layer, cached aggregates instead of "
                    "intermediates",
                ),
            ),
        )


def compare_papers_gpus() -> str:
    """What the paper's own Tables 5 and 6 say of four GPUs."""
    times = []
    for column, graph in enumerate(SMALL):
        alone, together = TABLE_5[8, "HongTu-IM"][column], TABLE_6["8/4", "HongTu-IM"][column]
        if alone and together:
            times.append(f"{alone / together:.2g} times on {graph.label}")
    return (
        f"the paper's own HongTu-IM of 8 layers is faster on four GPUs than on one (Table 5) by "
        f"{' and '.join(times)}, though {PRODUCTS.label}'s partitions read fewer rows of each other"
    )


def table_1_bytes(graph: PaperGraph, layers: int) -> float:
    """Topology, vertex and intermediate data."""
    vertices = vertex_bytes(graph, layers) + intermediate_bytes(graph, layers)
    return topology_bytes(graph) + vertices


def explain_memory() -> tuple[str, ...]:
    """What the largest cells are made of, where they contradict the paper."""
    platform = fitted_server().platform
    host, gpu, notes = platform.host, platform.accelerators[0], []
    for depth, system in TABLE_6:
        for (graph, layers), quoted in zip(list_depths(depth), TABLE_6[depth, system], strict=True):
            if system == "HongTu-IM" and quoted is None:
                found = foresee_case(Case(graph, "gcn", layers, "in memory"))
                size = fullest_bytes(found.peak_bytes, platform)
                if size <= gpu.memory_bytes:
                    notes.append(
                        f"{layers}-layer GCN on {graph.label} fits in memory by training's own "
                        f"ledger, {size / 1e9:.1f} of {gpu.memory_bytes / 1e9:g} GB on a GPU, "
                        f"where the paper ran out; Table 1's data are "
                        f"{table_1_bytes(graph, layers) / PARTITIONS / 1e9:.1f} GB a GPU, without "
                        f"a halo or buffers"
                    )
            if system != "HongTu":
                continue
            found = foresee_case(Case(graph, "gcn", layers))
            if found.peak_bytes[host.name] <= host.memory_bytes:
                continue
            most = sorted(found.host_bytes.items(), key=lambda item: -item[1])[:4]
            named = ", ".join(f"{name} {size / 1e9:.0f} GB" for name, size in most)
            paper = vertex_bytes(graph, layers) / 1e9
            notes.append(
                f"the host's {host.memory_bytes / 1e9:.0f} GB do not hold {layers}-layer GCN on "
                f"{graph.label}: {named}; the paper ran it, though its own vertex data alone, by "
                f"Table 1's formula, are {paper:.0f} GB. Its time is predicted as if it fitted"
            )
    return (
        "a GPU of HongTu-IM holds what training's ledger has for a partition as one chunk: rows, "
        "gradients and intermediates of all layers, the halo, the adjacency in both directions",
        *notes,
    )


def _sockets_note() -> str:
    """What rows of other sockets' memory cost without deduplication."""
    host = fitted_server().platform.host
    shares = [
        f"{format_share(1 - 1 / graph.replication(PARTITIONS))} ({graph.name})" for graph in LARGE
    ]
    between = host.socket_bandwidth_bytes_per_s
    return (
        f"without deduplication {', '.join(shares)} of the rows lie at other sockets, what others' "
        f"rows are of a partition's neighbour set (Table 3, 4 partitions); they cross at "
        f"{format_si(between, 'B/s')} a GPU, an assumption of the platform, where section 7.3 "
        f"calls them slow without a figure"
    )


class Table5(Reproduction):
    """Two small graphs on one GPU, and on one CPU server."""

    name: ClassVar[str] = "hongtu-table5"
    summary: ClassVar[str] = "GCN and GAT epochs on two small graphs, one GPU, DGL and DistGNN"

    def run(self) -> tuple[Table, ...]:
        rows = []
        epochs = Epochs("t5", gpus=1)
        columns = [(model, graph) for model in ("gcn", "gat") for graph in SMALL]
        for (layers, system), quoted in TABLE_5.items():
            cells = [
                epochs.predict(system, model, graph, layers, seconds)
                for (model, graph), seconds in zip(columns, quoted, strict=True)
            ]
            rows.append(TableRow(f"{layers} {system}", tuple(cells)))
        return (
            Table(
                name=self.name,
                title="HongTu Table 5: seconds of one epoch on one GPU (DistGNN: one CPU server)",
                columns=("GCN RDT", "GCN OPT", "GAT RDT", "GAT OPT"),
                rows=tuple(rows),
                notes=epochs.notes(
                    "HongTu on one GPU: one partition of one chunk, with the whole graph's rows "
                    "crossing its one host link",
                    PEERS_NOTE,
                ),
                contradictions=explain_cells(epochs.own),
            ),
        )


class Table6(Reproduction):
    """Full-graph GCN against multi-GPU systems."""

    name: ClassVar[str] = "hongtu-table6"
    summary: ClassVar[str] = "GCN epochs of HongTu, HongTu-IM and its peers on five graphs, 4 GPUs"

    def run(self) -> tuple[Table, ...]:
        rows, held = [], []
        epochs = Epochs("t6")
        for (depth, system), quoted in TABLE_6.items():
            cells = [
                epochs.predict(system, "gcn", graph, layers, seconds)
                for (graph, layers), seconds in zip(list_depths(depth), quoted, strict=True)
            ]
            rows.append(TableRow(f"{depth} {system}", tuple(cells)))
            if system in OURS:
                held += tabulate_memory(depth, system, quoted)
        columns = tuple(graph.label for graph in (*SMALL, *LARGE))
        return (
            Table(
                name=self.name,
                title="HongTu Table 6: seconds of one epoch of GCN on 4 A100, by layers "
                "(small/large graphs) and system",
                columns=columns,
                rows=tuple(rows),
                notes=epochs.notes(
                    "RDT and OPT have one chunk a partition, so every row crosses the host link "
                    "once a pass; of what goes between GPUs the paper says nothing, assumed: "
                    "alpha 4 for RDT (492 edges a vertex: every partition reads every row), 1.52 "
                    "for OPT (Table 3's ogbn-paper at 4 partitions)",
                    PEERS_NOTE,
                    compare_papers_gpus(),
                ),
                contradictions=explain_cells(epochs.own),
            ),
            Table(
                name=self.name,
                title="HongTu Table 6: what its cells hold by the ledger of training, of the "
                "fullest GPU and of the host",
                columns=columns,
                rows=tuple(held),
                notes=explain_memory(),
            ),
        )


def list_depths(depth: str) -> list[tuple[PaperGraph, int]]:
    """The graphs of Table 6 with their layers in the rows of a ``depth``."""
    small, large = DEPTHS[depth]
    return [(graph, small) for graph in SMALL] + [(graph, large) for graph in LARGE]


def tabulate_memory(depth: str, system: str, quoted: Seconds) -> list[TableRow]:
    """Bytes, and whether they fit, beside whether the paper's run did."""
    platform = fitted_server().platform
    gpu, host, verdicts = [], [], []
    for (graph, layers), seconds in zip(list_depths(depth), quoted, strict=True):
        found = foresee_case(Case(graph, "gcn", layers, OURS[system]))
        gpu.append(Cell(fullest_bytes(found.peak_bytes, platform), "B"))
        host.append(Cell(found.peak_bytes[platform.host.name], "B"))
        over = found.reason or found.peak_bytes[platform.host.name] > platform.host.memory_bytes
        verdicts.append(
            Cell(text=OVERFLOW if over else FITS, quoted_text=OVERFLOW if seconds is None else FITS)
        )
    label = f"{depth} {system}"
    return [
        TableRow(f"{label}: GPU", tuple(gpu)),
        TableRow(f"{label}: host", tuple(host)),
        TableRow(f"{label}: verdict", tuple(verdicts)),
    ]


def fullest_bytes(peak_bytes: Mapping[str, int], platform: Platform) -> int:
    """Of the GPUs."""
    return max(peak_bytes.get(device.name, 0) for device in platform.accelerators)


class Table7(Reproduction):
    """GCN and GAT of 2, 3 and 4 layers on the three large graphs."""

    name: ClassVar[str] = "hongtu-table7"
    summary: ClassVar[str] = "GCN and GAT epochs of HongTu and DistGNN on three large graphs"

    def run(self) -> tuple[Table, ...]:
        graphs = {graph.label: graph for graph in LARGE}
        rows = []
        epochs = Epochs("t7")
        columns = [(model, system) for model in ("gcn", "gat") for system in ("DistGNN", "HongTu")]
        for (layers, label), quoted in TABLE_7.items():
            cells = [
                epochs.predict(system, model, graphs[label], layers, seconds)
                for (model, system), seconds in zip(columns, quoted, strict=True)
            ]
            rows.append(TableRow(f"{layers} {label}", tuple(cells)))
        return (
            Table(
                name=self.name,
                title="HongTu Table 7: seconds of one epoch, by layers and graph",
                columns=("GCN DistGNN", "GCN HongTu", "GAT DistGNN", "GAT HongTu"),
                rows=tuple(rows),
                notes=epochs.notes(
                    "GAT has twice as many chunks as Table 8 counts; its volumes are Table 8's "
                    "times Table 3's growth of alpha from 32 to 64 (IT) and 128 to 256 partitions",
                    "GAT's edges have tensors, as Equation 3 is written: the products of both ends "
                    "side by side, read again for the score, forward, again and backward",
                    PEERS_NOTE,
                ),
                contradictions=explain_cells(epochs.own),
            ),
        )


class Table9(Reproduction):
    """What communication deduplication earns and costs."""

    name: ClassVar[str] = "hongtu-table9"
    summary: ClassVar[str] = "100 epochs of 2-layer GCN with and without deduplication"

    def run(self) -> tuple[Table, ...]:
        methods: dict[str, Method] = {"HongTu w/o CD": "baseline", "HongTu w/ CD": "+RU"}
        rows = []
        predicted: list[tuple[Case, Cell]] = []
        for label, quoted in TABLE_9.items():
            cells = []
            for graph, seconds in zip(LARGE, quoted, strict=True):
                cell = quote(seconds)
                if label in methods:
                    case = Case(graph, method=methods[label])
                    ours = predict_cell(case, seconds / 100)
                    cell = Cell(100 * (ours.value or 0.0), "s", quoted=seconds)
                    predicted.append((case, ours))
                cells.append(cell)
            rows.append(TableRow(label, tuple(cells)))
        errors = [abs(find_error(cell) or 0.0) for _, cell in predicted]
        return (
            Table(
                name=self.name,
                title="HongTu Table 9: seconds of 100 epochs of 2-layer GCN, and of preprocessing",
                columns=tuple(graph.name for graph in LARGE),
                rows=tuple(rows),
                notes=(
                    *fit_notes(),
                    f"nothing was fitted on these cells; median error "
                    f"{format_share(median(errors))}",
                    _sockets_note(),
                    "preprocessing is quoted: it depends on an implementation, not on volumes",
                ),
                contradictions=explain_cells(predicted),
            ),
        )


TABLES: tuple[type[Reproduction], ...] = (Table1, Table5, Table6, Table7, Table9)
