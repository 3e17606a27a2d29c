"""The options of ``matrix`` and ``advise``, and the question that is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import (
    ProgressBar,
    parse_fanouts,
    parse_settings,
    parse_swaps,
    said_of,
)
from gnnbench.cli.options import (
    Decorator,
    TrainingOptions,
    batch_size_option,
    epochs_option,
    fanouts_option,
    gather_options,
    hidden_option,
    layers_option,
    load_registry,
    mode_option,
    model_option,
    platform_option,
    plugin_option,
    seed_option,
    set_option,
    shared_options,
    swap_option,
    threads_option,
)
from gnnbench.jobs.preparation import AdviceJob, list_names, read_size

if TYPE_CHECKING:
    from gnnbench.advice import Question
    from gnnbench.comparison import PlannedRow
    from gnnbench.records import Mode

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--dataset",
        metavar="NAME or FILE.npz",
        required=True,
        help="The graph to train on; see 'gnnbench datasets'.",
    ),
    click.option(
        "--plugins",
        metavar="A,B,...",
        help="Combine the parts of these strategies alone.  [default: all that are installed]",
    ),
    model_option,
    layers_option,
    hidden_option,
    mode_option("Answer for this mode alone.  [default: for both, apart]"),
    epochs_option(1, "Epochs to go through."),
    batch_size_option,
    fanouts_option("Neighbours to sample a vertex, as in 'gnnbench compare'."),
    platform_option(
        "The machine to use; see 'gnnbench platforms'.  [default: as in 'gnnbench compare']"
    ),
    click.option(
        "--device-memory",
        metavar="SIZE",
        help="As if each accelerator had so much memory, such as 24GB.",
    ),
    swap_option("Combine with this part alone, such as sampler=neighbour."),
    set_option("Set an option of a part, which is then not searched."),
    seed_option,
    threads_option("Threads to plan and train with."),
    click.option("--details", is_flag=True, help="Print everything that was found."),
    plugin_option,
    shared_options,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOptions(TrainingOptions):
    """The options of ``matrix`` and ``advise``, as typed."""

    dataset: str
    plugins: str | None
    layers: int
    hidden: int
    mode: Mode | None
    device_memory: str | None
    details: bool


def advice_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a question to ``command``, which receives them as ``options``."""
    return gather_options(AdviceOptions, _OPTIONS, command)


def make_question(options: AdviceOptions) -> Question:
    """Return the question that the options ask."""
    # Refuse wrong usage before the first slow import.
    job = AdviceJob(
        dataset=options.dataset,
        strategies=split_names(options.plugins),
        model=options.model,
        layers=options.layers,
        hidden=options.hidden,
        mode=options.mode,
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=parse_fanouts(options.fanouts),
        platform=options.platform,
        device_memory=options.device_memory,
        swaps=parse_swaps(options.swaps),
        options=parse_settings(options.settings),
        seed=options.seed,
        threads=options.threads,
    )
    with said_of("'--device-memory'"):
        read_size(options.device_memory)
    options.check_files()
    names = list_names([(name, ()) for name in job.strategies], job.model, job.swaps)
    registry = load_registry(options.extra_plugins, names)

    from gnnbench.advice import preparation

    return preparation.make_question(job, registry)


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the strategies of ``--plugins``; none means all of them."""
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("name at least one strategy.", param_hint="'--plugins'")
    return names


class PlanProgress:
    """A bar on a terminal that counts the combinations planned so far."""

    def __init__(self, total: int) -> None:
        self._bar = ProgressBar("plans")
        self._total = total

    def __enter__(self) -> PlanProgress:
        self._bar.__enter__()
        self._bar.begin("planning", self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__(None, None, None)

    def watch(self, _: PlannedRow) -> None:
        """Count one more planned combination."""
        self._bar.advance("planning")
