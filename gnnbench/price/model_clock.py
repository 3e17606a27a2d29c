"""The model clock: a span lasts as long as a described device or link would take for it."""

from __future__ import annotations

from gnnbench.parts import Kernel
from gnnbench.platforms.machine import Device, Link, Platform
from gnnbench.records import Provenance, Work


class ModelClock:
    """For platforms with at least one virtual device.

    Links and memories: bytes over bandwidth (HyScale-GNN Equations 7, 8 and 13), plus a link's
    latency. Bytes that a host link brings from another socket, or takes there, go as fast as the
    slower of the two links, so that such a transfer takes

        latency + (bytes - remote) / BW_link + remote / min(BW_link, BW_socket)

    (HongTu sections 2.1 and 7.3 say that remote memory is slower). Sampling: edges over the host's
    rate, which grows with its threads. Aggregation and update: what the kernel part says they cost
    on the device (HyScale-GNN Equations 11 and 12 unless it knows better).
    """

    provenance: Provenance = "modelled"

    def __init__(self, platform: Platform, kernel: Kernel) -> None:
        self._platform = platform
        self._kernel = kernel
        self._places: dict[str, Device | Link] = {}

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """Modelled duration of ``work`` on the device or link called ``place``."""
        where = self._places.get(place)
        if where is None:
            where = self._places[place] = self._platform.place(place)
        if isinstance(where, Link):
            rate = where.rate(picked=work.features > 0)
            local_s = (work.bytes - work.remote_bytes) / rate
            if not work.remote_bytes:
                return where.latency_s + local_s
            host = self._platform.device(where.ends[0])
            between = host.socket_bandwidth_bytes_per_s
            remote_s = work.remote_bytes / min(rate, between)
            return where.latency_s + local_s + remote_s
        if work.op == "copy" and work.features:  # rows of that width, picked one by one
            return work.bytes / where.gather_bytes_per_s(work.features, work.threads)
        if work.op == "copy":
            return work.bytes / where.bandwidth_bytes_per_s(work.threads)
        if work.op == "sample":
            threads = work.threads or where.cores
            return work.edges / (where.sampled_edges_per_s * threads)
        return self._kernel.seconds(work, where)
