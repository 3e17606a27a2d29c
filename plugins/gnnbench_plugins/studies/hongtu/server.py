"""Epochs on the paper's server, predicted from the paper's own communication volumes (Table 8).

One constant is fitted, on the three GCN cells of it-2004: how fast rows that are picked one by one
cross a host link. Algorithms 2 and 3 move those by a ``mem_copy_sparse`` of its own, Algorithm 1
moves blocks by ``mem_copy``, and the platform knows the rate of blocks only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import median
from typing import Annotated

from gnnbench.agreement import format_share
from gnnbench.constants import Constant
from gnnbench.parts import Bundle, Communication, Memory, Setting
from gnnbench.platforms import load_platform
from gnnbench.platforms.machine import Link, Platform
from gnnbench.records import Workload
from gnnbench.units import format_si
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.counts import ChunkCounts
from gnnbench_plugins.hongtu.memory import HongTuMemory, InMemory
from gnnbench_plugins.hongtu.outlook import Outlook, foresee, make_setting
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import HongTuSampler
from gnnbench_plugins.reference.communication import HaloCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.studies.hongtu.quoted import (
    FITTED,
    FRIENDSTER,
    IT_2004,
    PAPERS,
    PARTITIONS,
    TABLE_7,
    PaperGraph,
)

PLATFORM = "epyc7543x4-4xa100"


def count_chunks(graph: PaperGraph, model: str) -> ChunkCounts:
    """The paper's volumes spread evenly over its chunks; GAT has twice as many, and its volumes
    are Table 8's times the growth of alpha in Table 3."""
    twice = model == "gat" and graph.chunks > 1
    return multiply_chunks(graph, 2, graph.growth) if twice else multiply_chunks(graph, 1, 1.0)


def multiply_chunks(graph: PaperGraph, times: int, growth: float) -> ChunkCounts:
    """So many times the chunks that Table 8 counts, its volumes times a ``growth``."""
    rows = graph.vertices * growth
    return ChunkCounts.even(
        graph.vertices,
        graph.edges,
        partitions=PARTITIONS,
        chunks=graph.chunks * times,
        original=rows * graph.original,
        with_p2p=rows * (graph.original - graph.between),
        with_reuse=rows * (graph.original - graph.between - graph.reused),
    )


def make_workload(dims: tuple[int, ...], model: str = "gcn") -> Workload:
    """One epoch of full-graph training."""
    return Workload(model=model, dims=dims, epochs=1, batch_size=1, fanouts=(), seed=0)


def place_graph(graph: PaperGraph, workload: Workload, platform: Platform) -> Setting:
    """The graph on a platform."""
    return make_setting(graph.vertices, graph.edges, platform, workload)


def assemble(
    memory: Memory | None = None, communication: Communication | None = None, devices: int = 0
) -> Bundle:
    """HongTu's parts, some of them others, on all devices or so many."""
    return Bundle(
        HongTuSampler(),
        HongTuPlacement(devices),
        communication or HongTuCommunication(),
        memory or HongTuMemory(),
        TorchKernel(),
    )


def assemble_in_memory(devices: int = 0) -> Bundle:
    """HongTu-IM's parts."""
    return assemble(InMemory(), HaloCommunication(), devices)


def pick_at(platform: Platform, rate: float) -> Platform:
    """The platform with rows picked one by one at so many bytes a second over its host links."""
    return _replace_links(platform, lambda link: replace(link, picked_bytes_per_s=rate))


def _replace_links(platform: Platform, change: Callable[[Link], Link]) -> Platform:
    """Those of the host changed."""
    host = platform.host.name
    links = tuple(change(link) if host in link.ends else link for link in platform.links)
    return replace(platform, links=links)


#: Seconds of an epoch: of a graph, a model, layers.
Predict = Callable[[PaperGraph, str, int], float]


def fit_bandwidth(predict: Callable[[float], Predict], start: float) -> float:
    """The bandwidth that brings GCN on it-2004 closest to ``FITTED``, in relative least squares.

    An epoch is a + c / bandwidth, so two predictions of each cell, at ``start`` and half of it, and
    one linear equation are enough.
    """
    above = below = 0.0
    for layers, quoted in FITTED.items():
        one, other = (predict(rate)(IT_2004, "gcn", layers) / quoted for rate in (start, start / 2))
        slope = (other - one) * start
        rest = one - slope / start
        above += slope * (1.0 - rest)
        below += slope * slope
    return below / above


@dataclass(frozen=True, slots=True)
class Server:
    """The paper's server: as described, and how fast picked rows were fitted to cross to a GPU."""

    platform: Platform
    sparse_bytes_per_s: Annotated[
        float,
        Constant("B/s", "fitted", "rows picked one by one", ("hongtu-table7 (it-2004, GCN)",)),
    ]

    @property
    def link_bytes_per_s(self) -> float:
        return host_link_rate(self.platform)

    def foresee(
        self, graph: PaperGraph, model: str, layers: int, bundle: Bundle | None = None
    ) -> Outlook:
        """What an epoch takes; HongTu's unless told."""
        setting = place_graph(graph, make_workload(graph.dims(layers), model), self.platform)
        return foresee(count_chunks(graph, model), bundle or assemble(), setting)

    def epoch_s(self, graph: PaperGraph, model: str, layers: int) -> float:
        """Predicted seconds of an epoch by HongTu."""
        return self.foresee(graph, model, layers).epoch_s


@cache
def fitted_server() -> Server:
    """The server with its one constant fitted."""
    platform = load_platform(PLATFORM)

    def with_sparse(rate: float) -> Predict:
        return Server(pick_at(platform, rate), rate).epoch_s

    rate = fit_bandwidth(with_sparse, host_link_rate(platform))
    return Server(pick_at(platform, rate), rate)


def host_link_rate(platform: Platform) -> float:
    link = platform.link(platform.host.name, platform.accelerators[0].name)
    return link.bandwidth_bytes_per_s


@cache
def fit_notes() -> tuple[str, ...]:
    """What was fitted, what the other candidates would have been, and what is left out."""
    server = fitted_server()
    return (
        f"fitted, one constant: rows picked one by one cross a host link at "
        f"{format_si(server.sparse_bytes_per_s, 'B/s')} (mem_copy_sparse in Algorithms 2 and 3; "
        f"blocks cross at the nominal {format_si(server.link_bytes_per_s, 'B/s')}), on HongTu's "
        f"GCN of 2, 3 and 4 layers on it-2004, whose errors therefore say nothing",
        f"chosen because the algorithms tell the two copies apart and no datasheet has a rate for "
        f"picked rows; Table 7's other GCN cells then have a median error of "
        f"{format_share(median_error(server.epoch_s))}, with two other constants in its place: "
        f"{'; '.join(_alternatives(load_platform(PLATFORM)))}",
        "left out: that picking rows is slower the less the graph's order puts neighbours together "
        "(it-2004 has by far the best order, so its constant flatters the others), that the CPU "
        "adds gradients at random places, chunks of uneven size, and copies that overlap with work",
    )


def _alternatives(platform: Platform) -> Iterable[str]:
    """The same fit of another constant, and the median error that it would leave."""

    def with_link(rate: float) -> Predict:
        change = partial(replace, bandwidth_bytes_per_s=rate)
        return Server(_replace_links(platform, change), rate).epoch_s

    def with_memory(rate: float) -> Predict:
        host = replace(platform.host, memory_bandwidth_bytes_per_s=rate)
        return Server(replace(platform, host=host), rate).epoch_s

    memory = platform.host.memory_bandwidth_bytes_per_s
    candidates = (
        ("host links as a whole", with_link, host_link_rate(platform)),
        ("the CPU's additions", with_memory, memory),
    )
    for what, predict, nominal in candidates:
        rate = fit_bandwidth(predict, nominal)
        error = format_share(median_error(predict(rate)))
        yield f"{what} at {format_si(rate, 'B/s')} of {format_si(nominal, 'B/s')}, {error}"


def median_error(predict: Predict) -> float:
    """Median |error| over Table 7's GCN cells by HongTu on the graphs that are not fitted."""
    errors = []
    for graph in (PAPERS, FRIENDSTER):
        for layers in FITTED:
            quoted = TABLE_7[layers, graph.label][1]
            if quoted is not None:
                errors.append(abs(predict(graph, "gcn", layers) / quoted - 1.0))
    return median(errors)
