"""Placements: which device computes which share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Literal

import numpy as np

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts.base import Part, Session, Setting
from gnnbench.parts.options import option_fields
from gnnbench.records import BatchProfile, HostThreads, IntArray, PartKind, Shard, Share, StageTimes

#: The shares of a round, each with its seeds.
Handed = Sequence[tuple[Share, IntArray]]


@dataclass(frozen=True)
class Placement(Part):
    """The devices that train, and the share of each.

    On mini-batches each device trains a share of every round's seeds, by default an even one. On
    full graphs it computes the chunks of its own partition, unless AGGREGATE is sharded
    ``by_features``.
    """

    kind: ClassVar[PartKind] = "placement"
    #: Whether AGGREGATE is sharded by ranges of features, see ``shard_aggregate``. For mini-batches
    #: this holds in the first layer, together with the product that its UPDATE begins with. For
    #: full graphs UPDATE is then sharded by ranges of vertices (MixGCN §3.1.2, mixture of
    #: parallelism), see ``shard_update``.
    by_features: ClassVar[bool] = False
    #: Whether the host computes the accelerators' loss, and also updates the model if one
    #: accelerator trains alone. Logits cross to the host and their gradients back, then the model's
    #: gradients and its new weights. Only for mini-batches.
    host_takes_loss: ClassVar[bool] = False
    #: Whether the placement divides the host's threads between sampling, loading and training. A
    #: loader's workers would then have no say.
    divides_threads: ClassVar[bool] = False

    @abstractmethod
    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """Return the devices that train; a ``slot`` (device index) is a position in this tuple."""

    def available(self, platform: Platform) -> dict[str, int]:
        """Return the options that set a number of devices, with the number available.

        The value 0 means all devices.

        An option ``accelerators`` counts the platform's accelerators, unless a placement overrides
        this method. A value below 0 or above the number available is refused.
        """
        counted = "accelerators" in option_fields(type(self))
        return {"accelerators": len(platform.accelerators)} if counted else {}

    def refuse_counts(self, platform: Platform) -> str | None:
        """Return why the platform has fewer devices than asked for; None where it has enough."""
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
        """Return the socket that holds each vertex's rows in its memory, int64 ``(V,)``.

        Sockets are numbered through all hosts.

        ``owner`` is the device index of each vertex. For full graphs it is the sampler's. For
        mini-batches it cycles through the devices, and only a vertex's host matters. The default
        spreads rows evenly, as interleaved pages do.
        """
        return np.arange(len(owner), dtype=np.int64) % len(setting.platform.sockets)

    def open(
        self, setting: Setting, profiles: Sequence[BatchProfile], prefetch: Literal[0, 1, 2]
    ) -> SeedSession:
        """Plan the first split of a run from sampled mini-batches of several sizes.

        ``profiles`` ascend in seeds; the last one is a full round. ``prefetch`` is the number of
        stages that prefetch features, see ``Bundle.prefetch_stages``.
        """
        return EvenShares(len(self.trainers(setting.platform)))

    def samplers(self, platform: Platform) -> tuple[Device, ...]:
        """Return the trainers that can draw their own mini-batches if a share says so.

        They are accelerators, and hold the graph's topology.
        """
        return ()

    def wants_design_phase(self) -> bool:
        """Return whether a few rounds before a measured run should measure rates.

        See ``gnnbench.price.design_phase``.
        """
        return False

    def shard_aggregate(
        self, num_vertices: int, width: int, platform: Platform
    ) -> tuple[Shard, ...]:
        """Return the shards of AGGREGATE of ``num_vertices`` rows of ``width`` features.

        By default the first device has one shard.

        The shards cover every entry once. A device has at most one shard, and its columns do not
        depend on the number of vertices.
        """
        return (Shard(0, (0, num_vertices), (0, width)),)

    def shard_update(self, num_vertices: int, platform: Platform) -> tuple[tuple[int, int], ...]:
        """Return the range of vertices that each trainer updates, with all features.

        Ranges are by device index. By default the first trainer has all of them.

        The ranges follow each other; a trainer that does not update has an empty one at the end.
        Device index 0 always holds the weights.
        """
        others = len(self.trainers(platform)) - 1
        return ((0, num_vertices), *[(num_vertices, num_vertices)] * others)


# --------------------------------------------------------------------------- seeds


class SeedSession(Session):
    """The shares of a run's rounds; may rebalance from round to round."""

    @abstractmethod
    def share_out(self, seeds: IntArray) -> Handed:
        """Return each share of a round with its seeds, in order of device index.

        Every one of ``seeds`` is in one share; a share may be empty. :func:`hand_out` deals seeds
        in their order.
        """

    def host_threads(self) -> HostThreads:
        """Return how the host's threads are divided between sampling, loading and training."""
        return HostThreads()

    def observe(self, times: StageTimes) -> None:
        """Observe the stage times of a round; rebalance later rounds.

        Rounds are observed in order. Let d be the maximum number of rounds in flight. Before the
        shares of round i are requested, exactly the rounds up to i - d have been observed. d is one
        without prefetching, three with one-stage and four with two-stage prefetching. If each
        thread prepares a whole mini-batch (``MiniBatchSampler.preparers``), d is the number of
        threads for a trainer plus one, or plus two with prefetching.
        """

    def predicted_epochs(self) -> Mapping[str, float]:
        """Return the predicted seconds of an epoch, by the basis of the prediction.

        Called after a run; the report shows them beside the achieved seconds.
        """
        return {}


class EvenShares(SeedSession):
    """Equal shares of the seeds for all trainers.

    The last trainers get one more if seeds are left over.
    """

    def __init__(self, num_trainers: int) -> None:
        self._num_trainers = num_trainers

    def share_out(self, seeds: IntArray) -> Handed:
        ranges = divide_evenly(len(seeds), self._num_trainers)
        return hand_out(
            seeds, tuple(Share(slot, end - begin) for slot, (begin, end) in enumerate(ranges))
        )


def hand_out(seeds: IntArray, shares: Sequence[Share]) -> Handed:
    """Return the shares with their seeds, dealt as consecutive ranges in their order."""
    if len(shares) == 1:
        return ((shares[0], seeds),)
    ends = accumulate(share.seeds for share in shares)
    return tuple(
        (share, seeds[end - share.seeds : end]) for share, end in zip(shares, ends, strict=True)
    )


def divide_evenly(count: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Return the range [i n / m, (i + 1) n / m) of ``count`` items for each part i of m.

    The bounds are rounded down.

    MixGCN's Algorithm 2, lines 7 and 11.
    """
    return tuple((count * i // parts, count * (i + 1) // parts) for i in range(parts))
