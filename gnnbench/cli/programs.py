"""``gnnbench programs``: whole training programs, a check of one, and a scaffold."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    CommandLine,
    Json,
    ListingGroup,
    check_files,
    folder_option,
    load_registry,
    open_console,
    plugin_option,
    print_made,
    print_rows,
    shared_options,
    write_document,
)
from gnnbench.cli.resuming import resumable, resume_option

if TYPE_CHECKING:
    from gnnbench.programs.run import AnyProgram
    from gnnbench.records import ProgramOrigin


@click.group(
    "programs", cls=ListingGroup, short_help="List, check and make whole training programs."
)
def programs() -> None:
    """List, check and make whole training programs; without a subcommand, list them."""


@programs.command("list")
@plugin_option
@shared_options
def list_programs(extra_plugins: tuple[str, ...], json_path: Path | None) -> int:
    """List every program on offer, its modes and models, and how it is started."""
    check_files(json_path, plugins=extra_plugins)
    registry = load_registry(extra_plugins)

    from gnnbench.programs.sessions import describe_origin

    found = [
        (program, describe_origin(program), str(registry.program_origins[name]))
        for name, program in sorted(registry.programs.items())
    ]
    if json_path is not None:
        entries: list[Json] = [_document(*each) for each in found]
        write_document({"programs": entries}, json_path)
    rows = [
        (
            program.name,
            ", ".join(program.modes),
            ", ".join(program.models),
            offered_by,
            " ".join(origin.command) or origin.module,
        )
        for program, origin, offered_by in found
    ]
    print_rows(open_console(json_path), ("program", "modes", "models", "from", "start"), rows)
    return 0


def _document(program: AnyProgram, origin: ProgramOrigin, offered_by: str) -> dict[str, Json]:
    start: dict[str, Json] = {"module": origin.module}
    if origin.command:
        start = {"command": list(origin.command)}
    return {
        "name": program.name,
        "modes": list(program.modes),
        "models": list(program.models),
        "from": offered_by,
        "peer": program.peer,
        "options": dict(getattr(program, "options", {})),
        **start,
    }


@programs.command("check")
@click.argument("name", metavar="FILE or NAME")
@plugin_option
@resume_option
@shared_options
@click.pass_obj
def check(
    line: CommandLine,
    name: str,
    extra_plugins: tuple[str, ...],
    resumed: bool,
    json_path: Path | None,
) -> int:
    """Train a short task with a program in each of its modes and models, and check the results.

    FILE is the TOML file of a program; NAME is an available program. The exit status is 1 if the
    program fails a check, and 4 if it trained nothing.
    """
    check_files(json_path, plugins=extra_plugins, files=[Path(name)] if "." in name else ())
    registry = load_registry(extra_plugins)

    from gnnbench.programs.check import check_program
    from gnnbench.programs.rows import find_program

    program = find_program(name, registry)
    with resumable(line, resumed=resumed):
        outcomes = check_program(program, registry)
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("passed", "not-ranked", "failed", "refused")
    }
    checks: list[Json] = [asdict(outcome) for outcome in outcomes]
    write_document({"program": program.name, "checks": checks, "counts": counts}, json_path)
    console = open_console(json_path)
    rows = [(each.mode, each.model, each.status, each.reason) for each in outcomes]
    print_rows(console, ("mode", "model", "outcome", ""), rows)
    console.print()
    told = ", ".join(f"{count} {status.replace('-', ' ')}" for status, count in counts.items())
    console.print(f"{program.name}: {told}")
    if counts["failed"]:
        return 1
    return 0 if counts["passed"] or counts["not-ranked"] else 4


@programs.command("new")
@click.argument("name")
@folder_option("files")
@shared_options
def new_program(name: str, folder: Path, json_path: Path | None) -> int:
    """Write a program NAME, which trains a GCN with torch only, and its TOML file."""
    check_files(json_path)

    from gnnbench.programs.scaffold import create_program

    files = create_program(name, folder)
    table = files[-1]
    following = (
        f"gnnbench programs check {table}",
        f"gnnbench compare --plugins native --program {table} --platform local",
    )
    print_made("program", name, files, following, json_path)
    return 0
