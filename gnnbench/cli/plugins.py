"""``gnnbench plugins``: what is installed, its options, and its conformance checks."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    CommandLine,
    Json,
    ListingGroup,
    check_files,
    folder_option,
    list_plugins,
    load_registry,
    make_option,
    open_console,
    plugin_option,
    print_made,
    print_rows,
    shared_options,
    write_document,
)
from gnnbench.cli.resuming import resumable, resume_option
from gnnbench.errors import UsageError
from gnnbench.jobs.groups import Training
from gnnbench.jobs.options import list_options
from gnnbench.jobs.words import parse_swaps, read_settings

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.plugins import Origin
    from gnnbench.plugins.listing import ListedPart, ListedStrategy, Listing


@click.group(
    "plugins", cls=ListingGroup, short_help="List, show, check and make strategies and parts."
)
def plugins() -> None:
    """List, show, check and make strategies and parts; without a subcommand, list them."""


@plugins.command("list")
@plugin_option
@shared_options
def list_offers(extra_plugins: tuple[str, ...], json_path: Path | None) -> int:
    """List every strategy, part and model on offer, and the distribution it comes from."""
    check_files(json_path, plugins=extra_plugins)
    listing = list_plugins(extra_plugins)
    if json_path is not None:
        write_document(_list_document(listing), json_path)
    console = open_console(json_path)
    print_rows(
        console,
        ("strategy", "modes", "from", "what it is"),
        [(s.name, ", ".join(s.bundles), str(s.origin), s.summary) for s in listing.strategies],
    )
    for kind, parts in listing.parts_by_kind().items():
        console.print()
        print_rows(
            console,
            (kind, "from", "what it does"),
            [(part.name, str(part.origin), part.summary) for part in parts],
        )
    console.print()
    print_rows(
        console,
        ("model", "from", "what it is"),
        [(model.name, str(model.origin), model.title) for model in listing.models],
    )
    return 0


def _list_document(listing: Listing) -> dict[str, Json]:
    return {
        "strategies": [_strategy_document(strategy) for strategy in listing.strategies],
        "parts": {
            kind: [_part_document(part) for part in parts]
            for kind, parts in listing.parts_by_kind().items()
        },
        "models": [
            {"name": model.name, "title": model.title, **_origin_document(model.origin)}
            for model in listing.models
        ],
        "problems": list(listing.problems),
    }


def _strategy_document(strategy: ListedStrategy) -> dict[str, Json]:
    card = strategy.card
    return {
        "name": strategy.name,
        "summary": strategy.summary,
        "source": strategy.source,
        **_origin_document(strategy.origin),
        "bundles": strategy.bundles,
        "card": None if card is None else {heading: list(card[heading]) for heading in card},
    }


def _part_document(part: ListedPart) -> dict[str, Json]:
    return {
        "name": part.name,
        "summary": part.summary,
        "modes": list(part.modes),
        "options": part.options,
        **_origin_document(part.origin),
    }


def _origin_document(origin: Origin) -> dict[str, Json]:
    return {
        "plugin": origin.plugin,
        "distribution": origin.distribution,
        "version": origin.version,
    }


@plugins.command("show")
@click.argument("name")
@plugin_option
@shared_options
def show_plugin(name: str, extra_plugins: tuple[str, ...], json_path: Path | None) -> int:
    """Show a strategy's five parts and the options of each, or the parts called NAME.

    A part may be named with its kind: communication=hongtu.
    """
    check_files(json_path, plugins=extra_plugins)
    listing = list_plugins(extra_plugins)
    kind, equals, part_name = name.partition("=")
    strategies = [s for s in listing.strategies if s.name == name]
    parts = [
        part
        for part in listing.parts
        if (part.name == part_name and part.kind == kind if equals else part.name == name)
    ]
    if not strategies and not parts:
        listing.check([_find_named(name)])  # raises, with close matches
    if json_path is not None:
        content: dict[str, Json] = {
            "strategies": [_strategy_document(strategy) for strategy in strategies],
            "parts": [{"part": part.kind, **_part_document(part)} for part in parts],
        }
        write_document(content, json_path)
    console = open_console(json_path)
    for strategy in strategies:
        _print_strategy(console, listing, strategy)
    # A strategy's listing already shows its own parts.
    for part in parts if not strategies else ():
        console.print(f"{part.kind} {part.name}: {part.summary}", style="bold")
        console.print(f"from {part.origin}; works for {', '.join(part.modes)}")
        _print_options(console, part)
    return 0


def _find_named(name: str) -> tuple[str, str]:
    """Return the kind and name that NAME stands for: a strategy, or a part as kind=name."""
    if "=" not in name:
        return "strategy", name

    try:
        return parse_swaps([name])[0]
    except UsageError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error


def _print_strategy(console: Console, listing: Listing, strategy: ListedStrategy) -> None:
    console.print(f"{strategy.name}: {strategy.summary}", style="bold")
    if strategy.source:
        console.print(strategy.source)
    console.print(f"from {strategy.origin}")
    for mode, bundle in strategy.bundles.items():
        console.print()
        console.print(mode, style="bold")
        for kind, name in bundle.items():
            part = listing.part(kind, name)
            console.print(f"  {kind} {name}: {part.summary}")
            _print_options(console, part)
    if strategy.card is not None:
        console.print()
        console.print("how faithful it is", style="bold")
        for heading, clauses in strategy.card.items():
            for clause in clauses:
                _print_wrapped(console, f"{heading}: {clause}", "  ")


def _print_wrapped(console: Console, text: str, blanks: str, style: str = "") -> None:
    for line in textwrap.wrap(
        text,
        max(40, console.width),
        initial_indent=blanks,
        subsequent_indent=2 * blanks,
        break_on_hyphens=False,
    ):
        console.print(line, style=style, soft_wrap=True)


def _print_options(console: Console, part: ListedPart) -> None:
    for described in part.options.values():
        _print_wrapped(console, f"--set {part.kind}.{described}", " " * 6, "dim")


@plugins.command("check")
@click.argument("name")
@make_option(list_options(Training)["options"], name="settings")
@make_option(list_options(Training)["dataset"], "check")
@plugin_option
@resume_option
@shared_options
@click.pass_obj
def check_plugin(
    line: CommandLine,
    name: str,
    settings: tuple[str, ...] | None,
    dataset: str | None,
    extra_plugins: tuple[str, ...],
    resumed: bool,
    json_path: Path | None,
) -> int:
    """Run the conformance checks against the strategy NAME, or a part.

    A part is named with its kind, such as kernel=native, and is put into a strategy that takes it.
    The exit status is 1 if a check fails, or if it could not reach what it must check.
    """
    from gnnbench.jobs.preparation import load_dataset

    options = read_settings(settings)
    check_files(json_path, dataset=dataset, plugins=extra_plugins, settings=options)
    registry = load_registry(extra_plugins, [_find_named(name)])

    from gnnbench.check import check_strategy

    data = None if dataset is None else load_dataset(dataset, seed=0)
    with resumable(line, resumed=resumed):
        outcomes = check_strategy(registry, name, options=options, dataset=data)
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("passed", "failed", "not-reached", "not-applicable")
    }
    checks: list[Json] = [
        {"check": o.check, "status": o.status, "reason": o.reason, "why": o.why} for o in outcomes
    ]
    kind = "part" if "=" in name else "strategy"
    write_document({kind: name, "checks": checks, "counts": counts}, json_path)
    console = open_console(json_path)
    print_rows(console, ("check", "outcome", ""), [(o.check, o.status, o.reason) for o in outcomes])
    console.print()
    console.print(
        f"{name}: {counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['not-reached']} not reached, {counts['not-applicable']} do not apply"
    )
    return 1 if counts["failed"] or counts["not-reached"] else 0


@plugins.command("new")
@click.argument("name")
@folder_option("package")
@shared_options
def new_plugin(name: str, folder: Path, json_path: Path | None) -> int:
    """Write a package with a new strategy NAME, ready to install, run and check."""
    from gnnbench.scaffold import create

    files = create(name, folder)
    package = folder / f"gnnbench-{name}"
    following = (f"pip install -e {package}", f"gnnbench plugins check {name}")
    print_made("strategy", name, files, following, json_path)
    return 0
