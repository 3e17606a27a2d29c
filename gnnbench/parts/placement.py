"""Placements: which device computes which share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Literal

import numpy as np

from gnnbench.parts.base import Part, Setting
from gnnbench.parts.options import option_fields
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import BatchProfile, HostThreads, IntArray, PartKind, Shard, Share, StageTimes


@dataclass
class Placement(Part):
    """Which device computes which share of a round; may rebalance between rounds."""

    kind: ClassVar[PartKind] = "placement"
    #: What AGGREGATE is sharded by: ranges of vertices, which the same devices update, or ranges of
    #: features, while UPDATE is sharded by vertices (MixGCN §3.1.2, mixture of parallelism). Of
    #: mini-batches only the first layer is, and with it the product that its UPDATE begins with.
    aggregates_by: ClassVar[Literal["vertices", "features"]] = "vertices"

    @abstractmethod
    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """The devices that train; a ``slot`` is a position in this tuple."""

    def available(self, platform: Platform) -> dict[str, int]:
        """The options that say how many devices to use, 0 for all, each with how many there are.

        An option ``accelerators`` counts the platform's accelerators, unless a placement says
        otherwise here. What is below 0 or above is refused for it.
        """
        counted = "accelerators" in option_fields(type(self))
        return {"accelerators": len(platform.accelerators)} if counted else {}

    def refuse_counts(self, platform: Platform) -> str | None:
        """Why the platform does not have as many devices as asked for; None where it has."""
        for name, most in self.available(platform).items():
            count = getattr(self, name)
            if not 0 <= count <= most:
                there, ask = (f"{most} such devices", f"1 to {most}, or 0 for all of them")
                if not most:
                    there, ask = "no such device", "0, or another platform"
                return (
                    f"placement.{name} is {count}, and platform {platform.name} has {there}; "
                    f"give {ask}."
                )
        return None

    @property
    def wants_design_phase(self) -> bool:
        """Mini-batch only: whether rates should be measured in a few rounds before a run whose
        times are measured, see ``gnnbench.design_phase``."""
        return False

    def predicted_epochs(self) -> Mapping[str, float]:
        """After a run, by what they rest on, the seconds of an epoch that were predicted before it;
        the report has them beside the achieved ones."""
        return {}

    def overlap(self, prefetch: Literal[0, 1, 2]) -> None:
        """Mini-batch only, before ``prepare``: in how many stages features are prefetched, see
        ``Bundle.prefetch_stages``."""

    def prepare(self, setting: Setting, profiles: Sequence[BatchProfile]) -> None:
        """Mini-batch only: plan the first split from sampled mini-batches of several sizes.

        ``profiles`` ascend in seeds; the last one is a full round.
        """

    @abstractmethod
    def split(self, num_seeds: int) -> tuple[Share, ...]:
        """Mini-batch only: shares that add up to ``num_seeds``, in slot order; may be zero."""

    def share_out(self, seeds: IntArray) -> tuple[tuple[Share, IntArray], ...]:
        """Mini-batch only: each share of a round with its seeds, every one of ``seeds`` in one.

        Runs of the seeds as they come, unless a placement has a reason to choose.
        """
        shares = self.split(len(seeds))
        if len(shares) == 1:
            return ((shares[0], seeds),)
        ends = accumulate(share.seeds for share in shares)
        return tuple(
            (share, seeds[end - share.seeds : end]) for share, end in zip(shares, ends, strict=True)
        )

    def host_threads(self) -> HostThreads:
        """How the host's threads are divided between sampling, loading and training."""
        return HostThreads()

    def samplers(self, platform: Platform) -> tuple[Device, ...]:
        """Mini-batch only: the trainers that can draw their own mini-batches, where a share says
        so. They are accelerators, and hold the graph's topology."""
        return ()

    def sockets(self, platform: Platform, owner: IntArray) -> IntArray:
        """The host's socket in whose memory each vertex's rows lie, int64 ``(V,)``.

        Full graph only; ``owner`` is the sampler's. Spread evenly, as by interleaved pages, unless
        a placement knows better.
        """
        return np.arange(len(owner), dtype=np.int64) % platform.host.sockets

    def shard_aggregate(
        self, num_vertices: int, width: int, platform: Platform
    ) -> tuple[Shard, ...]:
        """How AGGREGATE of ``num_vertices`` rows of ``width`` features is shared out.

        Only asked where ``aggregates_by`` is ``"features"``. The shards cover every entry once; a
        slot has at most one, and its columns do not depend on the number of vertices.
        """
        raise TypeError(f"placement {self.name!r} does not shard by features")

    def shard_update(self, num_vertices: int, platform: Platform) -> tuple[tuple[int, int], ...]:
        """The range of vertices that each trainer updates, all features of them, in slot order.

        Only asked where ``aggregates_by`` is ``"features"``. The ranges follow each other; a
        trainer that does not update has an empty one at the end. Slot 0 has the weights anyway.
        """
        raise TypeError(f"placement {self.name!r} does not shard by features")

    def observe(self, times: StageTimes) -> None:
        """Mini-batch only: the stage times of a round; rebalance those to come.

        Rounds are observed in their order, and before the split of round i is asked for, all up to
        i - d and no others, where d is how many rounds may be under way at once: one without
        prefetching, three with one-stage and four with two-stage prefetching.
        """


def divide_evenly(count: int, parts: int) -> tuple[tuple[int, int], ...]:
    """The range [i n / m, (i + 1) n / m) of ``count`` things for each part i of m, rounded down.

    MixGCN's Algorithm 2, lines 7 and 11.
    """
    return tuple((count * i // parts, count * (i + 1) // parts) for i in range(parts))
