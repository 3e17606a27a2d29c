"""MixGCN's sparse accelerator and its rivals computing Z = A H ⊙ M, cycle by cycle.

Section 4.4.1 gives all three accelerators 16,384 units, 100 MB of SRAM and 1,024 GB/s, and each its
own clock. How the SPU works, rule by rule, stands in ``gnnbench.kernels.reference.spmm``. This
module adds memory to it, and has the rivals, whose papers are known here from their abstracts and
from what others say of them: what follows from neither is marked *assumed*.

**Memory** (all accelerators). HBM serves one transfer after the other at its full bandwidth, in
whole granules of 32 bytes for rows picked one by one (*assumed*: half a 64-byte HBM2 burst). The
100 MB are split as the SPU's (section 4.1: 32 MB node features, 32 MB outputs, 32 MB adjacency, 4
MB mask) in the rivals too (*assumed*). Every buffer is a double buffer: half of it is filled while
the other half is read, so a step's rows may be loaded as soon as the step before the last is
computed, and a tile's outputs are written behind it (``overlap_steps``). The adjacency is streamed,
but stays for all slices of a tile where the tile's fits in half its buffer. An edge is 4 bytes;
pointers are 4 bytes a row, or 8 for each row that has edges in the step where that is less.

**SPU.** Loads exactly the rows that a tile reads; reads the mask's bits; writes wanted values only,
since their reader has the bitmap (*assumed*). Tiles, slices of features and their order are chosen
by :func:`choose_slice` for the fewest bytes, by degrees alone: neither the mask nor a rate changes
them, so that more bandwidth, a faster clock or fewer wanted outputs are never slower. Within a
tile: slice by slice, all chunks of sources; outputs leave once, adjacency comes once a slice.

**HyGCN** (Yan et al., HPCA 2020): cores of 16 SIMD lanes share the features of every edge, so that
all of them are busy whatever the degrees; an edge takes f / 16 core-cycles, rounded up. It goes
through a tile's sources window by window; a window slides to the first row that has an edge,
shrinks to the last, and all rows between are loaded. Features are not sliced (GNNerator, Stevens et
al. 2021, names feature blocking as what it adds), so wide rows make small tiles. *Assumed*: windows
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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.kernels.dispatch.spmm import (
    count_edges,
    count_reads,
    count_steps,
    count_wanted,
    cut_chunks,
    overlap_steps,
)
from gnnbench.kernels.reference.spmm import WORD_FLOATS, Chunks, ReductionEngine
from gnnbench.platforms.machine import Device
from gnnbench.records import BoolArray, IntArray

#: What HBM moves at least, bytes.
GRANULE_BYTES = 32
#: Bytes of a feature, of an edge's source and of a row pointer.
FLOAT_BYTES = EDGE_BYTES = POINTER_BYTES = 4
#: Energy of a bit from or to HBM, as HyGCN's authors take it from O'Connor (2014).
HBM_J_PER_BIT = 7e-12
MB = 2**20
#: Columns after which AWB-GCN's distribution is taken as converged.
TUNED_COLUMNS = 32
#: HyGCN's windows where they are as tall as its buffer takes.
ANY_ROWS = 2**31 - 1
#: AWB-GCN's busiest and idlest units that exchange work after a column: one in so many of each.
SWITCHED_SHARE = 16


@dataclass(frozen=True, slots=True)
class Sram:
    """The buffers on the chip, both halves of each (section 4.1)."""

    node_bytes: int = 32 * MB
    output_bytes: int = 32 * MB
    index_bytes: int = 32 * MB
    mask_bytes: int = 4 * MB


@dataclass(frozen=True, slots=True)
class Simulation:
    """A product on a machine.

    ``adds`` are the additions it made, an edge's every wanted feature one; ``capacity`` those that
    its adders could have made in the time. ``bytes`` cross the memory, by kind.
    """

    seconds: float
    adds: int
    capacity: float
    bytes: Mapping[str, int]
    energy_j: float

    @property
    def occupancy(self) -> float:
        """The share of the adders' cycles that are additions."""
        return self.adds / self.capacity if self.capacity else 0.0

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes.values())


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The steps as they follow each other: tile by tile, slice by slice, chunk by chunk.

    Int64 and bool, one a step. ``chunk`` is -1 where a tile has no edges, and nothing but zeros to
    write. ``opens`` and ``closes`` mark a slice's first and last step in its tile.
    """

    tile: IntArray
    slice: IntArray
    chunk: IntArray
    opens: BoolArray
    closes: BoolArray


def order_steps(chunks: Chunks, num_slices: int) -> Order:
    """All steps of a product in ``num_slices`` slices."""
    held = np.diff(chunks.first)
    counts = np.maximum(held, 1)
    tile = np.repeat(np.arange(len(held)), counts * num_slices)
    before = np.cumsum(counts * num_slices) - counts * num_slices
    slice_, place = np.divmod(np.arange(len(tile)) - before[tile], counts[tile])
    chunk = np.where(held[tile] > 0, chunks.first[tile] + place, -1)
    return Order(tile, slice_, chunk, place == 0, place == counts[tile] - 1)


@dataclass(frozen=True, slots=True)
class Machine(ABC):
    """An accelerator of some clock on a memory of some bandwidth."""

    name: str
    clock_hz: int
    power_w: float
    bandwidth_bytes_per_s: int = 1024 * 10**9
    sram: Sram = field(default_factory=Sram)

    @property
    @abstractmethod
    def units(self) -> int:
        """Additions a cycle."""

    @abstractmethod
    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        """A H for an H of ``width`` float32 features, ⊙ M where the machine knows masks.

        The sources of each row must ascend. ``mask`` is that of the kernel ``aggregate``.
        """

    def scale(self, divisor: int) -> Machine:
        """The machine with one in ``divisor`` of everything but its clock.

        On a graph with one in ``divisor`` of the vertices, of the same degrees, it has as many
        tiles, as much reuse and the same time as the whole machine has on the whole graph.
        Raises ``ValueError`` where something does not divide.
        """
        sram = self.sram
        sizes = (sram.node_bytes, sram.output_bytes, sram.index_bytes, sram.mask_bytes)
        memory = replace(
            self,
            power_w=self.power_w / divisor,
            bandwidth_bytes_per_s=divide(self.bandwidth_bytes_per_s, divisor),
            sram=Sram(*(divide(size, divisor) for size in sizes)),
        )
        return memory.share_units(divisor)

    @abstractmethod
    def share_units(self, divisor: int) -> Machine:
        """One in ``divisor`` of the units and of what feeds them, on the same memory."""

    def simulate(
        self,
        adds: int,
        loads: Mapping[str, IntArray],
        compute_cycles: IntArray,
        writes: IntArray,
        last_cycles: int = 0,
    ) -> Simulation:
        """Steps of so many loaded bytes of each kind, cycles, and written bytes.

        Times are whole numbers of a share of a cycle, in which bytes and cycles both have one.
        """
        rate = Fraction(self.clock_hz, self.bandwidth_bytes_per_s)
        loaded: IntArray = np.sum(list(loads.values()), axis=0, dtype=np.int64)
        end = overlap_steps(loaded, compute_cycles, writes, rate.numerator, rate.denominator)
        ticks = end + last_cycles * rate.denominator
        seconds = float(Fraction(ticks, rate.denominator * self.clock_hz))
        kinds = {kind: int(values.sum()) for kind, values in loads.items()}
        kinds["outputs"] = int(writes.sum())
        energy_j = self.power_w * seconds + 8 * HBM_J_PER_BIT * sum(kinds.values())
        return Simulation(seconds, adds, self.units * self.clock_hz * seconds, kinds, energy_j)


def divide(size: int, divisor: int) -> int:
    """A whole share of a machine's size; ``ValueError`` where it is none."""
    if size % divisor:
        raise ValueError(f"{size} of a machine cannot be divided by {divisor}; use another scale.")
    return size // divisor


def count_row_bytes(features: int) -> int:
    """A row of so many features, in whole granules."""
    return -(-features * FLOAT_BYTES // GRANULE_BYTES) * GRANULE_BYTES


def count_adjacency(rows: IntArray, edges: IntArray, segments: IntArray) -> IntArray:
    """Bytes of steps of so many edges, in ``segments`` of the ``rows`` of their tiles."""
    pointers = np.minimum(POINTER_BYTES * (rows + 1), 2 * POINTER_BYTES * segments)
    total: IntArray = EDGE_BYTES * edges + pointers
    return total


def list_tiles(num_dst: int, tile_rows: int) -> tuple[IntArray, IntArray]:
    """The first row of each tile, and how many rows it has; int64."""
    first = np.arange(0, num_dst, tile_rows, dtype=np.int64)
    return first, np.diff(np.append(first, num_dst))


def count_tile_edges(matrix: SparseMatrix, tile_rows: int) -> IntArray:
    first, rows = list_tiles(matrix.num_dst, tile_rows)
    edges: IntArray = matrix.indptr[first + rows] - matrix.indptr[first]
    return edges


# --------------------------------------------------------------------------- SPU


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """Features of a slice, destinations of a tile, and source rows of a chunk."""

    features: int
    tile_rows: int
    chunk_rows: int


def plan_slice(features: int, sram: Sram) -> SlicePlan:
    """What half of each buffer holds, of slices of so many features; at least a row."""
    tile_rows = sram.output_bytes // 2 // (FLOAT_BYTES * features)
    chunk_rows = sram.node_bytes // 2 // count_row_bytes(features)
    return SlicePlan(features, max(1, tile_rows), max(1, chunk_rows))


def choose_slice(matrix: SparseMatrix, width: int, sram: Sram) -> SlicePlan:
    """The slices that are expected to cross HBM in the fewest bytes.

    Narrow slices make tiles of many destinations, which share the rows they read, and take the
    adjacency from HBM again for each slice. The rows read are those expected of sources whose
    edges are spread evenly over the tiles.
    """
    words = -(-width // WORD_FLOATS)
    candidates = {min(width, WORD_FLOATS * -(-words // count)) for count in range(1, words + 1)}
    candidates.add(min(width, GRANULE_BYTES // FLOAT_BYTES))
    degrees = np.bincount(count_reads(matrix))

    def expect_bytes(features: int) -> float:
        plan = plan_slice(features, sram)
        slices = -(-width // features)
        tiles = -(-matrix.num_dst // plan.tile_rows)
        read = 1 - (1 - 1 / max(1, tiles)) ** np.arange(len(degrees))
        rows = tiles * float((degrees * read).sum())
        edge_bytes = EDGE_BYTES * count_tile_edges(matrix, plan.tile_rows)
        again = edge_bytes[edge_bytes > sram.index_bytes // 2].sum()
        adjacency = int(edge_bytes.sum()) + (slices - 1) * int(again)
        return slices * rows * count_row_bytes(features) + adjacency

    # Of equals the narrowest: the more steps, the more of loading and computing overlap.
    return plan_slice(min(sorted(candidates), key=expect_bytes), sram)


@dataclass(frozen=True, slots=True)
class Spu(Machine):
    """MixGCN's accelerator for S-SpMM.

    ``decoded_edges`` leave the index decoder in a cycle, as many as the distribution network takes
    of the narrowest rows; ``latency_cycles`` is the way through network and adders, once a product
    (both assumed).
    """

    name: str = "SPU"
    clock_hz: int = 500 * 10**6
    power_w: float = 38.96
    engine: ReductionEngine = field(default_factory=lambda: ReductionEngine(1024, 16, 2, 16, 2048))
    decoded_edges: int = 2048
    latency_cycles: int = 16

    @property
    def units(self) -> int:
        return self.engine.lanes * self.engine.lane_adders

    def share_units(self, divisor: int) -> Spu:
        engine = self.engine
        lanes, banks = divide(engine.lanes, divisor), divide(engine.banks, divisor)
        return replace(
            self,
            engine=replace(engine, lanes=lanes, banks=banks),
            decoded_edges=divide(self.decoded_edges, divisor),
        )

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        plan = choose_slice(matrix, width, self.sram)
        chunks = cut_chunks(matrix, plan.tile_rows, plan.chunk_rows)
        wanted = count_wanted(mask, matrix.num_dst, width, plan.features)
        steps = count_steps(matrix, chunks, wanted, plan.features, self.engine)
        order = order_steps(chunks, wanted.shape[1])
        first, rows = list_tiles(matrix.num_dst, plan.tile_rows)
        starts = np.arange(0, width, plan.features)
        widths = np.minimum(plan.features, width - starts)
        row_bytes = np.array([count_row_bytes(int(features)) for features in widths])

        # A tile without edges has no chunk: -1 reads the zero at the end.
        loaded = np.append(steps.loaded_rows, 0)[order.chunk] * row_bytes[order.slice]
        adjacency = count_adjacency(rows[chunks.tile_of], steps.edges, steps.segments)
        stays = EDGE_BYTES * count_tile_edges(matrix, plan.tile_rows) <= self.sram.index_bytes // 2
        once = (order.slice > 0) & stays[order.tile]
        bits = rows[order.tile] * -(-widths[order.slice] // 8) * order.opens
        values = np.add.reduceat(wanted, first, axis=0, dtype=np.int64)[order.tile, order.slice]
        decode = -(-steps.edges // self.decoded_edges)
        shared = np.maximum(steps.bank_cycles, decode)[:, None]
        cycles = np.vstack((np.maximum(steps.lane_cycles, shared), np.zeros_like(wanted[:1])))
        return self.simulate(
            int(np.diff(matrix.indptr) @ wanted.sum(axis=1, dtype=np.int64)),
            {
                "features": loaded,
                "adjacency": np.where(once, 0, np.append(adjacency, 0)[order.chunk]),
                "mask": bits if mask is not None else np.zeros_like(bits),
            },
            cycles[order.chunk, order.slice].astype(np.int64),
            FLOAT_BYTES * values * order.closes,
            self.latency_cycles,
        )


# --------------------------------------------------------------------------- HyGCN


@dataclass(frozen=True, slots=True)
class HyGcn(Machine):
    """HyGCN's aggregation engine with the SPU's units, SRAM and bandwidth.

    Its power is the SPU's, in proportion to the clock (assumed: equal units and SRAM in an equal
    process take the same energy a cycle).
    """

    name: str = "HyGCN"
    clock_hz: int = 10**9
    power_w: float = 2 * 38.96
    cores: int = 1024
    simd_lanes: int = 16
    window_rows: int = 1

    @property
    def units(self) -> int:
        return self.cores * self.simd_lanes

    def share_units(self, divisor: int) -> HyGcn:
        return replace(self, cores=divide(self.cores, divisor))

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        plan = plan_slice(width, self.sram)
        window_rows = min(self.window_rows, plan.chunk_rows)
        chunks = cut_chunks(matrix, plan.tile_rows, plan.chunk_rows, window_rows=window_rows)
        edges, segments = count_edges(matrix, chunks)
        order = order_steps(chunks, 1)
        rows = list_tiles(matrix.num_dst, plan.tile_rows)[1]
        adjacency = count_adjacency(rows[chunks.tile_of], edges, segments)
        core_cycles = np.append(edges, 0)[order.chunk] * -(-width // self.simd_lanes)
        return self.simulate(
            matrix.num_edges * width,
            {
                "features": np.append(chunks.rows, 0)[order.chunk] * count_row_bytes(width),
                "adjacency": np.append(adjacency, 0)[order.chunk],
            },
            -(-core_cycles // self.cores),
            FLOAT_BYTES * width * rows[order.tile] * order.closes,
        )


# --------------------------------------------------------------------------- AWB-GCN


@dataclass(frozen=True, slots=True)
class AwbGcn(Machine):
    """AWB-GCN's column-wise product with the SPU's units, SRAM and bandwidth; power as HyGCN's."""

    name: str = "AWB-GCN"
    clock_hz: int = 330 * 10**6
    power_w: float = 0.66 * 38.96
    elements: int = 16_384
    hops: int = 2

    @property
    def units(self) -> int:
        return self.elements

    def share_units(self, divisor: int) -> AwbGcn:
        return replace(self, elements=divide(self.elements, divisor))

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
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
        return self.simulate(
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
        """The steps of a block: as many as its streams fill halves of their buffers, one at
        least."""
        parts: IntArray = np.maximum(
            -(-2 * feature_bytes // self.sram.node_bytes),
            -(-2 * adjacency_bytes // self.sram.index_bytes),
        )
        return np.maximum(parts, 1)

    def _choose_columns(self, matrix: SparseMatrix, width: int) -> int:
        """Columns at a time, a power of two, for the fewest bytes."""

        def count_bytes(columns: int) -> int:
            edge_bytes = EDGE_BYTES * count_tile_edges(matrix, self._tile_rows(columns))
            again = int(edge_bytes[2 * edge_bytes > self.sram.index_bytes].sum())
            streamed = len(edge_bytes) * matrix.num_src * FLOAT_BYTES * width
            return streamed + int(edge_bytes.sum()) + (-(-width // columns) - 1) * again

        return min((1 << power for power in range(width.bit_length())), key=count_bytes)


def share_evenly(totals: IntArray, parts: IntArray) -> IntArray:
    """Each total cut into so many whole parts that differ by one at most, one after the other."""
    ends = np.cumsum(parts)
    place = np.arange(int(parts.sum()), dtype=np.int64) - np.repeat(ends - parts, parts)
    total, count = np.repeat(totals, parts), np.repeat(parts, parts)
    shares: IntArray = (place + 1) * total // count - place * total // count
    return shares


def tune_columns(degrees: IntArray, elements: int, hops: int, columns: int) -> IntArray:
    """Cycles of each column of a tile whose rows have these degrees, while AWB-GCN rebalances.

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
    """What each unit of a ring does when all share evenly with those up to ``hops`` away."""
    ring = np.concatenate((loads[len(loads) - hops :], loads, loads[:hops]))
    total = np.concatenate(([0.0], np.cumsum(ring)))
    reach = 2 * hops + 1
    done: npt.NDArray[np.float64] = (total[reach:] - total[:-reach]) / reach
    return done


# --------------------------------------------------------------------------- CPU


@dataclass(frozen=True, slots=True)
class Cpu:
    """A described processor. ``device`` must state its power."""

    device: Device
    name: str = "CPU"

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        """A H ⊙ M in two passes. Raises ``ValueError`` where the processor's power is not known."""
        device = self.device
        if device.power_w is None:
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
            sum(kinds.values()) / device.memory_bandwidth_bytes_per_s,
            2 * adds / device.flops_per_s,
        )
        capacity = device.flops_per_s / 2 * seconds
        return Simulation(seconds, adds, capacity, kinds, device.power_w * seconds)
