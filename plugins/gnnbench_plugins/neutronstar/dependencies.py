"""The choice of remote rows that a device computes itself: NeutronStar's Algorithm 4.

Layer l reads h^{l-1} of the in-neighbours of a device's vertices. The remote ones among them are
split in two. The device computes R^l itself (DepCache), with all missing dependencies, and reads
C^l from their owners (DepComm).
"""

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

#: The remote rows above the features that are computed: the cheaper ones, all, or none.
Split = Literal["auto", "cached", "communicated"]
Seconds = npt.NDArray[np.float64]
#: A set of more than one in this many vertices is found by marks instead of by sorting.
MARKED_SHARE: Bound[int] = 64


@dataclass(frozen=True, slots=True, eq=False)
class Subtree:
    """The missing dependencies of some rows.

    By layer, h^0 first, they are the vertices with rows that the device would have to compute, or,
    for h^0, to hold. They take ``seconds`` in an epoch.
    """

    rows: Sequence[IntArray]
    seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the choice, equal for all devices.

    ``keeps`` says whether features stay on a device after their first transfer; else they are
    transferred in every epoch. ``spare_bytes`` is a device's memory for remote rows, None for no
    bound.
    """

    split: Split
    keeps: bool
    spare_bytes: int | None


class Dependencies:
    """The remote rows that one device has, and how it gets them.

    Both masks are by layer, h^0 first, and vertex. ``present`` marks the rows that the device has
    when the next layer reads them, including its own. ``cached`` marks the remote rows that it
    computes, or, for h^0, keeps. ``spent_bytes`` is the memory of the cached rows.
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
        #: The remote vertices that the device's own vertices read.
        self.halo = read[~own[read]]

    def decide(self) -> None:
        """Divide the halo of every layer, from the first layer on."""
        for layer in range(len(self._layers)):
            self._divide(layer)

    # ------------------------------------------------------------------ a layer

    def _divide(self, layer: int) -> None:
        """Choose the rows of a layer to compute: the ones cheaper to compute than to read."""
        limits_s = self._price(layer)
        cheap = self._price_alone(layer, self.halo) < limits_s
        rows, limits_s = self.halo[cheap], limits_s[cheap]
        alike = layer == 0 or (layer == 1 and self._rules.keeps) or self._rules.split == "cached"
        if alike and self._rules.spare_bytes is None:
            # The costs of rows are independent here, and there is room for all.
            self._take(self._measure(layer, rows, np.inf))
        else:
            self._divide_in_turn(layer, dict(zip(rows.tolist(), limits_s.tolist(), strict=True)))
        self.present[layer][self.halo] = True

    def _divide_in_turn(self, layer: int, limits_s: Mapping[int, float]) -> None:
        """Choose the rows of a layer one by one.

        A row's cost falls as other rows bring in its dependencies, so it is measured again at its
        turn. Rows that cost too much at first come last.
        """
        at_first = {}
        for row, limit_s in limits_s.items():
            seconds = self._measure(layer, np.array([row]), limit_s).seconds
            at_first[row] = seconds if seconds < limit_s else np.inf
        for row in sorted(limits_s, key=at_first.__getitem__):
            subtree = self._measure(layer, np.array([row]), limits_s[row])
            if subtree.seconds < limits_s[row] and self._affords(subtree):
                self._take(subtree)

    def _price(self, layer: int) -> Seconds:
        """Return the limits below which rows of the halo are computed: the cost of reading them."""
        read_s: Seconds = self._prices.sent_s[layer, self._owner[self.halo]]
        if layer and self._rules.split != "auto":
            return np.full_like(read_s, np.inf if self._rules.split == "cached" else 0.0)
        return read_s

    def _price_alone(self, layer: int, rows: IntArray) -> Seconds:
        """Return the cost of rows of a layer without their dependencies."""
        if layer:
            edges_s = self._degrees[rows] * self._prices.edge_s[layer]
            return np.asarray(self._prices.vertex_s[layer] + edges_s, dtype=np.float64)
        read_s: Seconds = self._prices.sent_s[0, self._owner[rows]]
        return np.zeros_like(read_s) if self._rules.keeps else read_s

    def _measure(self, layer: int, rows: IntArray, limit_s: float) -> Subtree:
        """Return the missing dependencies of rows of a layer."""
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
        """Return the in-neighbours of vertices, each once, ascending."""
        starts, counts = self._graph.indptr[ids], self._degrees[ids]
        before = np.cumsum(counts) - counts
        places = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
        sources, num_vertices = self._graph.indices[places], self._graph.num_vertices
        # Marks take a pass over all vertices, which pays off for many sources.
        few = MARKED_SHARE * len(sources) < num_vertices
        found = np.unique(sources) if few else unique_ids(sources, num_vertices)
        return found.astype(np.int64)

    # ------------------------------------------------------------------ memory

    def _affords(self, subtree: Subtree) -> bool:
        spare = self._rules.spare_bytes
        return spare is None or self.spent_bytes + self.count_bytes(subtree) <= spare

    def count_bytes(self, subtree: Subtree) -> int:
        """Return the bytes of a subtree on a device.

        Features count if they stay. Each computed row counts its in-edges, 32 bits each, and its
        intermediates.
        """
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
