"""Full-graph training with vertex data on the host: HongTu's Algorithm 1.

Forward, per layer and round, the rows that the units read arrive as the communication part planned
(Algorithm 2). Then every device aggregates and updates its unit, and the outputs go to the host.
Backward, per layer and round, cached intermediates are loaded, and dropped ones are recomputed, as
the memory part chose. The gradients of the input rows go back the same ways (Algorithm 3).

A buffer on a device serves all rounds of a pass over a layer. Rows that stay in it for the next
round are not written, so they have no step. A spilled tensor lies on the disk, and its pages have
transfer steps of their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gnnbench.lowering.base import Lowering
from gnnbench.lowering.footprint import ChunkSize, host_tensors, reads_topology
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.host_plan import (
    HostPlan,
    UnitPlan,
    mark_remote,
    shares_features,
)
from gnnbench.lowering.host_steps import AGGREGATES, GRADIENTS, OUTPUTS, HostSteps
from gnnbench.lowering.memory import allocate_host_graph, stays_on_disk
from gnnbench.lowering.movement import largest_buffers, plan_movement
from gnnbench.lowering.stages.chunking import Chunking
from gnnbench.lowering.stages.host_holds import HostHolds
from gnnbench.lowering.stages.unit_passes import UnitPasses
from gnnbench.lowering.working_sets import WorkingSets
from gnnbench.models import Layer
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import Bundle, OffloadingMemory, Session, Setting
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Step
from gnnbench.records import BufferRows, IntArray, PartKind

#: One in eight of the host's bytes for vertex data stays free for borrowers of idle memory.
LENT_SHARE = 8

Buffers = tuple[Buffer, ...]


class HostResidentLowering(Lowering):
    """The lowering with all layers' representations and gradients on the host; see the module.

    ``host`` says where tensors lie, ``policies`` how each layer's intermediates are kept, and
    ``plans`` has the units of every round. ``owner`` is the device index of each vertex's owner in
    a partitioned graph. A chunk has ``pieces`` pieces, one for each round.
    """

    host: HostPlan
    plans: Sequence[Sequence[UnitPlan]]
    owner: IntArray
    pieces: int = 1

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        name = "chunk topologies, unless memory.topology=host,"
        self._chunking = Chunking(self.frame, name)
        self._passes = UnitPasses(self.frame)
        self.frame.keeps_blocks = True

    # ------------------------------------------------------------------ preparation

    def prepare(self, ledger: Ledger) -> None:
        """Partition, plan the traffic, and place what stays for the whole run."""
        cut, traffic = self._chunking.cut(ledger)
        self.cut_notes, self.owner, self.pieces = cut.notes, cut.owner, cut.pieces
        owner = cut.owner
        placement, memory = self.bundle.placement, self.bundle.memory
        if not isinstance(memory, OffloadingMemory):
            raise TypeError("vertex data on the host takes memories that offload")
        shares, threads = self.bundle.shares_rows, self.setting.workload.threads
        buffer_rows = largest_buffers(traffic) if shares else {}
        sockets = placement.sockets(self.setting, owner)
        homes = Homes.at_sockets(self.platform, sockets)
        remote = mark_remote(self.platform, self.trainers, sockets)
        moved = plan_movement(
            cut.rounds,
            traffic,
            len(owner),
            shares_rows=shares,
            threads=threads,
            keep=self.setting.keep,
        )
        plans = [
            [UnitPlan.of_move(move, buffer_rows, remote, homes) for move in moves]
            for moves in moved
        ]
        directory = None if self.platform.other_hosts else memory.spill_directory()
        copied = not shares_features(self.setting)
        self.lay_out(ledger, homes, plans, buffer_rows, copied=copied, directory=directory)

    def lay_out(
        self,
        ledger: Ledger,
        homes: Homes,
        plans: Sequence[Sequence[UnitPlan]],
        buffer_rows: Mapping[int, BufferRows],
        *,
        copied: bool = False,
        directory: Path | None = None,
    ) -> None:
        """Train on the units of ``plans``, which may be sizes alone, and place what stays.

        ``homes`` says where vertices are, and ``copied`` that the host has a copy of the features.
        Tensors that the host cannot hold are spilled to ``directory``, if there is one.
        """
        self.frame.homes, self.plans, self.buffer_rows = homes, plans, buffer_rows
        self._shares_rows = self.bundle.shares_rows
        self._sets = self._make_sets()
        self._holds = HostHolds(self.frame, self._sets, buffer_rows)
        self.policies, self.streams = self._sets.policies, self._sets.streams
        chunks = [(plan.slot, plan.chunk) for units in plans for plan in units]
        self._chunking.place(ledger, () if self.streams else chunks)
        self._place_on_host(ledger, [chunk for _, chunk in chunks], copied, directory)

    def _make_sets(self) -> WorkingSets:
        return WorkingSets(self.bundle, self.frame.shapes, self.frame.itemsize)

    def _place_on_host(
        self, ledger: Ledger, chunks: Sequence[ChunkSize], copied: bool, directory: Path | None
    ) -> None:
        """Place h^0 .. h^L, two buffers for their gradients, and the cached aggregates.

        ``HostPlan`` divides them between memory and disk. All exist for the whole run.
        """
        setting, host = self.setting, self.platform.host
        allocate_host_graph(ledger, setting, self.frame.homes)
        tensors = host_tensors(
            self.frame.shapes,
            self.policies,
            num_vertices=setting.dataset.graph.num_vertices,
            num_sources=sum(chunk.rows for chunk in chunks),
            num_edges=sum(chunk.num_edges for chunk in chunks),
            itemsize=self.frame.itemsize,
            own_features=copied,
        )
        budget_bytes = ledger.free_bytes(host.name)
        if host in self.trainers:
            budget_bytes -= self._sets.most_bytes(chunks)
        if self.lends:
            budget_bytes -= budget_bytes // LENT_SHARE
        on_disk = stays_on_disk(setting) and not copied
        self.host = HostPlan(
            tensors, budget_bytes, directory, self.frame.homes, features_on_disk=on_disk
        )
        if self.host.spilled and self.platform.virtual:
            _ = self.platform.disk  # refuses a platform that cannot price it
        self.host.allocate(ledger)
        saved = SavedSizes(self.layers, self.bundle.kernel, setting.workload)
        self._make = HostSteps(
            setting, self.trainers, self.layers, self.host, saved, self.frame.homes
        )

    def sessions(self) -> Mapping[PartKind, Session]:
        """Return what the communication part has opened for this run."""
        return {"communication": self._chunking.traffic}

    def notes(self) -> tuple[str, ...]:
        """Return what was spilled, and what stays on disk."""
        return (*super().notes(), *self.host.notes())

    # ------------------------------------------------------------------ one epoch

    @property
    def steady(self) -> bool:
        """Whether every epoch is the same program: always, as the graph alone decides transfers."""
        return True

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """Yield all layers forward, the loss, all layers backward, and the update."""
        self.host.clear()
        self._holds.start_epoch()
        self._make.round = 0
        #: The buffer after which all devices continue together.
        self._meeting = Buffer("start")
        for number in range(len(self.layers)):
            holds = self._holds.hold_buffers(number, backward=False)
            yield from during(holds, self._forward_layer(number))
        yield from self._meet(self._make.take_loss())
        for number in reversed(range(len(self.layers))):
            yield from self._backward_layer(number)
        yield from self.reduction.synchronise(self._meeting, self._make.round)

    def _meet(self, parts: Iterable[Sequence[Step]]) -> Iterator[Step]:
        """Yield work that is done once for all devices: each host's ``parts``, step after step."""
        after = Buffer("all is done")
        for steps in parts:
            yield from in_turn(steps, (self._meeting,), (after,))
        self._meeting = after

    # ------------------------------------------------------------------ forward

    def _forward_layer(self, number: int) -> Iterator[Item]:
        for index, plans in enumerate(self.plans):
            self._make.round = index
            arrived = yield from self._bring(number, plans)
            after = Buffer("round is over")
            for plan in plans:
                holds = self._holds.hold_unit(number, plan, backward=False)
                yield from during(holds, self._forward(number, plan, arrived, (), (after,)))
                yield from self._holds.keep(number, plan, 1)
            if plans:
                self._meeting = after

    def _forward(
        self, number: int, plan: UnitPlan, arrived: Buffers, computed: Buffers, stored: Buffers
    ) -> Iterator[Item]:
        """Yield one unit of one layer."""
        make, policy, made = self._make, self.policies[number], (Buffer("outputs of a unit"),)
        if self.streams:
            sent = (Buffer("topology of a unit"),)
            yield from in_turn([make.send_topology(number, plan, backward=False)], arrived, sent)
            arrived = sent
        key = (number, make.round, plan.slot)
        into = made + computed
        yield from self._passes.forward(key, plan.block, arrived, into, plan.inputs)
        steps = make.store(number, plan, OUTPUTS)
        if policy == "cache":
            steps += make.store(number, plan, AGGREGATES)
        elif policy == "offload":
            saved_bytes, host = make.saved_bytes(number, plan), self.hosts[plan.slot]
            yield self.host.save(number + 1, saved_bytes, host)
            steps += make.offload(number, plan)
        yield from in_turn(steps, made, stored)

    def _bring(self, number: int, plans: Sequence[UnitPlan]) -> Generator[Item, None, Buffers]:
        """Yield the transfers of a round's input rows, and return the buffers that units read."""
        loaded, arrived = Buffer("rows from the host"), Buffer("rows from peers")
        for plan in plans:
            steps = in_turn(self._make.bring(number, plan), (self._meeting,), (loaded,))
            yield from during(self._holds.hold_crossing(number, plan), steps)
        for plan in plans:
            turn = Buffer("requests of a device")
            for step in self._make.exchange(number, plan, push=False):
                yield step.over((loaded,), (turn,), (arrived,))
        return loaded, arrived

    # ------------------------------------------------------------------ backward

    def _backward_layer(self, number: int) -> Iterator[Item]:
        if number:
            yield from self._meet(self._make.clear_gradients(number))
        holds = self._holds.hold_buffers(number, backward=True)
        yield from during(holds, self._backward_rounds(number))
        if self.policies[number] == "offload":
            yield from self.host.let_go(number + 1)

    def _backward_rounds(self, number: int) -> Iterator[Item]:
        make, shares = self._make, number and self._shares_rows
        for index, plans in enumerate(self.plans):
            make.round = index
            ready: Buffers = (self._meeting,)
            if self.policies[number] == "recompute":
                ready = yield from self._bring(number, plans)
            if shares:
                clear = (Buffer("gradients on devices are clear"),)
                for plan in plans:
                    yield from in_turn([make.clear_buffer(number, plan)], ready, clear)
                ready = clear
            yield from self._look_ahead(number, index)
            returned = Buffer("gradients of a round")
            for plan in plans:
                holds = self._holds.hold_unit(number, plan, backward=True)
                yield from during(holds, self._backward(number, plan, ready, returned))
                yield from self._holds.keep(number, plan, -1)
            if plans:
                self._meeting = returned
            if shares:
                yield from self._leave(number, plans)

    def _look_ahead(self, number: int, index: int) -> Iterator[Item]:
        """Yield backward inputs that cross before this round's units are worked on: none here."""
        yield from ()

    def _fetch(self, number: int, plan: UnitPlan) -> list[Step]:
        """Return the transfers of those backward inputs of a unit that are stored by vertex."""
        steps = self._make.fetch(number, plan, GRADIENTS)
        if self.policies[number] == "cache":
            steps += self._make.fetch(number, plan, AGGREGATES)
        return steps

    def _fetch_unit(
        self, number: int, plan: UnitPlan, ready: Buffers
    ) -> Generator[Item, None, Buffers]:
        """Yield the transfers of all backward inputs of a unit, one after the other."""
        make, policy, steps = self._make, self.policies[number], self._fetch(number, plan)
        if self.streams and reads_topology(policy, self.frame.shapes[number], first=number == 0):
            steps.insert(0, make.send_topology(number, plan, backward=True))
        if policy == "offload":
            steps += make.restore(number, plan)
        if not steps:
            return ready
        arrived = (Buffer("backward inputs of a unit"),)
        yield from in_turn(steps, ready, arrived)
        return arrived

    def _backward(
        self, number: int, plan: UnitPlan, ready: Buffers, returned: Buffer
    ) -> Iterator[Item]:
        """Yield one unit's backward pass; gradients go to peers' buffers, or to the host."""
        make, policy, first = self._make, self.policies[number], number == 0
        key = (number, make.round, plan.slot)
        arrived = yield from self._fetch_unit(number, plan, ready)
        if policy in ("cache", "recompute"):
            inputs, arrived = arrived, (Buffer("forward pass of a unit"),)
            yield from self._passes.repeat(
                key, plan.block, inputs, arrived, cached=policy == "cache"
            )
        after: list[Step] = []
        if not first and self._shares_rows:
            after = make.exchange(number, plan, push=True)
        elif not first:
            after = make.accumulate(number, plan)
        made = Buffer("gradients of a unit") if after else returned
        yield from self._passes.backward(key, plan.block, arrived, (made,))
        yield from in_turn(after, (made,), (returned,))

    def _leave(self, number: int, plans: Sequence[UnitPlan]) -> Iterator[Item]:
        """Yield the transfers to the host of gradients that leave, once all units have pushed."""
        after = Buffer("round is over")
        for plan in plans:
            compact = (Buffer("compact gradients"),)
            yield from in_turn([self._make.compact(number, plan)], (self._meeting,), compact)
            steps = in_turn(self._make.accumulate(number, plan), compact, (after,))
            yield from during(self._holds.hold_crossing(number, plan), steps)
        if plans:
            self._meeting = after


def in_turn(steps: Sequence[Step], after: Buffers, into: Buffers) -> Iterator[Step]:
    """Yield steps each of which reads what the previous one wrote.

    The first reads ``after``, and the last adds to ``into``.
    """
    for number, step in enumerate(steps, 1):
        if number == len(steps):
            yield step.over(after, adds=into)
        else:
            written = (Buffer(step.label),)
            yield step.over(after, written)
            after = written


def during(holds: Sequence[Hold], items: Iterator[Item]) -> Iterator[Item]:
    """Yield items between the beginning and the end of ``holds``."""
    yield from holds
    yield from items
    for hold in holds:
        yield Free(hold.memory, hold.tensor)
