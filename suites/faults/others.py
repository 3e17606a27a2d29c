"""Placements, communications and memories with one fault each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import (
    MINI_BATCHES,
    Bundle,
    CacheMemory,
    CacheSession,
    HostLoading,
    Part,
    PeerData,
    SeedSession,
    Setting,
    TrafficSession,
    option,
)
from gnnbench.records import Fetch, IntArray, Mode, Round, RoundTraffic, Share, Unit
from gnnbench_plugins.pipegcn.communication import PipeGCNCommunication
from gnnbench_plugins.reference.communication import VanillaCommunication
from gnnbench_plugins.reference.memory import HostMemory
from gnnbench_plugins.reference.placement import SinglePlacement
from suites.faults.fault import Fault, make_part

# --------------------------------------------------------------------------- what crosses


@dataclass(frozen=True)
class SilentRounding(HostLoading):
    """A communication that rounds transferred features without declaring it."""

    name: ClassVar[str] = "features-rounded"
    summary: ClassVar[str] = "features cross in float16, which it does not say"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    begun: bool = field(default=False, repr=False)

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        return replace(self, begun=True), ()

    @property
    def rounds_to(self) -> str:
        return "float16" if self.begun else ""

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return (rows.half(),)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return crossed[0].to(dtype)


@dataclass(frozen=True)
class SilentStaleness(PipeGCNCommunication):
    """A communication that uses rows of the last epoch without declaring it."""

    name: ClassVar[str] = "halo-stale"
    summary: ClassVar[str] = "peers' rows are those of the epoch before, which it does not say"
    begun: bool = field(default=False, repr=False)

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        return replace(self, begun=True), ()

    @property
    def stale(self) -> frozenset[PeerData]:
        return super().stale if self.begun else frozenset()


@dataclass(frozen=True)
class Rounding(HostLoading):
    """A correct communication that transfers features in float16 if an option says so."""

    name: ClassVar[str] = "rounding"
    summary: ClassVar[str] = "features cross in float16 by choice; right"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    rounded: bool = option(False, "round features")

    @property
    def rounds_to(self) -> str:
        return "float16" if self.rounded else ""

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return (rows.half(),) if self.rounded else (rows,)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return crossed[0].to(dtype)


@dataclass(frozen=True)
class LosingRounding(Rounding):
    """A communication that loses the rows that it rounds."""

    name: ClassVar[str] = "rounded-rows-lost"
    summary: ClassVar[str] = "loses what it rounds"

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return crossed[0].to(dtype) * (0 if self.rounded else 1)


def planning(
    name: str,
    summary: str,
    says: str,
    plan: Callable[[Unit, IntArray, Any], Fetch],
    base: Any,
    **members: Any,
) -> Fault:
    """Return a communication that plans fetches from a unit's rows and its slot's last rows."""

    class Session(TrafficSession):
        def plan(self, round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
            held = {fetch.slot: fetch.transition for fetch in previous.fetches} if previous else {}
            return RoundTraffic(
                tuple(
                    plan(unit, np.sort(unit.input_ids), held.get(unit.slot, unit.input_ids[:0]))
                    for unit in round_.units
                )
            )

    part = make_part(base, name, summary, open=lambda self, owner: Session(owner), **members)
    return Fault(part, checks={"bytes-add-up": says})


def reuse(unit: Unit, needed: IntArray, kept: IntArray) -> Fetch:
    return Fetch(unit.slot, needed, np.setdiff1d(needed, kept), np.intersect1d(needed, kept))


# --------------------------------------------------------------------------- who computes


class LosingSession(SeedSession):
    def share_out(self, seeds: IntArray) -> Sequence[tuple[Share, IntArray]]:
        return [(Share(0, len(seeds) - 1), seeds[1:])]


class IdleSession(SeedSession):
    def share_out(self, seeds: IntArray) -> Sequence[tuple[Share, IntArray]]:
        return [(Share(0, len(seeds)), seeds), (Share(1, 0), seeds[:0])]


def train_on_two(_: SinglePlacement, platform: Platform) -> tuple[Device, ...]:
    return platform.accelerators[:2] or (platform.host,)


@dataclass(frozen=True)
class Secretive(SinglePlacement):
    """A part with an undocumented option."""

    name: ClassVar[str] = "option-undocumented"
    summary: ClassVar[str] = "an option without help"
    secret: int = 3


# --------------------------------------------------------------------------- what is kept


class Roomless(CacheSession):
    def turn_over(self, slot: int, asked: Any, found: Any) -> Any:
        return None


def open_with_all(_: CacheMemory, setting: Setting, num_rows: dict[int, int]) -> CacheSession:
    everything = np.arange(setting.dataset.graph.num_vertices, dtype=np.int64)
    return CacheSession(dict.fromkeys(num_rows, everything))


def open_with_none(_: CacheMemory, setting: Setting, num_rows: Any) -> CacheSession:
    return Roomless({slot: np.empty(0, dtype=np.int64) for slot in num_rows}, num_rows)


def divide_by_kilobytes(_: HostMemory, device: Device) -> int:
    kilobytes = device.hardware.memory_bytes // 1000
    return device.hardware.memory_bytes // kilobytes * kilobytes


IN_COMPARE = (
    Fault(SilentRounding, (("distdgl", "mini-batch"),)),
    Fault(SilentStaleness, (("partition", "full-graph"),)),
)


def alone(
    base: type[Part], name: str, summary: str, check: str, says: str, **members: Any
) -> Fault:
    """Return a fault that one check finds and that ``compare`` may miss."""
    return Fault(make_part(base, name, summary, **members), checks={check: says})


IN_CHECKS = (
    planning(
        "row-dropped",
        "forgets the last row",
        r"row \d+ is needed and comes from nowhere",
        lambda unit, needed, held: Fetch(unit.slot, needed, needed[:-1], needed[:0]),
        HostLoading,
        shares_rows=True,
    ),
    planning(
        "odd-rows-reused",
        "takes every odd row for one that is at hand",
        r"row \d+ is reused, but the slot did not hold it",
        lambda unit, needed, held: reuse(unit, needed, needed[needed % 2 == 1]),
        HostLoading,
        shares_rows=True,
    ),
    planning(
        "reuse-without-buffers",
        "counts on rows that nothing keeps, which shares_rows does not say",
        "does not set shares_rows",
        reuse,
        HostLoading,
    ),
    alone(
        Rounding, "rows-of-one-byte", "states one byte a row",
        "costs", r"states row_bytes of 1 for 1 values .* 20 bytes",
        row_bytes=lambda self, width, dtype: 1,
    ),
    alone(
        Rounding, "rows-doubled-in-place", "doubles rows where they lie",
        "costs", "writes into the rows that it packs",
        pack=lambda self, rows: (rows.mul_(2),),
    ),
    alone(
        Rounding, "rows-rounded-in-secret", "rounds whatever is chosen",
        "costs", "it does not say that it rounds",
        pack=lambda self, rows: (rows.half(),),
    ),
    alone(
        VanillaCommunication, "summary-too-long", "and on " * 20,
        "described", "does not fit a line",
    ),
    Fault(
        make_part(
            SinglePlacement, "seed-lost", "gives out all seeds but one",
            open=lambda self, setting, profiles, prefetch: LosingSession(),
        ),
        checks={
            "every-vertex-once": r"shares of 12 seeds in all for a round of 13",
            "same-maths": r"placement 'seed-lost' gave out 12 of 13 seeds",
        },
    ),
    alone(
        SinglePlacement, "all-refused", "refuses everything",
        "same-maths", r"refuses every model .* it works on paper only",
        refuses=lambda self, bundle, setting: "it works on paper only.",
    ),
    alone(
        SinglePlacement, "trainer-idle", "gives all seeds to the first of two",
        "reached", "of its trainers gpu1 computed nothing",
        trainers=train_on_two,
        open=lambda self, setting, profiles, prefetch: IdleSession(),
    ),
    Fault(Secretive, checks={"options-documented": "option 'secret' .* has no help"}),
    alone(
        CacheMemory, "all-cached", "caches every row",
        "costs", "caches 60 rows where mini-batches leave room for 0",
        open=open_with_all,
    ),
    alone(
        CacheMemory, "nothing-cached", "has no room, so that nobody asks it what to admit",
        "reached", r"nothing called turn_over\(\) of memory",
        count_rows=lambda self, setting, free_bytes, mini_batch_bytes: 0,
        open=open_with_none,
    ),
    alone(
        HostMemory, "capacity-ignored", "takes every device to be large",
        "costs", r"a capacity of [\d,]+ bytes on gpu0, which has ",
        capacity_bytes=lambda self, device: 10**12,
    ),
    alone(
        HostMemory, "capacity-in-kilobytes", "divides by a device's whole kilobytes",
        "capacity", "ended with 'error' ZeroDivisionError",
        capacity_bytes=divide_by_kilobytes,
    ),
)  # fmt: skip
