"""Whether so many processes can train what was asked for, before any of them is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import (
    load_machine,
    parse_settings,
    parse_swaps,
)
from gnnbench.cli.options import ComparisonOptions
from gnnbench.cli.values import memory_bytes, show_bytes

if TYPE_CHECKING:
    from gnnbench.cli.compare import ChosenStrategy
    from gnnbench.comparison import PlannedRow
    from gnnbench.plugins import Registry

#: What a rank takes before it has loaded anything: the interpreter, torch and the plugins.
RANK_BYTES = 200_000_000


def check_processes(
    processes: int, chosen: Sequence[ChosenStrategy], options: ComparisonOptions
) -> None:
    """Refuse more processes than this machine has memory for, and a number that no row which
    shards by features has workers for. Raises ``BadParameter``, and what a name that is not known
    raises."""
    here = memory_bytes()
    if processes * RANK_BYTES > here:
        raise click.BadParameter(
            f"{processes} processes take {show_bytes(processes * RANK_BYTES)} or more, and this "
            f"machine has {show_bytes(here)} of memory; ask for {here // RANK_BYTES} at most.",
            param_hint="'--processes'",
        )

    from gnnbench.comparison import check_options, options_for
    from gnnbench.plugins import assemble, load

    registry = load(options.extra_plugins)
    registry.model(options.model)
    rows, settings = list_rows(registry, chosen, options), parse_settings(options.settings)
    check_options(rows, settings, registry)
    machine = load_machine(options.platform, processes)
    counts = []
    for row in rows:
        bundle = assemble(registry, row.parts, options_for(row, settings, registry))
        if bundle.by_features and row.mode == "full-graph":
            counts.append(len(bundle.placement.trainers(machine)))
    if counts and processes not in counts:
        at_work = " or ".join(map(str, sorted(set(counts))))
        raise click.BadParameter(
            f"{processes} are asked for, and {at_work} devices of {machine.name} are at work, one "
            f"for each process; ask for {counts[0]}, or set placement.accelerators.",
            param_hint="'--processes'",
        )


def list_rows(
    registry: Registry, chosen: Sequence[ChosenStrategy], options: ComparisonOptions
) -> tuple[PlannedRow, ...]:
    """The rows that were asked for, with and without their swaps, in every mode they may have."""
    from gnnbench.comparison import PlannedRow, Variant, plan_row
    from gnnbench.plugins import with_swap

    rows = []
    for name, swaps in chosen:
        strategy = registry.strategy(name)
        for mode in strategy.bundles:
            row = plan_row(Variant(name, swaps), strategy, mode, registry)
            swapped = with_swap(registry, row.parts, parse_swaps(options.swaps))
            rows += [row, PlannedRow(name, row.label, mode, swapped, swapped=True)]
    return tuple(rows)
