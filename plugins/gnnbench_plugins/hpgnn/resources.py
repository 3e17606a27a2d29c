"""What a design takes of a board: HP-GNN, Equations 10 and 11."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from gnnbench.constants import Constant
from gnnbench_plugins.hpgnn.boards import Board

#: Of what the resources are that one kernel may take: of its die, or, as the authors' script has
#: it, of the whole board although the board holds one kernel a die.
BoardScope = Literal["die", "board"]
#: A word: one DDR4 burst, one lane of 16 floats.
WORD_BYTES: Annotated[int, Constant("B", "quoted", "HP-GNN, section 4: 512 bits")] = 64


@dataclass(frozen=True, slots=True)
class Design:
    """The hardware parameters of one die: ``n`` scatter and gather PEs, ``m`` MACs."""

    n: int
    m: int


@dataclass(frozen=True, slots=True)
class Usage:
    """DSPs and LUTs of one die's kernels."""

    dsp: float
    lut: float


def usage_of(design: Design, board: Board) -> Usage:
    """DSP = lambda1 m + lambda2 n; LUT = rho1 m + rho2 n + rho3 n/2 log2 n (the network)."""
    n, m = design.n, design.m
    return Usage(
        dsp=board.lambda1 * m + board.lambda2 * n,
        lut=board.rho1 * m + board.rho2 * n + board.rho3 * n * 0.5 * math.log2(n),
    )


def budget_of(board: Board, scope: BoardScope) -> Usage:
    """The DSPs, and the share of the LUTs, that one kernel may take."""
    share = board.dies if scope == "die" else 1
    return Usage(dsp=board.dsp / share, lut=board.lut_share * board.lut / share)


def find_excess(design: Design, board: Board, scope: BoardScope) -> str | None:
    """Why a design cannot be built, as a sentence; None where it can."""
    if design.n < 1 or design.n & (design.n - 1) or design.m < 1 or design.m & (design.m - 1):
        return (
            f"a design of n = {design.n} and m = {design.m} cannot be built; both must be powers "
            f"of two."
        )
    used, budget = usage_of(design, board), budget_of(board, scope)
    for what, taken, there in (("DSPs", used.dsp, budget.dsp), ("LUTs", used.lut, budget.lut)):
        if taken > there:
            return (
                f"a design of n = {design.n} and m = {design.m} takes {taken:,.0f} {what}, and "
                f"a {scope} of {board.name} has {there:,.0f} for it; use fewer PEs or MACs."
            )
    return None


def count_words(width: int, itemsize: int) -> int:
    """Words of a row of ``width`` values."""
    return -(-width * itemsize // WORD_BYTES)


def buffer_words(board: Board) -> int:
    """The words of a die's result buffer, which is all of its UltraRAM."""
    return board.uram_bytes // board.dies // WORD_BYTES


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
