"""Puts five parts together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

from gnnbench.errors import GnnbenchError, UsageError
from gnnbench.parts import (
    Bundle,
    Communication,
    FullGraphSampler,
    Kernel,
    Memory,
    MiniBatchSampler,
    Part,
    Placement,
    parse_option,
)
from gnnbench.plugins.problems import describe
from gnnbench.plugins.registry import Registry, check_kind
from gnnbench.records import PartKind, Parts


def with_swap(registry: Registry, parts: Parts, swaps: Sequence[tuple[PartKind, str]]) -> Parts:
    """Return ``parts`` with some of them replaced; every new name must be on offer."""
    chosen: dict[str, str] = {}
    for kind, name in swaps:
        registry.part(kind, name)
        if kind in chosen:
            raise UsageError(
                f"{kind} is swapped twice, for {chosen[kind]!r} and {name!r}; keep one of the two."
            )
        chosen[kind] = name
    return dataclasses.replace(parts, **chosen)


def assemble(
    registry: Registry, parts: Parts, options: Mapping[PartKind, Mapping[str, str]]
) -> Bundle:
    """Make the five named parts, each with its options read from text.

    Raises ``PluginError`` for an unknown part and ``UsageError`` for an unknown or unfit option.
    """
    for kind in options:
        check_kind(kind)

    def build(kind: PartKind) -> Part:
        part = registry.part(kind, parts.named(kind))
        texts = options.get(kind, {})
        values = {option: parse_option(part, option, text) for option, text in texts.items()}
        try:
            return part(**values)
        except GnnbenchError:
            raise
        except Exception as error:
            given = ", ".join(f"{kind}.{option}={text}" for option, text in texts.items())
            why = str(error).rstrip(".") if isinstance(error, ValueError) else describe(error)
            raise UsageError(
                f"{kind} {part.name!r} cannot be made with {given or 'its default options'}: {why}."
            ) from error

    # The base class of each part was checked when it was offered.
    return Bundle(
        sampler=cast("MiniBatchSampler | FullGraphSampler", build("sampler")),
        placement=cast(Placement, build("placement")),
        communication=cast(Communication, build("communication")),
        memory=cast(Memory, build("memory")),
        kernel=cast(Kernel, build("kernel")),
    )
