"""The rates of a kernel on a device: its sums over edges, its products, and its calls.

A sum takes a time for each gathered row and a time for each written row. Two blocks with an equal
number of edges, one with few edges to a destination and one with many, separate the two times. Both
depend on whether the rows are in a cache, hence two sizes of the source table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gnnbench.machines.caches import make_sweep
from gnnbench.machines.costs.operation import OperationKind
from gnnbench.machines.machine import Device, EdgeRates, LibraryRates, RateCurve, SumRates
from gnnbench.machines.timing import round_rate, time_runs, torch_threads
from gnnbench.parts import Adjacency, Kernel
from gnnbench.records import Block

WIDTHS = (4, 16, 64, 256, 1024)
#: Narrower sides of weights with ``INNER`` rows.
NARROW_SIDES = (4, 8, 16, 64, 256)
INNER = 256
#: Edges to a destination in the two blocks.
FEW, MANY = 4, 32
#: Bytes of a table that fits a last-level cache.
CACHED_BYTES = 2**22
#: Uncounted calls: a library may first try several algorithms for a sum, and keep the fastest.
WARMUPS = 6
#: Sums of rows, sums of rows with a weight for each edge, and the gradients of these weights.
SumKind = Literal["plain", "weighted", "dotted"]
#: The least share of a sum's time for each of its two parts, if noise hides one.
LEAST_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amounts of a measurement, so large that rates dominate and calls, measured apart, do not.

    A sum gathers ``picked_bytes`` of rows, but at most ``picked_edges``, from a table of
    ``uncached_bytes``, which no cache holds. A product has ``updated_rows``. The block that is
    bound repeatedly has ``bound_rows`` and ``bound_edges``.
    """

    picked_bytes: int
    picked_edges: int
    uncached_bytes: int
    updated_rows: int
    bound_rows: int
    bound_edges: int


ON_HOST = Amounts(2**24, 2**22, 2**27, 2**13, 2**14, 2**17)
ON_ACCELERATOR = Amounts(2**30, 2**24, 2**30, 2**17, 2**18, 2**22)


def draw_block(rows: int, degree: int, sources: int) -> Block:
    """Return a block with random sources; ``degree`` edges end at each of its ``rows``."""
    ends = np.random.default_rng(0).integers(0, sources, rows * degree, dtype=np.int32)
    bounds = np.arange(0, rows * degree + 1, degree, dtype=np.int64)
    return Block(np.arange(sources, dtype=np.int64), rows, bounds, ends)


@dataclass(frozen=True, slots=True)
class KernelProbe:
    """A probe of one kernel on the device of its tensors; a measurement takes ``each_s``."""

    kernel: Kernel
    device: Device
    each_s: float

    @property
    def place(self) -> torch.device:
        """The device in torch's terms."""
        return torch.device(self.device.torch_device)

    @property
    def on_host(self) -> bool:
        """Whether the device is a processor."""
        return self.place.type == "cpu"

    @property
    def amounts(self) -> Amounts:
        """The amounts to measure on this kind of device."""
        return ON_HOST if self.on_host else ON_ACCELERATOR

    def measure(self) -> LibraryRates:
        """Return the rates, with all cores and with one."""
        threads = self._count_threads()
        picked, cached, written = self._measure_curves(threads, "plain")
        weighted, weighted_cached = self._measure_slow("scalar", "weighted", threads)
        dotted, dotted_cached = self._measure_slow("dot", "dotted", threads)
        with torch_threads(1):
            bound, transposed = self._measure_binding()
        return LibraryRates(
            sums=SumRates(
                aggregate=picked,
                cached=cached,
                written=written,
                weighted=weighted,
                weighted_cached=weighted_cached,
                dotted=dotted,
                dotted_cached=dotted_cached,
            ),
            edges=EdgeRates(bound_edges_per_s=bound, transposed_edges_per_s=transposed),
        )

    def measure_update(self) -> RateCurve:
        """Return the FLOP/s of UPDATE's products in training, forward and for both gradients, with
        all cores and with one."""
        threads = self._count_threads()
        updates = [self._measure_products(count) for count in threads]
        return _join(NARROW_SIDES, updates[0], updates[-1])

    def _count_threads(self) -> list[int]:
        return sorted({self.device.cores, 1}, reverse=True) if self.on_host else [0]

    def _run(
        self, work: Callable[[], object], threads: int, *, sweeps: bool = False
    ) -> list[float]:
        """Return the seconds of runs, each with the caches of the run before or with swept
        caches."""
        before = make_sweep() if sweeps and self.on_host else None
        with torch.no_grad():
            return time_runs(work, self.each_s, self.place, threads, before)

    def _time(self, work: Callable[[], object], threads: int, *, sweeps: bool = False) -> float:
        """Return the seconds of the fastest run. Disturbances only ever add time, and callers
        subtract two such times."""
        return min(self._run(work, threads, sweeps=sweeps))

    # ------------------------------------------------------------------ sums over edges

    def _bind(self, block: Block) -> Adjacency:
        return self.kernel.adjacency(block, torch.float32, self.place)

    def _measure_slow(
        self, kind: OperationKind, sums: SumKind, threads: Sequence[int]
    ) -> tuple[RateCurve | None, RateCurve | None]:
        """Return the bytes/s gathered from memory and from a cache for a kind of operation without
        vector instructions. Return None if the library has them, since its plain sums' rates then
        apply."""
        if not (self.on_host and self.kernel.library.values_per_s(kind, 1)):
            return None, None
        picked, cached, _ = self._measure_curves(threads, sums)
        return picked, cached

    def _measure_curves(self, threads: Sequence[int], kind: SumKind) -> list[RateCurve]:
        """Return the bytes/s gathered from memory, gathered from a cache, and written, by width."""
        sums = [self._measure_sums(count, kind) for count in threads]
        return [
            _join(WIDTHS, together, alone)
            for together, alone in zip(sums[0], sums[-1], strict=True)
        ]

    def _measure_sums(
        self, threads: int, kind: SumKind
    ) -> tuple[list[float], list[float], list[float]]:
        picked, cached, written = [], [], []
        with torch_threads(threads or torch.get_num_threads()):
            for width in WIDTHS:
                uncached_bytes = self.amounts.uncached_bytes
                hit_s, row_s = self._split_sum(width, CACHED_BYTES, threads, kind)
                missed_s, _ = self._split_sum(width, uncached_bytes, threads, kind)
                size = 4.0 * width
                cached.append(size / hit_s)
                picked.append(size / max(missed_s, hit_s))
                written.append(size / row_s)
        return picked, cached, written

    def _split_sum(
        self, width: int, table_bytes: int, threads: int, kind: SumKind
    ) -> tuple[float, float]:
        """Return the seconds of a gathered row, and of a written one."""
        amounts = self.amounts
        edges = max(MANY, min(amounts.picked_edges, amounts.picked_bytes // (4 * width)))
        table = torch.ones(max(MANY, table_bytes // (4 * width)), width, device=self.place)
        sums = []
        for degree in (FEW, MANY):
            block = draw_block(edges // degree, degree, len(table))
            add_up = self._make_sum(block, table, kind)
            with torch.no_grad():
                for _ in range(WARMUPS):
                    add_up()
            taken_s = self._time(add_up, threads, sweeps=table_bytes > CACHED_BYTES)
            sums.append((degree * (edges // degree), edges // degree, taken_s))
        return split_time(sums[0], sums[1])

    def _make_sum(self, block: Block, table: Tensor, kind: SumKind) -> Callable[[], object]:
        """Return a sum over the block's edges, or the gradient of its weights."""
        bound = self._bind(block)
        if kind == "plain":
            return partial(bound.sum, table)
        weights = torch.ones(block.num_edges, device=self.place)
        if kind == "weighted":
            return partial(bound.sum, table, weights)
        with torch.enable_grad():
            out = bound.sum(table, weights.requires_grad_())
        gradient = torch.ones_like(out)
        return partial(torch.autograd.grad, out, weights, gradient, retain_graph=True)

    # ------------------------------------------------------------------ products and the rest

    def _make_product(self, rows: int, inner: int, outer: int) -> Callable[[], object]:
        """Return UPDATE with its backward pass: three products."""
        a, weight, gradient = (
            torch.rand(shape, device=self.place)
            for shape in ((rows, inner), (inner, outer), (rows, outer))
        )
        inputs = [each.requires_grad_() for each in (a, weight, torch.zeros(outer).to(a))]

        def train() -> None:
            with torch.enable_grad():
                out = self.kernel.linear(*inputs, relu=False)
            torch.autograd.grad(out, inputs, gradient)

        return train

    def _measure_products(self, threads: int) -> list[float]:
        """Return the FLOP/s by the narrower side of the weights."""
        rows = self.amounts.updated_rows
        with torch_threads(threads or torch.get_num_threads()):
            return [
                3
                * 2.0
                * rows
                * INNER
                * narrow
                / self._time(self._make_product(rows, INNER, narrow), threads)
                for narrow in NARROW_SIDES
            ]

    def _measure_binding(self) -> tuple[float, float]:
        """Return the edges/s of preparing a new block, for a sum and for a transposed sum. They
        follow from the extra time of the first sum over the block."""
        rows, edges = self.amounts.bound_rows, self.amounts.bound_edges
        block = draw_block(rows, edges // rows, rows)
        h = torch.rand(rows, 1, device=self.place)
        bound = self._bind(block)

        def bind_for(transposed: bool) -> None:
            fresh = self._bind(block)
            fresh.sum_transposed(h) if transposed else fresh.sum(h)

        again_s = self._time(lambda: bound.sum(h), 1)
        back_s = self._time(lambda: bound.sum_transposed(h), 1)
        first_s = self._time(lambda: bind_for(False), 1)
        first_back_s = self._time(lambda: bind_for(True), 1)
        created_s = self._time(lambda: self._bind(block), 1)
        return (
            round_rate(edges / max(first_s - again_s, LEAST_SHARE * first_s)),
            round_rate(edges / max(first_back_s - back_s - created_s, LEAST_SHARE * first_back_s)),
        )


def split_time(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float]:
    """Return the seconds of an edge and of a row, from two sums as (edges, rows, seconds). Each is
    at least its ``LEAST_SHARE`` of the sum with the most rows."""
    (edges, rows, taken_s), (more_edges, fewer_rows, less_s) = one, other
    determinant = edges * fewer_rows - more_edges * rows
    edge_s = (taken_s * fewer_rows - less_s * rows) / determinant
    row_s = (edges * less_s - more_edges * taken_s) / determinant
    if edge_s * edges < LEAST_SHARE * taken_s:
        edge_s = LEAST_SHARE * taken_s / edges
    if row_s * rows < LEAST_SHARE * taken_s:
        row_s = LEAST_SHARE * taken_s / rows
    return edge_s, row_s


def _join(widths: tuple[int, ...], together: list[float], alone: list[float]) -> RateCurve:
    """Return a curve of all cores, which are no slower than one alone, and of one core."""
    rates = [round_rate(max(pair)) for pair in zip(together, alone, strict=True)]
    return RateCurve(widths, tuple(rates), tuple(round_rate(rate) for rate in alone))
