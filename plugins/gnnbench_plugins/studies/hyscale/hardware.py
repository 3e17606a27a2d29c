"""HyScale-GNN's Table IV: what its design (n, m) = (8, 2048) takes of a U250."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

from gnnbench.constants import Constant
from gnnbench.models import build
from gnnbench.records import Cell, Contradiction, Table, TableRow, Workload
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions, scale_field
from gnnbench.reproduce.studies import LeftOut, Reproduction
from gnnbench_plugins.hpgnn.boards import Board, load_board
from gnnbench_plugins.hpgnn.design import Batch
from gnnbench_plugins.hpgnn.resources import Design, usage_of
from gnnbench_plugins.studies.hyscale.tables import BATCH, GRAPHS, MODELS, PaperGraph, sample_graph

DESIGN = Design(n=8, m=2048)
#: Table IV.
QUOTED = {"LUTs": 72.0, "DSPs": 90.0, "URAM": 48.0, "BRAM": 40.0}
FANOUTS: Annotated[tuple[int, int], Constant("", "quoted", "HyScale-GNN, section VI-A")] = (25, 10)
HIDDEN: Annotated[int, Constant("", "quoted", "HyScale-GNN, section VI-A")] = 256


@dataclass(frozen=True, slots=True)
class Built:
    """A board, the kernels that it holds, and the mini-batches that they are made for."""

    board: Board
    design: Design
    kernels: int
    batch: Batch

    def shares(self) -> dict[str, float]:
        """Return the used percentage of the board's resources."""
        board = self.board if self.kernels > 1 else self.board.as_one_die()
        used = usage_of(self.design, board, self.batch.buffers)
        uram = board.resources.uram_bytes / (32 * 1024)
        there = {
            "LUTs": board.resources.lut,
            "DSPs": board.resources.dsp,
            "URAM": uram,
            "BRAM": board.resources.bram,
        }
        taken = {"LUTs": used.lut, "DSPs": used.dsp, "URAM": used.uram, "BRAM": used.bram}
        return {name: 100 * self.kernels * taken[name] / there[name] for name in QUOTED}


def make_batch(graph: PaperGraph, model: str) -> Batch:
    """Make one trainer's mini-batch on the graph's stand-in."""
    dims = (graph.features, HIDDEN, graph.classes)
    workload = Workload(model=model, dims=dims, epochs=1, batch_size=BATCH, fanouts=FANOUTS, seed=0)
    profile = next(each for each in sample_graph(graph, FANOUTS) if each.seeds == BATCH)
    return Batch(
        vertices=tuple(map(float, profile.vertices)),
        edges=tuple(map(float, profile.edges)),
        widths=dims,
        update_widths=tuple(
            layer.macs_per_row / layer.out_features for layer in build(workload).shapes
        ),
    )


def _scale_batch(built: Built, factor: float) -> Built:
    batch = built.batch
    scaled = tuple(factor * count for count in batch.vertices)
    return replace(built, batch=replace(batch, vertices=scaled))


def _scale_width(built: Built, factor: float) -> Built:
    batch = built.batch
    widths = (max(1, round(factor * batch.widths[0])), *batch.widths[1:])
    inner = batch.update_widths or tuple(map(float, batch.widths[:-1]))
    return replace(
        built,
        batch=replace(batch, widths=widths, update_widths=(factor * inner[0], *inner[1:])),
    )


def _scale_groups(built: Built, factor: float) -> Built:
    scale: Callable[[Board, float], Board] = scale_field("adder_cycles")
    return replace(built, board=scale(built.board, factor))


def _assumptions(built: Built) -> tuple[Assumption[Built], ...]:
    board, batch = built.board, built.batch
    return (
        Assumption(
            "groups of rows in the MAC array, the cycles of an addition", board.adder_cycles, "",
            "assumption of this project's board file", _scale_groups,
        ),
        Assumption("f^0", batch.widths[0], "", "HyScale-GNN, Table III", _scale_width),
        Assumption(
            "the vertices of a mini-batch", batch.vertices[0], "", "this project's stand-in",
            _scale_batch,
        ),
    )  # fmt: skip


#: Table 4's row by what n and m may be of: the number of kernels, and each one's design.
READINGS: Mapping[str, tuple[int, Design]] = {
    "one kernel": (1, DESIGN),
    "4 kernels of a quarter": (4, Design(DESIGN.n // 4, DESIGN.m // 4)),
}


def list_built(kernels: int, design: Design) -> list[tuple[str, Built]]:
    """Return the design built for each workload, with the workload's name."""
    board = load_board("u250")
    return [
        (f"{title} {graph.name}", Built(board, design, kernels, make_batch(graph, model)))
        for graph in GRAPHS
        for model, title in MODELS.items()
    ]


def find_largest(name: str, built: Sequence[tuple[str, Built]]) -> tuple[str, Built]:
    """Return the workload that takes most of a resource, with its name."""
    return max(built, key=lambda each: each[1].shares()[name])


class Table4(Reproduction):
    """Resources by Equations 10 and 11 of HP-GNN and by the generated kernels' memories."""

    name: ClassVar[str] = "hyscale-table4"
    summary: ClassVar[str] = "what the design (8, 2048) takes of a U250: LUTs, DSPs, URAM, BRAM"
    left_out: ClassVar[tuple[LeftOut, ...]] = (
        LeftOut("hyscale-figure1 to 7", "drawings", "no results"),
        LeftOut(
            "hyscale-figure9",
            "speed-up on 1 to 16 accelerators",
            "no values but where it saturates, on which a constant was fitted",
        ),
        LeftOut("hyscale-table1", "notation", "no results"),
        LeftOut("hyscale-table2", "platforms", "no results"),
        LeftOut("hyscale-table3", "the graphs", "no results"),
        LeftOut("hyscale-table5", "its peers' set-ups", "no results"),
        LeftOut(
            "hyscale-table7",
            "epochs times the platform's peak",
            "Table 6 times a constant, 9.6 TFLOP/s for this work",
        ),
    )

    def run(self) -> tuple[Table, ...]:
        rows: list[TableRow] = []
        found: list[Contradiction] = []
        spans = []
        for what, (kernels, design) in READINGS.items():
            again = "a second reading of the same row" if rows else ""
            built = list_built(kernels, design)
            cells = []
            for name, quoted in QUOTED.items():
                label, largest = find_largest(name, built)
                asked = Quantity[Built](
                    f"{name} for {label}", partial(_share_of, name), quoted, "%"
                )
                cells.append(Cell(asked.predict(largest), "%", quoted=quoted, uncounted=again))
                if not again:
                    found += find_contradictions(largest, [asked], _assumptions(largest))
            rows.append(TableRow(what, tuple(cells)))
            spans += [f"{what}, {name}: {_span(name, built)}" for name in ("URAM", "BRAM")]
        return (
            Table(
                name=self.name,
                title="HyScale-GNN Table IV: (n, m) = (8, 2048) on a U250, percent of the board",
                columns=tuple(QUOTED),
                rows=tuple(rows),
                notes=(
                    "the paper has one row and does not say which graph and model its design was "
                    "made for: of six workloads stands the one that takes most, since one design "
                    f"trains all. Least and most: {'; '.join(spans)}",
                    "nor does it say whether n and m are one kernel's or the sum of four dies': "
                    "one kernel's are counted",
                    "LUTs and DSPs are HP-GNN's Equations 10 and 11 with its script's constants, "
                    "which were made on such designs: they agree because they are the authors' own",
                    "URAM and BRAM are those that this project's generated kernels declare, whose "
                    "sums of a layer stay in UltraRAM as far as it goes and whose W, rows and "
                    "network are in block RAM; the paper does not say what it keeps where",
                ),
                contradictions=tuple(found),
            ),
        )


def _share_of(name: str, built: Built) -> float:
    return built.shares()[name]


def _span(name: str, built: Sequence[tuple[str, Built]]) -> str:
    shares = [each.shares()[name] for _, each in built]
    return f"{min(shares):.0f} to {max(shares):.0f} %"
