"""One FPGA trains, with a design that the exploration chose for the sampled mini-batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from gnnbench.errors import UsageError
from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import (
    MINI_BATCHES,
    Bundle,
    Handed,
    LayerShape,
    Placement,
    SeedSession,
    Setting,
    hand_out,
    option,
)
from gnnbench.records import BatchProfile, HostThreads, IntArray, Mode, Share, Workload
from gnnbench_plugins.hpgnn.boards import Board, find_board, load_board
from gnnbench_plugins.hpgnn.design import (
    Batch,
    Sweep,
    choose_threads,
    evaluate,
    explore,
    find_misfit,
    sampling_seconds,
)
from gnnbench_plugins.hpgnn.resources import (
    Design,
    count_words,
    cut_weights,
    find_buffers,
    find_excess,
    find_lack,
)


@dataclass(slots=True)
class Programmed:
    """The design that a board is programmed with, once it is chosen for a run's mini-batches."""

    design: Design | None = None


class BoardSession(SeedSession):
    """A session with all seeds on the board, while ``threads`` of the host sample."""

    def __init__(self, threads: HostThreads, note: str) -> None:
        self._threads = threads
        self._note = note

    def share_out(self, seeds: IntArray) -> Handed:
        return hand_out(seeds, (Share(slot=0, seeds=len(seeds)),))

    def host_threads(self) -> HostThreads:
        return self._threads

    def notes(self) -> tuple[str, ...]:
        return (self._note,)


@dataclass(frozen=True)
class HpgnnPlacement(Placement):
    """A placement that computes every unit on the first FPGA of the platform.

    The host samples, and computes the loss and the weights' update (section 5.1). ``n`` and ``m``
    given together are the design; without them Algorithm 4 chooses one for the sizes of a sampled
    mini-batch.
    """

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = "one FPGA trains, its design chosen by design space exploration"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    host_takes_loss: ClassVar[bool] = True

    scope: Literal["die", "board"] = option(
        "die", "n and m are one die's, on each of them, or the whole board's, as published"
    )
    board: str = option("", "the board: u250, u200 or a .toml file; empty = as the platform says")
    n: int = option(0, "scatter and gather PEs a die; 0 = explore")
    m: int = option(0, "MACs a die; 0 = explore")
    macs: Literal["square", "power"] = option(
        "square", "explore m among squares of powers of two, or among powers of two"
    )

    #: Read by the kernel.
    _board: Programmed = field(default_factory=Programmed, init=False, repr=False, compare=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        try:
            device = self.trainers(setting.platform)[0]
            board = self.find_board(device)
        except UsageError as error:
            return str(error)
        itemsize = setting.workload.itemsize
        row_words = max(count_words(layer.in_features, itemsize) for layer in setting.layers)
        inner = [layer.macs_per_row / layer.out_features for layer in setting.layers]
        buffers = find_buffers(setting.workload.dims, inner, itemsize)
        if not self.n and not self.m:
            return find_misfit(board, row_words, buffers=buffers)
        if not (self.n and self.m):
            return "placement.n and placement.m make a design together; give both, or neither."
        design = cut_weights(Design(self.n, self.m), board, "die", buffers)
        excess = find_excess(design, board, "die", buffers)
        return excess or find_lack(self.n, row_words, board)

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        for device in platform.accelerators:
            if device.kind == "fpga":
                return (device,)
        raise UsageError(
            f"placement 'hpgnn' trains on an FPGA, and platform {platform.name} has none; name one "
            f"that has, such as epyc7763x2-4xu250."
        )

    def find_board(self, device: Device) -> Board:
        """Return the board to build on; raise ``UsageError`` if it is unknown."""
        board = load_board(self.board) if self.board else find_board(device.model)
        if board is None:
            raise UsageError(
                f"placement 'hpgnn' knows no board {device.model!r}; describe it in a file like "
                f"u250.toml and name that with placement.board."
            )
        return board.as_one_die() if self.scope == "board" else board

    @property
    def design(self) -> Design:
        """The board's design; known once a run is opened."""
        if self._board.design is None:
            raise RuntimeError("the design is chosen when a run is opened, which none has been")
        return self._board.design

    def explore(
        self,
        workload: Workload,
        layers: tuple[LayerShape, ...],
        profile: BatchProfile,
        board: Board,
    ) -> Sweep:
        """Apply Algorithm 4 to mini-batches of this size, or evaluate the one given design."""
        batch = Batch(
            vertices=profile.vertices,
            edges=profile.edges,
            widths=workload.dims,
            update_widths=tuple(layer.macs_per_row / layer.out_features for layer in layers),
            itemsize=workload.itemsize,
        )
        if not self.n:
            return explore(batch, board, macs=self.macs)
        design = cut_weights(Design(self.n, self.m), board, "die", batch.buffers)
        point = evaluate(batch, design, board, "paper")
        return Sweep(board.name, "paper", (point,), point, (point,))

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> SeedSession:
        board = self.find_board(self.trainers(setting.platform)[0])
        full = profiles[-1]
        sweep = self.explore(setting.workload, setting.layers, full, board)
        point = sweep.best
        chosen = "given" if self.n else f"best of {len(sweep.points)}"
        self._board.design = point.design
        host = setting.platform.host
        threads = choose_threads(
            sum(full.edges), host.rates.sampled_edges_per_s, point.propagate_s, host.cores
        )
        sample_s = sampling_seconds(sum(full.edges), host.rates.sampled_edges_per_s, threads)
        hidden = (
            ""
            if sample_s < point.propagate_s
            else (
                f", which take {sample_s * 1e3:.3g} ms: the host has no more, and the board waits"
            )
        )
        tile = f", W in tiles of {point.design.tile} rows" if point.design.tile else ""
        note = (
            f"{board.name}: n = {point.design.n}, m = {point.design.m} a {self.scope}{tile} "
            f"({chosen}; "
            f"{point.usage.dsp:,.0f} DSPs, {point.usage.lut:,.0f} LUTs); by the equations a round "
            f"propagates in {point.propagate_s * 1e3:.3g} ms, and {threads} host "
            f"thread{'s' if threads > 1 else ''} sample{'' if threads > 1 else 's'}{hidden}"
        )
        return BoardSession(HostThreads(sample=threads), note)
