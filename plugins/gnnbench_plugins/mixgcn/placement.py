"""Mixture of parallelism over groups of sparse and dense devices: MixGCN §3.1.2 and §3.2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from gnnbench.errors import UsageError
from gnnbench.parts import Bundle, Part, Setting, ShardPlacement, divide_evenly, option
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import Shard
from gnnbench.units import format_si
from gnnbench_plugins.mixgcn.groups import (
    Groups,
    choose_groups,
    make_groups,
    price_epoch,
    share_out,
)
from gnnbench_plugins.mixgcn.ordering import CutsBatches


@dataclass(frozen=True)
class MixGCNPlacement(ShardPlacement):
    """AGGREGATE by ranges of features, UPDATE by ranges of vertices (Algorithm 2, lines 7 and 11).

    Both groups may be the same devices, or sparse ones aggregate for dense ones: devices of kind
    ``sparse`` where the platform has any, the host (the paper's MixGCN-CPU), or some of the
    accelerators, set apart. The groups need not be of one size: of accelerators set apart, so many
    aggregate as make the pipeline's modelled epoch shortest, unless a number is asked for.

    An adjacency too large for one device is cut into ``row_groups``: the sparse devices form as
    many groups, each of which aggregates a range of every round's vertices, by ranges of features
    among its members. Rows that several groups read are sent to each of them.
    """

    name: ClassVar[str] = "mixgcn"
    summary: ClassVar[str] = "AGGREGATE by ranges of features, UPDATE by ranges of vertices"

    accelerators: int = option(0, "how many accelerators to use besides sparse ones; 0 = all")
    sparse: Literal["auto", "shared", "host", "sparse", "apart"] = option(
        "auto",
        "who aggregates: the devices that update (shared), the host, devices of kind sparse, or "
        "the last of the accelerators (apart); auto = sparse where there are any, else shared",
    )
    sparse_devices: int = option(
        0,
        "how many devices aggregate; 0 = all, or as many set apart as make the modelled epoch "
        "shortest (half of them where devices differ or row_groups is above 1)",
    )
    row_groups: int = option(1, "groups of sparse devices that have a part of the adjacency each")

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        """Groups that are empty, or do not divide the sparse devices."""
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
        """How many devices are set apart: the split of the accelerators whose epoch takes least,
        in the batches of the sampler. Half of them where the model knows no such groups."""
        dense, sampler = self._dense(setting.platform), bundle.sampler
        if self.sparse != "apart" or self.sparse_devices or len(dense) < 3:
            return self, ()
        try:
            groups = self.groups(setting.platform)
        except UsageError:
            return self, ()
        if not isinstance(sampler, CutsBatches):
            return self, ()
        rest = (setting.layers, sampler.cut(setting.dataset.graph))
        itemsize = setting.workload.itemsize
        chosen = choose_groups(
            share_out(groups, len(dense)), *rest, bundle.kernel, itemsize=itemsize
        )
        half, count = groups.sparse_count, chosen.groups.sparse_count
        half_s = price_epoch(*rest, groups, bundle.kernel, itemsize=itemsize).epoch_s
        than_half = f", and {format_si(half_s, 's')} with {half} of them" if count != half else ""
        note = (
            f"{count} of {len(dense)} accelerators aggregate for {len(dense) - count} that update, "
            f"the split with the shortest modelled pipeline: {format_si(chosen.epoch_s, 's')} an "
            f"epoch{than_half}"
        )
        return replace(self, sparse_devices=count), (note,)

    def groups(self, platform: Platform) -> Groups:
        """Both groups, for the model of the pipeline; errors as of ``make_groups``, and
        ``UsageError`` for several groups of rows."""
        if self.row_groups != 1:
            raise UsageError(
                "the model of the pipeline knows one group of rows, with the adjacency on every "
                "device that aggregates; leave out placement.row_groups."
            )
        return make_groups(platform, self.aggregators(platform), self.updaters(platform))

    def available(self, platform: Platform) -> dict[str, int]:
        """Sparse devices are counted where the option ``sparse`` takes them from."""
        dense = sum(device.kind != "sparse" for device in platform.accelerators)
        count = len(platform.accelerators) - dense
        if self.sparse == "host":
            count = 1
        elif self.sparse in ("shared", "apart") or not count:
            count = len(self._dense(platform))
        return {"accelerators": dense, "sparse_devices": count}

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        """The devices that update, then those that only aggregate."""
        updaters = self.updaters(platform)
        others = (device for device in self.aggregators(platform) if device not in updaters)
        return (*updaters, *others)

    def updaters(self, platform: Platform) -> tuple[Device, ...]:
        """The dense group, in slot order."""
        dense = self._dense(platform)
        if self.sparse == "apart":
            return dense[: len(dense) - len(self._set_apart(dense))]
        return dense

    def aggregators(self, platform: Platform) -> tuple[Device, ...]:
        """The sparse group."""
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
        """Device i of a group of m has the columns [i d / m, (i + 1) d / m)."""
        trainers, sparse = self.trainers(platform), self.aggregators(platform)
        groups = self.row_groups
        members = len(sparse) // groups
        rows, columns = divide_evenly(num_vertices, groups), divide_evenly(width, members)
        return tuple(
            Shard(trainers.index(device), rows[place // members], columns[place % members])
            for place, device in enumerate(sparse)
        )

    def shard_update(self, num_vertices: int, platform: Platform) -> tuple[tuple[int, int], ...]:
        """Device i of m has the vertices [i k / m, (i + 1) k / m)."""
        ranges = divide_evenly(num_vertices, len(self.updaters(platform)))
        others = len(self.trainers(platform)) - len(ranges)
        return (*ranges, *[(num_vertices, num_vertices)] * others)
