"""The headline claims of the four papers, each judged by the cells of the tables that compute it.

Quoted here are the claims' words, and the numbers that no table quotes. Everything else is read
from the studies: our numbers, what was fitted on them, and what would have to be otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gnnbench.constants import Bound
from gnnbench.hookspecs import hookimpl
from gnnbench.records import Cell, Contradiction, Table, TableRow
from gnnbench.reproduce.agreement import CLOSE, find_range
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.studies.hongtu.headlines import Headlines as HongTuHeadlines
from gnnbench_plugins.studies.hpgnn.optimisations import Table6 as HpgnnTable6
from gnnbench_plugins.studies.hpgnn.platforms import Table7 as HpgnnTable7
from gnnbench_plugins.studies.hyscale.figures import Figure10 as HyScaleFigure10
from gnnbench_plugins.studies.hyscale.tables import Table6 as HyScaleTable6
from gnnbench_plugins.studies.mixgcn.accelerators import Figure12 as MixGCNFigure12
from gnnbench_plugins.studies.mixgcn.tables import Table4 as MixGCNTable4
from gnnbench_plugins.studies.mixgcn.throughput import Figure7 as MixGCNFigure7

#: A lead has vanished if it keeps at most this share of the claimed one, and is below ``NO_LEAD``.
VANISHED: Bound[float] = 0.25
#: A claimed ratio up to this is no lead: both are as fast.
NO_LEAD: Bound[float] = 1.25
#: One, in percent.
PERCENT: Bound[float] = 100.0
Tables = Sequence[Table]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in a paper's ``words``, with the study that computes it.

    ``pick`` finds the claim's cells in the study's tables: a value, and what the paper has. None
    says that the study has nothing for it; ``absent`` is then the name of the table left out.
    ``about`` begins the study's contradictions that tell what would have to be otherwise.
    """

    paper: str
    words: str
    study: type[Reproduction]
    pick: Callable[[Tables], Sequence[Cell]] | None = None
    about: str = ""
    absent: str = ""


# --------------------------------------------------------------------------- found in tables


def pick_row(label: str, *columns: str) -> Callable[[Tables], Sequence[Cell]]:
    """Return a function that finds the cells of a row, in some columns or in all."""

    def pick(tables: Tables) -> Sequence[Cell]:
        found = [
            cell
            for table in tables
            for row in table.rows
            if row.label == label
            for column, cell in zip(table.columns, row.cells, strict=True)
            if (not columns or column in columns) and holds_claim(cell)
        ]
        if not found:
            raise LookupError(f"no table has a row {label!r} with a number of the paper")
        return found

    return pick


def pick_column(title: str, number: int = 0) -> Callable[[Tables], Sequence[Cell]]:
    """Return a function that finds the cells of a column of one of the tables."""

    def pick(tables: Tables) -> Sequence[Cell]:
        table = tables[number]
        place = table.columns.index(title)
        return [cell for row in table.rows if holds_claim(cell := row.cells[place])]

    return pick


def pick_most(pick: Callable[[Tables], Sequence[Cell]]) -> Callable[[Tables], Sequence[Cell]]:
    """Return a function that finds the largest of our numbers, beside the paper's largest."""

    def most(tables: Tables) -> Sequence[Cell]:
        cells = pick(tables)
        first = max(cells, key=lambda cell: cell.value or 0.0)
        quoted = [cell.quoted for cell in cells if cell.quoted is not None]
        return [replace(first, quoted=max(quoted), uncounted="")]

    return most


def pick_speed_up(
    slow: Sequence[str], fast: Sequence[str], quoted: float
) -> Callable[[Tables], Sequence[Cell]]:
    """Return a function that finds the largest ratio of two rows of epochs, of several pairs.

    A constant that was fitted on either epoch was fitted on the ratio.
    """

    def pick(tables: Tables) -> Sequence[Cell]:
        rows = {row.label: row.cells for table in tables for row in table.rows}
        ratios = [
            Cell(one.value / other.value, "x", quoted=quoted, fitted_on=other.fitted_on)
            for pair in zip(slow, fast, strict=True)
            for one, other in zip(*(rows[label] for label in pair), strict=True)
            if one.value and other.value and one.unit == other.unit == "s"
        ]
        return [max(ratios, key=lambda cell: cell.value or 0.0)]

    return pick


def pick_most_over(labels: Sequence[str], quoted: float) -> Callable[[Tables], Sequence[Cell]]:
    """Return a function that finds the largest number of some rows, beside a quoted one."""

    def pick(tables: Tables) -> Sequence[Cell]:
        cells = [
            cell
            for table in tables
            for row in table.rows
            if row.label in labels
            for cell in row.cells
            if cell.value is not None
        ]
        return [replace(max(cells, key=lambda cell: cell.value or 0.0), quoted=quoted)]

    return pick


def holds_claim(cell: Cell) -> bool:
    """Whether a cell has a number beside a paper's number or range."""
    return cell.value is not None and (cell.quoted is not None or find_range(cell) is not None)


CLAIMS = (
    Claim(
        "HongTu", "over DistGNN on 16 CPU nodes: speedups ranging from 7.8x to 20.2x",
        HongTuHeadlines, pick_row("DistGNN's epoch over HongTu's, 16 nodes"),
    ),
    Claim(
        "HongTu", "small graphs: performance comparable to existing GPU-based systems (DGL)",
        HongTuHeadlines, pick_row("HongTu-IM's epoch over DGL's, one GPU"),
    ),
    Claim(
        "HongTu", "small graphs: performance comparable to existing GPU-based systems (Sancus)",
        HongTuHeadlines, pick_row("HongTu-IM's epoch over Sancus's, 4 GPUs"),
    ),
    Claim(
        "HongTu", "reducing host-GPU data communication by 25%-71%", HongTuHeadlines,
        pick_row("bytes between host and GPUs that deduplication saves, 2-layer GCN"),
    ),
    Claim(
        "HP-GNN", "55.67x speedup on the average over CPU-only", HpgnnTable7,
        pick_row("geometric mean", "CPU-FPGA over CPU"), "CPU-FPGA over CPU",
    ),
    Claim(
        "HP-GNN", "2.17x speedup on the average over CPU-GPU", HpgnnTable7,
        pick_row("geometric mean", "CPU-FPGA over CPU-GPU"), "CPU-FPGA over CPU-GPU",
    ),
    Claim(
        "HP-GNN", "reuse and renaming: up to 57 % more throughput", HpgnnTable6,
        pick_row("at most"), "what both earn",
    ),
    Claim(
        "HP-GNN", "up to 4.45x speedup over the state of the art", HpgnnTable7,
        absent="hpgnn-table8",
    ),
    Claim(
        "HyScale-GNN", "CPU-GPU: up to 2.08x speedup over a multi-GPU baseline", HyScaleFigure10,
        pick_row("up to", "CPU-GPU over baseline"), "CPU-GPU over the multi-GPU",
    ),
    Claim(
        "HyScale-GNN", "CPU-FPGA: up to 12.6x speedup over a multi-GPU baseline", HyScaleFigure10,
        pick_row("up to", "CPU-FPGA over baseline"), "CPU-FPGA over the multi-GPU",
    ),
    Claim(
        "HyScale-GNN", "CPU-FPGA over CPU-GPU: 5x-6x", HyScaleFigure10,
        pick_column("CPU-FPGA over CPU-GPU"), "CPU-FPGA over CPU-GPU",
    ),
    Claim(
        "HyScale-GNN", "over P3 and DistDGL on many nodes: up to 5.27x speedup", HyScaleTable6,
        pick_speed_up(
            ("P3", "DistDGLv2"), ("this work, as P3", "this work, as DistDGLv2"), 5.27
        ),
    ),
    Claim(
        "MixGCN", "outperforming state-of-the-art baselines by 10.4x", MixGCNFigure7,
        pick_row("MixGCN-CPU over CAGNET"), "MixGCN-CPU over CAGNET",
    ),
    Claim(
        "MixGCN", "MixGCN-SPU over MixGCN-CPU: an additional speedup of up to 3.8x", MixGCNFigure7,
        pick_row("MixGCN-SPU over MixGCN-CPU"), "MixGCN-SPU over MixGCN-CPU",
    ),
    Claim(
        "MixGCN", "its accelerator over existing ones: up to a 3.4x speedup", MixGCNFigure12,
        pick_most_over(("SPU over HyGCN", "SPU over AWB-GCN"), 3.4),
    ),
    Claim(
        "MixGCN", "its accelerator over HyGCN: 1.32x to 1.80x", MixGCNFigure12,
        pick_row("SPU's lead over HyGCN"), "SPU over HyGCN",
    ),
    Claim(
        "MixGCN", "its accelerator over AWB-GCN: 1.05x to 1.66x", MixGCNFigure12,
        pick_row("SPU's lead over AWB-GCN"), "SPU over AWB-GCN",
    ),
    Claim(
        "MixGCN", "its accelerator over a CPU: 3.77x to 21.6x", MixGCNFigure12,
        pick_row("SPU's lead over CPU"), "SPU over CPU",
    ),
    Claim(
        "MixGCN", "node reordering: a throughput improvement of up to 1.18x", MixGCNTable4,
        pick_most(pick_column("earned", 1)),
    ),
)  # fmt: skip

# --------------------------------------------------------------------------- judged


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judged claim: the verdict is ``"yes"``, ``"no"``, ``"no test"`` or ``"not judged"``."""

    claimed: str
    ours: str
    verdict: str
    why: str


def judge(claim: Claim, tables: Tables) -> Judgement:
    """Return how a claim comes out by the tables of its study."""
    if claim.pick is None:
        reason = next(each.reason for each in claim.study.left_out if each.name == claim.absent)
        return Judgement("", "", "not judged", f"{claim.absent}: {reason}")
    cells = claim.pick(tables)
    unit = cells[0].unit
    spans = [span for cell in cells if (span := find_range(cell)) is not None]
    claimed = (min(low for low, _ in spans), max(high for _, high in spans))
    values = [cell.value for cell in cells if cell.value is not None]
    ours = (min(values), max(values))
    shown = (_show(claimed, unit), _show(ours, unit))
    fits = dict.fromkeys(name for cell in cells for name in cell.fitted_on)
    if fits:
        return Judgement(*shown, "no test", f"fitted on what it is made of: {', '.join(fits)}")
    misses = [miss for cell in cells if (miss := _miss(cell, unit))]
    if not misses:
        return Judgement(*shown, "yes", "")
    nearest = find_remedy(claim, tables)
    counted = f"{len(misses)} of {len(cells)} numbers are off" if len(cells) > 1 else ""
    told = "; ".join(each for each in (misses[0], counted, nearest) if each)
    return Judgement(*shown, "no", told)


def _miss(cell: Cell, unit: str) -> str:
    """Say how a number misses the paper's number or range; empty if it is within ``CLOSE``.

    A lead is judged by what exceeds 1, so that a lead that vanishes does not come near.
    """
    span = find_range(cell)
    if span is None or cell.value is None:
        return ""
    nearest = min(max(cell.value, span[0]), span[1])
    lead = nearest - 1.0 if unit == "x" else nearest
    ours = cell.value - 1.0 if unit == "x" else cell.value
    if unit == "x" and nearest <= NO_LEAD:
        lead, ours = nearest, cell.value
    elif ours <= VANISHED * lead and ours <= (NO_LEAD - 1.0) * (1.0 if unit == "x" else PERCENT):
        return f"the lead vanishes: {_show_one(cell.value, unit)} for {_show_one(nearest, unit)}"
    if abs(ours / lead - 1.0) <= CLOSE:
        return ""
    return f"{_show_one(cell.value, unit)} for {_show_one(nearest, unit)}"


def find_remedy(claim: Claim, tables: Tables) -> str:
    """Return the assumption that would have to change least, where the study says it."""
    every: Iterable[Contradiction] = (each for table in tables for each in table.contradictions)
    about = [each for each in every if claim.about and each.what.startswith(claim.about)]
    return f"at the least, {about[0].remedy} ({about[0].what})" if about else ""


def _show(span: tuple[float, float], unit: str) -> str:
    low, high = (_show_one(end, unit) for end in span)
    return low if low == high else f"{low} to {high}"


def _show_one(value: float, unit: str) -> str:
    return f"{value:,.3g}x" if unit == "x" and value < 1000 else f"{value:,.0f} {unit}".strip()


class Headlines(Reproduction):
    """The headline claims of the four papers."""

    name: ClassVar[str] = "headlines"
    summary: ClassVar[str] = "the headline claims of the four papers: claimed, ours, and why"

    def run(self) -> tuple[Table, ...]:
        studies: Mapping[type[Reproduction], Tables] = {
            study: study().run() if any(c.pick for c in CLAIMS if c.study is study) else ()
            for study in dict.fromkeys(claim.study for claim in CLAIMS)
        }
        return (tabulate([(claim, judge(claim, studies[claim.study])) for claim in CLAIMS]),)


def tabulate(judged: Sequence[tuple[Claim, Judgement]]) -> Table:
    """Return the table of judged claims, with the reasons below it."""
    agreed = sum(found.verdict == "yes" for _, found in judged)
    asked = sum(found.verdict in ("yes", "no") for _, found in judged)
    return Table(
        name=Headlines.name,
        title=f"Headline claims of the four papers: {agreed} of {asked} agree",
        columns=("claimed", "ours", "agrees"),
        rows=tuple(
            TableRow(
                f"{claim.paper}: {claim.words}",
                (
                    Cell(provenance="quoted", text=found.claimed or "-"),
                    Cell(text=found.ours or "-"),
                    Cell(text=found.verdict),
                ),
            )
            for claim, found in judged
        ),
        notes=(
            f"a claim agrees if each of its numbers is within {100 * CLOSE:.0f} %; a lead is "
            f"judged by what exceeds 1, and percent of a lead are what exceeds 1. Our numbers are "
            f"those of the tables, by `gnnbench reproduce`: "
            f"{', '.join(dict.fromkeys(claim.study.name for claim, _ in judged))}",
            *(
                f"{found.verdict}, {claim.paper}, {claim.words}: {found.why}"
                for claim, found in judged
                if found.why
            ),
        ),
    )


@hookimpl
def gnnbench_reproduction() -> list[type[Reproduction]]:
    return [Headlines]
