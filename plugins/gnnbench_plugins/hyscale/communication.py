"""Two-stage feature prefetching: HyScale-GNN §IV-B; rounded, or deduplicated as HongTu does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gnnbench.parts import Bundle, Prefetching, RoundedLoading, Setting, option
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hyscale.rounding import pack_rows, unpack_rows

#: What the option ``precision`` does.
ROUNDED = "features cross as they are, or rounded to float16, or to int8 with a scale per row"


@dataclass(frozen=True)
class _Staged(Prefetching):
    """Rows cross rounds ahead: loading and transfer are two pipeline stages, since they use
    different channels (host memory, PCIe)."""

    stages: int = option(2, "prefetch stages: 0 (off), 1 (load and transfer as one) or 2")

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.stages not in (0, 1, 2):
            return (
                f"communication.stages is {self.stages}; feature prefetching has 0, 1 or 2 stages."
            )
        return None

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        if self.stages == 0:
            return 0
        return 1 if self.stages == 1 else 2


@dataclass(frozen=True)
class HyScaleCommunication(_Staged, RoundedLoading):
    """Every unit's input set crosses."""

    name: ClassVar[str] = "hyscale"
    summary: ClassVar[str] = "features prefetched in two pipeline stages: load, transfer"

    precision: Literal["full", "float16", "int8"] = option("full", ROUNDED)

    @property
    def rounds_to(self) -> str:
        return "" if self.precision == "full" else self.precision

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return pack_rows(rows, self.precision)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return unpack_rows(crossed, dtype)


@dataclass(frozen=True)
class DeduplicatedCommunication(_Staged, HongTuCommunication):
    """HongTu's traffic between concurrent and successive mini-batches, prefetched: a row crosses
    once a round, and not at all where a device has it from the round before. Which rows those are
    is planned in the order of rounds when they are loaded, and each mini-batch has a copy of its
    rows while the next ones arrive."""

    name: ClassVar[str] = "hyscale-hongtu"
    summary: ClassVar[str] = "features prefetched in two stages, each row once a round, and reused"


@dataclass(frozen=True)
class HalfPrecisionCommunication(HyScaleCommunication):
    """The same with features rounded to float16, as a row beside it in one comparison."""

    name: ClassVar[str] = "hyscale-float16"
    summary: ClassVar[str] = "features prefetched in two stages, crossing as float16"

    precision: Literal["full", "float16", "int8"] = option("float16", ROUNDED)


@dataclass(frozen=True)
class IntegerCommunication(HyScaleCommunication):
    """The same with features rounded to int8, as a row beside it in one comparison."""

    name: ClassVar[str] = "hyscale-int8"
    summary: ClassVar[str] = "features prefetched in two stages, crossing as int8"

    precision: Literal["full", "float16", "int8"] = option("int8", ROUNDED)
