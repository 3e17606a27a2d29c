"""The groups of sparse and dense devices: what a pipeline costs on them, and how many of each.

MixGCN §3.2 takes a group of identical sparse devices and one of identical dense devices, as many of
each. A sparse device then aggregates all vertices of a batch for its range of features, a dense one
updates its range of the batch's vertices, and an all-to-all lies between the two (§3.1.2). Section
4.4.2 says that "significant latency imbalances between neighbor aggregation and node update" leave
reordering little to gain; past the paper, the numbers of devices may differ, and are those with
which an epoch takes least.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from gnnbench.errors import UsageError
from gnnbench.parts import Kernel, LayerShape
from gnnbench.platforms.machine import Device, Link, Platform
from gnnbench.records import Work
from gnnbench_plugins.mixgcn.ordering import Batches
from gnnbench_plugins.mixgcn.pipeline import Pass, Timeline, schedule_passes


@dataclass(frozen=True, slots=True)
class Groups:
    """So many devices like ``sparse``, so many like ``dense``, and a link from any to any.

    The host is one sparse device with all its cores. Where both groups are the same devices
    (``shared``), each keeps its own part of what is exchanged, and one alone has no ``link``.
    """

    sparse: Device
    dense: Device
    link: Link | None
    sparse_count: int
    dense_count: int
    shared: bool = False

    def exchange_s(self, rows: int, width: int, itemsize: int) -> float:
        """The all-to-all of ``rows`` of ``width`` between the groups, either way, seconds.

        Every sparse device has a range of features of each row, every dense one all features of a
        range of rows, so each pair exchanges the rows of one by the features of the other. A device
        serves one peer at a time, and as many pairs as can are at it.
        """
        if self.link is None:
            return 0.0
        turns = max(self.sparse_count, self.dense_count) - self.shared
        each = _share(rows, self.dense_count) * _share(width, self.sparse_count) * itemsize
        return turns * (self.link.latency_s + each / self.link.bandwidth_bytes_per_s)


def make_groups(platform: Platform, sparse: Sequence[Device], dense: Sequence[Device]) -> Groups:
    """Two groups of a platform's devices, each of identical ones, apart or the same.

    ``UsageError`` for an empty group, for one whose devices differ, and for two that share some
    of their devices.
    """
    for what, group in (("aggregates", sparse), ("updates", dense)):
        if not group:
            raise UsageError(
                f"platform {platform.name} has no device left that {what}; choose another by "
                f"--platform."
            )
        if len({replace(device, name="", torch_device="") for device in group}) > 1:
            names = ", ".join(device.name for device in group)
            raise UsageError(
                f"the devices of platform {platform.name} that would {what[:-1]} differ ({names}); "
                f"MixGCN groups identical ones, so describe a platform with one kind of them."
            )
    shared = set(sparse) == set(dense)
    if not shared and set(sparse) & set(dense):
        raise UsageError(
            f"some devices of platform {platform.name} would aggregate and update and others do "
            f"one of the two, which the model of the pipeline does not know; choose "
            f"placement.sparse=apart, or leave out placement.sparse_devices."
        )
    link = None
    if not shared or len(dense) > 1:
        link = platform.link(sparse[0].name, dense[1 if shared else 0].name)
    return Groups(sparse[0], dense[0], link, len(sparse), len(dense), shared)


@runtime_checkable
class HasGroups(Protocol):
    """A placement that has a sparse and a dense group."""

    def groups(self, platform: Platform) -> Groups: ...


def find_groups(platform: Platform) -> Groups:
    """All sparse accelerators of a platform, and all others; errors as of ``make_groups``."""
    sparse = [device for device in platform.accelerators if device.kind == "sparse"]
    return make_groups(platform, sparse, _find_dense(platform))


def use_host(platform: Platform) -> Groups:
    """The host and all dense accelerators, MixGCN-CPU; errors as of ``make_groups``."""
    return make_groups(platform, [platform.host], _find_dense(platform))


def _find_dense(platform: Platform) -> list[Device]:
    return [device for device in platform.accelerators if device.kind != "sparse"]


def price_passes(
    layers: Sequence[LayerShape],
    batches: Batches,
    groups: Groups,
    kernel: Kernel,
    *,
    itemsize: int = 4,
) -> tuple[Pass, ...]:
    """The 2 L - 1 passes of an epoch, each batch's steps in seconds.

    Forward, layer l aggregates f^{l-1} features and updates them. The last layer's update, the loss
    and the same layer's update backward need no other batch, so the pipeline turns round in one
    step. Backward, the gradients of f^{l-1} features are aggregated and the layer below updated
    backward: two products, for its weights and its input, or one in layer 1, whose features need no
    gradient and which nothing returns from. Layers are ``featurewise``.
    """
    pricing = _Pricing(batches, groups, kernel, itemsize)
    last = len(layers) - 1
    passes = []
    for number, layer in enumerate(layers):
        products: tuple[int, ...] = (1,)
        back = layers[number + 1].in_features if number < last else 0
        if number == last:
            products = (1, _backward_products(number))
            back = layer.aggregate_features if number else 0
        label = f"forward {number + 1}"
        passes.append(pricing.price(label, layer, layer.aggregate_features, layer, products, back))
    for number in range(last, 0, -1):
        layer, below = layers[number], layers[number - 1]
        products, back = (_backward_products(number - 1),), 0
        if number > 1:
            back = below.aggregate_features
        label = f"backward {number + 1}"
        passes.append(pricing.price(label, layer, layer.in_features, below, products, back))
    return tuple(passes)


def price_epoch(
    layers: Sequence[LayerShape],
    batches: Batches,
    groups: Groups,
    kernel: Kernel,
    *,
    itemsize: int = 4,
) -> Timeline:
    """The pipeline's timeline over ``price_passes``."""
    passes = price_passes(layers, batches, groups, kernel, itemsize=itemsize)
    return schedule_passes(passes, batches.last_read, shared=groups.shared)


def _backward_products(layer: int) -> int:
    return 2 if layer else 1


def _share(whole: int, parts: int) -> int:
    """The largest share of ``whole`` things among ``parts``."""
    return -(-whole // parts)


@dataclass(frozen=True, slots=True)
class _Pricing:
    """What does not change between passes."""

    batches: Batches
    groups: Groups
    kernel: Kernel
    itemsize: int

    def price(
        self,
        label: str,
        aggregated: LayerShape,
        sent: int,
        updated: LayerShape,
        products: tuple[int, ...],
        returned: int,
    ) -> Pass:
        """One pass: of ``aggregated`` the input's features are summed, ``sent`` features a row go
        to the dense devices, ``updated`` is multiplied there so often, one number for each call,
        and ``returned`` features a row come back."""
        groups, itemsize = self.groups, self.itemsize
        width = _share(aggregated.in_features, groups.sparse_count)
        seconds = np.zeros((4, len(self.batches.rows)))
        sizes = zip(self.batches.rows.tolist(), self.batches.edges.tolist(), strict=True)
        for batch, (rows, edges) in enumerate(sizes):
            sum_rows = Work("aggregate", edges, rows, width, itemsize=itemsize)
            seconds[0, batch] = self.kernel.seconds(sum_rows, groups.sparse)
            seconds[1, batch] = groups.exchange_s(rows, sent, itemsize)
            seconds[2, batch] = sum(self._update_s(rows, updated, count) for count in products)
            if returned:
                seconds[3, batch] = groups.exchange_s(rows, returned, itemsize)
        return Pass(label, seconds)

    def _update_s(self, rows: int, layer: LayerShape, products: int) -> float:
        """UPDATE on the fullest dense device."""
        own = _share(rows, self.groups.dense_count)
        work = Work(
            "update",
            rows=own,
            features=layer.out_features,
            macs=own * layer.macs_per_row * products,
            itemsize=self.itemsize,
        )
        return self.kernel.seconds(work, self.groups.dense)


# --------------------------------------------------------------------------- how many of each


@dataclass(frozen=True, slots=True)
class Choice:
    """Groups and the seconds of an epoch with them."""

    groups: Groups
    epoch_s: float


def share_out(groups: Groups, total: int) -> list[Groups]:
    """Every way to have ``total`` devices, at least one of them sparse and one dense."""
    if total < 2:
        raise UsageError(
            f"{total} devices cannot be a sparse and a dense group; ask for 2 or more."
        )
    return [
        replace(groups, sparse_count=count, dense_count=total - count) for count in range(1, total)
    ]


def take_some(groups: Groups, total: int = 0) -> list[Groups]:
    """Every way to use devices of both groups, all or fewer, ``total`` at most unless it is 0."""
    pairs = [
        (sparse, dense)
        for sparse in range(1, groups.sparse_count + 1)
        for dense in range(1, groups.dense_count + 1)
    ]
    return [
        replace(groups, sparse_count=sparse, dense_count=dense)
        for sparse, dense in pairs
        if not total or sparse + dense <= total
    ]


def choose_groups(
    candidates: Iterable[Groups],
    layers: Sequence[LayerShape],
    batches: Batches,
    kernel: Kernel,
    *,
    itemsize: int = 4,
) -> Choice:
    """The candidate whose epoch takes least; of equal ones that with the fewest devices, then the
    one with the fewest sparse devices."""
    choices = [
        Choice(each, price_epoch(layers, batches, each, kernel, itemsize=itemsize).epoch_s)
        for each in candidates
    ]
    if not choices:
        raise UsageError("there is no way to choose devices; allow at least one of each group.")

    def rank(choice: Choice) -> tuple[float, int, int]:
        groups = choice.groups
        return (
            choice.epoch_s,
            groups.sparse_count + groups.dense_count,
            groups.sparse_count,
        )

    return min(choices, key=rank)
