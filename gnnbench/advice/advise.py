"""The advice: the best combinations of each mode, with reasons, intervals and alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnbench.advice.pricing import TARGETS, Pricer, read_metric, score
from gnnbench.advice.questions import Question
from gnnbench.advice.recall import Recall
from gnnbench.advice.search import Effort, Final, Found, Search, choose_effort, find_space
from gnnbench.advice.sentences import SAME, explain_choice, explain_unfit, tell_variation
from gnnbench.advice.variations import Variation, list_variations
from gnnbench.comparison import compare
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.datasets.partitioning import remember_partitions
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.host.progress import doing
from gnnbench.kernels.pages import keep_pages
from gnnbench.machines.describe import LOCAL, local_path
from gnnbench.price.model_error import error_of, find_run_path
from gnnbench.records import Comparison, Mode, RunResult


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A combination that was planned to the end, or a strategy that does not fit.

    ``interval_s`` is where the epoch is expected, by the model's errors of that kind of path. It is
    None if these have no basis. ``trained`` is its run, if it was trained.
    """

    row: PlannedRow
    run: RunResult
    interval_s: tuple[float, float] | None
    reason: str
    trained: RunResult | None = None

    @property
    def fits(self) -> bool:
        """Whether the choice fits into the memory of the platform."""
        return self.run.status == "done"

    @property
    def epoch_s(self) -> float:
        """Modelled seconds of an epoch."""
        return read_metric(self.run, "epoch_time")


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The best among the rows that do the same work: of one mode and one sampling law.

    ``choices`` are the best first, followed by the strategies that do not fit. ``gain`` is the
    speedup of the first over the best unchanged strategy, if it mixes parts of strategies.
    ``unranked`` and ``refused`` count, by reason, the combinations that are not ranked or do not
    fit together. ``changes`` name the best choice for platforms that differ in one thing.
    """

    mode: Mode
    law: str
    choices: tuple[Choice, ...]
    as_it_comes: Choice | None
    fitting: int
    planned: int
    unranked: Counter[str]
    refused: Counter[str]
    changes: tuple[str, ...] = ()

    @property
    def best(self) -> Choice | None:
        """The fastest choice that fits, or None."""
        return next((choice for choice in self.choices if choice.fits), None)

    @property
    def gain(self) -> float | None:
        """The speed-up of the best choice over the unmodified strategy, or None without a gain."""
        best, base = self.best, self.as_it_comes
        if best is None or base is None or not best.row.swapped:
            return None
        ratio = base.epoch_s / best.epoch_s if best.epoch_s else 1.0
        return ratio if ratio > 1.0 + SAME else None


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """The answers to a question, the one with the shortest epoch first.

    This order is no ranking, since modes do different work. ``trained`` is the comparison in which
    the best were trained.
    """

    question: Question
    target: str
    answers: tuple[Answer, ...]
    planned: int
    trained: Comparison | None = None


def advise(
    question: Question,
    *,
    target: str = "time",
    train: int = 0,
    vary: bool = True,
    effort: Effort | None = None,
) -> Advice:
    """Advise which combinations of parts to use.

    The best ``train`` of each mode are trained, and ranked by their epochs if these are measured.
    Freed memory stays in the process from then on (:func:`keep_pages`).

    Raises ``UsageError`` for contradictory questions and for a machine without measurements, for
    which a number would be a guess. Raises ``IncompatiblePartsError`` if no combination fits.
    """
    if target not in TARGETS:
        raise UsageError(f"there is no target {target!r}; the targets are {', '.join(TARGETS)}.")
    if train < 0:
        raise UsageError(f"train is {train}; give a whole number of at least 0.")
    refuse_guessing(question)
    keep_pages()
    recall = Recall()
    pricer = Pricer(question, recall)
    effort = effort or choose_effort(question.dataset.graph)
    stages = 2 * len(question.modes) + vary + bool(train)
    with remember_partitions(), doing("advising", stages) as advising:
        found = []
        for mode in question.modes:
            space = find_space(pricer, mode)
            advising.advance()
            if space.ranked:
                found.append(Search(pricer, space, effort, target).run())
            advising.advance()
        if not found:
            raise IncompatiblePartsError(explain_nothing(pricer))
        changes = vary_platform(question, found, target, recall) if vary else {}
        advising.advance(vary)
        answers = [make_answer(each, changes.get(each.space.mode, ())) for each in found]
        trained = None
        if train:
            answers, trained = train_best(question, answers, train)
    answers.sort(key=lambda answer: answer.best.epoch_s if answer.best else float("inf"))
    return Advice(question, target, tuple(answers), pricer.planned, trained)


def refuse_guessing(question: Question) -> None:
    """Refuse this machine if it was never measured, since its rates are then assumed."""
    if question.platform.name == LOCAL and not local_path().is_file():
        raise UsageError(
            "platform local was never measured, so a ranking would be a guess. Run 'gnnbench "
            "platforms probe --save', or name another --platform."
        )


def explain_nothing(pricer: Pricer) -> str:
    """Explain why no combination can be used."""
    counted: Counter[str] = Counter()
    for mode in pricer.question.modes:
        counted += find_space(pricer, mode).refusals
    if not counted:
        return "no combination is left of the parts that were asked for; name other --plugins."
    why, count = counted.most_common(1)[0]
    return f"no combination of {sum(counted.values()):,} works; {count:,} of them: {why}"


def make_answer(found: Found, changes: tuple[str, ...]) -> Answer:
    """Return the results of a search, with reasons and intervals."""
    base = found.as_it_comes
    ranked = [
        make_choice(final, explain_choice(final, base, found.finals)) for final in found.finals
    ]
    too_large = [make_choice(each, explain_unfit(each[1])) for each in found.too_large]
    as_it_comes = None if base is None else make_choice(base, "as it comes")
    space = found.space
    return Answer(
        space.mode,
        space.law,
        (*ranked, *too_large),
        as_it_comes,
        len(space.ranked),
        found.planned,
        space.unranked,
        space.refusals,
        changes,
    )


def make_choice(final: Final, reason: str) -> Choice:
    """Make a choice with the interval of its run."""
    row, run = final
    return Choice(row, run, find_interval(run), reason)


def find_interval(run: RunResult) -> tuple[float, float] | None:
    """Return the interval in which a run's epoch is expected; None if there is no basis for it."""
    path = find_run_path(run)
    error = None if path is None else error_of(path)
    if error is None:
        return None
    epoch_s = read_metric(run, "epoch_time")
    return epoch_s / error.factor, epoch_s * error.factor


# --------------------------------------------------------------------------- what would change it


def vary_platform(
    question: Question,
    found: Sequence[Found],
    target: str,
    recall: Recall,
) -> dict[Mode, tuple[str, ...]]:
    """Return for each mode the best choices on platforms that differ in one thing.

    They are chosen from the rows that were planned to the end and the unchanged strategies.
    """
    told: dict[Mode, list[str]] = {each.space.mode: [] for each in found}
    for each in found:
        if not each.finals:
            continue
        needs = find_need(question, each.finals[0][1])
        for variation in list_variations(question.platform, needs):
            with doing(f"planning with {variation.what}"):
                best = replan(question, each, variation, target, recall)
            told[each.space.mode].append(tell_variation(variation.what, each.finals[0], best))
    return {mode: tuple(sentences) for mode, sentences in told.items()}


def find_need(question: Question, run: RunResult) -> float | None:
    """Return a run's peak bytes on an accelerator; None if it trains on hosts alone."""
    hosts = {host.name for host in question.platform.hosts}
    if run.work is None or hosts.issuperset(run.work.devices):
        return None
    return read_metric(run, "peak_device_bytes")


def replan(
    question: Question,
    found: Found,
    variation: Variation,
    target: str,
    recall: Recall,
) -> Final | None:
    """Return the best on another platform; None if nothing runs there."""
    pricer = Pricer(replace(question, platform=variation.platform), recall)
    known = [row for row, _ in (*found.finals, *found.too_large)]
    if found.as_it_comes is not None:
        known.append(found.as_it_comes[0])
    runs = [(row, pricer.plan(row, short=True)) for row in dict.fromkeys(known)]
    done = [(row, run) for row, run in runs if run.status == "done"]
    if not done:
        space = find_space(pricer, found.space.mode)
        again = Search(pricer, space, choose_effort(question.dataset.graph), target).run()
        return again.finals[0] if again.finals else None
    return min(done, key=lambda pair: score(pair[1], target))


# --------------------------------------------------------------------------- training the best


def train_best(
    question: Question, answers: Sequence[Answer], count: int
) -> tuple[list[Answer], Comparison]:
    """Train the best ``count`` of each mode, and rank them by their times if measured."""
    rows = {c.row: c for answer in answers for c in answer.choices[:count] if c.fits}
    request = Request(
        (),
        question.dataset,
        question.workload,
        question.platform,
        options=question.options,
        rows=tuple(rows),
    )
    trained = compare(request, question.registry)
    runs = {(run.mode, run.parts, run.label): run for run in trained.runs}

    def add(choice: Choice) -> Choice:
        row = choice.row
        run = runs.get((row.mode, row.parts, row.label)) if row in rows else None
        return replace(choice, trained=run)

    def order(choice: Choice) -> tuple[bool, float]:
        run = choice.trained
        measured = run is not None and run.status == "done"
        seconds = read_metric(run, "epoch_time") if run is not None and measured else 0.0
        return not measured, seconds

    found = []
    for answer in answers:
        choices = [add(choice) for choice in answer.choices]
        if not question.platform.virtual:
            choices = sorted(choices, key=order)
        found.append(replace(answer, choices=tuple(choices)))
    return found, trained
