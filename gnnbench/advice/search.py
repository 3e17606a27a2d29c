"""The search: which combinations are planned, and which settings of the best.

1. *Starts.* Every strategy that fits is planned unchanged.
2. *Parts.* Around the best combination that has not been expanded yet, all that differ from it in
   one part are planned, then those that differ in two, the most similar first. Then the next best
   is expanded. It ends when all that fit are planned, or at the limit of the effort.
3. *Settings.* For the best combinations, and the best unchanged strategy, each setting that the
   parts declare as worth trying is changed, one at a time. Better values are kept, until a round
   over all settings changes nothing.
4. *Finals.* The best of all are planned over all rounds and epochs.

In the first three steps, mini-batches are planned for a few rounds of an epoch. Rows are ranked
only among rows that sample by one law and compute the same as the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnnbench.advice.pricing import Law, Pricer, find_kind, score
from gnnbench.advice.questions import count_swaps
from gnnbench.comparison.request import PlannedRow
from gnnbench.host.progress import doing, note_steps
from gnnbench.parts import UNIFORM, list_tried, option_fields
from gnnbench.records import PART_KINDS, Graph, Mode, PartKind, Parts, RunResult

#: Stored edges of all plans of one search, and the fewest and the most plans.
PLANNED_EDGES = 50_000_000
FEWEST_PLANS, MOST_PLANS = 20, 300
#: The number of combinations that the search expands.
LEFT = 6
#: Rounds over all settings of a combination.
SWEEPS = 2


@dataclass(frozen=True, slots=True)
class Effort:
    """The numbers of combinations to plan, to tune, and to plan to the end."""

    plans: int
    tuned: int = 3
    finals: int = 6


def choose_effort(graph: Graph) -> Effort:
    """Choose less effort for a larger graph, so that a search takes seconds."""
    plans = PLANNED_EDGES // max(graph.num_edges, 1)
    if plans < MOST_PLANS:
        return Effort(max(plans, FEWEST_PLANS), tuned=1, finals=3)
    return Effort(MOST_PLANS)


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The combinations of a mode that fit.

    ``ranked`` sample by ``law`` and compute the same as the reference. ``unranked`` counts the
    others by reason, ``refusals`` the combinations that do not fit, by sentence.
    """

    mode: Mode
    law: str
    ranked: tuple[Parts, ...]
    unranked: Counter[str]
    refusals: Counter[str]


def find_space(pricer: Pricer, mode: Mode) -> Space:
    """Find the combinations that fit, and the ranked ones among them.

    Ranked ones have uniform sampling, or else the most common law.
    """
    laws: dict[Parts, Law] = {}
    refusals: Counter[str] = Counter()
    combinations = list(pricer.question.list_combinations(mode))
    with doing(f"checking which combinations fit ({mode})", len(combinations)):
        for parts in combinations:
            why = pricer.refuse(parts)
            if why:
                refusals[why] += 1
            else:
                laws[parts] = pricer.find_law(parts)
            note_steps()
    counted = Counter(law.sampling for law in laws.values() if not law.other_maths)
    main = max(counted, key=lambda law: (UNIFORM in law, counted[law]), default="")
    ranked = tuple(p for p, law in laws.items() if law == Law(main, ""))
    unranked = Counter(
        f"{law.other_maths}: other maths" if law.other_maths else f"other sampling: {law.sampling}"
        for law in laws.values()
        if law != Law(main, "")
    )
    return Space(mode, main, ranked, unranked, refusals)


#: A row that was planned.
Final = tuple[PlannedRow, RunResult]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The results of a search, planned to the end.

    They are the best first, the best unchanged strategy, and the strategies that do not fit a
    memory. ``planned`` counts dry runs.
    """

    space: Space
    finals: tuple[Final, ...]
    as_it_comes: Final | None
    too_large: tuple[Final, ...]
    planned: int


class Search:
    """A search among the combinations of a mode; see the module's docstring."""

    def __init__(self, pricer: Pricer, space: Space, effort: Effort, target: str = "time") -> None:
        self._pricer = pricer
        self._question = pricer.question
        self._space = space
        self._effort = effort
        self._target = target
        self._seen: dict[Parts, RunResult] = {}

    def run(self, extra: Sequence[PlannedRow] = ()) -> Found:
        """Search; ``extra`` rows are candidates from the start, with their own settings."""
        with doing(f"planning combinations ({self._space.mode})", self._effort.plans):
            return self._run(extra)

    def _run(self, extra: Sequence[PlannedRow]) -> Found:
        before = self._pricer.planned
        bundled = self._list_bundles()
        starts = [row.parts for row in (*extra, *bundled)]
        self._descend([parts for parts in dict.fromkeys(starts) if parts in self._space.ranked])
        best = [self._row(parts) for parts in self._order(self._seen)]
        as_they_come = [row for row in best if not row.swapped]
        promising = self._list_unlike(best)[: self._effort.tuned]
        tuned = [self._tune(row) for row in dict.fromkeys([*promising, *as_they_come[:1]])]
        finals = self._finish([*extra, *tuned, *best, *as_they_come[:1]])
        short = [(row, self._pricer.plan(row, short=True)) for row in bundled]
        whole = [(row, self._pricer.plan(row)) for row in as_they_come[:1]]
        return Found(
            self._space,
            finals,
            next((pair for pair in whole if pair[1].status == "done"), None),
            tuple(pair for pair in short if pair[1].status == "out-of-memory"),
            self._pricer.planned - before,
        )

    def _finish(self, rows: Sequence[PlannedRow]) -> tuple[Final, ...]:
        """Plan the best of some rows to the end; rows with equal results count as one."""
        unlike = self._list_unlike(sorted(rows, key=self._count_oddities))
        unlike.sort(key=lambda row: self._score(row, short=True))
        whole = [(row, self._pricer.plan(row)) for row in unlike[: self._effort.finals]]
        done = [(row, run) for row, run in whole if run.status == "done"]
        kinds = Counter(find_kind(run) for _, run in done)
        main = max(kinds, key=lambda kind: kinds[kind], default=None)
        finals = [pair for pair in done if find_kind(pair[1]) == main]
        return tuple(sorted(finals, key=lambda pair: score(pair[1], self._target)))

    def _count_oddities(self, row: PlannedRow) -> tuple[int, int, int]:
        """Count how a row differs from an unchanged strategy: settings, swaps, systems."""
        base = self._question.registry.strategies_by_name.get(row.strategy)
        swaps = 5 if base is None else count_swaps(base.bundles[row.mode], row.parts)
        return len(row.options), swaps, len(self._question.list_systems(row.parts))

    def _list_unlike(self, rows: Sequence[PlannedRow]) -> list[PlannedRow]:
        """Return only rows that run, and of rows with equal results only the first."""
        unlike: dict[tuple[float, ...], PlannedRow] = {}
        for row in rows:
            unlike.setdefault(self._score(row, short=True), row)
        return [row for found, row in unlike.items() if found[0] < float("inf")]

    # ------------------------------------------------------------------ parts

    def _list_bundles(self) -> list[PlannedRow]:
        """Return the ranked strategies of the mode, unchanged."""
        ranked = set(self._space.ranked)
        return [
            PlannedRow(name, name, mode, parts)
            for mode, name, parts in self._question.list_bundles()
            if mode == self._space.mode and parts in ranked
        ]

    def _row(self, parts: Parts) -> PlannedRow:
        return self._question.make_row(self._space.mode, parts)

    def _descend(self, starts: Sequence[Parts]) -> None:
        """Plan the starts, and then the neighbours of the best."""
        ranked = [parts for parts in self._space.ranked if not self._pricer.is_idle(parts)]
        for parts in starts or ranked[:1]:
            self._see(parts)
        left: set[Parts] = set()
        while len(left) < LEFT and len(self._seen) < self._effort.plans:
            here = next((parts for parts in self._order(self._seen) if parts not in left), None)
            if here is None:
                return
            left.add(here)
            near = [p for p in ranked if p not in self._seen and count_swaps(p, here) <= 2]
            for parts in sorted(near, key=lambda p: (count_swaps(p, here), self._hope(p))):
                if len(self._seen) >= self._effort.plans:
                    return
                self._see(parts)

    def _hope(self, parts: Parts) -> tuple[float, ...]:
        """Return the worst, over the parts, of each part's best score so far."""
        return max(
            min(
                (
                    score(run, self._target)
                    for seen, run in self._seen.items()
                    if seen.named(kind) == parts.named(kind)
                ),
                default=(float("inf"),),
            )
            for kind in PART_KINDS
        )

    def _see(self, parts: Parts) -> None:
        self._seen[parts] = self._pricer.plan(self._row(parts), short=True)

    def _order(self, seen: Iterable[Parts]) -> list[Parts]:
        """Return combinations, the best first, and equal ones in the order of their plans."""
        return sorted(seen, key=lambda parts: score(self._seen[parts], self._target))

    # ------------------------------------------------------------------ settings

    def _score(self, row: PlannedRow, *, short: bool) -> tuple[float, ...]:
        return score(self._pricer.plan(row, short=short), self._target)

    def _tune(self, row: PlannedRow) -> PlannedRow:
        """Return the row with better settings, if any are found."""
        best, least = row, self._score(row, short=True)
        for _ in range(SWEEPS):
            before = best
            for kind, name, values in self._list_settings(row.parts):
                for value in values:
                    tried = with_setting(best, kind, name, value)
                    found = self._score(tried, short=True)
                    if found < least and found[0] < least[0] * (1.0 - 1e-9):
                        best, least = tried, found
            if best == before:
                break
        return best

    def _list_settings(self, parts: Parts) -> list[tuple[PartKind, str, tuple[str, ...]]]:
        """Return the settings of some parts that are worth trying, without those asked for."""
        found = []
        for kind in PART_KINDS:
            part = self._question.registry.part(kind, parts.named(kind))
            for name in option_fields(part):
                if name not in self._question.options.get(kind, {}) and (
                    values := list_tried(part, name)
                ):
                    found.append((kind, name, values))
        return found


def with_setting(row: PlannedRow, kind: PartKind, name: str, value: str) -> PlannedRow:
    """Return the row with another value of one setting."""
    kept = [each for each in row.options if each[:2] != (kind, name)]
    options = tuple(sorted([*kept, (kind, name, value)]))
    return PlannedRow(row.strategy, row.label, row.mode, row.parts, row.swapped, options=options)
