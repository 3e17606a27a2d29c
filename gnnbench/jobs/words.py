"""Words of strategies, parts and options, as typed or as Python's mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from gnnbench.errors import UsageError
from gnnbench.jobs.limits import COUNT, show_value
from gnnbench.units import parse_bytes

if TYPE_CHECKING:
    from gnnbench.records import PartKind, Strategy

    #: A strategy by name, ``"hongtu:kernel=dgl"`` with another part, or an object.
    StrategyLike = str | Strategy
    #: A strategy's name, and the parts that replace its own.
    ChosenStrategy = tuple[str, tuple[tuple[PartKind, str], ...]]

# Spelt out, not imported: `gnnbench --help` does without NumPy and torch. Tests hold them equal.
PART_NAMES = ("sampler", "placement", "communication", "memory", "kernel")
T = TypeVar("T")


def parse_strategies(text: str) -> tuple[ChosenStrategy, ...]:
    """Parse ``"hyscale,hongtu:kernel=dgl"`` as names with their swaps, each once."""
    chosen: list[ChosenStrategy] = []
    for word in text.split(","):
        name, *swaps = (part.strip() for part in word.split(":"))
        if not name:
            raise UsageError(f"{text!r} has an empty name; write it as A,B.")
        each = (name, parse_swaps(swaps))
        if each in chosen:
            raise UsageError(
                f"{word.strip()!r} is named twice; name it once, and ask for repeats to run it "
                f"again."
            )
        chosen.append(each)
    return tuple(chosen)


def choose_strategies(words: Sequence[StrategyLike]) -> tuple[ChosenStrategy, ...]:
    """Return strategies by name, each with its swaps; objects stand for their names."""
    if not words:
        raise UsageError("no strategies are named; name some, such as ['hyscale', 'hongtu'].")
    return parse_strategies(
        ",".join(each if isinstance(each, str) else each.name for each in words)
    )


def parse_swaps(texts: Sequence[str]) -> tuple[tuple[PartKind, str], ...]:
    """Parse ``communication=hongtu`` as a kind of part and a part's name."""
    swaps = []
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{text!r} is not PART=NAME, such as communication=hongtu.")
        swaps.append((find_kind(kind), name.strip()))
    return tuple(swaps)


def parse_settings(texts: Sequence[str]) -> dict[PartKind, dict[str, str]]:
    """Parse ``memory.device_bytes=2GB`` as texts by kind of part and option."""
    options: dict[PartKind, dict[str, str]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        kind, dot, option = target.partition(".")
        if not equals or not dot or not option.strip():
            raise UsageError(f"{text!r} is not PART.option=value, such as memory.device_bytes=2GB.")
        of_part = options.setdefault(find_kind(kind), {})
        if option.strip() in of_part:
            raise UsageError(f"{target} is set twice; keep one.")
        of_part[option.strip()] = value.strip()
    return options


def find_kind(text: str) -> PartKind:
    """Return the kind of part that a word names."""
    for kind in PART_NAMES:
        if text.strip() == kind:
            return kind  # type: ignore[return-value]
    raise UsageError(f"there is no part {text!r}; the parts are {', '.join(PART_NAMES)}.")


def read_swaps(swap: Mapping[str, str] | Sequence[str] | None) -> tuple[tuple[PartKind, str], ...]:
    """Read ``{"kernel": "native"}`` or ``["kernel=native"]`` as kinds of parts and parts' names.

    Raises ``UsageError``.
    """
    if _are_texts(swap):
        return parse_swaps(swap)
    pairs = _read_pairs("swap", swap, "kernel", "native")
    return tuple((find_kind(kind), name) for kind, name in pairs)


def read_settings(
    options: Mapping[str, str | int | float | bool] | Sequence[str] | None,
) -> dict[PartKind, dict[str, str]]:
    """Read ``{"placement.drm": False}`` or ``["placement.drm=false"]`` as texts by part and option.

    Raises ``UsageError``.
    """
    if _are_texts(options):
        return parse_settings(options)
    read: dict[PartKind, dict[str, str]] = {}
    for target, value in _read_pairs("options", options, "placement.drm", False):
        kind, dot, option = target.partition(".")
        if not dot or not option:
            raise UsageError(f"option {target!r} is not PART.option, such as placement.drm.")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        read.setdefault(find_kind(kind), {})[option] = text
    return read


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


def _read_pairs(name: str, given: object, key: str, value: T) -> tuple[tuple[str, T], ...]:
    """Return the items of a mapping from texts to values of the type of ``value``, an example."""
    kinds = (str,) if name == "swap" else (str, Real)
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(
        isinstance(one, str) and isinstance(other, kinds) for one, other in given.items()
    ):
        raise UsageError(
            f"{name} is {show_value(given)}; give a dict, such as {{{key!r}: {value!r}}}."
        )
    return tuple(given.items())


def read_size(given: int | float | str | None) -> int | None:
    """Convert a number or text such as ``"24GB"`` to bytes.

    Raises ``UsageError`` for anything that is no size above 0.
    """
    if given is None:
        return None
    try:
        whole = int(given) if isinstance(given, float) and given.is_integer() else given
        size = parse_bytes(whole) if isinstance(whole, str) else COUNT.read(whole)
    except ValueError:
        size = 0
    if size <= 0:
        raise UsageError(f"{show_value(given)} is not a size above 0, such as 24GB.")
    return size
