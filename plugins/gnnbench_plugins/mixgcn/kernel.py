"""AGGREGATE on sparse accelerators: numbers by gnnbench's own kernels, times by the cycle model."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import SparseMatrix, pack_mask, sort_sources, transpose
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.machines.costs.passes import RELU, Passes
from gnnbench.machines.machine import Device, DeviceKind
from gnnbench.parts import FULL_GRAPHS, Bundle, Kernel, Setting, option
from gnnbench.records import AggregateWork, Block, KernelWork, Mode
from gnnbench_plugins.mixgcn.machines import Spu
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.reference.native_kernel import NativeAdjacency, NativeArithmetic


def make_spu(device: Device) -> Spu:
    """Return the accelerator that a ``sparse`` device describes by bandwidth and adders' rate."""
    spu = Spu()
    return replace(
        spu,
        clock_hz=round(device.hardware.flops_per_s / spu.units),
        bandwidth_bytes_per_s=round(device.hardware.memory_bandwidth_bytes_per_s),
    )


@dataclass(slots=True)
class _Running:
    """The aggregation under way, which the kernel is next asked to price."""

    block: Block | None = None
    backward: bool = False
    #: The outputs that were computed; None means all.
    wanted: MaskArray | None = None


class SpuAdjacency(NativeAdjacency):
    """An adjacency that sums as kernel 'native' and records masks, since they are priced."""

    def __init__(
        self, block: Block, dtype: torch.dtype, device: torch.device, running: _Running
    ) -> None:
        super().__init__(block, dtype, device)
        self._running = running

    def masked(self, wanted: MaskArray) -> NativeAdjacency:
        self._running.wanted = wanted
        return super().masked(wanted)


@dataclass
class SpuKernel(NativeArithmetic, Kernel):
    """A kernel that aggregates on MixGCN's sparse accelerator (section 3.2.1).

    Other devices update. A piece of AGGREGATE takes the time of ``machines.Spu`` on its block. With
    ``masked`` its backward pass computes only the gradients that ReLU's mask wants, and that mask
    is priced. It is off by default because plans know no masks. Other masks are random, want the
    share ``wanted`` of the outputs and only affect the price: this project's models have no
    dropout. Work that was not computed here, but in another process or in a plan, is priced by its
    size alone (:meth:`estimate_seconds`). Dense devices apply the coefficients of vertices, since
    the accelerator has no multipliers.
    """

    name: ClassVar[str] = "spu"
    summary: ClassVar[str] = "S-SpMM on MixGCN's sparse accelerators, by their cycle model"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset({"cpu", "gpu", "sparse"})
    #: Dense devices update, with a pass for ReLU.
    hidden_passes: ClassVar[Bound[Passes]] = RELU

    wanted: float = option(
        1.0, "share of AGGREGATE's outputs that a mask wants, above 0; the paper has about 0.5"
    )
    masked: bool = option(
        False, "backward, ReLU's masks instead: only what they want is computed, and priced"
    )

    _running: _Running = field(default_factory=_Running, init=False, repr=False, compare=False)
    #: Number of rows to read; 0 if unknown.
    _vertices: int = field(default=0, init=False, repr=False, compare=False)
    _seconds: dict[tuple[Block, bool, int, Spu], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _matrices: dict[tuple[Block, bool], SparseMatrix] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not 0 < self.wanted <= 1:
            return f"kernel.wanted is {self.wanted}; it is a share, above 0 and at most 1."
        placement, platform = bundle.placement, setting.platform
        devices = placement.trainers(platform)
        if isinstance(placement, MixGCNPlacement):
            devices = placement.aggregators(platform)
        for device in devices:
            if device.kind != "sparse":
                return (
                    f"kernel 'spu' needs sparse accelerators, but placement {placement.name!r} "
                    f"aggregates on {device.name}, a {device.kind}. Choose placement 'mixgcn' on "
                    f"platform xeon8462-8xh100-8xspu, or another kernel."
                )
        if not all(layer.cacheable for layer in setting.layers):
            return (
                f"kernel 'spu' has adders and no multipliers, and model "
                f"{setting.workload.model!r} computes on every edge; choose gcn, sage or gin."
            )
        return None

    def begin(self, setting: Setting) -> None:
        self.limit_sources(setting.dataset.graph.num_vertices)
        self._running = _Running()
        self._seconds.clear()
        self._matrices.clear()

    def limit_sources(self, vertices: int) -> None:
        """Set the number of vertices: no work reads more different rows."""
        self._vertices = vertices

    def masks_gradients(self) -> bool:
        return self.masked

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> SpuAdjacency:
        return SpuAdjacency(block, dtype, device, self._running)

    def expect(self, block: Block, *, backward: bool) -> None:
        running = self._running
        running.block, running.backward, running.wanted = block, backward, None

    def seconds(self, work: KernelWork, device: Device) -> float:
        """Return the modelled duration; only AGGREGATE on a sparse device is priced by cycles."""
        if not isinstance(work, AggregateWork) or device.kind != "sparse":
            return super().seconds(work, device)
        if not work.features:
            return device.hardware.launch_s
        spu = make_spu(device)
        block, backward = self._running.block, self._running.backward
        if block is None or (block.num_edges, block.num_dst) != (work.edges, work.rows):
            return device.hardware.launch_s + self.estimate_seconds(work, spu)
        wanted = self._running.wanted
        if wanted is not None and wanted.shape[1] == -(-work.features // 8):
            # This mask is ReLU's, which changes every epoch.
            matrix = self._read(block, backward=backward)
            return device.hardware.launch_s + spu.run(matrix, work.features, wanted).seconds
        key = (block, backward, work.features, spu)
        if key not in self._seconds:
            matrix = self._read(block, backward=backward)
            mask = self._draw_mask(matrix.num_dst, work.features)
            self._seconds[key] = spu.run(matrix, work.features, mask).seconds
        return device.hardware.launch_s + self._seconds[key]

    def estimate_seconds(self, work: AggregateWork, spu: Spu) -> float:
        """Estimate the time from the work's size alone.

        It is the longer of the wanted additions on all adders and the transfer over HBM. A stage of
        the pipeline reads more rows than it has: at most one for each edge, and at most the graph's
        vertices. If all rows of the graph fit in the node buffer, each is read once, else one for
        every edge.
        """
        rows = work.edges
        if self._vertices and 4 * work.features * self._vertices <= spu.sram.node_bytes // 2:
            rows = min(rows, self._vertices)
        moved = 4 * (work.features * (rows + self.wanted * work.rows) + work.edges)
        adds = self.wanted * work.edges * work.features
        return max(moved / spu.bandwidth_bytes_per_s, adds / (spu.units * spu.clock_hz))

    def _read(self, block: Block, *, backward: bool) -> SparseMatrix:
        """Return the block, or its transpose, as the accelerator reads it; kept for the run."""
        key = (block, backward)
        if key not in self._matrices:
            matrix = SparseMatrix(block.indptr, block.indices, block.num_src)
            if backward:
                indptr, indices, _ = transpose(block.indptr, block.indices, block.num_src)
                matrix = SparseMatrix(indptr, indices, block.num_dst)
            self._matrices[key] = sort_sources(matrix)
        return self._matrices[key]

    def _draw_mask(self, num_dst: int, width: int) -> MaskArray | None:
        if self.wanted == 1:
            return None
        random = np.random.default_rng((0, width))
        return pack_mask(random.random((num_dst, width), dtype=np.float32) < self.wanted)
