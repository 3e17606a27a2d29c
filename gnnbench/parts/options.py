"""The options of a part: how they are declared, and how ``--set`` parses them."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import types
import typing
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeVar

from gnnbench import units
from gnnbench.errors import PluginError, UsageError, closest

if TYPE_CHECKING:
    from gnnbench.parts.base import Part

T = TypeVar("T")


def option(default: T, help: str, *, unit: Literal["", "bytes"] = "", tried: Sequence[T] = ()) -> T:
    """Declare an option of a part: a dataclass field with a default and one line of help.

    With ``unit="bytes"`` the text form may carry a unit (``2GB``). ``tried`` are the values that
    ``gnnbench advise`` tries in its search for the best settings. It is empty for an option that
    does not affect speed or that serves studies of the model.
    """
    declared: T = field(default=default, metadata={"help": help, "unit": unit, "tried": tried})
    return declared


def option_fields(part: type[Part]) -> dict[str, dataclasses.Field[object]]:
    """Return the options of a part class by name."""
    # Every kind of part is a dataclass.
    return {f.name: f for f in dataclasses.fields(part) if f.init}  # type: ignore[arg-type]


def parse_option(part_class: type[Part], option: str, text: str) -> object:
    """Return the value of ``--set kind.option=text``, parsed by the annotation of the part's field.

    It parses ``int`` (with ``unit="bytes"`` also ``2GB``), ``float``, ``bool``, ``str`` and
    ``Literal``. Raises ``UsageError`` for an unknown option or a text that does not fit.
    """
    what = f"{part_class.kind} {part_class.name!r}"
    fields = option_fields(part_class)
    if option not in fields:
        if not fields:
            raise UsageError(f"{what} has no option {option!r}; it takes no options.")
        raise UsageError(
            f"{what} has no option {option!r}{closest(option, fields)}; it has "
            f"{'; '.join(describe_option(part_class, name) for name in fields)}."
        )
    annotation = _annotation(part_class, option)
    unit = fields[option].metadata.get("unit", "")
    accepts = _accepts(annotation, unit)
    if accepts is None:
        raise PluginError(
            f"option {option!r} of {what} is declared as {annotation!r}; an option must be int, "
            f"float, bool, str or Literal."
        )
    try:
        return _read(annotation, unit, text.strip())
    except ValueError:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise UsageError(
            f"{part_class.kind}.{option} of {what} takes {accepts}{_range(annotation, unit)}, not "
            f"{shown!r}."
        ) from None


def describe_option(part_class: type[Part], option: str) -> str:
    """Return ``"fanout (a whole number, default 10): neighbours drawn"`` for lists and messages."""
    field = option_fields(part_class)[option]
    accepts = _accepts(_annotation(part_class, option), field.metadata.get("unit", ""))
    help_text = str(field.metadata.get("help", "")) or "no description"
    return f"{option} ({accepts}, default {field.default!r}): {help_text}"


def list_tried(part_class: type[Part], option: str) -> tuple[str, ...]:
    """Return the values of an option that are worth trying, as ``--set`` takes them."""
    tried: Sequence[object] = option_fields(part_class)[option].metadata.get("tried", ())
    return tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in tried)


def list_choices(part_class: type[Part], option: str) -> tuple[object, ...]:
    """Return the values of a ``Literal`` or boolean option; an empty tuple for any other."""
    annotation = _annotation(part_class, option)
    if annotation is bool:
        return (False, True)
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _annotation(part_class: type[Part], option: str) -> object:
    """Return an option's type; strings are resolved in the module of the class that declares it."""
    owner = next(c for c in part_class.__mro__ if option in inspect.get_annotations(c))
    # Resolve this annotation alone: others of the class may need names imported for typing only.
    annotations = inspect.get_annotations(owner)
    alone = types.SimpleNamespace(__annotations__={option: annotations[option]})
    try:
        hints = typing.get_type_hints(alone, vars(sys.modules[owner.__module__]))
    except NameError as error:
        raise PluginError(
            f"option {option!r} of {part_class.kind} {part_class.name!r} has an annotation that "
            f"cannot be read: NameError: {error}."
        ) from error
    return hints[option]


def _accepts(annotation: object, unit: str) -> str | None:
    """Describe the text that an annotation accepts; None if text cannot give it."""
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(value) for value in typing.get_args(annotation))
    if annotation is int and unit == "bytes":
        return "a size in bytes (such as 2GB, 512MiB or 1000000)"
    known: dict[object, str] = {
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
        str: "text",
    }
    return known.get(annotation)


#: The largest whole number: arrays cannot count further.
LARGEST = 2**63 - 1
#: Characters of an invalid text that a message repeats.
_SHOWN = 24


def _range(annotation: object, unit: str) -> str:
    """Describe the range of a whole number, for messages."""
    if annotation is int:
        return f" below {units.LARGEST_SIZE:.0e}" if unit else f" from {-LARGEST:,} to {LARGEST:,}"
    return ""


_TRUTH = {"true": True, "yes": True, "on": True, "1": True}
_TRUTH |= {"false": False, "no": False, "off": False, "0": False}


def _read(annotation: object, unit: str, text: str) -> object:
    """Parse text as a value of the annotation; ``ValueError`` where it does not fit."""
    if typing.get_origin(annotation) is Literal:
        values = {str(value): value for value in typing.get_args(annotation)}
        if text not in values:
            raise ValueError(text)
        return values[text]
    if annotation is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.lower()]
    if annotation is int:
        count = units.parse_bytes(text) if unit == "bytes" else int(text)
        if not -LARGEST <= count <= LARGEST:
            raise ValueError(text)
        return count
    if annotation is float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    return text
