"""The two plain memories: everything on the device, or vertex data on the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.constants import Bound
from gnnbench.parts import (
    Bundle,
    DeviceMemory,
    LoadingMemory,
    Setting,
    option,
    refuse_priced,
)
from gnnbench.records import Loading

#: How rows reach an accelerator, by the word of the option ``rows``.
LOADING: Bound[Mapping[str, Loading]] = {
    "pageable": "staged",
    "pinned": "blocks",
    "in-place": "in-place",
}


@dataclass(frozen=True)
class ResidentMemory(DeviceMemory):
    """A memory that keeps everything on the devices, for mini-batches and for full graphs."""

    name: ClassVar[str] = "resident"
    summary: ClassVar[str] = "everything stays on the device"


@dataclass(frozen=True)
class HostMemory(LoadingMemory):
    """A memory with features on the host; a mini-batch's rows are on the device while it trains.

    Each of several hosts has the features of its vertices, and reads others over the network, as
    from a key-value store. If features are ``replicated``, every host has all of them.
    """

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "features on the host, one mini-batch at a time on the device"

    rows: Literal["loader", "pageable", "pinned", "in-place"] = option(
        "loader",
        "how rows reach accelerators: as the sampler's loader has it, picked into pageable or "
        "pinned memory, or read in place",
    )
    replicated: bool = option(False, "every host has all features")

    @property
    def loading(self) -> Loading | None:
        return LOADING.get(self.rows)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        platform, placement = setting.platform, bundle.placement
        if self.replicated and not platform.other_hosts:
            return (
                f"memory.replicated is true, and platform {platform.name} has one host; leave it "
                f"out."
            )
        if self.rows == "loader":
            return None
        if platform.host in placement.trainers(platform):
            return (
                f"memory.rows is {self.rows!r}, and placement {placement.name!r} trains on the "
                f"host, which reads its own memory; leave it out."
            )
        kinds = {device.kind for device in placement.trainers(platform)} - {"cpu", "gpu"}
        if self.rows == "in-place" and kinds:
            return (
                f"memory.rows is 'in-place', which GPUs do, and placement {placement.name!r} "
                f"trains on another kind of device ({', '.join(sorted(kinds))}); leave it out."
            )
        return refuse_priced("memory", self.name, "rows", platform)
