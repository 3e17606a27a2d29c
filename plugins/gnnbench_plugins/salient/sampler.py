"""Threads that each prepare a whole mini-batch, in parallel."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import UNIFORM, Bundle, MiniBatchSampler, Setting, option
from gnnbench.records import Block, IntArray
from gnnbench_plugins.reference.sampler import draw_neighbours


@dataclass
class SalientSampler(MiniBatchSampler):
    """GraphSAGE's sampling, like the reference's, but done by other threads.

    Each device has dedicated threads on the host. A thread takes the next mini-batch, draws it,
    gathers its rows into pinned memory, and passes it on without a copy between processes. Each
    thread has one mini-batch in flight, so a single one need not be fast.
    """

    name: ClassVar[str] = "salient"
    summary: ClassVar[str] = "uniform neighbour sampling, a whole mini-batch by each thread"
    law: ClassVar[str] = UNIFORM

    workers: int = option(
        0, "threads that prepare mini-batches for each device; 0 = the cores that it has"
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        platform = setting.platform
        trainers = bundle.placement.trainers(platform)
        hosts = [platform.host_of(device) for device in trainers]
        for host in hosts:
            devices = hosts.count(host)
            if not 0 <= self.workers * devices <= max(host.cores, devices):
                return (
                    f"sampler.workers is {self.workers} for each of {devices} devices, and "
                    f"{host.name!r} of platform {platform.name} has {host.cores} cores; give 1 to "
                    f"{max(1, host.cores // devices)}, or 0 for all."
                )
        return None

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        return draw_neighbours(self._setting, seeds, epoch, threads)

    def preparers(self, cores: int) -> int:
        return self.workers or cores
