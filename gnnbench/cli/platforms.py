"""``gnnbench platforms``: described machines, and measuring this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnnbench.cli.calibrate import calibrate
from gnnbench.cli.options import (
    CommandLine,
    Json,
    ListingGroup,
    check_files,
    is_given,
    open_console,
    patience_option,
    print_rows,
    shared_options,
    write_document,
)
from gnnbench.cli.processes import begin_as_rank, joined
from gnnbench.cli.resuming import resumable, resume_option
from gnnbench.cli.values import FilePath, Number
from gnnbench.host.progress import doing
from gnnbench.host.rank import read_place
from gnnbench.host.resume import once
from gnnbench.jobs.limits import Real
from gnnbench.units import format_si

if TYPE_CHECKING:
    from gnnbench.machines.machine import Platform


#: In seconds.
LONGEST_PROBE_S = 3600.0

_out_option = click.option(
    "--out",
    "out_path",
    type=FilePath(),
    metavar="FILE.toml",
    help="Also write the description to a file.",
)


@click.group(
    "platforms", cls=ListingGroup, short_help="List and show described machines; measure this one."
)
def platforms() -> None:
    """List and show described machines, measure this one; without a subcommand, list them."""


@platforms.command("list")
@shared_options
def list_platforms(json_path: Path | None) -> int:
    """List every platform that --platform knows by name."""
    from gnnbench.machines import describe

    check_files(json_path, files=describe.find_all_files())
    entries = describe.list_platforms()
    content: list[Json] = [
        {"name": e.name, "description": e.description, "file": str(e.path) if e.path else None}
        for e in entries
    ]
    write_document({"platforms": content}, json_path)
    rows = [(entry.name, entry.description) for entry in entries]
    print_rows(open_console(json_path), ("platform", "what it is"), rows)
    return 0


@platforms.command("show")
@click.argument("name", metavar="NAME|FILE.toml")
@_out_option
@shared_options
def show(name: str, out_path: Path | None, json_path: Path | None) -> int:
    """Show every number of a platform, and its source."""
    from gnnbench.machines.describe import load_platform
    from gnnbench.machines.show import to_toml
    from gnnbench.report.results.output import write_all, write_text

    check_files(json_path, out_path, platform=name)
    platform = load_platform(name)
    writes: list[tuple[str, Callable[[], object]]] = [
        ("the description", partial(print_platform, platform, json_path))
    ]
    if out_path is not None:
        writes.append((str(out_path), partial(write_text, out_path, to_toml(platform))))
    write_all(writes)
    return 0


@platforms.command("probe")
@click.option(
    "--seconds",
    type=Number(Real(0.0, LONGEST_PROBE_S)),
    default=2.0,
    show_default=True,
    help="Approximate time to measure the CPU. Its libraries take this time again, and so does "
    "each GPU.",
)
@_out_option
@click.option("--save", is_flag=True, help="Keep it as the platform 'local'.")
@click.option(
    "--network",
    is_flag=True,
    help="Measure the network instead: time all-reduce and all-to-all between the ranks that "
    "torchrun has started, for about --seconds.",
)
@patience_option
@resume_option
@shared_options
@click.pass_obj
def probe(
    line: CommandLine,
    seconds: float,
    out_path: Path | None,
    save: bool,
    network: bool,
    patience_s: int,
    resumed: bool,
    json_path: Path | None,
) -> int:
    """Measure this machine and describe it as a platform."""
    if network:
        if save or resumed or out_path is not None:
            raise click.UsageError(
                "--network describes no platform to keep; leave out --save, --out and --resume."
            )
        return probe_network(line, seconds, patience_s, json_path)
    if is_given("patience_s"):
        raise click.UsageError("--patience is for ranks; leave it out, or ask for --network.")
    from gnnbench.machines.describe import local_path
    from gnnbench.machines.show import to_toml
    from gnnbench.report.results.output import make_folder, write_all, write_text

    kept = local_path() if save else None
    if kept is not None:
        make_folder(kept.parent)
    check_files(json_path, out_path, kept)

    from gnnbench import plugins
    from gnnbench.machines.local import save_local
    from gnnbench.machines.probe import probe as measure
    from gnnbench.probing import probe_libraries

    with resumable(line, resumed=resumed), doing("measuring", 2) as measuring:
        machine = once(partial(measure, seconds), "machine")
        measuring.advance()
        probed = probe_libraries(machine, plugins.load(), seconds)
    platform = probed.platform
    writes: list[tuple[str, Callable[[], object]]] = [
        ("the description", partial(print_platform, platform, json_path))
    ]
    if out_path is not None:
        writes.append((str(out_path), partial(write_text, out_path, to_toml(platform))))
    if kept is not None:
        writes.append((str(kept), partial(save_local, platform)))
    write_all(writes)
    console = open_console(json_path)
    for part in probed.unmeasured:
        console.print(f"not measured on {part.device}: {part.part}: {part.reason}")
    for path in (out_path, kept):
        if path is not None:
            console.print(f"wrote {path}", soft_wrap=True)
    if out_path is None and not save:
        console.print("nothing was kept; use --save, or --out FILE.toml")
    return 0


platforms.add_command(calibrate)


def probe_network(
    line: CommandLine, seconds: float, patience_s: int, json_path: Path | None
) -> int:
    """Time the network between the ranks; rank 0 prints and writes."""
    place = read_place()
    if place is None or place.size < 2:
        raise click.UsageError(
            "--network needs several ranks; start them by torchrun, with --nnodes or "
            "--nproc-per-node."
        )
    begin_as_rank(debug=line.debug)
    check_files(json_path)
    from gnnbench.probing.network import time_network

    with joined(place, patience_s) as processes:
        times = time_network(processes, seconds)
        names = processes.peers.names
    if place.rank:
        return 0
    rows = [
        (
            each.operation,
            each.backend,
            format_si(each.size, "B"),
            format_si(each.seconds, "s"),
            format_si(each.bytes_per_s, "B/s"),
        )
        for each in times
    ]
    console = open_console(json_path)
    console.print(f"network between {', '.join(names)}; median times, the slowest rank's")
    heading = ("collective", "backend", "a rank has", "time", "a rank sends")
    print_rows(console, heading, rows)
    content: list[Json] = [
        {
            "operation": each.operation,
            "backend": each.backend,
            "bytes": each.size,
            "seconds": each.seconds,
            "bytes_per_s": each.bytes_per_s,
            "runs": each.runs,
        }
        for each in times
    ]
    write_document({"ranks": list(names), "network": content}, json_path)
    return 0


def print_platform(platform: Platform, json_path: Path | None) -> None:
    """Print a platform as rows of key, value, mark and source; its JSON also has SI numbers."""
    from gnnbench.machines.show import show_platform

    console = open_console(json_path)
    console.print(f"{platform.name}: {platform.description}", style="bold")
    rows = [tuple(row) for row in show_platform(platform)]
    told = ("name", "description")
    print_rows(
        console, ("", "value", "mark", "source"), [row for row in rows if row[0] not in told]
    )
    write_document(_platform_document(platform), json_path)


def _platform_document(platform: Platform) -> dict[str, Json]:
    return {
        "name": platform.name,
        "description": platform.description,
        "virtual": platform.virtual,
        "devices": [_list_fields(device) for device in platform.devices],
        "links": [_list_fields(link) for link in platform.links],
        "calibration": _list_fields(dict(platform.calibration)),
        "sources": dict(platform.sources),
        "marks": {key: platform.mark(key).kind for key in platform.sources},
        "fitted_on": {
            key: list(mark.fitted_on) for key, mark in platform.marks.items() if mark.fitted_on
        },
    }


def _list_fields(value: Any) -> Any:
    """Return a record with the fields of its groups beside its own, or another value as it is."""
    from gnnbench.machines.tables import flatten

    if is_dataclass(value):
        value = flatten(value)
    if isinstance(value, Mapping):
        return {name: _list_fields(each) for name, each in value.items()}
    return value
