"""The choice of layers to swap to the host between forward and backward: ROC's dynamic program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.parts import FULL_GRAPHS, DeviceMemory, option
from gnnbench.records import Mode

#: The peak of memory beside the kept layers, and the swapped layers.
_Way = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class RocMemory(DeviceMemory):
    """Vertex data on the devices, with the fewest kept bytes swapped to the host that will fit."""

    name: ClassVar[str] = "roc"
    summary: ClassVar[str] = "on the devices, intermediates on the host where there is no room"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    swaps: ClassVar[bool] = True

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
    """Return the layers to swap with the fewest transferred bytes; None if no choice fits.

    The program goes layer by layer. A state is the bytes left on the device, and whether the last
    layer was swapped. The way with the least peak beside these bytes is kept. A swapped layer is on
    the device during its own computation, and its rows during the next layer's. The final layer
    stays, since its backward pass follows its forward pass.
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
