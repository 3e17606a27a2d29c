"""``gnnbench compare``: train each strategy on one dataset and print who wins, and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import click

from gnnbench import signals
from gnnbench.cli.earlier import compare_earlier
from gnnbench.cli.options import (
    MODEL_NAMES,
    PART_NAMES,
    STDOUT,
    CommandLine,
    ComparisonOptions,
    FilePath,
    check_comparison_files,
    comparison_options,
    load_registry,
    open_console,
)
from gnnbench.cli.processes import end_with_starter, run_ranks
from gnnbench.cli.screen import make_console
from gnnbench.cli.values import (
    MOST_NEIGHBOURS,
    MOST_PROCESSES,
    WholeNumber,
    check_widths,
    read_list,
    shorten,
)
from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.rank import is_watched

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from gnnbench.comparison import Request
    from gnnbench.parts import Placement
    from gnnbench.platforms.machine import Platform
    from gnnbench.plugins import Registry
    from gnnbench.records import Comparison, Dataset, PartKind, Workload
    from gnnbench.run.collectives import Processes

    #: A strategy's name, and the parts that it is to have instead of its own.
    ChosenStrategy = tuple[str, tuple[tuple[PartKind, str], ...]]


@click.command(short_help="Train strategies on one dataset and compare them.")
@click.argument("earlier", nargs=-1, type=FilePath(), metavar="[A.json B.json]")
@click.option(
    "--plugins",
    "strategies",
    metavar="A,B[,C...]",
    help="The strategies to compare, by name; see 'gnnbench plugins'. A:PART=NAME is A with that "
    "part instead of its own, such as hongtu:kernel=native.",
)
@click.option(
    "--processes",
    type=WholeNumber(2, MOST_PROCESSES),
    metavar="N",
    help="Train strategies that shard by features in N processes, one a device, as under torchrun; "
    "others run in one of them. Without --platform on N workers made of this machine.",
)
@click.option(
    "--patience",
    "patience_s",
    type=WholeNumber(1, 86_400),
    default=60,
    show_default=True,
    metavar="S",
    help="With processes: after how many seconds in one step the others give up a rank that does "
    "not come. One that ends is noticed at once.",
)
@click.option(
    "--plain/--no-plain",
    default=True,
    help="Also run, beside each strategy, the one with plain parts that it is to be better than.  "
    "[default: plain]",
)
@comparison_options
@click.pass_obj
def compare(
    line: CommandLine,
    earlier: tuple[Path, ...],
    strategies: str | None,
    processes: int | None,
    patience_s: int,
    plain: bool,
    options: ComparisonOptions,
) -> int:
    """Train each strategy on one dataset, and compare losses, times and traffic.

    Every strategy really trains. Times are measured where the platform's devices exist here, and
    modelled where they do not.

    With two files that --json has written, A.json and B.json, nothing is trained: what is faster or
    slower in B than in A is said, and status 1 where something is slower.
    """
    if earlier:
        return compare_earlier(earlier, options.json_path)
    if strategies is None:
        raise click.UsageError(
            "no strategies are named; name them by --plugins A,B, or two result files to compare."
        )
    chosen = parse_strategies(strategies)
    ranks = int(os.environ.get("WORLD_SIZE", 0)) if "RANK" in os.environ else 0
    if processes and not ranks:
        check_texts(options)

        from gnnbench.cli.workers import check_processes

        check_processes(processes, chosen, options)
        return run_ranks(line.words[1:], processes, patience_s)
    if processes and processes != ranks:
        raise click.BadParameter(
            f"this is one of {ranks} ranks, and {processes} are asked for; leave --processes out "
            f"under torchrun.",
            param_hint="'--processes'",
        )
    if ranks > 1:
        return compare_as_rank(line, chosen, options, ranks, patience_s, plain=plain)
    request, registry = prepare(line, chosen, options)
    comparison = run_comparison(line, replace(request, plain=plain), registry)
    write_results(comparison, options)
    return exit_status(comparison)


def compare_as_rank(
    line: CommandLine,
    chosen: Sequence[ChosenStrategy],
    options: ComparisonOptions,
    ranks: int,
    patience_s: int,
    *,
    plain: bool,
) -> int:
    """The comparison as one of several ranks, of which the first writes and prints."""
    if is_watched():
        end_with_starter()
    request, registry = prepare(line, chosen, options, ranks)
    request = replace(request, plain=plain)

    from gnnbench.comparison import serve
    from gnnbench.run.collectives import PeerLost, join, leave

    try:
        processes = join(patience_s)
        if processes.rank:
            serve(request, registry, processes)
            leave()
            return 0
        comparison = run_comparison(line, request, registry, processes)
    except PeerLost as error:
        if is_watched():
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
    check_comparison_files(options)


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
    check_comparison_files(options)

    registry = load_registry(options.extra_plugins)
    for name, own_swaps in chosen:
        registry.strategy(name)
        for kind, part in own_swaps:
            registry.part(kind, part)
    model = registry.model(options.model)

    import torch

    from gnnbench.comparison import Request, Variant
    from gnnbench.datasets import scale_features

    if line.debug:
        os.environ["GNNBENCH_DEBUG"] = "1"  # a run that fails then raises
    threads = options.threads or max(1, count_cores() // ranks)
    torch.set_num_threads(threads)
    own = registry.strategy(chosen[0][0]).platform
    machine = load_machine(options.platform, ranks, find_placements(registry, chosen), own)
    data = scale_features(load_dataset(options.dataset, options.seed), options.scaling)
    dense = options.model in MODEL_NAMES
    check_widths(data.num_features, options.hidden, options.layers, data.num_classes, dense=dense)
    workload = make_workload(options, data, counts, model.learning_rate, threads)
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
        same_seed=options.same_seed,
    )
    return request, registry


def make_workload(
    options: ComparisonOptions,
    data: Dataset,
    fanouts: tuple[int, ...],
    learning_rate: float,
    threads: int,
) -> Workload:
    """What is trained; ``learning_rate`` is the model's, where none was asked for."""
    from gnnbench.records import Workload

    hidden = [options.hidden] * (options.layers - 1)
    return Workload(
        model=options.model,
        dims=(data.num_features, *hidden, data.num_classes),
        epochs=options.epochs,
        batch_size=options.batch_size,
        fanouts=fanouts,
        seed=options.seed,
        learning_rate=options.learning_rate or learning_rate,
        threads=threads,
    )


def run_comparison(
    line: CommandLine,
    request: Request,
    registry: Registry,
    processes: Processes | None = None,
) -> Comparison:
    """Run every row, with a bar that shows how far it is; with the other ``processes``, if any."""
    from gnnbench.comparison import compare as run

    with ProgressBar() as progress:
        return run(request, registry, progress, line.words, processes)


def exit_status(comparison: Comparison) -> int:
    """130 or 143 after a signal, 3 when a run failed unexpectedly, 4 when none is done, 1 when one
    is not equal, else 0.

    Running out of device memory is an answer, not a failure.
    """
    runs = comparison.runs
    if comparison.interrupted:
        where = comparison.interrupted.removeprefix("interrupted").removesuffix(".")
        return signals.say(where)
    if any(run.status == "error" for run in runs):
        return 3
    if not any(run.status == "done" for run in runs):
        return 4
    unequal = any(run.equivalence is not None and not run.equivalence.holds for run in runs)
    return 1 if unequal else 0


def write_results(
    comparison: Comparison,
    options: ComparisonOptions,
    print_more: Callable[[Console], None] | None = None,
) -> None:
    """The table for people, what else they are to read, and then the files that were asked for.

    Raises as :func:`gnnbench.results.output.write_all` does, after all others have been written.
    """
    from gnnbench.report.comparison import print_comparison
    from gnnbench.results.output import write_all

    json_path, trace_path, html_path = options.json_path, options.trace_path, options.html_path
    console = open_console(json_path)

    def print_all() -> None:
        print_comparison(comparison, console, details=options.details)
        if print_more is not None:
            print_more(console)

    outputs: list[tuple[str, Callable[[], None]]] = [("the table", print_all)]
    if json_path is not None:
        from gnnbench.results.schema import to_document, write_json

        target: Path | Literal["-"] = "-" if json_path == STDOUT else json_path
        name = "standard output" if json_path == STDOUT else str(json_path)
        outputs.append((name, lambda: write_json(to_document(comparison), target)))
    if trace_path is not None:
        from gnnbench.report.chrome import write_chrome_trace

        outputs.append((str(trace_path), lambda: write_chrome_trace(comparison, trace_path)))
    if html_path is not None:
        from gnnbench.report.html import write_html

        outputs.append((str(html_path), lambda: write_html(comparison, html_path)))
    write_all(outputs)


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
    hint, example = "'--fanouts'", "25,10 (0 stands for every neighbour)"
    counts = tuple(read_list(text, 0, MOST_NEIGHBOURS, hint, example))
    if len(counts) != layers:
        numbers = "number" if len(counts) == 1 else "numbers"
        raise click.BadParameter(
            f"{shorten(text)} has {len(counts)} {numbers} for {layers} layers; give one for each "
            f"layer.",
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
    made: list[Placement] = []
    for name in dict.fromkeys(names):
        try:
            part = registry.part("placement", name)()
        except (GnnbenchError, KeyboardInterrupt):
            raise
        except BaseException:
            continue  # it is made again for its own row, which then says why it cannot be
        if isinstance(part, Placement):
            made.append(part)
    return tuple(made)


def load_machine(
    spec: str | None,
    ranks: int = 1,
    placements: Sequence[Placement] = (),
    own: str = "",
) -> Platform:
    """The platform asked for, or the default: this machine where it has a CUDA device, else the
    first strategy's ``own`` machine, the usual one, or another bundled one, whichever is the first
    where all ``placements`` find something to train on."""
    if spec is None and ranks > 1:
        from gnnbench.platforms.workers import divide_machine

        return divide_machine(ranks)
    from gnnbench.platforms import describe

    if spec is not None:
        return describe.load_platform(spec)
    usual = describe.default_platform()
    bundled = (entry.name for entry in describe.list_platforms() if entry.name != describe.LOCAL)
    named = [own] if own and usual.virtual else []
    candidates = chain(
        map(describe.load_platform, named), (usual,), map(describe.load_platform, bundled)
    )
    return next((p for p in candidates if all(can_train(each, p) for each in placements)), usual)


def can_train(placement: Placement, platform: Platform) -> bool:
    """Whether the platform has a device that the placement trains on."""
    try:
        return bool(placement.trainers(platform))
    except UsageError:
        return False
    except KeyboardInterrupt:
        raise
    except BaseException:
        # It is asked again in its own run, where what it raises is that run's failure.
        return True


# --------------------------------------------------------------------------- progress


class ProgressBar:
    """A bar on standard error for the run at hand; nothing where that is not a terminal."""

    def __init__(self, unit: str = "epochs") -> None:
        self._unit = unit
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBar:
        signals.begin_work()
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn(self._unit),
                Elapsed(),
                console=make_console(sys.stderr),
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
        """A run starts, which takes ``total`` epochs; several may be under way."""
        if self._bars is not None:
            self._tasks[label] = self._bars.add_task(label, total=total)

    def advance(self, label: str, steps: int = 1) -> None:
        """An epoch is over, or several steps of something else."""
        if self._bars is not None and label in self._tasks:
            self._bars.advance(self._tasks[label], steps)

    def end(self, label: str, status: str) -> None:
        """A run is over; its bar goes, its row will be in the table."""
        if self._bars is not None and label in self._tasks:
            self._bars.remove_task(self._tasks.pop(label))
