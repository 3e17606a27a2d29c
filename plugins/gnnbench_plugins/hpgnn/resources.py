"""What a design takes of a board: HP-GNN, Equations 10 and 11, and the memory on the chip.

Equations 10 and 11 count DSPs and LUTs, "used the most". Block RAM and UltraRAM are counted here as
the generated kernels (``templates/``) declare them: the update kernel's buffers and the streams of
the network in block RAM, what the gather PEs keep in UltraRAM. Forward and backward propagation
take turns on one array of MACs, so nothing counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from gnnbench.constants import Bound, Constant
from gnnbench.parts import LayerShape
from gnnbench_plugins.hpgnn.boards import Board

#: Of what the resources are that one kernel may take: of its die, or, as the authors' script has
#: it, of the whole board although the board holds one kernel a die.
BoardScope = Literal["die", "board"]
#: A word: one DDR4 burst, one lane of 16 floats.
WORD_BYTES: Annotated[int, Constant("B", "quoted", "HP-GNN, section 4: 512 bits")] = 64
LANES: Annotated[int, Constant("", "quoted", "HP-GNN's script: 16 floats a 512-bit word")] = 16
#: Half a block RAM: 512 words of 36 bits, or 16,384 of one.
BRAM18_WORDS: Annotated[int, Constant("", "quoted", "Xilinx UG573: block RAM")] = 512
BRAM18_BITS: Annotated[int, Constant("bit", "quoted", "Xilinx UG573: block RAM")] = 36
BRAM18_FLAGS: Annotated[int, Constant("", "quoted", "Xilinx UG573: block RAM")] = 16384
#: UltraRAM blocks side by side for a word of 512 bits, of which they then have so many.
URAM_SIDE_BY_SIDE: Annotated[int, Constant("", "quoted", "Xilinx UG573: 72 bits a word")] = 8
URAM_WORDS: Annotated[int, Constant("", "quoted", "Xilinx UG573: UltraRAM")] = 4096
#: An update on its way through the network: a word, its row and number, its place, and a mark.
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
    """What a model and its mini-batches make the kernels of a design keep on the chip.

    ``inner`` and ``columns`` are the longest row that UPDATE multiplies and the most columns that
    it makes of one, ``weights`` the values of the largest W filled up to whole words, ``row_words``
    the words of the widest row that is aggregated, ``gathered_words`` those of the largest layer's
    sums, on all dies together. ``factors`` are the rows and filled columns of what the weight
    buffer holds in turn.
    """

    inner: int
    columns: int
    weights: int
    row_words: int
    gathered_words: float = 0.0
    factors: tuple[tuple[int, int], ...] = ()

    def cut(self, tile: int) -> Buffers:
        """Return what products by blocks keep, of which each reads ``tile`` rows of W (0: all)."""
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
    """Of layers f^0 .. f^L that multiply rows of ``inner`` values; forward, for the gradients of
    W, and from the second layer on for those of what is multiplied.

    ``vertices`` are |B^0| .. |B^L| of the mini-batches; backward a layer sums as many rows as it
    has sources.
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
        # Of W's gradient: as many rows of gradients at a time as the longest row has values.
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
    """Filled up to whole words."""
    return -(-width // LANES) * LANES


def array_shape(m: int) -> tuple[int, int]:
    """The systolic array's rows and columns."""
    exponent = m.bit_length() - 1
    return 1 << (exponent + 1) // 2, 1 << exponent // 2


def usage_of(design: Design, board: Board, buffers: Buffers | None = None) -> Usage:
    """DSP = lambda1 m + lambda2 n; LUT = rho1 m + rho2 n + rho3 n/2 log2 n (the network).

    Memory is counted where ``buffers`` say of what.
    """
    n, m = design.n, design.m
    return Usage(
        dsp=board.lambda1 * m + board.lambda2 * n,
        lut=board.rho1 * m + board.rho2 * n + board.rho3 * n * 0.5 * math.log2(n),
        bram=count_bram(design, board, buffers) if buffers is not None else 0.0,
        uram=count_uram(n, board, buffers) if buffers is not None else 0.0,
    )


def count_bram(design: Design, board: Board, buffers: Buffers) -> float:
    """Block RAMs of 36 Kb of one die: an array that several are read or written of in a cycle is
    cut into as many banks, and each bank takes whole halves of a block."""
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
    """The words that a gather PE keeps: those of its share of the largest layer's sums in whole
    UltraRAM blocks, as far as the die has them; all there are where nobody knows the layers."""
    most = buffer_words(board) // n
    if not buffers.gathered_words:
        return most
    share = math.ceil(buffers.gathered_words / (board.dies * n))
    return min(most, max(buffers.row_words, -(-share // URAM_WORDS) * URAM_WORDS))


def count_uram(n: int, board: Board, buffers: Buffers) -> float:
    """UltraRAM blocks of one die's gather PEs."""
    words = gather_words(n, board, buffers)
    return n * URAM_SIDE_BY_SIDE * math.ceil(words / URAM_WORDS)


def budget_of(board: Board, scope: BoardScope) -> Usage:
    """The DSPs, the share of the LUTs, and the memory that one kernel may take."""
    share = board.dies if scope == "die" else 1
    return Usage(
        dsp=board.dsp / share,
        lut=board.lut_share * board.lut / share,
        bram=board.bram / share,
        uram=URAM_SIDE_BY_SIDE * board.uram_bytes / (WORD_BYTES * URAM_WORDS * share),
    )


def find_excess(
    design: Design, board: Board, scope: BoardScope, buffers: Buffers | None = None
) -> str | None:
    """Why a design cannot be built, as a sentence; None where it can. The memory on the chip is
    asked about where ``buffers`` say what it must hold."""
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

    The paper keeps W on the chip, since it "is small", and multiplies by blocks (section 4.2). So W
    is cut only if not even the smallest design has room for all of it: into halves, and those
    again, until the design fits or a tile has a word of rows.
    """
    if find_excess(Design(1, 1), board, scope, buffers) is None:
        return design
    rows = buffers.inner
    while rows > LANES and find_excess(design, board, scope, buffers) is not None:
        rows = -(-rows // 2)
        design = replace(design, tile=rows)
    return design


def count_words(width: int, itemsize: int) -> int:
    """Words of a row of ``width`` values."""
    return -(-width * itemsize // WORD_BYTES)


def buffer_words(board: Board) -> int:
    """The words of a die's result buffer, which is all of its UltraRAM."""
    return board.uram_bytes // board.dies // WORD_BYTES


def activation_words(
    destinations: Sequence[int], layers: Sequence[LayerShape], n: int, board: Board, itemsize: int
) -> int:
    """What a mini-batch of |B^1| .. |B^L| keeps of a die's UltraRAM where sums and results stay on
    the chip: those of every layer, but the last one's results, in whole rows of each gather PE."""
    words, last = 0, len(layers) - 1
    for number, (rows, layer) in enumerate(zip(destinations, layers, strict=True)):
        rows_of_pe = math.ceil(math.ceil(rows / board.dies) / n)
        row_words = count_words(layer.aggregate_features, itemsize)
        if number != last:
            row_words += count_words(layer.out_features, itemsize)
        words += n * rows_of_pe * row_words
    return words


def find_lack(n: int, row_words: int, board: Board) -> str | None:
    """Why a die's result buffer cannot keep a row for each gather PE, as a sentence; None where it
    can: then rows that find no room are spilled."""
    words = buffer_words(board)
    if n * row_words <= words:
        return None
    return (
        f"the result buffer of a die of {board.name} has {words:,} words, and each of {n} gather "
        f"PEs needs room for a row of {row_words:,}; use narrower layers, fewer PEs, or a board "
        f"with more UltraRAM."
    )
