"""The rows of a comparison: strategies in their modes, with swaps, plain ones, and ablations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnnbench.comparison.request import Options, PlannedRow, Request, Variant
from gnnbench.errors import PluginError, UsageError
from gnnbench.parts import closest, option_fields, parse_option
from gnnbench.plugins import Registry, with_swap
from gnnbench.records import PART_KINDS, Mode, PartKind, Parts, Strategy


def choose_modes(strategies: tuple[Strategy, ...]) -> tuple[Mode, ...]:
    """Return the modes to run, so that peers stand beside each other.

    Strategies with one mode decide. Strategies with both modes run in every decided mode, or in
    their usual mode when none is decided.
    """
    decided = {s.default_mode for s in strategies if len(s.bundles) == 1}
    if not decided:
        decided = {s.default_mode for s in strategies}
    order: tuple[Mode, ...] = ("full-graph", "mini-batch")
    return tuple(mode for mode in order if mode in decided)


def plan_rows(request: Request, registry: Registry) -> tuple[PlannedRow, ...]:
    """Return the rows of a comparison: the request's own rows, if any.

    Otherwise each strategy runs in its modes, and beside it the strategy with its part swapped.
    """
    if request.rows:
        return request.rows
    variants = [Variant(each) if isinstance(each, str) else each for each in request.strategies]
    strategies = tuple(registry.strategy(variant.strategy) for variant in variants)
    modes = request.modes or choose_modes(strategies)
    rows: list[PlannedRow] = []
    for variant, strategy in zip(variants, strategies, strict=True):
        for mode in modes:
            if mode not in strategy.bundles:
                continue
            row = plan_row(variant, strategy, mode, registry)
            rows.append(row)
            swaps = (*variant.swaps, *request.swaps)
            own_mode = _find_mode(strategy, mode, swaps, registry)
            parts = with_swap(registry, strategy.bundles[own_mode], variant.swaps)
            swapped = with_swap(registry, parts, request.swaps)
            if swapped != parts:
                label = name_swaps(row.label, parts, request.swaps)
                rows.append(PlannedRow(strategy.name, label, own_mode, swapped, swapped=True))
    # A sampler of one mode makes one row, however many modes its strategy runs in.
    rows = list(dict.fromkeys(rows))
    if not rows:
        raise UsageError(
            f"no chosen strategy trains {' or '.join(modes)}; see gnnbench plugins list."
        )
    return tuple(rows)


def check_demanded(rows: Sequence[PlannedRow], demanded: Sequence[str]) -> None:
    """Refuse mini-batch options that no row trains by. Raises ``UsageError``."""
    if demanded and all(row.mode == "full-graph" for row in rows):
        raise UsageError(
            f"{' and '.join(demanded)} would have no effect: every row trains the full graph. "
            f"Leave it out, or train mini-batches, as compare does with --mode mini-batch."
        )


def plan_row(variant: Variant, strategy: Strategy, mode: Mode, registry: Registry) -> PlannedRow:
    """Return the row of a strategy, or of a variant of it, in one mode.

    Raises ``UsageError`` for a swap that changes nothing, since two rows would have one name.
    """
    mode = _find_mode(strategy, mode, variant.swaps, registry)
    parts = strategy.bundles[mode]
    for kind, name in variant.swaps:
        if parts.named(kind) == name:
            raise UsageError(
                f"strategy {strategy.name!r} has the {kind} {name!r} already; leave out "
                f"{kind}={name}."
            )
    swapped = with_swap(registry, parts, variant.swaps)
    return PlannedRow(strategy.name, name_swaps(strategy.name, parts, variant.swaps), mode, swapped)


def _find_mode(
    strategy: Strategy, mode: Mode, swaps: tuple[tuple[PartKind, str], ...], registry: Registry
) -> Mode:
    """Return the mode that swaps lead to.

    A mini-batch sampler makes a strategy mini-batch, if the strategy has parts for that mode.
    """
    names = [name for kind, name in swaps if kind == "sampler"]
    if not names:
        return mode
    trained = registry.part("sampler", names[-1]).modes
    return next((other for other in (mode, *strategy.bundles) if other in trained), mode)


def name_swaps(label: str, parts: Parts, swaps: tuple[tuple[PartKind, str], ...]) -> str:
    """Return a row's label, followed by the parts that it has instead of ``parts``."""
    return "·".join((label, *(name for kind, name in swaps if parts.named(kind) != name)))


def plan_ablation(
    request: Request, registry: Registry, *, each_part: bool
) -> tuple[PlannedRow, ...]:
    """Return the rows that show what each part of the one strategy earns, in its usual mode.

    They are the steps of the strategy's ablation. Without one, or with ``each_part``, they are the
    whole strategy and then each part swapped for the reference's, one at a time. Raises
    ``UsageError`` when all five parts are the reference's.
    """
    (name,) = request.strategies
    if isinstance(name, Variant):
        raise UsageError("an ablation takes out parts of a whole strategy; swap parts by swaps.")
    strategy = registry.strategy(name)
    mode = strategy.default_mode
    whole = with_swap(registry, strategy.bundles[mode], request.swaps)
    if strategy.ablation and not each_part:
        return tuple(
            PlannedRow(
                name, step.label, mode, with_swap(registry, whole, step.swaps), options=step.options
            )
            for step in strategy.ablation
        )
    plain = registry.strategy("reference").bundles[mode]
    rows = [PlannedRow(name, name, mode, whole)]
    for kind in PART_KINDS:
        part = plain.named(kind)
        if part != whole.named(kind):
            parts = with_swap(registry, whole, [(kind, part)])
            rows.append(PlannedRow(name, f"{kind}={part}", mode, parts))
    if len(rows) == 1:
        raise UsageError(
            f"strategy {name!r} has the plain part of every kind, so there is nothing to take out; "
            f"choose another strategy."
        )
    return tuple(rows)


def options_for(
    row: PlannedRow, options: Options, registry: Registry
) -> dict[PartKind, dict[str, str]]:
    """Return the ``options`` that a row's parts accept, and the row's own."""
    chosen = {
        kind: {
            name: text
            for name, text in options.get(kind, {}).items()
            if name in option_fields(registry.part(kind, row.parts.named(kind)))
        }
        for kind in PART_KINDS
    }
    for kind, name, text in row.options:
        chosen[kind][name] = text
    return chosen


def check_options(rows: tuple[PlannedRow, ...], options: Options, registry: Registry) -> None:
    """Check that some row's part has each option, and that it accepts the value."""
    for kind, values in options.items():
        classes = {registry.part(kind, row.parts.named(kind)) for row in rows}
        for name, text in values.items():
            takers = [cls for cls in classes if name in option_fields(cls)]
            for cls in takers or sorted(classes, key=lambda cls: cls.name):
                parse_option(cls, name, text)


def add_plain_rows(
    rows: tuple[PlannedRow, ...], registry: Registry, fits: Callable[[PlannedRow], bool]
) -> tuple[PlannedRow, ...]:
    """Return the rows, each followed by its row with plain parts.

    A plain row is left out if it is there already or cannot run here.
    """
    added = list(rows)
    there = {(row.mode, row.parts, row.options) for row in rows}
    for row in rows:
        plain = None if row.swapped else _plain_row(row, registry)
        if plain is None or (plain.mode, plain.parts, plain.options) in there:
            continue
        if fits(plain):
            there.add((plain.mode, plain.parts, plain.options))
            added.insert(added.index(row) + 1, plain)
    return tuple(added)


def _plain_row(row: PlannedRow, registry: Registry) -> PlannedRow | None:
    """Return a row's plain counterpart: the strategy it names, or its ablation's first step."""
    strategy = registry.strategy(row.strategy)
    if strategy.plain:
        try:
            parts = registry.strategy(strategy.plain).bundles[row.mode]
        except (PluginError, KeyError):
            return None
        return PlannedRow(strategy.plain, strategy.plain, row.mode, parts, plain=True)
    if not strategy.ablation or row.mode != strategy.default_mode:
        return None
    step = strategy.ablation[0]
    label = f"{strategy.name}·{step.label}"
    parts = with_swap(registry, strategy.bundles[row.mode], step.swaps)
    return PlannedRow(label, label, row.mode, parts, plain=True, options=step.options)


def check_names(
    swaps: tuple[tuple[PartKind, str], ...], options: Options, registry: Registry
) -> None:
    """Check that named parts are installed, and that each option belongs to a part of its kind."""
    for kind, name in swaps:
        registry.part(kind, name)
    for kind, values in options.items():
        classes = registry.parts_of(kind)
        for name, text in values.items():
            takers = [cls for cls in classes if name in option_fields(cls)]
            if not takers:
                known = sorted({other for cls in classes for other in option_fields(cls)})
                raise UsageError(
                    f"no {kind} has an option {name!r}{closest(name, known)}; see gnnbench plugins."
                )
            for cls in takers:
                parse_option(cls, name, text)
