"""A layer on the board, cycle by cycle: aggregation, and the update kernel behind or before it.

``gnnbench.kernels.dispatch.fpga.simulate_aggregation`` simulates aggregation; its twin has the
rules. The other rules are regular (HP-GNN, section 4.2). Rules that the paper leaves open are
marked *assumed*.

- **Weights** are read once a layer into each die's weight buffer, before the first edge. If the
  buffer holds a tile of W's rows (``Design.tile``), products are by blocks. W is then read once for
  every ``adder_cycles`` groups of rows. One tile loads while another is multiplied by (*assumed*).
- **Systolic array.** It has m MACs as r x c, r >= c and r c = m, square if m is the square of a
  power of two. It multiplies r rows by c columns of W in as many cycles as a row is long, block
  after block without a gap. It takes r + c - 2 cycles to fill and drain, and 1 for the
  element-wise operator. Rows and columns that do not fill the array take their full time.
- **Pipelining.** Forward, the r rows of a group enter when the last of their sums is complete
  (*assumed*: groups follow the order of the rows). Backward, the gradients of a group of
  aggregates are ready for the scatter PEs when its products are. The product for W follows.
- **Write-back.** When a die's last sum is complete, its sums and then the update's results go to
  its channel in sequence, beside the update (*assumed*: rows already complete wait on the chip).
- **Datapath.** In HyScale-GNN's (Figure 6) sums and results stay on the chip, and only the last
  layer's results are written. A :class:`Datapath` says which rows of a layer go through memory.
  Rows on the chip are available when they are ready. Layers are still in sequence (its
  Equation 10).

The layer ends when the last die has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnbench.constants import Bound
from gnnbench.kernels.dispatch import fpga
from gnnbench.kernels.reference.fpga import Aggregation, Channel, Machine, first_rows
from gnnbench.parts import LayerShape
from gnnbench.records import IntArray
from gnnbench_plugins.hpgnn.boards import Board, BoardMemory
from gnnbench_plugins.hpgnn.layout import EdgeStream, LaidOutBlock
from gnnbench_plugins.hpgnn.resources import (
    WORD_BYTES,
    Design,
    array_shape,
    buffer_words,
    count_words,
)

TICKS_PER_S: Bound[float] = 1e12


@dataclass(frozen=True, slots=True)
class Datapath:
    """The rows of a layer that go through the board's memory: loaded rows, sums, and results.

    In HP-GNN all of them do.
    """

    loads: bool = True
    sums: bool = True
    results: bool = True


THROUGH_MEMORY = Datapath()


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A layer in one direction: cycles until the last sum, and until its end."""

    aggregate_cycles: int
    cycles: int
    aggregation: Aggregation


def make_machine(board: Board, design: Design) -> Machine:
    """Return the aggregate kernels of a design on a board, in ticks of a picosecond."""
    return Machine(
        dies=board.dies,
        pes=design.n,
        adder_cycles=board.adder_cycles,
        fifo_updates=board.fifo_updates,
        buffer_words=buffer_words(board),
        cycle_ticks=round(TICKS_PER_S / board.clock_hz),
        channel=_make_channel(board.memory),
    )


def _make_channel(memory: BoardMemory) -> Channel:
    channel_bytes_per_s = memory.bandwidth_bytes_per_s / memory.channels
    burst_ticks = round(TICKS_PER_S * WORD_BYTES / channel_bytes_per_s)
    miss_ticks = round(TICKS_PER_S * memory.page_miss_s)
    return Channel(
        burst_ticks=burst_ticks,
        miss_ticks=miss_ticks,
        latency_ticks=round(TICKS_PER_S * memory.access_s),
        # A page is opened once for all of its words.
        edge_ticks=burst_ticks + miss_ticks * WORD_BYTES // memory.page_bytes,
        page_words=memory.page_bytes // WORD_BYTES,
        banks=memory.banks,
    )


def product_cycles(rows: int, inner: int, columns: int, m: int) -> int:
    """Return the cycles of ``(rows, inner)`` times ``(inner, columns)`` on one die.

    All inputs are available from the start.
    """
    r, c = array_shape(m)
    blocks = -(-rows // r) * -(-columns // c)
    return blocks * inner + r + c - 1 if blocks else 0


def run_forward(
    stream: EdgeStream,
    shape: LayerShape,
    machine: Machine,
    m: int,
    *,
    itemsize: int = 4,
    path: Datapath = THROUGH_MEMORY,
    tile: int = 0,
) -> Pass:
    """Simulate aggregation, and UPDATE as its rows complete. W is held ``tile`` rows at a time."""
    begin, again = _weight_cycles(_inner(shape), shape.out_features, machine, itemsize, tile)
    ready = np.full(len(stream.address), begin, dtype=np.int64)
    row_words = count_words(shape.in_features, itemsize)
    aggregation = _aggregate(stream, machine, row_words, ready, begin, path)
    r, c = array_shape(m)
    group_cycles = max(-(-shape.out_features // c) * _inner(shape), again)
    written_words = path.sums * count_words(shape.aggregate_features, itemsize)
    written_words += path.results * count_words(shape.out_features, itemsize)
    first = first_rows(stream.num_dst, machine.dies)
    end = 0
    for die in range(machine.dies):
        complete = np.maximum(aggregation.complete[first[die] : first[die + 1]], begin)
        if not len(complete):
            continue
        updated = int(_enter_groups(complete, r, group_cycles)[-1]) + r + c - 1
        written = int(complete.max()) + _burst_cycles(len(complete) * written_words, machine)
        end = max(end, updated, written)
    return Pass(int(aggregation.cycles.max()), end, aggregation)


def run_backward(
    stream: EdgeStream,
    shape: LayerShape,
    machine: Machine,
    m: int,
    *,
    itemsize: int = 4,
    path: Datapath = THROUGH_MEMORY,
    tile: int = 0,
) -> Pass:
    """Simulate the products for the aggregates' gradients, their aggregation, and W's product."""
    num_rows = len(stream.address)
    begin, again = _weight_cycles(shape.out_features, _inner(shape), machine, itemsize, tile)
    r, c = array_shape(m)
    group_cycles = max(-(-_inner(shape) // c) * shape.out_features, again)
    first = first_rows(num_rows, machine.dies)
    ready = np.zeros(num_rows, dtype=np.int64)
    end = 0
    for die in range(machine.dies):
        rows = int(first[die + 1] - first[die])
        if not rows:
            continue
        entered = _enter_groups(np.full(rows, begin), r, group_cycles)
        ready[first[die] : first[die + 1]] = np.repeat(entered + r + c - 1, r)[:rows]
        product = product_cycles(_inner(shape), rows, shape.out_features, m)
        end = max(end, int(entered[-1]) + product)
    row_words = count_words(shape.in_features, itemsize)
    aggregation = _aggregate(stream, machine, row_words, ready, begin, path)
    rows = int(np.diff(first_rows(stream.num_dst, machine.dies)).max())
    done = int(aggregation.cycles.max())
    written_words = path.results * rows * row_words
    return Pass(done, max(end, done + _burst_cycles(written_words, machine)), aggregation)


def run_iteration(
    blocks: Sequence[LaidOutBlock], layers: Sequence[LayerShape], machine: Machine, m: int
) -> tuple[tuple[Pass, ...], int]:
    """Simulate a float32 mini-batch; return its passes and all cycles.

    The forward passes come first, then the backward passes, last layer first. The first layer has
    no backward pass except the product for W, which counts among the cycles.
    """
    passes = [
        run_forward(block.forward, shape, machine, m)
        for block, shape in zip(blocks, layers, strict=True)
    ]
    cycles = 0
    for block, shape in reversed(list(zip(blocks, layers, strict=True))):
        if block.backward is not None:
            passes.append(run_backward(block.backward, shape, machine, m))
        else:
            rows = int(np.diff(first_rows(block.num_dst, machine.dies)).max())
            cycles += product_cycles(_inner(shape), rows, shape.out_features, m)
    return tuple(passes), cycles + sum(each.cycles for each in passes)


def run_products(rows: int, inner: int, out_width: int, machine: Machine, m: int) -> int:
    """Return the cycles of UPDATE alone on the die with the most rows."""
    busiest = int(np.diff(first_rows(rows, machine.dies)).max())
    return product_cycles(busiest, inner, out_width, m)


def seconds_of(cycles: int, machine: Machine) -> float:
    """Return the seconds of a number of cycles."""
    return cycles * machine.cycle_ticks / TICKS_PER_S


def _inner(shape: LayerShape) -> int:
    """Return how many values of a row UPDATE multiplies for each of its outputs."""
    return shape.macs_per_row // shape.out_features


def _burst_cycles(words: int, machine: Machine) -> int:
    """Return the cycles in which a die's channel reads or writes ``words`` in sequence."""
    return -(-words * machine.channel.burst_ticks // machine.cycle_ticks)


def _weight_cycles(
    rows: int, columns: int, machine: Machine, itemsize: int, tile: int
) -> tuple[int, int]:
    """Return the cycles until W's first tile is loaded, and each group's least wait for tiles."""
    whole = _burst_cycles(count_words(rows * columns, itemsize), machine)
    if not 0 < tile < rows:
        return whole, 0
    first = _burst_cycles(count_words(tile * columns, itemsize), machine)
    return first, -(-whole // machine.adder_cycles)


def _enter_groups(complete: IntArray, r: int, group_cycles: int) -> IntArray:
    """Return the cycle at which each group of r rows has entered the array."""
    count = -(-len(complete) // r)
    ready = np.maximum.reduceat(complete, np.arange(0, len(complete), r))
    turns = np.arange(count, dtype=np.int64) * group_cycles
    entered: IntArray = np.maximum.accumulate(ready - turns) + turns + group_cycles
    return entered


def _aggregate(
    stream: EdgeStream,
    machine: Machine,
    row_words: int,
    ready: IntArray,
    begin: int,
    path: Datapath,
) -> Aggregation:
    if not path.loads:
        channel = replace(machine.channel, burst_ticks=0, miss_ticks=0, latency_ticks=0)
        machine = replace(machine, channel=channel)
    return fpga.simulate_aggregation(
        stream.src,
        stream.dst,
        stream.address,
        stream.num_dst,
        row_words,
        machine,
        ready=ready,
        begin=begin,
    )
