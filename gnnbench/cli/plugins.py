"""``gnnbench plugins``: what is installed, what it can be told, whether it keeps its promises."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    FilePath,
    Json,
    check_files,
    has_subcommand,
    load_registry,
    open_console,
    plugin_option,
    print_rows,
    shared_options,
    write_document,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.parts import Part
    from gnnbench.plugins import Registry
    from gnnbench.records import Card, Strategy


@click.group(
    "plugins",
    invoke_without_command=True,
    short_help="List, show, check and make strategies and parts.",
)
@plugin_option
@shared_options
@click.pass_context
def plugins(
    ctx: click.Context, extra_plugins: tuple[str, ...], json_path: Path | None
) -> int | None:
    """List, show, check and make strategies and parts; without a subcommand, list them."""
    if has_subcommand(ctx, extra_plugins, json_path):
        return None
    return print_list(extra_plugins, json_path)


@plugins.command("list")
@plugin_option
@shared_options
def list_plugins(extra_plugins: tuple[str, ...], json_path: Path | None) -> int:
    """Every strategy, part and model on offer, and the distribution it comes from."""
    return print_list(extra_plugins, json_path)


def print_list(extra: tuple[str, ...], json_path: Path | None) -> int:
    """Print what is on offer; with JSON to a file, both."""
    check_files(json_path, plugins=extra)
    registry = load_registry(extra)
    if json_path is not None:
        write_document(_list_document(registry), json_path)
    console = open_console(json_path)
    print_rows(
        console,
        ("strategy", "modes", "from", "what it is"),
        [
            (s.name, ", ".join(s.bundles), str(registry.origin(s)), s.summary)
            for s in registry.strategies
        ],
    )
    for kind, parts in _parts_by_kind(registry):
        console.print()
        print_rows(
            console,
            (kind, "from", "what it does"),
            [(part.name, str(registry.origin(part)), part.summary) for part in parts],
        )
    console.print()
    print_rows(
        console,
        ("model", "from", "what it is"),
        [
            (name, str(registry.model_origin(name)), model.title)
            for name, model in registry.models.items()
        ],
    )
    return 0


def _parts_by_kind(registry: Registry) -> list[tuple[str, tuple[type[Part], ...]]]:
    from gnnbench.records import PART_KINDS

    return [(kind, parts) for kind in PART_KINDS if (parts := registry.parts_of(kind))]


def _list_document(registry: Registry) -> dict[str, Json]:
    return {
        "strategies": [_strategy_document(registry, s) for s in registry.strategies],
        "parts": {
            kind: [_part_document(registry, part) for part in parts]
            for kind, parts in _parts_by_kind(registry)
        },
        "models": [_model_document(registry, name) for name in registry.models],
        "problems": list(registry.problems),
    }


def _strategy_document(registry: Registry, strategy: Strategy) -> dict[str, Json]:
    from gnnbench.records import PART_KINDS

    origin = registry.origin(strategy)
    return {
        "name": strategy.name,
        "summary": strategy.summary,
        "source": strategy.source,
        "plugin": origin.plugin,
        "distribution": origin.distribution,
        "version": origin.version,
        "bundles": {
            mode: {kind: parts.named(kind) for kind in PART_KINDS}
            for mode, parts in strategy.bundles.items()
        },
        "card": None if strategy.card is None else _card_document(strategy.card),
    }


def _card_document(card: Card) -> dict[str, Json]:
    return {heading: list(clauses) for heading, clauses in card.by_heading().items()}


def _model_document(registry: Registry, name: str) -> dict[str, Json]:
    origin = registry.model_origin(name)
    return {
        "name": name,
        "title": registry.model(name).title,
        "plugin": origin.plugin,
        "distribution": origin.distribution,
        "version": origin.version,
    }


def _part_document(registry: Registry, part: type[Part]) -> dict[str, Json]:
    from gnnbench.parts import describe_option, modes_of, option_fields

    origin = registry.origin(part)
    return {
        "name": part.name,
        "summary": part.summary,
        "modes": sorted(modes_of(part)),
        "options": {name: describe_option(part, name) for name in option_fields(part)},
        "plugin": origin.plugin,
        "distribution": origin.distribution,
        "version": origin.version,
    }


@plugins.command("show")
@click.argument("name")
@plugin_option
@shared_options
def show_plugin(name: str, extra_plugins: tuple[str, ...], json_path: Path | None) -> int:
    """A strategy's five parts and the options of each, or the parts called NAME.

    A part may be named with its kind: communication=hongtu.
    """
    from gnnbench.parts import modes_of

    check_files(json_path, plugins=extra_plugins)
    registry = load_registry(extra_plugins)
    kind, equals, part_name = name.partition("=")
    strategies = [s for s in registry.strategies if s.name == name]
    parts = [
        part
        for part_kind, offered in _parts_by_kind(registry)
        for part in offered
        if (part.name == part_name and part_kind == kind if equals else part.name == name)
    ]
    if not strategies and not parts:
        if equals:
            from gnnbench.cli.compare import parse_swaps

            registry.part(*parse_swaps([name])[0])
        registry.strategy(name)  # raises, with close matches
    if json_path is not None:
        content: dict[str, Json] = {
            "strategies": [_strategy_document(registry, s) for s in strategies],
            "parts": [{"part": part.kind, **_part_document(registry, part)} for part in parts],
        }
        write_document(content, json_path)
    console = open_console(json_path)
    for strategy in strategies:
        _print_strategy(console, registry, strategy)
    # A strategy's listing already shows its own parts.
    for part in parts if not strategies else ():
        console.print(f"{part.kind} {part.name}: {part.summary}", style="bold")
        modes = ", ".join(sorted(modes_of(part)))
        console.print(f"from {registry.origin(part)}; works for {modes}")
        _print_options(console, part)
    return 0


def _print_strategy(console: Console, registry: Registry, strategy: Strategy) -> None:
    from gnnbench.records import PART_KINDS

    console.print(f"{strategy.name}: {strategy.summary}", style="bold")
    if strategy.source:
        console.print(strategy.source)
    console.print(f"from {registry.origin(strategy)}")
    for mode, bundle in strategy.bundles.items():
        console.print()
        console.print(mode, style="bold")
        for kind in PART_KINDS:
            part = registry.part(kind, bundle.named(kind))
            console.print(f"  {kind} {part.name}: {part.summary}")
            _print_options(console, part)
    if strategy.card is not None:
        console.print()
        console.print("how faithful it is", style="bold")
        for heading, clauses in strategy.card.by_heading().items():
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


def _print_options(console: Console, part: type[Part]) -> None:
    from gnnbench.parts import describe_option, option_fields

    for option in option_fields(part):
        line = f"--set {part.kind}.{describe_option(part, option)}"
        _print_wrapped(console, line, " " * 6, "dim")


@plugins.command("check")
@click.argument("name")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PART.option=value",
    help="Set an option of its parts, such as communication.precision=int8. May be repeated.",
)
@click.option(
    "--dataset",
    metavar="NAME or FILE.npz",
    help="Check it on this dataset too; see 'gnnbench datasets'.",
)
@plugin_option
@shared_options
def check_plugin(
    name: str,
    settings: tuple[str, ...],
    dataset: str | None,
    extra_plugins: tuple[str, ...],
    json_path: Path | None,
) -> int:
    """Run the conformance checks against the strategy NAME, or a part.

    A part is named with its kind, kernel=native, and is put into a strategy that takes it. Exit
    status 1 when a check fails, or could not reach what it is to judge.
    """
    from gnnbench.cli.compare import parse_settings, parse_swaps
    from gnnbench.conformance import check_strategy
    from gnnbench.preparation import load_dataset

    check_files(json_path, plugins=extra_plugins)
    registry = load_registry(extra_plugins)
    if "=" in name:
        registry.part(*parse_swaps([name], "NAME")[0])
    else:
        registry.strategy(name)
    outcomes = check_strategy(
        registry,
        name,
        options=parse_settings(settings),
        dataset=None if dataset is None else load_dataset(dataset, seed=0),
    )
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("passed", "failed", "not-reached", "not-applicable")
    }
    if json_path is not None:
        checks: list[Json] = [
            {"check": o.check, "status": o.status, "reason": o.reason, "why": o.why}
            for o in outcomes
        ]
        kind = "part" if "=" in name else "strategy"
        document: dict[str, Json] = {kind: name, "checks": checks, "counts": counts}
        write_document(document, json_path)
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
@click.option(
    "--out",
    "folder",
    type=FilePath(),
    default=Path(),
    metavar="FOLDER",
    help="The folder to write the package into.  [default: here]",
)
@shared_options
def new_plugin(name: str, folder: Path, json_path: Path | None) -> int:
    """Write a package with a new strategy NAME, ready to install, run and check."""
    from gnnbench.scaffold import create

    files = create(name, folder)
    if json_path is not None:
        paths: list[Json] = [str(path) for path in files]
        write_document({"strategy": name, "files": paths}, json_path)
    console = open_console(json_path)
    for path in files:
        console.print(f"wrote {path}", soft_wrap=True)
    package = folder / f"gnnbench-{name}"
    console.print(
        f"\nNext: pip install -e {package}\n      gnnbench plugins check {name}",
        soft_wrap=True,
    )
    return 0
