"""Full-graph training whose vertex data lives on the host: HongTu's Algorithm 1.

Per layer and round: the rows that the units read arrive as the communication part planned
(Algorithm 2), every device aggregates and updates its unit, and the outputs go back. Backward, per
layer and round: what the memory part cached or dropped is loaded or recomputed, and the gradients
of the input rows go back the same ways (Algorithm 3).

A buffer on a device serves all rounds of a pass over a layer. What stays in it for the next round
is not written, so it has no step. A tensor that was spilled is a tensor on the disk, to and from
which its pages have steps of their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Literal

from gnnbench.footprint import (
    ChunkSize,
    adds_apart,
    adjacency_bytes,
    gradient_bytes,
    host_tensors,
    intermediate_bytes,
    reads_topology,
    size_of,
    staging_bytes,
    working_bytes,
)
from gnnbench.lowering.full_graph import FullGraphLowering
from gnnbench.lowering.host_plan import HostPlan, UnitPlan, mark_remote, shares_features
from gnnbench.lowering.host_steps import HostSteps
from gnnbench.lowering.movement import largest_buffers, plan_movement
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import OffloadingMemory, PartitionPlacement
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Step
from gnnbench.records import IntArray, Round, RoundTraffic, Unit

#: One in so many of the host's bytes for vertex data stays free for whoever borrows idle memory.
LENT_SHARE = 8

#: What the buffers of a pass over a layer's rounds are for.
Held = Literal["rows", "gradients"]
Buffers = tuple[Buffer, ...]


class HostResidentLowering(FullGraphLowering):
    """Representations and gradients of all layers on the host; see the module's docstring.

    ``host`` says where tensors lie, ``policies`` what becomes of each layer's intermediates,
    ``plans`` has the units of every round, and ``buffer_rows`` by slot what the largest needs.
    """

    _topologies = "chunk topologies, unless memory.topology=host,"
    host: HostPlan
    plans: tuple[tuple[UnitPlan, ...], ...]

    # ------------------------------------------------------------------ preparation

    def _adopt(self, traffic: Sequence[RoundTraffic], owner: IntArray) -> None:
        placement = self.bundle.placement
        if not isinstance(placement, PartitionPlacement):
            raise TypeError("vertex data on the host takes placements of partitions")
        self._shares_rows = self.bundle.shares_rows
        self.buffer_rows = largest_buffers(traffic) if self._shares_rows else {}
        remote = mark_remote(self.platform, placement, self.trainers, owner)
        threads, shares = self.setting.workload.threads, self._shares_rows
        moved = plan_movement(self.rounds, traffic, len(owner), shares_rows=shares, threads=threads)
        self.plans = tuple(
            tuple(UnitPlan.count(move, self.buffer_rows, remote) for move in moves)
            for moves in moved
        )
        # The chunks as they were cut are not needed beside those that read buffers.
        self.rounds = tuple(
            Round(round_.index, tuple(plan.unit for plan in plans))
            for round_, plans in zip(self.rounds, self.plans, strict=True)
        )

    def _place(self, ledger: Ledger) -> None:
        """h^0 .. h^L, two buffers for their gradients and the cached aggregates, as ``HostPlan``
        divides them between memory and disk; all are there for the whole run."""
        setting, memory, host = self.setting, self.bundle.memory, self.platform.host
        if not isinstance(memory, OffloadingMemory):
            raise TypeError("vertex data on the host takes memories that offload")
        chunks = [plan.chunk for plans in self.plans for plan in plans]
        self.policies = [memory.intermediates(shape) for shape in self._shapes]
        tensors = host_tensors(
            self._shapes,
            self.policies,
            num_vertices=setting.dataset.graph.num_vertices,
            num_sources=sum(chunk.rows for chunk in chunks),
            num_edges=sum(chunk.num_edges for chunk in chunks),
            itemsize=self._itemsize,
            own_features=not shares_features(setting),
        )
        budget_bytes = ledger.free_bytes(host.name)
        if host in self.trainers:
            budget_bytes -= working_bytes(
                self._shapes, memory, chunks, self._itemsize, self.bundle.kernel
            )
        if self.lends:
            budget_bytes -= budget_bytes // LENT_SHARE
        self.host = HostPlan(tensors, budget_bytes, memory.spill_directory(), host.name)
        if self.host.spilled and self.platform.virtual:
            _ = self.platform.disk  # refuses a platform that cannot price it
        self.host.allocate(ledger)
        saved = SavedSizes(self.layers, self.bundle.kernel, setting.workload)
        self._make = HostSteps(setting, self.trainers, self.layers, self.host, saved)

    def _sizes_of(self, unit: Unit) -> tuple[ChunkSize, ...]:
        return (size_of(unit.blocks[0], self.buffer_rows.get(unit.slot)),)

    def notes(self) -> tuple[str, ...]:
        """What was spilled."""
        return self.host.notes()

    # ------------------------------------------------------------------ one epoch

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """All layers forward, the loss, all layers backward, and the update."""
        self.host.clear()
        self._make.round = 0
        #: After it all devices go on together.
        self._meeting = Buffer("start")
        for number in range(len(self.layers)):
            holds = self._hold_buffers(number, "rows")
            yield from during(holds, self._forward_layer(number))
        yield from self._meet(self._make.take_loss())
        for number in reversed(range(len(self.layers))):
            yield from self._backward_layer(number)
        yield from self._synchronise(self._meeting, self._make.round)

    def _meet(self, steps: Sequence[Step]) -> Iterator[Step]:
        """What is done once for all devices, one step after the other."""
        after = Buffer("all is done")
        yield from in_turn(steps, (self._meeting,), (after,))
        self._meeting = after

    # ------------------------------------------------------------------ forward

    def _forward_layer(self, number: int) -> Iterator[Item]:
        for round_, plans in zip(self.rounds, self.plans, strict=True):
            self._make.round = round_.index
            arrived = yield from self._bring(number, plans)
            after = Buffer("round is over")
            for plan in plans:
                holds = self._hold_unit(number, plan, backward=False)
                yield from during(holds, self._forward(number, round_, plan, arrived, after))
            if plans:
                self._meeting = after

    def _forward(
        self, number: int, round_: Round, plan: UnitPlan, arrived: Buffers, after: Buffer
    ) -> Iterator[Item]:
        """One unit of one layer."""
        make, policy, made = self._make, self.policies[number], (Buffer("outputs of a unit"),)
        if self.streams:
            sent = (Buffer("topology of a unit"),)
            yield from in_turn([make.send_topology(number, plan, backward=False)], arrived, sent)
            arrived = sent
        count = len(plan.move.input_ids)
        yield from self._forward_unit(number, round_, plan.unit, arrived, made, count)
        steps = make.store(number, plan, "outputs")
        if policy == "cache":
            steps += make.store(number, plan, "aggregates")
        elif policy == "offload":
            yield self.host.save(number + 1, make.saved_bytes(number, plan))
            steps += make.offload(number, plan)
        yield from in_turn(steps, made, (after,))

    def _bring(self, number: int, plans: Sequence[UnitPlan]) -> Generator[Item, None, Buffers]:
        """The input rows of a round's units: from the host, and, when all devices have loaded
        theirs, from one peer after the other (Algorithm 2, line 6)."""
        loaded, arrived = Buffer("rows from the host"), Buffer("rows from peers")
        for plan in plans:
            steps = in_turn(self._make.bring(number, plan), (self._meeting,), (loaded,))
            yield from during(self._hold_crossing(number, plan), steps)
        for plan in plans:
            turn = Buffer("requests of a device")
            for pull in plan.move.pulls:
                step = self._make.exchange(number, plan, pull, push=False)
                step.reads, step.writes, step.adds = (loaded,), (turn,), (arrived,)
                yield step
        return loaded, arrived

    # ------------------------------------------------------------------ what devices hold

    def _hold_buffers(self, number: int, what: Held) -> list[Hold]:
        """The buffers of one pass over a layer's rounds, as large as the largest of them needs."""
        row_bytes, holds = self.layers[number].in_features * self._itemsize, []
        for slot, rows in self.buffer_rows.items():
            name = self.trainers[slot].name
            holds.append(Hold(name, f"neighbour {what}", rows.neighbour * row_bytes))
            if rows.transition is not None:
                holds.append(Hold(name, f"transition {what}", rows.transition * row_bytes))
        return holds

    def _hold_crossing(self, number: int, plan: UnitPlan) -> tuple[Hold]:
        """Room on a device for the rows between the host and its buffers."""
        row_bytes, chunk = self.layers[number].in_features * self._itemsize, plan.chunk
        largest = max(chunk.rows, chunk.transition) if chunk.buffered else 0
        name = self.trainers[plan.slot].name
        return (Hold(name, "crossing rows", staging_bytes(largest, row_bytes)),)

    def _hold_unit(self, number: int, plan: UnitPlan, *, backward: bool) -> list[Hold]:
        """What one unit of one layer takes on its device while it is worked on."""
        item, shape, chunk = self._itemsize, self._shapes[number], plan.chunk
        policy, first, kernel = self.policies[number], number == 0, self.bundle.kernel
        rows_in, direct = chunk.rows * shape.in_features * item, not self._shares_rows
        sizes: list[tuple[str, int]] = []
        if direct and (not backward or policy == "recompute"):
            sizes.append(("neighbour rows", rows_in))
        elif backward and policy == "offload":
            sizes.append(("restored rows", rows_in))
        if self.streams and (not backward or reads_topology(policy, first=first)):
            sizes.append(("chunk topology", adjacency_bytes(self._shapes, chunk, item, kernel)))
        sizes.append(("chunk intermediates", intermediate_bytes(shape, chunk, item)))
        if backward:
            sizes.append(("chunk gradients", gradient_bytes(shape, chunk, item, first=first)))
            if not first and (direct or adds_apart(shape, chunk, kernel)):
                what = "neighbour gradients" if direct else "gradients to be added"
                sizes.append((what, rows_in))
        name = self.trainers[plan.slot].name
        return [Hold(name, tensor, size) for tensor, size in sizes]

    # ------------------------------------------------------------------ backward

    def _backward_layer(self, number: int) -> Iterator[Item]:
        holds = self._hold_buffers(number, "rows") if self.policies[number] == "recompute" else []
        if number:
            yield from self._meet(self._make.clear_gradients(number))
            holds += self._hold_buffers(number, "gradients")
        yield from during(holds, self._backward_rounds(number))
        if self.policies[number] == "offload":
            yield self.host.let_go(number + 1)

    def _backward_rounds(self, number: int) -> Iterator[Item]:
        make, shares = self._make, number and self._shares_rows
        for round_, plans in zip(self.rounds, self.plans, strict=True):
            make.round = round_.index
            ready: Buffers = (self._meeting,)
            if self.policies[number] == "recompute":
                ready = yield from self._bring(number, plans)
            if shares:
                clear = (Buffer("gradients on devices are clear"),)
                for plan in plans:
                    yield from in_turn([make.clear_buffer(number, plan)], ready, clear)
                ready = clear
            returned = Buffer("gradients of a round")
            for plan in plans:
                holds = self._hold_unit(number, plan, backward=True)
                yield from during(holds, self._backward(number, round_, plan, ready, returned))
            if plans:
                self._meeting = returned
            if shares:
                yield from self._leave(number, plans)

    def _backward(
        self, number: int, round_: Round, plan: UnitPlan, ready: Buffers, returned: Buffer
    ) -> Iterator[Item]:
        """One unit of one layer: what it goes back from arrives over its link, one after the
        other; what it makes goes on to its peers' buffers, or straight to where it lives."""
        make, policy, first = self._make, self.policies[number], number == 0
        steps = make.fetch(number, plan, "gradients")
        if self.streams and reads_topology(policy, first=first):
            steps.insert(0, make.send_topology(number, plan, backward=True))
        if policy == "offload":
            steps += make.restore(number, plan)
        elif policy == "cache":
            steps += make.fetch(number, plan, "aggregates")
        arrived = (Buffer("what a unit goes back from"),)
        yield from in_turn(steps, ready, arrived)
        if policy != "offload":
            inputs, arrived = arrived, (Buffer("forward pass of a unit"),)
            forward = self._forward_unit(number, round_, plan.unit, inputs, arrived, 0)
            yield from recompute(forward, inputs, cached=policy == "cache")
        after: list[Step] = []
        if not first and self._shares_rows:
            after = [make.exchange(number, plan, push, push=True) for push in plan.move.pushes]
        elif not first:
            after = make.accumulate(number, plan)
        made = Buffer("gradients of a unit") if after else returned
        yield from self._backward_unit(number, round_, plan.unit, arrived, (made,))
        yield from in_turn(after, (made,), (returned,))

    def _leave(self, number: int, plans: Sequence[UnitPlan]) -> Iterator[Item]:
        """After all units have pushed: rows that the next round does not keep go to the host."""
        after = Buffer("round is over")
        for plan in plans:
            compact = (Buffer("compact gradients"),)
            yield from in_turn([self._make.compact(number, plan)], (self._meeting,), compact)
            steps = in_turn(self._make.accumulate(number, plan), compact, (after,))
            yield from during(self._hold_crossing(number, plan), steps)
        if plans:
            self._meeting = after


def in_turn(steps: Sequence[Step], after: Buffers, into: Buffers) -> Iterator[Step]:
    """Steps each of which takes up what the one before has made: the first reads ``after``, the
    last adds to ``into``."""
    for number, step in enumerate(steps, 1):
        step.reads = after
        if number == len(steps):
            step.adds = into
        else:
            after = step.writes = (Buffer(step.label),)
        yield step


def recompute(forward: Iterator[Step], inputs: Buffers, *, cached: bool) -> Iterator[Step]:
    """A unit's forward pass once more, from its input rows, or UPDATE alone where ``inputs`` have
    its ``cached`` aggregates."""
    for step in forward:
        if cached and step.op == "aggregate forward":
            continue
        step.op, step.stage = step.op.replace("forward", "again"), "recompute"
        step.edges, step.vertices, step.arithmetic = 0, 0, 0.0
        if cached:
            step.reads = inputs
        yield step


def during(holds: Sequence[Hold], items: Iterator[Item]) -> Iterator[Item]:
    """Items while a memory holds something."""
    yield from holds
    yield from items
    for hold in holds:
        yield Free(hold.memory, hold.tensor)
