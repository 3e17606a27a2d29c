"""Resources of a design on a board: HP-GNN, Equations 10 and 11, and the memory on the chip.

Equations 10 and 11 count DSPs and LUTs, "used the most". Block RAM and UltraRAM are counted as the
generated kernels (``templates/``) declare them. The update kernel's buffers and the streams of the
network are in block RAM, the words of gather PEs in UltraRAM. Forward and backward propagation
share one array of MACs in turn, so nothing counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from gnnbench.constants import Bound, Constant
from gnnbench.parts import LayerShape
from gnnbench_plugins.hpgnn.boards import Board

#: The resources that one kernel may take: its die's, or, as in the authors' script, the whole
#: board's although the board holds one kernel a die.
BoardScope = Literal["die", "board"]
#: A word: one DDR4 burst, one lane of 16 floats.
WORD_BYTES: Annotated[int, Constant("B", "quoted", "HP-GNN, section 4: 512 bits")] = 64
LANES: Annotated[int, Constant("", "quoted", "HP-GNN's script: 16 floats a 512-bit word")] = 16
#: Half a block RAM: 512 words of 36 bits, or 16,384 words of one bit.
BRAM18_WORDS: Annotated[int, Constant("", "quoted", "Xilinx UG573: block RAM")] = 512
BRAM18_BITS: Annotated[int, Constant("bit", "quoted", "Xilinx UG573: block RAM")] = 36
BRAM18_FLAGS: Annotated[int, Constant("", "quoted", "Xilinx UG573: block RAM")] = 16384
#: UltraRAM blocks side by side for a word of 512 bits, and words of each block.
URAM_SIDE_BY_SIDE: Annotated[int, Constant("", "quoted", "Xilinx UG573: 72 bits a word")] = 8
URAM_WORDS: Annotated[int, Constant("", "quoted", "Xilinx UG573: UltraRAM")] = 4096
#: An update in the network: a word, its row and number, its position, and a mark.
UPDATE_BITS: Bound[int] = 512 + 32 + 32 + 5 + 1


@dataclass(frozen=True, slots=True)
class Design:
    """The hardware parameters of one die: ``n`` scatter and gather PEs, ``m`` MACs.

    The weight buffer holds ``tile`` rows of W at a time; 0 stands for all of them.
    """

    n: int
    m: int
    tile: int = 0


@dataclass(frozen=True, slots=True)
class Buffers:
    """The on-chip memory that a model and its mini-batches need in the kernels of a design.

    ``inner`` is the longest row that UPDATE multiplies, ``columns`` the most columns of its result.
    ``weights`` counts the values of the largest W, padded to whole words. ``row_words`` are the
    words of the widest aggregated row, ``gathered_words`` of the largest layer's sums on all dies
    together. ``factors`` are the rows and padded columns of the matrices that the weight buffer
    holds in turn.
    """

    inner: int
    columns: int
    weights: int
    row_words: int
    gathered_words: float = 0.0
    factors: tuple[tuple[int, int], ...] = ()

    def cut(self, tile: int) -> Buffers:
        """Return the buffers of products by blocks, each of ``tile`` rows of W (0: all)."""
        if not tile:
            return self
        weights = max(min(rows, tile) * columns for rows, columns in self.factors)
        return replace(self, inner=min(self.inner, tile), weights=weights)


@dataclass(frozen=True, slots=True)
class Usage:
    """DSPs, LUTs, block RAMs of 36 Kb and UltraRAM blocks of one die's kernels."""

    dsp: float
    lut: float
    bram: float = 0.0
    uram: float = 0.0


def find_buffers(
    widths: Sequence[int],
    inner: Sequence[float],
    itemsize: int = 4,
    vertices: Sequence[float] | None = None,
) -> Buffers:
    """Return the buffers of layers f^0 .. f^L that multiply rows of ``inner`` values.

    They cover the forward products, W's gradients, and from the second layer on the gradients of
    the multiplied rows. ``vertices`` are |B^0| .. |B^L| of the mini-batches. In the backward pass a
    layer sums one row for each of its sources.
    """
    longest = [math.ceil(each) for each in inner]
    out = [_fill(width) for width in widths[1:]]
    back = [_fill(each) for each in longest[1:]]
    gathered = 0.0
    if vertices is not None:
        words = [count_words(width, itemsize) for width in widths[:-1]]
        forward = [rows * each for rows, each in zip(vertices[1:], words, strict=True)]
        backward = [rows * each for rows, each in zip(vertices[1:-1], words[1:], strict=True)]
        gathered = max(*forward, *backward, 0.0)
    factors = (
        *zip(longest, out, strict=True),
        *zip(widths[2:], back, strict=True),
        # W's gradient: at a time, as many rows of gradients as the longest row has values.
        (max(*longest, *widths[1:]), max(out)),
    )
    return Buffers(
        inner=max(*longest, *widths[1:]),
        columns=max(*out, *back, 0),
        weights=max(rows * columns for rows, columns in factors),
        row_words=max(count_words(width, itemsize) for width in widths[:-1]),
        gathered_words=gathered,
        factors=factors,
    )


def _fill(width: int) -> int:
    """Round up to whole words."""
    return -(-width // LANES) * LANES


def array_shape(m: int) -> tuple[int, int]:
    """Return the systolic array's rows and columns."""
    exponent = m.bit_length() - 1
    return 1 << (exponent + 1) // 2, 1 << exponent // 2


def usage_of(design: Design, board: Board, buffers: Buffers | None = None) -> Usage:
    """Return the usage of a design.

    DSP = lambda1 m + lambda2 n; LUT = rho1 m + rho2 n + rho3 n/2 log2 n (the network). Memory is
    counted if ``buffers`` are given.
    """
    n, m, each = design.n, design.m, board.coefficients
    return Usage(
        dsp=each.lambda1 * m + each.lambda2 * n,
        lut=each.rho1 * m + each.rho2 * n + each.rho3 * n * 0.5 * math.log2(n),
        bram=count_bram(design, board, buffers) if buffers is not None else 0.0,
        uram=count_uram(n, board, buffers) if buffers is not None else 0.0,
    )


def count_bram(design: Design, board: Board, buffers: Buffers) -> float:
    """Return the block RAMs of 36 Kb of one die.

    An array with several accesses in a cycle is cut into as many banks, and each bank takes whole
    halves of a block.
    """
    buffers = buffers.cut(design.tile)
    n, (r, c) = design.n, array_shape(design.m)
    banks, rows, stages = max(LANES, c), board.adder_cycles * r, n.bit_length() - 1
    columns = -(-buffers.columns // banks) * banks
    branch_words = max(1, n // 2) * buffers.row_words + 1
    halves = (
        _halves(buffers.weights, banks)
        + _halves(rows * buffers.inner, r)
        + _halves(rows * columns, banks)
        + 2 * stages * n * _stream_halves(UPDATE_BITS, branch_words)
        + n * _stream_halves(8 * WORD_BYTES, 2 * buffers.row_words)
        + n * math.ceil(gather_words(n, board, buffers) / BRAM18_FLAGS)
    )
    return halves / 2


def _halves(values: int, banks: int) -> int:
    return banks * math.ceil(values / banks / BRAM18_WORDS)


def _stream_halves(bits: int, depth: int) -> int:
    return math.ceil(bits / BRAM18_BITS) * math.ceil(depth / BRAM18_WORDS)


def gather_words(n: int, board: Board, buffers: Buffers) -> int:
    """Return the words that a gather PE keeps.

    They hold its share of the largest layer's sums, in whole UltraRAM blocks, up to the die's
    UltraRAM. If the layers are unknown, they are all there are.
    """
    most = buffer_words(board) // n
    if not buffers.gathered_words:
        return most
    share = math.ceil(buffers.gathered_words / (board.dies * n))
    return min(most, max(buffers.row_words, -(-share // URAM_WORDS) * URAM_WORDS))


def count_uram(n: int, board: Board, buffers: Buffers) -> float:
    """Return the UltraRAM blocks of one die's gather PEs."""
    words = gather_words(n, board, buffers)
    return n * URAM_SIDE_BY_SIDE * math.ceil(words / URAM_WORDS)


def budget_of(board: Board, scope: BoardScope) -> Usage:
    """Return the DSPs, the share of the LUTs, and the memory that one kernel may take."""
    share = board.dies if scope == "die" else 1
    return Usage(
        dsp=board.resources.dsp / share,
        lut=board.resources.lut_share * board.resources.lut / share,
        bram=board.resources.bram / share,
        uram=URAM_SIDE_BY_SIDE * board.resources.uram_bytes / (WORD_BYTES * URAM_WORDS * share),
    )


def find_excess(
    design: Design, board: Board, scope: BoardScope, buffers: Buffers | None = None
) -> str | None:
    """Return a sentence on why a design cannot be built; None if it can.

    Block RAM is checked if ``buffers`` are given.
    """
    if design.n < 1 or design.n & (design.n - 1) or design.m < 1 or design.m & (design.m - 1):
        return (
            f"a design of n = {design.n} and m = {design.m} cannot be built; both must be powers "
            f"of two."
        )
    used, budget = usage_of(design, board, buffers), budget_of(board, scope)
    counted = (
        ("DSPs", used.dsp, budget.dsp, "use fewer PEs or MACs"),
        ("LUTs", used.lut, budget.lut, "use fewer PEs or MACs"),
        ("block RAMs", used.bram, budget.bram, "use fewer PEs or MACs, or narrower layers"),
    )
    for what, taken, there, mend in counted:
        if taken > there:
            return (
                f"a design of n = {design.n} and m = {design.m} takes {taken:,.0f} {what}, and "
                f"a {scope} of {board.name} has {there:,.0f} for it; {mend}."
            )
    return None


def cut_weights(design: Design, board: Board, scope: BoardScope, buffers: Buffers) -> Design:
    """Return the design with the tile of W that its weight buffer holds.

    The paper keeps W on the chip, since it "is small", and multiplies by blocks (section 4.2). W is
    therefore cut only if not even the smallest design has room for all of it. It is halved until
    the design fits or a tile has a word of rows.
    """
    if find_excess(Design(1, 1), board, scope, buffers) is None:
        return design
    rows = buffers.inner
    while rows > LANES and find_excess(design, board, scope, buffers) is not None:
        rows = -(-rows // 2)
        design = replace(design, tile=rows)
    return design


def count_words(width: int, itemsize: int) -> int:
    """Return the words of a row of ``width`` values."""
    return -(-width * itemsize // WORD_BYTES)


def buffer_words(board: Board) -> int:
    """Return the words of a die's result buffer, which is all of its UltraRAM."""
    return board.resources.uram_bytes // board.dies // WORD_BYTES


def activation_words(
    destinations: Sequence[int], layers: Sequence[LayerShape], n: int, board: Board, itemsize: int
) -> int:
    """Return the words of a die's UltraRAM that hold a mini-batch's sums and results.

    The mini-batch has |B^1| .. |B^L|. The last layer's results are not kept. Each gather PE holds
    whole rows.
    """
    words, last = 0, len(layers) - 1
    for number, (rows, layer) in enumerate(zip(destinations, layers, strict=True)):
        rows_of_pe = math.ceil(math.ceil(rows / board.dies) / n)
        row_words = count_words(layer.aggregate_features, itemsize)
        if number != last:
            row_words += count_words(layer.out_features, itemsize)
        words += n * rows_of_pe * row_words
    return words


def find_lack(n: int, row_words: int, board: Board) -> str | None:
    """Return a sentence on why a die's result buffer lacks a row for each gather PE.

    It is None if the buffer has these rows: then rows without room are spilled.
    """
    words = buffer_words(board)
    if n * row_words <= words:
        return None
    return (
        f"the result buffer of a die of {board.name} has {words:,} words, too few for a row of "
        f"{row_words:,} at each of {n} gather PEs. Use narrower layers, fewer PEs, or a board "
        f"with more UltraRAM."
    )
