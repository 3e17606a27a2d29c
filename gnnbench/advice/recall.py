"""A cache for plans of one graph: chunks of full graphs, and mini-batches.

A sampler makes the same chunks, and draws the same mini-batches, in many combinations. Each is
recalled if everything that it may depend on is the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import fields, replace

from gnnbench.machines.machine import Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import (
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    MiniBatchSampler,
    Part,
    Setting,
)
from gnnbench.plugins import Registry
from gnnbench.records import Block, IntArray, PartKind, Round

#: The most bytes that are kept; the oldest entries go first.
RECALLED_BYTES = 1_000_000_000


class Recall:
    """The latest chunks and mini-batches, by what they depend on."""

    def __init__(self, capacity_bytes: int = RECALLED_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._held_bytes = 0
        self._found: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        #: Keys contain the identity of a dataset, which another one must not reuse.
        self._kept: dict[int, object] = {}

    def keep(self, item: object) -> int:
        """Keep something, and return its identity."""
        self._kept[id(item)] = item
        return id(item)

    def find(self, key: Hashable) -> object | None:
        """Return the item of ``key``, which becomes the most recent one, or None."""
        if key not in self._found:
            return None
        self._found.move_to_end(key)
        return self._found[key][0]

    def add(self, key: Hashable, item: object, size: int) -> None:
        """Keep an item of ``size`` bytes; the least recent items leave beyond the capacity."""
        self._found[key] = (item, size)
        self._held_bytes += size
        while self._held_bytes > self._capacity_bytes and len(self._found) > 1:
            _, (_, gone_bytes) = self._found.popitem(last=False)
            self._held_bytes -= gone_bytes


class WatchedCapacity:
    """A capacity that records whether it was asked."""

    def __init__(self, capacity: DeviceCapacity) -> None:
        self._capacity = capacity
        self.asked = False

    @property
    def device_bytes(self) -> int:
        """The capacity of a device; reading it sets ``asked``."""
        self.asked = True
        return self._capacity.device_bytes

    def holds(self, rounds: Sequence[Round], owner: IntArray, pieces: int = 1) -> bool:
        """Return whether the rounds fit, and set ``asked``."""
        self.asked = True
        return self._capacity.holds(rounds, owner, pieces)


def with_recall(registry: Registry, recall: Recall) -> Registry:
    """Return the registry with samplers that recall their results."""
    parts: dict[tuple[PartKind, str], type[Part]] = dict(registry.parts)
    for (kind, name), part in registry.parts.items():
        if issubclass(part, FullGraphSampler):
            parts[kind, name] = _recall_chunks(part, recall)
        elif issubclass(part, MiniBatchSampler):
            parts[kind, name] = _recall_batches(part, recall)
    return replace(registry, parts=parts)


def _recall_chunks(sampler: type[FullGraphSampler], recall: Recall) -> type[Part]:
    def chunks(
        self: FullGraphSampler,
        setting: Setting,
        num_slots: int,
        capacity: DeviceCapacity | None = None,
    ) -> Chunks:
        key = (
            sampler,
            describe_options(self),
            recall.keep(setting.dataset),
            describe_workload(setting),
            describe_rates(setting.platform),
            num_slots,
        )
        found = recall.find(key)
        if isinstance(found, Chunks):
            return found
        watched = None if capacity is None else WatchedCapacity(capacity)
        made = sampler.chunks(self, setting, num_slots, watched)
        if watched is None or not watched.asked:
            blocks = [b for each in made.rounds for unit in each.units for b in unit.blocks]
            recall.add(key, made, made.owner.nbytes + count_bytes(blocks))
        return made

    return type(sampler.__name__, (sampler,), {"chunks": chunks, "__module__": sampler.__module__})


def _recall_batches(sampler: type[MiniBatchSampler], recall: Recall) -> type[Part]:
    def begin(self: MiniBatchSampler, setting: Setting) -> None:
        sampler.begin(self, setting)
        given = (recall.keep(setting.dataset), describe_workload(setting))
        object.__setattr__(self, "_given", given)

    def sample(
        self: MiniBatchSampler, seeds: IntArray, epoch: int, threads: int
    ) -> tuple[Block, ...]:
        given: Hashable = vars(self)["_given"]
        key = (sampler, describe_options(self), given, epoch, seeds.tobytes())
        found = recall.find(key)
        if isinstance(found, tuple):
            return found
        made = sampler.sample(self, seeds, epoch, threads)
        recall.add(key, made, count_bytes(made))
        return made

    members = {"begin": begin, "sample": sample, "__module__": sampler.__module__}
    return type(sampler.__name__, (sampler,), members)


def describe_options(part: Part) -> str:
    """Return the values of a part's options as text."""
    # Every kind of part is a dataclass.
    named = [each.name for each in fields(part) if each.init]  # type: ignore[arg-type]
    return repr([(name, getattr(part, name)) for name in named])


def describe_workload(setting: Setting) -> str:
    """Return the workload without its number of epochs, as text."""
    return repr((replace(setting.workload, epochs=1), setting.layers))


def describe_rates(platform: Platform) -> str:
    """Return everything of a platform but the sizes of its memories, as text."""
    devices = [replace_fields(device, memory_bytes=0) for device in platform.devices]
    return repr((devices, platform.links, platform.round_s))


def count_bytes(blocks: Sequence[Block]) -> int:
    """Return the bytes of the blocks' arrays."""
    return sum(block.array_bytes for block in blocks)
