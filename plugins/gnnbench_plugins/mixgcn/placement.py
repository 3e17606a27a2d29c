"""Mixture of parallelism over groups of sparse and dense devices: MixGCN §3.1.2 and §3.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from gnnbench.lowering.shardings import Piece
from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import FULL_GRAPHS, Bundle, Part, Placement, Setting, divide_evenly, option
from gnnbench.records import Mode, Shard
from gnnbench.units import format_si
from gnnbench_plugins.mixgcn.outlook import foresee, share_out
from gnnbench_plugins.mixgcn.sampler import MixGCNSampler


@dataclass(frozen=True)
class MixGCNPlacement(Placement):
    """A placement with AGGREGATE by ranges of features and UPDATE by ranges of vertices.

    They are lines 7 and 11 of Algorithm 2. Both groups may be the same devices. If not, sparse
    devices aggregate for dense ones: devices of kind ``sparse`` if the platform has any, the host
    (the paper's MixGCN-CPU), or accelerators set apart. The groups may differ in size. By
    default the number of accelerators set apart minimises the modelled epoch.

    An adjacency too large for one device is cut into ``row_groups``. The sparse devices form that
    number of groups. Each aggregates a range of every round's vertices, by ranges of features among
    its members. Rows that several groups read are sent to each of them.
    """

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "AGGREGATE by ranges of features, UPDATE by ranges of vertices"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    by_features: ClassVar[bool] = True

    accelerators: int = option(0, "how many accelerators to use besides sparse ones; 0 = all")
    sparse: Literal["auto", "shared", "host", "sparse", "apart"] = option(
        "auto",
        "what aggregates: the updating devices (shared), the host, sparse devices, or the last "
        "accelerators (apart); auto = sparse if there are any, else shared",
    )
    sparse_devices: int = option(
        0,
        "how many devices aggregate; 0 = all, or with apart the number with the shortest "
        "modelled epoch (half of them if row_groups is above 1)",
    )
    row_groups: int = option(1, "groups of sparse devices that have a part of the adjacency each")

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        """Refuse groups that are empty, or do not divide the sparse devices."""
        platform = setting.platform
        dense, sparse = self.updaters(platform), self.aggregators(platform)
        if not sparse or not dense:
            lacking = "dense" if sparse else "sparse"
            fewer = "fewer placement.sparse_devices, " if sparse and self.sparse_devices else ""
            return (
                f"placement.sparse is {self.sparse!r}, and platform {platform.name} leaves no "
                f"{lacking} device then; choose {fewer}placement.sparse=shared or host."
            )
        if self.row_groups < 1 or len(sparse) % self.row_groups:
            return (
                f"placement.row_groups is {self.row_groups}, which does not divide the "
                f"{len(sparse)} devices that aggregate; choose a divisor of {len(sparse)}."
            )
        return None

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """Settle how many devices are set apart, for the rounds of the sampler."""
        sampler = bundle.sampler
        if not (self.leaves_open(setting.platform) and isinstance(sampler, MixGCNSampler)):
            return self, ()
        chosen, note = self.divide(bundle, setting, sampler.count_rounds(setting.dataset.graph))
        return chosen, (note,)

    def leaves_open(self, platform: Platform) -> bool:
        """Return whether the options leave open how many accelerators are set apart."""
        said = self.sparse != "apart" or self.sparse_devices or self.row_groups > 1
        return not said and len(self._dense(platform)) > 2

    def divide(
        self, bundle: Bundle, setting: Setting, rounds: Sequence[Piece]
    ) -> tuple[MixGCNPlacement, str]:
        """Return this placement with the accelerators set apart that minimise an epoch, and why.

        The epoch consists of ``rounds``.
        """

        def set_apart(count: int) -> MixGCNPlacement:
            return replace(self, sparse_devices=count)

        def price(count: int) -> float:
            return foresee(replace(bundle, placement=set_apart(count)), setting, rounds).epoch_s

        total = len(self._dense(setting.platform))
        count, epoch_s = share_out(total, price)
        note = (
            f"{count} of {total} accelerators aggregate for {total - count} that update, the split "
            f"with the shortest modelled epoch of those that were tried: {format_si(epoch_s, 's')}"
        )
        return set_apart(count), note

    def available(self, platform: Platform) -> dict[str, int]:
        """Count the devices available; the option ``sparse`` decides which are sparse devices."""
        dense = sum(device.kind != "sparse" for device in platform.accelerators)
        count = len(platform.accelerators) - dense
        if self.sparse == "host":
            count = 1
        elif self.sparse in ("shared", "apart") or not count:
            count = len(self._dense(platform))
        return {"accelerators": dense, "sparse_devices": count}

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """Return the devices that update, then those that only aggregate."""
        updaters = self.updaters(platform)
        others = (device for device in self.aggregators(platform) if device not in updaters)
        return (*updaters, *others)

    def updaters(self, platform: Platform) -> tuple[Device, ...]:
        """Return the dense group, in slot order."""
        dense = self._dense(platform)
        if self.sparse == "apart":
            return dense[: len(dense) - len(self._set_apart(dense))]
        return dense

    def aggregators(self, platform: Platform) -> tuple[Device, ...]:
        """Return the sparse group."""
        chosen = self.sparse
        dense = self._dense(platform)
        sparse = tuple(device for device in platform.accelerators if device.kind == "sparse")
        if chosen == "auto":
            chosen = "sparse" if sparse else "shared"
        if chosen == "host":
            return (platform.host,)
        if chosen == "apart":
            return self._set_apart(dense)
        return (sparse if chosen == "sparse" else dense)[: self.sparse_devices or None]

    def _dense(self, platform: Platform) -> tuple[Device, ...]:
        dense = tuple(device for device in platform.accelerators if device.kind != "sparse")
        return dense[: self.accelerators or None] or (platform.host,)

    def _set_apart(self, dense: tuple[Device, ...]) -> tuple[Device, ...]:
        count = self.sparse_devices or len(dense) // 2
        count = min(count, len(dense))
        return dense[len(dense) - count :]

    def shard_aggregate(
        self, num_vertices: int, width: int, platform: Platform
    ) -> tuple[Shard, ...]:
        """Return shards: device i of a group of m has the columns [i d / m, (i + 1) d / m)."""
        trainers, sparse = self.trainers(platform), self.aggregators(platform)
        groups = self.row_groups
        members = len(sparse) // groups
        rows, columns = divide_evenly(num_vertices, groups), divide_evenly(width, members)
        return tuple(
            Shard(trainers.index(device), rows[place // members], columns[place % members])
            for place, device in enumerate(sparse)
        )

    def shard_update(self, num_vertices: int, platform: Platform) -> tuple[tuple[int, int], ...]:
        """Return ranges: device i of m has the vertices [i k / m, (i + 1) k / m)."""
        ranges = divide_evenly(num_vertices, len(self.updaters(platform)))
        others = len(self.trainers(platform)) - len(ranges)
        return (*ranges, *[(num_vertices, num_vertices)] * others)
