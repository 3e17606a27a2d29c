"""Checks that a number of processes can train the rows, before any of them is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gnnbench.host.cores import memory_bytes
from gnnbench.jobs.capacity import show_bytes
from gnnbench.jobs.job import Job
from gnnbench.jobs.preparation import load_machine

if TYPE_CHECKING:
    from gnnbench.comparison import PlannedRow
    from gnnbench.plugins import Registry

#: Bytes of a rank that has loaded only the interpreter, torch and the plugins.
RANK_BYTES = 200_000_000


def check_processes(processes: int | None, job: Job) -> int:
    """Return how many processes train the rows; 0 if each row trains in one.

    Without a number in ``processes``, it is the largest number of devices of a row. Raises
    ``BadParameter`` if this machine lacks memory for the processes, or if no row has that many
    devices; unknown names raise too.
    """
    here = memory_bytes()
    if processes is not None and processes * RANK_BYTES > here:
        raise click.BadParameter(
            f"{processes} processes take {show_bytes(processes * RANK_BYTES)} or more, and this "
            f"machine has {show_bytes(here)} of memory; ask for {here // RANK_BYTES} at most.",
            param_hint="'--processes'",
        )

    from gnnbench.comparison import check_options, options_for
    from gnnbench.machines.ranks import assign_ranks
    from gnnbench.plugins import assemble, load

    registry = load(list(map(str, job.plugins)))
    registry.model(job.model_name)
    rows, settings = list_rows(registry, job), job.settings
    check_options(rows, settings, registry)
    machine = load_machine(job.platform, processes)
    counts = []
    for row in rows:
        bundle = assemble(registry, row.parts, options_for(row, settings, registry))
        count = 1 + max(assign_ranks(bundle.placement.trainers(machine), machine))
        if count > 1:
            counts.append(count)
    if processes is None:
        return max(counts, default=0)
    if counts and processes not in counts:
        at_work = " or ".join(map(str, sorted(set(counts))))
        raise click.BadParameter(
            f"{processes} are asked for, and {at_work} devices of {machine.name} are at work, one "
            f"for each process; ask for {counts[0]}, or set placement.accelerators.",
            param_hint="'--processes'",
        )
    return processes


def list_rows(registry: Registry, job: Job) -> tuple[PlannedRow, ...]:
    """Return the requested rows, with and without their swaps, in every mode they may have."""
    from gnnbench.comparison import PlannedRow, Variant, plan_row
    from gnnbench.plugins import with_swap

    rows = []
    for name, swaps in job.chosen:
        strategy = registry.strategy(name)
        for mode in strategy.bundles:
            row = plan_row(Variant(name, swaps), strategy, mode, registry)
            swapped = with_swap(registry, row.parts, job.swaps)
            rows += [row, PlannedRow(name, row.label, mode, swapped, swapped=True)]
    return tuple(rows)
