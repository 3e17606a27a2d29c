"""One unit of one layer of full-graph training, forward and backward.

The gradient of the input features is unused, and it is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.units import needs_aggregate_gradient, size_backward, update_gemms
from gnnbench.program import NOTHING, Access, Buffer, Counts, Place, Step
from gnnbench.records import AggregateWork, Block, BlockSize, UpdateWork

Buffers = tuple[Buffer, ...]
#: A layer, a round and a slot: one unit's pass over one layer.
UnitKey = tuple[int, int, int]


class AggregateForward(NamedTuple):
    """AGGREGATE of a unit, or once ``again`` before its backward pass."""

    key: UnitKey
    again: bool = False


class UpdateForward(NamedTuple):
    """UPDATE of a unit, or once ``again`` before its backward pass."""

    key: UnitKey
    again: bool = False


class UpdateBackward(NamedTuple):
    """UPDATE backward of a unit, down to the gradients of its aggregate."""

    key: UnitKey


class AggregateBackward(NamedTuple):
    """AGGREGATE backward of a unit, to the gradients of its input rows."""

    key: UnitKey


class UnitPasses:
    """Steps of units on their devices.

    ``size_products`` reduces the size of AGGREGATE of a layer that multiplies sparse features.
    """

    def __init__(
        self,
        frame: Frame,
        size_products: Callable[[int, AggregateWork], AggregateWork] = lambda number, work: work,
    ) -> None:
        self._frame = frame
        self._size_products = size_products
        host = frame.platform.host
        self._aggregate_places, self._update_places = (
            [
                Place(device.name, compute_resource(device, host, half), slot)
                for slot, device in enumerate(frame.trainers)
            ]
            for half in ("aggregate", "update")
        )

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
        access = Access(inputs, made, into if pipelined else ())
        counts = self.count(key, block, num_inputs)
        yield self.make_aggregate(key, block, access, counts)
        yield self.make_update(key, block, Access(inputs if pipelined else made, adds=into))

    def repeat(
        self,
        key: UnitKey,
        block: Block | BlockSize,
        inputs: Buffers,
        into: Buffers,
        *,
        cached: bool,
    ) -> Iterator[Step]:
        """Yield a unit's forward pass once more, from its input rows.

        If ``inputs`` have its ``cached`` aggregates, only UPDATE is repeated.
        """
        if cached:
            yield _again(self.make_update(key, block, Access(inputs, adds=into)))
            return
        for step in self.forward(key, block, inputs, into, 0):
            yield _again(step)

    def count(self, key: UnitKey, block: Block | BlockSize, num_inputs: int) -> Counts:
        """Return the edges, vertices and arithmetic of a unit, which AGGREGATE counts."""
        number, layer = key[0], self._frame.layers[key[0]]
        vertices = block.num_dst + (num_inputs if number == 0 else 0)
        arithmetic = block.num_edges * layer.in_features + block.num_dst * layer.macs_per_row
        return Counts((), block.num_edges, vertices, float(arithmetic))

    def make_aggregate(
        self, key: UnitKey, block: Block | BlockSize, access: Access, counts: Counts
    ) -> Step:
        """Return AGGREGATE of a block."""
        return self._aggregate(AggregateForward(key), key, block, access, counts)

    def make_update(self, key: UnitKey, block: Block | BlockSize, access: Access) -> Step:
        """Return UPDATE of a block's destination rows."""
        work = self._frame.layers[key[0]].update_work(block.num_dst, self._frame.itemsize)
        return self._update(UpdateForward(key), key, "update forward", work, access)

    def backward(
        self, key: UnitKey, block: Block | BlockSize, upper: Buffers, into: Buffers
    ) -> Iterator[Step]:
        """Yield both backward passes, from the gradients ``upper`` of the outputs.

        They add the gradients of the input rows to the buffers ``into``. The first layer has none.
        """
        pipelined = self._frame.trainers[key[2]].hardware.pipelined
        made, goes_on = (Buffer("gradient of the aggregate"),), self.goes_on(key[0])
        access = Access(upper, made, into if pipelined or not goes_on else ())
        yield self.make_update_backward(key, block, access)
        if goes_on:
            access = Access(upper if pipelined else made, adds=into)
            yield self.make_aggregate_backward(key, block, access)

    def goes_on(self, number: int) -> bool:
        """Return whether a layer's aggregate needs a gradient."""
        return needs_aggregate_gradient(self._frame.layers[number], first=number == 0)

    def make_update_backward(self, key: UnitKey, block: Block | BlockSize, access: Access) -> Step:
        """Return UPDATE backward, from the outputs' gradients to the aggregate's gradients."""
        layer, first = self._frame.layers[key[0]], key[0] == 0
        gemms = update_gemms(layer, first=first)
        work = layer.update_work(block.num_dst, self._frame.itemsize, gemms)
        work = work._replace(backward=True)
        return self._update(UpdateBackward(key), key, "update backward", work, access)

    def make_aggregate_backward(
        self, key: UnitKey, block: Block | BlockSize, access: Access
    ) -> Step:
        """Return AGGREGATE backward, to the gradients of a block's input rows."""
        return self._aggregate(AggregateBackward(key), key, block, access, NOTHING)

    def _aggregate(
        self,
        operation: AggregateForward | AggregateBackward,
        key: UnitKey,
        block: Block | BlockSize,
        access: Access,
        counts: Counts,
    ) -> Step:
        frame, (number, index, slot) = self._frame, key
        backward = isinstance(operation, AggregateBackward)
        work = self._size_products(
            number, frame.layers[number].aggregate_work(block, frame.itemsize)
        )
        if (order := frame.find_order(block)) is not None:
            work = work._replace(order=order)
        if backward:
            work = size_backward(work, first=number == 0)
        return Step(
            operation,
            "aggregate",
            "aggregate backward" if backward else "aggregate forward",
            self._aggregate_places[slot],
            work,
            number,
            index,
            counts,
            frame.announce(block, backward=backward),
            None,
            access,
        )

    def _update(
        self,
        operation: UpdateForward | UpdateBackward,
        key: UnitKey,
        label: str,
        work: UpdateWork,
        access: Access,
    ) -> Step:
        number, index, slot = key
        place = self._update_places[slot]
        return Step(
            operation, "update", label, place, work, number, index, NOTHING, None, None, access
        )


def _again(step: Step) -> Step:
    """Return a step of a forward pass that is repeated, and counts for nothing a second time."""
    operation = step.operation
    if isinstance(operation, AggregateForward | UpdateForward):
        operation = operation._replace(again=True)
    return step._replace(operation=operation, stage="recompute", counts=NOTHING)
