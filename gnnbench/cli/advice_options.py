"""What ``matrix`` and ``advise`` are told, and the question that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gnnbench.cli.compare import ProgressBar, parse_fanouts, parse_settings, parse_swaps
from gnnbench.cli.options import (
    MODEL_NAMES,
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
from gnnbench.cli.values import check_widths
from gnnbench.preparation import count_cores, load_dataset, load_machine

if TYPE_CHECKING:
    from gnnbench.advice import Question
    from gnnbench.comparison import PlannedRow
    from gnnbench.platforms.machine import Platform
    from gnnbench.plugins import Registry
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
    """What ``matrix`` and ``advise`` were told, as it was typed."""

    dataset: str
    plugins: str | None
    layers: int
    hidden: int
    mode: Mode | None
    device_memory: str | None
    details: bool


def advice_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of a question; ``command`` is handed them together, as ``options``."""
    return gather_options(AdviceOptions, _OPTIONS, check_options, command)


def check_options(options: AdviceOptions) -> None:
    """Refuse what cannot be, before the first slow import."""
    check_widths(1, options.hidden, options.layers, 1, dense=options.model in MODEL_NAMES)
    parse_fanouts(options.fanouts, options.layers)
    parse_settings(options.settings)
    parse_swaps(options.swaps)
    read_size(options.device_memory)
    options.check_files()


def read_size(text: str | None) -> int | None:
    """The bytes of ``--device-memory``."""
    if text is None:
        return None

    from gnnbench.units import parse_bytes

    try:
        size = parse_bytes(text)
    except ValueError:
        size = 0
    if size <= 0:
        raise click.BadParameter(
            f"{text!r} is not a size above 0, such as 24GB.", param_hint="'--device-memory'"
        )
    return size


def make_question(options: AdviceOptions) -> Question:
    """The question that was asked."""
    from gnnbench.advice import Question
    from gnnbench.advice.questions import MODES
    from gnnbench.advice.variations import with_device_memory
    from gnnbench.comparison.rows import check_names
    from gnnbench.records import Workload

    registry = load_registry(options.extra_plugins)
    registry.model(options.model)
    names = split_names(options.plugins)
    platform = choose_platform(options, registry, names)
    size = read_size(options.device_memory)
    if size is not None:
        platform = with_device_memory(platform, size)
    dataset = load_dataset(options.dataset, options.seed)
    between = [options.hidden] * (options.layers - 1)
    workload = Workload(
        model=options.model,
        dims=(dataset.num_features, *between, dataset.num_classes),
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=parse_fanouts(options.fanouts, options.layers),
        seed=options.seed,
        threads=options.threads or count_cores(),
    )
    kept = parse_swaps(options.swaps)
    settings = parse_settings(options.settings)
    check_names(kept, settings, registry)
    modes = MODES if options.mode is None else (options.mode,)
    return Question(dataset, workload, platform, registry, modes, names, kept, settings)


def split_names(text: str | None) -> tuple[str, ...]:
    """The strategies of ``--plugins``, none where all are meant."""
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("name at least one strategy.", param_hint="'--plugins'")
    return names


def choose_platform(options: AdviceOptions, registry: Registry, names: Sequence[str]) -> Platform:
    """The machine that was named, or that of the first strategy."""
    own = registry.strategy(names[0]).platform if names else ""
    for name in names[1:]:
        registry.strategy(name)
    return load_machine(options.platform, own=own)


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
