"""The model clock: a span lasts as long as a described device or link would take for it."""

from __future__ import annotations

import math

from gnnbench.constants import Bound
from gnnbench.errors import PluginError
from gnnbench.machines.costs import Library
from gnnbench.machines.costs.bounds import FASTEST, Peaks, describe_work, find_peaks, least_seconds
from gnnbench.machines.costs.loading import (
    UNMEASURED,
    limit_rate,
    price_copy,
    price_rows,
    price_sampling,
)
from gnnbench.machines.machine import Device, Link, Platform
from gnnbench.parts import Kernel, MiniBatchSampler, Sampler
from gnnbench.records import (
    CopyWork,
    LossWork,
    Mode,
    Provenance,
    RowsWork,
    SampleWork,
    Stage,
    Work,
)

#: The most prices that are remembered; then the memory of prices is cleared.
MOST_PRICES: Bound[int] = 4096


class ModelClock:
    """The clock for platforms with at least one virtual device.

    Links and memories take bytes over bandwidth (HyScale-GNN Equations 7, 8 and 13), plus a link's
    latency. A host link may transfer bytes from or to another socket. These bytes go as fast as the
    slower of the two links, so that such a transfer takes

        latency + (bytes - remote) / BW_link + remote / min(BW_link, BW_socket)

    (HongTu sections 2.1 and 7.3 say that remote memory is slower). Rows that a library's loader has
    staged are pageable, and cross no faster than the driver copies them. Rows that are read in
    place cross at a share of the rate. Sampling takes edges over the sampling rate of its device,
    which grows with threads. If ``sampler`` is given, its library states the rate. Rows of host
    memory take what picking them costs. Aggregation and update take the kernel part's cost on the
    device.

    If epochs of the kernel and mode were measured on the platform,
    the times of their stages are multiplied, and a step takes what it took there.

    Raises ``PluginError`` if a kernel or a sampler's library states an impossible time. Such a time
    is not finite, or below the device's least time (``machines.costs.bounds.least_seconds``).
    """

    provenance: Provenance = "modelled"

    def __init__(self, platform: Platform, kernel: Kernel, sampler: Sampler | None = None) -> None:
        self._platform = platform
        self._kernel = kernel
        self._sampler = sampler
        mode: Mode = "mini-batch" if isinstance(sampler, MiniBatchSampler) else "full-graph"
        self._measured = platform.calibrated(kernel.name, mode)
        step_s = self._measured.step_s
        self._step_s = platform.step_s if step_s is None else step_s
        self._places: dict[str, Device | Link] = {}
        self._peaks: dict[str, Peaks] = {}
        #: By type too: records of two types may have equal values.
        self._prices: dict[tuple[str, type[Work], Work, Stage | None], float] = {}
        #: Whether equal work always costs the same. A kernel that states its own seconds may
        #: depend on the block that it has just seen.
        self._prices_last = (
            type(kernel).seconds is Kernel.seconds
            and type(kernel).batch_seconds is Kernel.batch_seconds
        )

    def seconds(self, work: Work, place: str, wall_s: float, stage: Stage | None = None) -> float:
        """Return the modelled duration of ``work`` on the device or link called ``place``.

        Without a ``stage`` it is not calibrated.
        """
        if not self._prices_last:
            return self._price(work, place, stage)
        key = place, type(work), work, stage
        known = self._prices.get(key)
        if known is not None:
            return known
        if len(self._prices) == MOST_PRICES:
            self._prices.clear()
        seconds = self._prices[key] = self._price(work, place, stage)
        return seconds

    def _price(self, work: Work, place: str, stage: Stage | None) -> float:
        """Return the calibrated time of the work, and the platform's time per step.

        A loss on the host also takes the platform's time per round.
        """
        platform = self._platform
        times = 1.0 if stage is None else self._measured.times_of(stage)
        seconds = times * self._price_work(work, place) + self._step_s
        if isinstance(work, LossWork) and place == platform.host.name:
            seconds += platform.round_s
        return seconds

    def _price_work(self, work: Work, place: str) -> float:
        where = self._places.get(place)
        if where is None:
            where = self._places[place] = self._platform.place(place)
        if isinstance(where, Link):
            return self._price_transfer(work, where)
        match work:
            case RowsWork():
                return price_rows(work, where)
            case CopyWork():
                fixed_s = self._price_loss(work, where) if work.loss else 0.0
                return fixed_s + price_copy(work, where)
            case SampleWork():
                return self._price_sample(work, where)
        return self._require_possible(self._kernel.seconds(work, where), work, where)

    def _price_transfer(self, work: Work, link: Link) -> float:
        if not isinstance(work, CopyWork | RowsWork):
            raise TypeError(f"link {link.name} does no {type(work).__name__}; it moves bytes.")
        rate = link.rate(picked=isinstance(work, RowsWork))
        if isinstance(work, RowsWork) and work.loading != "blocks":
            ends = (self._platform.device(end) for end in link.ends)
            rate = limit_rate(work.loading, rate, *ends)
        local_s = link.crossing_s(work.bytes - work.remote_bytes, rate)
        if not work.remote_bytes:
            return link.latency_s + local_s
        host = self._platform.device(link.ends[0])
        between = host.memory.socket_bandwidth_bytes_per_s
        remote_s = link.crossing_s(work.remote_bytes, min(rate, between))
        return link.latency_s + local_s + remote_s

    def _price_loss(self, work: CopyWork, where: Device) -> float:
        return self._require_possible(self._kernel.batch_seconds(where), work, where)

    def _price_sample(self, work: SampleWork, where: Device) -> float:
        sampler = self._sampler
        if not isinstance(sampler, MiniBatchSampler):
            return price_sampling(work, where, Library())
        measured = where.libraries.get(sampler.name, UNMEASURED)
        seconds = price_sampling(work, where, sampler.library, measured)
        return self._require_possible(seconds, work, where)

    def _require_possible(self, seconds: float, work: Work, where: Device) -> float:
        """Return the time that a plugin states, if the device can do the work in it."""
        peaks = self._peaks.get(where.name)
        if peaks is None:
            peaks = self._peaks[where.name] = find_peaks(where)
        least = least_seconds(work, peaks)
        if isinstance(seconds, (float, int)) and FASTEST * least <= seconds < math.inf:
            return seconds
        part, statement = f"kernel {self._kernel.name!r}", "seconds()"
        if isinstance(work, SampleWork) and self._sampler is not None:
            part, statement = f"sampler {self._sampler.name!r}", "library"
        if isinstance(work, CopyWork):
            statement = "batch_seconds()"
        raise PluginError(
            f"{part} states {seconds!r} s on {where.name} ({where.model}) for "
            f"{describe_work(work)}, which takes at least {least:.3e} s at the device's largest "
            f"rates. Let its {statement} give a finite time that is no shorter, or correct the "
            f"rates in the platform's file."
        )
