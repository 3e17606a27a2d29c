"""The scatter-gather kernels: numbers by gnnbench's own, times by equations or cycle by cycle."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch

from gnnbench.constants import Constant
from gnnbench.kernels.reference.fpga import Machine
from gnnbench.machines.machine import Device, DeviceKind
from gnnbench.parts import MINI_BATCHES, Bundle, Kernel, LayerShape, Setting, option
from gnnbench.records import AggregateWork, Block, KernelWork, Mode
from gnnbench_plugins.hpgnn.adjacency import HpgnnAdjacency, Running
from gnnbench_plugins.hpgnn.boards import Board, find_board
from gnnbench_plugins.hpgnn.cycles import (
    THROUGH_MEMORY,
    Datapath,
    make_machine,
    run_backward,
    run_forward,
    run_products,
    seconds_of,
)
from gnnbench_plugins.hpgnn.design import aggregate_times, update_seconds
from gnnbench_plugins.hpgnn.layout import LaidOutBlock
from gnnbench_plugins.hpgnn.operators import OperatorLayer
from gnnbench_plugins.hpgnn.placement import HpgnnPlacement
from gnnbench_plugins.hpgnn.resources import (
    Design,
    activation_words,
    buffer_words,
    count_words,
    find_excess,
    find_lack,
)
from gnnbench_plugins.hpgnn.sampler import LaidOut
from gnnbench_plugins.reference.native_kernel import NativeArithmetic

#: A whole board's design on the U250s of HyScale-GNN, Table IV: "(8, 2048)".
HYSCALE: Annotated[Design, Constant("", "quoted", "HyScale-GNN, Table IV")] = Design(n=8, m=2048)


@dataclass(frozen=True, slots=True)
class _Job:
    """The constants of a run; placement 'hpgnn' knows the design after its preparation."""

    layers: tuple[LayerShape, ...]
    placement: HpgnnPlacement | None


@dataclass
class HpgnnKernel(NativeArithmetic, Kernel):
    """HP-GNN's hardware templates (section 4.2) on the board and design of placement 'hpgnn'.

    Under another placement, such as 'hyscale', every FPGA holds the one design ``n``, ``m``, an
    equal share on each die. The host then trains beside them with kernel 'native'.

    ``equations``: Equations 8 and 9, of the whole board. ``cycles``: the cycle model, on the
    mini-batches that are trained on. There a layer's update ends with the layer, since its rows
    wait for their sums. Both add the device's launch time to every piece of work.

    ``datapath`` chip: HyScale-GNN's (its Figure 6), which writes only the last layer's results to
    memory. A mini-batch with sums and results beyond the UltraRAM goes through memory.
    """

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = "scatter-gather and systolic array on an FPGA, by equations or cycles"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    device_kinds: ClassVar[frozenset[DeviceKind]] = frozenset({"cpu", "fpga"})

    clock: Literal["equations", "cycles"] = option(
        "cycles", "times by HP-GNN's Equations 8 and 9, or by the cycle model"
    )
    n: int = option(0, "PEs of a whole board, where the placement chooses none; 0 = HyScale-GNN's")
    m: int = option(0, "MACs of a whole board, as n; 0 = HyScale-GNN's")
    datapath: Literal["memory", "chip"] = option(
        "memory", "whether a layer's sums and results go through memory, or stay on the chip"
    )

    _placement: HpgnnPlacement | None = field(default=None, init=False, repr=False, compare=False)
    _job: _Job | None = field(default=None, init=False, repr=False, compare=False)
    _running: Running = field(default_factory=Running, init=False, repr=False, compare=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not isinstance(bundle.sampler, LaidOut):
            return (
                f"kernel 'hpgnn' reads the edge layout of sampler 'hpgnn', which sampler "
                f"{bundle.sampler.name!r} does not make; use both together."
            )
        own = isinstance(setting.model, type) and issubclass(setting.model, OperatorLayer)
        if not own and not all(layer.cacheable for layer in setting.layers):
            return (
                f"kernel 'hpgnn' gathers updates in any order, and model "
                f"{setting.workload.model!r} does not aggregate by an associative sum; choose gcn, "
                f"sage or gin."
            )
        placement = bundle.placement
        self._placement = placement if isinstance(placement, HpgnnPlacement) else None
        return self._refuse_devices(bundle, setting)

    def _refuse_devices(self, bundle: Bundle, setting: Setting) -> str | None:
        """Refuse other trainers than FPGAs and the host, and FPGAs that cannot hold the design."""
        if self._placement is not None:
            if self.datapath == "chip":
                return (
                    "kernel.datapath=chip is HyScale-GNN's, and placement 'hpgnn' explores designs "
                    "whose results go through memory; leave it out, or use placement 'hyscale'."
                )
            if self.n or self.m:
                return (
                    "placement 'hpgnn' chooses the design; set placement.n and placement.m, and "
                    "leave out kernel.n and kernel.m."
                )
            return None
        trainers = bundle.placement.trainers(setting.platform)
        boards = [device for device in trainers if device.kind == "fpga"]
        others = [device for device in trainers if device.kind not in ("fpga", "cpu")]
        if others or not boards:
            where = others[0].name if others else "the host"
            there = [each.name for each in setting.platform.accelerators if each.kind == "fpga"]
            mend = "name a platform that has FPGAs, such as epyc7763x2-4xu250"
            if there:
                mend = f"use a placement that trains on {there[0]}"
            return (
                f"kernel 'hpgnn' runs on FPGAs and a CPU beside them, and placement "
                f"{bundle.placement.name!r} trains on {where}; {mend}."
            )
        for device in boards:
            board = find_board(device.model)
            if board is None:
                return f"kernel 'hpgnn' knows no board {device.model!r}; use placement 'hpgnn'."
            fault = self._find_fault(board, setting)
            if fault is not None:
                return fault
        return None

    def _find_fault(self, board: Board, setting: Setting) -> str | None:
        """Return why the whole board's design cannot be divided over its dies; None if it can."""
        n, m = self.n or HYSCALE.n, self.m or HYSCALE.m
        if n < 0 or m < 0 or n % board.dies or m % board.dies:
            return (
                f"kernel.n = {n} and kernel.m = {m} are a whole board's, and {board.name} has "
                f"{board.dies} dies; give multiples of that."
            )
        design, itemsize = self._share_out(board), setting.workload.itemsize
        row_words = max(count_words(layer.in_features, itemsize) for layer in setting.layers)
        excess = find_excess(design, board, "die")
        return excess or find_lack(design.n, row_words, board)

    def _share_out(self, board: Board) -> Design:
        n, m = self.n or HYSCALE.n, self.m or HYSCALE.m
        return Design(n // board.dies, m // board.dies)

    def begin(self, setting: Setting) -> None:
        self._job = _Job(setting.layers, self._placement)
        self._running = Running()

    def notes(self) -> tuple[str, ...]:
        spilled = self._running.spilled
        if not spilled:
            return ()
        return (
            f"kernel 'hpgnn': the activations of {spilled:,} of {spilled + self._running.stayed:,} "
            f"mini-batches find no room on the chip and go through memory.",
        )

    def idle(self) -> tuple[str, ...]:
        if self.datapath == "chip" and self._running.spilled and not self._running.stayed:
            return ("activations on the chip (those of no mini-batch fit)",)
        return ()

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> HpgnnAdjacency:
        return HpgnnAdjacency(block, dtype, device, self._running)

    def expect(self, block: Block, *, backward: bool) -> None:
        self._running.note(block, backward=backward)

    def seconds(self, work: KernelWork, device: Device) -> float:
        """Return the modelled duration of ``work``, which this kernel has just computed.

        A CPU that trains beside the boards takes the time of HyScale-GNN's Equations 11 and 12.
        """
        if device.kind == "cpu":
            return super().seconds(work, device)
        job = self._job
        if job is None:
            raise RuntimeError("kernel 'hpgnn' is asked for times before its run has begun")
        board, design = self._find_design(device, job)
        path = self._find_path(work, board, design, job.layers)
        if self.clock == "equations":
            return device.hardware.launch_s + self._equation_seconds(work, board, design, path)
        machine = make_machine(board, design)
        cycles = self._count_cycles(work, machine, design, job.layers, path)
        return device.hardware.launch_s + seconds_of(cycles, machine)

    def _find_design(self, device: Device, job: _Job) -> tuple[Board, Design]:
        if job.placement is not None:
            return job.placement.find_board(device), job.placement.design
        board = find_board(device.model)
        if board is None:
            raise ValueError(f"kernel 'hpgnn' knows no board {device.model!r}")
        return board, self._share_out(board)

    def _find_path(
        self, work: KernelWork, board: Board, design: Design, layers: tuple[LayerShape, ...]
    ) -> Datapath:
        """Return which rows of the layer under ``work`` go through memory."""
        block, running = self._running.block, self._running
        if self.datapath == "memory" or not isinstance(work, AggregateWork) or block is None:
            return THROUGH_MEMORY
        rows = block.destinations
        fits = activation_words(rows, layers, design.n, board, work.itemsize) <= buffer_words(board)
        if block.layer == 0 and not running.backward:
            running.stayed += fits
            running.spilled += not fits
        if not fits:
            return THROUGH_MEMORY
        first, last = block.layer == 0, block.layer == len(layers) - 1
        return Datapath(
            loads=first and not running.backward, sums=False, results=last and not running.backward
        )

    def _equation_seconds(
        self, work: KernelWork, board: Board, design: Design, path: Datapath
    ) -> float:
        """Return Equation 9, or the longer of the two terms of Equation 8."""
        if not isinstance(work, AggregateWork):
            return update_seconds(work.macs, design.m * board.dies, board)
        block = self._aggregated(work)
        if self._running.backward and block.backward is None:
            return 0.0
        load_s, compute_s = aggregate_times(
            block.num_dst if self._running.backward else block.num_src,
            work.edges,
            work.features,
            work.itemsize,
            design.n * board.dies,
            board,
            first=block.layer == 0,
        )
        return max(path.loads * load_s, compute_s)

    def _count_cycles(
        self,
        work: KernelWork,
        machine: Machine,
        design: Design,
        layers: tuple[LayerShape, ...],
        path: Datapath,
    ) -> int:
        """Return the cycles from the beginning of the layer to the end of the work."""
        running = self._running
        if not isinstance(work, AggregateWork):
            layer, running.layer = running.layer, None
            if layer is not None:
                return layer.cycles
            # The products of a backward pass, side by side in the array, or the loss.
            inner = work.macs // max(1, work.rows * work.features)
            return run_products(work.rows, inner, work.features, machine, design.m)
        block = self._aggregated(work)
        shape = layers[block.layer]
        if running.backward:
            if block.backward is None:  # the features, whose gradient is unused
                return 0
            backward = run_backward(
                block.backward, shape, machine, design.m, itemsize=work.itemsize, path=path,
                tile=design.tile,
            )  # fmt: skip
            return backward.cycles
        running.layer = run_forward(
            block.forward, shape, machine, design.m, itemsize=work.itemsize, path=path,
            tile=design.tile,
        )  # fmt: skip
        return running.layer.aggregate_cycles

    def _aggregated(self, work: AggregateWork) -> LaidOutBlock:
        """Return the block that ``work`` has just aggregated over."""
        block = self._running.block
        if block is None or block.num_edges != work.edges:
            raise ValueError(f"kernel 'hpgnn' has not just aggregated over {work.edges} edges")
        return block
