"""A first layer shared by columns: the bodies of the steps of ``lowering/stages/columns.py``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from gnnbench.lowering.stages.columns import (
    AggregateColumns,
    DifferentiateColumns,
    MoveProducts,
    MultiplyColumns,
    PickColumns,
    ReturnProductGradients,
    SumProducts,
    UpdateProduct,
    UpdateProductBackward,
)
from gnnbench.models import BoundBlock
from gnnbench.program.reader import Bodies
from gnnbench.run.base import Here
from gnnbench.run.features import feature_rows, pick_rows
from gnnbench.run.passes import AggregateTape, UpdateTape, run_update_backward
from gnnbench.run.propagation import Passes
from gnnbench.run.ranks import Transfer
from gnnbench.run.replicas import Replicas


class ColumnProducts:
    """Products of some columns of input rows with their rows of the first weight.

    The devices here have the columns ``ranges``, by device index, and are described or the host.
    ``place_of_weight`` is the position of the first weight among the model's parameters.
    """

    def __init__(
        self,
        here: Here,
        ranges: Mapping[int, tuple[int, int]],
        replicas: Replicas,
        passes: Passes,
    ) -> None:
        self._here, self._ranges, self._passes = here, ranges, passes
        self._first = first = replicas.master.stack[0]
        count = here.setting.dataset.graph.num_vertices
        rows = feature_rows(here.setting, np.arange(count), sparse=False)
        self._slices: dict[int, Tensor] = {}
        #: By device index, the rows of the first weight for a device's columns, int64.
        self._weight_rows: dict[int, Tensor] = {}
        matrices = first.aggregate_features // first.in_features
        for slot in ranges.keys() & here.slots:
            begin, end = ranges[slot]
            self._slices[slot] = rows[:, begin:end].contiguous()
            of_weight = [torch.arange(begin, end) + first.in_features * i for i in range(matrices)]
            self._weight_rows[slot] = torch.cat(of_weight)
        (self.place_of_weight,) = (
            place for place, each in enumerate(replicas.parameters) if each is first.product_weight
        )
        #: By the indices of the unit's and of the columns' device: the aggregate ``(D, k n)``
        #: of n columns, its product ``(D, w)``, and the gradient of the sum of products.
        self._aggregated: dict[tuple[int, int], Tensor] = {}
        self._parts: dict[tuple[int, int], Tensor] = {}
        self._returned: dict[tuple[int, int], Tensor] = {}
        #: By the unit's device index, the sum of its products.
        self._products: dict[int, Tensor] = {}
        self._bound: BoundBlock | None = None
        #: The gradient of the first weight, in the rows that belong to the devices here.
        self._of_weight: Tensor | None = None

    def list_bodies(self) -> Bodies:
        """Return the bodies of the steps of the first layer, by operation."""
        return {
            PickColumns: self._pick_columns,
            AggregateColumns: self._aggregate_columns,
            MultiplyColumns: self._multiply_columns,
            MoveProducts: Transfer(self._send_product, self._receive_product),
            SumProducts: self._sum_products,
            ReturnProductGradients: Transfer(self._send_gradient, self._receive_gradient),
            UpdateProduct: self._update_product,
            UpdateProductBackward: self._update_product_backward,
            DifferentiateColumns: self._differentiate_columns,
        }

    def replace_own(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return a round's gradients with the first weight's gradient, and forget the latter."""
        if self._of_weight is not None:
            gradients[self.place_of_weight] = self._of_weight
        self._of_weight = None
        self._returned.clear()
        return gradients

    def _pick_columns(self, operation: PickColumns) -> None:
        slot, block = operation
        if self._here.has(slot):
            threads = self._here.setting.workload.threads
            self._picked = pick_rows(self._slices[slot], block.src_ids, threads)

    def _aggregate_columns(self, operation: AggregateColumns) -> None:
        unit, slot, block = operation
        if self._bound is None or self._bound.block is not block:
            self._bound = self._passes.bind(slot, 0, block)
        with torch.no_grad():
            aggregated = self._first.aggregate(self._bound, self._picked)
        self._aggregated[unit, slot] = aggregated

    def _multiply_columns(self, operation: MultiplyColumns) -> None:
        unit, slot = operation
        weight = self._first.product_weight
        with torch.no_grad():
            part = self._aggregated[unit, slot] @ weight[self._weight_rows[slot]]
        self._parts[unit, slot] = part

    def _send_product(self, operation: MoveProducts) -> Tensor:
        return self._parts.pop((operation.unit, operation.slot))

    def _receive_product(self, part: Tensor, operation: MoveProducts) -> None:
        width = self._first.product_features
        self._parts[operation.unit, operation.slot] = part.view(-1, width)

    def _sum_products(self, operation: SumProducts) -> None:
        unit = operation.unit
        parts = (self._parts.pop((unit, slot)) for slot in self._ranges)
        self._products[unit] = reduce(torch.add, parts)

    def _update_product(self, operation: UpdateProduct) -> None:
        """Compute the first layer from the sum of the products on."""
        key, number, block = operation
        at_work, bound = self._passes.at_work[key[1]], self._passes.bind(key[1], number, block)
        leaf = self._products.pop(key[1]).requires_grad_()
        output = self._passes.stacks[key[1]][number].update_product(bound, leaf)
        at_work.bounds.append(bound)
        at_work.aggregates.append(AggregateTape(None, leaf))
        at_work.updates.append(UpdateTape(leaf, output))
        at_work.rows = output.detach()

    def _update_product_backward(self, operation: UpdateProductBackward) -> None:
        key = operation.unit
        at_work = self._passes.at_work[key[1]]
        of_product = run_update_backward(at_work.updates.pop(), at_work.rows)
        if of_product is None:
            raise RuntimeError("the first layer's product got no gradient")
        self._returned[key[1], key[1]] = of_product
        self._passes.end(key[1])

    def _send_gradient(self, operation: ReturnProductGradients) -> Tensor:
        return self._returned[operation.unit, operation.unit]

    def _receive_gradient(self, part: Tensor, operation: ReturnProductGradients) -> None:
        width = self._first.product_features
        self._returned[operation.unit, operation.slot] = part.view(-1, width)

    def _differentiate_columns(self, operation: DifferentiateColumns) -> None:
        """Add a device's part of the first weight's gradient from one unit's seeds."""
        unit, slot = operation
        aggregated = self._aggregated.pop((unit, slot))
        with torch.no_grad():
            if self._of_weight is None:
                self._of_weight = torch.zeros_like(self._first.product_weight)
            gradient = aggregated.T @ self._returned[unit, slot]
            self._of_weight[self._weight_rows[slot]] += gradient
