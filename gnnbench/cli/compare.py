"""``gnnbench compare``: train each strategy on one dataset and print who wins, and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    PART_NAMES,
    STDOUT,
    CommandLine,
    ComparisonOptions,
    check_file,
    comparison_options,
    load_registry,
    open_console,
)
from gnnbench.cli.processes import end_with_starter, run_ranks, watched
from gnnbench.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gnnbench.compare import Request
    from gnnbench.engine.collectives import Processes
    from gnnbench.parts import Placement
    from gnnbench.platforms.machine import Platform
    from gnnbench.plugins import Registry
    from gnnbench.records import Comparison, Dataset, PartKind

    #: A strategy's name, and the parts that it is to have instead of its own.
    ChosenStrategy = tuple[str, tuple[tuple[PartKind, str], ...]]


@click.command(short_help="Train strategies on one dataset and compare them.")
@click.option(
    "--plugins",
    "strategies",
    required=True,
    metavar="A,B[,C...]",
    help="The strategies to compare, by name; see 'gnnbench plugins'. A:PART=NAME is A with that "
    "part instead of its own, such as hongtu:kernel=native.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=2),
    metavar="N",
    help="Train strategies that shard by features in N processes, one a device, as under torchrun; "
    "others run in one of them. Without --platform on N workers made of this machine.",
)
@click.option(
    "--patience",
    "patience_s",
    type=click.IntRange(1, 86_400),
    default=60,
    show_default=True,
    metavar="S",
    help="With processes: after how many seconds in one step the others give up a rank that does "
    "not come. One that ends is noticed at once.",
)
@comparison_options
@click.pass_obj
def compare(
    line: CommandLine,
    strategies: str,
    processes: int | None,
    patience_s: int,
    options: ComparisonOptions,
) -> int:
    """Train each strategy on one dataset, and compare losses, times and traffic.

    Every strategy really trains. Times are measured where the platform's devices exist here, and
    modelled where they do not.
    """
    chosen = parse_strategies(strategies)
    ranks = int(os.environ.get("WORLD_SIZE", 0)) if "RANK" in os.environ else 0
    if processes and not ranks:
        check_texts(options)
        return run_ranks(line.words[1:], processes, patience_s)
    if processes and processes != ranks:
        raise click.BadParameter(
            f"this is one of {ranks} ranks, and {processes} are asked for; leave --processes out "
            f"under torchrun.",
            param_hint="'--processes'",
        )
    if ranks > 1:
        return compare_as_rank(line, chosen, options, ranks, patience_s)
    request, registry = prepare(line, chosen, options)
    comparison = run_comparison(line, request, registry)
    write_results(comparison, options)
    return exit_status(comparison)


def compare_as_rank(
    line: CommandLine,
    chosen: Sequence[ChosenStrategy],
    options: ComparisonOptions,
    ranks: int,
    patience_s: int,
) -> int:
    """The comparison as one of several ranks, of which the first writes and prints."""
    if watched():
        end_with_starter()
    request, registry = prepare(line, chosen, options, ranks)

    from gnnbench.compare import serve
    from gnnbench.engine.collectives import PeerLost, join, leave

    try:
        processes = join(patience_s)
        if processes.rank:
            serve(request, registry, processes)
            leave()
            return 0
        comparison = run_comparison(line, request, registry, processes)
    except PeerLost as error:
        if watched():
            return error.exit_status  # whoever watches the ranks knows which one it was
        raise
    write_results(comparison, options)
    leave()
    return exit_status(comparison)


def check_texts(options: ComparisonOptions) -> None:
    """Refuse what can be refused without a slow import."""
    parse_fanouts(options.fanouts, options.layers)
    parse_swaps(options.swaps)
    parse_settings(options.settings)
    check_outputs(options.json_path, options.trace_path, options.html_path)


def prepare(
    line: CommandLine, chosen: Sequence[ChosenStrategy], options: ComparisonOptions, ranks: int = 1
) -> tuple[Request, Registry]:
    """What to compare, with its data and its machine, and the plugins to do it with.

    Of several ``ranks``, each has its share of this machine's cores.
    """
    # Everything that can be refused is, before the first slow import.
    counts = parse_fanouts(options.fanouts, options.layers)
    swaps = parse_swaps(options.swaps)
    settings = parse_settings(options.settings)
    check_outputs(options.json_path, options.trace_path, options.html_path)

    registry = load_registry(options.extra_plugins)
    for name, own_swaps in chosen:
        registry.strategy(name)
        for kind, part in own_swaps:
            registry.part(kind, part)
    registry.model(options.model)

    import torch

    from gnnbench.compare import Request, Variant
    from gnnbench.records import Workload

    if line.debug:
        os.environ["GNNBENCH_DEBUG"] = "1"  # a run that fails then raises
    threads = options.threads or max(1, count_cores() // ranks)
    torch.set_num_threads(threads)
    machine = load_machine(options.platform, ranks, find_placements(registry, chosen))
    data = load_dataset(options.dataset, options.seed)
    workload = Workload(
        model=options.model,
        dims=(
            data.num_features,
            *[options.hidden] * (options.layers - 1),
            data.num_classes,
        ),
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=counts,
        seed=options.seed,
        learning_rate=options.learning_rate,
        threads=threads,
    )
    request = Request(
        strategies=tuple(
            Variant(name, own_swaps) if own_swaps else name for name, own_swaps in chosen
        ),
        dataset=data,
        workload=workload,
        platform=machine,
        swaps=swaps,
        options=settings,
        repeats=options.repeats,
        target_accuracy=options.target_accuracy,
        check=not options.no_check,
    )
    return request, registry


def run_comparison(
    line: CommandLine,
    request: Request,
    registry: Registry,
    processes: Processes | None = None,
) -> Comparison:
    """Run every row, with a bar that shows how far it is; with the other ``processes``, if any."""
    from gnnbench.compare import compare as run

    with ProgressBar() as progress:
        return run(request, registry, progress, line.words, processes)


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


def write_results(comparison: Comparison, options: ComparisonOptions) -> None:
    """The files that were asked for, then the table for people."""
    from gnnbench.report.table import print_comparison

    json_path = options.json_path
    if json_path is not None:
        from gnnbench.results.schema import to_document, write_json

        write_json(to_document(comparison), "-" if json_path == STDOUT else json_path)
    if options.trace_path is not None:
        from gnnbench.report.chrome import write_chrome_trace

        write_chrome_trace(comparison, options.trace_path)
    if options.html_path is not None:
        from gnnbench.report.html import write_html

        write_html(comparison, options.html_path)
    print_comparison(comparison, open_console(json_path))


# --------------------------------------------------------------------------- reading the options


def parse_strategies(text: str) -> tuple[ChosenStrategy, ...]:
    """``"hyscale,hongtu:kernel=native"`` as names with their swaps, each once."""
    hint = "'--plugins'"
    chosen: list[ChosenStrategy] = []
    for word in text.split(","):
        name, *swaps = (part.strip() for part in word.split(":"))
        if not name:
            raise click.BadParameter(
                f"{text!r} has an empty name; write it as A,B.", param_hint=hint
            )
        each = (name, parse_swaps(swaps, hint))
        if each in chosen:
            raise click.BadParameter(
                f"{word.strip()!r} is named twice; name it once, and use --repeats to run it "
                f"again.",
                param_hint=hint,
            )
        chosen.append(each)
    return tuple(chosen)


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


def parse_swaps(texts: Sequence[str], hint: str = "'--swap'") -> tuple[tuple[PartKind, str], ...]:
    """``communication=hongtu`` as a kind of part and a part's name."""
    swaps = []
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(
                f"{text!r} is not PART=NAME, such as communication=hongtu.", param_hint=hint
            )
        swaps.append((_part_kind(kind, hint), name.strip()))
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


def find_placements(registry: Registry, chosen: Sequence[ChosenStrategy]) -> tuple[Placement, ...]:
    """The placements of the strategies that were named, with their swaps, in every mode."""
    from gnnbench.parts import Placement

    names = (
        dict(swaps).get("placement", parts.placement)
        for strategy, swaps in chosen
        for parts in registry.strategy(strategy).bundles.values()
    )
    found = (registry.part("placement", name)() for name in names)
    return tuple(part for part in found if isinstance(part, Placement))


def load_machine(
    spec: str | None, ranks: int = 1, placements: Sequence[Placement] = ()
) -> Platform:
    """The platform asked for, or the default: the usual one or, where some of ``placements`` finds
    nothing there to train on, the first bundled one where each does."""
    if spec is None and ranks > 1:
        from gnnbench.platforms.workers import divide_machine

        return divide_machine(ranks)
    from gnnbench.platforms import describe

    if spec is not None:
        return describe.load_platform(spec)
    usual = describe.default_platform()
    bundled = (entry.name for entry in describe.list_platforms() if entry.name != describe.LOCAL)
    candidates = chain((usual,), map(describe.load_platform, bundled))
    return next((p for p in candidates if all(can_train(each, p) for each in placements)), usual)


def can_train(placement: Placement, platform: Platform) -> bool:
    """Whether the platform has a device that the placement trains on."""
    try:
        return bool(placement.trainers(platform))
    except UsageError:
        return False


# --------------------------------------------------------------------------- progress


class ProgressBar:
    """A bar on standard error for the run at hand; nothing where that is not a terminal."""

    def __init__(self, unit: str = "epochs") -> None:
        self._unit = unit
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
                TextColumn(self._unit),
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

    def advance(self, label: str, steps: int = 1) -> None:
        """An epoch is over, or several steps of something else."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, steps)

    def end(self, label: str, status: str) -> None:
        """A run is over; its bar goes, its row will be in the table."""
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
