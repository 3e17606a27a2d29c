"""The scatter-gather kernels: numbers by gnnbench's own, times by equations or cycle by cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gnnbench.kernels.reference.fpga import Machine
from gnnbench.parts import MINI_BATCH, Bundle, LayerShape, Scaling, Setting, option
from gnnbench.platforms.machine import Device
from gnnbench.records import Block, Mode, Work
from gnnbench_plugins.hpgnn.boards import Board
from gnnbench_plugins.hpgnn.cycles import (
    Pass,
    make_machine,
    run_backward,
    run_forward,
    run_products,
    seconds_of,
)
from gnnbench_plugins.hpgnn.design import aggregate_times, update_seconds
from gnnbench_plugins.hpgnn.layout import LaidOutBlock
from gnnbench_plugins.hpgnn.placement import HpgnnPlacement
from gnnbench_plugins.hpgnn.resources import Design
from gnnbench_plugins.hpgnn.sampler import HpgnnSampler
from gnnbench_plugins.native.kernel import NativeAdjacency, NativeKernel


@dataclass(frozen=True, slots=True)
class _Job:
    """What stays the same for a run; the placement knows the design once the run is prepared."""

    layers: tuple[LayerShape, ...]
    placement: HpgnnPlacement
    board: Board


@dataclass(slots=True)
class _Running:
    """What the kernel computed last, which is what it is asked the time of."""

    block: LaidOutBlock | None = None
    backward: bool = False
    #: A layer's forward pass that was simulated with its aggregation and whose update is due.
    layer: Pass | None = None


class HpgnnAdjacency(NativeAdjacency):
    """A laid-out block; sums are those of kernel 'native', and it says which it took."""

    def __init__(
        self, block: Block, dtype: torch.dtype, device: torch.device, running: _Running
    ) -> None:
        super().__init__(block, dtype, device)
        self._running = running

    def _note(self, *, backward: bool) -> None:
        # Evaluation takes other blocks, and nobody asks how long that is on the board.
        block = self.block
        self._running.block = block if isinstance(block, LaidOutBlock) else None
        self._running.backward = backward

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        self._note(backward=False)
        return super().sum(h, weight)

    def own_and_mean(self, h: Tensor) -> Tensor:
        self._note(backward=False)
        return super().own_and_mean(h)

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        self._note(backward=False)
        return super().sum_scaled(h, scaling)

    def sum_transposed(self, g: Tensor, weight: Tensor | None = None) -> Tensor:
        self._note(backward=True)
        return super().sum_transposed(g, weight)

    def sum_scaled_transposed(self, g: Tensor, scaling: Scaling) -> Tensor:
        self._note(backward=True)
        return super().sum_scaled_transposed(g, scaling)


@dataclass
class HpgnnKernel(NativeKernel):
    """HP-GNN's hardware templates (section 4.2) on the board and design of placement 'hpgnn'.

    ``equations``: Equations 8 and 9, of the whole board. ``cycles``: the cycle model, on the very
    mini-batches that are trained on; the update of a layer then ends when the layer does, since its
    rows wait for their sums. Both add the device's launch time to every piece of work.
    """

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = "scatter-gather and systolic array on an FPGA, by equations or cycles"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCH
    takes_sparse_features: ClassVar[bool] = False

    clock: Literal["equations", "cycles"] = option(
        "cycles", "times by HP-GNN's Equations 8 and 9, or by the cycle model"
    )

    _placement: HpgnnPlacement | None = field(default=None, init=False, repr=False, compare=False)
    _job: _Job | None = field(default=None, init=False, repr=False, compare=False)
    _running: _Running = field(default_factory=_Running, init=False, repr=False, compare=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not isinstance(bundle.placement, HpgnnPlacement):
            return (
                f"kernel 'hpgnn' runs on the design that placement 'hpgnn' chooses, not on "
                f"placement {bundle.placement.name!r}; use both together."
            )
        if not isinstance(bundle.sampler, HpgnnSampler):
            return (
                f"kernel 'hpgnn' reads the edge layout of sampler 'hpgnn', which sampler "
                f"{bundle.sampler.name!r} does not make; use both together."
            )
        if not all(layer.cacheable for layer in setting.layers):
            return (
                f"kernel 'hpgnn' gathers updates in any order, and model "
                f"{setting.workload.model!r} does not aggregate by an associative sum; choose gcn, "
                f"sage or gin."
            )
        self._placement = bundle.placement
        return super().refuses(bundle, setting)

    def begin(self, setting: Setting) -> None:
        if self._placement is None:
            raise RuntimeError("kernel 'hpgnn' begins without having seen its bundle")
        (device,) = self._placement.trainers(setting.platform)
        self._job = _Job(setting.layers, self._placement, self._placement.find_board(device))
        self._running = _Running()

    def projects_first(self, layer: int, setting: Setting, mode: Mode) -> bool:
        return False

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> HpgnnAdjacency:
        return HpgnnAdjacency(block, dtype, device, self._running)

    def seconds(self, work: Work, device: Device) -> float:
        """Modelled duration of ``work``, which this kernel has just computed."""
        job = self._job
        if job is None:
            raise RuntimeError("kernel 'hpgnn' is asked for times before its run has begun")
        board, design = job.board, job.placement.design
        if self.clock == "equations":
            return device.launch_s + self._equation_seconds(work, board, design)
        machine = make_machine(board, design)
        cycles = self._count_cycles(work, machine, design.m, job.layers)
        return device.launch_s + seconds_of(cycles, machine)

    def _equation_seconds(self, work: Work, board: Board, design: Design) -> float:
        """Equation 9, or the longer of the two of Equation 8."""
        if work.op == "update":
            return update_seconds(work.macs, design.m * board.dies, board)
        block = self._aggregated(work)
        return max(
            aggregate_times(
                block.num_dst if self._running.backward else block.num_src,
                work.edges,
                work.features,
                work.itemsize,
                design.n * board.dies,
                board,
                first=block.layer == 0,
            )
        )

    def _count_cycles(
        self, work: Work, machine: Machine, m: int, layers: tuple[LayerShape, ...]
    ) -> int:
        """Cycles until the work is done, counted from where its layer begins."""
        running = self._running
        if work.op == "update":
            layer, running.layer = running.layer, None
            if layer is not None:
                return layer.cycles
            # The products of a backward pass, side by side in the array, or the loss.
            inner = work.macs // max(1, work.rows * work.features)
            return run_products(work.rows, inner, work.features, machine, m)
        block = self._aggregated(work)
        shape = layers[block.layer]
        if block.backward is not None and running.backward:
            return run_backward(block.backward, shape, machine, m, itemsize=work.itemsize).cycles
        running.layer = run_forward(block.forward, shape, machine, m, itemsize=work.itemsize)
        return running.layer.aggregate_cycles

    def _aggregated(self, work: Work) -> LaidOutBlock:
        """The block that ``work`` has just aggregated over."""
        block = self._running.block
        if work.op != "aggregate" or block is None or block.num_edges != work.edges:
            raise ValueError(
                f"kernel 'hpgnn' has not just done this {work.op!r} over {work.edges} edges"
            )
        return block
