"""``gnnbench reproduce``: a paper's tables beside this project's numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    FilePath,
    Json,
    check_files,
    load_registry,
    open_console,
    plugin_option,
    print_rows,
    shared_options,
    write_document,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from gnnbench.constants import MarkedNumber
    from gnnbench.parts import Session, Setting
    from gnnbench.plugins import Registry
    from gnnbench.records import Mode, PartKind
    from gnnbench.studies import Reproduction


@click.command(short_help="Print tables of the papers beside ours, with the errors.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--html",
    "html_path",
    type=FilePath(),
    metavar="FILE",
    help="Write the tables, and charts of figures, as one web page.",
)
@click.option(
    "--details",
    is_flag=True,
    help="Of numbers that contradict a paper, print every assumption that would mend it.",
)
@plugin_option
@shared_options
def reproduce(
    names: tuple[str, ...],
    html_path: Path | None,
    details: bool,
    extra_plugins: tuple[str, ...],
    json_path: Path | None,
) -> int:
    """Print the tables NAME: the paper's numbers, ours, and the error of each cell.

    Without a name, list what can be reproduced.
    """
    check_files(json_path, html_path, plugins=extra_plugins)
    registry = load_registry(extra_plugins)
    if not names:
        if html_path is not None:
            raise click.UsageError("--html is for tables; name one.")
        return print_list(registry, json_path)
    chosen = [registry.reproduction(name) for name in dict.fromkeys(names)]

    from gnnbench.report.tables import print_table
    from gnnbench.results.tables import describe_entries, describe_numbers, make_document
    from gnnbench.studies import Inventory, Ledger

    prepared = [prepare(offered, registry) for offered in chosen]
    tables = [table for reproduction in prepared for table in reproduction.run()]
    ledgers = [reproduction for reproduction in prepared if isinstance(reproduction, Ledger)]
    inventories = [each for each in prepared if isinstance(each, Inventory)]
    numbers = [number for inventory in inventories for number in inventory.numbers()]
    if json_path is not None:
        document = make_document(tables)
        if ledgers:
            entries = [entry for ledger in ledgers for entry in ledger.entries()]
            document["cells"] = describe_entries(entries)
        if numbers:
            document["constants"] = describe_numbers(numbers)
        write_document(document, json_path)
    if html_path is not None:
        from gnnbench.report.tables_html import write_tables

        write_tables(tables, html_path)
    console = open_console(json_path)
    for number, table in enumerate(tables):
        if number:
            console.print()
        print_table(table, console, details=details)
    if numbers:
        print_numbers(numbers, console)
    return 0


def print_numbers(numbers: Sequence[MarkedNumber], console: Console) -> None:
    """Print constants by file or module; a fitted one also names the data it was fitted on."""
    for place, its in itertools.groupby(numbers, lambda number: number.place):
        console.print()
        rows = [
            (each.name, each.value, each.mark, ": ".join([*each.fitted_on, each.source]))
            for each in its
        ]
        print_rows(console, (place, "value", "mark", "source, after what it was fitted on"), rows)


class ModelTrainer:
    """A trainer of strategies for a study (``gnnbench.studies.StudyTrainer``)."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def train(
        self, strategy: str, setting: Setting, options: Mapping[PartKind, Mapping[str, str]]
    ) -> Mapping[PartKind, Session]:
        """Train in the strategy's usual mode, on the model clock; return its parts' sessions."""
        from gnnbench.plugins import assemble
        from gnnbench.price.model_clock import ModelClock
        from gnnbench.run import Training

        chosen = self._registry.strategy(strategy)
        bundle = assemble(self._registry, chosen.bundles[chosen.default_mode], options)
        training = Training(
            bundle, setting, ModelClock(setting.platform, bundle.kernel, bundle.sampler)
        )
        training.train()
        return training.sessions

    def follow_accuracy(
        self, strategy: str, mode: Mode, setting: Setting, epochs: Sequence[int]
    ) -> Sequence[Mapping[str, float]]:
        """Train up to the last of ``epochs``; return the accuracies after each of them."""
        from gnnbench.plugins import assemble
        from gnnbench.price.model_clock import ModelClock
        from gnnbench.run import Training
        from gnnbench.run.evaluate import Evaluator

        bundle = assemble(self._registry, self._registry.strategy(strategy).bundles[mode], {})
        training = Training(bundle, setting, ModelClock(setting.platform, bundle.kernel))
        evaluator = Evaluator(setting, bundle.kernel, bundle.memory)
        found = []
        for epoch in range(max(epochs)):
            training.run_epoch(epoch)
            if epoch + 1 in epochs:
                found.append(evaluator.evaluate(training.model)[1])
        return found


def prepare(offered: type[Reproduction], registry: Registry) -> Reproduction:
    """Return a reproduction that is ready to run, with a timer or a trainer if it needs one."""
    from gnnbench.price.wall_clock import CallTimer
    from gnnbench.studies import MeasuredReproduction, TrainedReproduction

    if issubclass(offered, TrainedReproduction):
        return offered(ModelTrainer(registry))
    if issubclass(offered, MeasuredReproduction):
        return offered(CallTimer())
    return offered()


def print_list(registry: Registry, json_path: Path | None) -> int:
    """Print each name, its distance from its paper and its summary, and what no name covers."""
    from gnnbench.agreement import describe_outcome, read_outcomes

    offered = sorted(registry.reproductions.items())
    origins, outcomes = registry.reproduction_origins, read_outcomes()
    states = {name: describe_outcome(found) for name, found in outcomes.items()}
    if json_path is not None:
        entries: list[Json] = [
            {
                "name": name,
                "summary": cls.summary,
                "plugin": origins[name].plugin,
                "state": states.get(name),
            }
            for name, cls in offered
        ]
        write_document({"reproductions": entries}, json_path)
    rows = [(name, states.get(name, ""), cls.summary) for name, cls in offered]
    console = open_console(json_path)
    print_rows(console, ("table", "of the paper's numbers", "what it is"), rows)
    if left_out := [cls.left_out for _, cls in offered if cls.left_out]:
        console.print(f"\nNot here, since they have no results: {'; '.join(left_out)}.")
    return 0
