"""``python -m suites.predict_local``: predicted and measured epochs on this machine.

It covers every strategy that runs on this machine's devices, with three models on three graphs. An
epoch is predicted from a probe (``gnnbench platforms probe``) before each graph, and from the
strategy's design phase if it has one. Then it is trained. The strategies of a mode take turns, so
that other load disturbs all alike, and the median epoch counts. A turn has several consecutive
epochs, as in training. Its first does not count, because it finds the data of other strategies in
the caches. Strategies that cannot run are listed below, with the reason.

``--calibrate-by NAME`` calibrates the probed platform by the epoch of that name, such as "native
full-graph gcn cora", as ``gnnbench platforms calibrate`` does. It may be repeated. The errors of
all other epochs are printed before and after. Each is also predicted by the other epochs of its
kernel and mode.

For libraries that compute the same result, the ratio of two epochs says which to use. Modelled
ratios are printed beside measured ones.

The speed of a shared machine changes within ten minutes. Everything is therefore done in several
consecutive ``--runs``, each with separate probes and predictions. The shortest prediction of an
epoch is compared with its shortest time, since other programs make both longer. Results by the
medians of the runs, and for each run, are printed as well. ``--join`` adds earlier runs written
with ``--json``. Fixed pieces of work are timed around each probe and between the turns
(``suites.yardstick``). They show how much slower the machine was in training than in the probe.
Errors are printed with and without this slowdown.

Predictions are compared with the wall clock, or with the processor time for ``--threads 1``, which
stops while other programs run. The first two turns of each strategy are not counted. Arrays of all
strategies are interleaved in memory. First touches of pages in the second turn have made an epoch
up to five times as long.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from statistics import median
from typing import NamedTuple, get_args

import click
import torch

from gnnbench import datasets, plugins
from gnnbench.comparison import Options, make_setting
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.kernels.pages import keep_pages, trim_heap
from gnnbench.machines import load_platform
from gnnbench.machines.local import count_physical_cores
from gnnbench.machines.machine import Platform, name_path
from gnnbench.machines.probe import probe
from gnnbench.machines.timing import torch_threads
from gnnbench.machines.workers import take_cores
from gnnbench.models import build
from gnnbench.models.products import projected_layers
from gnnbench.parts import Bundle, Setting, option_fields
from gnnbench.plugins import Registry
from gnnbench.price.calibration import MeasuredEpoch, take_bare
from gnnbench.price.design_phase import with_design_phase
from gnnbench.price.dry_run import DryRun
from gnnbench.price.epochs import price_epochs
from gnnbench.price.folds import Digest, busy_by_stage
from gnnbench.price.wall_clock import WallClock
from gnnbench.probing import probe_libraries
from gnnbench.records import STAGES, Dataset, EpochTrace, Mode, Stage
from gnnbench.run import Training, train
from suites.epochs import make_request
from suites.predictions import (
    Cell,
    Refused,
    describe,
    describe_calibration,
    find_ratios,
    join_runs,
    list_runs,
    list_sentences,
    name_epoch,
    read_runs,
    write_json,
)
from suites.yardstick import Lengths, Yardstick, find_slowdown, middle, shorter

GRAPHS = ("cora", "amazon_photo", "ego_twitter")
MODELS = ("gcn", "sage", "gat")
#: Turns of each strategy that do not count. The first makes all persistent data, after which free
#: memory is returned. The second touches the memory that is kept from then on for the first time.
WARM_TURNS = 2
#: The fewest turns of each strategy that count in a run, and the seconds of each.
FEWEST_TURNS = 1
TURN_S = 0.3
#: Measurements of the yardstick before a probe, and again after it.
MEASURED = 25


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe of this machine, and the yardstick's times at the probe, if measured."""

    platform: Platform
    yardstick: Yardstick
    lengths: Lengths | None = None


class Taken(NamedTuple):
    """An epoch's seconds by the judging clock and by the wall clock, in stages, and outside them.

    The latter two are by the judging clock.
    """

    judged_s: float
    wall_s: float
    stages_s: Mapping[Stage, float]
    harness_s: float


@dataclass(slots=True)
class Entrant:
    """A strategy that takes turns: its training, and the number of epochs trained.

    ``predicted_s`` is the predicted epoch, and ``planned`` the plan without a platform's
    calibration and without the time of steps.
    """

    strategy: str
    kernel: str
    training: Training
    predicted_s: float
    planned: Digest
    epochs: int = 0

    def take_turn(self, cores: int) -> list[Taken]:
        """Return consecutive epochs without the first; on one core processor time judges."""
        taken: list[Taken] = []
        while len(taken) < 2 or sum(each.wall_s for each in taken) < TURN_S:
            began_s = time.process_time()
            epoch = self.training.run_epoch(self.epochs)
            processor_s, wall_s = time.process_time() - began_s, epoch.wall_s
            judged = in_processor_time(epoch, processor_s) if cores == 1 else epoch
            judged_s = processor_s if cores == 1 else wall_s
            harness_s = judged.harness_s * judged.wall_s / wall_s
            taken.append(Taken(judged_s, wall_s, busy_by_stage(judged.spans), harness_s))
            self.epochs += 1
        return taken[1:]


def recall(threads: int) -> Probed:
    """Return ``threads`` cores of this machine (0: all) as last probed."""
    platform = _take(load_platform("local"), threads)
    return Probed(platform, Yardstick(platform.host.cores))


def look_now(registry: Registry, threads: int, seconds: float) -> Probed:
    """Probe ``threads`` cores of this machine for ``seconds``, with the yardstick before and after.

    The better of two measurements counts, both of the probe and of the yardstick.
    """
    cores = min(threads or count_physical_cores(), count_physical_cores())
    yardstick = Yardstick(cores)

    def measure() -> Lengths:
        with torch_threads(cores):
            return middle([yardstick.measure() for _ in range(MEASURED)])

    before = measure()
    platform = probe_libraries(probe(seconds), registry, seconds).platform
    return Probed(_take(platform, threads), yardstick, shorter(before, measure()))


def _take(platform: Platform, threads: int) -> Platform:
    wanted = min(threads or platform.host.cores, platform.host.cores)
    return replace(platform, host=take_cores(platform.host, wanted))


class Turns:
    """One model on one graph on this machine, by all strategies of a mode."""

    def __init__(
        self,
        registry: Registry,
        probed: Probed,
        dataset: Dataset,
        model: str,
        mode: Mode,
        graph: str,
    ) -> None:
        self._registry = registry
        self._model, self._mode, self._graph = model, mode, graph
        self._probed, platform = probed, probed.platform
        request = make_request(dataset, platform.name, mode, "reference")
        workload = replace(request.workload, model=model, threads=platform.host.cores)
        self._setting = make_setting(replace(request, workload=workload, platform=platform))
        self._cores = platform.host.cores
        self.measured: list[MeasuredEpoch] = []

    def run(self, strategies: Sequence[str], seconds: float) -> Iterator[Cell | Refused]:
        """Predict each strategy, then train them in turns for at least ``seconds``.

        ``measured`` has the epochs beside their plans afterwards.
        """
        entrants: list[Entrant] = []
        for name in strategies:
            try:
                entrants.append(self._enter(name))
            except GnnbenchError as error:
                yield self._refuse(name, words_of(error))
        taken, slowdown = self._take_turns(entrants, seconds)
        for entrant in entrants:
            epochs = taken[entrant.strategy]
            cell = Cell(
                entrant.strategy,
                self._mode,
                self._model,
                self._graph,
                entrant.predicted_s,
                median(each.judged_s for each in epochs),
                median(each.wall_s for each in epochs),
                slowdown,
            )
            self.measured.append(self._measure(cell, entrant, epochs))
            yield cell

    def _measure(self, cell: Cell, entrant: Entrant, epochs: Sequence[Taken]) -> MeasuredEpoch:
        stages_s: dict[Stage, float] = {
            stage: median(each.stages_s.get(stage, 0.0) for each in epochs) for stage in STAGES
        }
        return MeasuredEpoch(
            name_epoch(cell),
            name_path(entrant.kernel, cell.mode),
            f"{cell.model} {cell.graph}",
            cell.taken_s,
            stages_s,
            median(each.harness_s for each in epochs),
            entrant.planned,
        )

    def _refuse(self, strategy: str, reason: str) -> Refused:
        return Refused(strategy, self._mode, self._model, self._graph, reason)

    def _enter(self, strategy: str) -> Entrant:
        """Predict an epoch before any part of it runs, and open the training.

        Raises ``GnnbenchError`` if the strategy does not run here.
        """
        bundle, setting = self._assemble(strategy), self._setting
        if bundle.wants_design_phase(setting.platform):
            setting = self._design(strategy, setting)
        bare = replace(setting, platform=take_bare(setting.platform))
        ((_, planned),) = DryRun(self._assemble(strategy), bare).run_epochs(1)
        (price,) = price_epochs(self._assemble(strategy), setting, 1)
        training = Training(bundle, setting, WallClock())
        return Entrant(strategy, bundle.kernel.name, training, price.epoch_s, planned)

    def _assemble(self, strategy: str, options: Options | None = None) -> Bundle:
        parts = self._registry.strategy(strategy).bundles[self._mode]
        return plugins.assemble(self._registry, parts, options or {})

    def _design(self, strategy: str, setting: Setting) -> Setting:
        """Return the setting with the rates that a few rounds of this strategy measure."""
        bundle = self._assemble(strategy)
        staged = "stages" in option_fields(type(bundle.communication))
        options: Options = {"communication": {"stages": "0"}} if staged else {}

        def train_few(few: Setting) -> list[EpochTrace]:
            epochs: list[EpochTrace] = []
            ended_s = [time.process_time()]

            def keep(epoch: EpochTrace, _: object) -> bool:
                ended_s.append(time.process_time())
                if self._cores == 1:
                    epoch = in_processor_time(epoch, ended_s[-1] - ended_s[-2])
                epochs.append(epoch)
                return False

            train(self._assemble(strategy, options), few, WallClock(), keep)
            return epochs

        projected = projected_layers(bundle, setting)
        layers = build(setting.workload, projected, setting.model).shapes
        ahead = bundle.prefetch_stages(setting.platform) > 0
        designed = with_design_phase(replace(setting, layers=layers), train_few, alone=ahead)
        return replace(setting, platform=designed.platform)

    def _take_turns(
        self, entrants: Sequence[Entrant], seconds: float
    ) -> tuple[Mapping[str, list[Taken]], float]:
        """Return all counted epochs, and the machine's slowdown since the probe."""
        lengths: list[Lengths] = []
        taken: dict[str, list[Taken]] = {each.strategy: [] for each in entrants}
        ends_s, number = time.perf_counter() + seconds, 0
        fewest = WARM_TURNS + FEWEST_TURNS
        while number < fewest or (entrants and time.perf_counter() < ends_s):
            for entrant in entrants:
                lengths.append(self._probed.yardstick.measure())
                epochs = entrant.take_turn(self._cores)
                if number >= WARM_TURNS:
                    taken[entrant.strategy] += epochs
            if not number:
                # All strategies have their persistent data now, so memory that is freed later lies
                # behind it.
                trim_heap()
            number += 1
        then = self._probed.lengths
        return taken, find_slowdown(middle(lengths), then) if lengths and then else 1.0


def list_turns(
    registry: Registry,
    machines: Iterator[Probed],
    graphs: Sequence[str],
    models: Sequence[str],
    modes: Sequence[Mode],
    names: Sequence[str],
) -> Iterator[tuple[Turns, list[str]]]:
    """Yield the turns of one run and their strategies: those in ``names``, or all.

    The machine is probed or recalled before each graph.
    """
    chosen = [each for each in registry.strategies if not names or each.name in names]
    for graph in graphs:
        dataset, machine = datasets.load(graph), next(machines)
        for model, mode in product(models, modes or get_args(Mode)):
            taking_part = [each.name for each in chosen if mode in each.bundles]
            yield Turns(registry, machine, dataset, model, mode, graph), taking_part


def in_processor_time(epoch: EpochTrace, processor_s: float) -> EpochTrace:
    """Return an epoch scaled to its processor time, each span in proportion."""
    share = min(1.0, processor_s / epoch.wall_s)
    spans = tuple(span._replace(seconds=span.seconds * share) for span in epoch.spans)
    return replace(epoch, spans=spans, wall_s=epoch.wall_s * share)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dataset", "graphs", multiple=True, default=GRAPHS, show_default=True)
@click.option("--model", "models", multiple=True, default=MODELS, show_default=True)
@click.option("--strategy", "names", multiple=True, help="Those to run; all by default.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(get_args(Mode)))
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Cores to use; 0 is all.")
@click.option("--runs", "count", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=5.0, show_default=True)
@click.option("--probe-seconds", type=click.FloatRange(min=0, min_open=True), default=10.0)
@click.option("--probed", is_flag=True, help="Use the platform local as it was last probed.")
@click.option("--calibrate-by", "by", multiple=True, help="An epoch that calibrates the platform.")
@click.option("--join", "joined", multiple=True, help="An earlier run's --json; may be repeated.")
@click.option("--json", "json_path", help="Also write everything to a file, or - for the screen.")
def main(
    graphs: tuple[str, ...],
    models: tuple[str, ...],
    names: tuple[str, ...],
    modes: tuple[Mode, ...],
    threads: int,
    count: int,
    seconds: float,
    probe_seconds: float,
    probed: bool,
    by: tuple[str, ...],
    joined: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Predict epochs of every strategy that runs on this machine, then train them in turns."""
    keep_pages()
    registry = plugins.load()

    def look() -> Probed:
        """Return this machine as last probed, or by a new probe."""
        return recall(threads) if probed else look_now(registry, threads, probe_seconds)

    machine = look()
    platform = machine.platform
    cores = platform.host.cores
    earlier = [run for each in joined for run in read_runs(each, platform)]
    torch.set_num_threads(cores)
    aside = json_path == "-"
    clock = "the processor's time" if cores == 1 else "the wall clock"
    click.echo(
        f"{platform.host.model}, {cores} core{'s' * (cores > 1)}, load {os.getloadavg()[0]:.1f}; "
        f"predicted, by {clock}, wall clock, error",
        err=aside,
    )
    machines = chain((machine,), iter(look, None))
    runs: list[list[Cell]] = []
    refused: list[Refused] = []
    calibrated: list[str] = []
    for number in range(count):
        runs.append([])
        measured: list[MeasuredEpoch] = []
        for turns, taking_part in list_turns(registry, machines, graphs, models, modes, names):
            for each in turns.run(taking_part, seconds):
                if isinstance(each, Cell):
                    runs[-1].append(each)
                elif not number:
                    refused.append(each)
                if isinstance(each, Cell) or not number:
                    click.echo(describe(each), err=aside)
            measured += turns.measured
        if by:
            calibrated.append(describe_calibration(by, measured, platform))
    cells = join_runs([*earlier, *runs])
    told = (*list_sentences(cells, find_ratios(cells)), *list_runs([*earlier, *runs]))
    for line in (*told, *calibrated):
        click.echo(line, err=aside)
    if json_path is not None:
        write_json(json_path, platform, earlier, runs, refused)


if __name__ == "__main__":
    main()
