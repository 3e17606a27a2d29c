"""Rows in half precision."""

import torch
from torch import Tensor

from gnnbench.constants import Bound

#: The largest finite float16.
FLOAT16_MAX: Bound[float] = 65504.0


def round_to_half(rows: Tensor) -> Tensor:
    """Round rows ``(n, f)`` to the nearest float16; values beyond its range become its largest."""
    return rows.clamp(-FLOAT16_MAX, FLOAT16_MAX).to(torch.float16)
