"""Which rows of others a device computes itself: NeutronStar's Algorithm 4.

Layer l reads h^{l-1} of the in-neighbours of a device's vertices. Of those that are others', R^l
are computed by the device itself (DepCache), with all that they depend on and it does not have, and
C^l are read of their owners (DepComm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import unique_ids
from gnnbench.parts import LayerShape
from gnnbench.records import BoolArray, Graph, IntArray
from gnnbench_plugins.neutronstar.prices import Prices

#: Which rows above the features are computed: those that are cheaper so, all, or none.
Split = Literal["auto", "cached", "communicated"]
Seconds = npt.NDArray[np.float64]
#: A set of so large a share of the vertices is found by marks instead of by sorting.
MARKED_SHARE: Bound[int] = 64


@dataclass(frozen=True, slots=True, eq=False)
class Subtree:
    """What a device lacks of all that some rows depend on: by layer, h^0 first, the vertices whose
    rows it would have to compute, or, of h^0, to hold. That takes ``seconds`` in an epoch."""

    rows: Sequence[IntArray]
    seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """What the choice goes by, the same for all devices.

    ``keeps`` says whether features stay on a device that has read them once; else they cross in
    every epoch. ``spare_bytes`` is what a device has for rows of others, None for no bound.
    """

    split: Split
    keeps: bool
    spare_bytes: int | None


class Dependencies:
    """The rows of others that one device has, and how.

    By layer, h^0 first, and vertex: ``present`` are the rows that the device has when the next
    layer reads them, its own among them, and ``cached`` those of others that it computes, or, of
    h^0, keeps. ``spent_bytes`` is what these take.
    """

    def __init__(
        self,
        graph: Graph,
        own: BoolArray,
        owner: IntArray,
        layers: Sequence[LayerShape],
        item: int,
        prices: Prices,
        rules: Rules,
    ) -> None:
        self._graph, self._degrees, self._owner = graph, graph.degrees, owner
        self._item, self._layers = item, layers
        self._prices, self._rules = prices, rules
        self.present = [own.copy() for _ in layers]
        self.cached = [np.zeros_like(own) for _ in layers]
        self.spent_bytes = 0
        read = self._find_neighbours(np.flatnonzero(own))
        #: What the device's own vertices read of others.
        self.halo = read[~own[read]]

    def decide(self) -> None:
        """Divide the halo of every layer, the first one's first."""
        for layer in range(len(self._layers)):
            self._divide(layer)

    # ------------------------------------------------------------------ a layer

    def _divide(self, layer: int) -> None:
        """Compute the rows of a layer that cost less so than to be read, the cheapest first, as
        long as there is room; read the others."""
        limits_s = self._price(layer)
        cheap = self._price_alone(layer, self.halo) < limits_s
        rows, limits_s = self.halo[cheap], limits_s[cheap]
        alike = layer == 0 or (layer == 1 and self._rules.keeps) or self._rules.split == "cached"
        if alike and self._rules.spare_bytes is None:
            # What one of them costs says nothing of another, and there is room for all.
            self._take(self._measure(layer, rows, np.inf))
        else:
            self._divide_in_turn(layer, dict(zip(rows.tolist(), limits_s.tolist(), strict=True)))
        self.present[layer][self.halo] = True

    def _divide_in_turn(self, layer: int, limits_s: Mapping[int, float]) -> None:
        """The same one by one. What a row costs falls as others bring in what it depends on, and so
        each is measured again when its turn comes; those that cost too much at first come last."""
        at_first = {}
        for row, limit_s in limits_s.items():
            seconds = self._measure(layer, np.array([row]), limit_s).seconds
            at_first[row] = seconds if seconds < limit_s else np.inf
        for row in sorted(limits_s, key=at_first.__getitem__):
            subtree = self._measure(layer, np.array([row]), limits_s[row])
            if subtree.seconds < limits_s[row] and self._affords(subtree):
                self._take(subtree)

    def _price(self, layer: int) -> Seconds:
        """What the rows of the halo may cost to be computed: less than to be read of their
        owners."""
        read_s: Seconds = self._prices.sent_s[layer, self._owner[self.halo]]
        if layer and self._rules.split != "auto":
            return np.full_like(read_s, np.inf if self._rules.split == "cached" else 0.0)
        return read_s

    def _price_alone(self, layer: int, rows: IntArray) -> Seconds:
        """What rows of a layer cost without all that they depend on."""
        if layer:
            edges_s = self._degrees[rows] * self._prices.edge_s[layer]
            return np.asarray(self._prices.vertex_s[layer] + edges_s, dtype=np.float64)
        read_s: Seconds = self._prices.sent_s[0, self._owner[rows]]
        return np.zeros_like(read_s) if self._rules.keeps else read_s

    def _measure(self, layer: int, rows: IntArray, limit_s: float) -> Subtree:
        """What rows of a layer lack of all that they depend on; as far down as it costs less than
        ``limit_s``."""
        found, seconds = list[IntArray](), 0.0
        for below in range(layer, -1, -1):
            new = rows[~self.present[below][rows]]
            found.append(new)
            seconds += float(self._price_alone(below, new).sum())
            if seconds >= limit_s:
                break
            if below:
                rows = np.union1d(new, self._find_neighbours(new))
        return Subtree(found[::-1], seconds)

    def _find_neighbours(self, ids: IntArray) -> IntArray:
        """The in-neighbours of vertices, each once, ascending."""
        starts, counts = self._graph.indptr[ids], self._degrees[ids]
        before = np.cumsum(counts) - counts
        places = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
        sources, num_vertices = self._graph.indices[places], self._graph.num_vertices
        # Marks take a pass over all vertices, which pays where many of them are asked about.
        few = MARKED_SHARE * len(sources) < num_vertices
        found = np.unique(sources) if few else unique_ids(sources, num_vertices)
        return found.astype(np.int64)

    # ------------------------------------------------------------------ memory

    def _affords(self, subtree: Subtree) -> bool:
        spare = self._rules.spare_bytes
        return spare is None or self.spent_bytes + self.count_bytes(subtree) <= spare

    def count_bytes(self, subtree: Subtree) -> int:
        """What a subtree takes on a device: features that stay there, and of every row that is
        computed its in-edges, 32 bits each, and what is made of it."""
        features, *computed = subtree.rows
        size = len(features) * self._layers[0].in_features * self._item if self._rules.keeps else 0
        for shape, ids in zip(self._layers, computed, strict=False):
            made = shape.aggregate_features + shape.hidden_features + shape.out_features
            size += 4 * (len(ids) + int(self._degrees[ids].sum()))
            size += len(ids) * made * self._item
        return size

    def _take(self, subtree: Subtree) -> None:
        self.spent_bytes += self.count_bytes(subtree)
        for layer, ids in enumerate(subtree.rows):
            self.present[layer][ids] = True
            if layer or self._rules.keeps:
                self.cached[layer][ids] = True
