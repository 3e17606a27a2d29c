"""``gnnbench ablate``: what each part of one strategy contributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import Ranks, run_rows
from gnnbench.cli.options import Asked, CommandLine, takes, voice_options
from gnnbench.cli.outputs import Outputs
from gnnbench.cli.resuming import resume_option
from gnnbench.errors import UsageError
from gnnbench.jobs.job import Job
from gnnbench.jobs.options import list_bound

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.comparison import PlannedRow, Request
    from gnnbench.plugins import Registry
    from gnnbench.records import Comparison


@click.command(short_help="Show what each part of a strategy contributes.")
@click.argument("strategy")
@click.option(
    "--each-part",
    is_flag=True,
    help="Swap each part for the plain one, even if the strategy's paper has another series of "
    "steps.",
)
@takes(Job, "ablate", optional=("strategies",))
@takes(Outputs, "ablate", into="outputs")
@resume_option
@voice_options
@click.pass_obj
def ablate(
    line: CommandLine,
    strategy: str,
    each_part: bool,
    asked: Asked[Job],
    outputs: Asked[Outputs],
    resumed: bool,
) -> int:
    """Train variants of STRATEGY, from a plain baseline to all of its ideas, as in its paper.

    If the paper has no steps, each part is swapped for the reference's, one at a time. A
    combination that cannot work is refused with its reason.
    """

    def find_rows(request: Request, registry: Registry) -> tuple[PlannedRow, ...]:
        from gnnbench.comparison import plan_ablation

        return plan_ablation(request, registry, each_part=each_part)

    def print_more(comparison: Comparison, registry: Registry, console: Console) -> None:
        from gnnbench.report.ablation import print_steps

        steps = () if each_part else registry.strategy(strategy).ablation
        print_steps(comparison, console, steps)

    if {",", ":"} & set(strategy):
        raise UsageError(f"strategy is {strategy!r}; give one name, and swap parts by --swap.")
    job = asked.make(strategies=strategy, plain=False)
    demanded = tuple(str(each.flag) for each in list_bound(Job, asked.typed))
    return run_rows(
        line,
        job,
        demanded,
        outputs.make(),
        Ranks(),
        resumed=resumed,
        find_rows=find_rows,
        print_more=print_more,
    )
