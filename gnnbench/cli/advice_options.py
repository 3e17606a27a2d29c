"""What ``matrix`` and ``advise`` are told, and the question that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
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
    MODEL_NAMES,
    POSITIVE,
    SEED,
    THREADS,
    check_files,
    load_registry,
    plugin_option,
    shared_options,
)
from gnnbench.cli.values import check_threads, check_widths

if TYPE_CHECKING:
    from gnnbench.advice import Question
    from gnnbench.comparison import PlannedRow
    from gnnbench.records import Mode

_OPTIONS: tuple[Callable[[Callable[..., int]], Callable[..., int]], ...] = (
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
    click.option(
        "--model",
        metavar="NAME",
        default="gcn",
        show_default=True,
        help=f"The GNN: {', '.join(MODEL_NAMES)}, or one that a plugin offers.",
    ),
    click.option(
        "--layers", type=POSITIVE, default=2, show_default=True, help="Layers of the GNN."
    ),
    click.option(
        "--hidden", type=POSITIVE, default=256, show_default=True, help="Width of hidden layers."
    ),
    click.option(
        "--mode",
        type=click.Choice(("full-graph", "mini-batch")),
        help="Answer for this mode alone.  [default: for both, apart]",
    ),
    click.option(
        "--epochs", type=POSITIVE, default=1, show_default=True, help="Epochs to go through."
    ),
    click.option(
        "--batch-size",
        type=POSITIVE,
        default=1024,
        show_default=True,
        help="Seeds of one mini-batch iteration, over all trainers together.",
    ),
    click.option(
        "--fanouts",
        metavar="N,N...",
        help="Neighbours to sample a vertex, as in 'gnnbench compare'.  [default: 25,10, then 10 "
        "for each further layer]",
    ),
    click.option(
        "--platform",
        metavar="NAME or FILE.toml",
        help="The machine to use; see 'gnnbench platforms'.  [default: as in 'gnnbench compare']",
    ),
    click.option(
        "--device-memory",
        metavar="SIZE",
        help="As if each accelerator had so much memory, such as 24GB.",
    ),
    click.option(
        "--swap",
        "swaps",
        multiple=True,
        metavar="PART=NAME",
        help="Combine with this part alone, such as sampler=neighbour. May be repeated.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PART.option=value",
        help="Set an option of a part, which is then not searched. May be repeated.",
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed."),
    click.option(
        "--threads",
        type=THREADS,
        callback=check_threads,
        help="Threads to plan and train with.  [default: all cores]",
    ),
    click.option("--details", is_flag=True, help="Print everything that was found."),
    plugin_option,
    shared_options,
)


@dataclass(frozen=True, slots=True)
class AdviceOptions:
    """What ``matrix`` and ``advise`` were told, as it was typed."""

    dataset: str
    plugins: str | None
    model: str
    layers: int
    hidden: int
    mode: Mode | None
    epochs: int
    batch_size: int
    fanouts: str | None
    platform: str | None
    device_memory: str | None
    swaps: tuple[str, ...]
    settings: tuple[str, ...]
    seed: int
    threads: int | None
    details: bool
    extra_plugins: tuple[str, ...]
    json_path: Path | None


def advice_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of a question; ``command`` is handed them together, as ``options``."""

    @wraps(command)
    def call(*given: object, **values: object) -> int:
        own = {field.name: values.pop(field.name) for field in fields(AdviceOptions)}
        options = AdviceOptions(**own)  # type: ignore[arg-type]
        check_widths(1, options.hidden, options.layers, 1, dense=options.model in MODEL_NAMES)
        check_texts(options)
        return command(*given, options=options, **values)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call


def check_texts(options: AdviceOptions) -> None:
    """Refuse what cannot be, before the first slow import."""
    parse_fanouts(options.fanouts, options.layers)
    parse_settings(options.settings)
    parse_swaps(options.swaps)
    read_size(options.device_memory)
    check_files(
        options.json_path,
        dataset=options.dataset,
        platform=options.platform,
        plugins=options.extra_plugins,
        settings=options.settings,
    )


def read_size(text: str | None) -> int | None:
    """The bytes of ``--device-memory``."""
    if text is None:
        return None

    from gnnbench.advice import preparation

    with said_of("'--device-memory'"):
        return preparation.read_size(text)


def make_question(options: AdviceOptions) -> Question:
    """The question that was asked."""
    from gnnbench.advice import preparation

    registry = load_registry(options.extra_plugins)
    job = preparation.AdviceJob(
        dataset=options.dataset,
        strategies=split_names(options.plugins),
        model=options.model,
        layers=options.layers,
        hidden=options.hidden,
        mode=options.mode,
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=parse_fanouts(options.fanouts, options.layers),
        platform=options.platform,
        device_memory=options.device_memory,
        swaps=parse_swaps(options.swaps),
        options=parse_settings(options.settings),
        seed=options.seed,
        threads=options.threads,
    )
    return preparation.make_question(job, registry)


def split_names(text: str | None) -> tuple[str, ...]:
    """The strategies of ``--plugins``, none where all are meant."""
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("name at least one strategy.", param_hint="'--plugins'")
    return names


class PlanProgress:
    """Counts plans on a terminal, of which nobody knows how many there will be."""

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
        """Another combination is planned."""
        self._bar.advance("planning")
