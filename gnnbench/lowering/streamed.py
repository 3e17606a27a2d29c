"""Full-graph training that streams vertex data from the host, as NeuGraph processes chunks.

The paper is Ma et al., ATC 2019. Devices meet between layers alone. Within a layer each device
works through its units, while the rows of the next units are in flight. These rows have a ring of
places, and a transfer into a place waits for the unit that read the place before.

A chunk's in-edges may come in pieces. Each piece is aggregated and added to the sums of earlier
pieces, and UPDATE follows the last. Backward, UPDATE comes with the first piece. Every piece gives
the gradients of its sources, which leave while the next piece is worked on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from gnnbench.lowering.footprint import reads_topology
from gnnbench.lowering.host_plan import UnitPlan
from gnnbench.lowering.host_resident import HostResidentLowering, in_turn
from gnnbench.lowering.host_steps import AGGREGATES, OUTPUTS
from gnnbench.lowering.memory import compute_resource
from gnnbench.lowering.stages.unit_passes import UnitKey
from gnnbench.lowering.working_sets import Sizes, StreamedSets
from gnnbench.program import Access, Buffer, Counts, Free, Hold, Item, Place, Step
from gnnbench.records import CopyWork

Buffers = tuple[Buffer, ...]
#: The items of one unit of a round.
Part = Callable[[int, UnitPlan], Iterator[Item]]


class AddSums(NamedTuple):
    """The addition of a piece's sums to the sums of earlier pieces of its chunk."""

    key: UnitKey


@dataclass(slots=True, eq=False)
class LayerPass:
    """The state of a pass over one layer in one direction.

    ``places`` are the places of rows that arrive and ``leaving`` those of gradients that leave, by
    device index and ring position. ``filled`` are the places that have been in use. ``made`` are
    the results of a chunk's pieces, and ``stored`` the stores of the last chunk, by device index.
    ``after`` is the meeting at the end. ``held`` are tensors that memories hold until then.
    """

    number: int
    backward: bool
    places: Sequence[Sequence[Buffer]]
    leaving: Sequence[Sequence[Buffer]]
    made: Sequence[Buffer]
    filled: set[Buffer] = field(default_factory=set)
    stored: dict[int, Buffers] = field(default_factory=dict)
    after: Buffer = field(default_factory=lambda: Buffer("layer is done"))
    held: dict[tuple[str, str], None] = field(default_factory=dict)


class StreamedLowering(HostResidentLowering):
    """The lowering in which every device goes through its units independently."""

    _sets: StreamedSets

    def _make_sets(self) -> StreamedSets:
        return StreamedSets(self.bundle, self.frame.shapes, self.frame.itemsize, self.pieces)

    def is_first(self, index: int) -> bool:
        """Return whether a round has the first pieces of chunks."""
        return index % self.pieces == 0

    def is_last(self, index: int) -> bool:
        """Return whether a round has the last pieces of chunks."""
        return self.is_first(index + 1)

    # ------------------------------------------------------------------ a pass over a layer

    def _forward_layer(self, number: int) -> Iterator[Item]:
        under = self._begin(number, backward=False)
        yield from self._list(partial(self._send_rows, under), partial(self._go_on, under))
        yield from self._end(under)

    def _backward_rounds(self, number: int) -> Iterator[Item]:
        under = self._begin(number, backward=True)
        yield from self._list(partial(self._send_back, under), partial(self._go_back, under))
        yield from self._end(under)

    def _begin(self, number: int, *, backward: bool) -> LayerPass:
        def open_places(name: str, count: int) -> list[list[Buffer]]:
            return [[Buffer(name) for _ in range(count)] for _ in self.trainers]

        places = self._sets.places
        made = [buffer for (buffer,) in open_places("made of a chunk", 1)]
        return LayerPass(
            number,
            backward,
            open_places("what crosses for a unit", places),
            open_places("gradients that leave", places),
            made,
        )

    def _list(self, send: Part, work: Part) -> Iterator[Item]:
        """Yield the transfers for every round's units, and the ``work`` on the units."""
        rounds, ahead = len(self.plans), self._sets.places - 1
        for number in range(rounds + ahead):
            for part, index in ((send, number), (work, number - ahead)):
                if 0 <= index < rounds:
                    self._make.round = index
                    for plan in self.plans[index]:
                        yield from part(index, plan)

    def _end(self, under: LayerPass) -> Iterator[Free]:
        for memory, tensor in under.held:
            yield Free(memory, tensor)
        self._meeting = under.after

    def _place(self, under: LayerPass, index: int, plan: UnitPlan) -> Buffer:
        """Return the place of the transfers for a unit."""
        return under.places[plan.slot][index % self._sets.places]

    def _fill(
        self, under: LayerPass, index: int, plan: UnitPlan, steps: Sequence[Step]
    ) -> Iterator[Item]:
        """Yield the transfers for a unit into its place, once the previous unit is done with it."""
        first, back = self.is_first(index), under.backward
        size = self._sets.crossing_ahead(under.number, plan.chunk, first=first, backward=back)
        yield from self._hold_place(under, index, plan, "what crosses for a unit", size)
        place = self._place(under, index, plan)
        # The unit that had the place before has waited for the meeting.
        ready = () if place in under.filled else (self._meeting,)
        under.filled.add(place)
        for step in in_turn(steps, ready, ()):
            reads, writes, _ = step.access
            yield step.over(reads, (*writes, place))

    def _hold_place(
        self, under: LayerPass, index: int, plan: UnitPlan, tensor: str, size: int
    ) -> Iterator[Hold]:
        """Yield the hold of a tensor in a round's place, until another round takes the place."""
        named = [(f"{tensor}, place {index % self._sets.places}", size)]
        yield from self._hold_on(under, plan, named)

    def _hold_on(self, under: LayerPass, plan: UnitPlan, sizes: Sizes) -> Iterator[Hold]:
        """Yield the holds of tensors until others of their names come, or the layer is over."""
        for hold in self._holds.hold(plan.slot, sizes):
            under.held[hold.memory, hold.tensor] = None
            yield hold

    # ------------------------------------------------------------------ forward

    def _send_rows(self, under: LayerPass, index: int, plan: UnitPlan) -> Iterator[Item]:
        steps = self._make.bring(under.number, plan)
        if self.streams:
            steps.insert(0, self._make.send_topology(under.number, plan, backward=False))
        yield from self._fill(under, index, plan, steps)

    def _go_on(self, under: LayerPass, index: int, plan: UnitPlan) -> Iterator[Item]:
        """Yield the work on one piece of a chunk, and UPDATE after the last piece."""
        make, number, slot = self._make, under.number, plan.slot
        policy, key = self.policies[number], (number, index, slot)
        arrived, outputs = (self._place(under, index, plan),), (Buffer("outputs of a chunk"),)
        if self.is_first(index):
            made = self._sets.made(number, plan.chunk, backward=False)
            yield from self._hold_on(under, plan, made)
        stored = under.stored.get(slot, ())
        if self.pieces == 1:
            for step in self._passes.forward(key, plan.block, arrived, outputs, plan.inputs):
                reads, *others = step.access
                yield step.over(reads + stored, *others)
        else:
            yield from self._aggregate_piece(key, plan, arrived, under.made[slot])
            if not self.is_last(index):
                return
            access = Access((under.made[slot], *stored), adds=outputs)
            yield self._passes.make_update(key, plan.block, access)
        steps = make.store(number, plan, OUTPUTS)
        if policy == "cache":
            steps += make.store(number, plan, AGGREGATES)
        elif policy == "offload":
            saved_bytes, host = make.saved_bytes(number, plan), self.hosts[slot]
            yield self.host.save(number + 1, saved_bytes, host)
            steps += make.offload(number, plan)
        under.stored[slot] = (Buffer("outputs are stored"),)
        yield from in_turn(steps, outputs, (under.after, *under.stored[slot]))
        if policy == "keep":
            made = self._sets.made(number, plan.chunk, backward=False)
            yield from self._let_go(under, plan, made)
            yield from self._holds.keep(number, plan, 1)

    def _let_go(self, under: LayerPass, plan: UnitPlan, sizes: Sizes) -> Iterator[Free]:
        for hold in self._holds.hold(plan.slot, sizes):
            del under.held[hold.memory, hold.tensor]
            yield Free(hold.memory, hold.tensor)

    def _aggregate_piece(
        self, key: UnitKey, plan: UnitPlan, arrived: Buffers, made: Buffer
    ) -> Iterator[Step]:
        """Yield AGGREGATE over a piece's in-edges, and the addition to earlier pieces' sums."""
        number, index, slot = key
        layer, device = self.layers[number], self.trainers[slot]
        counts = self._passes.count(key, plan.block, plan.loaded.total)
        if self.is_first(index):
            access = Access(arrived, (made,))
            yield self._passes.make_aggregate(key, plan.block, access, counts)
            return
        piece, rows = Buffer("sums of a piece"), plan.chunk.num_dst
        _, edges, vertices, arithmetic = counts
        added = Counts((), edges, vertices - rows, arithmetic - rows * layer.macs_per_row)
        access = Access(arrived, (piece,))
        yield self._passes.make_aggregate(key, plan.block, access, added)
        size = 3 * rows * layer.aggregate_features * self.frame.itemsize
        held = compute_resource(device, self.platform.host, "aggregate")
        yield Step(
            AddSums(key),
            "aggregate",
            "add sums of a piece",
            Place(device.name, held, slot),
            CopyWork(size, rows),
            number,
            index,
            access=Access((piece,), adds=(made,)),
        )

    # ------------------------------------------------------------------ backward

    def _send_back(self, under: LayerPass, index: int, plan: UnitPlan) -> Iterator[Item]:
        """Yield the transfers of a unit's backward inputs.

        The first piece of a chunk brings the gradients of its outputs, and its saved intermediates.
        """
        make, number = self._make, under.number
        policy, steps = self.policies[number], []
        if self.is_first(index):
            steps = self._fetch(number, plan)
            if policy == "offload":
                steps += make.restore(number, plan)
            elif policy == "recompute":
                steps += make.bring(number, plan)
        if self._sends_topology(number):
            steps.insert(0, make.send_topology(number, plan, backward=True))
        if steps:
            yield from self._fill(under, index, plan, steps)

    def _sends_topology(self, number: int) -> bool:
        """Return whether the topology of a unit is transferred for its backward pass."""
        policy, shape = self.policies[number], self.frame.shapes[number]
        return self.streams and reads_topology(policy, shape, first=number == 0)

    def _go_back(self, under: LayerPass, index: int, plan: UnitPlan) -> Iterator[Item]:
        """Yield the backward pass of one piece of a chunk, after UPDATE's if it is the first."""
        number, slot = under.number, plan.slot
        key, made, goes_on = (number, index, slot), under.made[slot], self._passes.goes_on(number)
        arrived: Buffers = (self._place(under, index, plan),)
        if self.is_first(index):
            yield from self._hold_on(
                under, plan, self._sets.made(number, plan.chunk, backward=True)
            )
            policy = self.policies[number]
            if policy in ("cache", "recompute"):
                inputs, arrived = arrived, (Buffer("forward pass of a chunk"),)
                yield from self._passes.repeat(
                    key, plan.block, inputs, arrived, cached=policy == "cache"
                )
            access = Access(arrived, (made,), () if goes_on else (under.after,))
            yield self._passes.make_update_backward(key, plan.block, access)
        if goes_on:
            yield from self._return_piece(under, index, plan)
        if self.is_last(index):
            yield from self._holds.keep(number, plan, -1)

    def _return_piece(self, under: LayerPass, index: int, plan: UnitPlan) -> Iterator[Item]:
        """Yield the gradients of a unit's input rows, and their transfer to the host."""
        number, slot = under.number, plan.slot
        place = under.leaving[slot][index % self._sets.places]
        size = self._sets.leaving(number, plan.chunk)
        yield from self._hold_place(under, index, plan, "gradients that leave", size)
        ready: Buffers = (under.made[slot],)
        if self._sends_topology(number) or self.policies[number] in ("offload", "recompute"):
            ready += (self._place(under, index, plan),)
        access = Access(ready, (place,)) if number else Access(ready, adds=(under.after,))
        key = number, index, slot
        yield self._passes.make_aggregate_backward(key, plan.block, access)
        if number:
            yield from in_turn(self._make.accumulate(number, plan), (place,), (under.after,))
