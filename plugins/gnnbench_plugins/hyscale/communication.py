"""Two-stage feature prefetching: HyScale-GNN §IV-B; features cross in full precision or rounded."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gnnbench.parts import HostLoading, option
from gnnbench_plugins.hyscale.rounding import pack_rows, unpack_rows
from gnnbench_plugins.reference.communication import StagedPrefetching

#: Help of the option ``precision``.
ROUNDED = "features cross as they are, or rounded to float16, or to int8 with a scale per row"


class RoundedFeatures:
    """The rounding of features that cross, by the option ``precision`` of a communication."""

    precision: Literal["full", "float16", "int8"]

    @property
    def rounds_to(self) -> str:
        return "" if self.precision == "full" else self.precision

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return pack_rows(rows, self.precision)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return unpack_rows(crossed, dtype)


@dataclass(frozen=True)
class HyScaleCommunication(RoundedFeatures, StagedPrefetching, HostLoading):
    """Two-stage prefetching of every unit's input set."""

    name: ClassVar[str] = "hyscale"
    summary: ClassVar[str] = "features prefetched in two pipeline stages: load, transfer"

    precision: Literal["full", "float16", "int8"] = option("full", ROUNDED)


@dataclass(frozen=True)
class HalfPrecisionCommunication(RoundedFeatures, StagedPrefetching, HostLoading):
    """HyScale's communication with float16 features, as a separate row of a comparison."""

    name: ClassVar[str] = "hyscale-float16"
    summary: ClassVar[str] = "features prefetched in two stages, crossing as float16"

    precision: Literal["full", "float16", "int8"] = option("float16", ROUNDED)


@dataclass(frozen=True)
class IntegerCommunication(RoundedFeatures, StagedPrefetching, HostLoading):
    """HyScale's communication with int8 features, as a separate row of a comparison."""

    name: ClassVar[str] = "hyscale-int8"
    summary: ClassVar[str] = "features prefetched in two stages, crossing as int8"

    precision: Literal["full", "float16", "int8"] = option("int8", ROUNDED)
