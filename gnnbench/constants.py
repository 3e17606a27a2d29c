"""Where the numbers come from that stand for the world: measured, quoted, assumed or fitted.

A number in code says it in its annotation, and stays a plain number:

    HBM_J_PER_BIT: Annotated[float, Constant("J/bit", "quoted", "O'Connor 2014")] = 7e-12

A number that says nothing about the world, such as a limit of a search, is a ``Bound``:

    MAX_SWEEPS: Bound[int] = 60
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Literal, TypeVar, get_args

#: Measured on the machine that is described; stated by a source; taken for plausible, as nobody
#: states it; or set so that a result is met, which then proves nothing.
MarkKind = Literal["measured", "quoted", "assumed", "fitted"]
MARKS: tuple[MarkKind, ...] = get_args(MarkKind)

_Number = TypeVar("_Number")
#: A number that is no fact of the world: a tolerance, a limit, a size that nothing depends on.
Bound = Annotated[_Number, "bound"]


def check_fitted_on(mark: MarkKind, fitted_on: tuple[str, ...]) -> None:
    """Raises ``ValueError`` with a clause where a mark and what was fitted on contradict each
    other."""
    if mark == "fitted" and not fitted_on:
        raise ValueError('mark = "fitted" needs fitted_on, the results that it was fitted on')
    if mark != "fitted" and fitted_on:
        raise ValueError(f'fitted_on goes with mark = "fitted", not with "{mark}"')


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a number is to be believed. ``fitted_on`` names the cells that one was fitted on: by
    their id in the ledger, or by the name of a reproduction and what of it."""

    kind: MarkKind
    fitted_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fitted_on(self.kind, self.fitted_on)

    def describe(self, source: str) -> str:
        """``"assumed: one copy call over PCIe"``."""
        return f"{self.kind}: {source}" if source else self.kind


ASSUMED, MEASURED = Mark("assumed"), Mark("measured")


@dataclass(frozen=True, slots=True)
class Constant:
    """What stands behind a number in code, in its annotation."""

    unit: str
    mark: MarkKind
    source: str
    fitted_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fitted_on(self.mark, self.fitted_on)


@dataclass(frozen=True, slots=True)
class MarkedNumber:
    """A constant with its value as text; ``place`` is the module or file that has it."""

    place: str
    name: str
    value: str
    mark: MarkKind
    source: str
    fitted_on: tuple[str, ...] = ()


def find_constants(module: ModuleType) -> Iterator[MarkedNumber]:
    """The constants of a module and of the classes that it defines, as their annotations say."""
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
                    value = f"{_show(values[name])} {constant.unit}".rstrip()
                    yield MarkedNumber(
                        module.__name__,
                        f"{prefix}{name}",
                        value,
                        constant.mark,
                        constant.source,
                        constant.fitted_on,
                    )


def _defaults(holder: object) -> dict[str, object]:
    """Values by name: those of a module, or the defaults of a class, slotted ones among them."""
    fields = getattr(holder, "__dataclass_fields__", {})
    return {**vars(holder), **{name: field.default for name, field in fields.items()}}


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_show, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
