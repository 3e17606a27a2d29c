"""Every kernel and sampler that is installed and runs here, measured."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnnbench import plugins
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.kernels.pages import keep_pages
from gnnbench.models import build
from gnnbench.parts import Bundle, MiniBatchSampler, Part, Setting
from gnnbench.platforms.libraries import list_numbers
from gnnbench.platforms.machine import Device, LibraryRates, Platform
from gnnbench.plugins import Registry
from gnnbench.probing.kernels import KernelProbe
from gnnbench.probing.samplers import FANOUTS, FEW_SEEDS, make_dataset, measure_sampler
from gnnbench.records import Mode, PartKind, Workload

#: Whose other four parts a kernel or a sampler is measured among.
PLAIN = "reference"
#: A kernel has about so many measurements.
MEASUREMENTS = 48
#: How each number was found, by its key in the platform file.
METHODS = {
    "aggregate": "rows summed over edges, out of a table of 128 MiB; what an edge takes",
    "cached": "the same out of a table of 4 MiB",
    "written": "what a destination takes of that sum: the difference of 4 and 32 edges to each",
    "update": "rows of 256 values times weights, with a bias",
    "call": "a sum over four edges",
    "binding": "a sum over a block that is new, beyond the same sum again",
    "transposing": "a transposed sum over such a block, beyond the same sum again",
    "sampling": "mini-batches of 1024 seeds beyond those of 2, fan-outs 25 and 10, one core",
    "sampling_call": "a mini-batch of 2 seeds, a layer of it",
}


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A part that is offered and was not measured on a device, and the sentence why."""

    part: str
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class Probed:
    """A machine with what libraries reach on its devices, and what was not measured."""

    platform: Platform
    unmeasured: tuple[Unmeasured, ...]


def probe_libraries(platform: Platform, registry: Registry, seconds: float) -> Probed:
    """Measure what is on offer on this machine, whose devices ``platform`` has, for about so many
    ``seconds`` a device; every piece of work runs a few times, however short that is."""
    keep_pages()
    found: dict[str, dict[str, LibraryRates]] = {device.name: {} for device in platform.devices}
    left_out: list[Unmeasured] = []
    offered = list(_list_parts(registry))
    each_s = seconds / (MEASUREMENTS * max(1, len(offered)))
    setting = _make_setting(platform)
    for kind, name in offered:
        for device in platform.devices if kind == "kernel" else (platform.host,):
            known = found[device.name].get(name, LibraryRates())
            alone = replace(setting, platform=_take_alone(platform, device))
            try:
                found[device.name][name] = _measure(registry, kind, name, alone, known, each_s)
            except GnnbenchError as error:
                left_out.append(Unmeasured(f"{kind} {name}", device.name, words_of(error)))
    for device in platform.devices:
        platform = _with_libraries(platform, device, found[device.name])
    return Probed(platform, tuple(left_out))


def _list_parts(registry: Registry) -> Iterator[tuple[PartKind, str]]:
    """Kernels and samplers of mini-batches, by kind and name."""
    kinds: tuple[tuple[PartKind, type[Part]], ...] = (
        ("kernel", Part),
        ("sampler", MiniBatchSampler),
    )
    for kind, base in kinds:
        for part in registry.parts_of(kind):
            if issubclass(part, base):
                yield kind, part.name


def _measure(
    registry: Registry,
    kind: PartKind,
    name: str,
    setting: Setting,
    known: LibraryRates,
    each_s: float,
) -> LibraryRates:
    """What is ``known`` of a library, and what its kernel or sampler reaches on the device that
    trains in ``setting``.

    Raises ``GnnbenchError`` where it does not run there.
    """
    bundle = _swap(registry, "full-graph" if kind == "kernel" else "mini-batch", kind, name)
    if (reason := bundle.refusal(setting)) is not None:
        raise GnnbenchError(reason)
    if isinstance(bundle.sampler, MiniBatchSampler):
        drawn = measure_sampler(bundle.sampler, setting, each_s)
        return replace(
            known,
            sampled_edges_per_s=drawn.sampled_edges_per_s,
            sampling_call_s=drawn.sampling_call_s,
        )
    (device,) = bundle.placement.trainers(setting.platform)
    bundle.kernel.begin(setting)
    return KernelProbe(bundle.kernel, device, each_s).measure()


def _make_setting(platform: Platform) -> Setting:
    data = make_dataset()
    workload = Workload("gcn", (data.num_features, 2, 2), 1, FEW_SEEDS, FANOUTS, 0)
    return Setting(data, platform, workload, build(workload).shapes)


def _take_alone(platform: Platform, device: Device) -> Platform:
    """The machine with one of its devices, beside its host."""
    kept = () if device == platform.host else (device,)
    ends = {platform.host.name, device.name}
    links = tuple(link for link in platform.links if {*link.ends} == ends)
    return replace(platform, accelerators=kept, links=links)


def _swap(registry: Registry, mode: Mode, kind: PartKind, name: str) -> Bundle:
    parts = registry.strategy(PLAIN).bundles[mode]
    return plugins.assemble(registry, plugins.with_swap(registry, parts, [(kind, name)]), {})


def _with_libraries(
    platform: Platform, device: Device, libraries: dict[str, LibraryRates]
) -> Platform:
    """The machine whose device has these, each number with its source."""
    today = datetime.date.today().isoformat()
    sources = {
        f"{device.name}.libraries.{name}.{key}": f"measured here on {today}: {METHODS[key]}"
        for name, rates in libraries.items()
        for key in list_numbers(rates)
    }
    described = replace(device, libraries=libraries)
    return replace(
        platform,
        host=described if device == platform.host else platform.host,
        accelerators=tuple(described if each == device else each for each in platform.accelerators),
        sources={**platform.sources, **sources},
    )
