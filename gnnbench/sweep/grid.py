"""The file of a sweep, and the configurations that its lists combine to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from gnnbench.datasets import ScalingChoice
from gnnbench.errors import UsageError
from gnnbench.host.files import FileRefusedError
from gnnbench.host.toml import read_toml
from gnnbench.jobs.preparation import Job, parse_settings, parse_strategies

T = TypeVar("T")
#: More combinations than this are a mistake: they would take years.
MOST_CONFIGURATIONS = 100_000
Names = Annotated[list[str], Field(min_length=1)]


class SweepTable(BaseModel):
    """The content of the file: five lists, and settings, each of which may be a list too.

    The job of each configuration checks the ranges of numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    datasets: Names
    strategies: Names
    platforms: Names
    models: Names = ["gcn"]
    seeds: Annotated[list[int], Field(min_length=1)] = [0]
    # One value for all configurations, or a list with one value for each.
    set: list[str] | list[list[str]] = []
    epochs: int | list[int] = 10
    layers: int | list[int] = 2
    hidden: int | list[int] = 256
    batch_size: int | list[int] = 1024
    fanouts: list[int] | list[list[int]] = []
    learning_rate: float | list[float] | None = None
    scaling: ScalingChoice | list[ScalingChoice] = "auto"
    repeats: int = 1
    threads: int = 1
    target_accuracy: float | None = None
    check: bool = True
    checked_updates: int | None = None
    plain: bool = False
    plugins: list[str] = []


@dataclass(frozen=True, slots=True)
class Configuration:
    """One combination: everything that decides the result of a run, as texts and numbers.

    ``strategy`` may name several, ``"hyscale,hongtu"``, which are then compared with each other.
    """

    dataset: str
    model: str
    strategy: str
    platform: str
    seed: int
    set: tuple[str, ...]
    epochs: int
    layers: int
    hidden: int
    batch_size: int
    fanouts: tuple[int, ...]
    learning_rate: float | None
    scaling: ScalingChoice
    repeats: int
    threads: int
    target_accuracy: float | None
    check: bool
    checked_updates: int | None
    plain: bool
    plugins: tuple[str, ...]

    @property
    def label(self) -> str:
        """The beginning of a line about it."""
        words = (self.dataset, self.model, self.strategy, self.platform, f"seed {self.seed}")
        return " · ".join((*words, *self.set))

    def make_job(self) -> Job:
        """Return the job to run. Raises ``UsageError`` for invalid values."""
        return Job(
            strategies=parse_strategies(self.strategy),
            dataset=self.dataset,
            platform=self.platform,
            model=self.model,
            layers=self.layers,
            hidden=self.hidden,
            epochs=self.epochs,
            batch_size=self.batch_size,
            fanouts=self.fanouts or None,
            options=parse_settings(self.set),
            learning_rate=self.learning_rate,
            scaling=self.scaling,
            repeats=self.repeats,
            seed=self.seed,
            threads=self.threads,
            target_accuracy=self.target_accuracy,
            check=self.check,
            checked_updates=self.checked_updates,
            plain=self.plain,
        )

    def to_json(self) -> dict[str, JsonValue]:
        """Return the configuration as it is kept and digested.

        A missing number of checked updates is left out, so that earlier stores are still found."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name != "checked_updates" or value is not None
        }


@dataclass(frozen=True, slots=True)
class Grid:
    """The configurations of a file, each once, in the order of its lists."""

    configurations: tuple[Configuration, ...]
    plugins: tuple[str, ...]


def read_grid(path: Path) -> Grid:
    """Read the configurations of a file. Raises ``UsageError``, one sentence with the key."""
    try:
        content = read_toml(path)
    except FileRefusedError as error:
        raise UsageError(f"{path}: {error.reason}; give a sweep as TOML.") from error
    try:
        table = SweepTable.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "the file"
        if first["type"] == "extra_forbidden":
            known = ", ".join(SweepTable.model_fields)
            raise UsageError(f"{path}: there is no key {key!r}; the keys are {known}.") from error
        if first["type"] == "missing":
            raise UsageError(
                f"{path}: {key} is missing; give a list, such as {key} = [...]."
            ) from error
        raise UsageError(f"{path}: at {key}, {first['msg'].lower()}; mend its value.") from error
    if (count := _count_combinations(table)) > MOST_CONFIGURATIONS:
        raise UsageError(
            f"{path}: its lists make {count:,} combinations; {MOST_CONFIGURATIONS:,} are the most "
            f"of one sweep. Shorten a list, or write several files."
        )
    made = tuple(dict.fromkeys(_combine(table)))
    for configuration in made:
        try:
            configuration.make_job()
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    return Grid(made, tuple(table.plugins))


def _count_combinations(table: SweepTable) -> int:
    """Return the product of the lengths of all lists."""
    names = (table.datasets, table.models, table.platforms, table.strategies)
    numbers = (table.epochs, table.layers, table.hidden, table.batch_size)
    counts = [len(each) for each in names]
    counts += [len(_values(each)) for each in numbers]
    counts += [len(table.seeds), len(_lists(table.set)), len(_lists(table.fanouts))]
    counts += [len(_list_rates(table)), len(_list_scalings(table))]
    return math.prod(counts)


def _combine(table: SweepTable) -> Iterator[Configuration]:
    for data, model, platform, strategy, seed in itertools.product(
        table.datasets, table.models, table.platforms, table.strategies, table.seeds
    ):
        for given, fanouts, rate, scaling in itertools.product(
            _lists(table.set),
            _lists(table.fanouts),
            _list_rates(table),
            _list_scalings(table),
        ):
            for epochs, layers, hidden, batch_size in itertools.product(
                _values(table.epochs),
                _values(table.layers),
                _values(table.hidden),
                _values(table.batch_size),
            ):
                yield Configuration(
                    dataset=data,
                    model=model,
                    strategy=strategy,
                    platform=platform,
                    seed=seed,
                    set=given,
                    epochs=epochs,
                    layers=layers,
                    hidden=hidden,
                    batch_size=batch_size,
                    fanouts=fanouts,
                    learning_rate=rate,
                    scaling=scaling,
                    repeats=table.repeats,
                    threads=table.threads,
                    target_accuracy=table.target_accuracy,
                    check=table.check,
                    checked_updates=table.checked_updates,
                    plain=table.plain,
                    plugins=tuple(table.plugins),
                )


def _list_rates(table: SweepTable) -> list[float | None]:
    rate = table.learning_rate
    return [*rate] if isinstance(rate, list) else [rate]


def _list_scalings(table: SweepTable) -> list[ScalingChoice]:
    return table.scaling if isinstance(table.scaling, list) else [table.scaling]


def _values(axis: T | list[T]) -> list[T]:
    return axis if isinstance(axis, list) else [axis]


def _lists(axis: list[T] | list[list[T]]) -> list[tuple[T, ...]]:
    """Return the one list for all configurations, or the lists of which each has one."""
    nested = [tuple(each) for each in axis if isinstance(each, list)]
    return nested or [tuple(each for each in axis if not isinstance(each, list))]
