"""``gnnbench ablate``: what each part of one strategy earns."""

from __future__ import annotations

from dataclasses import replace

import click

from gnnbench.cli.compare import exit_status, prepare, run_comparison, write_results
from gnnbench.cli.options import (
    CommandLine,
    ComparisonOptions,
    comparison_options,
)


@click.command(short_help="Show what each part of a strategy earns.")
@click.argument("strategy")
@click.option(
    "--each-part",
    is_flag=True,
    help="Swap each part for the plain one, also where the strategy's paper has steps of its own.",
)
@comparison_options
@click.pass_obj
def ablate(line: CommandLine, strategy: str, each_part: bool, options: ComparisonOptions) -> int:
    """Train STRATEGY step by step, from a plain baseline to the whole, as its paper does.

    Where the paper has no steps, each part is swapped for the reference's, one at a time.
    Combinations that cannot work say why.
    """
    request, registry = prepare(line, [(strategy, ())], options)

    from gnnbench.comparison import plan_ablation
    from gnnbench.report.ablation import print_steps

    rows = plan_ablation(request, registry, each_part=each_part)
    comparison = run_comparison(line, replace(request, rows=rows), registry)
    steps = () if each_part else registry.strategy(strategy).ablation
    write_results(comparison, options, lambda console: print_steps(comparison, console, steps))
    return exit_status(comparison)
