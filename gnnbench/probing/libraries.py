"""Every kernel and sampler that is installed and runs here, measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnnbench import plugins
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.kernels.pages import keep_pages
from gnnbench.models import build
from gnnbench.parts import Bundle, Kernel, MiniBatchSampler, Setting
from gnnbench.platforms.machine import Device, Platform
from gnnbench.plugins import Registry
from gnnbench.probing.kernels import KernelProbe, KernelRates
from gnnbench.probing.samplers import (
    FANOUTS,
    FEW_SEEDS,
    SamplerRates,
    make_dataset,
    measure_sampler,
)
from gnnbench.records import Mode, PartKind, Workload

#: Whose other four parts a kernel or a sampler is measured among.
PLAIN = "reference"


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A part that is offered and was not measured on a device, and the sentence why."""

    part: str
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProbedLibraries:
    """What was measured: of kernels by device and name, of samplers, on the host, by name; and what
    was not."""

    kernels: Mapping[str, Mapping[str, KernelRates]] = field(default_factory=dict)
    samplers: Mapping[str, SamplerRates] = field(default_factory=dict)
    unmeasured: tuple[Unmeasured, ...] = ()


def probe_libraries(platform: Platform, registry: Registry, seconds: float) -> ProbedLibraries:
    """Measure what is on offer on this machine, whose devices ``platform`` has, each library for
    about its share of ``seconds``; every piece of work runs a few times, however short that is."""
    keep_pages()
    setting = _make_setting(platform)
    kernels: dict[str, dict[str, KernelRates]] = {device.name: {} for device in platform.devices}
    samplers: dict[str, SamplerRates] = {}
    left_out: list[Unmeasured] = []
    kinds: tuple[tuple[PartKind, Mode], ...] = (
        ("kernel", "full-graph"),
        ("sampler", "mini-batch"),
    )
    offered = [
        (kind, mode, part.name)
        for kind, mode in kinds
        for part in registry.parts_of(kind)
        if kind == "kernel" or issubclass(part, MiniBatchSampler)
    ]
    each_s = seconds / (SHARES * max(1, len(offered)))
    for kind, mode, name in offered:
        for device in platform.devices if kind == "kernel" else (platform.host,):
            alone = replace(setting, platform=_take_alone(platform, device))
            try:
                bundle = _swap(registry, mode, kind, name)
                reason = bundle.refusal(alone)
                if reason is None and kind == "kernel":
                    kernels[device.name][name] = _measure_kernel(
                        bundle.kernel, device, alone, each_s
                    )
                elif reason is None and isinstance(bundle.sampler, MiniBatchSampler):
                    samplers[name] = measure_sampler(bundle.sampler, alone, each_s)
            except GnnbenchError as error:
                reason = words_of(error)
            if reason is not None:
                left_out.append(Unmeasured(f"{kind} {name}", device.name, reason))
    return ProbedLibraries(kernels, samplers, tuple(left_out))


#: A library's measurements share its seconds out; a kernel has about so many of them.
SHARES = 48


def _measure_kernel(kernel: Kernel, device: Device, setting: Setting, each_s: float) -> KernelRates:
    kernel.begin(setting)
    return KernelProbe(kernel, device, each_s).measure()


def _make_setting(platform: Platform) -> Setting:
    data = make_dataset()
    workload = Workload("gcn", (data.num_features, 2, 2), 1, FEW_SEEDS, FANOUTS, 0)
    return Setting(data, platform, workload, build(workload).shapes)


def _take_alone(platform: Platform, device: Device) -> Platform:
    """The machine with one of its devices, beside its host."""
    kept = () if device == platform.host else (device,)
    links = tuple(
        link for link in platform.links if {*link.ends} == {platform.host.name, device.name}
    )
    return replace(platform, accelerators=kept, links=links)


def _swap(registry: Registry, mode: Mode, kind: PartKind, name: str) -> Bundle:
    parts = registry.strategy(PLAIN).bundles[mode]
    return plugins.assemble(registry, plugins.with_swap(registry, parts, [(kind, name)]), {})
