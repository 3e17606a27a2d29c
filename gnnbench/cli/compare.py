"""``gnnbench compare``: train each strategy on one dataset and print who wins, and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    STDOUT,
    CommandLine,
    check_file,
    load_registry,
    open_console,
    plugin_option,
    shared_options,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gnnbench.platforms.machine import Platform
    from gnnbench.records import Comparison, Dataset, ModelName, PartKind

# Spelt out, not imported: `gnnbench --help` does without NumPy and torch. A test holds them equal.
MODEL_NAMES = ("gcn", "sage", "gin", "gat")
PART_NAMES = ("sampler", "placement", "communication", "memory", "kernel")

POSITIVE = click.IntRange(min=1)


@click.command(short_help="Train strategies on one dataset and compare them.")
@click.option(
    "--plugins",
    "strategies",
    required=True,
    metavar="A,B[,C...]",
    help="The strategies to compare, by name; see 'gnnbench plugins'.",
)
@click.option(
    "--dataset",
    metavar="NAME or FILE.npz",
    help="A dataset; see 'gnnbench datasets'.  [default: a labelled block model made in memory]",
)
@click.option(
    "--model",
    type=click.Choice(MODEL_NAMES),
    default="gcn",
    show_default=True,
    help="The GNN.",
)
@click.option("--layers", type=POSITIVE, default=2, show_default=True, help="Layers of the GNN.")
@click.option(
    "--hidden", type=POSITIVE, default=256, show_default=True, help="Width of hidden layers."
)
@click.option("--epochs", type=POSITIVE, default=3, show_default=True, help="Epochs to train each.")
@click.option(
    "--batch-size",
    type=POSITIVE,
    default=1024,
    show_default=True,
    help="Seeds of one mini-batch iteration, over all trainers together.",
)
@click.option(
    "--fanouts",
    metavar="N,N...",
    help="Neighbours to sample a vertex, a number for each layer, from the seeds outwards; 0 is "
    "every neighbour.  [default: 25,10, then 10 for each further layer]",
)
@click.option(
    "--platform",
    metavar="NAME or FILE.toml",
    help="The machine to run on or to model; see 'gnnbench platforms'.  [default: this machine "
    "where it has a CUDA device, else epyc7763x2-4xa5000]",
)
@click.option(
    "--swap",
    "swaps",
    multiple=True,
    metavar="PART=NAME",
    help="Put another part into the strategies. May be repeated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PART.option=value",
    help="Set an option of a part; 'gnnbench plugins show' lists them. May be repeated.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0.0, min_open=True),
    default=0.01,
    show_default=True,
    help="Adam's learning rate.",
)
@click.option(
    "--repeats", type=POSITIVE, default=1, show_default=True, help="Times to run each strategy."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed."
)
@click.option("--threads", type=POSITIVE, help="Threads to use.  [default: all cores]")
@click.option(
    "--target-accuracy",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    metavar="A",
    help="Also time how long it takes to reach this validation accuracy.",
)
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the last epoch's timelines as Chrome trace JSON, which Perfetto opens.",
)
@click.option(
    "--html",
    "html_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the comparison as one self-contained web page.",
)
@click.option("--no-check", is_flag=True, help="Do not hold losses against the plain reference.")
@plugin_option
@shared_options
@click.pass_obj
def compare(
    line: CommandLine,
    strategies: str,
    dataset: str | None,
    model: ModelName,
    layers: int,
    hidden: int,
    epochs: int,
    batch_size: int,
    fanouts: str | None,
    platform: str | None,
    swaps: tuple[str, ...],
    settings: tuple[str, ...],
    learning_rate: float,
    repeats: int,
    seed: int,
    threads: int | None,
    target_accuracy: float | None,
    trace_path: Path | None,
    html_path: Path | None,
    no_check: bool,
    extra_plugins: tuple[str, ...],
    json_path: Path | None,
) -> int:
    """Train each strategy on one dataset, and compare losses, times and traffic.

    Every strategy really trains. Times are measured where the platform's devices exist here, and
    modelled where they do not.
    """
    # Everything that can be refused is, before the first slow import.
    names = parse_strategies(strategies)
    counts = parse_fanouts(fanouts, layers)
    swapped = parse_swaps(swaps)
    options = parse_settings(settings)
    check_outputs(json_path, trace_path, html_path)

    registry = load_registry(extra_plugins)
    for name in names:
        registry.strategy(name)

    import torch

    from gnnbench import compare as comparing
    from gnnbench.records import Workload

    if line.debug:
        os.environ["GNNBENCH_DEBUG"] = "1"  # a run that fails then raises
    used_threads = threads or count_cores()
    torch.set_num_threads(used_threads)
    machine = load_machine(platform)
    data = load_dataset(dataset, seed)
    workload = Workload(
        model=model,
        dims=(data.num_features, *[hidden] * (layers - 1), data.num_classes),
        epochs=epochs,
        batch_size=batch_size,
        fanouts=counts,
        seed=seed,
        learning_rate=learning_rate,
        threads=used_threads,
    )
    request = comparing.Request(
        strategies=names,
        dataset=data,
        workload=workload,
        platform=machine,
        swaps=swapped,
        options=options,
        repeats=repeats,
        target_accuracy=target_accuracy,
        check=not no_check,
    )
    with ProgressBar() as progress:
        comparison = comparing.compare(request, registry, progress, line.words)
    write_results(comparison, json_path, trace_path, html_path)
    return exit_status(comparison)


def exit_status(comparison: Comparison) -> int:
    """3 when a run failed unexpectedly, 4 when none is done, 1 when one is not equal, else 0.

    Running out of device memory is an answer, not a failure.
    """
    runs = comparison.runs
    if any(run.status == "error" for run in runs):
        return 3
    if not any(run.status == "done" for run in runs):
        return 4
    unequal = any(run.equivalence is not None and not run.equivalence.holds for run in runs)
    return 1 if unequal else 0


def write_results(
    comparison: Comparison, json_path: Path | None, trace_path: Path | None, html_path: Path | None
) -> None:
    """The files that were asked for, then the table for people."""
    from gnnbench.report.table import print_comparison

    if json_path is not None:
        from gnnbench.results.schema import to_document, write_json

        write_json(to_document(comparison), "-" if json_path == STDOUT else json_path)
    if trace_path is not None:
        from gnnbench.report.chrome import write_chrome_trace

        write_chrome_trace(comparison, trace_path)
    if html_path is not None:
        from gnnbench.report.html import write_html

        write_html(comparison, html_path)
    print_comparison(comparison, open_console(json_path))


# --------------------------------------------------------------------------- reading the options


def parse_strategies(text: str) -> tuple[str, ...]:
    """``"hyscale,hongtu"`` as names, each once."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise click.BadParameter(
            f"{text!r} has an empty name; write it as A,B.", param_hint="'--plugins'"
        )
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(
                f"{name!r} is named twice; name it once, and use --repeats to run it again.",
                param_hint="'--plugins'",
            )
    return names


def parse_fanouts(text: str | None, layers: int) -> tuple[int, ...]:
    """One number a layer, from the seeds outwards; 25, 10, 10, ... unless told."""
    if text is None:
        return (25, *[10] * (layers - 1))
    hint = "'--fanouts'"
    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a list of whole numbers such as 25,10.", param_hint=hint
        ) from None
    if min(counts) < 0:
        raise click.BadParameter(
            f"{min(counts)} is negative; 0 stands for every neighbour.", param_hint=hint
        )
    if len(counts) != layers:
        numbers = "number" if len(counts) == 1 else "numbers"
        raise click.BadParameter(
            f"{text!r} has {len(counts)} {numbers} for {layers} layers; give one for each layer.",
            param_hint=hint,
        )
    return counts


def parse_swaps(texts: Sequence[str]) -> tuple[tuple[PartKind, str], ...]:
    """``communication=hongtu`` as a kind of part and a part's name."""
    swaps = []
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(
                f"{text!r} is not PART=NAME, such as communication=hongtu.", param_hint="'--swap'"
            )
        swaps.append((_part_kind(kind, "'--swap'"), name.strip()))
    return tuple(swaps)


def parse_settings(texts: Sequence[str]) -> dict[PartKind, dict[str, str]]:
    """``memory.device_bytes=2GB`` as texts by kind of part and option."""
    options: dict[PartKind, dict[str, str]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        kind, dot, option = target.partition(".")
        if not equals or not dot or not option.strip():
            raise click.BadParameter(
                f"{text!r} is not PART.option=value, such as memory.device_bytes=2GB.",
                param_hint="'--set'",
            )
        of_part = options.setdefault(_part_kind(kind, "'--set'"), {})
        if option.strip() in of_part:
            raise click.BadParameter(f"{target} is set twice; keep one.", param_hint="'--set'")
        of_part[option.strip()] = value.strip()
    return options


def _part_kind(text: str, hint: str) -> PartKind:
    for kind in PART_NAMES:
        if text.strip() == kind:
            return kind  # type: ignore[return-value]
    raise click.BadParameter(
        f"there is no part {text!r}; the parts are {', '.join(PART_NAMES)}.", param_hint=hint
    )


def check_outputs(json_path: Path | None, *others: Path | None) -> None:
    """Refuse output files that cannot be written, or that would overwrite each other."""
    if STDOUT in others:
        raise click.UsageError("only --json may go to standard output ('-'); name a file.")
    paths = (json_path, *others)
    seen: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        check_file(path)
        if path.resolve() in seen:
            raise click.UsageError(f"{path} is named for two outputs; give each its own file.")
        seen.add(path.resolve())


def count_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_dataset(spec: str | None, seed: int) -> Dataset:
    from gnnbench import datasets

    return datasets.default_dataset(seed) if spec is None else datasets.load(spec, seed=seed)


def load_machine(spec: str | None) -> Platform:
    from gnnbench.platforms import describe

    return describe.default_platform() if spec is None else describe.load_platform(spec)


# --------------------------------------------------------------------------- progress


class ProgressBar:
    """A bar on standard error for the run at hand; nothing where that is not a terminal."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("epochs"),
                Elapsed(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, label: str, total: int) -> None:
        """A run starts; ``total`` epochs, the check's included."""
        if self._bars is not None:
            self._task = self._bars.add_task(label, total=total)

    def advance(self, label: str) -> None:
        """An epoch is over."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task)

    def end(self, label: str, status: str) -> None:
        """A run is over; its bar goes, its row will be in the table."""
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
