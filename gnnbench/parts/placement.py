"""Placements: which device computes which share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Literal

import numpy as np

from gnnbench.parts.base import OfFullGraphs, OfMiniBatches, Part, Session, Setting
from gnnbench.parts.options import option_fields
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import BatchProfile, HostThreads, IntArray, PartKind, Shard, Share, StageTimes

#: The shares of a round, each with its seeds.
Handed = Sequence[tuple[Share, IntArray]]


@dataclass(frozen=True)
class Placement(Part):
    """Which devices train, and which share each computes. Subclass one of the kinds below, or two
    of them: what shares out seeds and has partitions works on mini-batches and on full graphs."""

    kind: ClassVar[PartKind] = "placement"

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

    def sockets(self, setting: Setting, owner: IntArray) -> IntArray:
        """The socket in whose memory each vertex's rows lie, int64 ``(V,)``; sockets are numbered
        through all hosts.

        ``owner`` is the slot of each vertex: the sampler's, or of mini-batches one slot after the
        other, of which only the host counts. Spread evenly, as by interleaved pages, unless a
        placement knows better.
        """
        return np.arange(len(owner), dtype=np.int64) % len(setting.platform.sockets)


# --------------------------------------------------------------------------- seeds


class SeedSession(Session):
    """The shares of a run's rounds; may rebalance from round to round."""

    @abstractmethod
    def share_out(self, seeds: IntArray) -> Handed:
        """Each share of a round with its seeds, every one of ``seeds`` in one, in slot order; a
        share may be empty. :func:`hand_out` deals seeds as they come."""

    def host_threads(self) -> HostThreads:
        """How the host's threads are divided between sampling, loading and training."""
        return HostThreads()

    def observe(self, times: StageTimes) -> None:
        """The stage times of a round; rebalance those to come.

        Rounds are observed in their order, and before the shares of round i are asked for, all up
        to i - d and no others, where d is how many rounds may be under way at once: one without
        prefetching, three with one-stage and four with two-stage prefetching. Where threads prepare
        a whole mini-batch each (``MiniBatchSampler.preparers``), it is as many as there are threads
        for a trainer, and one more, or two with prefetching.
        """

    def predicted_epochs(self) -> Mapping[str, float]:
        """After a run, by what they rest on, the seconds of an epoch that were predicted before it;
        the report has them beside the achieved ones."""
        return {}


@dataclass(frozen=True)
class SeedPlacement(OfMiniBatches, Placement):
    """Shares out the seeds of every round; evenly, unless it opens a session of its own."""

    #: Whether the host computes the loss of what accelerators have, and updates the model also
    #: where one trains alone: logits cross to it and their gradients back, then the model's
    #: gradients and its new weights.
    host_takes_loss: ClassVar[bool] = False

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> SeedSession:
        """Plan the first split of a run from sampled mini-batches of several sizes.

        ``profiles`` ascend in seeds; the last one is a full round. ``prefetch`` is in how many
        stages features are prefetched, see ``Bundle.prefetch_stages``.
        """
        return EvenShares(len(self.trainers(setting.platform)))

    def samplers(self, platform: Platform) -> tuple[Device, ...]:
        """The trainers that can draw their own mini-batches, where a share says so. They are
        accelerators, and hold the graph's topology."""
        return ()

    def wants_design_phase(self) -> bool:
        """Whether rates should be measured in a few rounds before a run whose times are measured,
        see ``gnnbench.design_phase``."""
        return False


class EvenShares(SeedSession):
    """As many seeds for each trainer, and one more for the last of them where seeds are left."""

    def __init__(self, num_trainers: int) -> None:
        self._num_trainers = num_trainers

    def share_out(self, seeds: IntArray) -> Handed:
        ranges = divide_evenly(len(seeds), self._num_trainers)
        return hand_out(
            seeds, tuple(Share(slot, end - begin) for slot, (begin, end) in enumerate(ranges))
        )


def hand_out(seeds: IntArray, shares: Sequence[Share]) -> Handed:
    """The shares with their seeds, which are dealt in runs as they come."""
    if len(shares) == 1:
        return ((shares[0], seeds),)
    ends = accumulate(share.seeds for share in shares)
    return tuple(
        (share, seeds[end - share.seeds : end]) for share, end in zip(shares, ends, strict=True)
    )


# --------------------------------------------------------------------------- partitions


@dataclass(frozen=True)
class PartitionPlacement(OfFullGraphs, Placement):
    """Every trainer computes the chunks of its own partition of a full graph."""


# --------------------------------------------------------------------------- shards


@dataclass(frozen=True)
class ColumnPlacement(Placement):
    """AGGREGATE by ranges of features: of mini-batches in the first layer, and with it the product
    that its UPDATE begins with."""

    @abstractmethod
    def shard_aggregate(
        self, num_vertices: int, width: int, platform: Platform
    ) -> tuple[Shard, ...]:
        """How AGGREGATE of ``num_vertices`` rows of ``width`` features is shared out.

        The shards cover every entry once; a slot has at most one, and its columns do not depend on
        the number of vertices.
        """


@dataclass(frozen=True)
class ShardPlacement(OfFullGraphs, ColumnPlacement):
    """AGGREGATE of a full graph by ranges of features, UPDATE by ranges of vertices (MixGCN §3.1.2,
    mixture of parallelism)."""

    @abstractmethod
    def shard_update(self, num_vertices: int, platform: Platform) -> tuple[tuple[int, int], ...]:
        """The range of vertices that each trainer updates, all features of them, in slot order.

        The ranges follow each other; a trainer that does not update has an empty one at the end.
        Slot 0 has the weights anyway.
        """


def divide_evenly(count: int, parts: int) -> tuple[tuple[int, int], ...]:
    """The range [i n / m, (i + 1) n / m) of ``count`` things for each part i of m, rounded down.

    MixGCN's Algorithm 2, lines 7 and 11.
    """
    return tuple((count * i // parts, count * (i + 1) // parts) for i in range(parts))
