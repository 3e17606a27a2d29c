"""``python -m suites.predict_local``: epochs on this machine as the model says, and as they are.

Every strategy that runs on this machine's own devices, with three models on three graphs: an epoch
is predicted from what a probe has measured (``gnnbench platforms probe``), once more before each
graph and model, and where the strategy has a design phase, from that; then it is trained. The
strategies of a mode take turns, so that what else the machine does disturbs all alike, and the
median epoch counts. A turn has some epochs one after the other, as a run has them; the first does
not count, which finds the data of other strategies in the caches. What cannot run stands below,
with the reason.

Of libraries that compute the same, the ratio of two epochs says which to use; those that the model
gives stand beside those that were measured.

A machine that is shared with others is another one an hour later. The same pieces of work are
timed around each probe and between the turns (``suites.yardstick``), which says how much slower the
machine trained than it was probed; errors are told as they are, and with that taken out. ``--join``
takes what earlier runs wrote with ``--json`` to this one: of each epoch the median prediction is
held against the median time of all runs, and each run alone is told as well.

Epochs are held against the wall clock; with ``--threads 1`` against the processor's time, which
stands still while other programs run. The first turn of each is not counted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
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
from gnnbench.platforms.local import count_cores
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
from gnnbench.units import format_si
from suites.epochs import make_request
from suites.yardstick import Lengths, Yardstick, find_slowdown, middle, shorter

GRAPHS = ("cora", "amazon_photo", "ego_twitter")
MODELS = ("gcn", "sage", "gat")
#: What ratios are taken of: one device, the same work, a library each.
LIBRARIES = ("pyg", "dgl", "native")
#: Turns of each that count, at least, after one that warms up, and the seconds of each.
FEWEST_TURNS = 3
TURN_S = 0.3
#: Measurements of the yardstick before a probe, and after it.
MEASURED = 25
#: A strategy, its mode, the model and the graph.
Epoch = tuple[str, Mode, str, str]
#: How near a modelled ratio should be to the measured one.
NEAR_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Cell:
    """An epoch of a strategy, predicted and measured. ``taken_s`` is by the clock that judges,
    ``wall_s`` by the wall clock; other work took ``slowdown`` times as long around it as when the
    machine was probed, 1 where nobody knows."""

    strategy: str
    mode: Mode
    model: str
    graph: str
    predicted_s: float
    taken_s: float
    wall_s: float
    slowdown: float = 1.0

    @property
    def epoch(self) -> Epoch:
        return self.strategy, self.mode, self.model, self.graph

    @property
    def error(self) -> float:
        return self.predicted_s / self.taken_s - 1.0

    @property
    def steady_s(self) -> float:
        """What it would have taken at the speed that was probed."""
        return self.taken_s / self.slowdown

    @property
    def steady_error(self) -> float:
        return self.predicted_s / self.steady_s - 1.0


@dataclass(frozen=True, slots=True)
class Probed:
    """This machine as a probe found it, and what the yardstick took then, where it was measured."""

    platform: Platform
    yardstick: Yardstick
    lengths: Lengths | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long the second strategy's epoch takes as the first's."""

    first: str
    second: str
    mode: Mode
    model: str
    graph: str
    modelled: float
    measured: float

    @property
    def error(self) -> float:
        return self.modelled / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A strategy that was not run, and the sentence why."""

    strategy: str
    mode: Mode
    model: str
    graph: str
    reason: str


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
    cores = min(threads or count_cores(), count_cores())
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
        while number <= FEWEST_TURNS or (entrants and time.perf_counter() < ends_s):
            for entrant in entrants:
                lengths.append(self._probed.yardstick.measure())
                for processor_s, wall_s in entrant.take_turn():
                    judged_s = processor_s if self._cores == 1 else wall_s
                    if number:
                        taken[entrant.strategy].append((judged_s, wall_s))
            if not number:
                # All have what stays with them: what is kept of freed memory comes after it.
                trim_heap()
            number += 1
        then = self._probed.lengths
        return taken, find_slowdown(middle(lengths), then) if lengths and then else 1.0


def in_processor_time(epoch: EpochTrace, processor_s: float) -> EpochTrace:
    """An epoch as if it had lasted its processor time, each span as long in proportion."""
    share = min(1.0, processor_s / epoch.wall_s)
    spans = tuple(span._replace(seconds=span.seconds * share) for span in epoch.spans)
    return replace(epoch, spans=spans, wall_s=epoch.wall_s * share)


def find_ratios(cells: Sequence[Cell]) -> list[Ratio]:
    """Those of every two libraries with the same mode, model and graph."""
    found: dict[tuple[Mode, str, str], dict[str, Cell]] = {}
    for cell in cells:
        if cell.strategy in LIBRARIES:
            found.setdefault((cell.mode, cell.model, cell.graph), {})[cell.strategy] = cell
    return [
        Ratio(
            one,
            other,
            *key,
            modelled=there[other].predicted_s / there[one].predicted_s,
            measured=there[other].taken_s / there[one].taken_s,
        )
        for key, there in found.items()
        for one, other in combinations([name for name in LIBRARIES if name in there], 2)
    ]


def find_spreads(cells: Sequence[Cell]) -> list[float]:
    """How many times as long the slowest took as the fastest, of strategies that do the same: those
    of one prediction with the same mode, model and graph. No prediction of them is nearer."""
    found: dict[tuple[Mode, str, str, float], list[float]] = {}
    for cell in cells:
        key = (cell.mode, cell.model, cell.graph, cell.predicted_s)
        found.setdefault(key, []).append(cell.taken_s)
    return [max(alike) / min(alike) for alike in found.values() if len(alike) > 1]


def group_runs(runs: Sequence[Sequence[Cell]]) -> dict[Epoch, list[Cell]]:
    """What each run has of each epoch."""
    found: dict[Epoch, list[Cell]] = {}
    for cell in (cell for run in runs for cell in run):
        found.setdefault(cell.epoch, []).append(cell)
    return found


def join_runs(runs: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Of each epoch that the last run has the medians over all runs that have it."""
    found = group_runs(runs)
    return [
        replace(
            cell,
            predicted_s=median(each.predicted_s for each in found[cell.epoch]),
            taken_s=median(each.taken_s for each in found[cell.epoch]),
            wall_s=median(each.wall_s for each in found[cell.epoch]),
            slowdown=median(each.taken_s for each in found[cell.epoch])
            / median(each.steady_s for each in found[cell.epoch]),
        )
        for cell in runs[-1]
    ]


def find_drifts(runs: Sequence[Sequence[Cell]]) -> list[float]:
    """How many times as long each epoch took in one run as in another, where several have it. No
    prediction made before them is nearer to both."""
    grouped = group_runs(runs).values()
    times = [[cell.taken_s for cell in cells] for cells in grouped if len(cells) > 1]
    return [max(taken) / min(taken) for taken in times]


def read_run(path: str, platform: Platform) -> list[Cell]:
    """The epochs of an earlier run.

    Raises ``click.UsageError`` for a file that no run here has written, of another machine, or of
    other cores.
    """
    try:
        document = json.loads(Path(path).read_text())
        ran_on = (document["machine"], document["cores"])
        names = [each.name for each in fields(Cell)]
        cells = [Cell(*(cell[name] for name in names)) for cell in document["cells"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.UsageError(
            f"--join {path} is no file that --json has written: {error!r}."
        ) from error
    if ran_on != (platform.description, platform.host.cores):
        raise click.UsageError(
            f"--join {path} is of {ran_on[1]} cores of {ran_on[0]!r}, and this run has "
            f"{platform.host.cores} of {platform.description!r}."
        )
    return cells


# --------------------------------------------------------------------------- what is told


def describe(cell: Cell | Refused) -> str:
    """One line."""
    label = f"{cell.strategy:20}{cell.mode:12}{cell.model:6}{cell.graph:18}"
    if isinstance(cell, Refused):
        return f"{label}{cell.reason}"
    seconds = (format_si(each, "s") for each in (cell.predicted_s, cell.taken_s, cell.wall_s))
    return label + "".join(f"{each:>10}" for each in seconds) + f"{cell.error:>+8.0%}"


def summarise(cells: Sequence[Cell], ratios: Sequence[Ratio]) -> dict[str, float | int | str]:
    """Errors of all cells, the largest one's cell, and how many ratios are near."""
    if not cells:
        return {"cells": 0}
    worst = max(cells, key=lambda cell: abs(cell.error))
    steady = max(cells, key=lambda cell: abs(cell.steady_error))
    spreads = find_spreads(cells) or [1.0]
    return {
        "cells": len(cells),
        "median_error": median(abs(cell.error) for cell in cells),
        "largest_error": abs(worst.error),
        "largest_of": name_epoch(worst),
        "ratios": len(ratios),
        "near_ratios": sum(abs(ratio.error) <= NEAR_RATIO for ratio in ratios),
        "median_spread": median(spreads),
        "largest_spread": max(spreads),
        "median_slowdown": median(cell.slowdown for cell in cells),
        "largest_slowdown": max(cell.slowdown for cell in cells),
        "steady_median_error": median(abs(cell.steady_error) for cell in cells),
        "steady_largest_error": abs(steady.steady_error),
        "steady_largest_of": name_epoch(steady),
    }


def name_epoch(cell: Cell) -> str:
    """In four words."""
    return f"{cell.strategy} {cell.mode} {cell.model} {cell.graph}"


def list_sentences(cells: Sequence[Cell], ratios: Sequence[Ratio]) -> list[str]:
    """What came out, and below it the ratios that are not near."""
    if not cells:
        return ["Nothing ran here."]
    found = summarise(cells, ratios)
    spread = (
        f" Of strategies that do the same the slowest took {found['median_spread']:.2f} times as "
        f"long as the fastest in the median, and at most {found['largest_spread']:.2f} times."
        if find_spreads(cells)
        else ""
    )
    far = [ratio for ratio in ratios if abs(ratio.error) > NEAR_RATIO]
    return [
        f"The median error of {found['cells']} epochs is {found['median_error']:.0%}, and the "
        f"largest is {found['largest_error']:.0%}, of {found['largest_of']}.{spread}",
        *_tell_slowdown(cells, found),
        f"{found['near_ratios']} of {found['ratios']} modelled ratios of two libraries are within "
        f"{NEAR_RATIO:.0%} of the measured ones{'; those that are not:' if far else '.'}",
        *(
            f"  {ratio.second} / {ratio.first}, {ratio.mode} {ratio.model} {ratio.graph}: "
            f"modelled {ratio.modelled:.2f}, measured {ratio.measured:.2f}"
            for ratio in far
        ),
    ]


def _tell_slowdown(cells: Sequence[Cell], found: Mapping[str, float | int | str]) -> Iterator[str]:
    """What is left of the errors without it, where it is known."""
    if any(cell.slowdown != 1.0 for cell in cells):
        yield (
            f"While it trained, this machine took {found['median_slowdown']:.2f} times as long for "
            f"the same work as when it was probed, and at most {found['largest_slowdown']:.2f} "
            f"times; without that the median error is {found['steady_median_error']:.0%}, and the "
            f"largest is {found['steady_largest_error']:.0%}, of {found['steady_largest_of']}."
        )


def list_runs(runs: Sequence[Sequence[Cell]]) -> list[str]:
    """How far several runs are apart, and what came out of each alone."""
    drifts = find_drifts(runs)
    if not drifts:
        return []
    return [
        f"The same epoch took {median(drifts):.2f} times as long in one run as in another in the "
        f"median, and at most {max(drifts):.2f} times.",
        *(
            f"Run {number} of {len(runs)} alone: {sentence}"
            for number, cells in enumerate(runs, 1)
            for sentence in list_sentences(cells, find_ratios(cells))
            if not sentence.startswith(" ")
        ),
    ]


def write_json(
    path: str, platform: Platform, runs: Sequence[Sequence[Cell]], refused: Sequence[Refused]
) -> None:
    """Everything, to a file or (``-``) to standard output: the last run's epochs, and what came out
    of all runs."""
    cells, joined = runs[-1], join_runs(runs)
    ratios = find_ratios(joined)
    document = {
        "machine": platform.description,
        "cores": platform.host.cores,
        "clock": "processor" if platform.host.cores == 1 else "wall",
        "load": os.getloadavg()[0],
        "cells": [
            asdict(cell) | {"error": cell.error, "steady_error": cell.steady_error}
            for cell in cells
        ],
        "ratios": [asdict(ratio) | {"error": ratio.error} for ratio in ratios],
        "refused": [asdict(each) for each in refused],
        "summary": summarise(joined, ratios),
        "runs": [summarise(run, find_ratios(run)) for run in runs],
    }
    text = json.dumps(document, indent=1)
    if path == "-":
        click.echo(text)
    else:
        Path(path).write_text(text + "\n")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dataset", "graphs", multiple=True, default=GRAPHS, show_default=True)
@click.option("--model", "models", multiple=True, default=MODELS, show_default=True)
@click.option("--strategy", "names", multiple=True, help="Those to run; all by default.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(get_args(Mode)))
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Cores to use; 0 is all.")
@click.option("--seconds", type=click.FloatRange(min=0), default=10.0, show_default=True)
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
    runs = [read_run(each, platform) for each in joined]
    torch.set_num_threads(cores)
    aside = json_path == "-"
    clock = "the processor's time" if cores == 1 else "the wall clock"
    click.echo(
        f"{platform.host.model}, {cores} core{'s' * (cores > 1)}, load {os.getloadavg()[0]:.1f}; "
        f"predicted, by {clock}, wall clock, error",
        err=aside,
    )
    found: list[Cell | Refused] = []
    chosen = [each for each in registry.strategies if not names or each.name in names]
    for graph in graphs:
        dataset = datasets.load(graph)
        for model in models:
            if found:
                machine = look()
            for mode in modes or get_args(Mode):
                taking_part = [each.name for each in chosen if mode in each.bundles]
                turns = Turns(registry, machine, dataset, model, mode, graph)
                for each in turns.run(taking_part, seconds):
                    found.append(each)
                    click.echo(describe(each), err=aside)
    runs.append([each for each in found if isinstance(each, Cell)])
    cells = join_runs(runs)
    for line in (*list_sentences(cells, find_ratios(cells)), *list_runs(runs)):
        click.echo(line, err=aside)
    if json_path is not None:
        refused = [each for each in found if isinstance(each, Refused)]
        write_json(json_path, platform, runs, refused)


if __name__ == "__main__":
    main()
