"""Epochs of graphs of which only sizes are known, from the few rounds that are gone through.

The plans of ``gnnbench plan`` and the ledger of others' measurements both read these epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from gnnbench.constants import Bound
from gnnbench.machines.costs.roofline import rates_of
from gnnbench.machines.machine import CallTimes, LibraryRates, Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import Bundle, Kernel, MiniBatchSampler, Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.price.folds import Digest
from gnnbench.records import EpochTrace, Sizes, Trace

#: Rounds of mini-batches that are gone through. They are alike, so that from the first to the
#: second number on every further one takes the same.
FEW: Bound[int] = 4
MORE: Bound[int] = 5
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class SizedEpochs:
    """Epochs by sizes: their records and times, and what was recorded beside them."""

    trace: Trace
    digests: tuple[Digest, ...]

    @property
    def epoch_s(self) -> float:
        """The mean seconds of an epoch."""
        return fmean(each.epoch_s for each in self.digests)


def price_sizes(bundle: Bundle, setting: Setting) -> SizedEpochs:
    """Return the epochs of a setting with ``sizes``.

    An epoch of mini-batches is made from ``FEW`` and ``MORE`` of its rounds. For full graphs the
    first epoch, in which copies are made, is left out. All epochs of the workload follow it.

    Raises ``IncompatiblePartsError`` and ``DeviceOutOfMemoryError`` as :class:`DryRun` does.
    """
    sizes = setting.sizes
    if sizes is None:
        raise TypeError("there are no sizes to price")
    if sizes.batch is not None:
        return _price_mini_batches(bundle, setting, sizes)
    return _price_full_graph(bundle, setting, sizes)


# --------------------------------------------------------------------------- mini-batches


def _price_mini_batches(bundle: Bundle, setting: Setting, sizes: Sizes) -> SizedEpochs:
    """Price the rounds of an epoch, from two numbers of them.

    Both are larger if threads have several rounds under way, so that the first rounds are over.
    """
    under_way = _count_under_way(bundle, setting)
    counts = 2 * under_way + FEW, 3 * under_way + MORE
    ((_, few), (dry, more)) = (_walk(bundle, setting, sizes, count) for count in counts)
    distance = (sizes.rounds - counts[1]) / (counts[1] - counts[0])
    epoch = _extend_trace(few[0], more[0], distance, sizes.rounds)
    return SizedEpochs(dry.finish([epoch]), (_extend_digest(few[1], more[1], distance),))


def _count_under_way(bundle: Bundle, setting: Setting) -> int:
    """Return how many mini-batches threads prepare at once for a trainer."""
    if not isinstance(bundle.sampler, MiniBatchSampler):
        raise TypeError("mini-batches come from a sampler of mini-batches")
    platform = setting.platform
    hosts = [platform.host_of(device) for device in bundle.placement.trainers(platform)]
    cores = min(host.cores // hosts.count(host) for host in hosts)
    return bundle.sampler.preparers(max(1, cores))


def _walk(
    bundle: Bundle, setting: Setting, sizes: Sizes, rounds: int
) -> tuple[DryRun, tuple[EpochTrace, Digest]]:
    """Return a dry run over ``rounds`` rounds, with its record and its times."""
    dry = DryRun(bundle, replace(setting, sizes=replace(sizes, walked=rounds)))
    ((epoch, found),) = dry.run_epochs(1)
    return dry, (replace(epoch, spans=()), replace(found, timeline=()))


def _extend(first: float, second: float, distance: float) -> float:
    """Return the value ``distance`` steps beyond the second, with as much for each step."""
    return second + distance * (second - first)


def _extend_all(
    first: Mapping[K, float], second: Mapping[K, float], distance: float
) -> dict[K, float]:
    return {key: _extend(first[key], value, distance) for key, value in second.items()}


def _extend_digest(few: Digest, more: Digest, distance: float) -> Digest:
    joules = None
    if few.energy_j is not None and more.energy_j is not None:
        joules = _extend(few.energy_j, more.energy_j, distance)
    return Digest(
        _extend(few.epoch_s, more.epoch_s, distance),
        _extend_all(few.stages, more.stages, distance),
        (),
        joules,
    )


def _extend_trace(few: EpochTrace, more: EpochTrace, distance: float, rounds: float) -> EpochTrace:
    moved = _extend_all(few.bytes, more.bytes, distance)
    return replace(
        more,
        bytes={kind: round(size) for kind, size in moved.items()},
        edges=round(_extend(few.edges, more.edges, distance)),
        vertices=round(_extend(few.vertices, more.vertices, distance)),
        seeds=round(_extend(few.seeds, more.seeds, distance)),
        round_losses=(math.nan,) * math.ceil(rounds),
        work_by_device=_extend_all(few.work_by_device, more.work_by_device, distance),
    )


# --------------------------------------------------------------------------- full graphs


def _price_full_graph(bundle: Bundle, setting: Setting, sizes: Sizes) -> SizedEpochs:
    """Price epochs over a share of the graph, on as large a share of the machine."""
    platform = shrink(setting.platform, sizes.share, bundle.kernel)
    dry = DryRun(bundle, replace(setting, platform=platform))
    found = list(dry.run_epochs(1 + setting.workload.epochs))[1:]
    share = sizes.share
    digests = tuple(
        Digest(
            each.epoch_s / share,
            {stage: seconds / share for stage, seconds in each.stages.items()},
            (),
            None if each.energy_j is None else each.energy_j / share,
        )
        for _, each in found
    )
    trace = dry.finish([_grow(replace(epoch, spans=()), share) for epoch, _ in found])
    peaks = {name: round(size / share) for name, size in trace.peak_bytes.items()}
    return SizedEpochs(replace(trace, peak_bytes=peaks), digests)


def _grow(epoch: EpochTrace, share: float) -> EpochTrace:
    """Return the record of an epoch over the whole graph, of which it has a share."""
    return replace(
        epoch,
        bytes={kind: round(size / share) for kind, size in epoch.bytes.items()},
        edges=round(epoch.edges / share),
        vertices=round(epoch.vertices / share),
        seeds=round(epoch.seeds / share),
        work_by_device={name: done / share for name, done in epoch.work_by_device.items()},
    )


def shrink(platform: Platform, share: float, kernel: Kernel) -> Platform:
    """Scale the memories and caches of a platform, and the time that it takes to begin anything.

    A share of a graph then takes as large a share of the time.
    """
    if share == 1.0:
        return platform
    library = kernel.library
    calls = CallTimes(call_s=library.call_s * share, batch_s=library.batch_s * share)
    front = {kernel.name: LibraryRates(calls=calls)}
    host, *accelerators = (
        replace_fields(
            device,
            memory_bytes=round(device.hardware.memory_bytes * share),
            launch_s=device.hardware.launch_s * share,
            cache_bytes=device.hardware.cache_bytes * share,
            mapped_from_bytes=rates_of(device).pages.fresh_from_bytes * share,
            libraries=front,
        )
        for device in platform.devices
    )
    links = tuple(replace(link, latency_s=link.latency_s * share) for link in platform.links)
    return replace(platform, host=host, accelerators=tuple(accelerators), links=links)
