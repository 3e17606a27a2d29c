"""What the steps of ``lowering/feature_parallel.py`` compute: products of some columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gnnbench.lowering.feature_parallel import FeatureParallelLowering
from gnnbench.models import BoundBlock
from gnnbench.records import Block
from gnnbench.run.features import feature_rows
from gnnbench.run.mini_batch import MiniBatchEngine, UnitKey
from gnnbench.run.passes import AggregateTape, UpdateTape, run_update_backward


class FeatureParallelEngine(MiniBatchEngine):
    """Trains mini-batches with feature-parallel first layers; devices are described or the host."""

    lowers = FeatureParallelLowering
    _lowering: FeatureParallelLowering

    def _make_bodies(self) -> dict[str, Callable[..., None]]:
        return {
            **super()._make_bodies(),
            "pick columns": self._pick_columns,
            "aggregate columns": self._aggregate_columns,
            "multiply columns forward": self._multiply_columns,
            "sum products": self._sum_products,
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
        for slot, (begin, end) in self._lowering.columns.items():
            self._slices[slot] = rows[:, begin:end].contiguous()
            ranges = [torch.arange(begin, end) + first.in_features * i for i in range(matrices)]
            self._weight_rows[slot] = torch.cat(ranges)
        #: Of the round that is trained on: by the slots of the unit and of the device that has the
        #: columns, what is aggregated, ``(D, k n)`` for n of them; by the unit's slot, the products
        #: ``(D, w)``, then their sum, and its gradient.
        self._aggregated: dict[tuple[int, int], Tensor] = {}
        self._parts: dict[int, list[Tensor]] = {}
        self._bound: BoundBlock | None = None
        self._products: dict[int, Tensor] = {}

    def _pick_columns(self, slot: int, block: Block) -> None:
        self._picked = self._slices[slot][torch.from_numpy(block.src_ids)]

    def _aggregate_columns(self, unit: int, slot: int, block: Block) -> None:
        if self._bound is None or self._bound.block is not block:
            self._bound = self._bind(slot, block)
        with torch.no_grad():
            aggregated = self.replicas.master.stack[0].aggregate(self._bound, self._picked)
        self._aggregated[unit, slot] = aggregated

    def _multiply_columns(self, unit: int, slot: int) -> None:
        weight = self.replicas.master.stack[0].product_weight
        with torch.no_grad():
            part = self._aggregated[unit, slot] @ weight[self._weight_rows[slot]]
        self._parts.setdefault(unit, []).append(part)

    def _sum_products(self, unit: int) -> None:
        self._products[unit] = torch.stack(self._parts.pop(unit)).sum(dim=0)

    def _update_product(self, key: UnitKey, number: int, block: Block) -> None:
        """The first layer from the sum of the products on."""
        at_work, bound = self._at_work[key[1]], self._bind(key[1], block)
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
        self._products[key[1]] = of_product
        self._end(key[1])

    def _differentiate_columns(self, unit: int, slot: int) -> None:
        """A device's part of the gradient of the first weight, by one unit's seeds."""
        first = self.replicas.master.stack[0]
        place = next(i for i, p in enumerate(first.parameters()) if p is first.product_weight)
        aggregated, of_product = self._aggregated.pop((unit, slot)), self._products[unit]
        with torch.no_grad():
            gradients = self._at_work[unit].gradients
            gradients[place][self._weight_rows[slot]] = aggregated.T @ of_product
