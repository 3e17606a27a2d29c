"""Strategies by the names of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gnnbench.host.toml import read_toml
from gnnbench.records.data import Mode

PartKind = Literal["sampler", "placement", "communication", "memory", "kernel"]
PART_KINDS: tuple[PartKind, ...] = ("sampler", "placement", "communication", "memory", "kernel")


@dataclass(frozen=True, slots=True)
class Parts:
    """The names of the five parts of a strategy."""

    sampler: str
    placement: str
    communication: str
    memory: str
    kernel: str

    def named(self, kind: PartKind) -> str:
        """Return the name of the part of a kind."""
        name: str = getattr(self, kind)
        return name


@dataclass(frozen=True, slots=True)
class Ablation:
    """One step of an ablation: a strategy with other parts and options.

    ``swaps`` are (kind, name) and ``options`` (kind, option, text). ``quoted`` is the largest
    speed-up over the first step that the strategy's paper reports.
    """

    label: str
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: tuple[tuple[PartKind, str, str], ...] = ()
    quoted: float | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """The faithfulness of a strategy to the system that it names, as clauses.

    Parts of the paper are ``implemented``, ``simplified`` or ``left_out``. ``validated`` names the
    evidence: a command, such as ``gnnbench reproduce hyscale-table6``, or a file of tests, and
    after a colon the finding. Options stand as ``part.option`` between backticks.
    """

    implemented: tuple[str, ...]
    simplified: tuple[str, ...]
    left_out: tuple[str, ...]
    validated: tuple[str, ...]

    def by_heading(self) -> dict[str, tuple[str, ...]]:
        """Return the clauses by their heading in reports."""
        return {
            "implemented": self.implemented,
            "simplified": self.simplified,
            "left out": self.left_out,
            "validated": self.validated,
        }


@dataclass(frozen=True, slots=True)
class Strategy:
    """A named bundle of parts, one bundle for each mode it supports, its usual mode first.

    ``ablation`` are its paper's steps from a plain baseline to the whole strategy, each of which
    adds something to the one before; empty if the paper has none. ``plain`` names the strategy that
    does equal work with plain parts, as the baseline of this one; empty means the first step of the
    ablation. ``platform`` names the bundled machine of its paper, the default for modelling it.
    ``card`` describes how much of the system is implemented; None if there is no card.
    """

    name: str
    summary: str
    source: str
    bundles: Mapping[Mode, Parts]
    ablation: tuple[Ablation, ...] = ()
    plain: str = ""
    platform: str = ""
    card: Card | None = None

    @property
    def default_mode(self) -> Mode:
        """The first mode that the strategy trains in."""
        return next(iter(self.bundles))


def read_strategies(module: str) -> list[Strategy]:
    """Read the strategies of a plugin from ``strategies.toml`` beside the file of its module.

    Each table has the fields of a :class:`Strategy`, and is called by its name.

    Raises
    ------
    FileRefusedError
        The file cannot be read.
    KeyError, TypeError
        A field is missing or unknown.
    """
    tables: dict[str, Any] = read_toml(Path(module).with_name("strategies.toml"))
    return [_make_strategy(name, **table) for name, table in tables.items()]


def _make_strategy(
    name: str,
    *,
    bundles: Mapping[Mode, Any],
    ablation: Sequence[Mapping[str, Any]] = (),
    card: Mapping[str, Sequence[str]] | None = None,
    **fields: Any,
) -> Strategy:
    def make_step(swaps: Any = (), options: Any = (), **others: Any) -> Ablation:
        return Ablation(
            swaps=tuple(map(tuple, swaps)), options=tuple(map(tuple, options)), **others
        )

    return Strategy(
        name,
        bundles={mode: Parts(**parts) for mode, parts in bundles.items()},
        ablation=tuple(make_step(**step) for step in ablation),
        card=None if card is None else Card(**{key: tuple(card[key]) for key in card}),
        **fields,
    )
