"""One device does everything."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.machines.machine import Device, Platform
from gnnbench.parts import Bundle, Placement, Setting, option


@dataclass(frozen=True)
class SinglePlacement(Placement):
    """A placement that computes every unit on the first GPU, or on the host without one.

    Other accelerators run only the kernels built for them, so they compute only when asked.
    """

    name: ClassVar[str] = "single"
    summary: ClassVar[str] = "one device computes everything"

    on_host: bool = option(False, "compute on the host even where there are accelerators")
    device: str = option(
        "", "the device that computes, by name; empty = the first GPU, or the host"
    )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        names = [device.name for device in setting.platform.devices]
        if self.device and self.device not in names:
            return (
                f"placement.device is {self.device!r}, and platform {setting.platform.name} has "
                f"{', '.join(names)}; name one of these."
            )
        if self.device and self.on_host:
            return "placement.on_host and placement.device both say what computes; give one."
        return None

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        if self.device:
            return (platform.device(self.device),)
        gpus = [device for device in platform.accelerators if device.kind == "gpu"]
        return (gpus[0],) if gpus and not self.on_host else (platform.host,)


@dataclass(frozen=True)
class HostPlacement(Placement):
    """A placement that computes every unit on the host, even beside accelerators."""

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "the host computes everything"

    def trainers(self, platform: Platform) -> tuple[Device, ...]:
        return (platform.host,)
