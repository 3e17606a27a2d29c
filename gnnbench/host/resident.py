"""The memory that this process takes of its machine."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def read_share_bytes() -> int:
    """Return this process's share of the machine's memory [bytes].

    A page that n processes share counts one n-th (Linux's proportional set size). Where the system
    does not state it, shared pages count whole, at the process's peak.
    """
    try:
        for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
