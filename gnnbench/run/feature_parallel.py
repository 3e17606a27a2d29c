"""What the steps of ``lowering/feature_parallel.py`` compute: products of some columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from gnnbench.lowering.feature_parallel import FeatureParallelLowering
from gnnbench.models import BoundBlock
from gnnbench.records import Block
from gnnbench.run.execute import Bodies
from gnnbench.run.features import feature_rows, pick_rows
from gnnbench.run.input_movement import UnitKey
from gnnbench.run.mini_batch import MiniBatchEngine, Propagation
from gnnbench.run.passes import AggregateTape, UpdateTape, run_update_backward
from gnnbench.run.ranks import Transfer


class FeatureParallelEngine(MiniBatchEngine):
    """Trains mini-batches with feature-parallel first layers; devices are described or the host."""

    lowers = FeatureParallelLowering
    _lowering: FeatureParallelLowering

    def _make_bodies(self) -> Bodies:
        return {
            **super()._make_bodies(),
            "pick columns": self._pick_columns,
            "aggregate columns": self._aggregate_columns,
            "multiply columns forward": self._multiply_columns,
            "exchange products": Transfer(self._send_product, self._receive_product),
            "sum products": self._sum_products,
            "exchange gradients": Transfer(self._send_gradient, self._receive_gradient),
            "update product forward": self._update_product,
            "update product backward": self._update_product_backward,
            "multiply columns backward": self._differentiate_columns,
        }

    def _place_features(self) -> None:
        count = self._setting.dataset.graph.num_vertices
        rows = feature_rows(self._setting, np.arange(count), sparse=False)
        self._slices: dict[int, Tensor] = {}
        #: Which rows of the first weight a device's columns are multiplied by, int64.
        self._weight_rows: dict[int, Tensor] = {}
        first = self.replicas.master.stack[0]
        matrices = first.aggregate_features // first.in_features
        for slot in self._lowering.columns.keys() & self._here:
            begin, end = self._lowering.columns[slot]
            self._slices[slot] = rows[:, begin:end].contiguous()
            ranges = [torch.arange(begin, end) + first.in_features * i for i in range(matrices)]
            self._weight_rows[slot] = torch.cat(ranges)
        #: Which of the model's parameters that weight is.
        (self._place_of_weight,) = self._apart = tuple(
            place
            for place, each in enumerate(self.replicas.parameters)
            if each is first.product_weight
        )
        #: Of the round that is trained on: by the slots of the unit and of the device that has the
        #: columns, what is aggregated, ``(D, k n)`` for n of them, and the product of that,
        #: ``(D, w)``; by the unit's slot, products by the slot they are of, then their sum; and by
        #: both slots the gradient of that sum, where it is.
        self._aggregated: dict[tuple[int, int], Tensor] = {}
        self._parts: dict[tuple[int, int], Tensor] = {}
        self._bound: BoundBlock | None = None
        self._products: dict[int, Tensor] = {}
        self._returned: dict[tuple[int, int], Tensor] = {}
        #: The gradient of the first weight: of the rows that belong to the devices here.
        self._of_weight: Tensor | None = None

    def _pick_columns(self, slot: int, block: Block) -> None:
        if self._has(slot):
            threads = self._setting.workload.threads
            self._picked = pick_rows(self._slices[slot], block.src_ids, threads)

    def _aggregate_columns(self, unit: int, slot: int, block: Block) -> None:
        if self._bound is None or self._bound.block is not block:
            self._bound = self._bind(slot, 0, block)
        with torch.no_grad():
            aggregated = self.replicas.master.stack[0].aggregate(self._bound, self._picked)
        self._aggregated[unit, slot] = aggregated

    def _multiply_columns(self, unit: int, slot: int) -> None:
        weight = self.replicas.master.stack[0].product_weight
        with torch.no_grad():
            part = self._aggregated[unit, slot] @ weight[self._weight_rows[slot]]
        self._parts[unit, slot] = part

    def _send_product(self, unit: int, slot: int) -> Tensor:
        return self._parts.pop((unit, slot))

    def _receive_product(self, part: Tensor, unit: int, slot: int) -> None:
        width = self.replicas.master.stack[0].product_features
        self._parts[unit, slot] = part.view(-1, width)

    def _sum_products(self, unit: int) -> None:
        parts = (self._parts.pop((unit, slot)) for slot in self._lowering.columns)
        self._products[unit] = reduce(torch.add, parts)

    def _update_product(self, key: UnitKey, number: int, block: Block) -> None:
        """The first layer from the sum of the products on."""
        at_work, bound = self._at_work[key[1]], self._bind(key[1], number, block)
        leaf = self._products.pop(key[1]).requires_grad_()
        output = self._stacks[key[1]][number].update_product(bound, leaf)
        at_work.bounds.append(bound)
        at_work.aggregates.append(AggregateTape(None, leaf))
        at_work.updates.append(UpdateTape(leaf, output))
        at_work.rows = output.detach()

    def _update_product_backward(self, key: UnitKey, number: int, block: Block) -> None:
        at_work = self._at_work[key[1]]
        of_product = run_update_backward(at_work.updates.pop(), at_work.rows)
        if of_product is None:
            raise RuntimeError("the first layer's product got no gradient")
        self._returned[key[1], key[1]] = of_product
        self._end(key[1])

    def _send_gradient(self, unit: int, slot: int) -> Tensor:
        return self._returned[unit, unit]

    def _receive_gradient(self, part: Tensor, unit: int, slot: int) -> None:
        width = self.replicas.master.stack[0].product_features
        self._returned[unit, slot] = part.view(-1, width)

    def _differentiate_columns(self, unit: int, slot: int) -> None:
        """A device's part of the gradient of the first weight, by one unit's seeds."""
        aggregated = self._aggregated.pop((unit, slot))
        with torch.no_grad():
            if self._of_weight is None:
                self._of_weight = torch.zeros_like(self.replicas.master.stack[0].product_weight)
            gradient = aggregated.T @ self._returned[unit, slot]
            self._of_weight[self._weight_rows[slot]] += gradient

    def _add_up(self, done: Sequence[Propagation]) -> list[Tensor]:
        """Those of the first weight's rows are where these rows are, and go nowhere."""
        totals = super()._add_up(done)
        if self._of_weight is not None:
            totals[self._place_of_weight] = self._of_weight
        self._of_weight = None
        self._returned.clear()
        return totals
