"""MixGCN's Figure 7: epochs of MixGCN and of its peers on four nodes.

The figure is a drawing without numbers; section 4.2 states the largest speed-ups. The price of a
step follows from its vertices, edges and rows of peers, so that sizes stand for Table 2's graphs.
Peers are gone through on a share of graph and machine, as in the ledger of others' measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, ClassVar

import numpy as np

from gnnbench import datasets
from gnnbench.constants import Bound, Constant
from gnnbench.datasets import STAND_INS
from gnnbench.datasets.partitioning import choose_partitioner, partition
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.lowering.shardings import Piece
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Device, Link, Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Bundle, HaloExchange, Setting
from gnnbench.parts.sizes import make_sized_dataset
from gnnbench.price.sized import price_sizes
from gnnbench.records import BlockSize, Cell, Sizes, Stage, Table, TableRow, Workload
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.cagnet.communication import BroadcastCommunication
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.sampler import cut_blocks
from gnnbench_plugins.mixgcn.placement import MixGCNPlacement
from gnnbench_plugins.pipegcn.communication import PipeGCNCommunication
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.memory import ResidentMemory
from gnnbench_plugins.reference.sampler import WholeGraphSampler
from gnnbench_plugins.sancus.communication import SancusCommunication
from gnnbench_plugins.studies.hongtu.quoted import FRIENDSTER, PAPERS
from gnnbench_plugins.studies.mixgcn.tables import BETWEEN, LAYERS, QUOTED, foresee_counted
from gnnbench_plugins.studies.mixgcn.tables import PLATFORM as SPU_NODE
from gnnbench_plugins.studies.validation.prediction import predict_epoch_s
from gnnbench_plugins.studies.validation.published import FullGraphEpoch

CLUSTER = "xeon8462x4-32xh100"
#: Section 4.1: four nodes of eight workers, each a GPU with eight cores or with an SPU.
WORKERS: Bound[int] = 32
CORES: Annotated[int, Constant("", "quoted", "MixGCN, section 4.1: 8 cores a worker")] = 8
#: Vertices of the share of a graph that peers are gone through on.
SHARE_VERTICES: Bound[int] = 4096
#: Table 3 of HongTu: replication factors of 32 partitions by METIS.
ALPHA: Mapping[str, float] = {
    "friendster": FRIENDSTER.replication(WORKERS),
    "ogbn-papers100M": PAPERS.replication(WORKERS),
}
#: Section 4.2: at most so many times as fast as each, by MixGCN-CPU, and MixGCN-SPU over it.
AT_MOST = {"DistDGL": 4.2, "CAGNET": 10.4, "PipeGCN": 1.9, "Sancus": 5.5}
SPU_OVER_CPU: Annotated[float, Constant("", "quoted", "MixGCN, section 4.2")] = 3.8
#: The communication, and how many epochs count after the first one.
PEERS: Mapping[str, tuple[HaloExchange, int]] = {
    "CAGNET": (BroadcastCommunication(), 1),
    "PipeGCN": (PipeGCNCommunication(), 1),
    "Sancus": (SancusCommunication(), 2),
}
STAGES: tuple[Stage, ...] = ("aggregate", "update", "transfer")


@dataclass(frozen=True, slots=True)
class Sized:
    """A graph of Table 2 by its sizes; ``edges`` are stored entries."""

    spec: str
    name: str
    vertices: int
    edges: int
    dims: tuple[int, ...]

    @classmethod
    def of_stand_in(cls, spec: str) -> Sized:
        """Return the graph that a stand-in stands for."""
        name, quoted = spec.partition(":")[0], QUOTED[spec]
        found = next(each for each in STAND_INS if each.name == name)
        dims = (quoted.features, *BETWEEN, quoted.classes)
        return cls(spec, name, found.vertices, 2 * found.edges, dims)

    @property
    def workload(self) -> Workload:
        return Workload("gcn", self.dims, 1, 1, (0,) * LAYERS, 0)


GRAPHS = tuple(map(Sized.of_stand_in, QUOTED))


# --------------------------------------------------------------------------- MixGCN


def pair_workers(cluster: Platform, like: Device, kind: str) -> Platform:
    """Add a device like ``like`` beside every GPU, on its node's PCIe and behind a network port."""
    inside = cluster.link(cluster.host.name, "node0_gpu0").bandwidth_bytes_per_s
    network = cluster.link("node0_gpu0", "node1_gpu0")
    beside: list[Device] = []
    links: list[Link] = []
    for gpu in cluster.accelerators:
        node = gpu.name.partition("_")[0]
        name = gpu.name.replace("gpu", kind)
        beside.append(replace(like, name=name))
        up = cluster.link(cluster.host.name, gpu.name)
        links.append(replace(up, name=f"host-{name}", ends=(cluster.host.name, name)))
        for other in cluster.accelerators:
            near = other.name.startswith(f"{node}_")
            rate = inside if near else network.bandwidth_bytes_per_s
            ends = (name, other.name)
            links.append(
                replace(network, name="-".join(ends), ends=ends, bandwidth_bytes_per_s=rate)
            )
    return replace(
        cluster,
        accelerators=(*cluster.accelerators, *beside),
        links=(*cluster.links, *links),
    )


def take_cores(host: Device, cores: int) -> Device:
    """Return ``cores`` of a node, with an equal share of its rates and memory."""
    share = cores / host.cores
    return replace_fields(
        host,
        cores=cores,
        flops_per_s=host.hardware.flops_per_s * share,
        memory_bandwidth_bytes_per_s=host.hardware.memory_bandwidth_bytes_per_s * share,
        memory_bytes=round(host.hardware.memory_bytes * share),
        cache_bytes=host.hardware.cache_bytes * share,
    )


@cache
def lay_out(variant: str) -> tuple[Platform, MixGCNPlacement]:
    """Return the cluster of MixGCN-CPU or MixGCN-SPU, and its placement of aggregation."""
    cluster = load_platform(CLUSTER)
    if variant == "MixGCN-CPU":
        cores = take_cores(cluster.host, CORES)
        placement = MixGCNPlacement(sparse="apart", sparse_devices=WORKERS)
        return pair_workers(cluster, cores, "cpu"), placement
    spu = next(each for each in load_platform(SPU_NODE).accelerators if each.kind == "sparse")
    return pair_workers(cluster, spu, "spu"), MixGCNPlacement(sparse="sparse")


@cache
def stages_of(variant: str, graph: Sized) -> tuple[float, dict[Stage, float]]:
    """Return the seconds of an epoch without the pipeline, and of each stage's busiest resource."""
    platform, placement = lay_out(variant)
    size = BlockSize(graph.vertices, graph.vertices, graph.edges)
    whole = (Piece(size, (0,), picks=False),)
    found = foresee_counted(placement, platform, graph.workload, whole)
    return found.epoch_s, {stage: found.busy_s.get(stage, 0.0) for stage in STAGES}


# --------------------------------------------------------------------------- its peers


@cache
def halo_share(graph: Sized) -> float:
    """Return the remote rows that partitions by METIS read, as a share of all vertices."""
    if graph.name in ALPHA:
        return ALPHA[graph.name] - 1.0
    cut = datasets.load(graph.spec).graph
    owner = partition(cut, WORKERS, choose_partitioner(cut), 0)
    members = [np.flatnonzero(owner == worker) for worker in range(WORKERS)]
    blocks = (block for row in cut_blocks(cut, members, 1) for block in row)
    return sum(block.num_src - block.num_dst for block in blocks) / cut.num_vertices


@cache
def price_peer(name: str, graph: Sized) -> float | None:
    """Return the seconds of an epoch of a peer; None where a GPU cannot hold it."""
    if name == "DistDGL":
        return _price_distdgl(graph)
    communication, epochs = PEERS[name]
    scale = min(1.0, SHARE_VERTICES / graph.vertices)
    vertices, edges = round(graph.vertices * scale), round(graph.edges * scale)
    dataset = make_sized_dataset(graph.name, vertices, edges, graph.dims, vertices)
    workload = replace(graph.workload, epochs=epochs)
    copies = 1.0 if communication.broadcasts else 1.0 + halo_share(graph)
    bundle = Bundle(
        WholeGraphSampler(),
        HongTuPlacement(WORKERS),
        communication,
        ResidentMemory(),
        TorchKernel(),
    )
    setting = Setting(
        dataset,
        load_platform(CLUSTER),
        workload,
        build(workload).shapes,
        sizes=Sizes(replication=copies, share=scale),
    )
    try:
        return price_sizes(bundle, setting).epoch_s
    except DeviceOutOfMemoryError:
        return None


def _price_distdgl(graph: Sized) -> float | None:
    """Price an epoch of DistDGL.

    The features of all vertices reach every worker, most of them over the network. Each worker
    computes the whole graph, because three hops reach it.
    """
    task = FullGraphEpoch(
        graph=graph.name, model="gcn", dims=graph.dims, vertices=graph.vertices, edges=graph.edges,
        scale=min(1.0, SHARE_VERTICES / graph.vertices),
    )  # fmt: skip
    try:
        alone_s = predict_epoch_s(CLUSTER, "torch", task)
    except DeviceOutOfMemoryError:
        return None
    cluster = load_platform(CLUSTER)
    network = cluster.link("node0_gpu0", "node1_gpu0").bandwidth_bytes_per_s
    nodes = len({gpu.name.partition("_")[0] for gpu in cluster.accelerators})
    fetched = graph.vertices * (1 - 1 / nodes) * graph.dims[0] * graph.workload.itemsize
    return alone_s + fetched / network


# --------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Scene:
    """Factors of the speed of a worker's cores and SPU in aggregation, and of peers' times."""

    cores: float = 1.0
    spu: float = 1.0
    peers: float = 1.0

    def epoch_s(self, variant: str, graph: Sized) -> float:
        """Return MixGCN's epoch if the busiest kind of device or port is never idle."""
        faster = self.cores if variant == "MixGCN-CPU" else self.spu
        stages_s = stages_of(variant, graph)[1]
        return max(stages_s["aggregate"] / faster, stages_s["update"], stages_s["transfer"])


def list_ratios(scene: Scene, name: str) -> list[float | None]:
    """Return, by graph, MixGCN-CPU's speed over a peer, or MixGCN-SPU's over MixGCN-CPU.

    A ratio is None where the peer runs out of memory.
    """
    ratios: list[float | None] = []
    for graph in GRAPHS:
        own_s = scene.epoch_s("MixGCN-CPU", graph)
        if name == "MixGCN-SPU":
            ratios.append(own_s / scene.epoch_s(name, graph))
            continue
        peer_s = price_peer(name, graph)
        ratios.append(None if peer_s is None else scene.peers * peer_s / own_s)
    return ratios


def ask(name: str) -> Quantity[Scene]:
    """Ask for the largest of these ratios."""
    label = "MixGCN-SPU over MixGCN-CPU" if name == "MixGCN-SPU" else f"MixGCN-CPU over {name}"
    return Quantity(
        f"{label}, at most",
        lambda scene: max(each for each in list_ratios(scene, name) if each is not None),
        AT_MOST.get(name, SPU_OVER_CPU),
        "x",
    )


def count_picks(variant: str) -> float:
    """Return the edges a second of a worker that aggregates Reddit, with a row picked for each."""
    passes = 2 * LAYERS - 1
    return passes * GRAPHS[0].edges / stages_of(variant, GRAPHS[0])[1]["aggregate"]


def list_assumptions() -> tuple[Assumption[Scene], ...]:
    """Return the assumptions behind the ratios."""
    return (
        Assumption(
            "what a worker's eight cores aggregate", count_picks("MixGCN-CPU"), "edges/s",
            "on Reddit: all edges at every worker, and an assumed wait for each row",
            lambda scene, factor: replace(scene, cores=factor),
        ),
        Assumption(
            "what an SPU aggregates", count_picks("MixGCN-SPU"), "edges/s",
            "on Reddit: a row for every edge, Equation 11",
            lambda scene, factor: replace(scene, spu=factor),
        ),
        Assumption(
            "peers' epochs", 1.0, "", "bytes, kernels and messages at nominal rates",
            lambda scene, factor: replace(scene, peers=factor),
        ),
    )  # fmt: skip


class Figure7(Reproduction):
    """Throughput against the baselines."""

    name: ClassVar[str] = "mixgcn-figure7"
    summary: ClassVar[str] = "epochs of MixGCN-CPU and -SPU and of four peers, on four nodes"

    def run(self) -> tuple[Table, ...]:
        asked = [ask(name) for name in (*AT_MOST, "MixGCN-SPU")]
        return (
            Table(
                name=self.name,
                title="MixGCN Figure 7: an epoch of GCN on four nodes, and how many times as fast "
                "MixGCN is",
                columns=(*(graph.name for graph in GRAPHS), "at most"),
                rows=(*_tabulate_times(), *_tabulate_ratios()),
                notes=(
                    f"priced on {CLUSTER}, with eight cores or an SPU beside every GPU, at the "
                    f"sizes of Table 2's graphs; MixGCN without the pipeline, and beside it the "
                    f"longest stage alone, which a pipeline without idle time comes to and of "
                    f"which the ratios are",
                    "the paper has the largest ratio of all graphs and of three models, and no "
                    f"other number; its 17.2x is less than its {AT_MOST['CAGNET']:g} x "
                    f"{SPU_OVER_CPU:g}, which are then of different graphs",
                    "PipeGCN's halo is that of METIS on Friendster and ogbn-papers100M (HongTu "
                    "Table 3, 32 partitions), and on a stand-in without locality elsewhere; "
                    "DistDGL's workers go through the whole graph each, which three hops reach, "
                    "and which is the most that it can be",
                    "out of memory: a GPU of 80 GB cannot hold what the peer keeps; the drawing "
                    "does not say where that was so",
                ),
                contradictions=find_contradictions(Scene(), asked, list_assumptions(), asked),
            ),
        )


def _tabulate_times() -> list[TableRow]:
    rows = []
    for variant in ("MixGCN-CPU", "MixGCN-SPU"):
        whole = [Cell(stages_of(variant, graph)[0], "s") for graph in GRAPHS]
        longest = [Cell(Scene().epoch_s(variant, graph), "s") for graph in GRAPHS]
        rows += [
            TableRow(variant, (*whole, Cell())),
            TableRow(f"{variant}, never idle", (*longest, Cell())),
        ]
    for name in AT_MOST:
        found = [price_peer(name, graph) for graph in GRAPHS]
        cells = (Cell(text="out of memory") if s is None else Cell(s, "s") for s in found)
        rows.append(TableRow(name, (*cells, Cell())))
    return rows


def _tabulate_ratios() -> list[TableRow]:
    rows = []
    for name in (*AT_MOST, "MixGCN-SPU"):
        asked = ask(name)
        cells = (Cell() if each is None else Cell(each, "x") for each in list_ratios(Scene(), name))
        most = Cell(asked.predict(Scene()), "x", quoted=asked.quoted)
        rows.append(TableRow(asked.label.removesuffix(", at most"), (*cells, most)))
    return rows
