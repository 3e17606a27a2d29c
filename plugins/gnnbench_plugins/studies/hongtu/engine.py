"""The price of attention in HongTu's computation engine (its Equation 3 and section 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch

from gnnbench.constants import Constant
from gnnbench.machines.machine import Device
from gnnbench.parts import Adjacency, Kernel, LayerShape
from gnnbench.records import Block, BlockSize, Work
from gnnbench_plugins.reference.kernel import TorchKernel

#: Rows of f values that an edge moves in a pass: W h of both ends read, written side by side and
#: read again for the product with a, and one of them read for the sum.
ROWS_AN_EDGE: Annotated[int, Constant("", "assumed", "unfused attention over edges")] = 7
#: Values of its own: the score, LeakyReLU, exponential, sum and share, each written and read.
VALUES_AN_EDGE: Annotated[int, Constant("", "assumed", "unfused attention")] = 10


@dataclass
class AttentionEngine(Kernel):
    """The kernel of a GAT with a tensor for each edge, by Equation 3.

    [W h_v || W h_u] is put together for each edge, and autograd goes back through as many bytes. It
    stands beside the price that ``TorchKernel`` has for attention. That price reads rows near each
    other out of the cache. With it, GAT's epochs on it-2004 would be 61 to 64 % of the paper's, not
    77 to 80 %.

    ``edge_traffic`` is how many times these bytes cross the memory.
    """

    name: ClassVar[str] = TorchKernel.name
    summary: ClassVar[str] = TorchKernel.summary
    adds_in_place: ClassVar[bool] = TorchKernel.adds_in_place

    edge_traffic: float = 1.0

    _torch: TorchKernel = field(default_factory=TorchKernel, init=False, repr=False, compare=False)

    def adjacency_bytes(self, block: BlockSize, layer: LayerShape, itemsize: int) -> int:
        return self._torch.adjacency_bytes(block, layer, itemsize)

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        return self._torch.adjacency(block, dtype, device)

    def seconds(self, work: Work, device: Device) -> float:
        if work.op != "aggregate":
            return super().seconds(work, device)
        values = ROWS_AN_EDGE * work.features + VALUES_AN_EDGE
        moved = self.edge_traffic * work.edges * values * work.itemsize
        return (
            device.hardware.launch_s
            + moved / device.bandwidth_bytes_per_s(work.threads)
            + 2.0 * work.macs / device.update_flop_per_s(work.features, work.threads)
        )
