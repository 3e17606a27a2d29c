"""MixGCN's sparse accelerator computing Z = A H ⊙ M, cycle by cycle, and what its rivals share.

Section 4.4.1 gives all three accelerators 16,384 units, 100 MB of SRAM and 1,024 GB/s, and each its
own clock. ``gnnbench.kernels.reference.spmm`` describes the SPU rule by rule; this module adds
memory to it. Anything that follows neither from the paper nor from other sources is marked
*assumed*.

**Memory** (all accelerators). HBM serves one transfer after the other at its full bandwidth. Rows
picked one by one take whole granules of 32 bytes (*assumed*: half a 64-byte HBM2 burst). The 100 MB
are split as the SPU's (section 4.1: 32 MB node features, 32 MB outputs, 32 MB adjacency, 4 MB mask)
in the rivals too (*assumed*). Every buffer is a double buffer: one half is filled while the other
is read (``overlap_steps``). A step's rows may load once the step before the last is computed; a
tile's outputs are written behind it. The adjacency is streamed. It stays for all slices of a tile
if the tile's edges fit in half its buffer. An edge is 4 bytes. Pointers are 4 bytes a row, or 8 for
each row with edges in the step if that is less.

**SPU.** It loads exactly the rows that a tile reads, and the mask's bits. It writes wanted values
only, since their reader has the bitmap (*assumed*). :func:`choose_slice` chooses tiles, slices of
features and their order for the fewest bytes, by degrees alone. Neither the mask nor a rate changes
them, so more bandwidth, a faster clock or fewer wanted outputs are never slower. A tile runs slice
by slice, through all chunks of sources. Outputs leave once; adjacency comes once a slice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated

import numpy as np

from gnnbench.constants import Bound, Constant
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.kernels.dispatch.spmm import (
    count_reads,
    count_steps,
    count_wanted,
    cut_chunks,
    overlap_steps,
)
from gnnbench.kernels.reference.spmm import WORD_FLOATS, Chunks, ReductionEngine
from gnnbench.records import BoolArray, IntArray

#: Smallest HBM transfer, in bytes.
GRANULE_BYTES: Annotated[int, Constant("B", "quoted", "JEDEC HBM: one burst")] = 32
#: Bytes of a feature, of an edge's source and of a row pointer.
FLOAT_BYTES: Bound[int] = 4
EDGE_BYTES: Bound[int] = 4
POINTER_BYTES: Bound[int] = 4
#: Published energies of 45 nm: a float32 addition; a byte from or to an SRAM of 1 MB, 100 pJ for 64
#: bits; a byte from or to DRAM, at least 1.3 nJ for 64 bits.
ADD_J: Annotated[float, Constant("J", "quoted", "Horowitz, ISSCC 2014: 45 nm")] = 0.9e-12
SRAM_J_PER_BYTE: Annotated[float, Constant("J/B", "quoted", "Horowitz, ISSCC 2014: 1 MB")] = (
    100e-12 / 8
)
DRAM_J_PER_BYTE: Annotated[float, Constant("J/B", "quoted", "Horowitz, ISSCC 2014: least")] = (
    1.3e-9 / 8
)
MB: Bound[int] = 2**20


@dataclass(frozen=True, slots=True)
class Sram:
    """The buffers on the chip, both halves of each (section 4.1)."""

    node_bytes: Annotated[int, Constant("B", "quoted", "MixGCN, section 4.1")] = 32 * MB
    output_bytes: Annotated[int, Constant("B", "quoted", "MixGCN, section 4.1")] = 32 * MB
    index_bytes: Annotated[int, Constant("B", "quoted", "MixGCN, section 4.1")] = 32 * MB
    mask_bytes: Annotated[int, Constant("B", "quoted", "MixGCN, section 4.1")] = 4 * MB


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated product on a machine.

    ``adds`` counts its additions, one for each wanted feature of an edge. ``capacity`` is the
    number that its adders could have made in the time. ``bytes`` cross the memory, by kind.
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


def count_energy(adds: float, memory_bytes: float) -> float:
    """Return the joules of ``adds`` additions and of ``memory_bytes``.

    Each addition reads a value from a buffer; the bytes cross the memory and a buffer.
    """
    buffered = FLOAT_BYTES * adds + memory_bytes
    return ADD_J * adds + SRAM_J_PER_BYTE * buffered + DRAM_J_PER_BYTE * memory_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The steps of a product in sequence: bytes loaded, by kind, cycles, and bytes written.

    All steps together make ``adds`` additions; ``last_cycles`` come after the last step.
    """

    adds: int
    loads: Mapping[str, IntArray]
    compute_cycles: IntArray
    writes: IntArray
    last_cycles: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The steps in sequence: tile by tile, slice by slice, chunk by chunk.

    Int64 and bool, one a step. ``chunk`` is -1 for a tile without edges, which only writes zeros.
    ``opens`` and ``closes`` mark a slice's first and last step in its tile.
    """

    tile: IntArray
    slice: IntArray
    chunk: IntArray
    opens: BoolArray
    closes: BoolArray


def order_steps(chunks: Chunks, num_slices: int) -> Order:
    """Return all steps of a product in ``num_slices`` slices."""
    held = np.diff(chunks.first)
    counts = np.maximum(held, 1)
    tile = np.repeat(np.arange(len(held)), counts * num_slices)
    before = np.cumsum(counts * num_slices) - counts * num_slices
    slice_, place = np.divmod(np.arange(len(tile)) - before[tile], counts[tile])
    chunk = np.where(held[tile] > 0, chunks.first[tile] + place, -1)
    return Order(tile, slice_, chunk, place == 0, place == counts[tile] - 1)


@dataclass(frozen=True, slots=True)
class Machine(ABC):
    """An accelerator with a clock and a memory bandwidth."""

    name: str
    clock_hz: int
    bandwidth_bytes_per_s: Annotated[int, Constant("B/s", "quoted", "MixGCN, section 4.1")] = (
        1024 * 10**9
    )
    sram: Sram = field(default_factory=Sram)

    @property
    @abstractmethod
    def units(self) -> int:
        """Additions a cycle."""

    @abstractmethod
    def plan(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Steps:
        """Plan A H for an H of ``width`` float32 features, ⊙ M if the machine supports masks.

        The sources of each row must ascend. ``mask`` has the form of the kernel ``aggregate``.
        """

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        """Plan and simulate a product; arguments as in :meth:`plan`."""
        return self.simulate(self.plan(matrix, width, mask))

    def scale(self, divisor: int) -> Machine:
        """Return the machine with one in ``divisor`` of everything but its clock.

        On a graph with one in ``divisor`` of the vertices, of the same degrees, its tiles, reuse
        and time equal the whole machine's on the whole graph. Raises ``ValueError`` if a size does
        not divide.
        """
        sram = self.sram
        sizes = (sram.node_bytes, sram.output_bytes, sram.index_bytes, sram.mask_bytes)
        memory = replace(
            self,
            bandwidth_bytes_per_s=divide(self.bandwidth_bytes_per_s, divisor),
            sram=Sram(*(divide(size, divisor) for size in sizes)),
        )
        return memory.share_units(divisor)

    @abstractmethod
    def share_units(self, divisor: int) -> Machine:
        """Return a machine with one in ``divisor`` of the units and feeds, on unchanged memory."""

    def simulate(self, steps: Steps) -> Simulation:
        """Simulate the steps in whole ticks, a fraction of a cycle common to bytes and cycles."""
        rate = Fraction(self.clock_hz, self.bandwidth_bytes_per_s)
        loads = steps.loads
        loaded: IntArray = np.sum(list(loads.values()), axis=0, dtype=np.int64)
        end = overlap_steps(
            loaded, steps.compute_cycles, steps.writes, rate.numerator, rate.denominator
        )
        ticks = end + steps.last_cycles * rate.denominator
        seconds = float(Fraction(ticks, rate.denominator * self.clock_hz))
        kinds = {kind: int(values.sum()) for kind, values in loads.items()}
        kinds["outputs"] = int(steps.writes.sum())
        energy_j = count_energy(steps.adds, sum(kinds.values()))
        capacity = self.units * self.clock_hz * seconds
        return Simulation(seconds, steps.adds, capacity, kinds, energy_j)


def divide(size: int, divisor: int) -> int:
    """Return a whole share of a machine's size; ``ValueError`` if it does not divide."""
    if size % divisor:
        raise ValueError(f"{size} of a machine cannot be divided by {divisor}; use another scale.")
    return size // divisor


def count_row_bytes(features: int) -> int:
    """Return the bytes of a row of ``features`` features, in whole granules."""
    return -(-features * FLOAT_BYTES // GRANULE_BYTES) * GRANULE_BYTES


def count_adjacency(rows: IntArray, edges: IntArray, segments: IntArray) -> IntArray:
    """Return the adjacency bytes of steps with ``edges`` edges.

    Their edges lie in ``segments`` of their tiles' ``rows``.
    """
    pointers = np.minimum(POINTER_BYTES * (rows + 1), 2 * POINTER_BYTES * segments)
    total: IntArray = EDGE_BYTES * edges + pointers
    return total


def list_tiles(num_dst: int, tile_rows: int) -> tuple[IntArray, IntArray]:
    """Return the first row of each tile, and its number of rows; int64."""
    first = np.arange(0, num_dst, tile_rows, dtype=np.int64)
    return first, np.diff(np.append(first, num_dst))


def count_tile_edges(matrix: SparseMatrix, tile_rows: int) -> IntArray:
    """Return the edges of each tile of ``tile_rows`` rows."""
    first, rows = list_tiles(matrix.num_dst, tile_rows)
    edges: IntArray = matrix.indptr[first + rows] - matrix.indptr[first]
    return edges


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """Features of a slice, destinations of a tile, and source rows of a chunk."""

    features: int
    tile_rows: int
    chunk_rows: int


def plan_slice(features: int, sram: Sram) -> SlicePlan:
    """Return the rows that half of each buffer holds for slices of ``features``; at least one."""
    tile_rows = sram.output_bytes // 2 // (FLOAT_BYTES * features)
    chunk_rows = sram.node_bytes // 2 // count_row_bytes(features)
    return SlicePlan(features, max(1, tile_rows), max(1, chunk_rows))


def choose_slice(matrix: SparseMatrix, width: int, sram: Sram) -> SlicePlan:
    """Return the slices that are expected to cross HBM in the fewest bytes.

    Narrow slices make tiles of many destinations, which share the rows they read, but fetch the
    adjacency from HBM again for each slice. Rows read are expected values for sources with edges
    spread evenly over the tiles.
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

    # Ties go to the narrowest: more steps overlap more of loading and computing.
    return plan_slice(min(sorted(candidates), key=expect_bytes), sram)


@dataclass(frozen=True, slots=True)
class Spu(Machine):
    """MixGCN's accelerator for S-SpMM.

    ``decoded_edges`` leave the index decoder in a cycle, as many as the distribution network takes
    of the narrowest rows. ``latency_cycles`` is the latency of network and adders, once a product.
    Both are assumed.
    """

    name: str = "SPU"
    clock_hz: Annotated[int, Constant("Hz", "quoted", "MixGCN, section 4.1")] = 500 * 10**6
    engine: Annotated[
        ReductionEngine, Constant("", "assumed", "but for lanes x adders, MixGCN, section 4.1")
    ] = field(default_factory=lambda: ReductionEngine(1024, 16, 2, 16, 2048))
    decoded_edges: Annotated[int, Constant("a cycle", "assumed", "what the network takes")] = 2048
    latency_cycles: Annotated[int, Constant("cycles", "assumed", "network and adders")] = 16

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

    def plan(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Steps:
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
        return Steps(
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
