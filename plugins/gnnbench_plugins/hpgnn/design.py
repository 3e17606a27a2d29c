"""HP-GNN's performance model, Equations 3 to 9, and its design space exploration, Algorithm 4.

Two conventions are kept apart. In ``paper`` a design is one die's, on one die's resources. The dies
share the batch and the bandwidth, and forward and backward propagation run beside sampling. In
``script``, as published in the authors' repository, one design uses the whole board's resources. It
computes the whole batch with the whole bandwidth, forward only, and the throughput is multiplied by
the dies.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

from gnnbench.constants import Bound
from gnnbench.errors import UsageError
from gnnbench.records import Cell, Table, TableRow
from gnnbench_plugins.hpgnn.boards import Board
from gnnbench_plugins.hpgnn.resources import (
    LANES,
    BoardScope,
    Buffers,
    Design,
    Usage,
    count_words,
    cut_weights,
    find_buffers,
    find_excess,
    find_lack,
    usage_of,
)

Convention = Literal["paper", "script"]
#: "square": m is the square of a power of two, as the text has it; "power": any power of two, as in
#: the script.
Macs = Literal["square", "power"]
#: Relative difference below which throughputs are equal.
TIE: Bound[float] = 1e-9


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch configuration: |B^0| .. |B^L|, |E^1| .. |E^L|, f^0 .. f^L.

    ``update_widths`` are the lengths of the rows that UPDATE multiplies by W, one a layer: f^{l-1}
    for GCN, twice as long for GraphSAGE. The default is f^{l-1}.
    """

    vertices: tuple[float, ...]
    edges: tuple[float, ...]
    widths: tuple[int, ...]
    update_widths: tuple[float, ...] | None = None
    itemsize: Bound[int] = 4

    @property
    def macs_per_row(self) -> tuple[float, ...]:
        inner = self.update_widths or self.widths[:-1]
        return tuple(a * b for a, b in zip(inner, self.widths[1:], strict=True))

    @property
    def buffers(self) -> Buffers:
        """The on-chip buffers that its layers need."""
        inner = self.update_widths or tuple(map(float, self.widths[:-1]))
        return find_buffers(self.widths, inner, self.itemsize, self.vertices)

    @property
    def feature_bytes(self) -> float:
        """Bytes of X', the mini-batch's input features."""
        return self.vertices[0] * self.widths[0] * self.itemsize


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Equations 8 and 9 for one layer in one direction, in seconds."""

    load_s: float
    compute_s: float
    update_s: float

    @property
    def aggregate_s(self) -> float:
        """Equation 7: loading and computing are pipelined."""
        return max(self.load_s, self.compute_s)

    @property
    def total_s(self) -> float:
        """One term of Equation 6: aggregation and update are pipelined."""
        return max(self.aggregate_s, self.update_s)


def aggregate_times(
    rows: float, edges: float, width: int, itemsize: int, n: float, board: Board, *, first: bool
) -> tuple[float, float]:
    """Return Equation 8: t_load = |B| f S / (BW alpha), t_compute = |E| f / (n 16 freq)."""
    alpha = board.coefficients.alpha_first if first else board.coefficients.alpha_later
    return (
        rows * width * itemsize / (board.memory.bandwidth_bytes_per_s * alpha),
        edges * width / (n * LANES * board.clock_hz),
    )


def update_seconds(macs: float, m: float, board: Board) -> float:
    """Return Equation 9: t_update = MACs / (m freq)."""
    return macs / (m * board.clock_hz)


def forward_times(
    batch: Batch, design: Design, board: Board, convention: Convention
) -> tuple[LayerTimes, ...]:
    """Return t_load, t_compute and t_update of each layer's forward propagation."""
    kernels = board.dies if convention == "paper" else 1
    times = []
    for layer, edges in enumerate(batch.edges):
        load_s, compute_s = aggregate_times(
            batch.vertices[layer], edges, batch.widths[layer], batch.itemsize,
            design.n * kernels, board, first=layer == 0,
        )  # fmt: skip
        macs = batch.vertices[layer + 1] * batch.macs_per_row[layer]
        times.append(LayerTimes(load_s, compute_s, update_seconds(macs, design.m * kernels, board)))
    return tuple(times)


def backward_times(batch: Batch, design: Design, board: Board) -> tuple[LayerTimes, ...]:
    """Return each layer's backward times; layer 1 only updates.

    Gradients of |B^l| rows are loaded in sequence. Like the forward equations, it counts one
    product for UPDATE.
    """
    times = []
    for layer, forward in enumerate(forward_times(batch, design, board, "paper")):
        if layer == 0:
            times.append(LayerTimes(0.0, 0.0, forward.update_s))
            continue
        load_s, compute_s = aggregate_times(
            batch.vertices[layer + 1], batch.edges[layer], batch.widths[layer], batch.itemsize,
            design.n * board.dies, board, first=False,
        )  # fmt: skip
        times.append(LayerTimes(load_s, compute_s, forward.update_s))
    return tuple(times)


@dataclass(frozen=True, slots=True)
class Point:
    """One design of the sweep: its resources, its times, and vertices traversed per second.

    ``propagate_s`` is t_GNN without the host's work (loss, weight update). ``iteration_s`` is
    Equation 4, the longer of propagation and sampling.
    """

    design: Design
    usage: Usage
    propagate_s: float
    iteration_s: float
    vertices_per_s: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Every design that fits, the best, and its ties, fewest resources first."""

    board: str
    convention: Convention
    points: tuple[Point, ...]
    best: Point
    ties: tuple[Point, ...]


def evaluate(
    batch: Batch, design: Design, board: Board, convention: Convention, sample_s: float = 0.0
) -> Point:
    """Apply Equations 3 to 6 to one design."""
    propagate_s = sum(times.total_s for times in forward_times(batch, design, board, convention))
    kernels = board.dies
    if convention == "paper":
        propagate_s += sum(times.total_s for times in backward_times(batch, design, board))
        kernels = 1
    iteration_s = max(propagate_s, sample_s)
    return Point(
        design,
        usage_of(design, board, batch.buffers if convention == "paper" else None),
        propagate_s,
        iteration_s,
        kernels * sum(batch.vertices) / iteration_s,
    )


def find_misfit(
    board: Board, row_words: int, scope: BoardScope = "die", buffers: Buffers | None = None
) -> str | None:
    """Return a sentence on why not even the smallest design fits; None if one does."""
    design = Design(1, 1)
    if buffers is not None:
        design = cut_weights(design, board, scope, buffers)
    if find_excess(design, board, scope, buffers) is None:
        return find_lack(1, row_words, board)
    return (
        f"no design fits a {scope} of {board.name}, not even n = 1 and m = 1; name a larger board."
    )


def explore(
    batch: Batch,
    board: Board,
    *,
    convention: Convention = "paper",
    macs: Macs = "square",
    sample_s: float = 0.0,
) -> Sweep:
    """Apply Algorithm 4: n is a power of two, m a power of two or its square.

    A design fits by DSPs and LUTs (Equations 10 and 11). Except in the script's convention, on-chip
    memory limits it too. The memory holds W whole or in tiles (``cut_weights``). A die's result
    buffer must keep a row for each gather PE. Among equally fast designs the best has the fewest
    LUTs, then DSPs. ``sample_s`` is t_sampling of Equation 4. Raises ``UsageError`` if the batch's
    features do not fit the board, or if no design does.
    """
    if batch.feature_bytes > board.memory.memory_bytes:
        raise UsageError(
            f"the batch's features take {batch.feature_bytes:,.0f} bytes, and {board.name} has "
            f"{board.memory.memory_bytes:,}; use a smaller batch or fan-out."
        )
    scope: BoardScope = "die" if convention == "paper" else "board"
    buffers = batch.buffers if convention == "paper" else None

    def make(n: int, m: int) -> Design | None:
        design = Design(n, m)
        if buffers is not None:
            design = cut_weights(design, board, scope, buffers)
        return design if find_excess(design, board, scope, buffers) is None else None

    words = max(count_words(width, batch.itemsize) for width in batch.widths[:-1])
    points = []
    n = 1
    while make(n, 1) is not None and find_lack(n, words, board) is None:
        m = 1
        while (design := make(n, m)) is not None:
            points.append(evaluate(batch, design, board, convention, sample_s))
            m *= 4 if macs == "square" else 2
        n *= 2
    if not points:
        raise UsageError(str(find_misfit(board, words, scope, buffers)))
    fastest = max(point.vertices_per_s for point in points)
    ties = sorted(
        (point for point in points if point.vertices_per_s >= fastest * (1 - TIE)),
        key=lambda point: (point.usage.lut, point.usage.dsp),
    )
    return Sweep(board.name, convention, tuple(points), ties[0], tuple(ties))


def choose_threads(sampled_edges: float, edges_per_s: float, propagate_s: float, most: int) -> int:
    """Return the fewest host threads with t_sampling < t_propagation (section 5.1).

    They are at most ``most``. A thread draws ``edges_per_s``; sampling is assumed to scale with
    threads.
    """
    if propagate_s <= 0:
        return most
    return min(most, int(sampled_edges / (edges_per_s * propagate_s)) + 1)


def sampling_seconds(sampled_edges: float, edges_per_s: float, threads: int) -> float:
    """Return t_sampling of Equation 4; sampling is assumed to scale with threads."""
    return sampled_edges / (edges_per_s * threads)


def tabulate(sweep: Sweep) -> Table:
    """Return the whole sweep, one design a row."""
    ties = {point.design for point in sweep.ties}
    rows = []
    for point in sweep.points:
        mark = ""
        if point.design in ties:
            mark = " (best)" if point is sweep.best else " (ties with it)"
        rows.append(
            TableRow(
                f"n = {point.design.n}, m = {point.design.m}{mark}",
                (
                    Cell(point.usage.dsp),
                    Cell(point.usage.lut),
                    Cell(point.usage.bram),
                    Cell(point.usage.uram),
                    Cell(point.propagate_s, "s"),
                    Cell(point.vertices_per_s, "vertices/s"),
                ),
            )
        )
    return Table(
        name="hpgnn-designs",
        title=f"designs for {sweep.board}, {sweep.convention} convention",
        columns=("DSP", "LUT", "BRAM", "URAM", "propagation", "throughput"),
        rows=tuple(rows),
    )


def chart(sweep: Sweep, name: str, title: str) -> Table:
    """Return the whole sweep as curves: throughput by n, one curve for each m."""
    rates = {(each.design.n, each.design.m): each.vertices_per_s for each in sweep.points}
    ns, ms = sorted({n for n, _ in rates}), sorted({m for _, m in rates})
    best = sweep.best
    ties = ", ".join(f"({tie.design.n}, {tie.design.m})" for tie in sweep.ties)
    return Table(
        name=name,
        title=title,
        columns=tuple(map(str, ns)),
        rows=tuple(
            TableRow(f"m = {m}", tuple(Cell(rates.get((n, m)), "vertices/s") for n in ns))
            for m in ms
        ),
        notes=(
            f"the best of {len(sweep.points)} designs is n = {best.design.n}, m = {best.design.m}: "
            f"{best.usage.dsp:,.0f} DSPs, {best.usage.lut:,.0f} LUTs, a mini-batch in "
            f"{best.propagate_s * 1e3:.3g} ms",
            f"these designs (n, m) are as fast as the best, fewest resources first: {ties}",
            f"columns are n, rows m; where a cell is empty the design does not fit {sweep.board}",
        ),
        axis="n, scatter and gather PEs",
    )


def to_json(sweep: Sweep) -> str:
    """Return the whole sweep as JSON; every time is modelled."""
    return json.dumps({"provenance": "modelled", **dataclasses.asdict(sweep)}, indent=1)
