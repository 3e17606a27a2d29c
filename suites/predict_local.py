"""``python -m suites.predict_local``: epochs on this machine as the model says, and as they are.

Every strategy that runs on this machine's own devices, with three models on three graphs: an epoch
is predicted from what a probe has measured (``gnnbench platforms probe``), once more before each
graph, and where the strategy has a design phase, from that; then it is trained. The strategies of a
mode take turns, so that what else the machine does disturbs all alike, and the median epoch counts.
A turn has some epochs one after the other, as in training; the first does not count, which finds
the data of other strategies in the caches. What cannot run stands below, with the reason.

Of libraries that compute the same, the ratio of two epochs says which to use; those that the model
gives stand beside those that were measured.

A machine that is shared with others is another one ten minutes later. All of it is therefore done
in several ``--runs``, one after the other, each with its own probes and predictions: of each epoch
the shortest prediction is held against the shortest time, as other programs make both longer; what
comes out by the medians of the runs, and of each alone, is told as well. ``--join`` adds those that
were written with ``--json`` before. The same pieces of work are timed around each probe and between
the turns (``suites.yardstick``), which says how much slower the machine trained than it was probed;
errors are told as they are, and with that taken out.

Epochs are held against the wall clock; with ``--threads 1`` against the processor's time, which
stands still while other programs run. The first two turns of each are not counted: arrays of one
strategy lie between those of all others, and pages that its second turn touches for the first time
have made an epoch take up to five times its time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from statistics import median
from typing import get_args

import click
import torch

from gnnbench import datasets, plugins
from gnnbench.comparison import Options, make_setting
from gnnbench.design_phase import with_design_phase
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.kernels.pages import keep_pages, trim_heap
from gnnbench.models import build
from gnnbench.models.products import projected_layers
from gnnbench.parts import Bundle, Setting, option_fields
from gnnbench.platforms import load_platform
from gnnbench.platforms.local import count_physical_cores
from gnnbench.platforms.machine import Platform
from gnnbench.platforms.probe import probe
from gnnbench.platforms.timing import torch_threads
from gnnbench.platforms.workers import take_cores
from gnnbench.plugins import Registry
from gnnbench.price.epochs import price_epochs
from gnnbench.price.wall_clock import WallClock
from gnnbench.probing import probe_libraries
from gnnbench.records import Dataset, EpochTrace, Mode
from gnnbench.run import Training, train
from suites.epochs import make_request
from suites.predictions import (
    Cell,
    Refused,
    describe,
    find_ratios,
    join_runs,
    list_runs,
    list_sentences,
    read_runs,
    write_json,
)
from suites.yardstick import Lengths, Yardstick, find_slowdown, middle, shorter

GRAPHS = ("cora", "amazon_photo", "ego_twitter")
MODELS = ("gcn", "sage", "gat")
#: Turns of each that do not count: one that makes all that stays, after which free memory is given
#: back, and one that touches for the first time what is then kept of it.
WARM_TURNS = 2
#: Turns of each that count in a run, at least, and the seconds of each.
FEWEST_TURNS = 1
TURN_S = 0.3
#: Measurements of the yardstick before a probe, and after it.
MEASURED = 25


@dataclass(frozen=True, slots=True)
class Probed:
    """This machine as a probe found it, and what the yardstick took then, where it was measured."""

    platform: Platform
    yardstick: Yardstick
    lengths: Lengths | None = None


@dataclass(slots=True)
class Entrant:
    """A strategy that takes turns with others: its training, its epoch as predicted, and how many
    it has been trained for."""

    strategy: str
    training: Training
    predicted_s: float
    epochs: int = 0

    def take_turn(self) -> list[tuple[float, float]]:
        """Seconds of the processor and by the wall clock of epochs one after the other, without the
        first."""
        taken: list[tuple[float, float]] = []
        while len(taken) < 2 or sum(wall_s for _, wall_s in taken) < TURN_S:
            began_s = time.process_time()
            wall_s = self.training.run_epoch(self.epochs).wall_s
            taken.append((time.process_time() - began_s, wall_s))
            self.epochs += 1
        return taken[1:]


def recall(threads: int) -> Probed:
    """``threads`` cores of this machine (0: all) as it was last probed."""
    platform = _take(load_platform("local"), threads)
    return Probed(platform, Yardstick(platform.host.cores))


def look_now(registry: Registry, threads: int, seconds: float) -> Probed:
    """The same as they are, by a probe of so many ``seconds``, around which the yardstick is
    measured. Of what the probe measures twice the better counts, and so of what that takes."""
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

    def run(self, strategies: Sequence[str], seconds: float) -> Iterator[Cell | Refused]:
        """Predict each, then train them in turns for so many ``seconds`` or longer."""
        entrants: list[Entrant] = []
        for name in strategies:
            try:
                entrants.append(self._enter(name))
            except GnnbenchError as error:
                yield self._refuse(name, words_of(error))
        taken, slowdown = self._take_turns(entrants, seconds)
        for entrant in entrants:
            judged, wall = zip(*taken[entrant.strategy], strict=True)
            yield Cell(
                entrant.strategy,
                self._mode,
                self._model,
                self._graph,
                entrant.predicted_s,
                median(judged),
                median(wall),
                slowdown,
            )

    def _refuse(self, strategy: str, reason: str) -> Refused:
        return Refused(strategy, self._mode, self._model, self._graph, reason)

    def _enter(self, strategy: str) -> Entrant:
        """Predict an epoch before anything of it is run, and open the training.

        Raises ``GnnbenchError`` where the strategy does not run here.
        """
        bundle, setting = self._assemble(strategy), self._setting
        if bundle.wants_design_phase(setting.platform):
            setting = self._design(strategy, setting)
        (price,) = price_epochs(self._assemble(strategy), setting, 1)
        training = Training(bundle, setting, WallClock())
        return Entrant(strategy, training, price.epoch_s)

    def _assemble(self, strategy: str, options: Options | None = None) -> Bundle:
        parts = self._registry.strategy(strategy).bundles[self._mode]
        return plugins.assemble(self._registry, parts, options or {})

    def _design(self, strategy: str, setting: Setting) -> Setting:
        """The setting with what a few rounds of this strategy's training find out."""
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
    ) -> tuple[Mapping[str, list[tuple[float, float]]], float]:
        """Seconds of all epochs that count, by the judging clock and the wall clock, and how much
        slower the machine was than when it was probed."""
        lengths: list[Lengths] = []
        taken: dict[str, list[tuple[float, float]]] = {each.strategy: [] for each in entrants}
        ends_s, number = time.perf_counter() + seconds, 0
        fewest = WARM_TURNS + FEWEST_TURNS
        while number < fewest or (entrants and time.perf_counter() < ends_s):
            for entrant in entrants:
                lengths.append(self._probed.yardstick.measure())
                for processor_s, wall_s in entrant.take_turn():
                    judged_s = processor_s if self._cores == 1 else wall_s
                    if number >= WARM_TURNS:
                        taken[entrant.strategy].append((judged_s, wall_s))
            if not number:
                # All have what stays with them: what is kept of freed memory comes after it.
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
    """All of one run, on a machine that is looked at before each graph, and the strategies that
    take part: those of some ``names``, or all."""
    chosen = [each for each in registry.strategies if not names or each.name in names]
    for graph in graphs:
        dataset, machine = datasets.load(graph), next(machines)
        for model, mode in product(models, modes or get_args(Mode)):
            taking_part = [each.name for each in chosen if mode in each.bundles]
            yield Turns(registry, machine, dataset, model, mode, graph), taking_part


def in_processor_time(epoch: EpochTrace, processor_s: float) -> EpochTrace:
    """An epoch as if it had lasted its processor time, each span as long in proportion."""
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
    joined: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Predict epochs of every strategy that runs on this machine, then train them by turns."""
    keep_pages()
    registry = plugins.load()

    def look() -> Probed:
        """This machine as it was last probed, or as it is now."""
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
    for number in range(count):
        runs.append([])
        for turns, taking_part in list_turns(registry, machines, graphs, models, modes, names):
            for each in turns.run(taking_part, seconds):
                if isinstance(each, Cell):
                    runs[-1].append(each)
                elif not number:
                    refused.append(each)
                if isinstance(each, Cell) or not number:
                    click.echo(describe(each), err=aside)
    cells = join_runs([*earlier, *runs])
    for line in (*list_sentences(cells, find_ratios(cells)), *list_runs([*earlier, *runs])):
        click.echo(line, err=aside)
    if json_path is not None:
        write_json(json_path, platform, earlier, runs, refused)


if __name__ == "__main__":
    main()
