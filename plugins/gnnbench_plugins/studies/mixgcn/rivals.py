"""The rivals of MixGCN's sparse accelerator computing Z = A H ⊙ M, cycle by cycle.

Their papers are known here from their abstracts and from what others say of them: what follows from
neither is marked *assumed*. Their memory is that of ``gnnbench_plugins.mixgcn.machines``.

**HyGCN** (Yan et al., HPCA 2020): cores of 16 SIMD lanes share the features of every edge, so that
all of them are busy whatever the degrees; an edge takes f / 16 core-cycles, rounded up. It goes
through a tile's sources window by window; a window slides to the first row that has an edge,
shrinks to the last, and all rows between are loaded. As it is published features are not sliced
(GNNerator, Stevens et al. 2021, names feature blocking as what it adds), so that wide rows make
small tiles; ``sliced`` gives it the SPU's slices and tiles. *Assumed*: windows
of ``window_rows`` = 1, the best that sliding and shrinking can come to, exactly the rows that are
read (``ANY_ROWS`` is the other end, half the node buffer); pipelining with the combination engine,
which the comparison leaves out, takes nothing.

**AWB-GCN** (Geng et al., MICRO 2020): a column of the output at a time; each non-zero of the
adjacency is one unit's one-cycle task, and belongs to the unit of its row, row r to unit r mod
16,384 (*assumed*). Distribution smoothing shares a unit's tasks evenly with those up to 2 hops
away; remote switching then halves the difference between the busiest and the idlest sixteenth of
the units after every column, and evil rows are divisible (numbers *assumed*). The autotuner keeps
the best distribution it has seen. Columns of a tile's sources are streamed densely. *Assumed*: as
many columns at a time as lead to the fewest bytes ("matrix blocking").

Neither rival knows the output mask: both compute and write everything, and whoever reads the
outputs applies it at no cost.

**CPU.** No cycles: HyScale-GNN's Equation 11, a row for every edge over the memory's bandwidth, and
the adjacency, the outputs, and a pass over these for the mask; the processor's stated power,
without its memory's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from gnnbench.constants import Bound, Constant
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.kernels.dispatch.spmm import count_edges, cut_chunks
from gnnbench.machines.machine import Device
from gnnbench.records import IntArray
from gnnbench_plugins.mixgcn.machines import (
    EDGE_BYTES,
    FLOAT_BYTES,
    Machine,
    Simulation,
    Steps,
    choose_slice,
    count_adjacency,
    count_row_bytes,
    count_tile_edges,
    divide,
    list_tiles,
    order_steps,
    plan_slice,
)

#: Columns after which AWB-GCN's distribution is taken as converged.
TUNED_COLUMNS: Annotated[int, Constant("", "assumed", "AWB-GCN states no number")] = 32
#: HyGCN's windows where they are as tall as its buffer takes.
ANY_ROWS: Bound[int] = 2**31 - 1
#: AWB-GCN's busiest and idlest units that exchange work after a column: one in so many of each.
SWITCHED_SHARE: Annotated[int, Constant("", "assumed", "AWB-GCN states no number")] = 16


@dataclass(frozen=True, slots=True)
class HyGcn(Machine):
    """HyGCN's aggregation engine with the SPU's units, SRAM and bandwidth.

    It has the SPU's slices of features unless ``sliced`` is False.
    """

    name: str = "HyGCN"
    clock_hz: Annotated[int, Constant("Hz", "quoted", "HyGCN: 1 GHz")] = 10**9
    cores: Annotated[int, Constant("", "assumed", "the SPU's, for an equal comparison")] = 1024
    simd_lanes: Annotated[int, Constant("", "assumed", "the SPU's, for an equal comparison")] = 16
    window_rows: int = 1
    sliced: bool = True

    @property
    def units(self) -> int:
        return self.cores * self.simd_lanes

    def share_units(self, divisor: int) -> HyGcn:
        return replace(self, cores=divide(self.cores, divisor))

    def plan(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Steps:
        whole = plan_slice(width, self.sram)
        plan = choose_slice(matrix, width, self.sram) if self.sliced else whole
        window_rows = min(self.window_rows, plan.chunk_rows)
        chunks = cut_chunks(matrix, plan.tile_rows, plan.chunk_rows, window_rows=window_rows)
        edges, segments = count_edges(matrix, chunks)
        starts = np.arange(0, width, plan.features)
        widths = np.minimum(plan.features, width - starts)
        order = order_steps(chunks, len(starts))
        rows = list_tiles(matrix.num_dst, plan.tile_rows)[1]
        adjacency = count_adjacency(rows[chunks.tile_of], edges, segments)
        stays = EDGE_BYTES * count_tile_edges(matrix, plan.tile_rows) <= self.sram.index_bytes // 2
        once = (order.slice > 0) & stays[order.tile]
        row_bytes = np.array([count_row_bytes(int(features)) for features in widths])
        passes = -(-widths // self.simd_lanes)
        core_cycles = np.append(edges, 0)[order.chunk] * passes[order.slice]
        return Steps(
            matrix.num_edges * width,
            {
                "features": np.append(chunks.rows, 0)[order.chunk] * row_bytes[order.slice],
                "adjacency": np.where(once, 0, np.append(adjacency, 0)[order.chunk]),
            },
            -(-core_cycles // self.cores),
            FLOAT_BYTES * widths[order.slice] * rows[order.tile] * order.closes,
        )


@dataclass(frozen=True, slots=True)
class AwbGcn(Machine):
    """AWB-GCN's column-wise product with the SPU's units, SRAM and bandwidth.

    The published machine streams all sources of a tile. A ``tiled`` machine loads the SPU's rows,
    in the SPU's slices and tiles; only the balance of columns is AWB-GCN's.
    """

    name: str = "AWB-GCN"
    clock_hz: Annotated[int, Constant("Hz", "quoted", "AWB-GCN: 330 MHz")] = 330 * 10**6
    elements: Annotated[int, Constant("", "assumed", "the SPU's, for an equal comparison")] = 16_384
    hops: int = 2
    tiled: bool = True

    @property
    def units(self) -> int:
        return self.elements

    def share_units(self, divisor: int) -> AwbGcn:
        return replace(self, elements=divide(self.elements, divisor))

    def plan(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Steps:
        return self._plan_tiles(matrix, width) if self.tiled else self._plan_streams(matrix, width)

    def _plan_tiles(self, matrix: SparseMatrix, width: int) -> Steps:
        """Plan the SPU's tiles; a tile's cycles go to its steps in proportion to their edges."""
        plan = choose_slice(matrix, width, self.sram)
        like = HyGcn(sram=self.sram).plan(matrix, width)
        chunks = cut_chunks(matrix, plan.tile_rows, plan.chunk_rows, window_rows=1)
        edges = count_edges(matrix, chunks)[0]
        starts = np.arange(0, width, plan.features)
        order = order_steps(chunks, len(starts))
        first, rows = list_tiles(matrix.num_dst, plan.tile_rows)
        degrees = np.diff(matrix.indptr)
        cycles = np.array(
            [
                np.add.reduceat(
                    tune_columns(degrees[v : v + count], self.elements, self.hops, width), starts
                )
                for v, count in zip(first.tolist(), rows.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        in_tile = np.maximum(count_tile_edges(matrix, plan.tile_rows), 1)[order.tile]
        share = np.append(edges, 0)[order.chunk]
        spent = -(-cycles[order.tile, order.slice] * share // in_tile)
        return Steps(like.adds, like.loads, spent, like.writes)

    def _plan_streams(self, matrix: SparseMatrix, width: int) -> Steps:
        """Plan columns of all sources for each tile."""
        columns = self._choose_columns(matrix, width)
        tile_rows = self._tile_rows(columns)
        blocks = np.diff(np.append(np.arange(0, width, columns), width))
        first, rows = list_tiles(matrix.num_dst, tile_rows)
        edges = count_tile_edges(matrix, tile_rows)
        # By tile and block of columns.
        adjacency = count_adjacency(np.array(matrix.num_src), edges, edges)[:, None]
        features = np.where(edges > 0, FLOAT_BYTES * matrix.num_src, 0)[:, None] * blocks
        again = np.repeat(adjacency, len(blocks), axis=1)
        again[:, 1:][(2 * adjacency <= self.sram.index_bytes)[:, 0]] = 0
        starts, degrees = np.arange(0, width, columns), np.diff(matrix.indptr)
        cycles = np.array(
            [
                np.add.reduceat(
                    tune_columns(degrees[v : v + count], self.elements, self.hops, width), starts
                )
                for v, count in zip(first.tolist(), rows.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        parts = self._count_parts(features, adjacency).ravel()
        writes = np.zeros(int(parts.sum()), dtype=np.int64)
        writes[np.cumsum(parts) - 1] = FLOAT_BYTES * (rows[:, None] * blocks).ravel()
        return Steps(
            matrix.num_edges * width,
            {
                "features": share_evenly(features.ravel(), parts),
                "adjacency": share_evenly(again.ravel(), parts),
            },
            share_evenly(cycles.ravel(), parts),
            writes,
        )

    def _tile_rows(self, columns: int) -> int:
        return max(1, self.sram.output_bytes // 2 // (FLOAT_BYTES * columns))

    def _count_parts(self, feature_bytes: IntArray, adjacency_bytes: IntArray) -> IntArray:
        """Return the steps of each block: as many as its streams fill half buffers, at least 1."""
        parts: IntArray = np.maximum(
            -(-2 * feature_bytes // self.sram.node_bytes),
            -(-2 * adjacency_bytes // self.sram.index_bytes),
        )
        return np.maximum(parts, 1)

    def _choose_columns(self, matrix: SparseMatrix, width: int) -> int:
        """Choose the columns at a time, a power of two, for the fewest bytes."""

        def count_bytes(columns: int) -> int:
            edge_bytes = EDGE_BYTES * count_tile_edges(matrix, self._tile_rows(columns))
            again = int(edge_bytes[2 * edge_bytes > self.sram.index_bytes].sum())
            streamed = len(edge_bytes) * matrix.num_src * FLOAT_BYTES * width
            return streamed + int(edge_bytes.sum()) + (-(-width // columns) - 1) * again

        return min((1 << power for power in range(width.bit_length())), key=count_bytes)


def share_evenly(totals: IntArray, parts: IntArray) -> IntArray:
    """Cut each total into whole ``parts`` that differ by one at most, one total after another."""
    ends = np.cumsum(parts)
    place = np.arange(int(parts.sum()), dtype=np.int64) - np.repeat(ends - parts, parts)
    total, count = np.repeat(totals, parts), np.repeat(parts, parts)
    shares: IntArray = (place + 1) * total // count - place * total // count
    return shares


def tune_columns(degrees: IntArray, elements: int, hops: int, columns: int) -> IntArray:
    """Return the cycles of each column of a tile with these degrees, while AWB-GCN rebalances.

    Row r belongs to unit r mod ``elements``; units stand in a ring. A column takes as long as the
    busiest unit once each has shared its tasks evenly with those up to ``hops`` away. Then the
    busiest sixteenth of the units gives half of the difference to the idlest, the busiest to the
    idlest first. The best distribution seen is the one that is used.
    """
    units = np.arange(len(degrees)) % elements
    loads = np.bincount(units, degrees, minlength=elements).astype(np.float64)
    switched = min(elements // 2, max(1, elements // SWITCHED_SHARE))
    hops = min(hops, (elements - 1) // 2)
    cycles = np.empty(columns, dtype=np.int64)
    for column in range(min(columns, TUNED_COLUMNS)):
        # Halves of whole numbers: what rounding leaves above one is no cycle.
        taken = int(np.ceil(smooth(loads, hops).max() - 1e-6))
        cycles[column:] = taken if column == 0 else min(taken, cycles[column - 1])
        order = np.argsort(loads, kind="stable")
        idle, busy = order[:switched], order[::-1][:switched]
        loads[idle] = loads[busy] = (loads[idle] + loads[busy]) / 2
    return cycles


def smooth(loads: npt.NDArray[np.float64], hops: int) -> npt.NDArray[np.float64]:
    """Return the load of each unit of a ring if all share evenly with those ``hops`` away."""
    ring = np.concatenate((loads[len(loads) - hops :], loads, loads[:hops]))
    total = np.concatenate(([0.0], np.cumsum(ring)))
    reach = 2 * hops + 1
    done: npt.NDArray[np.float64] = (total[reach:] - total[:-reach]) / reach
    return done


@dataclass(frozen=True, slots=True)
class Cpu:
    """A described processor. ``device`` must state its power."""

    device: Device
    name: str = "CPU"

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        """Compute A H ⊙ M in two passes. Raises ``ValueError`` without the processor's power."""
        device = self.device
        if device.hardware.power_w is None:
            raise ValueError(f"{device.model} has no stated power; add power to its platform file.")
        outputs = matrix.num_dst * width * FLOAT_BYTES
        kinds = {
            "features": matrix.num_edges * width * FLOAT_BYTES,
            "adjacency": EDGE_BYTES * matrix.num_edges + 8 * (matrix.num_dst + 1),
            "mask": 0 if mask is None else mask.nbytes + outputs,
            "outputs": outputs if mask is None else 2 * outputs,
        }
        adds = matrix.num_edges * width
        seconds = max(
            sum(kinds.values()) / device.hardware.memory_bandwidth_bytes_per_s,
            2 * adds / device.hardware.flops_per_s,
        )
        capacity = device.hardware.flops_per_s / 2 * seconds
        return Simulation(seconds, adds, capacity, kinds, device.hardware.power_w * seconds)
