"""HongTu's Figure 9 with what sections 7.3 to 7.5 say of it, and its Figure 11.

The figures are drawings without numbers: the text has ranges of shares, savings and speed-ups, and
Tables 7 and 9 have some of the times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import ClassVar

from gnnbench.constants import Bound
from gnnbench.records import Cell, Table, TableRow
from gnnbench.reproduce.sensitivity import Quantity
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies import find_fitted
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
    show_growth,
    show_range,
)
from gnnbench_plugins.studies.hongtu.server import (
    HOST_STAGE,
    LINK_STAGES,
    Case,
    Method,
    Server,
    fitted_server,
    note_additions,
    note_rates,
)

MODELS = ("gcn", "gat")
STEPS: tuple[Method, ...] = ("baseline", "+P2P", "+RU")
GPU_STAGES = ("computation", "all-reduce")
#: Where the epochs of Figure 9's steps count.
REPEATED: Mapping[Method, str] = {
    "baseline": "counted in hongtu-table9",
    "+RU": "counted in hongtu-table7",
}
#: Savings and shares that are off by more than so much of the nearer end are explained.
OFF: Bound[float] = 0.25


def is_off(value: float, ends: Range) -> bool:
    """Return whether a value is far from a range."""
    nearest = min(max(value, ends[0]), ends[1])
    return abs(value - nearest) > OFF * nearest


def nearest_end(value: float, ends: Range) -> float:
    """Return the end of a range that is nearer to the value."""
    return min(ends, key=lambda end: abs(end - value))


# --------------------------------------------------------------------------- Figure 9


class Figure9(Reproduction):
    """The gains of sharing rows between GPUs and of reusing them."""

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
                        Cell(
                            seconds, "s", quoted=find_time(graph, model, layers, step),
                            uncounted=REPEATED.get(step, ""),
                        )
                        for step, seconds in zip(STEPS, times, strict=True)
                    ]  # fmt: skip
                    cells.append(Cell(100 * (faster - 1), "%", quoted_text=show_growth(ends)))
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
                    *note_rates(),
                    "the figure is a drawing: +RU is quoted from Table 7, the baseline of 2-layer "
                    "GCN from Table 9, and the speed-ups are section 7.5's. What is compared of "
                    "these is what exceeds 1",
                ),
                contradictions=explain(doubts),
            ),
        )


def find_time(graph: PaperGraph, model: str, layers: int, step: Method) -> float | None:
    """Return the paper's seconds for a bar, where it prints them elsewhere."""
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
    """The shares of an epoch, and the time that deduplication saves."""

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
                        server.share_percent(Case(graph, model, layers), *stages)
                        for layers in LAYERS
                    )
                    fits = find_fitted(f"hongtu-breakdown ({what} of {model.upper()})")
                    cells.append(_percent(value, ends, fits))
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
                *note_rates(),
                "section 7.4 gives the CPU 8 to 30 % of either model. Links are those of the host "
                "and among GPUs; the CPU adds gradients, clears them and computes the loss",
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
            ),
            contradictions=explain(doubts),
        )


def tabulate_ratios() -> Table:
    """Return the table of GAT beside GCN, mean of all depths."""
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


def _spend_s(server: Server, graph: PaperGraph, model: str, stages: Sequence[str]) -> float:
    """Return the seconds that go to some stages, mean of all depths."""
    return mean(server.spend_s(Case(graph, model, layers), *stages) for layers in LAYERS)


def _gat_over_gcn(graph: PaperGraph) -> Quantity[Server]:
    """Return the time of GAT's GPU computation over GCN's."""

    def predict(server: Server) -> float:
        gat, gcn = (_spend_s(server, graph, model, GPU_STAGES) for model in ("gat", "gcn"))
        return gat / gcn

    return Quantity(f"GAT's GPU computation over GCN's, {graph.name}", predict, unit="x")


def _gcn_less(graph: PaperGraph) -> Quantity[Server]:
    """Return how much less time over links GCN takes than GAT, percent."""

    def predict(server: Server) -> float:
        gat, gcn = (_spend_s(server, graph, model, LINK_STAGES) for model in ("gat", "gcn"))
        return 100 * (1 - gcn / gat)

    return Quantity(f"what GCN's links save of GAT's, {graph.name}", predict, unit="%")


def _percent(value: float, ends: Range, fitted_on: tuple[str, ...] = ()) -> Cell:
    """Return a share beside the paper's, or beside its range."""
    if ends[0] == ends[1]:
        return Cell(value, "%", quoted=ends[0], fitted_on=fitted_on)
    return Cell(value, "%", quoted_text=show_range(ends), fitted_on=fitted_on)


def _saving(
    graph: PaperGraph, model: str, layers: int, before: Method, after: Method
) -> Callable[[Server], float]:
    """Return the percentage that a method saves of the time over links, as a function."""

    def predict(server: Server) -> float:
        one, other = (
            server.spend_s(Case(graph, model, layers, step), *LINK_STAGES)
            for step in (before, after)
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
                    note_additions(),
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
