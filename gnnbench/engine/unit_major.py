"""The mini-batch engine: all layers of a unit, then the next unit, round after round.

A round goes through HyScale-GNN's four stages (§III-B): sampling, feature loading, data transfer,
propagation; then the synchroniser averages gradients weighted by seeds, so that any split of a
round over trainers equals one large batch on one device. Which rounds may overlap follows from the
communication part's ``prefetch`` depth and stands in the spans' ``after``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.base import Engine
from gnnbench.engine.checkpoints import Checkpoints
from gnnbench.engine.machinery import (
    allocate_host_graph,
    allocate_model,
    compute_resource,
    feature_rows,
    stored_bytes,
)
from gnnbench.engine.movement import Buffers, MovementPlanner, SlotMovement
from gnnbench.engine.passes import (
    AggregateTape,
    UpdateTape,
    needs_aggregate_gradient,
    run_aggregate,
    run_aggregate_backward,
    run_update,
    run_update_backward,
    take_gradients,
    update_gemms,
)
from gnnbench.engine.recorder import Recorder
from gnnbench.models import BoundBlock
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.platforms.machine import Device
from gnnbench.records import (
    BatchProfile,
    EpochTrace,
    IntArray,
    Round,
    RoundTraffic,
    Share,
    StageTimes,
    Unit,
    Work,
)

#: How many rounds may be under way at once for each prefetch depth: as many as pipeline stages.
ROUNDS_UNDER_WAY = {0: 1, 1: 3, 2: 4}


#: The shares of a round and the seeds of each.
Handed = Sequence[tuple[Share, IntArray]]


@dataclass(slots=True)
class _Propagation:
    """What a trainer hands to the synchroniser when it is DONE."""

    seeds: int
    loss_sum: float
    gradients: list[Tensor]
    last_spans: tuple[int, ...]
    seconds: float


class UnitMajorEngine(Engine):
    """Trains on sampled mini-batches; see the module's docstring for what a round is."""

    def __init__(
        self,
        bundle: Bundle,
        setting: Setting,
        recorder: Recorder,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(bundle, setting, recorder, checkpoints)
        if not isinstance(bundle.sampler, MiniBatchSampler):
            raise TypeError("the unit-major engine takes mini-batch samplers")
        self._sampler = bundle.sampler
        self._resident = bundle.memory.vertex_data == "device"
        self._accelerator_slots = np.array(
            [s for s, device in enumerate(self._trainers) if device.name != self._host.name],
            dtype=np.int64,
        )

    def prepare(self) -> None:
        """Place what stays for the whole run, and let the placement plan its first split."""
        setting, ledger = self._setting, self.ledger
        allocate_host_graph(ledger, setting)
        for device in self._trainers:
            allocate_model(ledger, setting, device)
        self._features: dict[str, Tensor] = {}
        if self._resident:
            everything = np.arange(setting.dataset.graph.num_vertices)
            for device in self._trainers:
                size = setting.dataset.graph.num_vertices * setting.dataset.num_features
                ledger.allocate(device.name, "vertex features on the device", size * self._itemsize)
            rows = feature_rows(setting, everything, sparse=False)
            self._features = {d.name: rows.to(d.torch_device) for d in self._trainers}
        self._bundle.placement.prepare(setting, self._profile())
        # Owner of a vertex's transition row among the accelerators, where a communication shares.
        vertices = np.arange(setting.dataset.graph.num_vertices, dtype=np.int64)
        slots = self._accelerator_slots
        self._owner: IntArray = slots[vertices % len(slots)] if len(slots) else vertices * 0

    def _profile(self) -> list[BatchProfile]:
        """The design phase: mini-batches of a sixteenth of a round up to a whole one."""
        seeds = self._sampler.rounds(0)[0]
        sizes = sorted({max(1, len(seeds) // 2**k) for k in range(5)})
        profiles = []
        for size in sizes:
            blocks = self._sampler.sample(seeds[:size], 0, self._setting.workload.threads)
            unit = Unit(0, blocks)
            profiles.append(BatchProfile(size, unit.vertices, unit.edges))
        return profiles

    def run_epoch(self, epoch: int) -> EpochTrace:
        """One pass over the training vertices."""
        recorder = self._recorder
        recorder.start_epoch(epoch)
        losses: list[float] = []
        seeds_done = 0
        loss_sum = 0.0
        self._synchronised: list[tuple[int, ...]] = []
        self._transferred: tuple[int, ...] = ()
        self._previous: RoundTraffic | None = None
        self._buffers = Buffers()
        self._movements = MovementPlanner(
            self._setting.dataset.graph.num_vertices,
            shares_rows=self._bundle.communication.shares_rows,
        )
        with recorder.inside_part():
            rounds = self._sampler.rounds(epoch)
        for index, seeds in enumerate(rounds):
            recorder.round = index
            if self._checkpoints is not None:
                self._checkpoints.visit(self.replicas, recorder)
            loss = self._run_round(index, seeds, epoch)
            losses.append(loss / len(seeds))
            loss_sum += loss
            seeds_done += len(seeds)
        return recorder.end_epoch(loss_sum / seeds_done, losses)

    # ------------------------------------------------------------------ one round

    def _run_round(self, index: int, seeds: IntArray, epoch: int) -> float:
        placement = self._bundle.placement
        with self._recorder.inside_part():
            handed = placement.share_out(seeds)
            threads = placement.host_threads()
        prefetch = self._bundle.communication.prefetch
        under_way = ROUNDS_UNDER_WAY[prefetch]
        start = self._synchronised[index - under_way] if index >= under_way else ()

        self._check_shares(handed, seeds)
        handed = tuple((share, part) for share, part in handed if share.seeds)
        shares = [share for share, _ in handed]
        units, sampled, sample_s = self._sample(handed, epoch, threads.sample, start)
        round_ = Round(index, tuple(units))
        moves = self._plan_traffic(round_)
        rows, loaded, load_s = self._load(
            units, moves, threads.load, sampled, self._transferred if prefetch == 1 else ()
        )
        # Two buffers of input rows on a device: the one in use and the one being filled.
        buffers_free = self._synchronised[index - 2] if prefetch and index >= 2 else ()
        arrived, transfer_s = self._transfer(
            units, moves, rows, (*loaded, *buffers_free), buffers=2 if prefetch else 1
        )
        self._transferred = tuple(span for spans in arrived.values() for span in spans)

        done = []
        # A trainer that got no seeds was done at once; one that does not exist has no time.
        on_host = len(self._trainers) - len(self._accelerator_slots)
        train_cpu: float | None = 0.0 if on_host else None
        train_accelerator: float | None = 0.0 if len(self._accelerator_slots) else None
        before = self._synchronised[-1] if self._synchronised else ()
        for unit, share in zip(units, shares, strict=True):
            device = self._trainers[unit.slot]
            result = self._propagate(
                unit, share, device, rows.pop(unit.slot), (*arrived[unit.slot], *before)
            )
            done.append(result)
            if device.name == self._host.name:
                train_cpu = result.seconds
            else:
                train_accelerator = max(train_accelerator or 0.0, result.seconds)
        self._synchronise(done)
        times = StageTimes(
            sample_cpu=sample_s,
            load=load_s,
            transfer=transfer_s,
            train_cpu=train_cpu,
            train_accelerator=train_accelerator,
        )
        with self._recorder.inside_part():
            placement.observe(times)
        return sum(result.loss_sum for result in done)

    def _check_shares(self, handed: Handed, seeds: IntArray) -> None:
        given = np.concatenate([seeds[:0], *(part for _, part in handed)])
        fits = all(share.seeds == len(part) for share, part in handed)
        if not fits or not np.array_equal(np.sort(given), np.sort(seeds)):
            count = sum(share.seeds for share, _ in handed)
            raise ValueError(
                f"placement {self._bundle.placement.name!r} gave out {count} of {len(seeds)} "
                f"seeds; each must be in one share, and a share must count its own"
            )

    def _sample(
        self, handed: Handed, epoch: int, threads: int, after: tuple[int, ...]
    ) -> tuple[list[Unit], tuple[int, ...], float]:
        """One mini-batch for each share."""
        units, spans, seconds = [], [], 0.0
        for share, part in handed:
            with self._recorder.span(
                "sample",
                "sample",
                self._host.name,
                Work("sample", threads=threads),
                after=after,
                resources=("host.sample",),
            ) as span:
                blocks = self._sampler.sample(part, epoch, self._setting.workload.threads)
                unit = Unit(share.slot, blocks)
                span.work = Work("sample", edges=sum(unit.edges), rows=len(part), threads=threads)
            units.append(unit)
            spans.append(span.id)
            seconds += span.seconds
            self._recorder.count_traversed(sum(unit.edges), sum(unit.vertices))
        return units, tuple(spans), seconds

    def _plan_traffic(self, round_: Round) -> dict[int, SlotMovement]:
        """Where the accelerators' input rows come from; the CPU trainer reads host memory."""
        if self._resident:
            return {}
        visiting = tuple(u for u in round_.units if self._trainers[u.slot].name != self._host.name)
        round_ = Round(round_.index, visiting)
        previous = self._previous
        with self._recorder.inside_part():
            traffic = self._bundle.communication.plan(round_, previous, self._owner)
        self._previous = traffic
        return {move.slot: move for move in self._movements.plan(round_, traffic)}

    def _load(
        self,
        units: Sequence[Unit],
        moves: dict[int, SlotMovement],
        threads: int,
        sampled: tuple[int, ...],
        also_after: tuple[int, ...],
    ) -> tuple[dict[int, Tensor], tuple[int, ...], float]:
        """Gather X' for every unit from host memory (HyScale-GNN Equation 7)."""
        rows: dict[int, Tensor] = {}
        width = self._setting.dataset.num_features
        if self._resident:
            for unit in units:
                features = self._features[self._trainers[unit.slot].name]
                rows[unit.slot] = features[torch.from_numpy(unit.input_ids).to(features.device)]
            return rows, sampled, 0.0
        with self._recorder.span(
            "load",
            "load features",
            self._host.name,
            Work("copy", threads=threads),
            after=(*sampled, *also_after),
            resources=("host.load",),
        ) as span:
            count = 0
            for unit in units:
                move = moves.get(unit.slot)
                ids = unit.input_ids if move is None or move.direct else move.host_ids.numpy()
                rows[unit.slot] = feature_rows(self._setting, ids, sparse=self._sparse)
                count += len(ids)
            span.work = Work(
                "copy",
                rows=count,
                features=width,
                bytes=sum(stored_bytes(loaded) for loaded in rows.values()),
                threads=threads,
            )
        for unit in units:
            size = stored_bytes(rows[unit.slot])
            self.ledger.allocate(self._host.name, f"loaded features of slot {unit.slot}", size)
        return rows, (span.id,), span.seconds

    def _transfer(
        self,
        units: Sequence[Unit],
        moves: dict[int, SlotMovement],
        rows: dict[int, Tensor],
        after: tuple[int, ...],
        *,
        buffers: int,
    ) -> tuple[dict[int, tuple[int, ...]], float]:
        """Mini-batch topology and features to the accelerators (HyScale-GNN Equation 8)."""
        recorder = self._recorder
        width = self._setting.dataset.num_features
        row_bytes = width * self._itemsize
        arrived: dict[int, tuple[int, ...]] = {}
        longest_s = 0.0
        for unit in units:
            device = self._trainers[unit.slot]
            topology = sum(block.topology_bytes for block in unit.blocks)
            self.ledger.allocate(device.name, "mini-batch topology", topology)
            input_bytes = len(unit.input_ids) * row_bytes * buffers
            if self._sparse:
                input_bytes = stored_bytes(rows[unit.slot]) * buffers
            self.ledger.allocate(device.name, "mini-batch features", input_bytes)
            if device.name == self._host.name or self._resident:
                arrived[unit.slot] = after
                continue
            move = moves[unit.slot]
            torch_device = torch.device(device.torch_device)
            crossing = move.rows_from_host * row_bytes
            with recorder.transfer(
                "transfer",
                "host to device",
                self._platform.route(self._host, device),
                Work("copy", rows=move.rows_from_host, features=width, bytes=crossing + topology),
                after=after,
            ) as span:
                rows[unit.slot] = rows[unit.slot].to(torch_device)
            recorder.count_bytes("host_to_device", crossing + topology)
            recorder.count_bytes("reused", move.rows_reused * row_bytes)
            arrived[unit.slot] = (span.id,)
            longest_s = max(longest_s, span.seconds)
            if not move.direct:
                self._buffers.make_room(
                    move.slot, move.buffer_rows, width, self._dtype, torch_device
                )
                self._buffers.load(move, rows[unit.slot])
                size = self._buffers.size_bytes(move.slot)
                self.ledger.allocate(device.name, "neighbour rows", size)
        if self._bundle.communication.shares_rows:
            self._exchange(units, moves, rows, arrived, row_bytes)
        return arrived, longest_s

    def _exchange(
        self,
        units: Sequence[Unit],
        moves: dict[int, SlotMovement],
        rows: dict[int, Tensor],
        arrived: dict[int, tuple[int, ...]],
        row_bytes: int,
    ) -> None:
        """Rows that one accelerator brought in for another.

        A mini-batch has a copy of its rows, as the next one's may arrive while it is computed.
        """
        everyone = tuple(span for spans in arrived.values() for span in spans)
        for unit in units:
            move = moves.get(unit.slot)
            if move is None or move.direct:
                continue
            ready = everyone
            for pull in move.pulls:
                with self._exchange_rows(move.slot, pull, row_bytes, ready, push=False) as span:
                    self._buffers.pull(move, pull)
                ready = (*everyone, span.id)
            count = len(unit.input_ids)
            with self._recorder.span(
                "transfer",
                "assemble input rows",
                self._trainers[unit.slot].name,
                Work("copy", rows=count, bytes=count * row_bytes),
                after=ready,
            ) as span:
                rows[unit.slot] = self._buffers.assemble(move)
            arrived[unit.slot] = (span.id,)

    # ------------------------------------------------------------------ propagation

    def _propagate(
        self, unit: Unit, share: Share, device: Device, h: Tensor, after: tuple[int, ...]
    ) -> _Propagation:
        """Forward and backward of one trainer; the loss is a sum over its seeds."""
        recorder, ledger = self._recorder, self.ledger
        layers = self.replicas.on(device).stack
        torch_device = torch.device(device.torch_device)
        bounds = [
            BoundBlock(block, self._bundle.kernel, self._degrees, self._dtype, torch_device)
            for block in unit.blocks
        ]
        seconds = 0.0
        tapes: list[tuple[AggregateTape, UpdateTape]] = []
        with ledger.scope(device.name):
            for number, bound in enumerate(bounds):
                h, after, layer_s = self._forward_layer(
                    layer_index=number, bound=bound, device=device, share=share, h=h,
                    after=after, tapes=tapes,
                )  # fmt: skip
                seconds += layer_s
            gradient: Tensor | None
            with recorder.span(
                "update",
                "loss",
                device.name,
                Work(
                    "update",
                    rows=len(h),
                    features=h.shape[1],
                    macs=h.numel(),
                    threads=share.threads,
                ),
                after=after,
                resources=compute_resource(device, self._host, "update"),
                layer=len(layers),
            ) as span:
                labels = self._labels[torch.from_numpy(unit.output_ids)].to(torch_device)
                logits = h.detach().requires_grad_()
                loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
                torch.autograd.backward(loss)
                gradient = logits.grad
            after = (span.id,)
            seconds += span.seconds
            ledger.allocate(
                device.name, "logits and their gradient", 2 * logits.numel() * self._itemsize
            )
            for number in reversed(range(len(layers))):
                if gradient is None:
                    raise RuntimeError("a layer above the first returned no gradient")
                gradient, after, layer_s = self._backward_layer(
                    layer_index=number, bound=bounds[number], device=device, share=share,
                    gradient=gradient, after=after, tape=tapes.pop(),
                )  # fmt: skip
                seconds += layer_s
        ledger.free(device.name, "mini-batch topology", "mini-batch features")
        if not self._resident:
            ledger.free(self._host.name, f"loaded features of slot {unit.slot}")
        recorder.count_work(
            device.name,
            float(
                sum(
                    b.num_edges * layer.in_features
                    for b, layer in zip(unit.blocks, layers, strict=True)
                )
                + sum(
                    b.num_dst * layer.macs_per_row
                    for b, layer in zip(unit.blocks, layers, strict=True)
                )
            ),
        )
        gradients = [g.to("cpu") for g in take_gradients(layers)]
        return _Propagation(len(labels), float(loss.detach()), gradients, after, seconds)

    def _forward_layer(
        self,
        *,
        layer_index: int,
        bound: BoundBlock,
        device: Device,
        share: Share,
        h: Tensor,
        after: tuple[int, ...],
        tapes: list[tuple[AggregateTape, UpdateTape]],
    ) -> tuple[Tensor, tuple[int, ...], float]:
        layer = self.replicas.on(device).stack[layer_index]
        first = layer_index == 0
        block = bound.block
        self.ledger.allocate(
            device.name,
            f"activations of layer {layer_index + 1}",
            block.num_dst * (layer.aggregate_features + layer.out_features) * self._itemsize,
        )
        with self._recorder.span(
            "aggregate",
            "aggregate forward",
            device.name,
            _with_threads(layer.aggregate_work(block, self._itemsize), share),
            after=after,
            resources=compute_resource(device, self._host, "aggregate"),
            layer=layer_index,
        ) as aggregate:
            tape = run_aggregate(layer, bound, h, first=first)
        with self._recorder.span(
            "update",
            "update forward",
            device.name,
            _with_threads(layer.update_work(block.num_dst, self._itemsize), share),
            after=after if device.pipelined else (aggregate.id,),
            resources=compute_resource(device, self._host, "update"),
            layer=layer_index,
        ) as update:
            needs = needs_aggregate_gradient(layer, first=first)
            updated = run_update(layer, bound, tape.output, needs_input_gradient=needs)
        tapes.append((tape, updated))
        return (
            updated.output.detach(),
            (aggregate.id, update.id) if device.pipelined else (update.id,),
            _combine(device, aggregate.seconds, update.seconds),
        )

    def _backward_layer(
        self,
        *,
        layer_index: int,
        bound: BoundBlock,
        device: Device,
        share: Share,
        gradient: Tensor,
        after: tuple[int, ...],
        tape: tuple[AggregateTape, UpdateTape],
    ) -> tuple[Tensor | None, tuple[int, ...], float]:
        layer = self.replicas.on(device).stack[layer_index]
        first = layer_index == 0
        block = bound.block
        gemms = update_gemms(layer, first=first)
        self.ledger.allocate(
            device.name,
            "gradients in flight",
            (
                block.num_dst * layer.aggregate_features
                + (0 if first else block.num_src * layer.in_features)
            )
            * self._itemsize,
        )
        with self._recorder.span(
            "update",
            "update backward",
            device.name,
            _with_threads(layer.update_work(block.num_dst, self._itemsize, gemms), share),
            after=after,
            resources=compute_resource(device, self._host, "update"),
            layer=layer_index,
        ) as update:
            below = run_update_backward(tape[1], gradient)
        if below is None:
            return None, (update.id,), update.seconds
        with self._recorder.span(
            "aggregate",
            "aggregate backward",
            device.name,
            _with_threads(layer.aggregate_work(block, self._itemsize), share),
            after=after if device.pipelined else (update.id,),
            resources=compute_resource(device, self._host, "aggregate"),
            layer=layer_index,
        ) as aggregate:
            source = run_aggregate_backward(layer, bound, tape[0], below, first=first)
        return (
            source,
            (aggregate.id, update.id) if device.pipelined else (aggregate.id,),
            _combine(device, aggregate.seconds, update.seconds),
        )

    def _synchronise(self, done: Sequence[_Propagation]) -> None:
        """Average the gradients weighted by seeds and update every trainer's model.

        The synchroniser on the host gathers every accelerator's gradients over its link, averages,
        and sends the average back (HyScale-GNN Equation 13); the round ends when all have it.
        """
        finished = tuple(span for result in done for span in result.last_spans)
        total = sum(result.seeds for result in done)
        size = self._setting.parameter_bytes
        alone = len(self._trainers) == 1
        gathered = () if alone else self._exchange_gradients("gather gradients", finished)
        with self._recorder.span(
            "synchronize",
            "average and step",
            (self._trainers[0] if alone else self._host).name,
            Work("copy", bytes=len(done) * size, rows=size // self._itemsize),
            after=gathered or finished,
            resources=("host.synchronise",),
        ) as step:
            # Each trainer's loss was a sum: dividing by all seeds weights it by its own.
            self.replicas.step(
                [
                    torch.stack(parts).sum(dim=0) / total
                    for parts in zip(*(result.gradients for result in done), strict=True)
                ]
            )
        scattered = () if alone else self._exchange_gradients("scatter gradients", (step.id,))
        self._synchronised.append(scattered or (step.id,))

    def _exchange_gradients(
        self, label: Literal["gather gradients", "scatter gradients"], after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """One model's worth of gradients between each accelerator and the host."""
        spans = []
        for slot in self._accelerator_slots:
            device = self._trainers[slot]
            ends = (device, self._host) if label == "gather gradients" else (self._host, device)
            with self._recorder.transfer(
                "synchronize",
                label,
                self._platform.route(*ends),
                Work("copy", bytes=self._setting.parameter_bytes),
                after=after,
            ) as span:
                pass
            self._recorder.count_bytes("all_reduce", self._setting.parameter_bytes)
            spans.append(span.id)
        return tuple(spans)


def _with_threads(work: Work, share: Share) -> Work:
    return replace(work, threads=share.threads)


def _combine(device: Device, aggregate_s: float, update_s: float) -> float:
    """HyScale-GNN Equation 10's operator: max where the two are pipelined, else their sum."""
    return max(aggregate_s, update_s) if device.pipelined else aggregate_s + update_s
