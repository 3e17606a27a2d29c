"""Offers of plugins as texts: enough to list them and to check a name, without the classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gnnbench.errors import PluginError
from gnnbench.plugins.origin import Origin
from gnnbench.plugins.problems import describe, refuse

if TYPE_CHECKING:
    from gnnbench.parts import Part
    from gnnbench.plugins.registry import Registry
    from gnnbench.records import Strategy


@dataclass(frozen=True, slots=True)
class ListedStrategy:
    """A strategy. ``bundles`` has the names of its parts by mode and kind, its usual mode first.

    ``card`` has the clauses of its card by heading; None if the strategy has no card.
    """

    name: str
    summary: str
    source: str
    bundles: Mapping[str, Mapping[str, str]]
    card: Mapping[str, tuple[str, ...]] | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class ListedPart:
    """A part. ``described`` has the text of each option; ``fault`` says why there is none."""

    kind: str
    name: str
    summary: str
    modes: tuple[str, ...]
    described: Mapping[str, str]
    fault: str
    origin: Origin

    @property
    def options(self) -> Mapping[str, str]:
        """The text of each option; ``PluginError`` if an option cannot be described."""
        if self.fault:
            raise PluginError(self.fault)
        return self.described


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model."""

    name: str
    title: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything on offer, sorted by name, with the parts of each kind together.

    ``problems`` are sentences about the plugins that were skipped.
    """

    strategies: tuple[ListedStrategy, ...]
    parts: tuple[ListedPart, ...]
    models: tuple[ListedModel, ...]
    problems: tuple[str, ...]

    def parts_by_kind(self) -> dict[str, list[ListedPart]]:
        """Return the parts of each kind that any plugin offers."""
        found: dict[str, list[ListedPart]] = {}
        for part in self.parts:
            found.setdefault(part.kind, []).append(part)
        return found

    def part(self, kind: str, name: str) -> ListedPart:
        """Return the part called ``name``; ``PluginError`` with close matches if there is none."""
        offered = {part.name: part for part in self.parts_by_kind().get(kind, ())}
        if name not in offered:
            refuse(kind, name, list(offered), self.problems)
        return offered[name]

    def check(self, names: Iterable[tuple[str, str]]) -> None:
        """Raise ``PluginError`` for the first name that is not on offer.

        Each name is paired with ``"strategy"``, ``"model"`` or the kind of a part.
        """
        for what, name in names:
            if what == "strategy":
                known = [strategy.name for strategy in self.strategies]
            elif what == "model":
                known = [model.name for model in self.models]
            else:
                known = [part.name for part in self.parts_by_kind().get(what, ())]
            if name not in known:
                refuse(what, name, known, self.problems)

    def to_document(self) -> dict[str, Any]:
        """Return the listing as JSON values."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Listing:
        """Return the listing that :meth:`to_document` was made of.

        Raises ``KeyError`` or ``TypeError`` for any other document.
        """
        return cls(
            tuple(_read_strategy(**each) for each in document["strategies"]),
            tuple(_read_part(**each) for each in document["parts"]),
            tuple(_read_model(**each) for each in document["models"]),
            tuple(document["problems"]),
        )


def _read_strategy(
    *, card: Mapping[str, list[str]] | None, origin: dict[str, Any], **fields: Any
) -> ListedStrategy:
    clauses = None if card is None else {heading: tuple(each) for heading, each in card.items()}
    return ListedStrategy(**fields, card=clauses, origin=Origin(**origin))


def _read_part(*, modes: list[str], origin: dict[str, Any], **fields: Any) -> ListedPart:
    return ListedPart(**fields, modes=tuple(modes), origin=Origin(**origin))


def _read_model(*, origin: dict[str, Any], **fields: Any) -> ListedModel:
    return ListedModel(**fields, origin=Origin(**origin))


def list_offers(registry: Registry) -> Listing:
    """Return the offers of a registry as texts."""
    from gnnbench.records import PART_KINDS

    return Listing(
        tuple(_list_strategy(registry, each) for each in registry.strategies),
        tuple(_list_part(registry, each) for k in PART_KINDS for each in registry.parts_of(k)),
        tuple(
            ListedModel(name, model.title, registry.model_origin(name))
            for name, model in registry.models.items()
        ),
        registry.problems,
    )


def _list_strategy(registry: Registry, strategy: Strategy) -> ListedStrategy:
    from gnnbench.records import PART_KINDS

    return ListedStrategy(
        strategy.name,
        strategy.summary,
        strategy.source,
        {
            mode: {kind: parts.named(kind) for kind in PART_KINDS}
            for mode, parts in strategy.bundles.items()
        },
        None if strategy.card is None else strategy.card.by_heading(),
        registry.origin(strategy),
    )


def _list_part(registry: Registry, part: type[Part]) -> ListedPart:
    from gnnbench.parts import describe_option, option_fields

    described, fault = {}, ""
    try:
        described = {name: describe_option(part, name) for name in option_fields(part)}
    except PluginError as error:
        fault = str(error)
    except Exception as error:  # reading the annotations of a plugin may raise anything
        fault = f"the options of {part.kind} {part.name!r} cannot be read: {describe(error)}."
    return ListedPart(
        part.kind,
        part.name,
        part.summary,
        tuple(sorted(part.modes)),
        described,
        fault,
        registry.origin(part),
    )
