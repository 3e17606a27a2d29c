"""The records of a platform: devices, links, and the machine that they form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gnnbench.constants import ASSUMED, Mark
from gnnbench.errors import PlatformError
from gnnbench.machines.tables import Key, Positive, Table, Text
from gnnbench.records import Mode, OwnError, Stage

DeviceKind = Literal["cpu", "gpu", "fpga", "sparse"]
#: No dash: link names join two device names with one. No dot: keys of ``sources`` hold one.
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Seconds = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=2**20)]
#: Stops of a link, of which a file may name a single one.
Stops = Annotated[
    tuple[Name, ...],
    Field(strict=False),
    BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
]
_Width = Annotated[int, Field(gt=0, le=2**31)]
_Rates = Annotated[tuple[Positive, ...], Field(strict=False)]
#: The name of the host's disk: a memory in a ledger, and a place that prices a transfer.
DISK = "disk"


@dataclass(frozen=True, slots=True)
class RateCurve:
    """An effective rate that depends on the width of rows.

    ``rates`` of all cores together and ``core_rates`` of one core belong to the ascending
    ``widths``.
    """

    widths: Annotated[tuple[_Width, ...], Field(min_length=1, strict=False), Key()]
    rates: Annotated[_Rates, Key("values")]
    core_rates: Annotated[_Rates, Key("core_values")]

    def __post_init__(self) -> None:
        if not len(self.widths) == len(self.rates) == len(self.core_rates):
            raise ValueError(
                f"{len(self.widths)} widths, {len(self.rates)} values and "
                f"{len(self.core_rates)} core_values; give each width one of either"
            )
        if any(near >= far for near, far in pairwise(self.widths)):
            raise ValueError("widths must ascend")

    def map_rates(self, change: Callable[[float], float]) -> RateCurve:
        """Return the curve with ``change`` applied to each rate."""
        return replace(
            self,
            rates=tuple(map(change, self.rates)),
            core_rates=tuple(map(change, self.core_rates)),
        )

    def at(self, width: float, threads: int = 0) -> float:
        """Return the rate of ``threads`` cores (all of them when 0) on rows of ``width`` values.

        Between two widths the time of a value is linear in 1 / width, since a row has fixed costs.
        Below the first width and above the last the rate is constant.
        """
        if not threads:
            return self._between(width, self.rates)
        return min(
            self._between(width, self.rates), threads * self._between(width, self.core_rates)
        )

    def _between(self, width: float, rates: tuple[float, ...]) -> float:
        if width <= self.widths[0]:
            return rates[0]
        for (near, slow), (far, fast) in pairwise(zip(self.widths, rates, strict=True)):
            if width == far:
                return fast
            if width < far:
                share = (1.0 / near - 1.0 / width) / (1.0 / near - 1.0 / far)
                return 1.0 / ((1.0 - share) / slow + share / fast)
        return rates[-1]


Bandwidths = Annotated[RateCurve, Key(unit="B/s")] | None
ProductRates = Annotated[RateCurve, Key(unit="FLOP/s")] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRates:
    """The rates of a library's sums over edges, by width of rows.

    AGGREGATE gathers source rows at ``aggregate`` bytes/s from memory and at ``cached`` from the
    last cache, and writes destination rows at ``written``. Sums with a weight for each edge gather
    at ``weighted`` and ``weighted_cached`` if they have no vector instructions. Gradients of these
    weights gather at ``dotted`` and ``dotted_cached`` if they have none.
    """

    aggregate: Bandwidths = None
    cached: Bandwidths = None
    written: Bandwidths = None
    weighted: Bandwidths = None
    weighted_cached: Bandwidths = None
    dotted: Bandwidths = None
    dotted_cached: Bandwidths = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """The fixed times of a library's calls, in seconds.

    AGGREGATE takes ``call_s``, or with attention ``attention_call_s``. UPDATE takes
    ``update_call_s``. The loss and the optimiser take ``batch_s`` together. Mini-batches, with rows
    and edges in no cache, take the ``fresh`` times. ``fresh_batch_s`` includes the time of loading
    besides its rows.
    """

    call_s: Annotated[Seconds, Key("call", "s")] | None = None
    fresh_call_s: Annotated[Seconds, Key("fresh_call", "s")] = 0.0
    attention_call_s: Annotated[Seconds, Key("attention_call", "s")] = 0.0
    attention_fresh_call_s: Annotated[Seconds, Key("attention_fresh_call", "s")] = 0.0
    update_call_s: Annotated[Seconds, Key("update_call", "s")] = 0.0
    update_fresh_call_s: Annotated[Seconds, Key("update_fresh_call", "s")] = 0.0
    batch_s: Annotated[Seconds, Key("batch", "s")] = 0.0
    fresh_batch_s: Annotated[Seconds, Key("fresh_batch", "s")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRates:
    """The edges that a library processes a second besides its sums.

    A block that is new to the library is prepared at ``bound_edges_per_s`` for the forward pass,
    and at ``transposed_edges_per_s`` for the backward pass. One core draws ``sampled_edges_per_s``
    of a mini-batch, and all cores together ``jointly_sampled_edges_per_s``, after
    ``sampling_call_s`` for every layer.
    """

    bound_edges_per_s: Annotated[Positive, Key("binding", "edges/s")] = 0.0
    transposed_edges_per_s: Annotated[Positive, Key("transposing", "edges/s")] = 0.0
    sampled_edges_per_s: Annotated[Positive, Key("sampling", "edges/s")] = 0.0
    jointly_sampled_edges_per_s: Annotated[Positive, Key("joint_sampling", "edges/s")] = 0.0
    sampling_call_s: Annotated[Seconds, Key("sampling_call", "s")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRates:
    """The measured rates of a library on a device; None and 0 where a rate was not measured.

    UPDATE's products reach ``update`` FLOP/s, by the narrower side of the weights.
    """

    sums: SumRates = SumRates()
    update: ProductRates = None
    calls: CallTimes = CallTimes()
    edges: EdgeRates = EdgeRates()


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of a device.

    Rates are effective (reached by burst transactions or dense kernels), not peak, where the
    platform file says so. A kernel takes ``launch_s`` to launch. ``cache_bytes`` is the size of the
    last cache of all sockets; 0 means the default of the device's kind. ``power_w`` is the power
    that the device draws while busy; None if the platform file has none. ``pipelined`` devices run
    aggregation and update at the same time (HyScale-GNN Equation 10: the operator is max, not sum).
    """

    flops_per_s: Annotated[Positive, Key("flops", "FLOP/s")]
    memory_bandwidth_bytes_per_s: Annotated[Positive, Key("memory_bandwidth", "B/s")]
    memory_bytes: Annotated[int, Key("memory", "B")]
    launch_s: Annotated[Seconds, Key("launch", "s", required=True)] = 0.0
    cache_bytes: Annotated[Positive, Key("cache", "B")] = 0.0
    power_w: Annotated[Positive, Key("power", "W")] | None = None
    pipelined: Annotated[bool, Key()] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRates:
    """The rates of a host's memory: of one core, in new pages, between sockets, and to its disk.

    Tensors of at least ``mapped_from_bytes`` are in memory mapped for each tensor. One process
    fills it at ``fresh_bandwidth_bytes_per_s``, one core at ``core_fresh_bandwidth_bytes_per_s``. 0
    means the default of the device's kind.

    A host of several ``sockets`` has an equal share of its memory at each. Any two sockets are
    joined by ``socket_bandwidth_bytes_per_s``, one way.
    """

    core_bandwidth_bytes_per_s: Annotated[Positive, Key("core_bandwidth", "B/s")] = 0.0
    fresh_bandwidth_bytes_per_s: Annotated[Positive, Key("fresh_bandwidth", "B/s")] = 0.0
    core_fresh_bandwidth_bytes_per_s: Annotated[Positive, Key("core_fresh_bandwidth", "B/s")] = 0.0
    mapped_from_bytes: Annotated[Positive, Key("mapped_from", "B")] = 0.0
    disk_bandwidth_bytes_per_s: Annotated[Positive, Key("disk_bandwidth", "B/s")] = 0.0
    sockets: Annotated[Count, Key(unit="")] = 1
    socket_bandwidth_bytes_per_s: Annotated[Positive, Key("socket_bandwidth", "B/s")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRates:
    """The rates that a trainer reaches, if they are known.

    ``gather``, ``aggregate`` (bytes/s by row width) and ``update`` (FLOP/s by the narrower side of
    the weights) are the effective rates of HyScale-GNN's Equations 7, 11 and 12: loading feature
    rows, and a trainer's two steps. None means the plain rates of the hardware.
    ``aggregate_backward`` is Equation 11's rate in the backward pass of Equation 10; None means
    ``aggregate``. In the backward pass an edge adds to its source's row, and there are more source
    rows to write. One core of a host, or an accelerator, samples ``sampled_edges_per_s``.
    """

    sampled_edges_per_s: Annotated[Positive, Key("sampling", "edges/s")] = 0.0
    gather: Bandwidths = None
    aggregate: Bandwidths = None
    aggregate_backward: Bandwidths = None
    update: ProductRates = None


@dataclass(frozen=True, slots=True)
class Device:
    """One processor or accelerator with its own memory.

    ``libraries`` has the rates of single libraries, by name. ``virtual`` devices do not exist on
    this machine: their times come from the model clock. ``torch_device`` runs the numerics.

    A device made of this machine's cores lists their numbers in ``pinned``. It is throttled to
    ``speed``, a fraction of full speed, which its rates already include.
    """

    name: Annotated[Name, Key()]
    kind: Annotated[DeviceKind, Key()]
    model: Annotated[Text, Key()]
    hardware: Hardware
    cores: Annotated[Count, Key(unit="")] = 1
    memory: MemoryRates = MemoryRates()
    rates: TrainerRates = TrainerRates()
    libraries: Annotated[Mapping[str, Annotated[LibraryRates, Table()]], Key()] = field(
        default_factory=dict, hash=False
    )
    virtual: bool = True
    torch_device: str = "cpu"
    pinned: tuple[int, ...] = ()
    speed: float = 1.0

    def share_of_cores(self, threads: int) -> float:
        """Return the fraction of this device's cores in ``threads``; 1.0 when ``threads`` is 0."""
        return min(1.0, threads / self.cores) if threads else 1.0

    def bandwidth_bytes_per_s(self, threads: int = 0) -> float:
        """Return the memory bandwidth of ``threads`` cores, bytes/s; 0 means all cores."""
        together = self.hardware.memory_bandwidth_bytes_per_s
        alone = self.memory.core_bandwidth_bytes_per_s
        return min(together, threads * alone) if threads and alone else together

    def fresh_bytes_per_s(self, threads: int = 0) -> float:
        """Return the rate at which one process fills newly allocated memory, bytes/s.

        It uses ``threads`` cores, all of them when 0. Return 0 if the rate was not measured.
        """
        together = self.memory.fresh_bandwidth_bytes_per_s
        alone = self.memory.core_fresh_bandwidth_bytes_per_s
        return min(together, threads * alone) if threads and alone else together

    def gather_bytes_per_s(self, width: float, threads: int = 0) -> float:
        """Return the bytes/s of rows of ``width`` values gathered from memory."""
        if self.rates.gather is not None:
            return self.rates.gather.at(width, threads)
        return self.bandwidth_bytes_per_s(threads)

    def aggregate_bytes_per_s(self, width: float, threads: int = 0) -> float:
        """Return BW of Equation 11: bytes of source rows aggregated a second."""
        if self.rates.aggregate is not None:
            return self.rates.aggregate.at(width, threads)
        return self.bandwidth_bytes_per_s(threads)

    def aggregate_backward_bytes_per_s(self, width: float, threads: int = 0) -> float:
        """Return BW of Equation 11 in the backward pass.

        It is the bytes/s of gradients added to source rows.
        """
        if self.rates.aggregate_backward is not None:
            return self.rates.aggregate_backward.at(width, threads)
        return self.aggregate_bytes_per_s(width, threads)

    def update_flop_per_s(self, width: float, threads: int = 0) -> float:
        """Return twice N freq of Equation 12.

        It is the FLOP/s of a product with weights of narrower side ``width``.
        """
        if self.rates.update is not None:
            return self.rates.update.at(width, threads)
        return self.hardware.flops_per_s * self.share_of_cores(threads)


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of two devices, equally fast in both directions at once.

    ``bandwidth_bytes_per_s`` is for one direction. ``via`` names the intermediate stops if the two
    have no direct link: the host, a switch, or the network cards of two machines. A transfer uses
    one lane from each stop to the next. It occupies the lanes exclusively, unless they are
    ``shared``: transfers that meet on a shared lane divide its bandwidth evenly.

    ``picked_bytes_per_s`` is for rows gathered one by one from the host's memory, or added to it.
    It is None if they cross as fast as blocks.

    Between devices made of cores, transfers over a ``limited`` link are slowed to its bandwidth. At
    a ``blocking`` link both ends do nothing else until a transfer has finished.
    """

    name: str
    ends: tuple[str, str]
    bandwidth_bytes_per_s: Annotated[Positive, Key("bandwidth", "B/s")]
    latency_s: Annotated[Seconds, Key("latency", "s", required=True)] = 0.0
    via: Annotated[Stops, Key()] = ()
    shared: Annotated[bool, Key()] = False
    picked_bytes_per_s: float | None = None
    limited: bool = False
    blocking: bool = False

    def rate(self, *, picked: bool) -> float:
        """Return the bytes/s of one direction, for blocks or for rows that are ``picked``."""
        fastest = self.bandwidth_bytes_per_s
        return min(fastest, self.picked_bytes_per_s or fastest) if picked else fastest

    def crossing_s(self, size_bytes: float, rate: float | None = None) -> float:
        """Return the seconds of a transfer beside its latency.

        ``rate`` is in bytes/s; None means the link's for blocks. The clock and the formulas of
        papers price every transfer here.
        """
        return size_bytes / (self.bandwidth_bytes_per_s if rate is None else rate)

    def lanes(self, source: str) -> tuple[str, ...]:
        """Return the lanes of a transfer from the end ``source``, one way.

        The devices that it blocks are among them.
        """
        stops = (self.ends[0], *self.via, self.ends[1])
        ways = tuple(f"{a}>{b}" for a, b in pairwise(stops if source == stops[0] else stops[::-1]))
        return (*ways, *self.ends) if self.blocking else ways


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a transfer.

    ``place`` prices it, and it holds the one-way ``lanes``.
    """

    place: str
    lanes: tuple[str, ...]


_Times = Annotated[Positive, Key(unit="")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTimes:
    """A kernel's times in one mode, by epochs measured on the platform.

    A stage takes that many times as long as the platform's rates say. A step takes ``step_s``
    besides its work; None means the platform's time. There are ``groups`` independent groups of
    measured epochs. Most of them lie within ``error_factor`` of their predictions, each predicted
    by the other groups.
    """

    sample: _Times = 1.0
    load: _Times = 1.0
    transfer: _Times = 1.0
    aggregate: _Times = 1.0
    update: _Times = 1.0
    synchronize: _Times = 1.0
    recompute: _Times = 1.0
    offload: _Times = 1.0
    step_s: Annotated[Seconds, Key("step", "s")] | None = None
    groups: Annotated[Count, Key(unit="")] = 0
    error_factor: _Times = 1.0

    def times_of(self, stage: Stage) -> float:
        """Return the factor of a stage's times."""
        factor: float = getattr(self, stage)
        return factor

    @property
    def own_error(self) -> OwnError | None:
        """The error of predictions; None if no epoch was measured."""
        return OwnError(self.groups, self.error_factor) if self.groups else None


def name_path(kernel: str, mode: Mode) -> str:
    """Return the key of a kernel and a mode in a calibration."""
    return f"{kernel} {mode}"


@dataclass(frozen=True, slots=True)
class Platform:
    """A machine: a host (all its sockets together), accelerators, and the links between them.

    A machine of several nodes has ``other_hosts`` beside the first, all linked with each other. An
    accelerator belongs to the one host that it is linked with. Sockets are numbered through all
    hosts.

    ``sources`` maps a dotted key (``"host.memory_bandwidth"``) to the source of its number, and
    ``marks`` to the number's provenance. ``round_s`` is the time of a round of mini-batch training
    besides its stages, if a design phase has measured it. ``step_s`` is the time of each step of a
    program besides its computation, as measured on this machine. If devices are processes, it is
    multiplied by their number, since all of them read all steps. ``calibration`` has
    the times of kernels and modes of which epochs were measured (:meth:`calibrated`).
    """

    name: str
    description: str
    host: Device
    accelerators: tuple[Device, ...]
    links: tuple[Link, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    round_s: float = 0.0
    step_s: float = 0.0
    other_hosts: tuple[Device, ...] = ()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    calibration: Mapping[str, PathTimes] = field(default_factory=dict)

    def calibrated(self, kernel: str, mode: Mode) -> PathTimes:
        """Return the times of a kernel in a mode; without calibration they change nothing."""
        return self.calibration.get(name_path(kernel, mode), PathTimes())

    def mark(self, key: str) -> Mark:
        """Return the mark of a number by its dotted key; a number without a mark is assumed."""
        return self.marks.get(key, ASSUMED)

    def describe_source(self, key: str) -> str:
        """Return ``"assumed: one copy call over PCIe"``."""
        return self.mark(key).describe(self.sources.get(key, ""))

    @property
    def hosts(self) -> tuple[Device, ...]:
        """All hosts, the first one first."""
        return (self.host, *self.other_hosts)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The hosts, then the accelerators."""
        return (*self.hosts, *self.accelerators)

    @property
    def virtual(self) -> bool:
        """Whether any device does not exist here; all times are then modelled."""
        return any(device.virtual for device in self.devices)

    @property
    def shares_cores(self) -> bool:
        """Whether the host has no cores besides those that accelerators are made of."""
        taken = {core for device in self.accelerators for core in device.pinned}
        return bool(taken.intersection(self.host.pinned))

    def device(self, name: str) -> Device:
        """Return a device by name. Raises ``PlatformError`` if there is none."""
        for device in self.devices:
            if device.name == name:
                return device
        known = ", ".join(device.name for device in self.devices)
        raise PlatformError(f"platform {self.name} has no device {name!r}; it has {known}.")

    def link(self, one: str, other: str) -> Link:
        """Return the link between two devices; raises ``PlatformError`` when there is none."""
        for link in self.links:
            if link.ends in ((one, other), (other, one)):
                return link
        raise PlatformError(
            f"platform {self.name} has no link between {one} and {other}; "
            f"add a [[links]] entry that names both."
        )

    def host_of(self, device: Device) -> Device:
        """Return the host that an accelerator belongs to, or the host itself for a host."""
        if not self.other_hosts or device in self.hosts:
            return device if device in self.hosts else self.host
        ends = [set(link.ends) for link in self.links]
        return next(host for host in self.hosts if {host.name, device.name} in ends)

    def host_link(self, device: Device) -> Link:
        """Return the link between an accelerator and its host."""
        return self.link(self.host_of(device).name, device.name)

    @property
    def sockets(self) -> tuple[Device, ...]:
        """The host of every socket, by the socket's number."""
        return tuple(host for host in self.hosts for _ in range(host.memory.sockets))

    def socket(self, device: Device) -> int:
        """Return the socket that an accelerator is attached to.

        Accelerators are attached in order, evenly over their host's sockets.
        """
        host = self.host_of(device)
        attached = [each for each in self.accelerators if self.host_of(each) == host]
        first = self.sockets.index(host)
        return first + attached.index(device) * host.memory.sockets // len(attached)

    @property
    def disk(self) -> Link:
        """The link between the host's memory and its disk.

        Raises ``PlatformError`` when there is none.
        """
        rate = self.host.memory.disk_bandwidth_bytes_per_s
        if not rate:
            raise PlatformError(
                f"the run must spill to the disk of platform {self.name}, whose speed is not "
                f"stated. Add disk_bandwidth to its [host] table, or raise memory.host_bytes."
            )
        return Link(DISK, (self.host.name, DISK), rate)

    def route(self, source: Device, target: Device) -> Route:
        """Return the route of a transfer; within one device it is the device's memory."""
        if source.name == target.name:
            return Route(source.name, (source.name,))
        link = self.link(source.name, target.name)
        return Route(link.name, link.lanes(source.name))

    @property
    def shared_lanes(self) -> frozenset[str]:
        """The lanes on which concurrent transfers share the bandwidth."""
        shared = (link for link in self.links if link.shared)
        return frozenset(lane for link in shared for end in link.ends for lane in link.lanes(end))

    def place(self, name: str) -> Device | Link:
        """Return the device or link called ``name``, or the link to the disk."""
        if name == DISK:
            return self.disk
        for link in self.links:
            if link.name == name:
                return link
        return self.device(name)
