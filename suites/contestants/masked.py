"""S-SpMM: a sum with a mask of wanted elements, against the whole sum."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from gnnbench.kernels import dispatch
from gnnbench.kernels.dispatch.aggregation import count_eighths
from gnnbench.records import BoolArray, FloatArray
from suites.contestants import Scope
from suites.contestants.aggregation import Product, matrix_of, settle, sum_ours
from suites.graphs import LENGTHY_GRAPHS
from suites.race import OURS, Case, Contestant, Target, check_close

WIDTHS = (128, 256)
#: float32 elements of a cache line.
LINE = 16


@dataclass(frozen=True, eq=False)
class MaskedProduct(Product):
    """A product and a mask that keeps half of its elements."""

    kind: str

    @cached_property
    def wanted(self) -> BoolArray:
        rows, rng = self.graph.num_vertices, np.random.default_rng(0)
        if self.kind == "elements":
            return rng.random((rows, self.width), dtype=np.float32) < 0.5
        if self.kind == "lines":
            lines = rng.random((rows, -(-self.width // LINE))) < 0.5
            return np.repeat(lines, LINE, axis=1)[:, : self.width].copy()
        return np.repeat(rng.random((rows, 1)) < 0.5, self.width, axis=1)

    @property
    def edges_read(self) -> int:
        """Edges of all rows except skipped ones, which have about half of the edges."""
        return self.graph.num_edges // (2 if self.kind == "rows" else 1)

    def check(self, result: FloatArray, ours: FloatArray) -> None:
        """Check that wanted elements are equal, and that ours are zero elsewhere."""
        check_close(result * self.wanted, ours)


def sum_masked(product: MaskedProduct) -> Contestant:
    matrix, h, threads = matrix_of(product.graph), product.h, torch.get_num_threads()
    mask = dispatch.pack_mask(product.wanted)

    def call(_: int) -> FloatArray:
        return dispatch.aggregate(matrix, h, mask=mask, threads=threads)

    settle(matrix, product.width, lambda: call(0), count_eighths(mask))
    return Contestant(call)


def sum_then_mask(product: MaskedProduct) -> Contestant:
    """Prepare our sum, followed by torch's multiplication in place."""
    whole = sum_ours(product)
    factors = torch.from_numpy(product.wanted).float()

    def call(turn: int) -> FloatArray:
        out: FloatArray = whole.call(turn)
        torch.from_numpy(out).mul_(factors)
        return out

    return Contestant(call)


CONTESTANTS: dict[str, Callable[[MaskedProduct], Contestant]] = {
    OURS: sum_masked,
    "whole sum": sum_ours,
    "sum, then mask": sum_then_mask,
}
#: A mask of single elements costs at most 3 %; a mask of lines or rows should save half.
FACTORS = {"elements": 1 / 1.03, "lines": 2.0, "rows": 2.0}


def race_cases(scope: Scope) -> Iterator[Case]:
    for name, graph in scope.graphs:
        for width in WIDTHS[:1] if scope.small else WIDTHS:
            for kind in ("elements", "lines", "rows"):
                product = MaskedProduct(graph, width, kind)
                yield Case(
                    "masked",
                    name,
                    f"width {width}, half of {kind}",
                    {who: partial(make, product) for who, make in CONTESTANTS.items()},
                    product.check,
                    (Target("whole sum", FACTORS.get(kind)), Target("sum, then mask")),
                    lengthy=name in LENGTHY_GRAPHS,
                    compulsory_bytes=product.compulsory_bytes,
                    gathered_bytes=product.gathered_bytes,
                )
