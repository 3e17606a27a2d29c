"""``gnnbench advise``: which strategy to use, with which settings, and what would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    Asked,
    open_console,
    print_rows,
    takes,
    voice_options,
    write_document,
)
from gnnbench.cli.outputs import Outputs
from gnnbench.cli.questions import make_question, print_title
from gnnbench.cli.values import Number
from gnnbench.jobs.job import AdviceJob
from gnnbench.jobs.limits import Real

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from gnnbench.advice import Advice, Offer, Question
    from gnnbench.advice.advise import Choice

_HEADING = ("combination", "epoch [modelled]", "within", "peak device", "links", "settings")


@click.command(short_help="Say which strategy to use, and with which settings.")
@takes(AdviceJob, "advise")
@click.option(
    "--within",
    "within_s",
    type=Number(Real(0.0, 1e12)),
    metavar="SECONDS",
    help="Find the platform with the lowest power that finishes all --epochs in this time.",
)
@takes(Outputs, "advise", into="outputs")
@voice_options
def advise(asked: Asked[AdviceJob], within_s: float | None, outputs: Asked[Outputs]) -> int:
    """Say which combination of parts to use on this graph and machine, and with which settings.

    Combinations are planned, not trained. The answer gives the reason for each choice, the model's
    possible error, and changes that would alter the answer. Full graphs and mini-batches do
    different work, so each has its own answer.
    """
    job, written = asked.make(), outputs.make()
    if within_s is not None and (job.platform or job.device_memory or job.train):
        raise click.UsageError(
            "--within chooses the platform; leave out --platform, --device-memory and --train."
        )
    question = make_question(job, written)
    if within_s is not None:
        return answer_within(question, within_s, written.json_path)

    from gnnbench.advice import advise as ask
    from gnnbench.advice.documents import describe_advice
    from gnnbench.advice.preparation import count_trained

    train = count_trained(question) if job.train is None else job.train
    found = ask(question, target=job.target, train=train, vary=job.changes)
    if written.json_path is not None:
        write_document(describe_advice(found), written.json_path)
    print_advice(found, open_console(written.json_path), details=written.details)
    return 0


def answer_within(question: Question, within_s: float, json_path: Path | None) -> int:
    """Print the platform of least power that trains all epochs in ``within_s`` seconds."""
    from gnnbench.advice import find_cheapest
    from gnnbench.advice.documents import describe_offers, describe_question
    from gnnbench.machines.describe import LOCAL, list_platforms, load_platform

    names = [entry.name for entry in list_platforms() if entry.name != LOCAL]
    offers = find_cheapest(question, map(load_platform, names), within_s)
    if json_path is not None:
        asked = describe_question(question)
        asked.pop("platform")
        write_document({**asked, **describe_offers(offers, within_s)}, json_path)
    print_offers(offers, within_s, open_console(json_path))
    return 0 if any(offer.in_time for offer in offers) else 4


def print_advice(found: Advice, console: Console, *, details: bool) -> None:
    """Print the answers, each with its table and what would change it."""
    from gnnbench.advice.tables import summarise

    print_title("advise", found.question, console)
    for answer in found.answers:
        console.print()
        for sentence in summarise(answer):
            console.print(sentence)
        console.print()
        shown = answer.choices if details else answer.choices[:4]
        print_rows(console, _HEADING, [describe_choice(choice) for choice in shown])
        for number, choice in enumerate(shown, start=1):
            if details or number == 1 or not choice.fits:
                console.print(f" {choice.row.label}: {choice.reason}")
        for sentence in answer.changes:
            console.print(f" {sentence}")
        if details:
            print_rows(
                console,
                ("count", "not ranked, or cannot work together"),
                [
                    (f"{count:,}", why)
                    for why, count in (answer.unranked + answer.refused).most_common()
                ],
            )
    console.print()
    console.print(
        "Modes do different work, and are not ranked together. Times are modelled; 'within' has "
        "the model's error, which 80 % of published measurements do not exceed.",
    )


def describe_choice(choice: Choice) -> tuple[str, ...]:
    """Return a choice as a line of a table."""
    from gnnbench.advice.pricing import LINK_METRICS, read_metric
    from gnnbench.advice.tables import name_settings
    from gnnbench.units import format_si

    settings = name_settings(choice)
    if not choice.fits:
        return (choice.row.label, "does not fit", "", "", "", settings)
    interval = choice.interval_s
    within = "" if interval is None else " to ".join(format_si(each, "s") for each in interval)
    return (
        choice.row.label,
        format_si(choice.epoch_s, "s"),
        within,
        format_si(read_metric(choice.run, "peak_device_bytes"), "B"),
        format_si(read_metric(choice.run, *LINK_METRICS), "B"),
        settings,
    )


def print_offers(offers: tuple[Offer, ...], within_s: float, console: Console) -> None:
    """Print the first platform by power that is fast enough, and why those before it are not."""
    from gnnbench.advice.sentences import describe_row
    from gnnbench.units import format_si

    found = next((offer for offer in offers if offer.in_time), None)
    if found is None or found.answer is None or found.answer.best is None:
        console.print(f"No listed platform ends in {format_si(within_s, 's')}.")
    else:
        best = found.answer.best
        sure = (
            "also where the model is off by its usual error"
            if found.sure
            else "if the model is right: by its usual error it may take longer"
        )
        console.print(
            f"Use {found.platform.name} ({format_si(found.power_w, 'W')}) with "
            f"{describe_row(best.row)}: {format_si(best.epoch_s, 's')} an epoch [modelled], "
            f"{sure}.",
        )
    rows = [
        (o.platform.name, format_si(o.power_w, "W"), o.why_not or "ends in time") for o in offers
    ]
    console.print()
    print_rows(console, ("platform", "power", "why"), rows)
    console.print(
        "By the power of all devices: no platform file has a price. Platforms that do not state it "
        "are left out.",
    )
