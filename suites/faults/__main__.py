"""Detection rate of ``compare`` for rows with one fault each, over graphs and models.

``python -m suites.faults [--quick]`` trains rows with the faults of ``suites.faults`` and checks
them against plain training. It prints the number of rows and every miss by name. Faults with
effects no larger than rounding (``suites.faults.independent``) are not counted.
"""

import argparse
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from gnnbench import plugins
from gnnbench.comparison.plain import Shared
from gnnbench.errors import PluginError
from gnnbench.jobs.limits import LARGEST
from gnnbench.parts import MiniBatchSampler, Setting
from gnnbench.plugins import Registry, with_swap
from gnnbench.records import Dataset, Parts
from suites.equality import (
    DEPTHS,
    GRAPHS,
    MODELS,
    SCALES,
    hold_row,
    is_chosen,
    make_row,
    scale,
    train_row,
)
from suites.faults import FAULTS, independent
from suites.faults.fault import EVERYWHERE, Row
from suites.faults.samplers import DrawingSampler

#: Epochs of rows with late or rare faults, of rows that draw by another law, and of others. A law
#: shows in counts of draws, so these rows train as many epochs as ``compare`` does by default.
LATE_EPOCHS, DRAWN_EPOCHS, EPOCHS = 12, 10, 3
#: Graphs that are small enough for the models of ``suites.faults.independent``.
FAULT_GRAPHS = ("sbm-3k", "star", "isolated", "rmat-4k", "uniform", "three-seeds", "cora")


def shift_labels(dataset: Dataset) -> Dataset:
    """Return the dataset with each label moved to the next vertex."""
    return replace(dataset, labels=np.roll(dataset.labels, 1))


#: Faults of the data, which no part can have.
TAMPERED: Mapping[str, Callable[[Dataset], Dataset]] = {"labels-shifted": shift_labels}


@dataclass(slots=True)
class Search:
    """A fault's cases: with an effect, found and missed ones among these, and without an effect."""

    changed: int = 0
    found: int = 0
    unchanged: int = 0
    missed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A fault in one row, in a setting and in the ``exact`` float64 setting."""

    name: str
    fault: str
    parts: Parts
    setting: Setting
    exact: Setting


def list_cases(
    registry: Registry, share: float, graph: str, names: Sequence[str]
) -> Iterator[tuple[Case, Shared]]:
    """Yield the chosen share of a graph's cases, each with the data that its setting shares."""
    hosts: dict[str, tuple[Row, ...]] = {name: fault.hosts for name, fault in FAULTS.items()}
    hosts |= dict.fromkeys(TAMPERED, EVERYWHERE)
    dataset = GRAPHS[graph]()
    for factor, hidden, depth, model in itertools.product(SCALES, (16, 64), DEPTHS, MODELS):
        scaled, shared = scale(dataset, factor), Shared()
        made = {
            epochs: [
                make_row(scaled, model, hidden, depth, dtype=dtype, epochs=epochs)
                for dtype in ("float32", "float64")
            ]
            for epochs in (LATE_EPOCHS, DRAWN_EPOCHS, EPOCHS)
        }
        for fault in names or hosts:
            for strategy, mode in hosts[fault]:
                name = f"{fault}: {graph} x{factor:g} {model} {hidden} {depth} {strategy} {mode}"
                if not is_chosen(name, share):
                    continue
                parts = registry.strategy(strategy).bundles[mode]
                if fault in FAULTS:
                    parts = with_swap(registry, parts, [(FAULTS[fault].part.kind, fault)])
                yield Case(name, fault, parts, *made[count_epochs(fault)]), shared


def count_epochs(name: str) -> int:
    """Return the epochs that rows with a fault train."""
    fault = FAULTS.get(name)
    if fault is None:
        return EPOCHS
    if fault.late:
        return LATE_EPOCHS
    return DRAWN_EPOCHS if issubclass(fault.part, DrawingSampler) else EPOCHS


def run_case(registry: Registry, case: Case, shared: Shared, search: Search) -> None:
    tamper = TAMPERED.get(case.fault)
    try:
        trained = train_row(registry, case.setting, case.parts, tamper=tamper)
        if trained is None:
            return
        held = hold_row(registry, case.setting, case.parts, trained, shared)
        alarm = trained.evidence.fault or next((each.fault for each in held if each.fault), "")
        ratio = measure_change(registry, case)
    except Exception as error:
        if isinstance(error, PluginError) and case.fault in FAULTS and FAULTS[case.fault].refused:
            search.changed += 1
            search.found += 1
            return
        print(f"not run: {case.name}: {type(error).__name__}: {error}", flush=True)
        return
    if ratio <= independent.CHANGED:
        search.unchanged += 1
        if alarm and ratio < 1:
            print(f"refused, and changes nothing ({ratio:.1g}): {case.name}: {alarm}", flush=True)
        return
    search.changed += 1
    if alarm:
        search.found += 1
        return
    search.missed.append(f"{case.name} (changes {ratio:.3g} times what rounding does)")
    print(f"MISSED {search.missed[-1]}", flush=True)


def measure_change(registry: Registry, case: Case) -> float:
    """Return the effect of a fault, from a float64 run and models that share no code with it."""
    fault = FAULTS.get(case.fault)
    if fault is not None and fault.write:
        return np.inf
    if fault is not None and issubclass(fault.part, DrawingSampler):
        return np.inf if fault.part.shows_on(case.setting.dataset.graph) else 0.0
    if fault is not None and issubclass(fault.part, MiniBatchSampler):
        right = registry.strategy("reference").bundles["mini-batch"].sampler
        drawn = [draw_epochs(registry, case.exact, name) for name in (case.fault, right)]
        otherwise = any(one != other for one, other in itertools.zip_longest(*drawn))
        return np.inf if otherwise else 0.0
    updates = LARGEST if fault is not None and fault.late else 3
    trained = train_row(registry, case.exact, case.parts, updates, TAMPERED.get(case.fault))
    return 0.0 if trained is None else independent.change(case.exact, trained.evidence.updates)


def draw_epochs(registry: Registry, setting: Setting, name: str) -> Iterator[list[list[int]]]:
    """Yield a sampler's draws in a run, round by round, as lists of numbers."""
    sampler = registry.part("sampler", name)()
    if not isinstance(sampler, MiniBatchSampler):
        raise TypeError(f"sampler {name!r} draws no mini-batches")
    sampler.begin(setting)
    for epoch in range(setting.workload.epochs):
        rounds = sampler.rounds(epoch)
        yield [seeds.tolist() for seeds in rounds]
        for seeds in rounds:
            blocks = sampler.sample(seeds, epoch, 1)
            yield [
                array.tolist()
                for block in blocks
                for array in (block.src_ids, block.indptr, block.indices)
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small part of the grid")
    parser.add_argument("--share", type=float, help="the share of the grid that is run, 0 to 1")
    parser.add_argument("--graphs", help="graphs to run on, by name, with commas between")
    parser.add_argument("--faults", default="", help="faults to look for, by name")
    given = parser.parse_args()
    torch.set_num_threads(1)
    registry = plugins.load(["suites.faults"])
    share = given.share or (0.004 if given.quick else 0.05)
    names = [name for name in given.faults.split(",") if name]
    searches: dict[str, Search] = defaultdict(Search)
    for graph in given.graphs.split(",") if given.graphs else FAULT_GRAPHS:
        for case, shared in list_cases(registry, share, graph, names):
            run_case(registry, case, shared, searches[case.fault])
    print(f"\n{'fault':26} change anything  found  missed  change nothing")
    for fault, search in searches.items():
        print(
            f"{fault:26} {search.changed:15} {search.found:6} {len(search.missed):7} "
            f"{search.unchanged:15}"
        )
    changed = sum(search.changed for search in searches.values())
    print(f"{'all':26} {changed:15} {sum(search.found for search in searches.values()):6}")


if __name__ == "__main__":
    main()
