"""The advice for each mode: sentences, a table of the choices, and lines of a frame."""

from __future__ import annotations

from collections.abc import Iterator

from gnnbench.advice.advise import Advice, Answer, Choice
from gnnbench.advice.pricing import LINK_METRICS, read_metric
from gnnbench.advice.sentences import describe_row
from gnnbench.comparison.ranking import MODE_TITLES
from gnnbench.price.model_error import describe_errors, find_run_path
from gnnbench.records import Cell, Table, TableRow
from gnnbench.report.results.frames import Value, describe_run, describe_setting
from gnnbench.report.results.schema import RunEntry, describe_runs
from gnnbench.units import format_si

_COLUMNS = ("epoch", "at least", "at most", "peak device", "links")


def summarise(answer: Answer) -> list[str]:
    """Return the answer in a few sentences."""
    title = MODE_TITLES[answer.mode]
    title = f"{title[0].upper()}{title[1:]}, {answer.law}"
    best = answer.best
    searched = (
        f"{answer.planned:,} plans, of {answer.fitting:,} combinations that fit and are ranked"
    )
    if best is None:
        return [f"{title}: no combination fits the memories ({searched})."]
    said = [
        f"{title}: use {describe_row(best.row)}, {format_si(best.epoch_s, 's')} an epoch "
        f"[modelled]. {best.reason} ({searched})"
    ]
    if answer.gain is not None and answer.as_it_comes is not None:
        said.append(
            f"It has parts of different systems, and is {answer.gain:.2f} times as fast as the "
            f"best unmodified strategy, {answer.as_it_comes.row.label}."
        )
    path = find_run_path(best.run)
    if path is not None:
        said.append(f"The model's error: {describe_errors([path])}.")
    if best.trained is not None:
        said.append(describe_training(best))
    return said


def describe_training(choice: Choice) -> str:
    """Describe the result of training the best choice."""
    run = choice.trained
    if run is None or run.status != "done":
        return f"It was trained, and failed: {'' if run is None else run.reason}"
    epoch = run.metrics["epoch_time"]
    equal = (
        ""
        if run.equivalence is None
        else (", equal to the reference" if run.equivalence.holds else f", {run.equivalence.fault}")
    )
    return f"It was trained: {format_si(epoch.value, 's')} an epoch [{epoch.provenance}]{equal}."


def name_settings(choice: Choice) -> str:
    """Return the settings of a choice as ``--set`` takes them, separated by blanks."""
    return " ".join(f"{kind}.{name}={text}" for kind, name, text in choice.row.options)


def make_table(answer: Answer) -> Table:
    """Make a table of the choices of an answer, the best first.

    Below it are the reasons for their places, and changes that would alter the answer.
    """
    rows = tuple(TableRow(describe_row(choice.row), _fill_row(choice)) for choice in answer.choices)
    reasons = [f"{describe_row(choice.row)}: {choice.reason}" for choice in answer.choices]
    notes = tuple(note.removesuffix(".") for note in (*reasons, *answer.changes))
    title = f"{MODE_TITLES[answer.mode]}, {answer.law}"
    return Table(answer.mode, f"{title[0].upper()}{title[1:]}", _COLUMNS, rows, notes)


def _fill_row(choice: Choice) -> tuple[Cell, ...]:
    if not choice.fits:
        return (Cell(text="does not fit"), *[Cell(text="-")] * 4)
    ends = choice.interval_s
    within = [Cell(text="-")] * 2 if ends is None else [Cell(end, "s") for end in ends]
    return (
        Cell(choice.epoch_s, "s"),
        *within,
        Cell(read_metric(choice.run, "peak_device_bytes"), "B"),
        Cell(read_metric(choice.run, *LINK_METRICS), "B"),
    )


def list_lines(advice: Advice) -> Iterator[dict[str, Value]]:
    """Yield a line for every choice, as in a comparison's frame, with columns of advice.

    These are the sampling law, the place in its answer from 1 (missing if it does not fit), and the
    settings. Then come the interval of the epoch in seconds, the bytes over links, the reason, and
    the result of training.
    """
    question = advice.question
    setting = describe_setting(question.dataset.name, question.workload, question.platform.name)
    for answer in advice.answers:
        for place, choice in enumerate(answer.choices, start=1):
            (entry,) = map(RunEntry.model_validate, describe_runs((choice.run,)))
            low, high = choice.interval_s or (None, None)
            trained = choice.trained
            epoch = None if trained is None else trained.metrics.get("epoch_time")
            yield {
                **setting,
                "sampling": answer.law,
                "place": place if choice.fits else None,
                "settings": name_settings(choice),
                "why": choice.reason,
                "epoch_time_low": low,
                "epoch_time_high": high,
                "link_bytes": read_metric(choice.run, *LINK_METRICS) if choice.fits else None,
                "trained": None if trained is None else trained.status,
                "trained_epoch_time": None if epoch is None else epoch.value,
                "provenance_trained_epoch_time": None if epoch is None else epoch.provenance,
                **describe_run(entry),
            }
