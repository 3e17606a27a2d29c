"""Cold caches, as training leaves them: full of other data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch

from gnnbench.constants import Bound
from gnnbench.machines.local import cache_bytes

#: The assumed size of the last-level cache if the system does not state it.
CACHE_BYTES: Bound[int] = 2**24


@cache
def make_sweep() -> Callable[[], object]:
    """Return a function that reads as much memory as this machine's last-level cache holds."""
    return partial(torch.sum, torch.ones((cache_bytes() or CACHE_BYTES) // 4))
