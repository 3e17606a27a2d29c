"""Transfers of partial activations instead of features."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import MINI_BATCHES, Bundle, Setting, ShardExchange
from gnnbench.records import Mode


@dataclass(frozen=True)
class P3Communication(ShardExchange):
    """Transfers of the first layer's partial products and their gradients.

    A device sends its part of every mini-batch's product A X W, all rows of the hidden width, to
    the device that trains the mini-batch.

    Blocks of the first layer go to all devices. Weights of the first layer stay with their columns,
    so only the weights above are averaged. P3 also overlaps rounds; here a round ends before the
    next is sampled.
    """

    name: ClassVar[str] = "p3"
    summary: ClassVar[str] = "partial products of the first layer cross, features do not"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if bundle.by_features:
            return None
        return (
            f"communication 'p3' exchanges products of some columns, and placement "
            f"{bundle.placement.name!r} gives devices whole rows; choose placement 'p3'."
        )
