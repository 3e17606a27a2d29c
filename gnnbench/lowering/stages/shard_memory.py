"""The memory of devices for partitions with vertex data on the devices."""

from __future__ import annotations

from collections.abc import Iterator

from gnnbench.lowering.footprint import ChunkSize, in_flight_bytes, kept_bytes, mask_bytes, size_of
from gnnbench.lowering.frame import Frame
from gnnbench.lowering.shards import Progress, ShardUnit
from gnnbench.program import Hold, Ledger


def name_kept(number: int) -> str:
    """Return the name in a ledger of a layer's intermediates that are kept for backward."""
    return f"kept intermediates of layer {number + 1}"


class ShardMemory:
    """Bytes that devices hold of their units in an epoch."""

    def __init__(self, frame: Frame, now: Progress) -> None:
        self._frame, self._now = frame, now

    def chunks_of(self, slot: int, number: int) -> list[ChunkSize]:
        """Return the sizes of a device's blocks in one layer."""
        units = [unit for unit in self._now.shards.units if unit.slot == slot]
        return [size_of(unit.block_at(number)) for unit in units]

    def count_kept(self, slot: int, number: int) -> int:
        """Return the bytes that a device keeps of a layer from forward to backward."""
        chunks, copied = self.chunks_of(slot, number), self._now.shards.crosses(number)
        shape = self._frame.shapes[number]
        return kept_bytes(shape, chunks, self._frame.itemsize, copied=copied)

    def count_working(self, slot: int, number: int) -> int:
        """Return the most bytes that a device holds in addition while it works on a layer."""
        units = [unit for unit in self._now.shards.units if unit.slot == slot]
        held = [
            sum(hold.size_bytes for hold in self.hold_unit(number, unit, backward=backward))
            for unit in units
            for backward in (False, True)
        ]
        return max(held, default=0)

    def count_output_bytes(self, slot: int, number: int) -> int:
        """Return the bytes of a device's part of a layer's output."""
        rows = self._now.shards.count_rows(slot, number + 1)
        return rows * self._frame.shapes[number].out_features * self._frame.itemsize

    def list_masks(self, slot: int, number: int) -> Iterator[tuple[str, int]]:
        """Yield the name and the bytes of the mask of a layer's input, if the layer has one."""
        if self._frame.layers[number].masks_below:
            width = self._frame.shapes[number].in_features
            size = sum(mask_bytes(chunk.rows, width) for chunk in self.chunks_of(slot, number))
            yield f"mask of layer {number + 1}'s input", size

    def place_for_peers(self, ledger: Ledger, slot: int) -> None:
        """Place what a device holds, besides its shard, for rows that cross or have crossed."""
        frame, shapes = self._frame, self._frame.shapes
        name, item = frame.trainers[slot].name, frame.itemsize
        shards, staleness = self._now.shards, self._now.staleness
        crossing = [number for number in range(len(shapes)) if shards.crosses(number)]
        widest = max((shapes[number].in_features for number in crossing), default=0)
        if count := shards.broadcast_rows:
            ledger.allocate(name, "broadcast rows", count * widest * item)
        if staleness.keeps("rows"):
            # The input rows of other layers are kept for the backward pass anyway.
            size = sum(
                chunk.num_src * shapes[number].in_features * item
                for number in crossing
                if shapes[number].cacheable
                for chunk in self.chunks_of(slot, number)
            )
            ledger.allocate(name, "stale rows", size)
        if staleness.keeps("gradients"):
            size = sum(
                shards.count_read_by_peers(slot, number) * shapes[number].in_features * item
                for number in crossing
                if number
            )
            ledger.allocate(name, "stale gradients", size)
        if staleness.delay:
            ledger.allocate(name, "rows under way", 0)

    def hold_unit(self, number: int, unit: ShardUnit, *, backward: bool) -> tuple[Hold, ...]:
        """Return what one unit of one layer holds on its device during its work."""
        frame, shards = self._frame, self._now.shards
        copied = shards.crosses(number)
        if not backward and copied and self._now.staleness.keeps("rows"):
            return ()
        slot, count = unit.slot, shards.count_rows
        size = in_flight_bytes(
            frame.shapes[number],
            size_of(unit.block_at(number)),
            (count(slot, number + 1), count(slot, number)),
            frame.itemsize,
            backward=backward,
            first=number == 0,
            copied=copied,
        )
        return (Hold(frame.trainers[slot].name, "rows and gradients in flight", size),)
