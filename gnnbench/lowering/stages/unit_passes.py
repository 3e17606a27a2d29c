"""One unit of one layer of full-graph training, forward and backward.

The gradient of the input features is unused, and it is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.units import needs_aggregate_gradient, size_backward, update_gemms
from gnnbench.program import Buffer, Step
from gnnbench.records import Block, BlockSize, Work

Buffers = tuple[Buffer, ...]
#: A layer, a round and a slot: one unit's pass over one layer.
UnitKey = tuple[int, int, int]


class UnitPasses:
    """Steps of units on their devices.

    ``size_products`` reduces the size of AGGREGATE of a layer that multiplies sparse features.
    """

    def __init__(
        self, frame: Frame, size_products: Callable[[int, Work], Work] = lambda number, work: work
    ) -> None:
        self._frame = frame
        self._size_products = size_products

    def forward(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        inputs: Buffers,
        into: Buffers,
        num_inputs: int,
    ) -> Iterator[Step]:
        """Yield AGGREGATE and UPDATE of a block, which add to the buffers ``into``.

        ``inputs`` have its ``num_inputs`` input rows. A pipelined device updates rows while it
        aggregates others, so that neither step waits for the other, and both add.
        """
        pipelined, made = self._frame.trainers[key[2]].hardware.pipelined, (Buffer("aggregate"),)
        step = self.make_aggregate(key, block, inputs, num_inputs)
        step.writes, step.adds = made, into if pipelined else ()
        yield step
        yield self.make_update(key, block, inputs if pipelined else made, into)

    def make_aggregate(
        self, key: UnitKey, block: Block | BlockSize, inputs: Buffers, num_inputs: int
    ) -> Step:
        """Return AGGREGATE of a block, with the edges, vertices and arithmetic of the unit."""
        number, layer = key[0], self._frame.layers[key[0]]
        step = self._make("aggregate forward", key, block, inputs)
        step.edges = block.num_edges
        step.vertices = block.num_dst + (num_inputs if number == 0 else 0)
        step.arithmetic = float(
            block.num_edges * layer.in_features + block.num_dst * layer.macs_per_row
        )
        return step

    def make_update(
        self, key: UnitKey, block: Block | BlockSize, aggregates: Buffers, into: Buffers
    ) -> Step:
        """Return UPDATE of a block's destination rows."""
        return self._make("update forward", key, block, aggregates, adds=into)

    def backward(
        self, key: UnitKey, block: Block | BlockSize, upper: Buffers, into: Buffers
    ) -> Iterator[Step]:
        """Yield both backward passes, from the gradients ``upper`` of the outputs.

        They add the gradients of the input rows to the buffers ``into``. The first layer has none.
        """
        pipelined = self._frame.trainers[key[2]].hardware.pipelined
        made, goes_on = (Buffer("gradient of the aggregate"),), self.goes_on(key[0])
        step = self.make_update_backward(key, block, upper, made)
        step.adds = into if pipelined or not goes_on else ()
        yield step
        if goes_on:
            yield self.make_aggregate_backward(key, block, upper if pipelined else made, into)

    def goes_on(self, number: int) -> bool:
        """Return whether a layer's aggregate needs a gradient."""
        return needs_aggregate_gradient(self._frame.layers[number], first=number == 0)

    def make_update_backward(
        self, key: UnitKey, block: Block | BlockSize, upper: Buffers, made: Buffers
    ) -> Step:
        """Return UPDATE backward, from the gradients of the outputs to those of the aggregate."""
        gemms = update_gemms(self._frame.layers[key[0]], first=key[0] == 0)
        step = self._make("update backward", key, block, upper, gemms=gemms)
        step.writes = made
        return step

    def make_aggregate_backward(
        self, key: UnitKey, block: Block | BlockSize, upper: Buffers, into: Buffers
    ) -> Step:
        """Return AGGREGATE backward, to the gradients of a block's input rows."""
        return self._make("aggregate backward", key, block, upper, adds=into)

    def _make(
        self,
        op: str,
        key: UnitKey,
        block: Block | BlockSize,
        reads: Buffers,
        *,
        adds: Buffers = (),
        gemms: int = 1,
    ) -> Step:
        """Return AGGREGATE or UPDATE of a block, with ``gemms`` matrix products in UPDATE."""
        frame, (number, index, slot) = self._frame, key
        layer, device = frame.layers[number], frame.trainers[slot]
        half: Literal["aggregate", "update"] = "update"
        if op.startswith("aggregate"):
            half = "aggregate"
            work = self._size_products(number, layer.aggregate_work(block, frame.itemsize))
            work = work._replace(order=frame.find_order(block))
        else:
            work = layer.update_work(block.num_dst, frame.itemsize, gemms)
        if op.endswith("backward"):
            work = size_backward(work, first=number == 0)
        step = Step(
            op,
            key,
            half,
            op,
            device.name,
            compute_resource(device, frame.platform.host, half),
            work,
            number,
            index,
            reads,
            adds=adds,
            device=slot,
        )
        if half == "aggregate" and isinstance(block, Block):
            frame.announce(step, block)
        return step
