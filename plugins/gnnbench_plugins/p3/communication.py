"""Partial activations instead of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import Bundle, OfMiniBatches, Setting, ShardExchange


@dataclass(frozen=True)
class P3Communication(OfMiniBatches, ShardExchange):
    """Products of the first layer cross, and their gradients: a device sends its part of every
    mini-batch's product A X W, all rows of the hidden width, to the device that trains it.

    Blocks of the first layer go to all devices. Weights of the first layer stay where their columns
    are, so that only those above it are averaged. P3 overlaps rounds as well; here one ends before
    the next is sampled.
    """

    name: ClassVar[str] = "p3"
    summary: ClassVar[str] = "partial products of the first layer cross, features do not"

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if bundle.by_features:
            return None
        return (
            f"communication 'p3' exchanges products of some columns, and placement "
            f"{bundle.placement.name!r} gives devices whole rows; choose placement 'p3'."
        )
