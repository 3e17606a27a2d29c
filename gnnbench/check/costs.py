"""The check of costs: the times and bytes that parts state, against bounds and measured bytes.

A part that states too little wins a comparison for nothing. So each statement is compared with
something outside the part's control: a device's rates, the tensors that an adjacency holds, the
bytes that ``pack`` makes.
"""

from __future__ import annotations

import gc
import math
import types
from collections.abc import Sequence

import numpy as np
import torch

from gnnbench import models
from gnnbench.check import graphs
from gnnbench.check.outcome import NonConformingError, NotApplicableError, NotReachedError
from gnnbench.check.subject import Subject, World
from gnnbench.machines import list_platforms, load_platform
from gnnbench.machines.costs.bounds import FASTEST, describe_work, find_peaks, least_seconds
from gnnbench.machines.costs.loading import price_sampling
from gnnbench.machines.machine import Device
from gnnbench.models.bound import BoundBlock, Degrees
from gnnbench.parts import (
    Adjacency,
    CacheMemory,
    HostLoading,
    Kernel,
    LayerShape,
    Memory,
    MiniBatchSampler,
)
from gnnbench.records import (
    AggregateWork,
    Block,
    BlockSize,
    KernelWork,
    SampleWork,
    UpdateWork,
)

#: The largest ratio of a stated time to the time by the device's rates. ``CALLS_S`` seconds are
#: allowed besides for library calls in each sampled layer, ``START_S`` for each worker started.
SLOWEST, CALLS_S, START_S = 1000.0, 0.01, 60.0
#: Kernels that one step of a library may launch: less work than that hides behind the launches.
LAUNCHES = 20
EDGES, FEATURES, MACS = (10**3, 10**5, 10**7), (1, 16, 100, 602), (10**5, 10**8, 10**11)
#: The stated bytes of an adjacency, relative to the bytes held: the least and the most allowed.
LEAST_STATED, MOST_STATED = 0.9, 4.0
#: How far rounding may move a feature, as a share of its row's largest magnitude.
ROUNDED = 0.25


def check_costs(subject: Subject) -> str:
    """Check that the device can reach stated times, and that stated bytes are held or cross."""
    said: list[str] = []
    seen: set[str] = set()
    for case, world in subject.worlds(wide=False):
        bundle = world.bundle
        new = subject.covers("kernel") and bundle.kernel.name not in seen
        if new:
            seen.add(bundle.kernel.name)
            said += [_check_adjacency_bytes(bundle.kernel), _check_seconds(world)]
        if subject.covers("sampler") and isinstance(bundle.sampler, MiniBatchSampler):
            said.append(_check_sampling(bundle.sampler))
        ran_before = len(subject.reached.priced)
        run = world.run()
        if new:
            said.append(_check_priced(subject, bundle.kernel, ran_before))
        one = bundle.communication
        if subject.covers("communication") and isinstance(one, HostLoading):
            packs = type(one).pack is not HostLoading.pack
            said += [f"{case}: {_check_row_bytes(one)}"] if packs else []
        if subject.covers("memory"):
            said.append(f"{case}: {_check_memory(bundle.memory, world)}")
        if subject.covers("placement"):
            said += _check_predictions(subject, run.label)
    if not said:
        raise NotApplicableError("samplers of full graphs state no costs")
    return "; ".join(said)


# --------------------------------------------------------------------------- times


def _check_seconds(world: World) -> str:
    """Check a kernel's times over a grid of work, on every described device it prices by size."""
    kernel = world.bundle.kernel
    trainers = world.bundle.placement.trainers(world.setting.platform)
    count = 0
    for device in (*trainers, *_list_described()):
        try:
            kernel.seconds(AggregateWork(edges=8, rows=1, features=1), device)
        except Exception:  # it does not price this device, or only after a run on it
            continue
        _check_grid(kernel, device)
        count += 1
    return f"it prices {count or 'no'} devices by size alone"


def _list_described() -> list[Device]:
    """Return the devices of the machine descriptions bundled with the harness."""
    return [
        device
        for entry in list_platforms()
        for device in load_platform(entry.name).devices
        if device.virtual
    ]


def _check_priced(subject: Subject, kernel: Kernel, ran_before: int) -> str:
    """Check the times that a kernel gave to the work of all runs so far.

    Times from ``ran_before`` on belong to the last run.
    """
    for each in subject.reached.priced:
        if each.kernel == kernel.name:
            _require_possible(f"kernel {kernel.name!r}", each.work, each.device, each.seconds)
    count = len(subject.reached.priced) - ran_before
    if not count:
        raise NotReachedError(f"kernel {kernel.name!r} priced no work in a run")
    return f"{count} works of a run take what they can"


def _check_grid(kernel: Kernel, device: Device) -> None:
    """Check that the times of growing work do not fall."""

    def aggregate(edges: int, features: int) -> KernelWork:
        rows = edges // 8
        return AggregateWork(edges=edges, rows=rows, features=features, sources=rows)

    def update(macs: int, features: int) -> KernelWork:
        return UpdateWork(macs=macs, rows=64, features=features)

    series = [
        *([aggregate(edges, features) for edges in EDGES] for features in FEATURES),
        *([aggregate(edges, features) for features in FEATURES] for edges in EDGES),
        *([update(macs, features) for macs in MACS] for features in FEATURES),
    ]
    for works in series:
        times = [kernel.seconds(work, device) for work in works]
        for work, seconds in zip(works, times, strict=True):
            _require_possible(f"kernel {kernel.name!r}", work, device, seconds)
        for index in range(1, len(works)):
            if times[index] < times[index - 1]:
                raise NonConformingError(
                    f"kernel {kernel.name!r} takes {times[index]:.3e} s on {device.name} "
                    f"({device.model}) for {describe_work(works[index])}, which is less than the "
                    f"{times[index - 1]:.3e} s for {describe_work(works[index - 1])}"
                )
        most = bound_seconds(works[-1], device)[1]
        # The fixed cost of every step may hide this much work.
        if most > max(LAUNCHES * device.hardware.launch_s, times[0]) and not times[-1] > times[0]:
            raise NonConformingError(
                f"kernel {kernel.name!r} takes {times[0]:.3e} s on {device.name} ({device.model}) "
                f"for {describe_work(works[0])} and for {describe_work(works[-1])} alike"
            )


def _require_possible(
    part: str, work: KernelWork | SampleWork, device: Device, seconds: float
) -> None:
    """Raise ``NonConformingError`` for a time that is no time, or that the device cannot take."""
    case = f"{part} states {seconds!r} s on {device.name} ({device.model}) for "
    case += describe_work(work)
    least, most = bound_seconds(work, device)
    if not (isinstance(seconds, float | int) and math.isfinite(seconds)):
        raise NonConformingError(f"{case}, which is no time")
    if seconds < 0 or (seconds == 0 and most > 0):
        raise NonConformingError(f"{case}; give a time above zero")
    if seconds < FASTEST * least:
        raise NonConformingError(
            f"{case}, and its bytes and operations alone take {least:.3e} s at the device's rates"
        )
    layers, starts = (work.layers, work.starts) if isinstance(work, SampleWork) else (1, 0)
    if seconds > SLOWEST * most + CALLS_S * max(1, layers) + START_S * starts:
        raise NonConformingError(
            f"{case}, and at the device's rates it takes about {most:.3e} s; what takes more than "
            f"{SLOWEST:,.0f} times that has the wrong unit"
        )


def bound_seconds(work: KernelWork | SampleWork, device: Device) -> tuple[float, float]:
    """Return a device's least seconds for a piece of work, and those at its effective rates."""
    least = least_seconds(work, find_peaks(device))
    if isinstance(work, SampleWork):
        rate = device.rates.sampled_edges_per_s * (device.cores if device.kind == "cpu" else 1)
        return least, work.edges / rate if rate else math.inf
    edges = work.edges if isinstance(work, AggregateWork) else 0
    read = edges * work.features * work.itemsize
    outputs = work.rows * work.features * work.itemsize
    most = (
        device.hardware.launch_s
        + outputs / device.bandwidth_bytes_per_s(work.threads)
        + read / device.aggregate_bytes_per_s(work.features, work.threads)
        + 2.0 * work.macs / device.update_flop_per_s(work.features, work.threads)
    )
    return least, most


def _check_sampling(sampler: MiniBatchSampler) -> str:
    """Check the times of a sampler's library, on every described device that samples."""
    count = 0
    for device in _list_described():
        try:
            price_sampling(SampleWork(edges=8, layers=1), device, sampler.library)
        except ZeroDivisionError:  # neither device nor library has a sampling rate
            continue
        for works in (
            [SampleWork(edges=edges, layers=2) for edges in EDGES],
            [SampleWork(edges=EDGES[0], layers=layers) for layers in (1, 2, 4)],
            [SampleWork(edges=EDGES[0], layers=2, starts=starts) for starts in (0, 1, 8)],
        ):
            _check_draws(sampler, device, works)
        count += 1
    return f"sampler {sampler.name!r} draws on {count} devices in what they can"


def _check_draws(sampler: MiniBatchSampler, device: Device, works: Sequence[SampleWork]) -> None:
    """Check that growing work takes no less time, and that more edges take longer."""
    case = f"sampler {sampler.name!r}"
    times = [price_sampling(work, device, sampler.library) for work in works]
    for work, seconds in zip(works, times, strict=True):
        _require_possible(case, work, device, seconds)
    for index in range(1, len(works)):
        more = works[index].edges > works[index - 1].edges
        if times[index] < times[index - 1] or (more and times[index] == times[index - 1]):
            raise NonConformingError(
                f"{case} takes {times[index]:.3e} s on {device.name} ({device.model}) for "
                f"{describe_work(works[index])} (workers started: {works[index].starts}), and "
                f"{times[index - 1]:.3e} s for {describe_work(works[index - 1])} "
                f"(workers started: {works[index - 1].starts}); let more work take longer"
            )


def _check_predictions(subject: Subject, label: str) -> list[str]:
    """Check that predicted epochs are times; the report shows whether they came true."""
    wrong = [
        f"{seconds!r} s ({what})"
        for predicted in subject.reached.predictions
        for what, seconds in predicted.items()
        if not (math.isfinite(seconds) and seconds > 0)
    ]
    if wrong:
        raise NonConformingError(f"the placement of {label} predicts an epoch of {wrong[0]}")
    count = sum(map(len, subject.reached.predictions))
    return [f"{count} predicted epochs are times"] if count else []


# --------------------------------------------------------------------------- an adjacency's bytes


def _check_adjacency_bytes(kernel: Kernel) -> str:
    """Compare ``adjacency_bytes`` with the bytes that adjacencies hold after use.

    Every bundled layer uses them forward and backward, by autograd and by transposes.
    """
    block, counts = _make_large_block()
    ratios = []
    for dtype, itemsize in ((torch.float32, 4), (torch.float64, 8)):
        for model in models.MODELS:
            workload = graphs.make_workload(model)
            layer = models.build(workload).to(dtype).stack[0]
            held = _measure_held(kernel, layer, block, Degrees(counts), dtype)
            loops = block.num_dst if layer.shape.on_edges.of_loops else 0
            size = BlockSize(block.num_src, block.num_dst, block.num_edges + loops)
            ratios.append(_require_stated(kernel, model, size, layer.shape, itemsize, held))
    return (
        f"kernel {kernel.name!r} states {min(ratios):.2f} to {max(ratios):.2f} times the bytes "
        f"that its adjacencies hold"
    )


def _require_stated(
    kernel: Kernel, model: str, size: BlockSize, shape: LayerShape, itemsize: int, held: int
) -> float:
    """Return the ratio of stated to held bytes, or raise if it is out of bounds."""
    stated = kernel.adjacency_bytes(size, shape, itemsize)
    topology = 4 * (size.num_edges + size.num_dst + 1)
    # Memory that a library keeps for itself is invisible; the edges must be somewhere.
    seen = max(held, topology)
    case = (
        f"kernel {kernel.name!r} states adjacency_bytes of {stated:,} for a layer of model "
        f"{model!r} with {size.num_edges:,} edges and {itemsize} bytes a value, and its adjacency "
    )
    if not stated >= LEAST_STATED * seen:
        what = f"holds {held:,}" if held >= topology else f"cannot have its edges in {topology:,}"
        raise NonConformingError(f"{case}{what}")
    most = MOST_STATED * max(held, Kernel.adjacency_bytes(kernel, size, shape, itemsize))
    if stated > most:
        raise NonConformingError(f"{case}holds {held:,}, far less")
    return stated / seen


def _make_large_block() -> tuple[Block, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return degrees, and a block with arrays far larger than an adjacency's other state."""
    random = np.random.default_rng(37)
    num_src, num_dst, num_edges = 3000, 1500, 24_000
    adjacent = np.unique(random.integers(0, num_src * num_dst, num_edges))
    rows, columns = np.divmod(adjacent, num_src)
    indptr = np.searchsorted(rows, np.arange(num_dst + 1)).astype(np.int64)
    ids = np.arange(num_src, dtype=np.int64)
    return Block(ids, num_dst, indptr, columns.astype(np.int32)), np.full(num_src, 9)


def _measure_held(
    kernel: Kernel, layer: models.Layer, block: Block, degrees: Degrees, dtype: torch.dtype
) -> int:
    """Return the bytes of a block's adjacency after a layer has used it.

    The layer uses autograd, and transposes if it has them. Bytes that the kernel itself gained are
    added, divided by the number of adjacencies.
    """
    made: list[Adjacency] = []

    class Keeping(type(kernel)):  # type: ignore[misc]
        def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
            made.append(kernel.adjacency(block, dtype, device))
            return made[-1]

    keeping = object.__new__(Keeping)
    keeping.__dict__.update(kernel.__dict__)
    before = _Held(*_list_state(kernel))
    bound = BoundBlock(block, keeping, degrees, dtype, torch.device("cpu"))
    h = torch.ones(block.num_src, layer.in_features, dtype=dtype, requires_grad=True)
    aggregated = layer.aggregate(bound, h)
    out = layer.update(bound, aggregated)
    torch.autograd.grad(out, h, torch.ones_like(out), retain_graph=True)
    if layer.cacheable:
        layer.aggregate_backward(bound, torch.ones_like(aggregated))
    after = _Held(*_list_state(kernel), *_list_state(keeping))
    grown = after.count_besides(before, _Held(*made))
    return max(_Held(each).size_bytes for each in made) + grown // len(made)


def _list_state(kernel: Kernel) -> list[object]:
    """Return a kernel's own state: its attributes, and class attributes beyond the contract."""
    own = [each for each in type(kernel).__mro__ if not issubclass(Kernel, each)]
    return [kernel.__dict__, *(value for each in own for value in vars(each).values())]


class _Held:
    """The bytes of all tensors and arrays reachable from some objects, each counted once."""

    def __init__(self, *roots: object) -> None:
        self._by_address: dict[int, int] = {}
        seen: set[int] = set()
        due: list[object] = [*roots]
        while due:
            each = due.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, torch.Tensor):
                if hasattr(each, "__tensor_flatten__"):
                    # It owns no memory; the tensors that it is made of do.
                    due.extend(vars(each).values())
                else:
                    self._add_tensor(each)
            elif isinstance(each, np.ndarray):
                self._add_array(each)
            elif not isinstance(
                each, type | types.ModuleType | types.FunctionType | types.FrameType | Kernel
            ):
                due.extend(gc.get_referents(each))

    @property
    def size_bytes(self) -> int:
        return sum(self._by_address.values())

    def count_besides(self, *others: _Held) -> int:
        """Return the bytes that none of the others holds."""
        known = set().union(*(other._by_address for other in others))
        return sum(size for at, size in self._by_address.items() if at not in known)

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.layout == torch.sparse_csr:
            for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values()):
                self._add_tensor(part)
            return
        if tensor.layout == torch.sparse_coo:
            for part in (tensor._indices(), tensor._values()):
                self._add_tensor(part)
            return
        storage = tensor.untyped_storage()
        self._add(storage.data_ptr(), storage.nbytes())

    def _add_array(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        self._add(owner.__array_interface__["data"][0], owner.nbytes)

    def _add(self, address: int, size_bytes: int) -> None:
        self._by_address[address] = max(self._by_address.get(address, 0), size_bytes)


# --------------------------------------------------------------------------- rows and memories


def _check_row_bytes(communication: HostLoading) -> str:
    """Compare ``row_bytes`` with the result of ``pack``; ``unpack`` must give the rows back."""
    name = communication.name
    random = np.random.default_rng(41)
    for dtype in (torch.float32, torch.float64):
        for width in (1, 7, 100):
            rows = torch.from_numpy(random.standard_normal((5, width))).to(dtype)
            rows[1] = 0.0
            kept = rows.clone()
            packed = communication.pack(rows)
            if not torch.equal(rows, kept):
                raise NonConformingError(
                    f"communication {name!r} writes into the rows that it packs"
                )
            rounds = bool(communication.rounds_to)
            size = sum(part.numel() * part.element_size() for part in packed)
            stated = communication.row_bytes(width, dtype) * len(rows)
            if stated != size:
                raise NonConformingError(
                    f"communication {name!r} states row_bytes of {stated // len(rows)} for "
                    f"{width} values of {dtype}, and {len(rows)} such rows cross as {size} bytes"
                )
            _check_unpacked(communication, rows, packed, rounds=rounds)
    return f"rows of communication {name!r} cross as stated"


def _check_unpacked(
    communication: HostLoading,
    rows: torch.Tensor,
    packed: tuple[torch.Tensor, ...],
    *,
    rounds: bool,
) -> None:
    name = communication.name
    again = communication.unpack(packed, rows.dtype)
    if again.shape != rows.shape or again.dtype != rows.dtype:
        raise NonConformingError(
            f"communication {name!r} unpacks {tuple(rows.shape)} rows of {rows.dtype} as "
            f"{tuple(again.shape)} of {again.dtype}"
        )
    off = (again - rows).abs().amax(dim=1)
    allowed = rows.abs().amax(dim=1) * (ROUNDED if rounds else 0.0)
    if not bool((off <= allowed).all()):
        row = int((off - allowed).argmax())
        raise NonConformingError(
            f"communication {name!r} unpacks a row off by {off[row]:.3g} where its largest value "
            f"is {rows[row].abs().max():.3g}"
            + ("" if rounds else ", and it does not say that it rounds")
        )


def _check_memory(memory: Memory, world: World) -> str:
    """Check that a memory states no more than the platform's, and caches only rows that fit."""
    setting, name = world.setting, memory.name
    for device in world.bundle.placement.trainers(setting.platform):
        if not 0 <= memory.capacity_bytes(device) <= device.hardware.memory_bytes:
            raise NonConformingError(
                f"memory {name!r} states a capacity of {memory.capacity_bytes(device):,} bytes on "
                f"{device.name}, which has {device.hardware.memory_bytes:,}"
            )
    host = setting.platform.host
    if not 0 <= memory.host_capacity_bytes(host) <= host.hardware.memory_bytes:
        raise NonConformingError(
            f"memory {name!r} states a host capacity of {memory.host_capacity_bytes(host):,} "
            f"bytes, and the host has {host.hardware.memory_bytes:,}"
        )
    cached = 0
    if isinstance(memory, CacheMemory):
        cached = _check_cache(memory, world)
    return f"memory {name!r} stays within its devices" + (
        f" and caches {cached} rows where all fit" if cached else ""
    )


def _check_cache(memory: CacheMemory, world: World) -> int:
    setting, name = world.setting, memory.name
    num_vertices, cached = setting.dataset.graph.num_vertices, 0
    for room in (0, 1, num_vertices // 2, 2 * num_vertices):
        session = memory.open(setting, {0: room})
        ids, cached = session.kept[0], session.num_rows[0]
        if len(np.unique(ids)) != len(ids) or (len(ids) and not 0 <= ids.min() <= ids.max()):
            raise NonConformingError(f"memory {name!r} caches a vertex twice, or one below 0")
        if len(ids) and ids.max() >= num_vertices:
            raise NonConformingError(f"memory {name!r} caches vertex {ids.max()} of {num_vertices}")
        if not len(ids) <= cached <= room:
            raise NonConformingError(
                f"memory {name!r} caches {cached} rows where mini-batches leave room for {room}"
            )
    return cached
