"""Every kernel and sampler that is installed and runs here, measured."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from gnnbench import plugins
from gnnbench.constants import MEASURED
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.kernels.pages import keep_pages
from gnnbench.models import build
from gnnbench.parts import Bundle, MiniBatchSampler, Part, Setting
from gnnbench.platforms.libraries import best_of, list_numbers
from gnnbench.platforms.machine import Device, LibraryRates, Platform, RateCurve
from gnnbench.plugins import Registry
from gnnbench.probing.calls import Calls, measure_calls
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
#: How often everything is measured.
PASSES = 2
#: A kernel has about so many measurements.
MEASUREMENTS = 48
#: How each number was found, by its key in the platform file.
METHODS = {
    "aggregate": "rows summed over edges, out of a table that no cache holds; what an edge takes",
    "cached": "the same out of a table of 4 MiB",
    "written": "what a destination takes of that sum: the difference of 4 and 32 edges to each",
    "weighted": "rows summed over edges with a weight each, out of a table that no cache holds",
    "weighted_cached": "the same out of a table of 4 MiB",
    "dotted": "dot products of rows at both ends of edges, the sources' out of such a table",
    "dotted_cached": "the same out of a table of 4 MiB",
    "update": "rows of 256 values times weights, with a bias, and backward: three products",
    "call": "AGGREGATE over a graph of 64 vertices, in training",
    "fresh_call": "the same of mini-batches, after something else has been through the caches",
    "attention_call": "AGGREGATE with attention over a graph of 64 vertices, in training",
    "attention_fresh_call": "the same of such mini-batches",
    "update_call": "UPDATE over a graph of 64 vertices, in training",
    "update_fresh_call": "the same of such mini-batches",
    "batch": "the loss and the optimiser of such a mini-batch",
    "fresh_batch": "such a mini-batch beside its sampling, its propagation and what steps take",
    "binding": "a sum over a block that is new, beyond the same sum again",
    "transposing": "a transposed sum over such a block, beyond the same sum again",
    "sampling": "mini-batches of 1024 seeds beyond those of 2, fan-outs 25 and 10, one core",
    "joint_sampling": "the same by all cores together on one",
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
    ``seconds`` a device; every piece of work runs a few times, however short that is.

    All is measured ``PASSES`` times, and of every number the better counts: other programs, and
    other tenants of a machine, may slow down some seconds of a pass, and seldom the same of two.
    """
    keep_pages()
    passes = [_Pass(platform, registry, seconds / PASSES) for _ in range(PASSES)]
    for each in passes:
        each.run()
    for device in platform.devices:
        libraries = [each.found[device.name] for each in passes]
        best = {name: reduce(best_of, [each[name] for each in libraries]) for name in libraries[0]}
        platform = _with_libraries(platform, device, best)
    platform = _with_steps(platform, min(step_s for each in passes for step_s in each.steps_s))
    return Probed(platform, tuple(passes[0].left_out))


class _Pass:
    """One turn of all that is on offer: what was ``found`` of it by device and name, what steps
    took besides what they compute, and what was ``left_out``."""

    def __init__(self, platform: Platform, registry: Registry, seconds: float) -> None:
        self._platform = platform
        self._offered = list(_list_parts(registry))
        each_s = seconds / (MEASUREMENTS * max(1, len(self._offered)))
        self._probe = _LibraryProbe(registry, each_s)
        self.found: dict[str, dict[str, LibraryRates]] = {
            device.name: {} for device in platform.devices
        }
        self.steps_s: list[float] = []
        self.left_out: list[Unmeasured] = []

    def run(self) -> None:
        setting, host = _make_setting(self._platform), self._platform.host
        for kind, name in self._offered:
            for device in self._platform.devices if kind == "kernel" else (host,):
                alone = replace(setting, platform=_take_alone(self._platform, device))
                try:
                    self._measure(kind, name, device, alone)
                except GnnbenchError as error:
                    left_out = Unmeasured(f"{kind} {name}", device.name, words_of(error))
                    self.left_out.append(left_out)

    def _measure(self, kind: PartKind, name: str, device: Device, setting: Setting) -> None:
        found = self.found[device.name]
        if kind == "kernel":
            calls = self._probe.measure_kernel(name, setting)
            found[name] = calls.rates
            if device == self._platform.host:
                self.steps_s.append(calls.step_s)
        else:
            known = found.get(name, LibraryRates())
            found[name] = self._probe.measure_sampler(name, setting, known)


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

    def measure_kernel(self, name: str, setting: Setting) -> Calls:
        bundle = self._swap("full-graph", "kernel", name, setting)
        mini = self._swap("mini-batch", "kernel", name, setting)
        (device,) = bundle.placement.trainers(setting.platform)
        kernel = bundle.kernel
        kernel.begin(setting)
        probe = KernelProbe(kernel, device, self._each_s)
        multiplies = (device.name, type(kernel).linear)
        if multiplies not in self._products:
            self._products[multiplies] = probe.measure_update()
        known = replace(probe.measure(), update=self._products[multiplies])
        return measure_calls(bundle, mini, setting, device, known)

    def measure_sampler(self, name: str, setting: Setting, known: LibraryRates) -> LibraryRates:
        """What is ``known`` of the library, and what its sampler reaches."""
        sampler = self._swap("mini-batch", "sampler", name, setting).sampler
        if not isinstance(sampler, MiniBatchSampler):
            raise TypeError(f"sampler {name} draws no mini-batches")
        return measure_sampler(sampler, setting, self._each_s, known)

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


def _with_steps(platform: Platform, step_s: float) -> Platform:
    """The machine with what a step takes besides what it computes."""
    source = f"{_say_today()}: what the harness takes a step of training a graph of 64 vertices"
    return replace(
        platform,
        step_s=step_s,
        sources={**platform.sources, "step": source},
        marks={**platform.marks, "step": MEASURED},
    )


def _say_today() -> str:
    return f"measured here on {datetime.date.today().isoformat()}"


def _with_libraries(
    platform: Platform, device: Device, libraries: dict[str, LibraryRates]
) -> Platform:
    """The machine whose device has these, each number with its source."""
    sources = {
        f"{device.name}.libraries.{name}.{key}": f"{_say_today()}: {METHODS[key]}"
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
