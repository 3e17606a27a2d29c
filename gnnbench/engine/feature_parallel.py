"""Mini-batches whose first layer is shared out by features, and the others by seeds: P3.

Every device has a range of the columns of all feature rows, and the weights' rows for it, so that
no feature ever crosses. A round's blocks of the first layer go to all devices. Each aggregates its
columns for all mini-batches and multiplies them by its rows of W (*push*); these products, of the
hidden width, go to the device that trains the mini-batch, which adds them and goes on from there by
itself (*pull*). Backward, the gradient of the sum goes back to all devices, each of which has the
gradient of its rows of W from it: they are averaged nowhere.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gnnbench.engine.machinery import feature_rows
from gnnbench.engine.passes import AggregateTape, UpdateTape, run_update_backward
from gnnbench.engine.recorder import Opened, Track
from gnnbench.engine.unit_major import (
    PUSH,
    PUSH_BACK,
    TRANSFER,
    LayerPass,
    LayerPlan,
    RoundUnderWay,
    UnitMajorEngine,
)
from gnnbench.lowering.memory import compute_resource
from gnnbench.models import BoundBlock, Layer
from gnnbench.platforms.machine import Device
from gnnbench.records import Share, Unit, Work


@dataclass(slots=True)
class _FirstLayer:
    """The first layer of the round that is trained on.

    ``aggregates`` are by the slots of the unit and of the device that has the columns, ``(D, k n)``
    for n of them; by the unit's slot, ``products`` ``(D, w)`` are summed over devices, and ready
    after a span, as are their ``gradients``.
    """

    aggregates: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    products: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    gradients: dict[int, tuple[Tensor, int]] = field(default_factory=dict)


class FeatureParallelEngine(UnitMajorEngine):
    """Trains mini-batches with feature-parallel first layers; devices are described or the host."""

    def _place_features(self) -> None:
        setting = self._setting
        width, count = setting.dataset.num_features, setting.dataset.graph.num_vertices
        shards = self._bundle.placement.shard_aggregate(count, width, self._platform)
        self._columns = {shard.slot: shard.features for shard in shards}
        rows = feature_rows(setting, np.arange(count), sparse=False)
        self._slices: dict[int, Tensor] = {}
        for slot, (begin, end) in self._columns.items():
            size = count * (end - begin) * self._itemsize
            self.ledger.allocate(self._trainers[slot].name, "columns of all features", size)
            self._slices[slot] = rows[:, begin:end].contiguous()

    @property
    def _first(self) -> Layer:
        return self.replicas.master.stack[0]

    @property
    def _product_bytes(self) -> int:
        """Of one row of what is pushed."""
        return self._first.product_features * self._itemsize

    @cached_property
    def _averaged_bytes(self) -> int:
        return super()._averaged_bytes - self._first.product_weight.numel() * self._itemsize

    def _weight_rows(self, slot: int) -> Tensor:
        """Which rows of the first weight a device's columns are multiplied by, int64."""
        begin, end = self._columns[slot]
        width = self._first.in_features
        matrices = self._first.aggregate_features // width
        return torch.cat([torch.arange(begin, end) + width * i for i in range(matrices)])

    # ------------------------------------------------------------------ data transfer

    def _transfer(self, round_: RoundUnderWay) -> None:
        """The units' blocks to the devices that train them, and the first ones to all."""
        for slot, device in enumerate(self._trainers):
            unit = round_.unit_of(slot)
            size = sum(u.blocks[0].topology_bytes for u in round_.units if u.slot != slot)
            self.ledger.allocate(device.name, _first_blocks(round_), size)
            if unit is not None:
                size += unit.topology_bytes
                held = self.ledger.hold(device.name, {round_.topology: unit.topology_bytes})
                round_.keep(slot, held)
                round_.rows[slot] = torch.empty(0)
            round_.arrived[slot] = round_.sampled
            if device.name == self._host.name:
                continue
            with (
                self._recorder.stage(round_.index, (TRANSFER, slot)),
                self._recorder.transfer(
                    "transfer",
                    "host to device",
                    self._platform.route(self._host, device),
                    Work("copy", bytes=size),
                    after=round_.sampled,
                ) as span,
            ):
                self._recorder.count_bytes("host_to_device", size)
            round_.arrived[slot] = (span.id,)
            round_.transfer_s = max(round_.transfer_s, span.seconds)

    # ------------------------------------------------------------------ push, forward

    def _begin(self, round_: RoundUnderWay) -> None:
        super()._begin(round_)
        self._pushed = _FirstLayer()
        with self._recorder.stage(round_.index, (PUSH, 0)), torch.no_grad():
            for unit in round_.units:
                self._push(round_, unit)

    def _push(self, round_: RoundUnderWay, unit: Unit) -> None:
        """The first layer's product for one unit, of all devices' columns."""
        block, kernel = unit.blocks[0], self._bundle.kernel
        bound = BoundBlock(block, kernel, self._degrees, self._dtype, torch.device("cpu"))
        owner = self._trainers[unit.slot]
        self.ledger.allocate(
            owner.name, "partial products", len(self._columns) * block.num_dst * self._product_bytes
        )
        parts, ready = [], []
        for slot in self._columns:
            part, computed = self._push_columns(round_, unit, bound, slot)
            parts.append(part)
            ready.append(self._cross(slot, unit.slot, block.num_dst, computed))
        with self._recorder.span(
            "update",
            "sum of partial products",
            owner.name,
            Work(
                "copy", rows=block.num_dst, bytes=len(parts) * block.num_dst * self._product_bytes
            ),
            after=ready,
            resources=compute_resource(owner, self._host, "update"),
            layer=0,
        ) as span:
            product = torch.stack(parts).sum(dim=0)
        self.ledger.free(owner.name, "partial products")
        self._pushed.products[unit.slot] = product, span.id

    def _push_columns(
        self, round_: RoundUnderWay, unit: Unit, bound: BoundBlock, slot: int
    ) -> tuple[Tensor, int]:
        """A device's part of a unit's product, ``(D, w)``, and the span after which it is there."""
        layer, device, block = self._first, self._trainers[slot], bound.block
        begin, end = self._columns[slot]
        before = self._synchronised[-1] if self._synchronised else ()
        with self._recorder.inside_part():
            # Where kernels could read them in place.
            rows = self._slices[slot][torch.from_numpy(block.src_ids)]
        work = layer.aggregate_work(block, self._itemsize)
        with self._recorder.span(
            "aggregate",
            "aggregate forward, some columns",
            device.name,
            work._replace(features=end - begin),
            after=(*round_.arrived[slot], *before),
            resources=compute_resource(device, self._host, "aggregate"),
            layer=0,
        ) as aggregate:
            aggregated = layer.aggregate(bound, rows)
        self.ledger.grow(device.name, _aggregates(round_), aggregated.numel() * self._itemsize)
        self._pushed.aggregates[unit.slot, slot] = aggregated
        with self._product_span("forward", block.num_dst, slot, (aggregate.id,)) as update:
            part = aggregated @ layer.product_weight[self._weight_rows(slot)]
        self._recorder.count_work(
            device.name, float(block.num_edges * (end - begin) + update.work.macs)
        )
        return part, update.id

    def _product_span(
        self, way: str, rows: int, slot: int, after: tuple[int, ...]
    ) -> AbstractContextManager[Opened]:
        """A span for a product with a device's rows of W, or for their gradient."""
        device, width = self._trainers[slot], self._first.product_features
        return self._recorder.span(
            "update",
            f"update {way}, some columns",
            device.name,
            Work(
                "update",
                rows=rows,
                features=width,
                macs=rows * len(self._weight_rows(slot)) * width,
                itemsize=self._itemsize,
            ),
            after=after,
            resources=compute_resource(device, self._host, "update"),
            layer=0,
        )

    def _cross(self, source: int, target: int, rows: int, after: int) -> int:
        """Rows of products, or of their gradients, between two devices; after which span they are
        there."""
        if source == target:
            return after
        size = rows * self._product_bytes
        with self._recorder.transfer(
            "transfer",
            "all-to-all of partial products",
            self._platform.route(self._trainers[source], self._trainers[target]),
            Work("copy", rows=rows, features=self._first.product_features, bytes=size),
            after=(after,),
            layer=0,
        ) as span:
            self._recorder.count_bytes("all_to_all", size)
        return span.id

    # ------------------------------------------------------------------ pull

    def _plan_layers(self, device: Device) -> tuple[LayerPlan, ...]:
        """The first layer is the sum of the products and what follows; every device has a part of
        its arithmetic, which is counted where it is done."""
        first, *others = super()._plan_layers(device)
        width = first.layer.product_features
        first = replace(
            first,
            activation_bytes=(width + first.layer.out_features) * self._itemsize,
            gradient_bytes=width * self._itemsize,
            edge_work=0,
            row_work=0,
        )
        return (first, *others)

    def _forward_layer(
        self,
        track: Track,
        each: LayerPass,
        share: Share,
        h: Tensor,
        after: tuple[int, ...],
        tapes: list[tuple[AggregateTape, UpdateTape]],
    ) -> tuple[Tensor, tuple[int, ...], float]:
        """From the sum of the products on, in the first layer; the others are the unit's own."""
        if not each.plan.first:
            return super()._forward_layer(track, each, share, h, after, tapes)
        product, pushed = self._pushed.products.pop(share.slot)
        rows = each.bound.block.num_dst
        with self._rest_span("forward", rows, share, (*after, pushed)) as span:
            leaf = product.requires_grad_()
            output = each.plan.layer.update_product(each.bound, leaf)
        tapes.append((AggregateTape(None, product), UpdateTape(leaf, output)))
        return output.detach(), (span.id,), span.seconds

    def _backward_layer(
        self,
        track: Track,
        each: LayerPass,
        share: Share,
        gradient: Tensor,
        after: tuple[int, ...],
        tape: tuple[AggregateTape, UpdateTape],
    ) -> tuple[Tensor | None, tuple[int, ...], float]:
        """Down to the sum of the products, whose gradient all devices need."""
        if not each.plan.first:
            return super()._backward_layer(track, each, share, gradient, after, tape)
        rows = each.bound.block.num_dst
        with self._rest_span("backward", rows, share, after, gemms=2) as span:
            of_product = run_update_backward(tape[1], gradient)
        if of_product is None:
            raise RuntimeError("the first layer's product got no gradient")
        self._pushed.gradients[share.slot] = of_product, span.id
        return None, (span.id,), span.seconds

    def _rest_span(
        self,
        way: str,
        rows: int,
        share: Share,
        after: tuple[int, ...],
        gemms: int = 1,
    ) -> AbstractContextManager[Opened]:
        """A span for what UPDATE of the first layer has besides the product."""
        layer, device = self._first, self._trainers[share.slot]
        macs = layer.macs_per_row - layer.product_weight.numel()
        return self._recorder.span(
            "update",
            f"update {way}",
            device.name,
            layer.update_work(rows, self._itemsize, threads=share.threads)._replace(
                macs=rows * macs * gemms
            ),
            after=after,
            resources=compute_resource(device, self._host, "update"),
            layer=0,
        )

    # ------------------------------------------------------------------ push, backward

    def _synchronise(self, round_: RoundUnderWay) -> None:
        with self._recorder.stage(round_.index, (PUSH_BACK, 0)), torch.no_grad():
            for unit in round_.units:
                self._push_back(round_, unit)
        for slot, device in enumerate(self._trainers):
            self.ledger.free(device.name, _first_blocks(round_))
            if slot in self._columns:
                self.ledger.free(device.name, _aggregates(round_))
        super()._synchronise(round_)

    def _push_back(self, round_: RoundUnderWay, unit: Unit) -> None:
        """The gradient of the first weight by one unit's seeds, on all devices."""
        of_product, ready = self._pushed.gradients.pop(unit.slot)
        weight, rows = self._first.product_weight, unit.blocks[0].num_dst
        done = round_.done[unit.slot]
        place = next(i for i, p in enumerate(self._first.parameters()) if p is weight)
        spans = []
        for slot in self._columns:
            there = self._cross(unit.slot, slot, rows, ready)
            with self._product_span("backward", rows, slot, (there,)) as span:
                aggregated = self._pushed.aggregates.pop((unit.slot, slot))
                done.gradients[place][self._weight_rows(slot)] = aggregated.T @ of_product
            spans.append(span.id)
        done.last_spans = (*done.last_spans, *spans)


def _first_blocks(round_: RoundUnderWay) -> str:
    """What a device's memory holds of the mini-batches that others train."""
    return f"first blocks of other mini-batches, round {round_.index}"


def _aggregates(round_: RoundUnderWay) -> str:
    """What it keeps of its own columns until the gradient comes."""
    return f"aggregates of some columns, round {round_.index}"
