"""Checks of offers from plugins: each names what an offer lacks."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import TypeVar, cast

from gnnbench.models import Layer
from gnnbench.parts import BOTH_MODES, LayerClass, Part, closest, option_fields
from gnnbench.plugins.problems import BrokenOfferError, describe
from gnnbench.plugins.registry import BASES
from gnnbench.records import PART_KINDS, Mode, PartKind, Strategy

#: A kind of class that plugins offer by name.
Offered = TypeVar("Offered")
#: Names stand in ``--plugins a,b``, ``--swap kind=name`` and file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: Members of parts that the harness reads in one mode of training alone.
_OF_ONE_MODE: Mapping[str, Mode] = {
    "prefetch": "mini-batch",
    "rounds_to": "mini-batch",
    "ahead": "full-graph",
    "choose_swapped": "full-graph",
}


def _is_own(part: type[Part], member: str) -> bool:
    """Return whether a part has a member of its own, not that of its kind in the harness."""
    owner = next((each for each in part.__mro__ if member in vars(each)), Part)
    return not owner.__module__.startswith(Part.__module__.rpartition(".")[0])


def check_any_part(part: object, plugin: str) -> tuple[str, type[Part]]:
    """Return an offered part's name and its class, of whatever kind.

    Raises ``BrokenOfferError`` as :func:`check_part`, or for a class of no kind.
    """
    for kind, bases in BASES.items():
        if isinstance(part, type) and issubclass(part, bases):
            return check_part(kind, part, plugin)
    raise BrokenOfferError(
        f"plugin {plugin!r} offers {part!r} as a part, which is not a subclass of a kind of part."
    )


def check_part(kind: PartKind, part: object, plugin: str) -> tuple[str, type[Part]]:
    """Return an offered part's name and its class, which can be assembled.

    Raises ``BrokenOfferError``, which names what it lacks.
    """
    bases = BASES[kind]
    expected = " or ".join(base.__name__ for base in bases)
    if not (isinstance(part, type) and issubclass(part, bases)):
        raise BrokenOfferError(
            f"plugin {plugin!r} offers {part!r} as a {kind}, which is not a subclass of {expected}."
        )
    what = f"{kind} class {part.__name__} of plugin {plugin!r}"
    name = getattr(part, "name", None)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise BrokenOfferError(
            f"{what} needs a class variable name of letters, digits, '-', '_' or '.', not {name!r}."
        )
    what = f"{kind} {name!r} of plugin {plugin!r}"
    if inspect.isabstract(part):
        missing = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
        raise BrokenOfferError(f"{what} is abstract; {part.__name__} must define {missing}.")
    summary = getattr(part, "summary", None)
    if not (isinstance(summary, str) and summary.strip()):
        raise BrokenOfferError(f"{what} needs a class variable summary, one line of text.")
    bare = [key for key, value in vars(part).items() if isinstance(value, dataclasses.Field)]
    if bare:
        raise BrokenOfferError(
            f"{what} declares option {bare[0]!r} but lacks the decorator @dataclass."
        )
    for hook, mode in _OF_ONE_MODE.items():
        if _is_own(part, hook) and part.modes != {mode}:
            raise BrokenOfferError(
                f"{what} has {hook}, for {mode} training; set modes to that alone."
            )
    for option in option_fields(part).values():
        if option.default is option.default_factory is dataclasses.MISSING:
            raise BrokenOfferError(f"option {option.name!r} of {what} has no default; give it one.")
    return name, part


def check_strategy(strategy: object, plugin: str) -> tuple[str, Strategy]:
    """Return an offered strategy's name, and the strategy; ``BrokenOfferError`` names what it
    lacks."""
    if not isinstance(strategy, Strategy):
        raise BrokenOfferError(
            f"plugin {plugin!r} offers {strategy!r} as a strategy, not a Strategy."
        )
    if not (isinstance(strategy.name, str) and _NAME.fullmatch(strategy.name)):
        raise BrokenOfferError(
            f"plugin {plugin!r} offers a strategy called {strategy.name!r}; a name has letters, "
            f"digits, '-', '_' and '.'."
        )
    if not (strategy.bundles and set(strategy.bundles) <= BOTH_MODES):
        raise BrokenOfferError(
            f"strategy {strategy.name!r} of plugin {plugin!r} must have a bundle for mini-batch, "
            f"for full-graph or for both, not {sorted(strategy.bundles)}."
        )
    return strategy.name, strategy


def check_bundles(
    strategy: Strategy, plugin: str, parts: Mapping[tuple[PartKind, str], type[Part]]
) -> None:
    """Raise ``BrokenOfferError`` unless every part of a strategy is on offer and works in its
    mode."""
    for mode, bundle in strategy.bundles.items():
        for kind in PART_KINDS:
            name = bundle.named(kind)
            if (kind, name) not in parts:
                known = [offered for group, offered in parts if group == kind]
                raise BrokenOfferError(
                    f"strategy {strategy.name!r} of plugin {plugin!r} cannot be used because no "
                    f"plugin offers its {kind} {name!r}{closest(name, known)}."
                )
            if mode not in parts[kind, name].modes:
                raise BrokenOfferError(
                    f"strategy {strategy.name!r} of plugin {plugin!r} cannot be used because its "
                    f"{kind} {name!r} does not work for {mode} training."
                )


def check_model(item: object, plugin: str) -> tuple[str, LayerClass]:
    """Return an offered model's name and its layer class; ``BrokenOfferError`` names what it
    lacks."""
    name, layer = check_class("model", Layer, item, plugin)  # type: ignore[type-abstract]
    what = f"model {name!r} of plugin {plugin!r}"
    title = getattr(layer, "title", None)
    if not (isinstance(title, str) and title.strip()):
        raise BrokenOfferError(f"{what} needs a class variable title, what results call it.")
    try:
        inspect.signature(layer).bind(1, 1, activation=True, generator=None)
    except TypeError as error:
        raise BrokenOfferError(
            f"{what} cannot be made ({describe(error)}); __init__ of {layer.__name__} must take "
            f"(self, in_features, out_features, *, activation, generator)."
        ) from error
    return name, cast(LayerClass, layer)


def check_class(
    what: str, base: type[Offered], item: object, plugin: str
) -> tuple[str, type[Offered]]:
    """Return an offered class's name, and the class; ``BrokenOfferError`` names what it lacks."""
    if not (isinstance(item, type) and issubclass(item, base)):
        raise BrokenOfferError(
            f"plugin {plugin!r} offers {item!r} as a {what}, which is not a subclass of "
            f"{base.__name__}."
        )
    name = getattr(item, "name", None)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise BrokenOfferError(
            f"{what} class {item.__name__} of plugin {plugin!r} needs a class variable name of "
            f"letters, digits, '-', '_' or '.', not {name!r}."
        )
    if inspect.isabstract(item):
        missing = ", ".join(sorted(getattr(item, "__abstractmethods__", ())))
        raise BrokenOfferError(
            f"{what} {name!r} of plugin {plugin!r} is abstract; {item.__name__} must define "
            f"{missing}."
        )
    return name, item
