"""Predicted and measured epochs of one run or several, for ``suites.predict_local``.

They are summarised as errors, ratios, sentences and a file.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from statistics import median

import click

from gnnbench.machines.machine import PathTimes, Platform
from gnnbench.price.calibration import MeasuredEpoch, calibrate, predict
from gnnbench.records import Mode
from gnnbench.units import format_si

#: The strategies of which ratios are taken: one device, the same work, one library each.
LIBRARIES = ("pyg", "dgl", "native")
#: A strategy, its mode, the model and the graph.
Epoch = tuple[str, Mode, str, str]
#: Reduction of the values of several runs.
Take = Callable[[Sequence[float]], float]
#: The largest error of a modelled ratio that counts as near the measured one.
NEAR_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Cell:
    """An epoch of a strategy, predicted and measured.

    ``taken_s`` is by the judging clock, ``wall_s`` by the wall clock. ``slowdown`` is the time of
    fixed work around the epoch over its time at the probe; 1 if unknown.
    """

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
        """The epoch's time at the machine's speed during the probe."""
        return self.taken_s / self.slowdown

    @property
    def steady_error(self) -> float:
        return self.predicted_s / self.steady_s - 1.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """The second strategy's epoch time over the first's, predicted and measured."""

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
    """A strategy that was not run, and the reason."""

    strategy: str
    mode: Mode
    model: str
    graph: str
    reason: str


def find_ratios(cells: Sequence[Cell]) -> list[Ratio]:
    """Return the ratios of every two libraries with the same mode, model and graph."""
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
    """Return slowest over fastest time of strategies with equal predictions.

    They have the same mode, model and graph. No prediction for all of them can be nearer.
    """
    found: dict[tuple[Mode, str, str, float], list[float]] = {}
    for cell in cells:
        key = (cell.mode, cell.model, cell.graph, cell.predicted_s)
        found.setdefault(key, []).append(cell.taken_s)
    return [max(alike) / min(alike) for alike in found.values() if len(alike) > 1]


def group_runs(runs: Sequence[Sequence[Cell]]) -> dict[Epoch, list[Cell]]:
    """Group the cells of all runs by epoch."""
    found: dict[Epoch, list[Cell]] = {}
    for cell in (cell for run in runs for cell in run):
        found.setdefault(cell.epoch, []).append(cell)
    return found


def join_runs(runs: Sequence[Sequence[Cell]], take: Take = min) -> list[Cell]:
    """Return the last run's epochs, with predictions and times reduced by ``take`` over all runs.

    The default is the shortest, since other programs make both longer.
    """
    found = group_runs(runs)
    return [
        replace(
            cell,
            predicted_s=take([each.predicted_s for each in found[cell.epoch]]),
            taken_s=take([each.taken_s for each in found[cell.epoch]]),
            wall_s=take([each.wall_s for each in found[cell.epoch]]),
            slowdown=take([each.taken_s for each in found[cell.epoch]])
            / take([each.steady_s for each in found[cell.epoch]]),
        )
        for cell in runs[-1]
    ]


def find_drifts(runs: Sequence[Sequence[Cell]]) -> list[float]:
    """Return longest over shortest time of each epoch that several runs have.

    No single prediction can be nearer to both.
    """
    grouped = group_runs(runs).values()
    times = [[cell.taken_s for cell in cells] for cells in grouped if len(cells) > 1]
    return [max(taken) / min(taken) for taken in times]


def read_runs(path: str, platform: Platform) -> list[list[Cell]]:
    """Return the epochs of each run that was written to a file.

    Raises ``click.UsageError`` for a file that this suite has not written, or of another machine or
    number of cores.
    """
    try:
        document = json.loads(Path(path).read_text())
        ran_on = (document["machine"], document["cores"])
        names = [each.name for each in fields(Cell)]
        runs = [
            [Cell(*(cell[name] for name in names)) for cell in run] for run in document["cells"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.UsageError(
            f"--join {path} is no file that --json has written: {error!r}."
        ) from error
    if ran_on != (platform.description, platform.host.cores):
        raise click.UsageError(
            f"--join {path} is of {ran_on[1]} cores of {ran_on[0]!r}, and this run has "
            f"{platform.host.cores} of {platform.description!r}."
        )
    return runs


# --------------------------------------------------------------------------- what is told


def describe(cell: Cell | Refused) -> str:
    """Return one line."""
    label = f"{cell.strategy:20}{cell.mode:12}{cell.model:6}{cell.graph:18}"
    if isinstance(cell, Refused):
        return f"{label}{cell.reason}"
    seconds = (format_si(each, "s") for each in (cell.predicted_s, cell.taken_s, cell.wall_s))
    return label + "".join(f"{each:>10}" for each in seconds) + f"{cell.error:>+8.0%}"


def summarise(cells: Sequence[Cell], ratios: Sequence[Ratio]) -> dict[str, float | int | str]:
    """Return the errors of all cells, the worst cell, and the number of near ratios."""
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
    """Return a cell's strategy, mode, model and graph in words."""
    return f"{cell.strategy} {cell.mode} {cell.model} {cell.graph}"


def list_sentences(cells: Sequence[Cell], ratios: Sequence[Ratio]) -> list[str]:
    """Return sentences on the results, followed by the ratios that are not near."""
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
    """Yield a sentence on the errors without the slowdown, if it is known."""
    if any(cell.slowdown != 1.0 for cell in cells):
        yield (
            f"While it trained, this machine took {found['median_slowdown']:.2f} times as long for "
            f"the same work as when it was probed, and at most {found['largest_slowdown']:.2f} "
            f"times; without that the median error is {found['steady_median_error']:.0%}, and the "
            f"largest is {found['steady_largest_error']:.0%}, of {found['steady_largest_of']}."
        )


def list_runs(runs: Sequence[Sequence[Cell]]) -> list[str]:
    """Return sentences on the spread of several runs, their medians, and each run alone."""
    drifts = find_drifts(runs)
    if not drifts:
        return []
    found = {
        "By the medians of the runs": join_runs(runs, median),
        **{f"Run {number} of {len(runs)} alone": run for number, run in enumerate(runs, 1)},
    }
    return [
        f"The same epoch took {median(drifts):.2f} times as long in one run as in another in the "
        f"median, and at most {max(drifts):.2f} times.",
        *(
            f"{what}: {sentence.replace('; those that are not:', '.')}"
            for what, cells in found.items()
            for sentence in list_sentences(cells, find_ratios(cells))
            if not sentence.startswith(" ")
        ),
    ]


def describe_calibration(
    names: Sequence[str], epochs: Sequence[MeasuredEpoch], platform: Platform
) -> str:
    """Describe the errors of the epochs on a platform before and after its calibration.

    The epochs with these ``names`` calibrate it. Raises ``click.UsageError`` for a name that no
    epoch has.
    """
    by = [epoch for epoch in epochs if epoch.name in names]
    others = [epoch for epoch in epochs if epoch.name not in names]
    if len(by) < len(names) or not others:
        raise click.UsageError(
            f"--calibrate-by {', '.join(names)}: {len(by)} of {len(epochs)} epochs have such a "
            f"name; name some of them, such as {epochs[0].name!r}."
        )
    fitted, _ = calibrate(platform, by, names, "this run")
    _, predictions = calibrate(platform, epochs, names, "this run")

    def error(pairs: Sequence[tuple[float, MeasuredEpoch]]) -> str:
        logs = [abs(math.log(predicted_s / each.epoch_s)) for predicted_s, each in pairs]
        return f"{median(logs):.2f} of {len(logs)} epochs (largest {max(logs):.2f})"

    def predict_by(known: Platform, chosen: Sequence[MeasuredEpoch]) -> str:
        times = (known.calibration.get(each.path, PathTimes()) for each in chosen)
        return error(
            [(predict(e.planned, t, known), e) for e, t in zip(chosen, times, strict=True)]
        )

    paths = {epoch.path for epoch in by}
    same = [epoch for epoch in others if epoch.path in paths]
    left = [(each.left_out_s, each.epoch) for each in predictions if each.left_out_s is not None]
    told = [("The others", others), *([("Those of the same kernels and modes", same)] * bool(same))]
    return " ".join(
        [
            f"Calibrated by {', '.join(names)}, the median |log error| changes.",
            *(
                f"{what}: {predict_by(platform, chosen)} before, "
                f"{predict_by(fitted, chosen)} after."
                for what, chosen in told
            ),
            f"Each by the others of its kernel and mode: {error(left)}." if left else "",
        ]
    )


def describe_cell(cell: Cell) -> dict[str, object]:
    """Return all fields of a cell."""
    return asdict(cell) | {"error": cell.error, "steady_error": cell.steady_error}


def write_json(
    path: str,
    platform: Platform,
    earlier: Sequence[Sequence[Cell]],
    runs: Sequence[Sequence[Cell]],
    refused: Sequence[Refused],
) -> None:
    """Write everything to a file, or to standard output (``-``).

    It has the epochs of each run, and the results of these and ``earlier`` runs, also by the
    medians of all.
    """
    every = [*earlier, *runs]
    joined, medians = join_runs(every), join_runs(every, median)
    ratios = find_ratios(joined)
    document = {
        "machine": platform.description,
        "cores": platform.host.cores,
        "clock": "processor" if platform.host.cores == 1 else "wall",
        "load": os.getloadavg()[0],
        "cells": [[describe_cell(cell) for cell in run] for run in runs],
        "joined": [describe_cell(cell) for cell in joined],
        "ratios": [asdict(ratio) | {"error": ratio.error} for ratio in ratios],
        "refused": [asdict(each) for each in refused],
        "summary": summarise(joined, ratios),
        "medians": summarise(medians, find_ratios(medians)),
        "runs": [summarise(run, find_ratios(run)) for run in every],
    }
    text = json.dumps(document, indent=1)
    if path == "-":
        click.echo(text)
    else:
        Path(path).write_text(text + "\n")
