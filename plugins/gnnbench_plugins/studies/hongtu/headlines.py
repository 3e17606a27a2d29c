"""The claims of HongTu's abstract and section 7.2, judged by the cells of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar

from gnnbench.constants import Constant
from gnnbench.records import Cell, Table, TableRow, count_moved
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.hongtu.quoted import LARGE, Range
from gnnbench_plugins.studies.hongtu.server import Case, Method, foresee_case
from gnnbench_plugins.studies.hongtu.tables import Table5, Table6, Table7

OVER_DISTGNN: Annotated[Range, Constant("x", "quoted", "HongTu, abstract")] = (7.8, 20.2)
SLOWER_THAN_DGL: Annotated[Range, Constant("x", "quoted", "HongTu, section 7.2")] = (1.3, 3.8)
SLOWER_THAN_IN_MEMORY: Annotated[Range, Constant("x", "quoted", "HongTu, section 7.2")] = (1.2, 1.9)
LESS_COMMUNICATION: Annotated[Range, Constant("%", "quoted", "HongTu, abstract")] = (25.0, 71.0)
Pairs = Iterable[tuple[Cell, Cell]]


def pair_systems(rows: Sequence[TableRow], one: str, other: str) -> Iterator[tuple[Cell, Cell]]:
    """Yield the cells of two systems at equal depth, of rows labelled by layers and system."""
    by_label = {tuple(row.label.split(" ", 1)): row.cells for row in rows}
    for (depth, system), cells in by_label.items():
        if system == one:
            yield from zip(cells, by_label[depth, other], strict=True)


def judge_ratios(label: str, pairs: Pairs, stated: Range | None = None) -> TableRow:
    """Return the least and the largest ratio of pairs of epochs that ran in the paper and here.

    Without a ``stated`` range the paper's ends follow from its own cells. A pair is left out if a
    constant was fitted on one of its cells, or a reading chosen in view of one. If that is so of
    all pairs, they stand here, and count as fitted.
    """
    theirs: list[float] = []
    ours: list[float] = []
    touched: list[float] = []
    fits: dict[str, None] = {}
    for one, other in pairs:
        if one.value and other.value and one.quoted and other.quoted:
            theirs.append(one.quoted / other.quoted)
            fitted = (*one.fitted_on, *other.fitted_on)
            (touched if fitted else ours).append(one.value / other.value)
            fits.update(dict.fromkeys(fitted))
    low, high = stated or (min(theirs), max(theirs))
    found, names = (ours, ()) if ours else (touched, tuple(fits))
    ends = ((min(found), low), (max(found), high))
    return TableRow(
        label, tuple(Cell(value, "x", quoted=quoted, fitted_on=names) for value, quoted in ends)
    )


def count_host_bytes(method: Method, case: Case) -> float:
    """Return the bytes over the host's links in an epoch, by the steps on its critical path."""
    path = foresee_case(Case(case.graph, case.model, case.layers, method)).path
    crossing = ("host to device", "device to host")
    return sum(
        float(count_moved(step.work)) * step.times for step in path if step.stage in crossing
    )


def judge_communication() -> TableRow:
    """Return the least and the largest share of bytes that deduplication saves."""
    saved = [
        100 * (1 - count_host_bytes("+RU", case) / count_host_bytes("baseline", case))
        for case in map(Case, LARGE)
    ]
    low, high = LESS_COMMUNICATION
    return TableRow(
        "bytes between host and GPUs that deduplication saves, 2-layer GCN",
        (Cell(min(saved), "%", quoted=low), Cell(max(saved), "%", quoted=high)),
    )


class Headlines(Reproduction):
    """The headline claims of HongTu."""

    name: ClassVar[str] = "hongtu-headlines"
    summary: ClassVar[str] = "over DistGNN, comparable on small graphs, less communication"

    def run(self) -> tuple[Table, ...]:
        small, several, large = (each.predict()[0] for each in (Table5, Table6, Table7))
        over_distgnn = [(row.cells[at], row.cells[at + 1]) for row in large for at in (0, 2)]
        rows = (
            judge_ratios("DistGNN's epoch over HongTu's, 16 nodes", over_distgnn, OVER_DISTGNN),
            judge_ratios(
                "HongTu-IM's epoch over DGL's, one GPU", pair_systems(small, "HongTu-IM", "DGL")
            ),
            judge_ratios(
                "HongTu-IM's epoch over Sancus's, 4 GPUs",
                pair_systems(several, "HongTu-IM", "Sancus"),
            ),
            judge_ratios(
                "HongTu's epoch over DGL's, one GPU",
                pair_systems(small, "HongTu", "DGL"),
                SLOWER_THAN_DGL,
            ),
            judge_ratios(
                "HongTu's epoch over HongTu-IM's, 4 GPUs",
                pair_systems(several, "HongTu", "HongTu-IM"),
                SLOWER_THAN_IN_MEMORY,
            ),
            judge_communication(),
        )
        return (
            Table(
                name=self.name,
                title="HongTu's headlines: the least and the most of each, over the cells of "
                "Tables 5, 6 and 7",
                columns=("least", "most"),
                rows=rows,
                notes=(
                    "the abstract calls HongTu comparable on small graphs, which section 7.2 says "
                    "of HongTu-IM beside DGL and beside Sancus; the paper's ends are those of its "
                    "Tables 5 and 6 there",
                    "a ratio counts where both epochs ran in the paper and here, and no constant "
                    "was fitted on either",
                    "the paper's 25 to 71 % are of the neighbour rows of Table 8, an input here; "
                    "the bytes are all that cross the host's links in an epoch by the program: "
                    "rows, their gradients, cached aggregates and outputs",
                ),
            ),
        )
