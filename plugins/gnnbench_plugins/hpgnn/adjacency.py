"""A laid-out block bound to the kernel, with a record of the latest computation over it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnbench.parts import Scaling
from gnnbench.records import Block
from gnnbench_plugins.hpgnn.cycles import Pass
from gnnbench_plugins.hpgnn.layout import LaidOutBlock
from gnnbench_plugins.reference.native_kernel import NativeAdjacency


@dataclass(slots=True)
class Running:
    """The kernel's latest computation, which it is next asked to price."""

    block: LaidOutBlock | None = None
    backward: bool = False
    #: Forward pass of a layer, simulated with its aggregation, with its update still due.
    layer: Pass | None = None
    #: Mini-batches priced with activations on the chip, and mini-batches without room there.
    stayed: int = 0
    spilled: int = 0

    def note(self, block: Block, *, backward: bool) -> None:
        """Record an aggregation over the block, or over its transpose if ``backward``."""
        # Evaluation uses other blocks, whose time on the board is not needed.
        self.block = block if isinstance(block, LaidOutBlock) else None
        self.backward = backward


class HpgnnAdjacency(NativeAdjacency):
    """An adjacency that sums as kernel 'native' does, and records each aggregation."""

    def __init__(
        self, block: Block, dtype: torch.dtype, device: torch.device, running: Running
    ) -> None:
        super().__init__(block, dtype, device)
        self._running = running

    def note(self, *, backward: bool) -> None:
        """Record an aggregation over the block, or over its transpose if ``backward``."""
        self._running.note(self.block, backward=backward)

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        self.note(backward=False)
        return super().sum(h, weight)

    def own_and_mean(self, h: Tensor) -> Tensor:
        self.note(backward=False)
        return super().own_and_mean(h)

    def own_plus_sum(self, h: Tensor) -> Tensor:
        self.note(backward=False)
        return super().own_plus_sum(h)

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        self.note(backward=False)
        return super().sum_scaled(h, scaling)

    def sum_transposed(
        self, g: Tensor, weight: Tensor | None = None, into: Tensor | None = None
    ) -> Tensor:
        self.note(backward=True)
        return super().sum_transposed(g, weight, into)

    def own_and_mean_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        self.note(backward=True)
        return super().own_and_mean_transposed(g, into)

    def own_plus_sum_transposed(self, g: Tensor, into: Tensor | None = None) -> Tensor:
        self.note(backward=True)
        return super().own_plus_sum_transposed(g, into)

    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        self.note(backward=True)
        return super().sum_scaled_transposed(g, scaling, into)
