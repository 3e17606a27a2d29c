"""Caches as training leaves them: full of something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch

from gnnbench.constants import Bound
from gnnbench.platforms.local import cache_bytes

#: The last cache, where the system does not say how large it is.
CACHE_BYTES: Bound[int] = 2**24


@cache
def make_sweep() -> Callable[[], object]:
    """What reads as much memory as this machine's last cache holds."""
    return partial(torch.sum, torch.ones((cache_bytes() or CACHE_BYTES) // 4))
