"""Placement of feature columns and of seeds on accelerators."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import (
    MINI_BATCHES,
    Bundle,
    DeviceMemory,
    Placement,
    Setting,
    ShardExchange,
    divide_evenly,
    option,
)
from gnnbench.records import Mode, Shard
from gnnbench_plugins.reference.data_parallel import DataParallelPlacement


@dataclass(frozen=True)
class P3Placement(Placement):
    """The first layer split into even ranges of columns, and the layers above split by seeds.

    The devices must be modelled: the push runs on this machine's processor.
    """

    name: ClassVar[str] = "p3"
    summary: ClassVar[str] = "first layer by columns of the features, the others by even shares"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES
    by_features: ClassVar[bool] = True

    accelerators: int = option(0, "how many accelerators to use; 0 = all", tried=(0, 1, 2))

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return DataParallelPlacement(self.accelerators).trainers(platform)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if not isinstance(bundle.communication, ShardExchange):
            return (
                f"placement 'p3' gives each device some columns of the features, and communication "
                f"{bundle.communication.name!r} moves whole rows; choose communication 'p3'."
            )
        if not isinstance(bundle.memory, DeviceMemory):
            return (
                f"placement 'p3' keeps some columns of the features on each device, and memory "
                f"{bundle.memory.name!r} keeps features on the host; choose memory 'resident'."
            )
        first = setting.layers[0]
        if not (first.traits.featurewise and first.product_features):
            return (
                f"placement 'p3' splits the columns of features, but the first layer of model "
                f"{setting.workload.model!r} needs whole rows. Choose gcn, sage, gin or commnet."
            )
        here = [d for d in self.trainers(setting.platform) if d.torch_device != "cpu"]
        if here:
            return (
                f"placement 'p3' has its devices modelled, and {here[0].name} of platform "
                f"{setting.platform.name} is of this machine; choose a described platform, such as "
                f"epyc7763x2-4xa5000."
            )
        return None

    def shard_aggregate(
        self, num_vertices: int, width: int, platform: Platform
    ) -> tuple[Shard, ...]:
        """Return shards: device i of m has all vertices' columns [i f / m, (i + 1) f / m)."""
        columns = divide_evenly(width, len(self.trainers(platform)))
        return tuple(
            Shard(slot, (0, num_vertices), (begin, end))
            for slot, (begin, end) in enumerate(columns)
            if begin < end
        )
