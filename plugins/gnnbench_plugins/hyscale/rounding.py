"""Features rounded before they cross PCIe: the quantization that HyScale-GNN §VIII plans.

Host memory, and the CPU trainer that reads it, keep full precision.
"""

from typing import Literal

import torch
from torch import Tensor

from gnnbench.constants import Bound
from gnnbench_plugins.reference.rounding import round_to_half

Precision = Literal["full", "float16", "int8"]

#: The largest integer of a symmetric int8.
INT8_MAX: Bound[float] = 127.0


def pack_rows(rows: Tensor, precision: Precision) -> tuple[Tensor, ...]:
    """Return rows ``(n, f)`` as tensors of ``precision``.

    float16 is ``(n, f)``, the nearest values within its range. int8 is ``(n, f)`` with a float32
    scale for each row ``(n, 1)``, so that its largest magnitude is 127. Its error is at most half
    the scale.
    """
    if precision == "full":
        return (rows,)
    if precision == "float16":
        return (round_to_half(rows),)
    scale = (rows.abs().amax(dim=1, keepdim=True) / INT8_MAX).to(torch.float32)
    # A row of zeros needs no scale.
    scale[scale == 0] = 1.0
    return (rows / scale).round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8), scale


def unpack_rows(crossed: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    """Return rows ``(n, f)`` in ``dtype`` from the tensors of ``pack_rows``, rounding included."""
    values, *scales = crossed
    rows = values.to(dtype)
    for scale in scales:
        rows *= scale.to(dtype)
    return rows
