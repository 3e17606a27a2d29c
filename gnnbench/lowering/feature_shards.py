"""Full-graph training with AGGREGATE sharded by features and UPDATE by vertices.

It is MixGCN's Algorithm 2. Forward, per layer and round, every aggregator aggregates its columns.
An all-to-all brings each updater all columns of its vertices, which it updates. A second all-to-all
brings the results to the aggregators of the next layer. Each updater computes the loss of its
vertices. Backward, gradients take the same ways in reverse, and a ring all-reduce adds the
gradients of the weights.

A round is a stage of the pipeline between sparse and dense devices (§3.2.2). Its aggregation waits
for the rows that it reads and for no others, since each round's columns have a buffer. The
schedules of Figure 5 follow from the rounds that the sampler cuts. Backward, a piece of the
adjacency passes its gradients on as soon as the gradients of its rows are complete. A round's rows
return to their updaters when all pieces that read these rows are done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gnnbench.errors import PluginError
from gnnbench.lowering.base import Lowering
from gnnbench.lowering.exchanges import (
    AGGREGATE_GRADIENTS,
    AGGREGATES,
    ROW_GRADIENTS,
    ROWS,
    Matrix,
)
from gnnbench.lowering.footprint import mask_bytes
from gnnbench.lowering.memory import (
    ADAM_ARRAYS,
    allocate_host_graph,
    allocate_model,
    compute_resource,
)
from gnnbench.lowering.shardings import GraphShardings, Range, Shardings
from gnnbench.lowering.stages.averaging import UpdateModel
from gnnbench.lowering.stages.chunking import require_coverage
from gnnbench.lowering.stages.unit_passes import (
    AggregateBackward,
    AggregateForward,
    UnitKey,
    UpdateBackward,
    UpdateForward,
)
from gnnbench.lowering.units import size_backward, update_gemms
from gnnbench.machines.machine import Device
from gnnbench.models import Layer
from gnnbench.parts import Bundle, FullGraphSampler, Setting, divide_evenly
from gnnbench.program import (
    NOTHING,
    Access,
    Buffer,
    Collective,
    Counts,
    Free,
    Hold,
    Item,
    Ledger,
    Place,
    Step,
)
from gnnbench.records import AggregateWork, CopyWork, Stage, Work

#: By round and slot.
Buffers = defaultdict[tuple[int, int], Buffer]


class ReduceSums(NamedTuple):
    """The transfer of elements ``begin`` to ``end`` of the sums of the weights' gradients.

    The target ``adds`` them to its own, or replaces its own.
    """

    source: int
    target: int
    begin: int
    end: int
    adds: bool


class TakeLoss(NamedTuple):
    """The loss of an updater's training vertices of a round, and the gradients of its logits."""

    round: int
    slot: int


def open_buffers(name: str) -> Buffers:
    """Return a dictionary that makes a buffer for every round and device on first access."""
    return defaultdict(partial(Buffer, name))


class ShardsLayout(Lowering):
    """The two shardings of a run: which device does what, and what its memory holds for it.

    ``lay_out`` sets ``shards`` to both shardings, ``rounds`` to the numbers of the rounds, and
    ``columns`` to each aggregator's columns of every layer's input. ``prepare`` sets ``cut`` to the
    shardings with the adjacency.
    """

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        if not isinstance(bundle.sampler, FullGraphSampler):
            raise TypeError("the lowering of feature shards takes full-graph samplers")
        if not bundle.by_features:
            raise TypeError("the lowering of feature shards takes placements by shards")
        self._sampler, self.placement = bundle.sampler, bundle.placement
        self.frame.keeps_blocks = True

    # ------------------------------------------------------------------ preparation

    def prepare(self, ledger: Ledger) -> None:
        """Cut the rounds into shards, and place what devices hold for the whole run."""
        setting, placement = self.setting, self.placement
        allocate_host_graph(ledger, setting, self.frame.homes)
        cut = self._sampler.chunks(setting, len(self.trainers))
        require_coverage(self._sampler, cut, setting)
        rounds, self.cut_notes = cut.rounds, cut.notes
        if any(len(round_.units) != 1 for round_ in rounds):
            raise PluginError(
                f"sampler {self._sampler.name!r} gives devices units of their own; a staged one "
                f"gives every round one."
            )
        self.cut = GraphShardings(rounds, setting.dataset, placement, self.platform)
        self.lay_out(ledger, self.cut)

    def lay_out(self, ledger: Ledger, shards: Shardings) -> None:
        """Train on ``shards``, which may be sizes alone, and place what stays for the whole run."""
        self.shards = shards
        self.rounds = range(len(shards.bounds) - 1)
        self.columns: list[dict[int, Range]] = [
            shards.columns(layer.in_features) for layer in self.layers
        ]
        self._aggregate_overlaps = [shards.overlap_aggregates(number) for number in self.rounds]
        self._row_overlaps = [shards.overlap_rows(number) for number in self.rounds]
        updated = [(number, slot) for number in self.rounds for slot in shards.updaters]
        self._edges = {key: shards.edges_of(*key) for key in updated}
        self._seeds = {key: shards.seeds_of(*key) for key in updated}
        self._ways: dict[tuple[int, int], Place] = {}
        for slot in shards.updaters:
            self._place_updater(ledger, slot)
        for slot in shards.aggregators:
            self._place_aggregator(ledger, slot)

    def count_seeds(self) -> tuple[int, ...]:
        """Return the number of labelled training vertices, in one update."""
        return (sum(self._seeds.values()),)

    @property
    def workers(self) -> tuple[Device, ...]:
        """All trainers: a trainer without columns or vertices is idle, and counts."""
        return self.trainers

    def _place_updater(self, ledger: Ledger, slot: int) -> None:
        allocate_model(ledger, self.setting, self.trainers[slot])
        for number, layer in enumerate(self.layers):
            width = layer.aggregate_features + layer.out_features
            size = self._count_updated(slot) * width * self.frame.itemsize
            name = f"kept intermediates of layer {number + 1}"
            ledger.allocate(self.trainers[slot].name, name, size)

    def _place_aggregator(self, ledger: Ledger, slot: int) -> None:
        name = self.trainers[slot].name
        pieces = [self.shards.pieces[number, slot] for number in self.rounds]
        factors = max(layer.shape.factors.edges for layer in self.layers) * self.frame.itemsize
        topology = sum(piece.topology_bytes + factors * piece.size.num_edges for piece in pieces)
        ledger.allocate(name, "adjacency on the device", topology)
        features = self.shards.num_held(slot) * self.width(0, slot) * self.frame.itemsize
        ledger.allocate(name, "feature columns on the device", features)
        for number, layer in enumerate(self.layers):
            if layer.masks_below:
                width = self.width(number, slot)
                size = sum(mask_bytes(piece.size.num_src, width) for piece in pieces)
                ledger.allocate(name, f"masks of h{number}", size)

    # ------------------------------------------------------------------ who does what

    def width(self, number: int, slot: int) -> int:
        """Return how many columns of a layer's input an aggregator has."""
        begin, end = self.columns[number][slot]
        return end - begin

    def copies(self, number: int) -> int:
        """Return how many matrices as wide as its input a layer's AGGREGATE makes side by side."""
        return self.layers[number].aggregate_features // self.layers[number].in_features

    def _aggregators(self, number: int) -> list[int]:
        """Return the aggregators that have a column of a layer's input."""
        return [slot for slot in self.shards.aggregators if self.width(number, slot)]

    def _updaters(self, index: int) -> list[int]:
        """Return the updaters that have a vertex of a round."""
        return [slot for slot in self.shards.updaters if self.shards.rows_of(index, slot)]

    def _count_updated(self, slot: int) -> int:
        """Return how many vertices an updater has in all rounds together."""
        return sum(self.shards.rows_of(number, slot) for number in self.rounds)

    # ------------------------------------------------------------------ memory

    def _hold(self, slot: int, tensor: str, elements: int) -> Hold:
        return Hold(self.trainers[slot].name, tensor, elements * self.frame.itemsize)

    def _hold_columns(self, number: int, tensor: str) -> list[Hold]:
        """Return the holds of a layer's input rows, or their gradients, on all its aggregators."""
        return [
            self._hold(slot, tensor, self.shards.num_held(slot) * self.width(number, slot))
            for slot in self._aggregators(number)
        ]

    def _hold_updated(self, tensor: str, width: int) -> list[Hold]:
        """Return the holds of ``width`` values for each vertex of every updater."""
        return [
            self._hold(slot, tensor, self._count_updated(slot) * width)
            for slot in self.shards.updaters
        ]

    def _hold_aggregates(self, number: int, index: int) -> list[Hold]:
        """Return the holds of a round's aggregates or of their gradients."""
        copies, name = self.copies(number), f"aggregates of every second round, {index % 2}"
        return [
            self._hold(
                slot,
                name,
                self.shards.pieces[index, slot].size.num_dst * self.width(number, slot) * copies,
            )
            for slot in self._aggregators(number)
        ]

    def _hold_picked(self, number: int, index: int) -> list[Hold]:
        """Return the holds of the rows that are picked for a round."""
        pieces = {slot: self.shards.pieces[index, slot] for slot in self._aggregators(number)}
        return [
            self._hold(slot, "rows read by a round", piece.size.num_src * self.width(number, slot))
            for slot, piece in pieces.items()
            if piece.picks
        ]

    @staticmethod
    def _free(holds: Sequence[Hold]) -> Iterator[Free]:
        for hold in holds:
            yield Free(hold.memory, hold.tensor)


class FeatureShardsLowering(ShardsLayout):
    """The epochs over two shardings with the transfers between them; see the module's docstring."""

    @property
    def steady(self) -> bool:
        """Whether every epoch is the same program: always, as the graph alone decides transfers."""
        return True

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """Yield one full-graph iteration: forward, loss, backward, update."""
        #: By device index, an updater's sum of the gradients of the weights.
        self._sums = {slot: Buffer("gradients of the weights") for slot in self.shards.updaters}
        depth, held = len(self.layers), list[Hold]()
        ready = open_buffers("features")
        for number in range(depth):
            columns = []
            if number < depth - 1:
                columns = self._hold_columns(number + 1, f"columns of h{number + 1}")
            yield from columns
            ready = yield from self._forward_layer(number, ready)
            yield from self._free(held)
            held = columns
        held = self._hold_updated(f"gradients of h{depth}", self.layers[-1].out_features)
        yield from held
        for number in reversed(range(depth)):
            width, columns, gradients = self.layers[number].in_features, [], []
            if number:
                columns = self._hold_columns(number, f"columns of h{number}'s gradients")
                gradients = self._hold_updated(f"gradients of h{number}", width)
            yield from (*columns, *gradients)
            below = yield from self._backward_layer(number, ready)
            yield from self._free(held)
            if number:
                ready = yield from self._return_gradients(number, below)
            yield from self._free(columns)
            held = gradients
        yield from self._all_reduce()

    # ------------------------------------------------------------------ forward

    def _forward_layer(self, number: int, inputs: Buffers) -> Generator[Item, None, Buffers]:
        """Yield one layer of all rounds, and return the columns of its outputs.

        After the last layer, return the gradients of the logits instead. A round is transferred
        while the next one is aggregated, and updated afterwards (the pipeline of §3.2.2).
        """
        outputs = open_buffers(f"columns of h{number + 1}")
        crossing: Iterator[Item] = iter(())
        for index in self.rounds:
            aggregated, whole = open_buffers("aggregates"), open_buffers("all columns of them")
            holds = self._hold_aggregates(number, index)
            yield from holds
            picked = self._hold_picked(number, index)
            yield from picked
            yield from self._aggregate(number, index, inputs, aggregated)
            yield from self._free(picked)
            yield self._exchange(AGGREGATES, number, index, aggregated, whole)
            yield from crossing
            crossing = self._update_round(number, index, whole, outputs, holds)
        yield from crossing
        return outputs

    def _update_round(
        self, number: int, index: int, whole: Buffers, outputs: Buffers, holds: Sequence[Hold]
    ) -> Iterator[Item]:
        """Yield the update of a round that its updaters have received, and its transfer or loss.

        The aggregators no longer hold the round's aggregates.
        """
        yield from self._free(holds)
        updated = open_buffers("outputs")
        yield from self._update(number, index, whole, updated)
        if number < len(self.layers) - 1:
            yield self._exchange(ROWS, number + 1, index, updated, outputs)
        else:
            yield from self._take_loss(index, updated, outputs)

    def _aggregate(
        self, number: int, index: int, inputs: Buffers, aggregated: Buffers
    ) -> Iterator[Step]:
        """Yield the aggregation of every aggregator's columns for a round (line 8)."""
        for slot in self._aggregators(number):
            piece = self.shards.pieces[index, slot]
            if piece.size.num_dst:
                arithmetic = float(piece.size.num_edges * self.width(number, slot))
                reads = tuple([inputs[read, slot] for read in piece.reads])
                key, access = (number, index, slot), Access(reads, (aggregated[index, slot],))
                label, operation = "aggregate forward", AggregateForward(key)
                work = self._size_aggregate(key)
                step = self._step(operation, "aggregate", label, key, work, access)
                announced = self._announce(key, backward=False)
                yield step._replace(index_work=announced, counts=Counts(arithmetic=arithmetic))

    def _size_aggregate(self, key: UnitKey) -> AggregateWork:
        number, index, slot = key
        size = self.shards.pieces[index, slot].size
        work = self.layers[number].aggregate_work(size, self.frame.itemsize)
        order = self.frame.find_order(self.shards.blocks.get((index, slot)))
        return work._replace(features=self.width(number, slot), order=order)

    def _announce(self, key: UnitKey, *, backward: bool) -> Callable[[], None] | None:
        return self.frame.announce(self.shards.blocks.get(key[1:]), backward=backward)

    def _update(self, number: int, index: int, whole: Buffers, updated: Buffers) -> Iterator[Step]:
        """Yield the update of every updater's vertices of a round (line 12)."""
        layer = self.layers[number]
        for slot in self._updaters(index):
            rows = self.shards.rows_of(index, slot)
            work = layer.update_work(rows, self.frame.itemsize)
            vertices, arithmetic = rows * (1 if number else 2), float(rows * layer.macs_per_row)
            counts = Counts((), self._edges[index, slot], vertices, arithmetic)
            access = Access((whole[index, slot],), (updated[index, slot],))
            key, label = (number, index, slot), "update forward"
            step = self._step(UpdateForward(key), "update", label, key, work, access)
            yield step._replace(counts=counts)

    def _take_loss(self, index: int, logits: Buffers, gradients: Buffers) -> Iterator[Step]:
        """Yield the loss of every updater's own training vertices (line 15)."""
        width = self.layers[-1].out_features
        for slot in self._updaters(index):
            rows = self.shards.rows_of(index, slot)
            size = 2 * rows * width * self.frame.itemsize
            # The optimiser's part counts once, in the first round.
            first = index == self.rounds[0]
            work = CopyWork(size, self._seeds[index, slot], loss=first)
            access = Access((logits[index, slot],), (gradients[index, slot],))
            key = len(self.layers), index, slot
            yield self._step(TakeLoss(index, slot), "update", "loss", key, work, access)

    # ------------------------------------------------------------------ backward

    def _backward_layer(self, number: int, ready: Buffers) -> Generator[Item, None, Buffers]:
        """Yield a layer's backward pass, and return the gradients of its inputs.

        ``ready`` has the gradients of its outputs by round and updater. The result has the
        gradients of its inputs by the row's round and aggregator. The first layer's input has no
        gradients. A round is transferred while the next one is updated, just as forward.
        """
        crossing: Iterator[Item] = iter(())
        below, layer = open_buffers(f"columns of h{number}'s gradients"), self.layers[number]
        for index in self.rounds:
            parts, columns = open_buffers("gradients of aggregates"), open_buffers("their columns")
            for slot in self._updaters(index):
                rows = self.shards.rows_of(index, slot)
                gemms = update_gemms(layer, first=number == 0)
                work = layer.update_work(rows, self.frame.itemsize, gemms)
                work = work._replace(backward=True)
                adds = (self._sums[slot],)
                access = Access((ready[index, slot],), (parts[index, slot],), adds)
                key, label = (number, index, slot), "update backward"
                yield self._step(UpdateBackward(key), "update", label, key, work, access)
            if number:
                holds = self._hold_aggregates(number, index)
                yield from holds
                yield self._exchange(AGGREGATE_GRADIENTS, number, index, parts, columns)
                yield from crossing
                crossing = self._return_columns(number, index, columns, below, holds)
        yield from crossing
        return below

    def _return_columns(
        self, number: int, index: int, columns: Buffers, below: Buffers, holds: Sequence[Hold]
    ) -> Iterator[Item]:
        """Yield the backward pass of AGGREGATE for a round, once its gradients have arrived.

        The aggregators hold the gradients of its aggregates until the pass is over.
        """
        picked = self._hold_picked(number, index)
        yield from picked
        yield from self._aggregate_backward(number, index, columns, below)
        yield from self._free([*picked, *holds])

    def _aggregate_backward(
        self, number: int, index: int, columns: Buffers, below: Buffers
    ) -> Iterator[Step]:
        """Yield AGGREGATE backward, from a round's gradients to all rows that the round reads."""
        for slot in self._aggregators(number):
            piece = self.shards.pieces[index, slot]
            if piece.size.num_dst:
                adds = tuple([below[read, slot] for read in piece.reads])
                key, access = (number, index, slot), Access((columns[index, slot],), adds=adds)
                work = size_backward(self._size_aggregate(key), first=number == 0)
                operation, label = AggregateBackward(key), "aggregate backward"
                step = self._step(operation, "aggregate", label, key, work, access)
                yield step._replace(index_work=self._announce(key, backward=True))

    def _return_gradients(self, number: int, below: Buffers) -> Generator[Item, None, Buffers]:
        """Yield the transfer of complete gradients to the updaters of the layer below."""
        returned = open_buffers(f"gradients of h{number}")
        for index in self.rounds:
            yield self._exchange(ROW_GRADIENTS, number, index, below, returned)
        return returned

    # ------------------------------------------------------------------ steps

    def _step(
        self,
        operation: object,
        stage: Stage,
        label: str,
        key: UnitKey,
        work: Work,
        access: Access,
    ) -> Step:
        """Return a device's part of a round."""
        number, index, slot = key
        device = self.trainers[slot]
        place = Place(device.name, compute_resource(device, self.platform.host, stage), slot)
        return Step(operation, stage, label, place, work, number, index, access=access)

    def _exchange(
        self, what: Matrix, number: int, index: int, sources: Buffers, targets: Buffers
    ) -> Collective:
        """Return an all-to-all between aggregators and updaters, with a step for each pair."""
        steps, name = [], what.name
        overlaps = self._aggregate_overlaps if what.of_pieces else self._row_overlaps
        item_bytes = self.frame.itemsize * (self.copies(number) if what.of_pieces else 1)
        for overlap in overlaps[index]:
            width = self.width(number, overlap.aggregator)
            if not width:
                continue
            source, target = overlap.aggregator, overlap.updater
            if not what.to_updaters:
                source, target = target, source
            size = overlap.rows * width * item_bytes
            crosses = source != target
            # A device's own part is read, and written to rows that are made for it.
            work = CopyWork(size if crosses else 2 * size, overlap.rows, fresh=not crosses)
            steps.append(
                Step(
                    what.operation(number, index, overlap),
                    "transfer",
                    name if crosses else f"{name}, own part",
                    self._find_way(source, target),
                    work,
                    number,
                    index,
                    Counts((("all_to_all", size),)) if crosses else NOTHING,
                    access=Access((sources[index, source],), adds=(targets[index, target],)),
                )
            )
        return Collective(tuple(steps))

    def _find_way(self, source: int, target: int) -> Place:
        """Return the place of a transfer: a link, or a device's memory.

        On links a device sends to one device and receives from one device at a time.
        """
        if (source, target) not in self._ways:
            one, other = self.trainers[source], self.trainers[target]
            route = self.platform.route(one, other)
            ports = () if source == target else (f"{one.name}.out", f"{other.name}.in")
            place = Place(route.place, (*route.lanes, *ports), target, source)
            self._ways[source, target] = place
        return self._ways[source, target]

    # ------------------------------------------------------------------ the weights

    def _all_reduce(self) -> Iterator[Item]:
        """Yield the ring all-reduce of the gradients, and the update of every replica."""
        last, first = self.rounds[-1], self.trainers[self.shards.updaters[0]].name
        length = sum(layer.shape.parameters for layer in self.layers)
        for adds, pieces in ring_steps(self.shards.updaters, length):
            sums, steps = self._sums, []
            self._sums = {slot: Buffer("sums of the gradients") for slot in sums}
            for source, target, begin, end in pieces:
                route = self.frame.find_route(self.trainers[source], self.trainers[target])
                size = (end - begin) * self.frame.itemsize
                access = Access((sums[source], sums[target]), (self._sums[target],))
                steps.append(
                    Step(
                        ReduceSums(source, target, begin, end, adds),
                        "synchronize",
                        "all-reduce gradients",
                        route._replace(device=target, source=source),
                        CopyWork(size),
                        round=last,
                        counts=Counts((("all_reduce", size),)),
                        access=access,
                    )
                )
            yield Collective(tuple(steps))
        yield Step(
            UpdateModel(),
            "synchronize",
            "average and step",
            Place(first, (first,)),
            CopyWork(bytes=ADAM_ARRAYS * self.setting.parameter_bytes),
            round=last,
            access=Access(tuple(self._sums.values())),
        )


def ring_steps(
    workers: Sequence[int], length: int
) -> Iterator[tuple[bool, list[tuple[int, int, int, int]]]]:
    """Yield the 2 (m - 1) steps of a ring all-reduce of ``length`` elements over m workers.

    A step consists of a flag and the pieces that are sent, as (source, target, begin, end). The
    flag says whether a receiver adds the arriving piece to its own or replaces its own. Each worker
    sends one of m pieces to the next in the ring. The first m - 1 steps add up the sums, and the
    others distribute them.
    """
    m = len(workers)
    ranges = divide_evenly(length, m)
    for adds in (True, False):
        for turn in range(m - 1):
            pieces = [(i - turn + (0 if adds else 1)) % m for i in range(m)]
            yield (
                adds,
                [
                    (workers[i], workers[(i + 1) % m], *ranges[piece])
                    for i, piece in enumerate(pieces)
                ],
            )
