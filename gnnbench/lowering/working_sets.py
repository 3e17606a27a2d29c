"""What a device holds while it works on chunks whose vertex data lives on the host.

That is one layer of one chunk at a time (HongTu §4.3), and the buffers that serve all rounds of a
pass over a layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from typing import Literal

from gnnbench.footprint import (
    ChunkSize,
    adds_apart,
    adjacency_bytes,
    gradient_bytes,
    intermediate_bytes,
    reads_topology,
    staging_bytes,
)
from gnnbench.parts import Bundle, LayerShape, OffloadingMemory
from gnnbench.records import BufferRows

#: What the buffers of a pass over a layer's rounds are for.
Held = Literal["rows", "gradients"]
#: Tensors by name, with their bytes.
Sizes = list[tuple[str, int]]


class WorkingSets:
    """The tensors of a pass over a layer, forward or ``backward``, and of one chunk in it.

    ``policies`` are what becomes of each layer's intermediates; ``streams`` says whether topologies
    come and go with their chunks' rows.
    """

    def __init__(self, bundle: Bundle, shapes: tuple[LayerShape, ...], itemsize: int) -> None:
        memory = bundle.memory
        if not isinstance(memory, OffloadingMemory):
            raise TypeError("vertex data on the host takes memories that offload")
        self.policies = [memory.intermediates(shape) for shape in shapes]
        self.streams = memory.streams_topology()
        self._kernel = bundle.kernel
        self._shapes = shapes
        self._itemsize = itemsize

    def buffered(self, number: int, *, backward: bool) -> tuple[Held, ...]:
        """What a pass has buffers for: the layer's input rows, going back only where it is
        recomputed from them, and their gradients, which those of the first layer do not need."""
        rows: tuple[Held, ...] = ("rows",)
        if not backward:
            return rows
        again = rows if self.policies[number] == "recompute" else ()
        return (*again, "gradients") if number else again

    def buffers(self, number: int, what: Held, rows: BufferRows) -> Sizes:
        """A device's buffers of so many rows."""
        row_bytes = self._row_bytes(number)
        sizes = [(f"neighbour {what}", rows.neighbour * row_bytes)]
        if rows.transition is not None:
            sizes.append((f"transition {what}", rows.transition * row_bytes))
        return sizes

    def crossing(self, number: int, chunk: ChunkSize) -> Sizes:
        """Rows that cross between the host and the buffers, a few at a time."""
        largest = max(chunk.rows, chunk.transition) if chunk.buffered else 0
        return [("crossing rows", staging_bytes(largest, self._row_bytes(number)))]

    def chunk(self, number: int, chunk: ChunkSize, *, backward: bool) -> Sizes:
        """One chunk, while it is worked on: what comes for it alone, what AGGREGATE and UPDATE make
        of it, and the gradients of all that."""
        item, shape, policy = self._itemsize, self._shapes[number], self.policies[number]
        first, rows_in = number == 0, chunk.rows * self._row_bytes(number)
        sizes: Sizes = []
        if not chunk.buffered and (not backward or policy == "recompute"):
            sizes.append(("neighbour rows", rows_in))
        elif backward and policy == "offload":
            sizes.append(("restored rows", rows_in))
        if self.streams and (not backward or reads_topology(policy, first=first)):
            sizes.append(("chunk topology", self.topology_bytes(chunk)))
        sizes.append(("chunk intermediates", intermediate_bytes(shape, chunk, item)))
        if backward:
            sizes.append(("chunk gradients", gradient_bytes(shape, chunk, item, first=first)))
            if not (first or chunk.buffered):
                sizes.append(("neighbour gradients", rows_in))
            elif not first and adds_apart(shape, chunk, self._kernel):
                sizes.append(("gradients to be added", rows_in))
        return sizes

    def topology_bytes(self, chunk: ChunkSize) -> int:
        """The adjacency of a chunk on its device."""
        return adjacency_bytes(self._shapes, chunk, self._itemsize, self._kernel)

    def most_bytes(self, chunks: Collection[ChunkSize]) -> int:
        """The most that a device holds of its ``chunks`` at a time, over all layers."""
        return max((size for chunk in chunks for size in self.follow(chunk)), default=0)

    def device_bytes(self, chunks: Collection[ChunkSize]) -> int:
        """The most that a device holds in a run: topologies that stay, the parameters and their
        gradients, and the largest working set."""
        parameters = sum(shape.parameters for shape in self._shapes) * self._itemsize
        topologies = 0 if self.streams else sum(map(self.topology_bytes, chunks))
        return topologies + 2 * parameters + self.most_bytes(chunks)

    def follow(self, chunk: ChunkSize) -> Iterator[int]:
        """The most that is held of a chunk in each layer, forward and then backward."""
        rows = BufferRows(chunk.rows, chunk.transition)
        for number, backward in product(range(len(self._shapes)), (False, True)):
            sizes: Sizes = []
            if chunk.buffered:
                for what in self.buffered(number, backward=backward):
                    sizes += self.buffers(number, what, rows)
            held = _add_up(self.chunk(number, chunk, backward=backward))
            crossing = _add_up(self.crossing(number, chunk)) if sizes else 0
            yield _add_up(sizes) + max(held, crossing)

    def _row_bytes(self, number: int) -> int:
        return self._shapes[number].in_features * self._itemsize


def _add_up(sizes: Sizes) -> int:
    return sum(size for _, size in sizes)
