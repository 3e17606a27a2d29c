"""The schema of a platform file, and one-sentence messages for files that violate it.

``describe`` turns these tables into a :class:`gnnbench.machines.machine.Platform`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from gnnbench.constants import Mark, MarkKind, check_fitted_on
from gnnbench.units import unit_scale

Source = Annotated[str, Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
#: No dash: link names join two device names with one. No dot: keys of ``sources`` hold one.
DeviceName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class TomlTable(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Marked(TomlTable):
    """A number, or several, with their source; without a mark they count as assumed."""

    source: Source
    mark: MarkKind = "assumed"
    fitted_on: Annotated[list[Text], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_mark(self) -> Marked:
        check_fitted_on(self.mark, tuple(self.fitted_on or ()))
        return self

    @property
    def marked(self) -> Mark:
        return Mark(self.mark, tuple(self.fitted_on or ()))


class Quantity(Marked):
    """A number with its unit and source; ``base`` is its unit in memory."""

    base: ClassVar[str]
    example: ClassVar[str]

    value: float
    unit: str

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, unit: str) -> str:
        unit_scale(unit, cls.base)
        return unit

    @property
    def si(self) -> float:
        """The value in the base unit, rounded once (``10 us`` is 1e-05, not 9.99...e-06)."""
        scale = unit_scale(self.unit, self.base)
        return float(Decimal(repr(self.value)) * Decimal(repr(scale)))


class _Positive(Quantity):
    value: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class Flops(_Positive):
    base = "FLOP/s"
    example = '{ value = 3.6, unit = "TFLOP/s", source = "..." }'


class Bandwidth(_Positive):
    base = "B/s"
    example = '{ value = 205, unit = "GB/s", source = "..." }'


class Capacity(_Positive):
    base = "B"
    example = '{ value = 24, unit = "GB", source = "..." }'


class SamplingRate(_Positive):
    base = "edges/s"
    example = '{ value = 20, unit = "Medges/s", source = "..." }'


class Duration(Quantity):
    base = "s"
    example = '{ value = 10, unit = "us", source = "..." }'
    value: Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class Power(_Positive):
    base = "W"
    example = '{ value = 280, unit = "W", source = "..." }'


class Count(Marked):
    example: ClassVar[str] = '{ value = 4, source = "..." }'

    value: Annotated[int, Field(gt=0, le=2**20)]


_Rate = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class Rates(Marked):
    """A rate by row width, of all cores and of one; ``base`` is its unit in memory."""

    base: ClassVar[str]
    example: ClassVar[str]

    widths: Annotated[list[Annotated[int, Field(gt=0, le=2**31)]], Field(min_length=1)]
    values: list[_Rate]
    core_values: list[_Rate]
    unit: str

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, unit: str) -> str:
        unit_scale(unit, cls.base)
        return unit

    @model_validator(mode="after")
    def _check_points(self) -> Rates:
        if not len(self.widths) == len(self.values) == len(self.core_values):
            raise ValueError(
                f"{len(self.widths)} widths, {len(self.values)} values and "
                f"{len(self.core_values)} core_values; give each width one of either"
            )
        if any(near >= far for near, far in pairwise(self.widths)):
            raise ValueError("widths must ascend")
        return self

    def si(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return ``values`` in the base unit, each rounded once."""
        scale = Decimal(repr(unit_scale(self.unit, self.base)))
        return tuple(float(Decimal(repr(value)) * scale) for value in values)


class BandwidthRates(Rates):
    base = "B/s"
    example = (
        '{ widths = [64, 256], values = [20, 30], core_values = [10, 15], unit = "GB/s", '
        'source = "..." }'
    )


class FlopsRates(Rates):
    base = "FLOP/s"
    example = (
        '{ widths = [16, 256], values = [0.5, 0.9], core_values = [0.1, 0.2], unit = "TFLOP/s", '
        'source = "..." }'
    )


class LibraryTable(TomlTable):
    """The measured rates of one library on a device."""

    aggregate: BandwidthRates | None = None
    cached: BandwidthRates | None = None
    written: BandwidthRates | None = None
    weighted: BandwidthRates | None = None
    weighted_cached: BandwidthRates | None = None
    dotted: BandwidthRates | None = None
    dotted_cached: BandwidthRates | None = None
    update: FlopsRates | None = None
    call: Duration | None = None
    fresh_call: Duration | None = None
    attention_call: Duration | None = None
    attention_fresh_call: Duration | None = None
    update_call: Duration | None = None
    update_fresh_call: Duration | None = None
    batch: Duration | None = None
    fresh_batch: Duration | None = None
    binding: SamplingRate | None = None
    transposing: SamplingRate | None = None
    sampling: SamplingRate | None = None
    joint_sampling: SamplingRate | None = None
    sampling_call: Duration | None = None


class GroupSize(Count):
    #: The number of links grows with its square.
    value: Annotated[int, Field(gt=0, le=1024)]


class HostTable(TomlTable):
    model: Text
    cores: Count
    flops: Flops
    memory_bandwidth: Bandwidth
    core_bandwidth: Bandwidth
    memory: Capacity
    sampling: SamplingRate
    launch: Duration
    fresh_bandwidth: Bandwidth | None = None
    core_fresh_bandwidth: Bandwidth | None = None
    disk_bandwidth: Bandwidth | None = None
    sockets: Count | None = None
    socket_bandwidth: Bandwidth | None = None
    power: Power | None = None
    cache: Capacity | None = None
    gather: BandwidthRates | None = None
    aggregate: BandwidthRates | None = None
    aggregate_backward: BandwidthRates | None = None
    update: FlopsRates | None = None
    libraries: dict[str, LibraryTable] = {}


class NodeTable(HostTable):
    """One of several hosts."""

    name: DeviceName


class AcceleratorTable(TomlTable):
    name: DeviceName
    kind: Literal["cpu", "gpu", "fpga", "sparse"]
    model: Text
    pipelined: bool = False
    count: GroupSize | None = None
    cores: Count | None = None
    flops: Flops
    memory_bandwidth: Bandwidth
    memory: Capacity
    sampling: SamplingRate | None = None
    launch: Duration
    power: Power | None = None
    cache: Capacity | None = None
    gather: BandwidthRates | None = None
    aggregate: BandwidthRates | None = None
    aggregate_backward: BandwidthRates | None = None
    update: FlopsRates | None = None
    libraries: dict[str, LibraryTable] = {}


class LinkTable(TomlTable):
    from_: Annotated[str, Field(alias="from")]
    to: str
    bandwidth: Bandwidth
    latency: Duration
    via: DeviceName | list[DeviceName] | None = None
    shared: bool = False


class PlatformTable(TomlTable):
    name: Text
    description: Text
    step: Duration | None = None
    host: HostTable
    accelerators: list[AcceleratorTable] = []
    links: list[LinkTable] = []


class ClusterTable(TomlTable):
    name: Text
    description: Text
    hosts: list[NodeTable]
    accelerators: list[AcceleratorTable] = []
    links: list[LinkTable] = []


class CoreSetTable(TomlTable):
    """Cores of this machine that form one device or the host."""

    count: Annotated[int, Field(gt=0, le=2**20)]
    speed: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    memory: Capacity | None = None


class CoreLinkTable(TomlTable):
    bandwidth: Bandwidth | None = None
    blocking: bool = False


class CoresTable(TomlTable):
    """Devices made of this machine's cores."""

    name: Text
    description: Text
    cores: Annotated[list[CoreSetTable], Field(min_length=1, max_length=1024)]
    host: CoreSetTable | None = None
    link: CoreLinkTable = CoreLinkTable()


#: The tables of a file, by the key that identifies its kind.
KINDS: dict[str, type[TomlTable]] = {"cores": CoresTable, "hosts": ClusterTable}
#: The base unit of every key that holds a quantity.
BASE_UNIT = {
    "flops": Flops.base,
    "memory_bandwidth": Bandwidth.base,
    "core_bandwidth": Bandwidth.base,
    "fresh_bandwidth": Bandwidth.base,
    "core_fresh_bandwidth": Bandwidth.base,
    "disk_bandwidth": Bandwidth.base,
    "socket_bandwidth": Bandwidth.base,
    "bandwidth": Bandwidth.base,
    "memory": Capacity.base,
    "sampling": SamplingRate.base,
    "launch": Duration.base,
    "latency": Duration.base,
    "power": Power.base,
    "cache": Capacity.base,
    "call": Duration.base,
    "fresh_call": Duration.base,
    "attention_call": Duration.base,
    "attention_fresh_call": Duration.base,
    "update_call": Duration.base,
    "update_fresh_call": Duration.base,
    "batch": Duration.base,
    "fresh_batch": Duration.base,
    "sampling_call": Duration.base,
    "step": Duration.base,
    "joint_sampling": SamplingRate.base,
    "binding": SamplingRate.base,
    "transposing": SamplingRate.base,
    "cached": BandwidthRates.base,
    "written": BandwidthRates.base,
    "weighted": BandwidthRates.base,
    "weighted_cached": BandwidthRates.base,
    "dotted": BandwidthRates.base,
    "dotted_cached": BandwidthRates.base,
    "gather": BandwidthRates.base,
    "aggregate": BandwidthRates.base,
    "aggregate_backward": BandwidthRates.base,
    "update": FlopsRates.base,
}


# --------------------------------------------------------------------------- error sentences


def suggest(wrong: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'gpu'``, or the list of choices."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]!r}" if close else f"choose from {', '.join(names)}"


def table_of(data: Mapping[str, object]) -> type[TomlTable]:
    """Return the schema of a file with these keys."""
    return next((table for key, table in KINDS.items() if key in data), PlatformTable)


def explain(error: ValidationError, data: dict[str, object]) -> str:
    """Return the first of pydantic's errors as a clause, and the number of further ones.

    An unknown key comes first, since it may be a misspelling of a missing one.
    """
    root = table_of(data)
    details = error.errors(include_url=False)
    unknown = [one for one in details if one["type"] == "extra_forbidden"]
    meant = {(*one["loc"][:-1], _closest_key(root, one)) for one in unknown}
    others = [one for one in details if one not in unknown]
    rest = [one for one in others if not (one["type"] == "missing" and one["loc"] in meant)]
    ordered = unknown + rest
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return _clause(root, ordered[0], data) + more


def _clause(root: type[TomlTable], error: ErrorDetails, data: dict[str, object]) -> str:
    loc = error["loc"]
    where, keys = _place(root, loc, data)
    kind, given = error["type"], error["input"]
    key = keys[-1] if keys else ""
    table = f"{keys[0]} of {where}" if len(keys) > 1 else where
    subject = f"{keys[0]} of {where}" if keys else where
    if len(keys) > 1 and key != "value":
        subject = f"{key} of {subject}"

    if kind == "extra_forbidden":
        return f"unknown key {key!r} in {table}; {suggest(key, _known_keys(root, loc))}"
    if kind == "missing":
        return f"{table} has no {key}; add {_example(root, loc)}"
    if kind == "model_type":
        if not keys or key in _list_entries(root):
            return f"{key or where} is {_short(given)}; it must be a table"
        example = _example(root, loc)
        lacking = "a unit and a source" if "unit" in example else "a source"
        return f"{subject} is {_short(given)} without {lacking}; write {example}"
    if kind == "value_error":
        return f"{table if len(keys) > 1 else subject}: {error['ctx']['error']}"
    if kind == "literal_error":
        return f"{subject} is {_short(given)}; it must be {error['ctx']['expected']}"
    if kind == "list_type":
        return f"{key} must be a list of tables; write [[{key}]]"
    wanted = {
        "greater_than": "above zero",
        "greater_than_equal": "zero or more",
        "less_than_equal": f"at most {error.get('ctx', {}).get('le')}",
        "finite_number": "a finite number",
        "float_type": "a number",
        "int_type": "a whole number",
        "string_type": "a text in quotes",
        "string_too_short": "a text that is not empty",
        "string_pattern_mismatch": "letters, digits and underscores, and begin with no digit",
        "bool_type": "true or false",
    }.get(kind)
    if wanted is None:
        return f"{subject} is {_short(given)}: {error['msg']}"
    return f"{subject} is {_short(given)}; it must be {wanted}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _place(
    root: type[TomlTable], loc: Sequence[int | str], data: dict[str, object]
) -> tuple[str, list[str]]:
    """Return a location as the name of its table (``[host]``) and the keys below that."""
    top, *rest = loc
    single = top in ("host", "link")
    if top not in _list_entries(root) or (not rest and not single):
        return "the file", [str(part) for part in loc]
    if single:
        keys = [str(part) for part in rest]
        return (f"[{top}]", keys) if rest else ("the file", [str(top)])
    index, *inner = rest
    entries = data[str(top)]
    entry = entries[index] if isinstance(entries, list) and isinstance(index, int) else None
    named_by = ("from", "to") if top == "links" else ("name",)
    names = [entry.get(key) for key in named_by] if isinstance(entry, dict) else [None]
    texts = [name for name in names if isinstance(name, str)]
    label = " to ".join(texts) if len(texts) == len(names) else f"number {int(index) + 1}"
    return f"[[{top}]] {label}", [str(key) for key in inner]


def _list_entries(root: type[TomlTable]) -> list[str]:
    """Return the keys of a file that are tables."""
    keys = [field.alias or name for name, field in root.model_fields.items()]
    return [key for key in keys if _type_of(root, key) is not TomlTable]


def _table_at(root: type[TomlTable], loc: Sequence[int | str]) -> type[TomlTable]:
    """Return the schema of the table that holds the last key of ``loc``."""
    table = root
    for key in (part for part in loc[:-1] if isinstance(part, str)):
        if key in table.model_fields:  # else a name that the file gives
            table = _type_of(table, key)
    return table


def _type_of(table: type[TomlTable], key: str) -> type[TomlTable]:
    """Return the schema of an inline table: ``Bandwidth`` for ``memory_bandwidth``."""
    annotation = table.model_fields[key].annotation
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, TomlTable):
            return candidate
    return TomlTable


def _known_keys(root: type[TomlTable], loc: Sequence[int | str]) -> list[str]:
    return [field.alias or name for name, field in _table_at(root, loc).model_fields.items()]


def _closest_key(root: type[TomlTable], error: ErrorDetails) -> str | None:
    """Return the known key that an unknown one resembles."""
    loc = error["loc"]
    close = difflib.get_close_matches(str(loc[-1]), _known_keys(root, loc), n=1)
    return close[0] if close else None


def _example(root: type[TomlTable], loc: Sequence[int | str]) -> str:
    """Return an example for a missing key or a bare number."""
    key, table = str(loc[-1]), _table_at(root, loc)
    if key in _list_entries(root):
        return f"a [{key}] table"
    if issubclass(table, Quantity | Count | Rates):
        parts = re.split(r", (?=\w+ = )", table.example.strip("{ }"))
        written = dict(part.split(" = ") for part in parts)
        return f"{key} = {written[key]}"
    inline = _type_of(table, "from_" if key == "from" else key)
    if issubclass(inline, Quantity | Count | Rates):
        return f"{key} = {inline.example}"
    return f'{key} = "..."'
