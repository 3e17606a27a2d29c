"""The model clock: a span lasts as long as a described device or link would take for it."""

from __future__ import annotations

from gnnbench.parts import Kernel
from gnnbench.platforms.machine import Link, Platform
from gnnbench.records import Provenance, Work


class ModelClock:
    """For platforms with at least one virtual device.

    Links and memories: bytes over bandwidth (HyScale-GNN Equations 7, 8 and 13), plus a link's
    latency. Sampling: edges over the host's rate, which grows with its threads. Aggregation and
    update: what the kernel part says they cost on the device (Equations 11 and 12 unless it knows
    better).
    """

    provenance: Provenance = "modelled"

    def __init__(self, platform: Platform, kernel: Kernel) -> None:
        self._platform = platform
        self._kernel = kernel

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """Modelled duration of ``work`` on the device or link called ``place``."""
        where = self._platform.place(place)
        if isinstance(where, Link):
            return where.latency_s + work.bytes / where.bandwidth_bytes_per_s
        if work.op == "copy":
            return work.bytes / where.bandwidth_bytes_per_s(work.threads)
        if work.op == "sample":
            threads = work.threads or where.cores
            return work.edges / (where.sampled_edges_per_s * threads)
        return self._kernel.seconds(work, where)
