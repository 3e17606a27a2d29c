"""Measurements of every installed kernel and sampler that runs here."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce

from gnnbench import plugins
from gnnbench.constants import MEASURED
from gnnbench.errors import GnnbenchError, words_of
from gnnbench.host.progress import Task, doing
from gnnbench.host.resume import once
from gnnbench.kernels.pages import keep_pages
from gnnbench.machines.libraries import best_of
from gnnbench.machines.machine import Device, LibraryRates, Platform, RateCurve
from gnnbench.machines.tables import list_numbers
from gnnbench.models import build
from gnnbench.parts import Bundle, MiniBatchSampler, Part, Setting
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

#: The strategy that provides the other four parts when a kernel or a sampler is measured.
PLAIN = "reference"
#: Number of passes over all measurements.
PASSES = 2
#: The approximate number of measurements of a kernel.
MEASUREMENTS = 48
#: The method of each number, by its key in the platform file.
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
    """An offered part that was not measured on a device, and the reason as a sentence."""

    part: str
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class Probed:
    """A machine with the rates of libraries on its devices.

    It lists the parts that were not measured.
    """

    platform: Platform
    unmeasured: tuple[Unmeasured, ...]


def probe_libraries(platform: Platform, registry: Registry, seconds: float) -> Probed:
    """Measure the parts on offer on this machine's devices, listed in ``platform``.

    It takes about ``seconds`` a device. Every piece of work runs a few times, however short the
    budget.

    Everything is measured ``PASSES`` times, and the better of each number counts. Other programs,
    and other users of a shared machine, may slow down parts of a pass, but rarely the same part
    twice.
    """
    keep_pages()
    passes = [_Pass(platform, registry, seconds / PASSES) for _ in range(PASSES)]
    with doing("measuring libraries", sum(len(each.pieces) for each in passes)) as measuring:
        for number, each in enumerate(passes):
            each.run(number, measuring)
    for device in platform.devices:
        libraries = [each.found[device.name] for each in passes]
        best = {name: reduce(best_of, [each[name] for each in libraries]) for name in libraries[0]}
        platform = _with_libraries(platform, device, best)
    platform = _with_steps(platform, min(step_s for each in passes for step_s in each.steps_s))
    return Probed(platform, tuple(passes[0].left_out))


class _Pass:
    """One pass over all offered parts.

    ``found`` has their rates by device and name, ``steps_s`` the times of steps besides their
    computation, and ``left_out`` the parts that were not measured.
    """

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

    @property
    def pieces(self) -> list[tuple[PartKind, str, Device]]:
        """Each part with each device that it is measured on."""
        platform = self._platform
        return [
            (kind, name, device)
            for kind, name in self._offered
            for device in (platform.devices if kind == "kernel" else (platform.host,))
        ]

    def run(self, number: int, measuring: Task) -> None:
        """Measure everything; ``number`` is that of the pass."""
        setting = _make_setting(self._platform)
        for kind, name, device in self.pieces:
            alone = replace(setting, platform=_take_alone(self._platform, device))
            with doing(f"{kind} {name} on {device.name}", MEASUREMENTS):
                measured = once(
                    partial(self._measure, kind, name, device, alone),
                    f"pass {number}",
                    f"{kind} {name}",
                    device.name,
                )
            if isinstance(measured, Unmeasured):
                self.left_out.append(measured)
            else:
                self.found[device.name][name], steps_s = measured
                self.steps_s += steps_s
            measuring.advance()

    def _measure(
        self, kind: PartKind, name: str, device: Device, setting: Setting
    ) -> tuple[LibraryRates, list[float]] | Unmeasured:
        """Return a part's rates with the times of steps, or why it was not measured."""
        try:
            if kind == "kernel":
                calls = self._probe.measure_kernel(name, setting)
                return calls.rates, [calls.step_s] if device == self._platform.host else []
            known = self.found[device.name].get(name, LibraryRates())
            return self._probe.measure_sampler(name, setting, known), []
        except GnnbenchError as error:
            return Unmeasured(f"{kind} {name}", device.name, words_of(error))


def _list_parts(registry: Registry) -> Iterator[tuple[PartKind, str]]:
    """Yield kernels and samplers of mini-batches, by kind and name."""
    kinds: tuple[tuple[PartKind, type[Part]], ...] = (
        ("kernel", Part),
        ("sampler", MiniBatchSampler),
    )
    for kind, base in kinds:
        for part in registry.parts_of(kind):
            if issubclass(part, base):
                yield kind, part.name


class _LibraryProbe:
    """A probe that measures one part after the other on the device that trains in a setting.

    A measurement takes ``each_s``. ``GnnbenchError`` says why a part does not run.
    """

    def __init__(self, registry: Registry, each_s: float) -> None:
        self._registry = registry
        self._each_s = each_s
        #: Rates of products by device and ``linear`` method, since most kernels leave products to
        #: torch.
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
        """Return the ``known`` rates of the library, extended by its sampler's."""
        sampler = self._swap("mini-batch", "sampler", name, setting).sampler
        if not isinstance(sampler, MiniBatchSampler):
            raise TypeError(f"sampler {name} draws no mini-batches")
        return measure_sampler(sampler, setting, self._each_s, known)

    def _swap(self, mode: Mode, kind: PartKind, name: str, setting: Setting) -> Bundle:
        """Return the plain parts of a mode with one of them replaced.

        Raises ``GnnbenchError`` if they cannot run.
        """
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
    """Return the machine with one of its devices besides its host."""
    kept = () if device == platform.host else (device,)
    ends = {platform.host.name, device.name}
    links = tuple(link for link in platform.links if {*link.ends} == ends)
    return replace(platform, accelerators=kept, links=links)


def _with_steps(platform: Platform, step_s: float) -> Platform:
    """Return the machine with the time of a step besides its computation."""
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
    """Return the machine with these libraries on a device, each number with its source."""
    sources = {
        f"{device.name}.libraries.{name}.{key}": f"{_say_today()}: {METHODS[key]}"
        for name, rates in libraries.items()
        for key, _, _ in list_numbers(rates)
    }
    described = replace(device, libraries=libraries)
    return replace(
        platform,
        host=described if device == platform.host else platform.host,
        accelerators=tuple(described if each == device else each for each in platform.accelerators),
        sources={**platform.sources, **sources},
        marks={**platform.marks, **dict.fromkeys(sources, MEASURED)},
    )
