"""Every kernel and sampler that is installed and runs here, measured."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnnbench import plugins
from gnnbench.constants import MEASURED
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.kernels.pages import keep_pages
from gnnbench.models import build
from gnnbench.parts import Bundle, MiniBatchSampler, Part, Setting
from gnnbench.platforms.libraries import list_numbers
from gnnbench.platforms.machine import Device, LibraryRates, Platform, RateCurve
from gnnbench.plugins import Registry
from gnnbench.probing.calls import measure_calls
from gnnbench.probing.kernels import KernelProbe
from gnnbench.probing.samplers import (
    DEGREE,
    FANOUTS,
    FEW_SEEDS,
    VERTICES,
    make_dataset,
    measure_sampler,
)
from gnnbench.records import Mode, PartKind, Workload

#: Whose other four parts a kernel or a sampler is measured among.
PLAIN = "reference"
#: A kernel has about so many measurements.
MEASUREMENTS = 48
#: How each number was found, by its key in the platform file.
METHODS = {
    "aggregate": "rows summed over edges, out of a table that no cache holds; what an edge takes",
    "cached": "the same out of a table of 4 MiB",
    "written": "what a destination takes of that sum: the difference of 4 and 32 edges to each",
    "weighted": "rows summed over edges with a weight each, out of a table that no cache holds",
    "weighted_cached": "the same out of a table of 4 MiB",
    "update": "rows of 256 values times weights, with a bias, and backward: three products",
    "call": "AGGREGATE over a graph of 64 vertices, in training",
    "fresh_call": "the same of mini-batches",
    "attention_call": "AGGREGATE with attention over a graph of 64 vertices, in training",
    "attention_fresh_call": "the same of mini-batches",
    "update_call": "UPDATE over a graph of 64 vertices, in training",
    "batch": "a mini-batch of such a graph, beside its sampling, loading and propagation",
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
    probe = _LibraryProbe(registry, seconds / (MEASUREMENTS * max(1, len(offered))))
    setting = _make_setting(platform)
    for kind, name in offered:
        for device in platform.devices if kind == "kernel" else (platform.host,):
            alone = replace(setting, platform=_take_alone(platform, device))
            known = found[device.name].get(name, LibraryRates())
            try:
                found[device.name][name] = (
                    probe.measure_kernel(name, alone)
                    if kind == "kernel"
                    else probe.measure_sampler(name, alone, known)
                )
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


class _LibraryProbe:
    """Measures one part after the other on the device that trains in a setting, ``each_s`` a
    measurement. Where a part does not run ``GnnbenchError`` says why."""

    def __init__(self, registry: Registry, each_s: float) -> None:
        self._registry = registry
        self._each_s = each_s
        #: By device and how it multiplies, since most kernels leave that to torch.
        self._products: dict[tuple[str, object], RateCurve] = {}

    def measure_kernel(self, name: str, setting: Setting) -> LibraryRates:
        bundle = self._swap("full-graph", "kernel", name, setting)
        mini = self._swap("mini-batch", "kernel", name, setting)
        (device,) = bundle.placement.trainers(setting.platform)
        kernel = bundle.kernel
        kernel.begin(setting)
        probe = KernelProbe(kernel, device, self._each_s)
        multiplies = (device.name, type(kernel).linear)
        if multiplies not in self._products:
            self._products[multiplies] = probe.measure_update()
        calls = measure_calls(bundle, mini, setting)
        return replace(
            probe.measure(),
            update=self._products[multiplies],
            call_s=calls.call_s,
            fresh_call_s=calls.fresh_call_s,
            attention_call_s=calls.attention_call_s,
            attention_fresh_call_s=calls.attention_fresh_call_s,
            update_call_s=calls.update_call_s,
            batch_s=calls.batch_s,
        )

    def measure_sampler(self, name: str, setting: Setting, known: LibraryRates) -> LibraryRates:
        """What is ``known`` of the library, and what its sampler reaches."""
        sampler = self._swap("mini-batch", "sampler", name, setting).sampler
        if not isinstance(sampler, MiniBatchSampler):
            raise TypeError(f"sampler {name} draws no mini-batches")
        drawn = measure_sampler(sampler, setting, self._each_s)
        return replace(
            known,
            sampled_edges_per_s=drawn.sampled_edges_per_s,
            sampling_call_s=drawn.sampling_call_s,
        )

    def _swap(self, mode: Mode, kind: PartKind, name: str, setting: Setting) -> Bundle:
        """The plain parts of a mode with one of them replaced, if they can work."""
        parts = self._registry.strategy(PLAIN).bundles[mode]
        parts = plugins.with_swap(self._registry, parts, [(kind, name)])
        bundle = plugins.assemble(self._registry, parts, {})
        if (reason := bundle.refusal(setting)) is not None:
            raise GnnbenchError(reason)
        return bundle


def _make_setting(platform: Platform) -> Setting:
    data = make_dataset(VERTICES, DEGREE, 1)
    workload = Workload("gcn", (data.num_features, 2, 2), 1, FEW_SEEDS, FANOUTS, 0)
    return Setting(data, platform, workload, build(workload).shapes)


def _take_alone(platform: Platform, device: Device) -> Platform:
    """The machine with one of its devices, beside its host."""
    kept = () if device == platform.host else (device,)
    ends = {platform.host.name, device.name}
    links = tuple(link for link in platform.links if {*link.ends} == ends)
    return replace(platform, accelerators=kept, links=links)


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
        marks={**platform.marks, **dict.fromkeys(sources, MEASURED)},
    )
