"""The constants of a library, and of a kind of device, in TOML files.

Each has a value, a unit, a source, a mark, and its plausible range. A mark is measured, quoted,
assumed, or fitted with the ledger cells that the constant was fitted on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from gnnbench.constants import Constant, MarkKind, check_fitted_on
from gnnbench.host.toml import read_toml
from gnnbench.machines.costs.operation import DotProducts, Operation, ScalarLoop, SerialLoop
from gnnbench.machines.tables import Text, list_leaves, make_record
from gnnbench.units import unit_scale

DEVICES = Path(__file__).with_name("devices.toml")

_Number = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


@dataclass(frozen=True, slots=True)
class Entry:
    """A constant in a file, with a mandatory mark."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    value: _Number
    source: Text
    mark: MarkKind
    plausible: Annotated[list[_Number], Field(min_length=2, max_length=2)]
    unit: str = ""
    fitted_on: list[Text] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_fitted_on(self.mark, tuple(self.fitted_on))
        low, high = self.plausible
        if not low <= self.value <= high:
            raise ValueError(f"{self.value:g} is not within its plausible {low:g} to {high:g}")

    def to_si(self, base: str) -> float:
        """Return the value in the unit ``base``, which is empty for a plain number."""
        return self.value * unit_scale(self.unit, base) if base else self.value


_ENTRIES = TypeAdapter(dict[str, Entry])


@dataclass(frozen=True, slots=True)
class Library:
    """The costs of a library besides its kernels' memory traffic and arithmetic.

    ``call_s`` is the time of one call of its message passing in Python and in its framework.
    ``batch_s`` is the time that an update takes once, of a mini-batch or of a full graph: zeroing
    gradients, the loss, the optimiser's kernels, and passing the mini-batch on. An edge's end has
    ``index_bytes``. One worker draws ``sampled_edges_per_s`` and an accelerator
    ``device_sampled_edges_per_s``, either after ``sampling_call_s`` for each layer; 0 means the
    platform's rate. Each worker of a loader takes ``worker_start_s`` to start, in every epoch.
    ``scalar_values_per_s`` is a core's rate in kernels without vector instructions,
    ``dot_values_per_s`` in dot products summed value by value, and ``serial_values_per_s`` in loops
    on a single core.
    """

    call_s: float = 0.0
    batch_s: float = 0.0
    index_bytes: Annotated[float, Constant("B", "assumed", "positions of 32 bits")] = 4.0
    sampled_edges_per_s: float = 0.0
    device_sampled_edges_per_s: float = 0.0
    sampling_call_s: float = 0.0
    worker_start_s: float = 0.0
    scalar_values_per_s: float = 0.0
    dot_values_per_s: float = 0.0
    serial_values_per_s: float = 0.0

    def values_per_s(self, kind: type[Operation], cores: int) -> float:
        """Return the rate of ``cores`` in kernels without vector instructions.

        It is 0 for other kernels, and for a library not known to lack them.
        """
        if kind is SerialLoop:
            return self.serial_values_per_s
        if kind is ScalarLoop:
            return self.scalar_values_per_s * cores
        return self.dot_values_per_s * cores if kind is DotProducts else 0.0


@dataclass(frozen=True, slots=True)
class ReachedShares:
    """The shares of its peaks that a kind of device reaches.

    ``stream`` is the share of the memory's bandwidth that kernels reach on sequential memory, and
    ``gather`` on rows gathered one by one. ``product`` is the share of the peak that a wide product
    reaches; it reaches half of that if its narrower side is ``half_width``.
    """

    stream: float
    gather: float
    product: float
    half_width: float


@dataclass(frozen=True, slots=True)
class CacheRates:
    """The last cache, and the rows that are gathered through it.

    Rows come in whole lines of ``line_bytes``. The cache has ``cache_bytes`` (for a CPU, per core)
    unless the platform states them, and is ``cache_times`` as fast as the memory. A CPU core waits
    ``row_s`` for each row that it gathers, and ``line_s`` if the rows are in the cache. If a share
    s of the distinct rows is in the cache, so is a share s^``skew`` of the gathered ones.
    """

    line_bytes: float
    cache_bytes: float
    cache_times: float
    row_s: float = 0.0
    line_s: float = 0.0
    skew: float = 1.0


@dataclass(frozen=True, slots=True)
class PageRates:
    """The pages of a host's memory.

    One process fills newly allocated memory at ``fresh_bytes_per_s``; tensors of at least
    ``fresh_from_bytes`` are in such memory. n processes are n^``side_by_side`` times as fast.
    Pageable memory crosses to an accelerator at no more than ``staged_bytes_per_s``.
    """

    fresh_from_bytes: float = float("inf")
    fresh_bytes_per_s: float = 0.0
    side_by_side: float = 0.0
    staged_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """The rates that a kind of device reaches.

    An accelerator reads rows of host memory in place at ``in_place`` of the link's rate.
    ``issues_ahead`` says that kernels are launched while earlier ones run. n workers of a loader
    draw n^``workers_gain`` times as fast as one.
    """

    reached: ReachedShares
    cache: CacheRates
    pages: PageRates = PageRates()
    in_place: float = 1.0
    issues_ahead: float = 0.0
    workers_gain: float = 1.0


def _base_of(name: str) -> str:
    """Return the unit of a constant, by the end of its name."""
    for end, base in (("edges_per_s", "edges/s"), ("bytes_per_s", "B/s"), ("_bytes", "B")):
        if name.endswith(end):
            return base
    return "s" if name.endswith("_s") and not name.endswith("per_s") else ""


@cache
def read_library(path: Path) -> Library:
    """Return the library that a file describes."""
    return make_record(Library, _read(read_toml(path), path, list_leaves(Library)))


@cache
def read_devices() -> dict[str, DeviceRates]:
    """Return the rates by kind of device."""
    return {
        kind: make_record(DeviceRates, _read(table, DEVICES, list_leaves(DeviceRates)))
        for kind, table in read_toml(DEVICES).items()
    }


def _read(table: object, path: Path, known: Collection[str]) -> dict[str, float]:
    entries = _ENTRIES.validate_python(table)
    if unknown := entries.keys() - known:
        raise ValueError(f"{path}: {', '.join(sorted(unknown))} is no constant")
    return {name: entry.to_si(_base_of(name)) for name, entry in entries.items()}
