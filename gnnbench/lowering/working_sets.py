"""The tensors that a device holds while it works on chunks with vertex data on the host.

A device works on one layer of one chunk at a time (HongTu §4.3). Its buffers serve all rounds of a
pass over a layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Literal

from gnnbench.lowering.footprint import (
    ChunkSize,
    adds_apart,
    adjacency_bytes,
    gradient_bytes,
    intermediate_bytes,
    kept_bytes,
    message_bytes,
    reads_topology,
    staging_bytes,
)
from gnnbench.parts import (
    Bundle,
    HostLoading,
    LayerShape,
    OffloadingMemory,
)
from gnnbench.records import BufferRows

#: The contents of the buffers of a pass over a layer's rounds.
Held = Literal["rows", "gradients"]
#: Tensors by name, with their bytes.
Sizes = list[tuple[str, int]]


class WorkingSets:
    """The tensors of a pass over a layer, forward or ``backward``, and of one chunk in it.

    ``policies`` say how each layer's intermediates are kept. ``streams`` says whether topologies
    come and go with their chunks' rows.
    """

    def __init__(self, bundle: Bundle, shapes: tuple[LayerShape, ...], itemsize: int) -> None:
        memory = bundle.memory
        if not isinstance(memory, OffloadingMemory):
            raise TypeError("vertex data on the host takes memories that offload")
        self.policies = memory.list_intermediates(shapes)
        self.streams = memory.streams_topology()
        self._kernel = bundle.kernel
        self._shapes = tuple(map(bundle.kernel.shape_of, shapes))
        self._itemsize = itemsize

    def buffered(self, number: int, *, backward: bool) -> tuple[Held, ...]:
        """Return the kinds of buffers that a pass has.

        Forward, a pass has the layer's input rows. Backward, it has them only if it is recomputed
        from them. It also has their gradients, except in the first layer.
        """
        rows: tuple[Held, ...] = ("rows",)
        if not backward:
            return rows
        again = rows if self.policies[number] == "recompute" else ()
        return (*again, "gradients") if number else again

    def buffers(self, number: int, what: Held, rows: BufferRows) -> Sizes:
        """Return a device's buffers of ``rows`` rows."""
        row_bytes = self._row_bytes(number)
        sizes = [(f"neighbour {what}", rows.neighbour * row_bytes)]
        if rows.transition is not None:
            sizes.append((f"transition {what}", rows.transition * row_bytes))
        return sizes

    def crossing(self, number: int, chunk: ChunkSize) -> Sizes:
        """Return the staging memory of rows between the host and the buffers, a few at a time."""
        largest = max(chunk.rows, chunk.transition) if chunk.buffered else 0
        return [("crossing rows", staging_bytes(largest, self._row_bytes(number)))]

    def chunk(self, number: int, chunk: ChunkSize, *, backward: bool) -> Sizes:
        """Return the tensors of one chunk while it is worked on.

        They are its transferred inputs, the results of AGGREGATE and UPDATE, and all their
        gradients.
        """
        shape, policy = self._shapes[number], self.policies[number]
        first, rows_in = number == 0, chunk.rows * self._row_bytes(number)
        sizes: Sizes = []
        if not chunk.buffered and (not backward or policy == "recompute"):
            sizes.append(("neighbour rows", rows_in))
        elif backward and policy == "offload":
            sizes.append(("restored rows", rows_in))
        if self.streams and (not backward or reads_topology(policy, shape, first=first)):
            sizes.append(("chunk topology", self.topology_bytes(chunk)))
        sizes += self.made(number, chunk, backward=backward)
        if backward:
            if not (first or chunk.buffered):
                sizes.append(("neighbour gradients", rows_in))
            elif not first and adds_apart(shape, chunk, self._kernel):
                sizes.append(("gradients to be added", rows_in))
        return sizes

    def made(self, number: int, chunk: ChunkSize, *, backward: bool) -> Sizes:
        """Return the results of AGGREGATE and UPDATE for a chunk, and gradients.

        Results that are kept since the forward pass are left out. Gradients of the input rows are
        left out too.
        """
        item, shape = self._itemsize, self._shapes[number]
        sizes: Sizes = []
        if not (backward and self.policies[number] == "keep"):
            sizes.append(("chunk intermediates", intermediate_bytes(shape, chunk, item)))
        if not backward and (size := message_bytes(shape, chunk, item)):
            sizes.append(("weighted messages", size))
        if backward:
            size = gradient_bytes(shape, chunk, item, first=number == 0)
            sizes.append(("chunk gradients", size))
        return sizes

    def kept(self, number: int, chunk: ChunkSize) -> int:
        """Return the bytes of a chunk that stay on its device from forward to backward."""
        if self.policies[number] != "keep":
            return 0
        return kept_bytes(self._shapes[number], [chunk], self._itemsize, copied=True)

    def topology_bytes(self, chunk: ChunkSize) -> int:
        """Return the bytes of a chunk's adjacency on its device."""
        return adjacency_bytes(self._shapes, chunk, self._itemsize, self._kernel)

    def most_bytes(self, chunks: Collection[ChunkSize]) -> int:
        """Return the most bytes that a device holds of its ``chunks`` at a time, in all layers."""
        depth, kept, most = len(self._shapes), 0, 0
        forward = [(number, False) for number in range(depth)]
        for number, backward in (*forward, *((number, True) for number in reversed(range(depth)))):
            for chunk in chunks:
                most = max(most, kept + self._work_on(number, chunk, backward=backward))
                stays = self.kept(number, chunk)
                kept += -stays if backward else stays
        return most

    def device_bytes(self, chunks: Collection[ChunkSize]) -> int:
        """Return the most bytes that a device holds in a run.

        They are the topologies that stay, the parameters and their gradients, and the largest
        working set.
        """
        parameters = sum(shape.parameters for shape in self._shapes) * self._itemsize
        topologies = 0 if self.streams else sum(map(self.topology_bytes, chunks))
        return topologies + 2 * parameters + self.most_bytes(chunks)

    def follow(self, chunk: ChunkSize) -> Iterator[int]:
        """Yield the most bytes held of a chunk in each layer, forward and then backward."""
        for number, backward in product(range(len(self._shapes)), (False, True)):
            yield self._work_on(number, chunk, backward=backward)

    def _work_on(
        self, number: int, chunk: ChunkSize, *, backward: bool, beside: int = 0, before: int = 0
    ) -> int:
        """Return the most bytes held of a chunk in one layer and direction.

        Other chunks hold ``beside`` bytes while it is worked on, and ``before`` bytes while its
        rows are transferred.
        """
        rows, sizes = BufferRows(chunk.rows, chunk.transition), list[tuple[str, int]]()
        if chunk.buffered:
            for what in self.buffered(number, backward=backward):
                sizes += self.buffers(number, what, rows)
        held = _add_up(self.chunk(number, chunk, backward=backward))
        crossing = _add_up(self.crossing(number, chunk)) if sizes else 0
        return _add_up(sizes) + max(held + beside, crossing + before)

    def _own_bytes(self, number: int, chunk: ChunkSize) -> int:
        """Return the bytes of a chunk's outputs or their gradients, and cached aggregates."""
        shape = self._shapes[number]
        cached = shape.aggregate_features if self.policies[number] == "cache" else 0
        return chunk.num_dst * (shape.out_features + cached) * self._itemsize

    def _row_bytes(self, number: int) -> int:
        return self._shapes[number].in_features * self._itemsize


def is_streamed(bundle: Bundle) -> bool:
    """Return whether devices that read vertex data on the host meet between layers alone.

    Otherwise they meet after every round.
    """
    return isinstance(bundle.memory, OffloadingMemory) and (
        bundle.in_pieces or bundle.ahead is not None
    )


class OverlappedSets(WorkingSets):
    """The working sets of units with transfers that overlap with other rounds.

    A unit's outputs leave while rows of the next unit arrive. Its backward inputs arrive while the
    previous unit is worked on.
    """

    def leaving_outputs(self, number: int, chunk: ChunkSize) -> Sizes:
        """Return the results of a chunk's forward pass that go to the host."""
        return [("outputs that leave", self._own_bytes(number, chunk))]

    def fetched(self, number: int, chunk: ChunkSize) -> Sizes:
        """Return the backward inputs of a chunk that are stored by vertex."""
        return [("fetched for the next chunk", self._own_bytes(number, chunk))]

    def most_bytes(self, chunks: Collection[ChunkSize]) -> int:
        """Return the most bytes that a device holds of its ``chunks``, in the order of rounds."""
        depth, kept, most, order = len(self._shapes), 0, 0, list(chunks)
        for number in range(depth):
            for last, chunk in zip((None, *order), order, strict=False):
                leaving = 0 if last is None else self._own_bytes(number, last)
                held = self._work_on(number, chunk, backward=False, before=leaving)
                most = max(most, kept + held)
                kept += self.kept(number, chunk)
        for number in reversed(range(depth)):
            for chunk, following in zip(order, (*order[1:], None), strict=True):
                coming = 0 if following is None else self._own_bytes(number, following)
                come = self._own_bytes(number, chunk)
                held = self._work_on(
                    number, chunk, backward=True, beside=coming, before=max(come, coming)
                )
                most = max(most, kept + held)
                kept -= self.kept(number, chunk)
        return most


def is_overlapped(bundle: Bundle) -> bool:
    """Return whether rounds of a full graph overlap, on devices that have buffers for rows."""
    one = bundle.communication
    return isinstance(one, HostLoading) and one.shares_rows and one.overlaps


class StreamedSets(WorkingSets):
    """The working sets of units with transfers through a ring of ``places`` on their device.

    Chunks come in ``pieces`` pieces.
    """

    def __init__(
        self, bundle: Bundle, shapes: tuple[LayerShape, ...], itemsize: int, pieces: int
    ) -> None:
        super().__init__(bundle, shapes, itemsize)
        self.places = 1 + (bundle.ahead or 0)
        self._pieces = pieces

    def crossing_ahead(self, number: int, chunk: ChunkSize, *, first: bool, backward: bool) -> int:
        """Return the bytes that are transferred for a unit.

        Forward they are its rows. Backward they are its saved intermediates, and with the first
        piece of a chunk the gradients of its outputs.
        """
        shape, policy, size = self._shapes[number], self.policies[number], 0
        if backward and first:
            size += self._own_bytes(number, chunk)
        if not backward or policy in ("offload", "recompute"):
            size += chunk.rows * self._row_bytes(number)
        if self.streams and (not backward or reads_topology(policy, shape, first=number == 0)):
            size += self.topology_bytes(chunk)
        return size

    def leaving(self, number: int, chunk: ChunkSize) -> int:
        """Return the bytes of the gradients of a unit's input rows; the first layer has none."""
        return chunk.rows * self._row_bytes(number) if number else 0

    def most_bytes(self, chunks: Collection[ChunkSize]) -> int:
        """Return the most bytes that a device holds of its ``chunks``, in the order of rounds."""
        depth, most, kept, units = len(self._shapes), 0, 0, list(chunks)
        stays = [
            sum(self.kept(number, chunk) for chunk in units[:: self._pieces])
            for number in range(depth)
        ]
        for number in range(depth):
            most = max(most, kept + self._most_at_work(number, units, backward=False))
            kept += stays[number]
        for number in reversed(range(depth)):
            most = max(most, kept + self._most_at_work(number, units, backward=True))
            kept -= stays[number]
        return most

    def _most_at_work(self, number: int, units: Sequence[ChunkSize], *, backward: bool) -> int:
        """Return the most bytes held in a pass over a layer, besides those kept of other layers.

        They are the places of rows that arrive and of gradients that leave, a chunk's results, and
        what is kept.
        """
        crossing, leaving = [0] * self.places, [0] * self.places
        most, made, kept, behind = 0, 0, 0, self.places - 1
        for index in range(len(units) + behind):
            if index < len(units):
                first = index % self._pieces == 0
                size = self.crossing_ahead(number, units[index], first=first, backward=backward)
                place = index % self.places
                crossing[place] = size or crossing[place]
                most = max(most, sum(crossing) + sum(leaving) + made + kept)
            if (done := index - behind) < 0:
                continue
            chunk = units[done]
            if done % self._pieces == 0:
                made = _add_up(self.made(number, chunk, backward=backward))
                most = max(most, sum(crossing) + sum(leaving) + made + kept)
            leaving[done % self.places] = self.leaving(number, chunk) if backward else 0
            most = max(most, sum(crossing) + sum(leaving) + made + kept)
            if (done + 1) % self._pieces == 0 and (size := self.kept(number, chunk)):
                made, kept = (made, kept - size) if backward else (0, kept + size)
        return most


def _add_up(sizes: Sizes) -> int:
    return sum(size for _, size in sizes)


def choose_sets(
    bundle: Bundle, shapes: tuple[LayerShape, ...], itemsize: int, pieces: int = 1
) -> WorkingSets:
    """Return the working sets of a bundle's schedule; chunks come in ``pieces`` pieces."""
    if is_streamed(bundle):
        return StreamedSets(bundle, shapes, itemsize, pieces)
    return (OverlappedSets if is_overlapped(bundle) else WorkingSets)(bundle, shapes, itemsize)
