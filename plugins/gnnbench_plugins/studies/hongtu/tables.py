"""HongTu's Tables 1, 5, 6, 7 and 9: the paper's numbers, and what is predicted instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from gnnbench.machines.machine import Platform
from gnnbench.records import Cell, Contradiction, Table, TableRow
from gnnbench.reproduce.agreement import format_share
from gnnbench.reproduce.studies import LeftOut, Reproduction
from gnnbench.units import format_si
from gnnbench_plugins.studies.hongtu.assumptions import explain, time_case
from gnnbench_plugins.studies.hongtu.peers import OVERFLOW, PEERS_NOTE, predict_peer
from gnnbench_plugins.studies.hongtu.quoted import (
    DEPTHS,
    GIB,
    LARGE,
    PARTITIONS,
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
    fitted_server,
    foresee_case,
    note_rates,
)

#: The systems of the paper that HongTu's parts stand for.
OURS: dict[str, Method] = {"HongTu": "+RU", "HongTu-IM": "in memory"}
FITS = "fits"
#: Where epochs count that other tables repeat.
IN_TABLE_7, BELOW = "counted in hongtu-table7", "counted below, as a verdict"


def quote(seconds: float | None) -> Cell:
    """Return a cell with a quoted time alone."""
    if seconds is None:
        return Cell(provenance="quoted", text=OVERFLOW)
    return Cell(seconds, "s", "quoted")


def predict_cell(case: Case, quoted: float | None) -> Cell:
    """Predict an epoch, or say that the ledger of training finds a GPU full.

    ``quoted`` is None where the paper ran out of memory.
    """
    words = OVERFLOW if quoted is None else ""
    if foresee_case(case).reason:
        return Cell(unit="s", quoted=quoted, text=OVERFLOW, quoted_text=words)
    return Cell(fitted_server().epoch_s(case), "s", quoted=quoted, quoted_text=words)


def explain_cells(cells: Iterable[tuple[Case, Cell]]) -> tuple[Contradiction, ...]:
    """Explain the cells that are far from the paper's."""
    return explain(time_case(case, cell.quoted) for case, cell in cells if cell.value is not None)


@dataclass(frozen=True, slots=True)
class Epochs:
    """A table of epochs while it is predicted, with the cells of HongTu's own and their cases.

    ``table`` is ``"t5"``, ``"t6"`` or ``"t7"``.
    """

    table: str
    gpus: int = PARTITIONS
    own: list[tuple[Case, Cell]] = field(default_factory=list)

    def predict(
        self, system: str, model: str, graph: PaperGraph, layers: int, quoted: float | None
    ) -> Cell:
        """Predict a system's epoch beside the paper's seconds, None where its memory was full."""
        if system not in OURS:
            return predict_peer(self.table, system, model, graph, layers, quoted)
        case = Case(graph, model, layers, OURS[system], self.gpus)
        self.own.append((case, predict_cell(case, quoted)))
        return self.own[-1][1]


class Table1(Reproduction):
    """Memory of 3-layer GCN on the three large graphs."""

    name: ClassVar[str] = "hongtu-table1"
    summary: ClassVar[str] = "memory that 3-layer GCN takes on the three large graphs"
    left_out: ClassVar[tuple[LeftOut, ...]] = (
        LeftOut("hongtu-figure1 to 7", "drawings", "no results"),
        LeftOut("hongtu-table2", "other systems", "no results"),
        LeftOut("hongtu-table3", "replication factors", "an input here; its graphs are not here"),
        LeftOut("hongtu-table4", "the graphs", "no results"),
        LeftOut("hongtu-table8", "duplicated rows", "an input here; its graphs are not here"),
        LeftOut("hongtu-figure8", "accuracy by epoch", "a drawing; `compare` checks equal losses"),
    )

    def run(self) -> tuple[Table, ...]:
        rows = []
        for graph in LARGE:
            sizes = foresee_case(Case(graph, "gcn", 3, "in memory")).peak_bytes
            gpus = sum(sizes[device.name] for device in fitted_server().platform.accelerators)
            quoted = TABLE_1[graph.name]
            parts = (Cell(size, "GiB", "quoted") for size in quoted)
            rows.append(TableRow(graph.name, (*parts, Cell(gpus / GIB, "GiB", quoted=sum(quoted)))))
        return (
            Table(
                name=self.name,
                title="HongTu Table 1: memory of 3-layer full-graph GCN training",
                columns=("topology", "vertex data", "intermediate data", "all together"),
                rows=tuple(rows),
                notes=(
                    "the paper does not say how it counted. Here stand the peaks of all GPUs that "
                    "hold the whole graph (HongTu-IM), by the ledger of a run",
                    "|V| and |E| are Table 4's, exact where it rounds a published graph",
                ),
            ),
        )


def explain_memory() -> tuple[str, ...]:
    """Say what fills the host where it cannot hold what the paper ran."""
    host, notes = fitted_server().platform.host, []
    for depth in DEPTHS:
        for graph, layers in list_depths(depth):
            found = foresee_case(Case(graph, "gcn", layers))
            if found.peak_bytes[host.name] <= host.hardware.memory_bytes:
                continue
            most = sorted(found.host_bytes.items(), key=lambda item: -item[1])[:4]
            named = ", ".join(f"{name} {size / 1e9:.0f} GB" for name, size in most)
            notes.append(
                f"the host's {host.hardware.memory_bytes / 1e9:.0f} GB do not hold {layers}-layer "
                f"GCN on {graph.label}: {named}. The paper ran it; its time is predicted as if it "
                f"fitted"
            )
    return (
        "a GPU of HongTu-IM holds what training's ledger has for a partition as one chunk: rows, "
        "gradients and intermediates of all layers, the halo, the adjacency in both directions",
        *notes,
    )


def _sockets_note() -> str:
    """Say how many rows lie at other sockets without deduplication, and at what rate they cross."""
    host = fitted_server().platform.host
    shares = [
        f"{format_share(1 - 1 / graph.replication(PARTITIONS))} ({graph.name})" for graph in LARGE
    ]
    between = host.memory.socket_bandwidth_bytes_per_s
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

    @staticmethod
    def predict() -> tuple[tuple[TableRow, ...], Epochs]:
        """Return the rows of epochs, labelled by layers and system, and HongTu's own cells."""
        rows = []
        epochs = Epochs("t5", gpus=1)
        columns = [(model, graph) for model in ("gcn", "gat") for graph in SMALL]
        for (layers, system), quoted in TABLE_5.items():
            cells = [
                epochs.predict(system, model, graph, layers, seconds)
                for (model, graph), seconds in zip(columns, quoted, strict=True)
            ]
            rows.append(TableRow(f"{layers} {system}", tuple(cells)))
        return tuple(rows), epochs

    def run(self) -> tuple[Table, ...]:
        rows, epochs = self.predict()
        return (
            Table(
                name=self.name,
                title="HongTu Table 5: seconds of one epoch on one GPU (DistGNN: one CPU server)",
                columns=("GCN RDT", "GCN OPT", "GAT RDT", "GAT OPT"),
                rows=rows,
                notes=(
                    *note_rates(),
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

    @staticmethod
    def predict() -> tuple[tuple[TableRow, ...], Epochs]:
        """Return the rows of epochs, labelled by layers and system, and HongTu's own cells."""
        rows = []
        epochs = Epochs("t6")
        for (depth, system), quoted in TABLE_6.items():
            cells = []
            for (graph, layers), seconds in zip(list_depths(depth), quoted, strict=True):
                cell = epochs.predict(system, "gcn", graph, layers, seconds)
                if system in OURS and graph in LARGE:
                    cell = replace(cell, uncounted=BELOW if seconds is None else IN_TABLE_7)
                cells.append(cell)
            rows.append(TableRow(f"{depth} {system}", tuple(cells)))
        return tuple(rows), epochs

    def run(self) -> tuple[Table, ...]:
        rows, epochs = self.predict()
        held = [
            row
            for (depth, system), quoted in TABLE_6.items()
            if system in OURS
            for row in tabulate_memory(depth, system, quoted)
        ]
        columns = tuple(graph.label for graph in (*SMALL, *LARGE))
        return (
            Table(
                name=self.name,
                title="HongTu Table 6: seconds of one epoch of GCN on 4 A100, by layers "
                "(small/large graphs) and system",
                columns=columns,
                rows=rows,
                notes=(
                    *note_rates(),
                    "RDT and OPT have one chunk a partition, so every row crosses the host link "
                    "once a pass; of what goes between GPUs the paper says nothing, assumed: "
                    "alpha 4 for RDT (492 edges a vertex: every partition reads every row), 1.52 "
                    "for OPT (Table 3's ogbn-paper at 4 partitions)",
                    PEERS_NOTE,
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
    """List the graphs of Table 6 with their layers in the rows of a ``depth``."""
    small, large = DEPTHS[depth]
    return [(graph, small) for graph in SMALL] + [(graph, large) for graph in LARGE]


def tabulate_memory(depth: str, system: str, quoted: Seconds) -> list[TableRow]:
    """Tabulate bytes, and whether they fit, beside whether the paper's run did."""
    platform = fitted_server().platform
    gpu, host, verdicts = [], [], []
    for (graph, layers), seconds in zip(list_depths(depth), quoted, strict=True):
        found = foresee_case(Case(graph, "gcn", layers, OURS[system]))
        gpu.append(Cell(fullest_bytes(found.peak_bytes, platform), "B"))
        host.append(Cell(found.peak_bytes[platform.host.name], "B"))
        over = (
            found.reason
            or found.peak_bytes[platform.host.name] > platform.host.hardware.memory_bytes
        )
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
    """Return the bytes of the fullest GPU."""
    return max(peak_bytes.get(device.name, 0) for device in platform.accelerators)


class Table7(Reproduction):
    """GCN and GAT of 2, 3 and 4 layers on the three large graphs."""

    name: ClassVar[str] = "hongtu-table7"
    summary: ClassVar[str] = "GCN and GAT epochs of HongTu and DistGNN on three large graphs"

    @staticmethod
    def predict() -> tuple[tuple[TableRow, ...], Epochs]:
        """Return the rows of epochs, labelled by layers and graph, and HongTu's own cells."""
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
        return tuple(rows), epochs

    def run(self) -> tuple[Table, ...]:
        rows, epochs = self.predict()
        return (
            Table(
                name=self.name,
                title="HongTu Table 7: seconds of one epoch, by layers and graph",
                columns=("GCN DistGNN", "GCN HongTu", "GAT DistGNN", "GAT HongTu"),
                rows=rows,
                notes=(
                    *note_rates(),
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
    """The gain and the cost of deduplicated communication."""

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
                    again = IN_TABLE_7 if case.method == "+RU" else ""
                    cell = Cell(100 * (ours.value or 0.0), "s", quoted=seconds, uncounted=again)
                    predicted.append((case, ours))
                cells.append(cell)
            rows.append(TableRow(label, tuple(cells)))
        return (
            Table(
                name=self.name,
                title="HongTu Table 9: seconds of 100 epochs of 2-layer GCN, and of preprocessing",
                columns=tuple(graph.name for graph in LARGE),
                rows=tuple(rows),
                notes=(
                    *note_rates(),
                    _sockets_note(),
                    "preprocessing is quoted: it depends on an implementation, not on volumes",
                ),
                contradictions=explain_cells(predicted),
            ),
        )


TABLES: tuple[type[Reproduction], ...] = (Table1, Table5, Table6, Table7, Table9)
