"""What Python is given for a job: mappings of swaps and options, sizes of a graph, lists.

Every refusal is a ``UsageError`` of one sentence, whichever type a value has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from gnnbench.errors import UsageError
from gnnbench.preparation import find_kind, show_value

if TYPE_CHECKING:
    from gnnbench.records import PartKind

T = TypeVar("T")
#: The value of a part's option, as a part declares it or as text with a unit (``"2GB"``).
OptionValue: TypeAlias = "str | int | float | bool"


def is_list_of(value: object, kind: type | tuple[type, ...]) -> bool:
    """Whether a value is a list or a tuple, of objects of a kind alone."""
    return isinstance(value, (list, tuple)) and all(isinstance(each, kind) for each in value)


def check_sizes(
    named: bool, vertices: int | str | None, edges: int | str | None, dims: Sequence[int] | None
) -> tuple[int | str, int | str] | None:
    """The sizes of a graph to draw; None where a data set is named instead."""
    if named == (vertices is not None) or (vertices is None) != (edges is None):
        raise UsageError("give either dataset, or both vertices and edges.")
    if vertices is None or edges is None:
        return None
    if dims is None:
        raise UsageError("say how wide the layers are, such as dims=[256, 128, 64].")
    return vertices, edges


def read_swaps(swap: Mapping[str, str] | None) -> tuple[tuple[PartKind, str], ...]:
    pairs = _read_pairs("swap", swap, "kernel", "native")
    return tuple((find_kind(kind), str(name)) for kind, name in pairs)


def _read_pairs(
    name: str, given: Mapping[str, T] | None, key: str, value: T
) -> tuple[tuple[str, T], ...]:
    """The items of a mapping from texts to values of the types of ``value``, an example.

    Raises ``UsageError`` for anything else.
    """
    kinds = (str,) if name == "swap" else (str, int, float)
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(
        isinstance(one, str) and isinstance(other, kinds) for one, other in given.items()
    ):
        raise UsageError(
            f"{name} is {show_value(given)}; give a dict, such as {{{key!r}: {value!r}}}."
        )
    return tuple(given.items())


def read_options(options: Mapping[str, OptionValue] | None) -> dict[PartKind, dict[str, str]]:
    """``{"placement.drm": False}`` as texts by kind of part and option."""
    read: dict[PartKind, dict[str, str]] = {}
    for target, value in _read_pairs("options", options, "placement.drm", False):
        kind, dot, option = target.partition(".")
        if not dot or not option:
            raise UsageError(f"option {target!r} is not PART.option, such as placement.drm.")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        read.setdefault(find_kind(kind), {})[option] = text
    return read
