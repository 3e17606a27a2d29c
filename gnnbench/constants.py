"""The provenance of numbers that describe the world: measured, quoted, assumed or fitted.

A number in code states it in its annotation, and stays a plain number:

    HBM_J_PER_BIT: Annotated[float, Constant("J/bit", "quoted", "O'Connor 2014")] = 7e-12

A number that says nothing about the world, such as a limit of a search, is a ``Bound``:

    MAX_SWEEPS: Bound[int] = 60
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import ModuleType
from typing import Annotated, Literal, TypeVar, get_args

#: measured: on the described machine; quoted: stated by a source; assumed: plausible, but stated
#: nowhere; fitted: set to reproduce a result, which then proves nothing.
MarkKind = Literal["measured", "quoted", "assumed", "fitted"]
MARKS: tuple[MarkKind, ...] = get_args(MarkKind)

_Number = TypeVar("_Number")
#: A number that is no fact of the world: a tolerance, a limit, or an arbitrary size.
Bound = Annotated[_Number, "bound"]


def check_fitted_on(mark: MarkKind, fitted_on: tuple[str, ...]) -> None:
    """Raise ``ValueError`` with a clause if a mark and its fitted results contradict each other."""
    if mark == "fitted" and not fitted_on:
        raise ValueError('mark = "fitted" needs fitted_on, the results that it was fitted on')
    if mark != "fitted" and fitted_on:
        raise ValueError(f'fitted_on goes with mark = "fitted", not with "{mark}"')


@dataclass(frozen=True, slots=True)
class Mark:
    """The provenance of a number.

    ``fitted_on`` names the cells that it was fitted on: by their id in the ledger, or by a
    reproduction's name and an item of it.
    """

    kind: MarkKind
    fitted_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fitted_on(self.kind, self.fitted_on)

    def describe(self, source: str) -> str:
        """Return ``"assumed: one copy call over PCIe"``, or for a fitted number also its cells."""
        kind = f"{self.kind} on {', '.join(self.fitted_on)}" if self.fitted_on else self.kind
        return f"{kind}: {source}" if source else kind


ASSUMED, MEASURED = Mark("assumed"), Mark("measured")


@dataclass(frozen=True, slots=True)
class Constant:
    """The provenance of a number in code, in its annotation."""

    unit: str
    mark: MarkKind
    source: str
    fitted_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fitted_on(self.mark, self.fitted_on)


@dataclass(frozen=True, slots=True)
class MarkedNumber:
    """A constant with its value as text; ``place`` is its module or file."""

    place: str
    name: str
    value: str
    mark: MarkKind
    source: str
    fitted_on: tuple[str, ...] = ()


def find_marked(table: object, place: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every number of a TOML file, a table with a source, and the keys that lead to it.

    Entries of a list are identified by their names, or by the ends of a link.
    """
    if isinstance(table, list):
        for each in table:
            if isinstance(each, Mapping):
                names = [each[key] for key in ("name", "from", "to") if key in each]
                yield from find_marked(each, ".".join([place, "-".join(map(str, names))]))
    elif isinstance(table, Mapping):
        if "source" in table and not table.keys().isdisjoint(("value", "values")):
            yield place, table
        else:
            for key, value in table.items():
                yield from find_marked(value, f"{place}.{key}" if place else key)


def read_number(place: str, name: str, table: Mapping[str, object]) -> MarkedNumber:
    """Return a number of a TOML file that :func:`find_marked` yielded."""
    value = table.get("value", table.get("values"))
    shown = _show(tuple(value) if isinstance(value, list) else value)
    fitted_on = table.get("fitted_on", ())
    mark = next((mark for mark in MARKS if mark == table.get("mark")), ASSUMED.kind)
    return MarkedNumber(
        place,
        name,
        f"{shown} {table.get('unit', '')}".rstrip(),
        mark,
        str(table["source"]),
        tuple(map(str, fitted_on)) if isinstance(fitted_on, list) else (),
    )


def find_constants(module: ModuleType) -> Iterator[MarkedNumber]:
    """Yield the annotated constants of a module and of the classes that it defines."""
    holders: list[tuple[str, object]] = [("", module)]
    holders += [
        (f"{name}.", value)
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    for prefix, holder in holders:
        values = _defaults(holder)
        for name, written in inspect.get_annotations(holder).items():  # type: ignore[arg-type]
            annotation = written
            if isinstance(written, str):
                if "Constant(" not in written:
                    continue
                annotation = eval(written, vars(module))
            for constant in get_args(annotation)[1:]:
                if isinstance(constant, Constant):
                    found = _show(values[name]) if name in values else "as found by fitting"
                    value = f"{found} {constant.unit}".rstrip()
                    yield MarkedNumber(
                        module.__name__,
                        f"{prefix}{name}",
                        value,
                        constant.mark,
                        constant.source,
                        constant.fitted_on,
                    )


def _defaults(holder: object) -> dict[str, object]:
    """Return values by name: those of a module, or the defaults of a class, even if slotted."""
    values = dict(vars(holder))
    for field in fields(holder) if is_dataclass(holder) else ():
        if field.default_factory is not MISSING:
            values[field.name] = field.default_factory()
        elif field.default is not MISSING:
            values[field.name] = field.default
        else:
            values.pop(field.name, None)
    return values


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_show, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
