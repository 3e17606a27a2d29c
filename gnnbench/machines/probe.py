"""Measurements of this machine, which ``platforms probe`` writes as a platform.

Peaks are the best of several runs, which other activity disturbs least. The effective rates by
width, which predict runs, come from the median run. ``gnnbench.probing`` measures the rates of each
installed library.
"""

from __future__ import annotations

import dataclasses
import datetime
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
import scipy
import torch

from gnnbench.constants import MEASURED, Bound
from gnnbench.errors import UsageError
from gnnbench.host.cores import memory_bytes
from gnnbench.host.progress import doing
from gnnbench.kernels.csr import csr_tensor
from gnnbench.kernels.dispatch import gather_rows, sample_neighbours
from gnnbench.kernels.pages import count_kept_bytes, keep_pages
from gnnbench.machines.caches import make_sweep
from gnnbench.machines.local import (
    KEPT,
    assemble,
    cache_bytes,
    count_gpus,
    count_physical_cores,
    cpu_model,
    second_level_bytes,
)
from gnnbench.machines.machine import (
    Device,
    Hardware,
    Link,
    MemoryRates,
    Platform,
    RateCurve,
    TrainerRates,
)
from gnnbench.machines.timing import best_rate, round_rate, time_runs, torch_threads, typical_rate
from gnnbench.records import IndexArray, IntArray

#: 128 MiB an array, 384 MiB a triad: beyond the last-level cache of any one socket.
TRIAD_FLOATS: Bound[int] = 2**25
COPY_BYTES: Bound[int] = 2**26
#: 64 MiB.
FRESH_FLOATS: Bound[int] = 2**24
CPU = torch.device("cpu")
#: Widths at which rates are measured, and the sizes of the tables.
GATHERED_WIDTHS: Bound[tuple[int, ...]] = (16, 64, 256, 1024, 8192)
GATHERED_BYTES: Bound[int] = 2**26
AGGREGATED_WIDTHS: Bound[tuple[int, ...]] = (16, 64, 256, 1024, 8192)
AGGREGATED_BYTES: Bound[int] = 2**26
GRAPH_VERTICES: Bound[int] = 2**20
#: Rows of 1 KiB, gathered to find out how many of them the cache holds. The near table fits the
#: cache, and the far table does not.
PICKED_WIDTH: Bound[int] = 256
PICKED_ROWS: Bound[int] = 2**16
PICKED_DEGREE: Bound[int] = 32
PICKING_TURNS: Bound[int] = 5
NEAR_BYTES: Bound[int] = 2**22
FAR_BYTES: Bound[int] = 2**27
#: A table with at least this fraction in the cache may be in it as a whole.
WHOLE: Bound[float] = 0.9
NARROW_SIDES: Bound[tuple[int, ...]] = (4, 16, 64, 128, 256)
UPDATED_ROWS: Bound[int] = 2**13
#: The approximate number of measurements of a processor, for its progress.
MEASUREMENTS: Bound[int] = 50


def probe(seconds: float = 2.0) -> Platform:
    """Measure this machine: its processor for about ``seconds``, then each CUDA device as long.

    Setup of arrays and a few runs of every kernel come on top, even for a short budget. Freed
    memory stays in the process, as in a comparison (:func:`keep_pages`).
    """
    if seconds <= 0:
        raise UsageError(f"a probe of {seconds:g} s measures nothing; give it more than 0.")
    keep_pages()
    today = datetime.date.today().isoformat()
    measured = f"measured here by gnnbench platforms probe on {today}"
    sources: dict[str, str] = {}
    with doing("measuring the processor", MEASUREMENTS):
        host = _probe_host(seconds)
    sources |= _sources("host", host, measured)
    gpus = []
    for index in range(count_gpus()):
        with doing(f"measuring GPU {index}", 3):
            gpus.append(_probe_gpu(index, seconds / 2))
    for gpu in gpus:
        sources |= _sources(gpu.name, gpu, measured)
    links = _probe_links(gpus, seconds / 2)
    for link in links:
        sources |= {f"{link.name}.{key}": measured for key in ("bandwidth", "latency")}
    return assemble(host, gpus, links, sources, dict.fromkeys(sources, MEASURED))


def _sources(name: str, device: Device, measured: str) -> dict[str, str]:
    """Return the sources of a probed device.

    They are facts from the system, and how each rate was measured.
    """
    system = "the operating system" if device.kind == "cpu" else "CUDA"
    sources = {
        "cores": system if device.kind == "cpu" else f"{system}: multiprocessors",
        "memory": system,
        "flops": f"{measured}: float32 matrix product",
        "memory_bandwidth": f"{measured}: STREAM triad",
        "launch": f"{measured}: one small tensor operation",
    }
    if device.kind == "gpu":
        sources["cache"] = f"{system}: its second level"
    if device.kind == "cpu":
        sources["mapped_from"] = KEPT
        sources["core_bandwidth"] = f"{measured}: STREAM triad on one core"
        fresh = "a tensor written into memory that is mapped for it"
        sources["fresh_bandwidth"] = f"{measured}: {fresh}"
        sources["core_fresh_bandwidth"] = f"{measured}: {fresh}, on one core"
        sources["cache"] = (
            f"{measured}: of the last cache, what rows find in it that are picked at random from "
            f"tables of a quarter of its size, half and all"
        )
        sources["sampling"] = f"{measured}: fan-outs 25, 10 on a random graph, one core"
        sources["gather"] = f"{measured}: rows picked at random from a table, into new memory"
        sources["aggregate"] = (
            f"{measured}: torch's CSR product on a fan-out of 10, weighted by degrees, and own rows"
        )
        sources["aggregate_backward"] = f"{measured}: the transpose of that block, and its product"
        sources["update"] = f"{measured}: torch's product with 256 values a row, ReLU, and backward"
    return {f"{name}.{key}": source for key, source in sources.items()}


# --------------------------------------------------------------------------- what it does


def _probe_host(seconds: float) -> Device:
    cores, share_s = count_physical_cores(), seconds / 5
    with torch_threads(cores):
        flops = _matmul_rate(CPU, 1024 if cores < 16 else 4096, share_s)
        bandwidth = _triad_rate(CPU, share_s)
        launch_s = _launch_seconds(CPU, share_s)
        fresh = _fresh_rate(share_s / 2)
    with torch_threads(1):
        core_bandwidth = _triad_rate(CPU, share_s)
        core_fresh = _fresh_rate(share_s / 2)
    return Device(
        name="host",
        kind="cpu",
        model=cpu_model(),
        hardware=Hardware(
            flops_per_s=flops,
            memory_bandwidth_bytes_per_s=max(bandwidth, core_bandwidth),
            memory_bytes=memory_bytes(),
            launch_s=launch_s,
            cache_bytes=_cache_bytes(cores, share_s),
        ),
        cores=cores,
        memory=MemoryRates(
            core_bandwidth_bytes_per_s=core_bandwidth,
            fresh_bandwidth_bytes_per_s=max(fresh, core_fresh),
            core_fresh_bandwidth_bytes_per_s=core_fresh,
            mapped_from_bytes=count_kept_bytes(),
        ),
        rates=TrainerRates(
            sampled_edges_per_s=_sampling_rate(share_s),
            gather=_rate_curve(_gather_rate, GATHERED_WIDTHS, cores, share_s),
            aggregate=_rate_curve(_aggregate_rate, AGGREGATED_WIDTHS, cores, share_s),
            aggregate_backward=_rate_curve(
                _aggregate_backward_rate, AGGREGATED_WIDTHS, cores, share_s
            ),
            update=_rate_curve(_update_rate, NARROW_SIDES, cores, share_s),
        ),
        virtual=False,
    )


def _probe_gpu(index: int, seconds: float) -> Device:
    device, properties = torch.device("cuda", index), torch.cuda.get_device_properties(index)
    return Device(
        name=f"gpu{index}",
        kind="gpu",
        model=properties.name,
        hardware=Hardware(
            flops_per_s=_matmul_rate(device, 4096, seconds / 3),
            memory_bandwidth_bytes_per_s=_triad_rate(device, seconds / 3),
            memory_bytes=properties.total_memory,
            launch_s=_launch_seconds(device, seconds / 3),
            cache_bytes=second_level_bytes(index),
        ),
        cores=properties.multi_processor_count,
        virtual=False,
        torch_device=str(device),
    )


def _probe_links(gpus: list[Device], seconds: float) -> list[Link]:
    """Measure the host's links, then those between GPUs, by their slower direction."""
    places = [("host", CPU), *((gpu.name, torch.device(gpu.torch_device)) for gpu in gpus)]
    links = []
    for i, (one, near) in enumerate(places):
        for other, far in places[i + 1 :]:
            bandwidth = min(
                _copy_rate(near, far, COPY_BYTES, seconds / 4),
                _copy_rate(far, near, COPY_BYTES, seconds / 4),
            )
            latency_s = round_rate(1.0 / _copy_rate(near, far, 1, seconds / 4))
            links.append(Link(f"{one}-{other}", (one, other), bandwidth, latency_s))
    return links


def _matmul_rate(device: torch.device, size: int, budget_s: float) -> float:
    """Measure the FLOP/s of a square float32 matrix product.

    A multiply-accumulate counts as two.
    """
    a = torch.rand(size, size, device=device)
    out = torch.empty_like(a)
    return best_rate(lambda: torch.mm(a, a, out=out), 2.0 * size**3, budget_s, device)


def _triad_rate(device: torch.device, budget_s: float) -> float:
    """Measure the bytes/s of STREAM's triad, a = b + s c: two arrays read and one written."""
    b, c = (torch.ones(TRIAD_FLOATS, device=device) for _ in range(2))
    a = torch.zeros(TRIAD_FLOATS, device=device)
    return best_rate(
        lambda: torch.add(b, c, alpha=3.0, out=a), 12.0 * TRIAD_FLOATS, budget_s, device
    )


def _fresh_rate(budget_s: float) -> float:
    """Measure the bytes/s of writing a tensor into memory that is mapped page by page."""

    def fill() -> None:
        mapped = mmap.mmap(-1, 4 * FRESH_FLOATS)
        torch.frombuffer(mapped, dtype=torch.float32).fill_(1.0)

    return best_rate(fill, 4.0 * FRESH_FLOATS, budget_s, CPU)


def _launch_seconds(device: torch.device, budget_s: float) -> float:
    """Measure the seconds of an operation so small that its launch dominates."""
    a, launches = torch.ones(1024, device=device), 100

    def launch() -> None:
        for _ in range(launches):
            torch.add(a, a, out=a)

    return round_rate(1.0 / best_rate(launch, launches, budget_s, device))


def _copy_rate(source: torch.device, target: torch.device, size: int, budget_s: float) -> float:
    """Measure the bytes/s of copying ``size`` bytes, with page-locked memory on the host."""
    cuda = source if source.type == "cuda" else target
    ends = [
        torch.zeros(size, dtype=torch.uint8, device=place, pin_memory=_pins(place, cuda))
        for place in (source, target)
    ]
    return best_rate(lambda: ends[1].copy_(ends[0]), size, budget_s, cuda)


def _pins(place: torch.device, partner: torch.device) -> bool:
    return place.type == "cpu" and partner.type == "cuda"


def _sampling_rate(budget_s: float) -> float:
    """Measure the edges/s that one core draws.

    It draws for 1024 seeds with fan-outs 25 and 10 and degree 32 throughout.
    """
    vertices, degree = 2**16, 32
    random = np.random.default_rng(0)
    rows = random.integers(0, vertices, size=(vertices, degree), dtype=np.int32)
    indices = np.sort(rows, axis=1).ravel()
    indptr = np.arange(0, vertices * degree + 1, degree, dtype=np.int64)
    seeds = random.permutation(vertices)[:1024].astype(np.int64)

    def draw() -> int:
        blocks = sample_neighbours(indptr, indices, seeds, (25, 10), seed=0, epoch=0, threads=1)
        return sum(block.num_edges for block in blocks)

    return best_rate(draw, draw(), budget_s, CPU)


def _rate_curve(
    measure: Callable[[int, int, float], float],
    widths: tuple[int, ...],
    cores: int,
    budget_s: float,
) -> RateCurve:
    """Return the results of ``measure`` by width, on all cores or on one if that is faster."""
    each_s = budget_s / (2 * len(widths))
    rates = []
    for threads in (cores, 1):
        with torch_threads(threads):
            rates.append([measure(width, threads, each_s) for width in widths])
    together, alone = rates
    return RateCurve(widths, tuple(map(max, together, alone)), tuple(alone))


def _gather_rate(width: int, threads: int, budget_s: float) -> float:
    """Measure the bytes/s of rows that a feature loader gathers at random (Equation 7).

    Rows go to new memory. The table is larger than any cache. The number of rows is a mini-batch's,
    or 16 MiB of them, which allocators keep. Before each run a sweep evicts the caches.
    """
    table = np.ones((max(1, GATHERED_BYTES // (4 * width)), width), dtype=np.float32)
    count = min(2**16, max(1, GATHERED_BYTES // (16 * width)))
    ids = np.random.default_rng(0).integers(0, len(table), count)
    size = 4.0 * width * count
    gather = partial(gather_rows, table, ids, threads=threads)
    return typical_rate(gather, size, budget_s, threads, make_sweep())


def _cache_bytes(cores: int, budget_s: float) -> int:
    """Measure the bytes of the last cache that programs can use, in the least disturbed turn.

    Virtual machines share this cache with others. Return 0 if the system does not state its size.
    """
    size = cache_bytes()
    if not size:
        return 0
    tables = (min(NEAR_BYTES, size // 8), size // 4, size // 2, size, max(FAR_BYTES, 4 * size))
    sums = [_make_picking(table_bytes) for table_bytes in tables]
    runs: list[list[float]] = [[] for _ in tables]
    with torch_threads(cores):
        for _ in range(PICKING_TURNS):
            for each, taken in zip(sums, runs, strict=True):
                each_s = budget_s / (PICKING_TURNS * len(tables))
                taken.append(median(time_runs(each, each_s, CPU, cores)))
    return round(round_rate(find_cache_bytes(tables, [min(taken) for taken in runs])))


def find_cache_bytes(tables: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the bytes of a cache from the seconds of rows gathered from ``tables``.

    Equally many rows are gathered from each table.

    The first table fits the cache; hardly anything of the last, of F bytes, does. If a cache of C
    bytes is full of a table of T bytes, C / T of the gathered rows are in it. The time is then the
    average of the first and last table's times in that proportion. The result is the median over
    the tables in between, except those that the cache may hold whole, unless it may hold them all.
    """
    (near, *between, far), (near_s, *between_s, far_s) = tables, seconds
    found = []
    for table, taken_s in zip(between, between_s, strict=True):
        share = max(0.0, (far_s - taken_s) / (far_s - near_s)) if far_s > near_s else 1.0
        found.append(min(table, share / (1 / table - (1 - share) / far)) if share else 0.0)
    part = [size for size, table in zip(found, between, strict=True) if size < WHOLE * table]
    return max(float(near), median(part) if part else float(between[-1]))


def _make_picking(table_bytes: int) -> Callable[[], object]:
    """Return a sum of rows that are gathered at random from a table."""
    rows, sums = table_bytes // (4 * PICKED_WIDTH), PICKED_ROWS // PICKED_DEGREE
    ends = np.random.default_rng(0).integers(0, rows, PICKED_ROWS, dtype=np.int32)
    bounds = np.arange(0, PICKED_ROWS + 1, PICKED_DEGREE, dtype=np.int32)
    matrix = csr_tensor(
        torch.from_numpy(bounds), torch.from_numpy(ends), torch.ones(PICKED_ROWS), (sums, rows)
    )
    table, out = torch.ones(rows, PICKED_WIDTH), torch.zeros(sums, PICKED_WIDTH)
    return partial(torch.addmm, out, matrix, table, beta=0, out=out)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _SampledBlock:
    """A block of a mini-batch with sources that repeat only by chance.

    It has ``rows`` destinations with a fan-out of 10. ``bounds`` and ``columns`` are its CSR.
    ``degrees`` belong to a graph of a million vertices, and the sources are its ``vertices``.
    """

    rows: int
    bounds: IndexArray
    columns: IndexArray
    degrees: IntArray
    vertices: IntArray

    @property
    def sources(self) -> int:
        return len(self.vertices)

    def norm(self) -> torch.Tensor:
        """Return GCN's factor of each source, by its degree in the graph."""
        degrees = torch.from_numpy(self.degrees[self.vertices])
        return (degrees + 1).to(torch.float64).rsqrt().to(torch.float32)

    def transpose(self) -> tuple[torch.Tensor, ...]:
        """Return the row pointers, columns and edges of the transpose."""
        edges = np.arange(len(self.columns), dtype=np.int32)
        shape = (self.rows, self.sources)
        by_source = scipy.sparse.csr_matrix((edges, self.columns, self.bounds), shape=shape).tocsc()
        return tuple(map(torch.from_numpy, (by_source.indptr, by_source.indices, by_source.data)))


def _draw_block(width: int) -> _SampledBlock:
    """Return a sampled block with source rows of at most ``AGGREGATED_BYTES``.

    The rows have ``width`` values.
    """
    fanout = 10
    rows = max(16, min(8192, AGGREGATED_BYTES // (4 * (fanout + 1) * width)))
    sources, random = (fanout + 1) * rows, np.random.default_rng(0)
    return _SampledBlock(
        rows,
        np.arange(0, fanout * rows + 1, fanout, dtype=np.int32),
        random.integers(0, sources, fanout * rows, dtype=np.int32),
        random.integers(1, 100, GRAPH_VERTICES),
        random.integers(0, GRAPH_VERTICES, sources),
    )


def _aggregate_rate(width: int, threads: int, budget_s: float) -> float:
    """Measure the bytes/s of source rows that a CPU trainer aggregates (Equation 11).

    The sampled block is new to it, edges are weighted by the degrees of their ends, and every
    destination's own row is added, as in GCN.
    """
    block = _draw_block(width)
    h = torch.rand(block.sources, width)

    def aggregate() -> torch.Tensor:
        norm = block.norm()
        source = torch.from_numpy(block.columns.astype(np.int64))
        target = torch.from_numpy(np.repeat(np.arange(block.rows), np.diff(block.bounds)))
        weight = norm.index_select(0, source) * norm.index_select(0, target)
        bounds, columns = torch.from_numpy(block.bounds), torch.from_numpy(block.columns)
        matrix = csr_tensor(bounds, columns, weight, (block.rows, block.sources))
        own = norm[: block.rows].unsqueeze(1) * h[: block.rows]
        return torch.zeros(block.rows, width).addmm_(matrix, h) + own

    with torch.no_grad():
        size = 4.0 * width * len(block.columns)
        return typical_rate(aggregate, size, budget_s, threads)


def _aggregate_backward_rate(width: int, threads: int, budget_s: float) -> float:
    """Measure the bytes/s of gradients added to source rows.

    The block is transposed, and every source's row is written.
    """
    block = _draw_block(width)
    gradient, weight = torch.rand(block.rows, width), torch.rand(len(block.columns))

    def aggregate() -> torch.Tensor:
        bounds, columns, edge = block.transpose()
        values = weight.index_select(0, edge)
        matrix = csr_tensor(bounds, columns, values, (block.sources, block.rows))
        out = torch.zeros(block.sources, width).addmm_(matrix, gradient)
        out[: block.rows] += weight[: block.rows].unsqueeze(1) * gradient
        return out

    with torch.no_grad():
        size = 4.0 * width * len(block.columns)
        return typical_rate(aggregate, size, budget_s, threads)


def _update_rate(narrow: int, threads: int, budget_s: float) -> float:
    """Measure the FLOP/s of a CPU trainer's update, forward and backward.

    It covers weights of 256 by ``narrow``, bias and ReLU, and the weights' gradient (Equations 10
    and 12).
    """
    rows = torch.rand(UPDATED_ROWS, 256)
    weight = torch.rand(256, narrow, requires_grad=True)
    bias = torch.zeros(narrow, requires_grad=True)

    def update() -> None:
        out = torch.relu(torch.addmm(bias, rows, weight))
        torch.autograd.backward(out, torch.ones_like(out))
        weight.grad = bias.grad = None

    flops = 4.0 * rows.numel() * narrow
    return typical_rate(update, flops, budget_s, threads)
