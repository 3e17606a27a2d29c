"""FPGA boards. ``u250.toml`` and ``u200.toml`` are described here.

To use another board, copy one of these files, and name the copy as the board.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from gnnbench.errors import UsageError
from gnnbench.host.files import FileRefusedError
from gnnbench.host.toml import read_toml
from gnnbench.machines.machine import Count, Seconds
from gnnbench.machines.refusals import explain, suggest
from gnnbench.machines.tables import Key, Positive, Table, Text

BUNDLED = Path(__file__).parent / "boards"

_Size = Annotated[int, Field(gt=0, lt=2**40), Key(unit="")]
_Count = Annotated[Count, Key(unit="")]
_Share = Annotated[float, Field(gt=0, le=1), Key(unit="")]
_Coefficient = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False), Key(unit="")]


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a whole board.

    ``bram`` counts 36 Kb blocks. ``lut_share`` is the largest share of the LUTs of a design.
    """

    dsp: _Size
    lut: _Size
    bram: _Size
    uram_bytes: _Size
    lut_share: _Share


@dataclass(frozen=True, slots=True)
class BoardMemory:
    """The DRAM of a whole board."""

    memory_bytes: Annotated[int, Key("memory", "B")]
    channels: _Count
    bandwidth_bytes_per_s: Annotated[Positive, Key("bandwidth", "B/s")]
    page_bytes: _Size
    banks: _Count
    page_miss_s: Annotated[Seconds, Key("page_miss", "s")]
    access_s: Annotated[Seconds, Key("access", "s")]


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of HP-GNN's equations.

    ``alpha_first`` and ``alpha_later`` are Equation 8's alpha. ``lambda1`` to ``rho3`` are the
    coefficients of Equations 10 and 11.
    """

    alpha_first: _Share
    alpha_later: _Share
    lambda1: _Coefficient
    lambda2: _Coefficient
    rho1: _Coefficient
    rho2: _Coefficient
    rho3: _Coefficient


@dataclass(frozen=True, slots=True)
class Board:
    """An FPGA board, and the cycles of the kernels that are built on it."""

    name: Annotated[Text, Key()]
    model: Annotated[Text, Key()]
    dies: _Count
    resources: Resources
    memory: BoardMemory
    coefficients: Coefficients
    clock_hz: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), Key("clock", "Hz")]
    adder_cycles: _Count
    fifo_updates: _Count

    def as_one_die(self) -> Board:
        """Return the board as one die with one channel, as published designs count it.

        One kernel then has all resources and the whole bandwidth.
        """
        return replace(self, dies=1, memory=replace(self.memory, channels=1))


def load_board(spec: str) -> Board:
    """Return the board called ``spec``, or described by the ``.toml`` file at that path.

    Raises ``UsageError`` with one sentence for an unknown name, and for a file that cannot be read
    or breaks the schema.
    """
    path = Path(spec)
    if path.suffix != ".toml":
        bundled = {path.stem: path for path in sorted(BUNDLED.glob("*.toml"))}
        if spec not in bundled:
            raise UsageError(
                f"there is no board called {spec!r}; {suggest(spec, bundled)}, or name a .toml "
                f"file."
            )
        path = bundled[spec]
    try:
        data = read_toml(path)
        board = _adapt().validate_python(data)
    except FileRefusedError as error:
        raise UsageError(
            f"board file {path} cannot be read: {error.reason}; start from a copy of u250.toml."
        ) from None
    except ValidationError as error:
        raise UsageError(f"board file {path}: {explain(error, data, _ROOT)}.") from None
    _check(board, path)
    return board


def find_board(model: str) -> Board | None:
    """Return the bundled board of this model, as a platform names it."""
    return next((board for board in load_bundled() if board.model == model), None)


@cache
def load_bundled() -> tuple[Board, ...]:
    """Return all bundled boards by name, read once: each kernel time needs one of them."""
    return tuple(load_board(path.stem) for path in sorted(BUNDLED.glob("*.toml")))


_ROOT = Annotated[Board, Table()]


@cache
def _adapt() -> TypeAdapter[Board]:
    return TypeAdapter(_ROOT)


def _check(board: Board, path: Path) -> None:
    """Raise ``UsageError`` if numbers of a board contradict each other."""
    memory = board.memory
    if memory.page_bytes & (memory.page_bytes - 1) or memory.page_bytes < 64:
        raise UsageError(
            f"board file {path}: page_bytes is {memory.page_bytes}; a DRAM page is a power of two "
            f"of 64 bytes or more."
        )
    if memory.channels < board.dies:
        raise UsageError(
            f"board file {path}: {board.dies} dies and {memory.channels} channels; each die needs "
            f"a DDR channel, so give as many dies as there are channels."
        )
