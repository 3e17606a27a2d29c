"""Epochs on the paper's server, predicted from the paper's own communication volumes (Table 8).

``ADDED_BYTES_PER_S`` is fitted. Links have the platform's rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Annotated, Literal

from gnnbench.constants import Constant
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Link, Platform, RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import Bundle, Communication, Kernel, Memory, Setting
from gnnbench.records import Workload
from gnnbench.reproduce.sensitivity import find_factor
from gnnbench.units import format_si
from gnnbench_plugins.hongtu.communication import HongTuCommunication
from gnnbench_plugins.hongtu.counts import ChunkCounts
from gnnbench_plugins.hongtu.memory import HongTuMemory, InMemory
from gnnbench_plugins.hongtu.outlook import Outlook, Stage, foresee, make_setting, price_path
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import HongTuSampler
from gnnbench_plugins.reference.communication import HaloCommunication, VanillaCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.studies import list_constants
from gnnbench_plugins.studies.hongtu.engine import AttentionEngine
from gnnbench_plugins.studies.hongtu.quoted import (
    CUT_INTO,
    GCN_CPU,
    LARGE,
    LAYERS,
    PARTITIONS,
    PaperGraph,
)

PLATFORM = "epyc7543x4-4xa100"
#: The steps of Figure 9, and HongTu-IM.
Method = Literal["baseline", "+P2P", "+RU", "in memory"]
COMMUNICATIONS: Mapping[Method, Communication] = {
    "baseline": VanillaCommunication(),
    "+P2P": HongTuCommunication(reuse=False),
    "+RU": HongTuCommunication(),
    "in memory": HaloCommunication(),
}
#: Section 7.6: with so few GPUs a graph's rows lie at all sockets. Each then has the link between
#: sockets for itself, which as many GPUs of a side (Figure 1) share otherwise.
FEW_GPUS: Annotated[int, Constant("", "quoted", "HongTu, section 7.6")] = 2
GPUS_OF_A_SIDE: Annotated[int, Constant("", "quoted", "HongTu, Figure 1")] = 2
#: The rate at which the host adds gradients to rows that lie apart: two reads and a write of each.
#: :func:`fitted_server` finds it, so that it has no value here.
ADDED_BYTES_PER_S: Annotated[
    float,
    Constant(
        "B/s", "fitted", "HongTu, section 7.4", ("hongtu-breakdown (the CPU's share of GCN)",)
    ),
]
#: What the host does of an epoch.
HOST_STAGE: Stage = "gradients added, and the loss"
LINK_STAGES: tuple[Stage, ...] = ("host to device", "device to device", "device to host")


@dataclass(frozen=True, slots=True)
class Case:
    """An epoch to predict: HongTu's, or a step of Figure 9 towards it."""

    graph: PaperGraph
    model: str = "gcn"
    layers: int = 2
    method: Method = "+RU"
    gpus: int = PARTITIONS

    def __str__(self) -> str:
        """Return a label such as ``"3-layer GCN on OPR, baseline"``."""
        method = "" if self.method == "+RU" else f", {self.method}"
        gpus = "" if self.gpus == PARTITIONS else f", {self.gpus} GPU{'s' * (self.gpus > 1)}"
        return f"{self.layers}-layer {self.model.upper()} on {self.graph.label}{method}{gpus}"


# --------------------------------------------------------------------------- counts


def count_chunks(graph: PaperGraph, model: str, gpus: int = PARTITIONS) -> ChunkCounts:
    """Return the paper's volumes, spread evenly over its chunks.

    GAT has twice as many chunks, and its volumes grow as alpha does in Table 3.
    """
    if model == "gat" and graph.chunks > 1:
        few = PARTITIONS * graph.chunks
        growth = graph.replication(2 * few) / graph.replication(few)
        return multiply_chunks(graph, 2, growth, gpus)
    return multiply_chunks(graph, 1, 1.0, gpus)


def multiply_chunks(
    graph: PaperGraph, times: int, growth: float, gpus: int = PARTITIONS
) -> ChunkCounts:
    """Return ``times`` as many chunks as Table 8 counts, its volumes times a ``growth``.

    A partition reads its own rows and its peers' rows in the proportion of its whole neighbour
    set, which has alpha times the partition's size (Table 3). Fewer ``gpus`` go through the same
    chunks in more batches. Fewer pairs of chunks then share rows, in proportion, and an equal share
    of a batch's rows stays for the next.
    """
    if graph.chunks == 1:
        alpha = graph.original if gpus == PARTITIONS else 1.0
        return ChunkCounts.even(
            graph.vertices, graph.edges, partitions=gpus, chunks=1,
            original=graph.vertices * alpha, with_p2p=graph.vertices, with_reuse=graph.vertices,
        )  # fmt: skip
    rows, alpha = graph.vertices * growth, find_alpha(graph, gpus)
    between = graph.between * (gpus - 1) / (PARTITIONS - 1)
    with_p2p = graph.original - between
    stays = graph.reused / (graph.original - graph.between)
    return ChunkCounts.even(
        graph.vertices,
        graph.edges,
        partitions=gpus,
        chunks=graph.chunks * times * PARTITIONS // gpus,
        original=rows * graph.original,
        with_p2p=rows * with_p2p,
        with_reuse=rows * with_p2p * (1 - stays),
        of_peers=rows * graph.original * max(1 - 1 / alpha, between / graph.original),
    )


def find_alpha(graph: PaperGraph, gpus: int) -> float:
    """Return Table 3's replication factor of as many partitions as GPUs.

    For three it is the mean of two and four.
    """
    if gpus == 1:
        return 1.0
    if gpus in CUT_INTO:
        return graph.replication(gpus)
    return (graph.replication(2) + graph.replication(4)) / 2


# --------------------------------------------------------------------------- parts and platforms


def make_workload(dims: tuple[int, ...], model: str = "gcn") -> Workload:
    """Make the workload of one epoch of full-graph training."""
    return Workload(model=model, dims=dims, epochs=1, batch_size=1, fanouts=(), seed=0)


def place_graph(graph: PaperGraph, workload: Workload, platform: Platform) -> Setting:
    """Make the setting of a graph on a platform."""
    return make_setting(graph.vertices, graph.edges, platform, workload)


def assemble(
    memory: Memory | None = None,
    communication: Communication | None = None,
    devices: int = 0,
    kernel: Kernel | None = None,
) -> Bundle:
    """Return HongTu's parts, some replaced, on all devices or on ``devices`` of them."""
    return Bundle(
        HongTuSampler(),
        HongTuPlacement(devices, numa_aware=devices == 0 or devices > FEW_GPUS),
        communication or HongTuCommunication(),
        memory or HongTuMemory(),
        kernel or TorchKernel(),
    )


def assemble_case(case: Case) -> Bundle:
    """Assemble the parts of a case."""
    memory = InMemory() if case.method == "in memory" else HongTuMemory()
    devices = 0 if case.gpus == PARTITIONS else case.gpus
    return assemble(memory, COMMUNICATIONS[case.method], devices, make_kernel(case.model))


def make_kernel(model: str, edge_traffic: float = 1.0) -> Kernel:
    """Make the kernel of HongTu's engine."""
    return AttentionEngine(edge_traffic=edge_traffic) if model == "gat" else TorchKernel()


def add_at(platform: Platform, rate: float) -> Platform:
    """Return the platform with a host that goes through scattered rows at ``rate`` bytes/s."""
    return replace(
        platform, host=replace_fields(platform.host, gather=RateCurve((1,), (rate,), (rate,)))
    )


def scale_sockets(platform: Platform, factor: float) -> Platform:
    """Return the platform with the rate between two sockets multiplied."""
    rate = factor * platform.host.memory.socket_bandwidth_bytes_per_s
    return replace(platform, host=replace_fields(platform.host, socket_bandwidth_bytes_per_s=rate))


def change_links(platform: Platform, change: Callable[[Link], Link]) -> Platform:
    """Return the platform with the host's links changed."""
    host = platform.host.name
    links = tuple(change(link) if host in link.ends else link for link in platform.links)
    return replace(platform, links=links)


# --------------------------------------------------------------------------- predictions


@cache
def foresee_case(case: Case) -> Outlook:
    """Return the program of an epoch and its critical path on the described platform."""
    dims = case.graph.dims(case.layers)
    setting = place_graph(case.graph, make_workload(dims, case.model), load_platform(PLATFORM))
    return foresee(count_chunks(case.graph, case.model, case.gpus), assemble_case(case), setting)


@dataclass(frozen=True)
class Server:
    """The paper's server, and how often GAT's edge tensors cross a GPU's memory.

    The number is a multiple of the counted traffic.
    """

    platform: Platform
    edge_traffic: float = 1.0

    @property
    def link_bytes_per_s(self) -> float:
        return host_link_rate(self.platform)

    def stages_s(self, case: Case) -> Mapping[Stage, float]:
        """Return the predicted seconds of an epoch by stage."""
        kernel, platform = make_kernel(case.model, self.edge_traffic), self.platform
        if case.gpus <= FEW_GPUS:
            platform = scale_sockets(platform, GPUS_OF_A_SIDE)
        return price_path(foresee_case(case).path, platform, kernel)

    def epoch_s(self, case: Case) -> float:
        """Return the seconds of an epoch, over all stages."""
        return sum(self.stages_s(case).values())

    def spend_s(self, case: Case, *stages: str) -> float:
        """Return the seconds of an epoch that go to some stages."""
        return sum(s for stage, s in self.stages_s(case).items() if stage in stages)

    def share_percent(self, case: Case, *stages: str) -> float:
        """Return the percentage of an epoch that goes to some stages."""
        return 100 * self.spend_s(case, *stages) / self.epoch_s(case)


def host_link_rate(platform: Platform) -> float:
    """Return the bandwidth between the host and a GPU, bytes a second."""
    link = platform.link(platform.host.name, platform.accelerators[0].name)
    return link.bandwidth_bytes_per_s


def added_rate(server: Server) -> float:
    """Return the bytes a second of rows that the host adds to others."""
    return server.platform.host.gather_bytes_per_s(1)


def share_of_host(server: Server) -> float:
    """Return the CPU's mean percentage of GCN's epochs on the large graphs."""
    cases = [Case(graph, "gcn", layers) for graph in LARGE for layers in LAYERS]
    return mean(server.share_percent(case, HOST_STAGE) for case in cases)


@cache
def fitted_server() -> Server:
    """Fit ``ADDED_BYTES_PER_S`` to the CPU's mean share of GCN's epochs in section 7.4."""
    platform = load_platform(PLATFORM)
    nominal = platform.host.hardware.memory_bandwidth_bytes_per_s

    def predict(factor: float) -> float:
        return share_of_host(Server(add_at(platform, factor * nominal)))

    factor, nearest = find_factor(predict, GCN_CPU)
    if factor is None:
        raise ValueError(f"no rate of additions gives the CPU {GCN_CPU} %; nearest {nearest}")
    return Server(add_at(platform, factor * nominal))


def note_additions() -> str:
    """Say what the host's rate of additions was fitted on, as its record has it."""
    server = fitted_server()
    nominal = server.platform.host.hardware.memory_bandwidth_bytes_per_s
    (number,) = (each for each in list_constants() if each.name == "ADDED_BYTES_PER_S")
    return (
        f"{number.mark} on {', '.join(number.fitted_on)}: the host adds gradients to rows that lie "
        f"apart at {format_si(added_rate(server), 'B/s')}, two reads and a write of each, so that "
        f"the CPU's share of GCN's epochs is {GCN_CPU:.3g} % on average ({number.source}); its "
        f"memory has nominally {format_si(nominal, 'B/s')}"
    )


def note_rates() -> tuple[str, ...]:
    """Say which rates epochs rest on, and what is left out."""
    return (
        note_additions(),
        f"host links go at {format_si(fitted_server().link_bytes_per_s, 'B/s')}, what an A100's 16 "
        f"lanes of PCIe 4.0 were measured to reach elsewhere, whether blocks cross or rows",
        "left out: that rows picked one by one cross more slowly the less the graph's order puts "
        "neighbours together (it-2004 has by far the best order), chunks of uneven size, and "
        "copies that overlap with work",
    )
