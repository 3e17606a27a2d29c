"""HyScale-GNN's Table IV: what its design (n, m) = (8, 2048) takes of a U250."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from gnnbench.constants import Constant
from gnnbench.models import build
from gnnbench.records import Cell, Contradiction, Table, TableRow, Workload
from gnnbench.sensitivity import Assumption, Quantity, find_contradictions
from gnnbench.studies import Reproduction
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
        """Percent of the board's resources."""
        board = self.board if self.kernels > 1 else self.board.as_one_die()
        used = usage_of(self.design, board, self.batch.buffers)
        uram = board.uram_bytes / (32 * 1024)
        there = {"LUTs": board.lut, "DSPs": board.dsp, "URAM": uram, "BRAM": board.bram}
        taken = {"LUTs": used.lut, "DSPs": used.dsp, "URAM": used.uram, "BRAM": used.bram}
        return {name: 100 * self.kernels * taken[name] / there[name] for name in QUOTED}


def make_batch(graph: PaperGraph, model: str) -> Batch:
    """One trainer's mini-batch on the graph's stand-in."""
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


def _on_board(change: Callable[[Board, float], Board]) -> Callable[[Built, float], Built]:
    return lambda built, factor: replace(built, board=change(built.board, factor))


def _assumptions(built: Built) -> tuple[Assumption[Built], ...]:
    board, batch = built.board, built.batch
    return (
        Assumption(
            "rho1, LUTs a MAC",
            board.rho1,
            "",
            "HP-GNN's script",
            _on_board(lambda board, factor: replace(board, rho1=factor * board.rho1)),
        ),
        Assumption(
            "lambda1, DSPs a MAC",
            board.lambda1,
            "",
            "HP-GNN's script",
            _on_board(lambda board, factor: replace(board, lambda1=factor * board.lambda1)),
        ),
        Assumption(
            "groups of rows in the MAC array, the cycles of an addition",
            board.adder_cycles,
            "",
            "assumption of this project's board file",
            _on_board(
                lambda board, factor: replace(
                    board, adder_cycles=max(1, round(factor * board.adder_cycles))
                )
            ),
        ),
        Assumption("f^0", batch.widths[0], "", "HyScale-GNN, Table III", _scale_width),
        Assumption(
            "the vertices of a mini-batch",
            batch.vertices[0],
            "",
            "this project's stand-in",
            _scale_batch,
        ),
    )


def _quantities(label: str) -> tuple[Quantity[Built], ...]:
    def share_of(name: str) -> Callable[[Built], float]:
        return lambda built: built.shares()[name]

    return tuple(
        Quantity(f"{name} of {label}", share_of(name), quoted, "%")
        for name, quoted in QUOTED.items()
    )


class Table4(Reproduction):
    """Resources by Equations 10 and 11 of HP-GNN and by the generated kernels' memories."""

    name: ClassVar[str] = "hyscale-table4"
    summary: ClassVar[str] = "what the design (8, 2048) takes of a U250: LUTs, DSPs, URAM, BRAM"
    left_out: ClassVar[str] = (
        "HyScale-GNN Tables 1 (notation), 2 (platforms), 3 (graphs) and 5 (its peers' set-ups), "
        "Figures 1 to 7 (drawings)"
    )

    def run(self) -> tuple[Table, ...]:
        board = load_board("u250")
        rows: list[TableRow] = []
        found: list[Contradiction] = []
        dies = board.dies
        for kernels, design, what in (
            (1, DESIGN, "one kernel"),
            (dies, Design(DESIGN.n // dies, DESIGN.m // dies), f"{dies} kernels of a quarter"),
        ):
            for graph in GRAPHS:
                for model, title in MODELS.items():
                    built = Built(board, design, kernels, make_batch(graph, model))
                    label = f"{what}, {title} {graph.name}"
                    shares = built.shares()
                    rows.append(
                        TableRow(
                            label,
                            tuple(
                                Cell(shares[name], "%", quoted=quoted)
                                for name, quoted in QUOTED.items()
                            ),
                        )
                    )
                    if kernels == 1:
                        quantities = _quantities(label)
                        found += find_contradictions(
                            built, quantities, _assumptions(built), quantities
                        )
        return (
            Table(
                name=self.name,
                title="HyScale-GNN Table IV: (n, m) = (8, 2048) on a U250, percent of the board",
                columns=tuple(QUOTED),
                rows=tuple(rows),
                notes=(
                    "the paper has one row and does not say which graph and model its design was "
                    "made for, nor whether n and m are one kernel's or the sum of four dies'; "
                    "LUTs and DSPs depend on the latter alone",
                    "LUTs and DSPs are HP-GNN's Equations 10 and 11 with its script's constants, "
                    "which were made on such designs: they agree because they are the authors' own",
                    "URAM and BRAM are those that this project's generated kernels declare, whose "
                    "sums of a layer stay in UltraRAM as far as it goes and whose W, rows and "
                    "network are in block RAM; the paper does not say what it keeps where",
                ),
                contradictions=tuple(found),
            ),
        )
