"""Records with groups of fields, and the flat TOML tables that state them.

A field that is a record itself, without a :class:`Key`, is a group. A table of a file has the keys
of all groups side by side. Names of fields are therefore unique within a record and its groups.
Fields without a key are not in files.

    memory_bytes: Annotated[int, Key("memory", "B")]

A number with a unit is an inline table in the file, with its value, its unit, its source and its
mark. It is validated by the constraints of the field, and converted to the unit of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from functools import cache, reduce
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from gnnbench.constants import Mark, MarkKind, check_fitted_on
from gnnbench.units import unit_scale

R = TypeVar("R")

Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
#: The keys of every number besides its value and unit. Without a mark it counts as assumed.
_MARKED: dict[str, Any] = {
    "source": Text,
    "mark": MarkKind,
    "fitted_on": Annotated[list[Text], Field(min_length=1)],
}
_OPTIONAL = ("mark", "fitted_on")


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a field in a file, which by default is the field's name.

    ``unit`` is the unit of the field, empty for a count or a share. None means a value without a
    source, such as a text. Files must state a ``required`` field, even if it has a default.
    """

    name: str = ""
    unit: str | None = None
    required: bool = False

    def list_keys(self, source: Any) -> dict[str, Any]:
        """Return the annotations of the keys of a number's inline table."""
        if _is_record(source):
            own = {each.key.name: each.annotation for each in list_leaves(source).values()}
        else:
            own = {"value": source}
        return {**_MARKED, **own, **({"unit": str} if self.unit else {})}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if self.unit is None:
            return handler(source)
        keys = self.list_keys(source)
        schemas = {key: handler.generate_schema(each) for key, each in keys.items()}
        if "value" in keys:
            # A whole number of bytes may be a fraction of the unit in the file.
            whole = self.unit and source is int
            schemas["value"] = handler.generate_schema(Positive) if whole else handler(source)

        def read(table: dict[str, Any]) -> object:
            check_fitted_on(table.get("mark", "assumed"), tuple(table.get("fitted_on", ())))
            scale = Decimal(repr(unit_scale(table["unit"], self.unit))) if self.unit else None
            return _read_number(source, table, scale)

        return _make_table(schemas, set(keys) - {*_OPTIONAL}, read)


def _read_number(source: Any, table: dict[str, Any], scale: Decimal | None) -> object:
    """Return a number or curve in the unit of its field, rounded once."""

    def convert(value: float) -> float:
        return value if scale is None else float(Decimal(repr(value)) * scale)

    if _is_record(source):
        leaves = list_leaves(source)
        curve: Any = make_record(source, {n: table[each.key.name] for n, each in leaves.items()})
        return curve.map_rates(convert)
    value = convert(table["value"])
    return round(value) if source is int else value


def _make_table(
    schemas: Mapping[str, CoreSchema], required: Collection[str], read: Callable[[Any], object]
) -> CoreSchema:
    known = {
        key: core_schema.typed_dict_field(schema, required=key in required)
        for key, schema in schemas.items()
    }
    table = core_schema.typed_dict_schema(
        known, extra_behavior="forbid", config=core_schema.CoreConfig(strict=True)
    )
    return core_schema.no_info_after_validator_function(read, table)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file that states a record.

    The file leaves out the fields that are ``fixed``, by their names. It may not have the keys in
    ``without``, and must have those in ``needs``, even if their fields have defaults.
    """

    fixed: Mapping[str, object] = field(default_factory=dict, hash=False)
    without: Collection[str] = ()
    needs: Collection[str] = ()

    def list_fields(self, record: type) -> dict[str, tuple[str, Leaf]]:
        """Return the fields of ``record`` by key, each with its name."""
        return {
            each.key.name: (name, each)
            for name, each in list_leaves(record).items()
            if each.key.name and name not in self.fixed and each.key.name not in self.without
        }

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        known = self.list_fields(source)
        required = {
            key
            for key, (_, each) in known.items()
            if each.default is MISSING or each.key.required or key in self.needs
        }
        schemas = {
            key: handler.generate_schema(each.annotation) for key, (_, each) in known.items()
        }

        def read(table: dict[str, Any]) -> object:
            return make_record(
                source, {**self.fixed, **{known[key][0]: value for key, value in table.items()}}
            )

        return _make_table(schemas, required, read)


class Leaf(NamedTuple):
    """A field of a record or of one of its groups, by its ``path``.

    The name of ``key`` is empty if files do not state the field.
    """

    path: tuple[str, ...]
    annotation: Any
    key: Key
    default: object


def list_leaves(record: Any) -> Mapping[str, Leaf]:
    """Return the fields of a record and of its groups by name."""
    return _find_leaves(record)


def _is_record(source: Any) -> bool:
    return isinstance(source, type) and is_dataclass(source)


@cache
def _find_leaves(record: Any) -> Mapping[str, Leaf]:
    hints, found = get_type_hints(record, include_extras=True), dict[str, Leaf]()
    for each in fields(record):
        hint = hints[each.name]
        key = find_metadata(hint, Key)
        if key is None and _is_record(hint):
            for name, leaf in list_leaves(hint).items():
                found[name] = leaf._replace(path=(each.name, *leaf.path))
            continue
        key = Key() if key is None else replace(key, name=key.name or each.name)
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        found[each.name] = Leaf((each.name,), hint, key, default)
    return found


K = TypeVar("K")


def find_metadata(annotation: Any, kind: type[K]) -> K | None:
    """Return the metadata of a ``kind`` that an annotation has, or ``annotation | None``."""
    for each in (annotation, *get_args(annotation)):
        for found in getattr(each, "__metadata__", ()):
            if isinstance(found, kind):
                return found
    return None


def list_keys(annotation: Any) -> dict[str, Any]:
    """Return the annotations of the keys of a table, or of the tables of a list.

    A plain value has none.
    """
    if metadata := getattr(annotation, "__metadata__", ()):
        source = annotation.__origin__
        for each in metadata:
            if isinstance(each, Table):
                return {key: one.annotation for key, (_, one) in each.list_fields(source).items()}
            if isinstance(each, Key) and each.unit is not None:
                return each.list_keys(source)
        return list_keys(source)
    return next((keys for each in get_args(annotation) if (keys := list_keys(each))), {})


def make_record(record: type[R], values: Mapping[str, object]) -> R:
    """Return a record with these fields, each given to the group that has it."""
    own, groups = _split(record, values)
    hints = get_type_hints(record) if groups else {}
    return record(**own, **{name: make_record(hints[name], each) for name, each in groups.items()})


def replace_fields(record: R, **values: object) -> R:
    """Return a record with some fields replaced, in whichever group they are."""
    own, groups = _split(type(record), values)
    for name, each in groups.items():
        own[name] = replace_fields(getattr(record, name), **each)
    return replace(record, **own)  # type: ignore[type-var]


def _split(
    record: type, values: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, dict[str, object]]]:
    """Return the values of a record's own fields, and those of each group."""
    own: dict[str, Any] = {}
    groups: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        leaf = list_leaves(record).get(name)
        if leaf is None or len(leaf.path) == 1:
            own[name] = value
        else:
            groups.setdefault(leaf.path[0], {})[name] = value
    return own, groups


def flatten(record: object) -> dict[str, Any]:
    """Return the fields of a record and of its groups by name."""
    return {
        name: reduce(getattr, each.path, record) for name, each in list_leaves(type(record)).items()
    }


def map_numbers(record: R, change: Callable[[str, Any], object]) -> R:
    """Return a record with ``change(unit, number)`` in place of each number and curve.

    Records by name in it are changed too.
    """
    changed: dict[str, object] = {}
    leaves = list_leaves(type(record))
    for name, value in flatten(record).items():
        unit = leaves[name].key.unit
        if isinstance(value, Mapping):
            changed[name] = {each: map_numbers(inner, change) for each, inner in value.items()}
        elif unit is not None and value is not None:
            changed[name] = change(unit, value)
    return replace_fields(record, **changed)


class Number(NamedTuple):
    """A number or curve of a record: its key in a file, its unit, and its value."""

    key: str
    unit: str
    value: Any


def list_numbers(
    record: object, sourced: Collection[str] = (), prefix: str = ""
) -> Iterator[Number]:
    """Yield the numbers that a file states.

    A number that equals its default is one of them only if it is required, or if the dotted key
    after ``prefix`` is ``sourced``.
    """
    values = flatten(record)
    for name, each in list_leaves(type(record)).items():
        key, value = each.key, values[name]
        stated = value != each.default or f"{prefix}{key.name}" in sourced
        if key.unit is not None and (key.required or (value and stated)):
            yield Number(key.name, key.unit, value)


def read_mark(table: Mapping[str, Any]) -> Mark:
    """Return the mark of a number of a valid file."""
    return Mark(table.get("mark", "assumed"), tuple(table.get("fitted_on", ())))
