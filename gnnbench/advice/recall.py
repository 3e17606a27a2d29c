"""What plans of one graph have in common, made once: chunks of full graphs, and mini-batches.

A sampler is asked for the same chunks, and draws the same mini-batches, for every combination that
it is put into. Each is recalled where all that it may depend on is the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import fields, replace

from gnnbench.parts import (
    Chunks,
    DeviceCapacity,
    FullGraphSampler,
    MiniBatchSampler,
    Part,
    Setting,
)
from gnnbench.platforms.machine import Platform
from gnnbench.plugins import Registry
from gnnbench.records import Block, IntArray, PartKind, Round

#: What is recalled takes so much memory at most; the oldest goes first.
RECALLED_BYTES = 1_000_000_000


class Recall:
    """Chunks and mini-batches by what they depend on, the latest of them."""

    def __init__(self, capacity_bytes: int = RECALLED_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._held_bytes = 0
        self._found: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        #: A key has the identity of a dataset, which must not be given to another one.
        self._kept: dict[int, object] = {}

    def keep(self, item: object) -> int:
        """The identity of something that is kept."""
        self._kept[id(item)] = item
        return id(item)

    def find(self, key: Hashable) -> object | None:
        if key not in self._found:
            return None
        self._found.move_to_end(key)
        return self._found[key][0]

    def add(self, key: Hashable, item: object, size: int) -> None:
        self._found[key] = (item, size)
        self._held_bytes += size
        while self._held_bytes > self._capacity_bytes and len(self._found) > 1:
            _, (_, gone_bytes) = self._found.popitem(last=False)
            self._held_bytes -= gone_bytes


class WatchedCapacity:
    """A capacity that remembers whether it was asked."""

    def __init__(self, capacity: DeviceCapacity) -> None:
        self._capacity = capacity
        self.asked = False

    @property
    def device_bytes(self) -> int:
        self.asked = True
        return self._capacity.device_bytes

    def holds(self, rounds: Sequence[Round], owner: IntArray, pieces: int = 1) -> bool:
        self.asked = True
        return self._capacity.holds(rounds, owner, pieces)


def with_recall(registry: Registry, recall: Recall) -> Registry:
    """The registry, whose samplers recall what they have made."""
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
    """The values of a part's options."""
    # Every kind of part is a dataclass.
    named = [each.name for each in fields(part) if each.init]  # type: ignore[arg-type]
    return repr([(name, getattr(part, name)) for name in named])


def describe_workload(setting: Setting) -> str:
    """What is trained, but for how long."""
    return repr((replace(setting.workload, epochs=1), setting.layers))


def describe_rates(platform: Platform) -> str:
    """All of a platform but the sizes of its memories."""
    devices = [replace(device, memory_bytes=0) for device in platform.devices]
    return repr((devices, platform.links, platform.round_s))


def count_bytes(blocks: Sequence[Block]) -> int:
    """What blocks hold."""
    return sum(b.indptr.nbytes + b.indices.nbytes + b.src_ids.nbytes for b in blocks)
