"""Transfers that overlap training, half-precision features, and a ring all-reduce of gradients."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gnnbench.parts import MINI_BATCHES, HostLoading, option
from gnnbench.records import Mode
from gnnbench_plugins.reference.rounding import round_to_half


@dataclass(frozen=True)
class SalientCommunication(HostLoading):
    """A transfer of every unit's input rows that overlaps training on the last mini-batch.

    A transfer has a separate stream, and the training stream waits only for its end. A device
    therefore holds two mini-batches: the one in use, and the next. With half precision the host
    stores half-precision features. This halves the gathered and transferred bytes; the device
    converts them to single precision, which changes the results. Gradients are averaged as by
    distributed data parallel training.
    """

    name: ClassVar[str] = "salient"
    summary: ClassVar[str] = "rows transferred while others are trained on, gradients in a ring"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    batch_all_reduce: ClassVar[Literal["host", "ring"]] = "ring"
    keeps_packed: ClassVar[bool] = True

    pipelined: bool = option(
        True, "transfer a mini-batch while the one before is trained on", tried=(False, True)
    )
    precision: Literal["full", "half"] = option(
        "full", "the host keeps features as they are, or in half precision, and so they cross"
    )

    @property
    def prefetch(self) -> Literal[0, 1, 2]:
        return 2 if self.pipelined else 0

    @property
    def rounds_to(self) -> str:
        return "float16" if self.precision == "half" else ""

    def pack(self, rows: Tensor) -> tuple[Tensor, ...]:
        return (round_to_half(rows) if self.precision == "half" else rows,)

    def unpack(self, crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        return crossed[0].to(dtype)
