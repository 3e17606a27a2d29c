"""The nouns of a platform: devices, links, and the machine they make up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from gnnbench.constants import ASSUMED, Mark
from gnnbench.errors import PlatformError

DeviceKind = Literal["cpu", "gpu", "fpga", "sparse"]
#: The name of the host's disk, as a memory in a ledger and as a place that prices a transfer.
DISK = "disk"


@dataclass(frozen=True, slots=True)
class RateCurve:
    """An effective rate that depends on how wide the rows are that it is reached on.

    ``rates`` of all cores together and ``core_rates`` of one stand for the ascending ``widths``.
    """

    widths: tuple[int, ...]
    rates: tuple[float, ...]
    core_rates: tuple[float, ...]

    def at(self, width: float, threads: int = 0) -> float:
        """The rate of ``threads`` cores (all of them when 0) on rows of ``width`` values.

        Between two widths the time of a value is linear in 1 / width, as fixed costs of a row make
        it; beyond the first and the last it is theirs.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRates:
    """What a library was measured to reach on a device; None and 0 where that was not measured.

    AGGREGATE picks source rows at ``aggregate`` bytes/s out of the memory and at ``cached`` out of
    the last cache, and writes destinations' rows at ``written``; where sums with a weight an edge
    have no vector instructions, it picks their rows at ``weighted`` and ``weighted_cached``, and
    where the gradients of those weights have none, theirs at ``dotted`` and ``dotted_cached``.
    UPDATE's products have ``update`` FLOP/s, all by width. However little there is to compute,
    AGGREGATE takes ``call_s``, or with attention ``attention_call_s``, UPDATE ``update_call_s``,
    and the loss and the optimiser ``batch_s`` together. Mini-batches, of which no cache has seen a
    row or an edge, take ``fresh_call_s``, ``attention_fresh_call_s`` and ``update_fresh_call_s``,
    and ``fresh_batch_s``, which has in it what loading takes besides its rows. Of a block that is
    new to the library ``bound_edges_per_s`` are made ready for the forward pass, and
    ``transposed_edges_per_s`` for the backward pass. One core draws ``sampled_edges_per_s`` of a
    mini-batch, and all cores together ``jointly_sampled_edges_per_s``, after ``sampling_call_s``
    for every layer.
    """

    aggregate: RateCurve | None = None
    cached: RateCurve | None = None
    written: RateCurve | None = None
    weighted: RateCurve | None = None
    weighted_cached: RateCurve | None = None
    dotted: RateCurve | None = None
    dotted_cached: RateCurve | None = None
    update: RateCurve | None = None
    call_s: float | None = None
    fresh_call_s: float = 0.0
    attention_call_s: float = 0.0
    attention_fresh_call_s: float = 0.0
    update_call_s: float = 0.0
    update_fresh_call_s: float = 0.0
    batch_s: float = 0.0
    fresh_batch_s: float = 0.0
    bound_edges_per_s: float = 0.0
    transposed_edges_per_s: float = 0.0
    sampled_edges_per_s: float = 0.0
    jointly_sampled_edges_per_s: float = 0.0
    sampling_call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """One processor or accelerator with its own memory.

    Rates are effective (what burst transactions or dense kernels reach), not peak, where the
    platform file says so. ``pipelined`` devices run aggregation and update at the same time
    (HyScale-GNN Equation 10: the operator is max, not sum). ``virtual`` devices do not exist on
    this machine: their times come from the model clock. ``torch_device`` is where the numerics run.

    ``power_w`` is what it draws while it is busy; None where the platform file does not say.

    ``gather``, ``aggregate`` (bytes/s by row width) and ``update`` (FLOP/s by the narrower side of
    the weights) are the effective rates of HyScale-GNN's Equations 7, 11 and 12, where they are
    known: loading feature rows, and a trainer's two steps. None means the plain rates.
    ``aggregate_backward`` is Equation 11's rate where Equation 10 takes it a second time: backward,
    an edge adds to its source's row, of which there are more to write; None means ``aggregate``.
    ``libraries`` has what single libraries reach, by name. The last cache, of all sockets, has
    ``cache_bytes``, and tensors of ``mapped_from_bytes`` are in memory that is mapped for each,
    which one process, or one core, fills at ``fresh_bandwidth_bytes_per_s`` and
    ``core_fresh_bandwidth_bytes_per_s``; 0 where that is as of its kind.

    A host of several ``sockets`` has an equal share of its memory at each, and between any two of
    them ``socket_bandwidth_bytes_per_s``, one way.

    A device that is made of this machine's cores has their numbers in ``pinned``. It is held to
    ``speed``, a share of what they reach, which its rates have in them already.
    """

    name: str
    kind: DeviceKind
    model: str
    flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    launch_s: float = 0.0
    cores: int = 1
    core_bandwidth_bytes_per_s: float = 0.0
    sampled_edges_per_s: float = 0.0
    disk_bandwidth_bytes_per_s: float = 0.0
    sockets: int = 1
    socket_bandwidth_bytes_per_s: float = 0.0
    pipelined: bool = False
    virtual: bool = True
    torch_device: str = "cpu"
    power_w: float | None = None
    gather: RateCurve | None = None
    aggregate: RateCurve | None = None
    aggregate_backward: RateCurve | None = None
    update: RateCurve | None = None
    cache_bytes: float = 0.0
    mapped_from_bytes: float = 0.0
    fresh_bandwidth_bytes_per_s: float = 0.0
    core_fresh_bandwidth_bytes_per_s: float = 0.0
    libraries: Mapping[str, LibraryRates] = field(default_factory=dict, hash=False)
    pinned: tuple[int, ...] = ()
    speed: float = 1.0

    def share_of_cores(self, threads: int) -> float:
        """The fraction of this device that ``threads`` cores are; 1.0 when ``threads`` is 0."""
        return min(1.0, threads / self.cores) if threads else 1.0

    def bandwidth_bytes_per_s(self, threads: int = 0) -> float:
        """Memory bandwidth that ``threads`` cores can draw (all of them when 0), bytes/s."""
        if threads and self.core_bandwidth_bytes_per_s:
            return min(self.memory_bandwidth_bytes_per_s, threads * self.core_bandwidth_bytes_per_s)
        return self.memory_bandwidth_bytes_per_s

    def fresh_bytes_per_s(self, threads: int = 0) -> float:
        """How fast one process fills memory that it has just been given, with so many ``threads``
        (all of its cores when 0), bytes/s; 0 where nobody has measured it."""
        if threads and self.core_fresh_bandwidth_bytes_per_s:
            alone = self.core_fresh_bandwidth_bytes_per_s
            return min(self.fresh_bandwidth_bytes_per_s, threads * alone)
        return self.fresh_bandwidth_bytes_per_s

    def gather_bytes_per_s(self, width: float, threads: int = 0) -> float:
        """How fast rows of ``width`` values are picked from memory, bytes of rows a second."""
        if self.gather is not None:
            return self.gather.at(width, threads)
        return self.bandwidth_bytes_per_s(threads)

    def aggregate_bytes_per_s(self, width: float, threads: int = 0) -> float:
        """BW of Equation 11: bytes of source rows aggregated a second."""
        if self.aggregate is not None:
            return self.aggregate.at(width, threads)
        return self.bandwidth_bytes_per_s(threads)

    def aggregate_backward_bytes_per_s(self, width: float, threads: int = 0) -> float:
        """The same of its backward pass: bytes of gradients added to source rows a second."""
        if self.aggregate_backward is not None:
            return self.aggregate_backward.at(width, threads)
        return self.aggregate_bytes_per_s(width, threads)

    def update_flop_per_s(self, width: float, threads: int = 0) -> float:
        """Twice N freq of Equation 12: FLOP/s of a product with weights whose narrower side is
        ``width``."""
        if self.update is not None:
            return self.update.at(width, threads)
        return self.flops_per_s * self.share_of_cores(threads)


@dataclass(frozen=True, slots=True)
class Link:
    """A way between two devices, as fast in both directions at once.

    ``bandwidth_bytes_per_s`` is for one direction. ``via`` names what is in between where the two
    have no link of their own: the host, a switch, or the network cards of two machines. A transfer
    goes over a lane from each stop to the next. It occupies them for itself, unless they are
    ``shared``: transfers that meet on a lane then share its bandwidth evenly.

    ``picked_bytes_per_s`` is for rows that are picked one by one out of the host's memory, or added
    to it; None where they cross as fast as blocks.

    Between devices made of cores a ``limited`` link really takes as long as its bandwidth says, and
    at a ``blocking`` one both ends do nothing else until a transfer is over.
    """

    name: str
    ends: tuple[str, str]
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    via: tuple[str, ...] = ()
    shared: bool = False
    picked_bytes_per_s: float | None = None
    limited: bool = False
    blocking: bool = False

    def rate(self, *, picked: bool) -> float:
        """Bytes of one direction a second, of blocks or of rows that are ``picked``."""
        fastest = self.bandwidth_bytes_per_s
        return min(fastest, self.picked_bytes_per_s or fastest) if picked else fastest

    def lanes(self, source: str) -> tuple[str, ...]:
        """Those that a transfer from the end ``source`` goes over, one way, and whom it keeps."""
        stops = (self.ends[0], *self.via, self.ends[1])
        ways = tuple(f"{a}>{b}" for a, b in pairwise(stops if source == stops[0] else stops[::-1]))
        return (*ways, *self.ends) if self.blocking else ways


@dataclass(frozen=True, slots=True)
class Route:
    """A transfer's way: the ``place`` that prices it and the one-way ``lanes`` that it holds."""

    place: str
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    """A machine: a host (all its sockets together), accelerators, and the links between them.

    A machine of several nodes has ``other_hosts`` beside the first, all linked with each other. An
    accelerator belongs to the one host that it is linked with. Sockets are numbered through all
    hosts.

    ``sources`` maps a dotted key (``"host.memory_bandwidth"``) to where its number comes from,
    ``marks`` to how far it is to be believed.
    ``round_s`` is what a round of mini-batch training takes here besides its stages, where a design
    phase has measured it, and ``step_s`` what each step of a program takes besides what it
    computes: of this machine as it was measured, and as many times as long where devices are
    processes that all read all steps.
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

    def mark(self, key: str) -> Mark:
        """That of a number by its dotted key; one without a mark is assumed."""
        return self.marks.get(key, ASSUMED)

    def describe_source(self, key: str) -> str:
        """``"assumed: one copy call over PCIe"``."""
        return self.mark(key).describe(self.sources.get(key, ""))

    @property
    def hosts(self) -> tuple[Device, ...]:
        return (self.host, *self.other_hosts)

    @property
    def devices(self) -> tuple[Device, ...]:
        return (*self.hosts, *self.accelerators)

    @property
    def virtual(self) -> bool:
        """True as soon as one device does not exist here: all times are then modelled."""
        return any(device.virtual for device in self.devices)

    @property
    def shares_cores(self) -> bool:
        """Whether the host has no cores of its own beside those that accelerators are made of."""
        taken = {core for device in self.accelerators for core in device.pinned}
        return bool(taken.intersection(self.host.pinned))

    def device(self, name: str) -> Device:
        for device in self.devices:
            if device.name == name:
                return device
        known = ", ".join(device.name for device in self.devices)
        raise PlatformError(f"platform {self.name} has no device {name!r}; it has {known}.")

    def link(self, one: str, other: str) -> Link:
        """The link between two devices; raises ``PlatformError`` when there is none."""
        for link in self.links:
            if link.ends in ((one, other), (other, one)):
                return link
        raise PlatformError(
            f"platform {self.name} has no link between {one} and {other}; "
            f"add a [[links]] entry that names both."
        )

    def host_of(self, device: Device) -> Device:
        """The host that an accelerator belongs to; a host's is itself."""
        if not self.other_hosts or device in self.hosts:
            return device if device in self.hosts else self.host
        ends = [set(link.ends) for link in self.links]
        return next(host for host in self.hosts if {host.name, device.name} in ends)

    def host_link(self, device: Device) -> Link:
        """The link between an accelerator and its host."""
        return self.link(self.host_of(device).name, device.name)

    @property
    def sockets(self) -> tuple[Device, ...]:
        """By the number of a socket, the host that it is of."""
        return tuple(host for host in self.hosts for _ in range(host.sockets))

    def socket(self, device: Device) -> int:
        """The socket that an accelerator is attached to: in order, evenly over its host's."""
        host = self.host_of(device)
        attached = [each for each in self.accelerators if self.host_of(each) == host]
        first = self.sockets.index(host)
        return first + attached.index(device) * host.sockets // len(attached)

    @property
    def disk(self) -> Link:
        """The way between the host's memory and its disk; ``PlatformError`` when there is none."""
        rate = self.host.disk_bandwidth_bytes_per_s
        if not rate:
            raise PlatformError(
                f"platform {self.name} does not say how fast its disk is, and the run has to spill "
                f"to it; add disk_bandwidth to its [host] table, or raise memory.host_bytes."
            )
        return Link(DISK, (self.host.name, DISK), rate)

    def route(self, source: Device, target: Device) -> Route:
        """How a transfer goes; within one device, through its memory."""
        if source.name == target.name:
            return Route(source.name, (source.name,))
        link = self.link(source.name, target.name)
        return Route(link.name, link.lanes(source.name))

    @property
    def shared_lanes(self) -> frozenset[str]:
        """The lanes on which transfers go at the same time and share the bandwidth."""
        shared = (link for link in self.links if link.shared)
        return frozenset(lane for link in shared for end in link.ends for lane in link.lanes(end))

    def place(self, name: str) -> Device | Link:
        """The device or link called ``name``, or the way to the disk."""
        if name == DISK:
            return self.disk
        for link in self.links:
            if link.name == name:
                return link
        return self.device(name)
