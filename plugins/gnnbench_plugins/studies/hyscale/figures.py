"""HyScale-GNN's Figures 8 and 10. The paper prints no values in them, and its text is quoted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean, geometric_mean
from typing import Annotated, ClassVar

from gnnbench.constants import Bound, Constant
from gnnbench.jobs.job import PlanJob
from gnnbench.jobs.options import spell_command
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Device, Platform
from gnnbench.machines.tables import replace_fields
from gnnbench.records import Cell, Table, TableRow
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions, scale_field
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.hyscale.performance import Prediction, Split, add_described
from gnnbench_plugins.studies.hyscale.assumptions import (
    Machines,
    all_assumptions,
    describe_library,
    epoch_of,
    library_epoch_of,
    plain_epoch_of,
    table6,
)
from gnnbench_plugins.studies.hyscale.neighbourhoods import cut_profiles
from gnnbench_plugins.studies.hyscale.tables import (
    BATCH_NOTE,
    CITATIONS_NOTE,
    FPGAS,
    GPUS,
    GRAPHS,
    MAG240M,
    MODELS,
    STAND_IN_NOTE,
    count_rounds,
    make_task,
    note_platform,
    note_sampling,
    predict_best,
    sample_graph,
    with_accelerators,
)

# --------------------------------------------------------------------------- figure 8

#: The middle of "5x to 6x".
FIVE_TO_SIX: Annotated[float, Constant("", "quoted", "HyScale-GNN, section VI-E1")] = 5.5
COUNTS: Bound[tuple[int, ...]] = (1, 2, 3, 4)
#: Section VI-C: "The prediction error ranges from 5% to 14% on average".
ERRORS = "5-14"
LEAST_ERROR: Annotated[float, Constant("%", "quoted", "HyScale-GNN, section VI-C")] = 5.0


@dataclass(frozen=True, slots=True)
class Omitted:
    """Factors on the terms of a platform's file that the equations leave out."""

    launches: float = 1.0
    latencies: float = 1.0


@cache
def _predict_on(count: int, model: str) -> tuple[Platform, Prediction, Split]:
    platform = with_accelerators(load_platform(FPGAS), count)
    return platform, *predict_best(platform, MAG240M, model)


def predict_described(count: int, model: str, omitted: Omitted) -> tuple[float, float]:
    """Predict the seconds of an epoch by Equations 6 to 13, without and with what they leave out.

    Section VI-C names it, and the platform's file describes it: launches, latencies, and an empty
    pipeline at first.
    """
    platform, prediction, split = _predict_on(count, model)

    def launched(device: Device) -> Device:
        return replace_fields(device, launch_s=omitted.launches * device.hardware.launch_s)

    machine = replace(
        platform,
        host=launched(platform.host),
        accelerators=tuple(map(launched, platform.accelerators)),
        links=tuple(
            replace(link, latency_s=omitted.latencies * link.latency_s) for link in platform.links
        ),
    )
    task = make_task(machine, MAG240M, model, (25, 10), 256)
    profiles = cut_profiles(sample_graph(MAG240M, (25, 10)), task.workload.batch_size)
    described = add_described(
        prediction, task, profiles, machine.accelerators, float(split.cpu_seeds)
    )
    rounds = count_rounds(machine, MAG240M)
    return prediction.epoch_s(rounds), described.epoch_s(rounds, filling=True)


def mean_error(model: str, omitted: Omitted) -> float:
    """Return the mean prediction error over ``COUNTS``, in percent of the longer time."""
    pairs = [predict_described(count, model, omitted) for count in COUNTS]
    return 100 * fmean(1 - short_s / long_s for short_s, long_s in pairs)


def _omissions() -> tuple[Assumption[Omitted], ...]:
    platform = load_platform(FPGAS)
    device = platform.accelerators[0]
    link = platform.host_link(device)
    group = device.name.rstrip("0123456789")
    return (
        Assumption(
            "the launch of a kernel", device.hardware.launch_s, "s",
            platform.sources[f"{group}.launch"], scale_field("launches"),
        ),
        Assumption(
            "the latency of a link", link.latency_s, "s",
            platform.sources[f"host-{group}.latency"], scale_field("latencies"),
        ),
    )  # fmt: skip


def _errors() -> tuple[Quantity[Omitted], ...]:
    return tuple(
        Quantity(
            f"the mean prediction error of {title} (the paper's 5 to 14 %)",
            partial(mean_error, model),
            LEAST_ERROR,
            "%",
        )
        for model, title in MODELS.items()
    )


class Figure8(Reproduction):
    """The performance model beside what it leaves out."""

    name: ClassVar[str] = "hyscale-figure8"
    summary: ClassVar[str] = "predicted epochs beside those with launches, latencies and filling"

    def run(self) -> tuple[Table, ...]:
        rows = []
        for model, title in MODELS.items():
            predicted, described, errors = [], [], []
            for count in COUNTS:
                short_s, long_s = predict_described(count, model, Omitted())
                predicted.append(Cell(short_s, "s"))
                described.append(Cell(long_s, "s"))
                errors.append(100 * (1 - short_s / long_s))
            rows += [
                TableRow(f"{title}, Equations 6 to 13", (*predicted, Cell())),
                TableRow(f"{title}, with what they leave out", (*described, Cell())),
                TableRow(
                    f"{title}, prediction error",
                    (
                        *(Cell(error, "%") for error in errors),
                        Cell(mean_error(model, Omitted()), "%", quoted_text=ERRORS),
                    ),
                ),
            ]
        return (
            Table(
                name=self.name,
                title="HyScale-GNN Figure 8: an epoch on MAG240M (homo) by the number of U250",
                columns=(*map(str, COUNTS), "on average"),
                rows=tuple(rows),
                notes=(
                    "the paper's figure prints no values; its text: \"The prediction error ranges "
                    'from 5% to 14% on average", from launching kernels and flushing pipelines',
                    "the longer time is this project's model clock as the platform's file has "
                    "the machine: launches, link latencies, the topology's bytes and the first "
                    "filling of the pipeline; no FPGA was measured here",
                    BATCH_NOTE.replace(
                        ", without pipeline filling, kernel launches and link latencies, as in "
                        "the paper's model",
                        "",
                    ),
                    STAND_IN_NOTE,
                    CITATIONS_NOTE,
                    note_sampling((MAG240M,), (25, 10)),
                    note_platform(load_platform(FPGAS)),
                ),
                contradictions=find_contradictions(Omitted(), _errors(), _omissions(), _errors()),
            ),
        )


# --------------------------------------------------------------------------- figure 10

#: Section VI-E1: "up to" over the multi-GPU baseline, and "5x-6x" over the CPU-GPU design.
UP_TO_GPUS, UP_TO_FPGAS, FPGAS_OVER_GPUS = 2.08, 12.6, "5-6"
WORKLOADS = tuple((graph, model) for graph in GRAPHS for model in MODELS)


def speed_ups(machines: Machines) -> list[tuple[float, float, float]]:
    """Return epoch seconds by workload: multi-GPU baseline, CPU-GPU and CPU-FPGA design.

    On GPUs they are what PyTorch-Geometric takes.
    """
    return [
        (
            library_epoch_of(machines, graph, model),
            library_epoch_of(machines, graph, model, prefetches=True),
            epoch_of(machines.fpgas, graph, model),
        )
        for graph, model in WORKLOADS
    ]


def claims() -> tuple[Quantity[Machines], ...]:
    """Return the claims of the text about the figure."""
    return (
        Quantity(
            "CPU-GPU over the multi-GPU baseline at most",
            lambda machines: max(plain / gpu for plain, gpu, _ in speed_ups(machines)),
            UP_TO_GPUS,
            "x",
        ),
        Quantity(
            "CPU-FPGA over the multi-GPU baseline at most",
            lambda machines: max(plain / fpga for plain, _, fpga in speed_ups(machines)),
            UP_TO_FPGAS,
            "x",
        ),
        Quantity(
            "CPU-FPGA over CPU-GPU on the geometric mean (the paper's 5x to 6x)",
            lambda machines: geometric_mean(gpu / fpga for _, gpu, fpga in speed_ups(machines)),
            FIVE_TO_SIX,
            "x",
        ),
    )


def _compare_platforms(machines: Machines) -> list[TableRow]:
    """Return each workload's epochs and their ratios, and below them the largest ratios."""
    rows = []
    for (graph, model), (plain_s, gpu_s, fpga_s) in zip(
        WORKLOADS, speed_ups(machines), strict=True
    ):
        cells = (
            Cell(plain_s, "s"),
            Cell(gpu_s, "s"),
            Cell(fpga_s, "s"),
            Cell(plain_s / gpu_s, "x"),
            Cell(plain_s / fpga_s, "x"),
            Cell(gpu_s / fpga_s, "x", quoted_text=FPGAS_OVER_GPUS),
            Cell(plain_epoch_of(machines.gpus, graph, model), "s"),
            Cell(epoch_of(machines.gpus, graph, model), "s"),
        )
        rows.append(TableRow(f"{MODELS[model]} {graph.name}", cells))
    most = [max(row.cells[column].value or 0.0 for row in rows) for column in (3, 4)]
    largest = (
        Cell(most[0], "x", quoted=UP_TO_GPUS),
        Cell(most[1], "x", quoted=UP_TO_FPGAS),
    )
    rows.append(TableRow("up to", (Cell(), Cell(), Cell(), *largest, *[Cell()] * 3)))
    return rows


class Figure10(Reproduction):
    """Epochs of the two designs beside a multi-GPU baseline."""

    name: ClassVar[str] = "hyscale-figure10"
    summary: ClassVar[str] = "CPU-GPU and CPU-FPGA designs beside a multi-GPU baseline"

    def run(self) -> tuple[Table, ...]:
        machines = Machines.published()
        rows = _compare_platforms(machines)
        return (
            Table(
                name=self.name,
                title="HyScale-GNN Figure 10: an epoch on 4 A5000 and on 4 U250, 2 EPYC 7763 each",
                columns=(
                    "multi-GPU baseline",
                    "CPU-GPU",
                    "CPU-FPGA",
                    "CPU-GPU over baseline",
                    "CPU-FPGA over baseline",
                    "CPU-FPGA over CPU-GPU",
                    "baseline at datasheet peaks",
                    "CPU-GPU at datasheet peaks",
                ),
                rows=tuple(rows),
                notes=(
                    "the paper's figure prints no values; quoted is section VI-E1",
                    "the multi-GPU baseline and the CPU-GPU design are what PyTorch-Geometric "
                    "takes, of which the paper made both; the CPU-GPU design overlaps loading, "
                    "transfer and training, and its CPU trainer is left out. Of the first row: "
                    + spell_command(
                        "plan",
                        PlanJob,
                        dict(describe_library(*WORKLOADS[0], prefetches=False)),
                    ),
                    "at datasheet peaks: both by Equations 6 to 13, with every GPU at its peaks, "
                    "the baseline loading, transferring and training in turn",
                    BATCH_NOTE,
                    STAND_IN_NOTE,
                    CITATIONS_NOTE,
                    note_sampling(GRAPHS, (25, 10)),
                    note_platform(load_platform(FPGAS)),
                    note_platform(load_platform(GPUS)),
                ),
                contradictions=find_contradictions(
                    machines, claims(), all_assumptions(), (*claims(), *table6())
                ),
            ),
        )
