"""The schema of a platform file, and what is wrong with one, in a sentence.

``describe`` turns these tables into a :class:`gnnbench.platforms.machine.Platform`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from gnnbench.units import unit_scale

Source = Annotated[str, Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
#: No dash: link names join two device names with one. No dot: keys of ``sources`` hold one.
DeviceName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Quantity(Table):
    """A number with its unit and source; ``base`` is the unit it has inside."""

    base: ClassVar[str]
    example: ClassVar[str]

    value: float
    unit: str
    source: Source

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
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]


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
    value: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Count(Table):
    example: ClassVar[str] = '{ value = 4, source = "..." }'
    value: Annotated[int, Field(gt=0, le=65536)]
    source: Source


class HostTable(Table):
    model: Text
    cores: Count
    flops: Flops
    memory_bandwidth: Bandwidth
    core_bandwidth: Bandwidth
    memory: Capacity
    sampling: SamplingRate
    launch: Duration


class AcceleratorTable(Table):
    name: DeviceName
    kind: Literal["gpu", "fpga", "sparse"]
    model: Text
    pipelined: bool = False
    count: Count | None = None
    cores: Count | None = None
    flops: Flops
    memory_bandwidth: Bandwidth
    memory: Capacity
    sampling: SamplingRate | None = None
    launch: Duration


class LinkTable(Table):
    from_: Annotated[str, Field(alias="from")]
    to: str
    bandwidth: Bandwidth
    latency: Duration


class PlatformTable(Table):
    name: Text
    description: Text
    host: HostTable
    accelerators: list[AcceleratorTable] = []
    links: list[LinkTable] = []


_ENTRIES: dict[str, type[Table]] = {
    "host": HostTable,
    "accelerators": AcceleratorTable,
    "links": LinkTable,
}
#: Every key that holds a quantity with a unit: which base unit it has in a Platform.
BASE_UNIT = {
    "flops": Flops.base,
    "memory_bandwidth": Bandwidth.base,
    "core_bandwidth": Bandwidth.base,
    "bandwidth": Bandwidth.base,
    "memory": Capacity.base,
    "sampling": SamplingRate.base,
    "launch": Duration.base,
    "latency": Duration.base,
}


# --------------------------------------------------------------------------- error sentences


def suggest(wrong: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]!r}" if close else f"there is {', '.join(names)}"


def explain(error: ValidationError, data: dict[str, object]) -> str:
    """The first of pydantic's errors as a clause, and how many more there are.

    An unknown key comes first: it explains the missing one it was meant to be.
    """
    details = error.errors(include_url=False)
    unknown = [one for one in details if one["type"] == "extra_forbidden"]
    meant = {(*one["loc"][:-1], _closest_key(one)) for one in unknown}
    others = [one for one in details if one not in unknown]
    rest = [one for one in others if not (one["type"] == "missing" and one["loc"] in meant)]
    ordered = unknown + rest
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return _clause(ordered[0], data) + more


def _clause(error: ErrorDetails, data: dict[str, object]) -> str:
    loc = error["loc"]
    where, keys = _place(loc, data)
    kind, given = error["type"], error["input"]
    key = keys[-1] if keys else ""
    table = f"{keys[0]} of {where}" if len(keys) > 1 else where
    subject = f"{keys[0]} of {where}" if keys else where
    if len(keys) > 1 and key != "value":
        subject = f"{key} of {subject}"

    if kind == "extra_forbidden":
        close = _closest_key(error)
        known = ", ".join(_known_keys(loc))
        hint = f"did you mean {close!r}" if close else f"its keys are {known}"
        return f"unknown key {key!r} in {table}; {hint}"
    if kind == "missing":
        return f"{table} has no {key}; add {_example(loc)}"
    if kind == "model_type":
        example = _example(loc)
        if keys and "unit" in example:
            return f"{subject} is {given!r}, without unit and source; write {example}"
        if keys:
            return f"{subject} is {given!r}, without a source; write {example}"
        return f"{where} must be a table, not {given!r}"
    if kind == "value_error":
        return f"{table}: {error['ctx']['error']}"
    if kind == "literal_error":
        return f"{subject} is {given!r}; it must be {error['ctx']['expected']}"
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
        "list_type": f"a list of tables; write [[{key or where}]]",
    }.get(kind)
    if wanted is None:
        return f"{subject} is {given!r}: {error['msg']}"
    return f"{subject} is {_short(given)}; it must be {wanted}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _place(loc: Sequence[int | str], data: dict[str, object]) -> tuple[str, list[str]]:
    """A location as the name of its table (``[host]``) and the keys below that."""
    top, *rest = loc
    if top not in _ENTRIES or (not rest and top != "host"):
        return "the file", [str(part) for part in loc]
    if top == "host":
        return ("[host]", [str(part) for part in rest]) if rest else ("the file", ["host"])
    index, *keys = rest
    entries = data[str(top)]
    entry = entries[index] if isinstance(entries, list) and isinstance(index, int) else None
    label = f"number {int(index) + 1}"
    if isinstance(entry, dict) and top == "accelerators" and "name" in entry:
        label = f"{entry['name']}"
    elif isinstance(entry, dict) and top == "links" and {"from", "to"} <= set(entry):
        label = f"{entry['from']} to {entry['to']}"
    return f"[[{top}]] {label}", [str(key) for key in keys]


def _table_at(loc: Sequence[int | str]) -> type[Table]:
    """The schema of the table that holds the last key of ``loc``."""
    table: type[Table] = PlatformTable
    for key in (part for part in loc[:-1] if isinstance(part, str)):
        table = _ENTRIES[key] if key in _ENTRIES else _type_of(table, key)
    return table


def _type_of(table: type[Table], key: str) -> type[Table]:
    """The schema of an inline table: ``Bandwidth`` for ``memory_bandwidth``."""
    annotation = table.model_fields[key].annotation
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Table):
            return candidate
    return Table


def _known_keys(loc: Sequence[int | str]) -> list[str]:
    return [field.alias or name for name, field in _table_at(loc).model_fields.items()]


def _closest_key(error: ErrorDetails) -> str | None:
    """The known key that an unknown one looks like."""
    loc = error["loc"]
    close = difflib.get_close_matches(str(loc[-1]), _known_keys(loc), n=1)
    return close[0] if close else None


def _example(loc: Sequence[int | str]) -> str:
    """What to write for a missing key or a bare number."""
    key, table = str(loc[-1]), _table_at(loc)
    if key in _ENTRIES:
        return f"a [{key}] table"
    if key == "value":
        return "value = and the number"
    if key == "source":
        return 'source = "where the number comes from"'
    if key == "unit":
        unit = getattr(table, "example", "").split('"')[1]
        return f'unit = "{unit}"'
    name = "from_" if key == "from" else key
    if name in table.model_fields:
        inline = _type_of(table, name)
        if issubclass(inline, Quantity | Count):
            return f"{key} = {inline.example}"
    return f'{key} = "..."'
