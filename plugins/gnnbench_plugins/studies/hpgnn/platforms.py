"""HP-GNN's Table 7: the throughput of generated designs beside PyG on a CPU and on a GPU.

The text at hand lost the rows of the table. It has the averages: the GPU over the CPU 25.66x, the
board over the CPU 55.67x and over the GPU 2.17x. Since 25.66 x 2.17 is 55.68, these are geometric
means, and the third follows from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from statistics import geometric_mean
from typing import Annotated, ClassVar

import numpy as np

from gnnbench.constants import Bound, Constant
from gnnbench.datasets.standins import STAND_INS
from gnnbench.jobs.job import PlanJob
from gnnbench.jobs.options import spell_command
from gnnbench.jobs.sized import PlanOptions, price_plan
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Device, Platform
from gnnbench.models import build
from gnnbench.parts import LayerShape
from gnnbench.records import Cell, Table, TableRow, Workload
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions, scale_field
from gnnbench.reproduce.studies import LeftOut, Reproduction
from gnnbench_plugins.hpgnn.boards import Board, load_board
from gnnbench_plugins.hpgnn.design import Batch, explore
from gnnbench_plugins.hyscale.performance import trainer_seconds
from gnnbench_plugins.studies.hyscale.neighbourhoods import PowerLaw, profile_stand_in
from gnnbench_plugins.studies.hyscale.platform_assumptions import Change, host_assumptions

PLATFORM = "ryzen3990x-a100-u250"
#: Section 6: targets, neighbours from the targets outwards, and the node sampler's budget.
TARGETS: Annotated[int, Constant("", "quoted", "HP-GNN, section 6")] = 1024
FANOUTS: Annotated[tuple[int, int], Constant("", "quoted", "HP-GNN, section 6")] = (25, 10)
BUDGET: Annotated[int, Constant("", "quoted", "HP-GNN, section 6")] = 2750
#: f^1; the paper's, in Table 4, is lost.
HIDDEN: Annotated[int, Constant("", "assumed", "HP-GNN, Table 4, is lost")] = 256
#: GraphSAINT's Reddit; the project's stand-in of that name is the denser one.
GRAPHS: Mapping[str, int | None] = {
    "flickr": None,
    "reddit": 11_606_919,
    "yelp": None,
    "amazonproducts": None,
}
#: Where the prices of PyTorch-Geometric are held against measurements.
LEDGER = "its kernels, sampler and loader as in the ledger (`reproduce validation`)"
MODELS = {"gcn": "GCN", "sage": "SAGE"}
SAMPLERS = ("NS", "SS")
#: Mini-batches that a plan of PyTorch-Geometric is made of.
MINI_BATCHES: Bound[int] = 100
#: Section 6's averages.
GPU_OVER_CPU: Annotated[float, Constant("", "quoted", "HP-GNN, section 6")] = 25.66
FPGA_OVER_CPU: Annotated[float, Constant("", "quoted", "HP-GNN, section 6")] = 55.67
FPGA_OVER_GPU: Annotated[float, Constant("", "quoted", "HP-GNN, section 6")] = 2.17


@dataclass(frozen=True, slots=True)
class Case:
    """A column of the tables: a graph, a model and a sampler."""

    graph: str
    model: str
    sampler: str

    @property
    def label(self) -> str:
        return f"{self.sampler}-{MODELS[self.model]} {self.graph}"


CASES = tuple(
    Case(graph, model, sampler) for sampler in SAMPLERS for model in MODELS for graph in GRAPHS
)


@cache
def _sizes(graph: str, sampler: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return |B^l| and |E^l| on the graph's stand-in, with independent neighbours."""
    stand_in = next(each for each in STAND_INS if each.name == graph)
    edges = GRAPHS[graph] or stand_in.edges
    law = PowerLaw(stand_in.vertices, 2 * edges / stand_in.vertices, stand_in.degree_exponent)
    if sampler == "NS":
        (profile,) = profile_stand_in(law, FANOUTS, (TARGETS,))
        return tuple(map(float, profile.vertices)), tuple(map(float, profile.edges))
    # Drawn by degree, as GraphSAINT's node sampler draws; two vertices of degrees d and e are then
    # neighbours with probability d e over the sum of all degrees.
    drawn = np.unique(law.draw(BUDGET, np.random.default_rng(0)))
    degrees = float(law.degrees(drawn).sum())
    among = degrees * degrees / (law.vertices * law.mean_degree)
    depth = len(FANOUTS)
    return (float(len(drawn)),) * (depth + 1), (among,) * depth


@cache
def _shapes(case: Case) -> tuple[LayerShape, ...]:
    stand_in = next(each for each in STAND_INS if each.name == case.graph)
    dims = (stand_in.features, HIDDEN, stand_in.classes)
    workload = Workload(
        model=case.model, dims=dims, epochs=1, batch_size=TARGETS, fanouts=FANOUTS, seed=0
    )
    return build(workload).shapes


@cache
def make_batch(case: Case) -> Batch:
    """Make the mini-batch of a case."""
    vertices, edges = _sizes(case.graph, case.sampler)
    shapes = _shapes(case)
    return Batch(
        vertices=vertices,
        edges=edges,
        widths=(shapes[0].in_features, *(shape.out_features for shape in shapes)),
        update_widths=tuple(shape.macs_per_row / shape.out_features for shape in shapes),
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """The paper's three platforms: a host, its GPU, and what its board is built of.

    ``cpu_pyg`` and ``gpu_pyg`` are factors on what PyTorch-Geometric takes on both.
    """

    platform: Platform
    board: Board
    cpu_pyg: float = 1.0
    gpu_pyg: float = 1.0

    @classmethod
    def published(cls) -> Bench:
        return cls(load_platform(PLATFORM), load_board("u250"))


def describe_library(case: Case, *, on_host: bool = False) -> PlanOptions:
    """Return the options of the plan of PyTorch-Geometric: its loader has no workers."""
    batch = make_batch(case)
    vertices = tuple(map(round, batch.vertices))
    stand_in = next(each for each in STAND_INS if each.name == case.graph)
    return (
        ("strategy", "pyg"),
        ("model", case.model),
        ("platform", PLATFORM),
        ("swap", ("placement=host",) if on_host else ()),
        ("dims", (stand_in.features, HIDDEN, stand_in.classes)),
        ("batch_vertices", vertices),
        ("batch_edges", tuple(map(round, batch.edges))),
        ("train_vertices", MINI_BATCHES * vertices[-1]),
    )


def cpu_seconds(bench: Bench, case: Case) -> float:
    """Return what PyTorch-Geometric takes for a mini-batch on the host alone."""
    epoch_s = price_plan(describe_library(case, on_host=True)).epoch_s
    return bench.cpu_pyg * epoch_s / MINI_BATCHES


def gpu_seconds(bench: Bench, case: Case) -> float:
    """Return what PyTorch-Geometric takes for a mini-batch that the GPU trains on."""
    return bench.gpu_pyg * price_plan(describe_library(case)).epoch_s / MINI_BATCHES


def cpu_peak_seconds(bench: Bench, case: Case) -> float:
    """Return the time of the host alone, by HyScale-GNN's Equations 10 to 12."""
    host = bench.platform.host
    return _sample_s(host, case) + _load_s(host, case) + _train_s(host, case)


def gpu_peak_seconds(bench: Bench, case: Case) -> float:
    """Return the time with a GPU at its peaks: the host samples ahead, then loads what crosses."""
    host = bench.platform.host
    gpu = next(each for each in bench.platform.accelerators if each.kind == "gpu")
    link = bench.platform.host_link(gpu)
    cross_s = make_batch(case).feature_bytes / link.bandwidth_bytes_per_s
    return max(_sample_s(host, case), _load_s(host, case) + cross_s + _train_s(gpu, case))


def fpga_seconds(bench: Bench, case: Case) -> float:
    """Return the time of the explored design by HP-GNN's Equations 4 to 9.

    The host computes the loss and updates the weights (section 5.1).
    """
    host, batch = bench.platform.host, make_batch(case)
    point = explore(batch, bench.board, sample_s=0.0).best
    return max(_sample_s(host, case), point.propagate_s + host_seconds(host, batch))


def host_seconds(host: Device, batch: Batch) -> float:
    """Return the seconds of loss and weight update on the host.

    Both go over their values in memory: logits are read and their gradients written; each weight is
    read and written with its gradient.
    """
    itemsize = batch.itemsize
    logits_bytes = 2 * batch.vertices[-1] * batch.widths[-1] * itemsize
    weight_bytes = 3 * sum(batch.macs_per_row) * itemsize
    return (logits_bytes + weight_bytes) / host.hardware.memory_bandwidth_bytes_per_s


def _sample_s(host: Device, case: Case) -> float:
    return sum(make_batch(case).edges) / (host.rates.sampled_edges_per_s * host.cores)


def _load_s(host: Device, case: Case) -> float:
    batch = make_batch(case)
    return batch.feature_bytes / host.gather_bytes_per_s(batch.widths[0])


def _train_s(device: Device, case: Case) -> float:
    batch = make_batch(case)
    return trainer_seconds(device, 0, batch.vertices, batch.edges, _shapes(case), batch.itemsize)


SECONDS: Mapping[str, Callable[[Bench, Case], float]] = {
    "CPU": cpu_seconds,
    "CPU-GPU": gpu_seconds,
    "CPU-FPGA": fpga_seconds,
}


def _mean_ratio(slow: str, fast: str) -> Callable[[Bench], float]:
    return lambda bench: geometric_mean(
        SECONDS[slow](bench, case) / SECONDS[fast](bench, case) for case in CASES
    )


def averages() -> tuple[Quantity[Bench], ...]:
    """Return the three averages of section 6."""
    return (
        Quantity("CPU-GPU over CPU", _mean_ratio("CPU", "CPU-GPU"), GPU_OVER_CPU, "x"),
        Quantity("CPU-FPGA over CPU", _mean_ratio("CPU", "CPU-FPGA"), FPGA_OVER_CPU, "x"),
        Quantity("CPU-FPGA over CPU-GPU", _mean_ratio("CPU-GPU", "CPU-FPGA"), FPGA_OVER_GPU, "x"),
    )


def _on_platform(bench: Bench, change: Change) -> Bench:
    return replace(bench, platform=change(bench.platform))


def assumptions(bench: Bench) -> tuple[Assumption[Bench], ...]:
    """Return what the times rest on: of the host, of PyTorch-Geometric, and of the board."""

    def of_board(label: str, name: str, unit: str, source: str) -> Assumption[Bench]:
        scale: Callable[[Board, float], Board] = scale_field(name)
        return Assumption(
            label, attrgetter(name)(bench.board), unit, source,
            lambda bench, factor: replace(bench, board=scale(bench.board, factor)),
        )  # fmt: skip

    script = "HP-GNN's script"
    return (
        *host_assumptions(bench.platform, _on_platform, "the CPU"),
        Assumption(
            "what PyTorch-Geometric takes on the CPU", 1.0, "", LEDGER, scale_field("cpu_pyg")
        ),
        Assumption(
            "what PyTorch-Geometric takes on the GPU", 1.0, "", LEDGER, scale_field("gpu_pyg")
        ),
        of_board(
            "the board's memory bandwidth", "memory.bandwidth_bytes_per_s", "B/s",
            f"{script}; Xilinx DS962",
        ),
        of_board("alpha of the first layer", "coefficients.alpha_first", "", script),
        of_board("the board's clock", "clock_hz", "Hz", script),
    )  # fmt: skip


def _compare(bench: Bench, case: Case) -> TableRow:
    """Compare a case on the three platforms: its throughput, and the ratios of its times."""
    vertices = sum(make_batch(case).vertices)
    cpu_s, gpu_s, fpga_s = seconds = [of(bench, case) for of in SECONDS.values()]
    return TableRow(
        case.label,
        (
            *(Cell(vertices / each_s, "vertices/s") for each_s in seconds),
            Cell(cpu_s / gpu_s, "x"),
            Cell(cpu_s / fpga_s, "x"),
            Cell(gpu_s / fpga_s, "x"),
            Cell(vertices / cpu_peak_seconds(bench, case), "vertices/s"),
            Cell(vertices / gpu_peak_seconds(bench, case), "vertices/s"),
        ),
    )


class Table7(Reproduction):
    """Vertices traversed a second on the three platforms."""

    name: ClassVar[str] = "hpgnn-table7"
    summary: ClassVar[str] = "throughput of a CPU, a CPU and a GPU, and a CPU and an FPGA"
    left_out: ClassVar[tuple[LeftOut, ...]] = (
        LeftOut("hpgnn-figure1 to 7", "drawings", "no results"),
        LeftOut("hpgnn-table1", "its interface", "no results"),
        LeftOut("hpgnn-table2", "sizes of samples", "no results"),
        LeftOut("hpgnn-table3", "platforms", "no results"),
        LeftOut("hpgnn-table4", "the graphs", "no results"),
        LeftOut(
            "hpgnn-table5",
            "n, m and resources of the designs",
            "its rows are lost; `plan hpgnn` explores the designs for a graph",
        ),
        LeftOut(
            "hpgnn-table8",
            "throughput over GraphACT and Rubik",
            "its rows are lost, and neither is a strategy here",
        ),
    )

    def run(self) -> tuple[Table, ...]:
        bench = Bench.published()
        rows = [_compare(bench, case) for case in CASES]
        *means, last = (
            Cell(quantity.predict(bench), quantity.unit, quoted=quantity.quoted)
            for quantity in averages()
        )
        means.append(replace(last, uncounted="the quotient of the other two"))
        rows.append(TableRow("geometric mean", (Cell(), Cell(), Cell(), *means, Cell(), Cell())))
        return (
            Table(
                name=self.name,
                title="HP-GNN Table 7: vertices traversed a second, AMD 3990X, A100, U250",
                columns=(
                    *SECONDS,
                    "CPU-GPU over CPU",
                    "CPU-FPGA over CPU",
                    "CPU-FPGA over CPU-GPU",
                    "CPU by equations",
                    "CPU-GPU at datasheet peaks",
                ),
                rows=tuple(rows),
                notes=(
                    "the rows of the paper's Table 7 are lost; quoted are its text's averages, "
                    "which are geometric means (25.66 x 2.17 = 55.68)",
                    "CPU and CPU-GPU are what PyTorch-Geometric takes, of which the paper made "
                    "both, with a loader without workers; the board is by Equations 4 to 9, with "
                    "HP-GNN's own constants. Of the first row: "
                    + spell_command("plan", PlanJob, dict(describe_library(CASES[0])))
                    + f", for {MINI_BATCHES} mini-batches",
                    f"by equations the CPU aggregates and updates at rates that are "
                    f"{bench.platform.describe_source('host.aggregate')}, and at its peaks the GPU "
                    f"is as its platform's file says",
                    "stand-ins: |V| and |E| of the data sets, neighbours independent, degrees of "
                    "exponent 2.5 (assumed), cut where an edge would be there twice",
                    f"NS: {TARGETS:,} targets, fan-outs {', '.join(map(str, FANOUTS))}; SS: "
                    f"GraphSAINT's node sampler, {BUDGET:,}; f^1 is {HIDDEN} (Table 4 is lost)",
                ),
                contradictions=find_contradictions(
                    bench, averages(), assumptions(bench), averages()
                ),
            ),
        )
