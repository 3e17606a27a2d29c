"""Every combination of the five parts: planned, or the sentence why it cannot work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnbench.advice.pricing import LINK_METRICS, Pricer, find_kind, read_metric
from gnnbench.advice.questions import Question
from gnnbench.comparison.ranking import Kind
from gnnbench.comparison.request import PlannedRow
from gnnbench.datasets.partitioning import remember_partitions
from gnnbench.host.progress import doing
from gnnbench.records import PART_KINDS, RunResult


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A combination and its run, which may not fit a memory; or why it cannot work.

    ``on_front`` says that no other cell with the same work is better in time, device memory and
    traffic at once.
    """

    row: PlannedRow
    run: RunResult
    on_front: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """All combinations of a question.

    ``refusals`` counts, by sentence, the combinations that cannot work. It includes those with
    parts of different modes, which have no cell.
    """

    question: Question
    cells: tuple[Cell, ...]
    refusals: Counter[str]
    combinations: int

    @property
    def planned(self) -> tuple[Cell, ...]:
        """The cells with a plan that is done."""
        return tuple(cell for cell in self.cells if cell.run.status == "done")

    @property
    def front(self) -> tuple[Cell, ...]:
        """The cells on the front of time and memory."""
        return tuple(cell for cell in self.cells if cell.on_front)


def make_matrix(question: Question) -> Matrix:
    """Plan every combination that fits."""
    pricer = Pricer(question)
    cells: list[Cell] = []
    refusals: Counter[str] = Counter()
    combined = [
        (mode, parts) for mode in question.modes for parts in question.list_combinations(mode)
    ]
    with remember_partitions(), doing("planning combinations", len(combined)) as planning:
        for number, (mode, parts) in enumerate(combined):
            row = question.make_row(mode, parts)
            why = pricer.refuse(parts)
            run = pricer.skip(row, why) if why else pricer.plan(row)
            if run.status in ("skipped", "error"):
                refusals[run.reason] += 1
            cells.append(Cell(row, run))
            planning.advance(number + 1 - planning.done)  # a plan may have counted it
    total, mixed = count_mixed(question)
    if mixed:
        refusals["a part works for full graphs only, and another for mini-batches only."] = mixed
    return Matrix(question, mark_front(cells), refusals, total)


def count_mixed(question: Question) -> tuple[int, int]:
    """Return the number of all combinations of the parts, and of those without a common mode."""
    by_mode = [question.list_parts(mode) for mode in question.modes]
    total = 1
    for kind in PART_KINDS:
        total *= len({name for names in by_mode for name in names[kind]})
    return total, total - len(
        {parts for mode in question.modes for parts in question.list_combinations(mode)}
    )


def find_axes(run: RunResult) -> tuple[float, float, float]:
    """Return time, device memory and traffic."""
    return (
        read_metric(run, "epoch_time"),
        read_metric(run, "peak_device_bytes"),
        read_metric(run, *LINK_METRICS),
    )


def mark_front(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Mark the cells that no other cell of the same work and maths dominates.

    Among cells with equal values only the first is marked.
    """
    groups: dict[tuple[Kind | None, str], list[tuple[float, float, float]]] = {}
    for cell in cells:
        if cell.run.status == "done":
            key = (find_kind(cell.run), cell.run.other_maths)
            groups.setdefault(key, []).append(find_axes(cell.run))
    best = {key: find_front(points) for key, points in groups.items()}
    marked = []
    for cell in cells:
        on_front = False
        if cell.run.status == "done":
            left = best[find_kind(cell.run), cell.run.other_maths]
            axes = find_axes(cell.run)
            on_front = axes in left
            left.discard(axes)
        marked.append(replace(cell, on_front=on_front))
    return tuple(marked)


def find_front(
    points: Sequence[tuple[float, float, float]],
) -> set[tuple[float, float, float]]:
    """Return the points that no other point dominates in every coordinate."""
    distinct = sorted(set(points))
    front: list[tuple[float, float, float]] = []
    for point in distinct:  # in this order only an earlier one can dominate it
        if not any(all(a <= b for a, b in zip(one, point, strict=True)) for one in front):
            front.append(point)
    return set(front)
