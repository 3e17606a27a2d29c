"""HongTu's Figure 9 with what sections 7.3 to 7.5 say of it, and its Figure 11.

The figures are drawings without numbers: the text has ranges of shares, savings and speed-ups, and
Tables 7 and 9 have some of the times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean
from typing import ClassVar

from gnnbench.constants import Bound
from gnnbench.records import Cell, Table, TableRow
from gnnbench.sensitivity import Quantity
from gnnbench.studies import Reproduction
from gnnbench_plugins.studies.hongtu.assumptions import explain, share_case
from gnnbench_plugins.studies.hongtu.quoted import (
    CPU_SHARE,
    GAT_GPU,
    GAT_LINKS,
    GAT_OVER_GCN,
    GCN_GPU,
    GCN_LESS,
    GCN_LINKS,
    LARGE,
    LAYERS,
    P2P_SAVES,
    PARTITIONS,
    RU_SAVES,
    SCALING,
    SPEEDUPS,
    TABLE_7,
    TABLE_9,
    PaperGraph,
    Range,
    middle,
    show_range,
)
from gnnbench_plugins.studies.hongtu.server import (
    HOST_STAGE,
    LINK_STAGES,
    Case,
    Method,
    Server,
    fit_notes,
    fitted_server,
)

MODELS = ("gcn", "gat")
STEPS: tuple[Method, ...] = ("baseline", "+P2P", "+RU")
GPU_STAGES = ("computation", "all-reduce")
#: Savings and shares that are off by more than so much of the nearer end are explained.
OFF: Bound[float] = 0.25


def is_off(value: float, ends: Range) -> bool:
    """Whether a value is far from a range."""
    nearest = min(max(value, ends[0]), ends[1])
    return abs(value - nearest) > OFF * nearest


def nearest_end(value: float, ends: Range) -> float:
    return min(ends, key=lambda end: abs(end - value))


# --------------------------------------------------------------------------- Figure 9


class Figure9(Reproduction):
    """What sharing rows between GPUs and reusing them earn."""

    name: ClassVar[str] = "hongtu-figure9"
    summary: ClassVar[str] = "epochs of the baseline, +P2P and +RU, GCN and GAT of 2 to 4 layers"

    def run(self) -> tuple[Table, ...]:
        server = fitted_server()
        rows, doubts = [], []
        for model in MODELS:
            for place, graph in enumerate(LARGE):
                ends = SPEEDUPS[model][place]
                for layers in LAYERS:
                    times = [server.epoch_s(Case(graph, model, layers, step)) for step in STEPS]
                    faster = times[0] / times[-1]
                    cells = [
                        Cell(seconds, "s", quoted=find_time(graph, model, layers, step))
                        for step, seconds in zip(STEPS, times, strict=True)
                    ]
                    cells.append(Cell(faster, "x", quoted_text=show_range(ends)))
                    rows.append(TableRow(f"{model.upper()} {graph.label} {layers}", tuple(cells)))
                    if is_off(faster, ends):
                        doubts.append(_speed_up(graph, model, layers, nearest_end(faster, ends)))
        return (
            Table(
                name=self.name,
                title="HongTu Figure 9: seconds of an epoch without deduplication, with rows "
                "shared between GPUs, and with rows reused as well",
                columns=("baseline", "+P2P", "+RU", "faster"),
                rows=tuple(rows),
                notes=(
                    *fit_notes(),
                    "the figure is a drawing: +RU is quoted from Table 7, the baseline of 2-layer "
                    "GCN from Table 9, and the speed-ups are section 7.5's",
                ),
                contradictions=explain(doubts),
            ),
        )


def find_time(graph: PaperGraph, model: str, layers: int, step: Method) -> float | None:
    """The paper's seconds for a bar, where it prints them elsewhere."""
    if step == "+RU":
        return TABLE_7[layers, graph.label][1 if model == "gcn" else 3]
    if step == "baseline" and (model, layers) == ("gcn", 2):
        return TABLE_9["HongTu w/o CD"][LARGE.index(graph)] / 100
    return None


def _speed_up(graph: PaperGraph, model: str, layers: int, quoted: float) -> Quantity[Server]:
    case, plain = Case(graph, model, layers), Case(graph, model, layers, "baseline")
    return Quantity(
        f"the speed-up of {case}",
        lambda server: server.epoch_s(plain) / server.epoch_s(case),
        quoted,
        "x",
    )


# --------------------------------------------------------------------------- sections 7.3 and 7.4


class Breakdown(Reproduction):
    """Where epochs go, and what deduplication saves of them."""

    name: ClassVar[str] = "hongtu-breakdown"
    summary: ClassVar[str] = "shares of GPU, links and CPU (section 7.4), time saved (section 7.3)"

    def run(self) -> tuple[Table, ...]:
        return self._tabulate_shares(), self._tabulate_savings(), tabulate_ratios()

    def _tabulate_shares(self) -> Table:
        server = fitted_server()
        rows, doubts = [], []
        for model in MODELS:
            for place, graph in enumerate(LARGE):
                gpu: Range = GCN_GPU if model == "gcn" else (GAT_GPU[place], GAT_GPU[place])
                parts = (
                    ("the GPUs' share", gpu, GPU_STAGES),
                    ("the links' share", GCN_LINKS if model == "gcn" else GAT_LINKS, LINK_STAGES),
                    ("the CPU's share", CPU_SHARE, (HOST_STAGE,)),
                )
                cells = []
                for what, ends, stages in parts:
                    value = mean(
                        share_case(Case(graph, model, layers), what, 1.0, *stages).predict(server)
                        for layers in LAYERS
                    )
                    cells.append(_percent(value, ends))
                    if is_off(value, ends):
                        quoted = nearest_end(value, ends)
                        doubts.append(share_case(Case(graph, model, 3), what, quoted, *stages))
                rows.append(TableRow(f"{model.upper()} {graph.label}", tuple(cells)))
        return Table(
            name=self.name,
            title="HongTu section 7.4: where an epoch goes, mean of 2, 3 and 4 layers",
            columns=("GPU", "links", "CPU"),
            rows=tuple(rows),
            notes=(
                *fit_notes(),
                "GCN's CPU column is fitted, on average; section 7.4 gives the CPU 8 to 30 % of "
                "either model. Links are those of the host and among GPUs, and the CPU adds "
                "gradients, clears them and computes the loss",
            ),
            contradictions=explain(doubts),
        )

    def _tabulate_savings(self) -> Table:
        server = fitted_server()
        rows, doubts = [], []
        for label, ranges, (before, after) in (
            ("+P2P", P2P_SAVES, STEPS[:2]),
            ("+RU", RU_SAVES, STEPS[1:]),
        ):
            for graph, ends in zip(LARGE, ranges, strict=True):
                cells = []
                for model in MODELS:
                    for layers in LAYERS:
                        saving = _saving(graph, model, layers, before, after)
                        value = saving(server)
                        cells.append(_percent(value, ends))
                        if is_off(value, ends) and layers == LAYERS[0]:
                            doubts.append(
                                Quantity(
                                    f"what {label} saves of transfers, {Case(graph, model)}",
                                    saving,
                                    nearest_end(value, ends),
                                    "%",
                                )
                            )
                rows.append(TableRow(f"{label} {graph.label}", tuple(cells)))
        return Table(
            name=self.name,
            title="HongTu section 7.3: time of communication saved by sharing rows (of the "
            "baseline's), and by reusing them (of what is then left)",
            columns=tuple(f"{model.upper()} {layers}" for model in MODELS for layers in LAYERS),
            rows=tuple(rows),
            notes=(
                "section 7.3 has one range a graph for both models and all depths; it does not say "
                "of what the further 9 to 42 % are, taken: of what sharing leaves",
                "nothing was fitted on these cells, and the fitted constant does not touch them",
            ),
            contradictions=explain(doubts),
        )


def tabulate_ratios() -> Table:
    """GAT beside GCN, mean of all depths."""
    server = fitted_server()
    rows, doubts = [], []
    for graph in LARGE:
        asked = (
            (_gat_over_gcn(graph), (GAT_OVER_GCN, GAT_OVER_GCN)),
            (_gcn_less(graph), GCN_LESS),
        )
        ratio, less = (quantity.predict(server) for quantity, _ in asked)
        cells = (Cell(ratio, "x", quoted=GAT_OVER_GCN), _percent(less, GCN_LESS))
        rows.append(TableRow(graph.label, cells))
        for value, (quantity, ends) in zip((ratio, less), asked, strict=True):
            if is_off(value, ends):
                doubts.append(replace(quantity, quoted=nearest_end(value, ends)))
    return Table(
        name=Breakdown.name,
        title="HongTu section 7.4: GAT beside GCN",
        columns=("GPU, GAT over GCN", "links, GCN less"),
        rows=tuple(rows),
        notes=("the paper has one number for the first, of all three graphs",),
        contradictions=explain(doubts),
    )


def _mean_seconds(server: Server, graph: PaperGraph, model: str, stages: Sequence[str]) -> float:
    """What goes to some stages, mean of all depths."""
    return mean(seconds(server, Case(graph, model, layers), stages) for layers in LAYERS)


def _gat_over_gcn(graph: PaperGraph) -> Quantity[Server]:
    """Time of GAT's GPU computation over GCN's."""

    def predict(server: Server) -> float:
        gat, gcn = (_mean_seconds(server, graph, model, GPU_STAGES) for model in ("gat", "gcn"))
        return gat / gcn

    return Quantity(f"GAT's GPU computation over GCN's, {graph.name}", predict, unit="x")


def _gcn_less(graph: PaperGraph) -> Quantity[Server]:
    """How much less time over links GCN takes than GAT, percent."""

    def predict(server: Server) -> float:
        gat, gcn = (_mean_seconds(server, graph, model, LINK_STAGES) for model in ("gat", "gcn"))
        return 100 * (1 - gcn / gat)

    return Quantity(f"what GCN's links save of GAT's, {graph.name}", predict, unit="%")


def seconds(server: Server, case: Case, stages: Sequence[str]) -> float:
    """What goes to some stages."""
    found = server.stages_s(case)
    return sum(each for stage, each in found.items() if stage in stages)


def _percent(value: float, ends: Range) -> Cell:
    """A share beside the paper's, or beside its range."""
    if ends[0] == ends[1]:
        return Cell(value, "%", quoted=ends[0])
    return Cell(value, "%", quoted_text=show_range(ends))


def _saving(
    graph: PaperGraph, model: str, layers: int, before: Method, after: Method
) -> Callable[[Server], float]:
    """Percent of the time over links."""

    def predict(server: Server) -> float:
        one, other = (
            server.transfer_s(Case(graph, model, layers, step)) for step in (before, after)
        )
        return 100 * (1 - other / one)

    return predict


# --------------------------------------------------------------------------- Figure 11


class Figure11(Reproduction):
    """Fewer GPUs."""

    name: ClassVar[str] = "hongtu-figure11"
    summary: ClassVar[str] = "speed-up of 1 to 4 GPUs, GCN and GAT on the three large graphs"

    def run(self) -> tuple[Table, ...]:
        server = fitted_server()
        counts = range(1, PARTITIONS + 1)
        rows, doubts = [], []
        for model in MODELS:
            ends = SCALING[model]
            for graph in LARGE:
                times = [server.epoch_s(Case(graph, model, gpus=gpus)) for gpus in counts]
                quoted = ("",) * (len(times) - 1) + (show_range(ends),)
                cells = tuple(
                    Cell(times[0] / each, "x", quoted_text=text)
                    for each, text in zip(times, quoted, strict=True)
                )
                rows.append(TableRow(f"{model.upper()} {graph.label}", cells))
                if is_off(times[0] / times[-1], ends):
                    doubts.append(_scaling(graph, model, middle(ends)))
        return (
            Table(
                name=self.name,
                title="HongTu Figure 11: speed-up over one GPU, by GPUs, 2 layers",
                columns=tuple(map(str, counts)),
                rows=tuple(rows),
                notes=(
                    *fit_notes()[:1],
                    "the figure is a drawing; section 7.6 has ranges for four GPUs alone, and does "
                    "not say of which depth. Chunks are as large however many GPUs take turns with "
                    "them; a pair of chunks shares as many rows, and as large a share stays",
                    "with one and two GPUs rows lie at all sockets (section 7.6), so that three of "
                    "four cross between sockets, over a link that each has for itself; with more, "
                    "two GPUs share it",
                ),
                contradictions=explain(doubts),
                axis="GPUs",
            ),
        )


def _scaling(graph: PaperGraph, model: str, quoted: float) -> Quantity[Server]:
    one, four = Case(graph, model, gpus=1), Case(graph, model)
    return Quantity(
        f"the speed-up of {four} over one GPU",
        lambda server: server.epoch_s(one) / server.epoch_s(four),
        quoted,
        "x",
    )


BREAKDOWNS: tuple[type[Reproduction], ...] = (Figure9, Breakdown, Figure11)
