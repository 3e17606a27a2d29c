"""A first layer that reads products of features on disk instead of the features.

If AGGREGATE treats every column alike and UPDATE begins with a product, A (X W) equals (A X) W up
to rounding. X W is narrower, and is made in one pass over the file, in its order. Block by block,
each page of features would be read once for every block that has a row on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from gnnbench.models import BoundBlock, Layer
from gnnbench.parts import Setting
from gnnbench.run.features import FILLED_BYTES, mapped_features


def multiplies_first(setting: Setting, layer: Layer, least_bytes: int) -> bool:
    """Return whether evaluation multiplies first.

    It does for features on disk, of more than ``least_bytes``, if the weight makes their rows
    narrower.
    """
    features = mapped_features(setting)
    return (
        features is not None
        and features.nbytes > least_bytes
        and layer.featurewise
        and 0 < _count_parts(layer) * layer.product_features < layer.in_features
    )


class MultipliedFirst:
    """A replacement of a layer, with the layer's parameters.

    Its input rows are the features times each part of the weight, side by side. There is one part
    for the rows that AGGREGATE returns. There are two if AGGREGATE returns a vertex's own row
    beside another row.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._parts = _count_parts(layer)
        self._width = layer.product_features
        self.in_features = self._parts * self._width
        self.out_features = layer.out_features
        self.shape = dataclasses.replace(
            layer.shape,
            in_features=self.in_features,
            aggregate_features=self._parts * self.in_features,
        )

    def multiply(self, setting: Setting, out: Tensor, drop_pages: Callable[[], None]) -> None:
        """Write the products of all features to ``out``, ``(V, in_features)``.

        ``drop_pages`` is called after every piece.
        """
        features, dtype = setting.dataset.features, out.dtype
        weight = torch.cat(self._layer.product_weight.chunk(self._parts), dim=1)
        step = max(1, FILLED_BYTES // (weight.shape[0] * dtype.itemsize))
        for begin in range(0, len(out), step):
            rows = torch.from_numpy(features[begin : begin + step]).to(dtype)
            torch.mm(rows, weight, out=out[begin : begin + step])
            drop_pages()

    def aggregate(self, bound: BoundBlock, rows: Tensor) -> Tensor:
        """Return AGGREGATE of products, ``(S, in_features)``."""
        return self._layer.aggregate(bound, rows)

    def update(self, bound: BoundBlock, a: Tensor) -> Tensor:
        """Return UPDATE without its first product.

        Each part of AGGREGATE's result has one column block of products that belongs to it.
        """
        own = [
            part[:, place * self._width : (place + 1) * self._width]
            for place, part in enumerate(a.chunk(self._parts, dim=1))
        ]
        return self._layer.update_product(bound, torch.stack(own).sum(dim=0))


def _count_parts(layer: Layer) -> int:
    return layer.aggregate_features // layer.in_features
