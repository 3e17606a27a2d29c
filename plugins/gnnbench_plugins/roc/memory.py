"""What waits on the host between forward and backward: ROC's dynamic program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import SwappingMemory, option

#: The most that is held beside what stays, and the layers that are swapped.
_Way = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class RocMemory(SwappingMemory):
    """Vertex data on the devices; of what layers keep for the backward pass, as little crosses to
    the host and back as lets the rest fit."""

    name: ClassVar[str] = "roc"
    summary: ClassVar[str] = "on the devices, intermediates on the host where there is no room"

    swap: Literal["auto", "all", "none"] = option(
        "auto",
        "layers whose intermediates wait on the host: the fewest bytes that make room, or"
        " all but the last, or none",
    )

    def choose_swapped(
        self, kept: Sequence[int], working: Sequence[int], rows: Sequence[int], free_bytes: int
    ) -> frozenset[int]:
        everything = frozenset(range(len(kept) - 1))
        if self.swap == "none":
            return frozenset()
        if self.swap == "all":
            return everything
        chosen = find_least(kept, working, rows, free_bytes)
        return everything if chosen is None else chosen


def find_least(
    kept: Sequence[int], working: Sequence[int], rows: Sequence[int], free_bytes: int
) -> frozenset[int] | None:
    """The layers to swap, so that the fewest bytes cross and what is held at a time fits; None
    where nothing makes it fit.

    Layer by layer, of all ways that leave the same bytes on the device, and have swapped the last
    layer or have not, the one with the least peak beside them: a layer that is swapped is there
    while it is worked on, and its rows while the next one is. The last layer stays, since its
    backward pass follows its forward pass.
    """
    ways: dict[tuple[int, bool], _Way] = {(0, False): (0, ())}
    for layer, (size, beside) in enumerate(zip(kept, working, strict=True)):
        found: dict[tuple[int, bool], _Way] = {}
        for (stays, follows), (most, swapped) in ways.items():
            held = beside + (rows[layer - 1] if follows else 0)
            options = {(stays + size, False): (max(most, held), swapped)}
            if layer < len(kept) - 1:
                options[stays, True] = max(most, held + size), (*swapped, layer)
            for key, way in options.items():
                if key not in found or way[0] < found[key][0]:
                    found[key] = way
        ways = found
    fitting = [(stays, way[1]) for (stays, _), way in ways.items() if stays + way[0] <= free_bytes]
    return frozenset(max(fitting)[1]) if fitting else None
