"""The file of a sweep, and the configurations that its lists combine to.

The keys of the file are the options of ``Job`` and of ``Spread`` that have a ``Sweep`` (``jobs/``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from gnnbench.errors import UsageError
from gnnbench.host.files import FileRefusedError
from gnnbench.host.toml import read_toml
from gnnbench.jobs.groups import Spread
from gnnbench.jobs.job import Job
from gnnbench.jobs.limits import FLAG, OneOf, Real, Whole, Wholes
from gnnbench.jobs.options import Declared, Sweep, list_options

#: The keys of ``Spread``.
SPREAD = tuple(list_options(Spread))
#: More combinations than this are a mistake: they would take years.
MOST_CONFIGURATIONS = 100_000


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the file, and the option that it sets.

    ``kind`` is the type of one value in the file, and ``default`` the value that is left out.
    """

    declared: Declared
    sweep: Sweep

    @property
    def name(self) -> str:
        """The name in the file."""
        return self.sweep.key or self.declared.name

    @property
    def kept(self) -> str:
        """The name in kept results."""
        return self.sweep.kept or self.declared.name

    @property
    def default(self) -> Any:
        """The value of an option that the file leaves out."""
        other = self.sweep.default
        return self.declared.default if other is ... else other

    @property
    def holds_list(self) -> bool:
        """Whether one value of the option is a list."""
        return self.declared.option.repeated or isinstance(self.declared.option.rule, Wholes)

    def describe_field(self) -> tuple[Any, Any]:
        """Return the type of the key for pydantic, and its default."""
        one: Any = _choose_type(self.declared)
        default = self.default
        if self.sweep.lists == "must":
            several: Any = Annotated[list[one], Field(min_length=1)]
            return several, ... if default is None else [default]
        if self.holds_list:
            default = []
        elif default is None:
            one = one | None
        return (one | list[one] if self.sweep.lists == "may" else one), default

    def list_values(self, table: BaseModel) -> list[Any]:
        """Return the values of the option that a file lists, or its one value."""
        given = getattr(table, self.name)
        if self.sweep.lists == "must":
            return list(given)
        if not self.holds_list:
            return given if isinstance(given, list) else [given]
        nested = [each for each in given if isinstance(each, list)]
        return [self.restore(each) for each in nested or [given]]

    def restore(self, value: Any) -> Any:
        """Return one value of a file, or of a kept result, as a record takes it."""
        return (tuple(value) or self.default) if self.holds_list else value


def _choose_type(declared: Declared) -> Any:
    """Return the type of one value of an option in a file."""
    rule = declared.option.rule
    if declared.option.repeated:
        return list[str]
    if rule is FLAG:
        return bool
    if isinstance(rule, OneOf):
        return Literal[rule.values]
    types = {Whole: int, Real: float, Wholes: list[int]}
    return types.get(type(rule), str)


#: The keys of the file; those that are lists come first.
KEYS: tuple[Key, ...] = tuple(
    sorted(
        (
            Key(each, each.option.sweep)
            for record in (Job, Spread)
            for each in list_options(record).values()
            if each.option.sweep is not None
        ),
        key=lambda key: (key.sweep.lists != "must", key.name if key.sweep.lists == "must" else ""),
    )
)


class _Table(BaseModel):
    """The content of the file; the job of each configuration checks the ranges of numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_FIELDS: Any = {key.name: key.describe_field() for key in KEYS}
SweepTable = create_model("SweepTable", __base__=_Table, **_FIELDS)


#: Options of the first version, whose defaults are kept too. The digests of earlier stores need
#: them, and no option is added here.
_FIRST = (
    *("strategies", "dataset", "model", "layers", "hidden", "epochs", "batch_size", "fanouts"),
    *("seed", "platform", "options", "threads", "plugins", "repeats", "target_accuracy"),
    *("check", "plain", "learning_rate", "scaling"),
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One combination: the job that decides everything about the result of a run, and its spread.

    Its strategies may be several, ``"hyscale,hongtu"``, which are then compared with each other.
    """

    job: Job
    spread: Spread = field(default_factory=Spread)

    @classmethod
    def make(cls, values: Mapping[str, Any]) -> Configuration:
        """Make the configuration of the values of options, by name. Raises ``UsageError``."""
        spread = Spread(**{name: values[name] for name in SPREAD})
        made = cls(Job(**{name: values[name] for name in values if name not in SPREAD}), spread)
        if made.job.programs and made.spread.ranks > 1:
            raise UsageError(
                f"programs are named, and processes is {made.spread.ranks:,}; a program runs as it "
                f"is, so leave one of them out."
            )
        return made

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Configuration:
        """Make the configuration that :meth:`to_json` describes."""
        return cls.make(
            {key.declared.name: key.restore(kept.get(key.kept, key.default)) for key in KEYS}
        )

    @property
    def node_cores(self) -> int:
        """The cores of each node that the run keeps busy."""
        return self.spread.ranks // self.spread.nodes * (self.job.threads or 1)

    @property
    def label(self) -> str:
        """The beginning of a line about it."""
        kept = self.to_json()
        words = [kept[name] for name in ("dataset", "model", "strategy", "platform")]
        spread = [f"{name} {kept[name]}" for name in SPREAD if name in kept]
        seed = f"seed {self.job.seed}"
        return " · ".join((*map(str, words), seed, *(self.job.options or ()), *spread))

    def to_json(self) -> dict[str, JsonValue]:
        """Return the configuration as it is kept and digested.

        Defaults of newer options are left out, so that earlier stores are still found.
        """
        kept = {}
        for key in KEYS:
            name = key.declared.name
            value = getattr(self.spread if name in SPREAD else self.job, name)
            if name in _FIRST or value not in (key.default, None):
                kept[key.kept] = _to_json(key, value)
        return kept


def _to_json(key: Key, value: Any) -> JsonValue:
    if key.holds_list:
        return list(value or ())
    return ",".join(value) if isinstance(value, tuple) else value


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
    if (count := math.prod(len(key.list_values(table)) for key in KEYS)) > MOST_CONFIGURATIONS:
        raise UsageError(
            f"{path}: its lists make {count:,} combinations; {MOST_CONFIGURATIONS:,} are the most "
            f"of one sweep. Shorten a list, or write several files."
        )
    try:
        made = tuple(dict.fromkeys(_combine(table)))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    (plugins,) = next(key for key in KEYS if key.name == "plugins").list_values(table)
    return Grid(made, plugins)


def _combine(table: BaseModel) -> Iterator[Configuration]:
    """Yield a configuration for every combination of the lists."""
    names = [key.declared.name for key in KEYS]
    for values in itertools.product(*(key.list_values(table) for key in KEYS)):
        yield Configuration.make(dict(zip(names, values, strict=True)))
