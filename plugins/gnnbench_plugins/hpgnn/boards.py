"""FPGA boards. ``u250.toml`` and ``u200.toml`` are described here.

To use another board, copy one of these files, and name the copy as the board.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from gnnbench.errors import UsageError
from gnnbench.host.files import FileRefusedError
from gnnbench.host.toml import read_toml
from gnnbench.machines.schema import (
    Bandwidth,
    Capacity,
    Count,
    Duration,
    Marked,
    Quantity,
    Text,
    TomlTable,
    suggest,
)

BUNDLED = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Board:
    """An FPGA board. Resources and bandwidth are the whole board's; ``bram`` counts 36 Kb blocks.

    ``alpha_first`` and ``alpha_later`` are Equation 8's alpha. ``lambda1`` to ``rho3`` are the
    coefficients of Equations 10 and 11. ``lut_share`` is the largest share of the LUTs of a design.
    """

    name: str
    model: str
    dies: int
    dsp: int
    lut: int
    bram: int
    uram_bytes: int
    memory_bytes: int
    channels: int
    bandwidth_bytes_per_s: float
    clock_hz: float
    alpha_first: float
    alpha_later: float
    lambda1: float
    lambda2: float
    rho1: float
    rho2: float
    rho3: float
    lut_share: float
    page_bytes: int
    banks: int
    page_miss_s: float
    access_s: float
    adder_cycles: int
    fifo_updates: int

    def as_one_die(self) -> Board:
        """Return the board as one die with one channel, as published designs count it.

        One kernel then has all resources and the whole bandwidth.
        """
        return replace(self, dies=1, channels=1)


class _Size(Marked):
    value: Annotated[int, Field(gt=0, lt=2**40)]


class _Number(Marked):
    value: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class _Share(Marked):
    value: Annotated[float, Field(gt=0, le=1)]


class _Frequency(Quantity):
    base = "Hz"
    example = '{ value = 300, unit = "MHz", source = "..." }'
    value: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class _BoardTable(TomlTable):
    name: Text
    model: Text
    dies: Count
    dsp: _Size
    lut: _Size
    bram: _Size
    uram_bytes: _Size
    memory: Capacity
    channels: Count
    bandwidth: Bandwidth
    clock: _Frequency
    alpha_first: _Share
    alpha_later: _Share
    lambda1: _Number
    lambda2: _Number
    rho1: _Number
    rho2: _Number
    rho3: _Number
    lut_share: _Share
    page_bytes: _Size
    banks: Count
    page_miss: Duration
    access: Duration
    adder_cycles: Count
    fifo_updates: Count


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
        table = _BoardTable.model_validate(read_toml(path))
    except FileRefusedError as error:
        raise UsageError(
            f"board file {path} cannot be read: {error.reason}; start from a copy of u250.toml."
        ) from None
    except ValidationError as error:
        raise UsageError(f"board file {path}: {_explain(error)}.") from None
    return _build(table, path)


def find_board(model: str) -> Board | None:
    """Return the bundled board of this model, as a platform names it."""
    return next((board for board in load_bundled() if board.model == model), None)


@cache
def load_bundled() -> tuple[Board, ...]:
    """Return all bundled boards by name, read once: each kernel time needs one of them."""
    return tuple(load_board(path.stem) for path in sorted(BUNDLED.glob("*.toml")))


def _build(table: _BoardTable, path: Path) -> Board:
    if table.page_bytes.value & (table.page_bytes.value - 1) or table.page_bytes.value < 64:
        raise UsageError(
            f"board file {path}: page_bytes is {table.page_bytes.value}; a DRAM page is a power of "
            f"two of 64 bytes or more."
        )
    if table.channels.value < table.dies.value:
        raise UsageError(
            f"board file {path}: {table.dies.value} dies and {table.channels.value} channels; each "
            f"die needs a DDR channel, so give as many dies as there are channels."
        )
    return Board(
        name=table.name,
        model=table.model,
        dies=table.dies.value,
        dsp=table.dsp.value,
        lut=table.lut.value,
        bram=table.bram.value,
        uram_bytes=table.uram_bytes.value,
        memory_bytes=round(table.memory.si),
        channels=table.channels.value,
        bandwidth_bytes_per_s=table.bandwidth.si,
        clock_hz=table.clock.si,
        alpha_first=table.alpha_first.value,
        alpha_later=table.alpha_later.value,
        lambda1=table.lambda1.value,
        lambda2=table.lambda2.value,
        rho1=table.rho1.value,
        rho2=table.rho2.value,
        rho3=table.rho3.value,
        lut_share=table.lut_share.value,
        page_bytes=table.page_bytes.value,
        banks=table.banks.value,
        page_miss_s=table.page_miss.si,
        access_s=table.access.si,
        adder_cycles=table.adder_cycles.value,
        fifo_updates=table.fifo_updates.value,
    )


def _explain(error: ValidationError) -> str:
    """Return the first fault; an unknown key precedes the missing one that it was meant to be."""
    details = error.errors(include_url=False)
    first = min(details, key=lambda one: one["type"] != "extra_forbidden")
    key, known = str(first["loc"][0]), _BoardTable.model_fields
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return f"unknown key {key!r}; {suggest(key, known)}"
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"it has no {where}; add it, as u250.toml has it"
    return f"{where} is {first['input']!r}: {first['msg']}; write it as u250.toml does"
