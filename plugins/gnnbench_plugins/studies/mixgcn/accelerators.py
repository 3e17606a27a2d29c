"""Figure 12 and Table 3 of MixGCN: time and energy of the SPU, its rivals and the CPU.

The work is the neighbour aggregation of an epoch as in section 4.1: three layers of 128 hidden
units, forward at the widths f^0, 128, 128 and backward at 128, 128. The gradient of the features is
unused. Each pass has a random mask of half of the outputs, as section 3.2.1 says of dropout and
ReLU. Passes of one width share a mask here, and take the same time.

A stand-in has one in ``divisor`` of a graph's vertices. It runs on machines with one in ``divisor``
of everything but the clock (:meth:`Machine.scale`). Tiles, reuse and times are then equal to the
whole graph's on the whole machine; bytes and joules are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

import numpy as np

from gnnbench.constants import Bound
from gnnbench.datasets.standins import draw_stand_in
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.machines import load_platform
from gnnbench.records import Cell, Graph, Table, TableRow
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.mixgcn.machines import Machine, Simulation, Spu
from gnnbench_plugins.studies.mixgcn.leads import Epoch, explain_speeds
from gnnbench_plugins.studies.mixgcn.rivals import ANY_ROWS, AwbGcn, Cpu, HyGcn
from gnnbench_plugins.studies.mixgcn.throughput import Scene, list_ratios

PLATFORM = "xeon8462-8xh100-8xspu"
HIDDEN: Bound[int] = 128
#: Aggregations of a width of HIDDEN in an epoch of three layers, beside the one of f^0.
HIDDEN_PASSES: Bound[int] = 4


@dataclass(frozen=True, slots=True)
class Original:
    """A graph of Table 2 with the scale of its stand-in.

    ``joules`` is its column of Table 3: CPU, HyGCN, AWB-GCN and the SPU.
    """

    title: str
    stand_in: str
    features: int
    divisor: int
    joules: tuple[float, float, float, float]


ORIGINALS = (
    Original("Reddit", "reddit", 602, 16, (146.9e3, 19.3, 6.9, 7.6)),
    Original("Orkut", "orkut", 320, 32, (164.1e3, 43.9, 33.6, 9.5)),
    Original("Twitter", "twitter", 52, 512, (3291e3, 533.9, 2326, 605.5)),
    Original("Friendster", "friendster", 128, 512, (3843e3, 1031, 6250, 1135)),
    Original("papers100M", "ogbn-papers100M", 128, 1024, (4322e3, 1547, 6810, 1269)),
)

#: The rivals as published: HyGCN's features not sliced, its windows at best one row tall, or half
#: its node buffer at worst; AWB-GCN's sources streamed for each tile.
UNSLICED, TALL, STREAMING = "HyGCN, not sliced", "HyGCN, tall windows", "AWB-GCN, streaming"

#: Section 4.4.1: the SPU's speed over each machine's on the five graphs.
SPEEDUPS: Mapping[str, tuple[float, float]] = {
    "HyGCN": (1.32, 1.80),
    "AWB-GCN": (1.05, 1.66),
    "CPU": (3.77, 21.6),
}


def draw_mask(num_dst: int, width: int, seed: int = 0) -> MaskArray:
    """Draw bits at random, half of them set."""
    random = np.random.default_rng((seed, width))
    return random.integers(0, 256, (num_dst, -(-width // 8)), dtype=np.uint8)


def list_passes(graph: Graph, features: int) -> Iterator[tuple[SparseMatrix, int, MaskArray, int]]:
    """Yield the products of an epoch: matrix, width, mask, and their number."""
    matrix = SparseMatrix(graph.indptr, graph.indices, graph.num_vertices)
    for width, times in ((features, 1), (HIDDEN, HIDDEN_PASSES)):
        yield matrix, width, draw_mask(graph.num_vertices, width), times


def run_epoch(machine: Machine, graph: Graph, features: int, *, whole: int = 1) -> Epoch:
    """Run an epoch of a graph, or of a stand-in for ``whole`` times as much on a scaled machine."""
    passes = tuple(
        (machine.plan(matrix, width, mask), times)
        for matrix, width, mask, times in list_passes(graph, features)
    )
    found = [(machine.simulate(steps), times) for steps, times in passes]
    return replace(_add_up(found, whole), machine=machine, passes=passes)


def run_cpu(cpu: Cpu, graph: Graph, features: int, whole: int) -> Epoch:
    """Run an epoch on a CPU. Its time follows from counts, so that nothing is scaled."""
    found = [
        (cpu.run(matrix, width, mask), times)
        for matrix, width, mask, times in list_passes(graph, features)
    ]
    epoch = _add_up(found, whole)
    return replace(epoch, seconds=epoch.seconds * whole)


def _add_up(found: Sequence[tuple[Simulation, int]], whole: int) -> Epoch:
    adds = sum(times * each.adds for each, times in found)
    return Epoch(
        seconds=sum(times * each.seconds for each, times in found),
        bytes=sum(times * each.total_bytes for each, times in found) * whole,
        energy_j=sum(times * each.energy_j for each, times in found) * whole,
        occupancy=adds / sum(times * each.capacity for each, times in found),
        whole=whole,
    )


def make_machines(divisor: int = 1) -> tuple[Machine, ...]:
    """Make the three accelerators with equal slices and tiles, at one in ``divisor``."""
    return tuple(machine.scale(divisor) for machine in (Spu(), HyGcn(), AwbGcn()))


def make_published(divisor: int = 1) -> tuple[Machine, ...]:
    """Make the rivals as published."""
    rivals = (
        HyGcn(name=UNSLICED, sliced=False),
        AwbGcn(name=STREAMING, tiled=False),
        HyGcn(name=TALL, sliced=False, window_rows=ANY_ROWS),
    )
    return tuple(machine.scale(divisor) for machine in rivals)


def compare_machines(graph: Graph, features: int, divisor: int = 1) -> dict[str, Epoch]:
    """Return an epoch on every machine, at one in ``divisor``, by the machine's name."""
    found = {
        machine.name: run_epoch(machine, graph, features, whole=divisor)
        for machine in (*make_machines(divisor), *make_published(divisor))
    }
    found["CPU"] = run_cpu(Cpu(load_platform(PLATFORM).host), graph, features, divisor)
    return found


@cache
def compare_originals() -> tuple[dict[str, Epoch], ...]:
    """Compare machines on every graph of Table 2 by its stand-in."""
    return tuple(
        compare_machines(
            draw_stand_in(f"{original.stand_in}:{1 / original.divisor}"),
            original.features,
            original.divisor,
        )
        for original in ORIGINALS
    )


ASSUMPTIONS = (
    "An epoch's aggregations: 3 layers, 128 hidden units, widths f^0, 128, 128 forward and "
    "128, 128 backward, half of the outputs wanted, at random; edges without self loops.",
    "All three: 16,384 units, 32 + 32 + 32 + 4 MiB of double-buffered SRAM, 1,024 GB/s; rows "
    "picked one by one come in granules of 32 bytes. The rivals' split of the SRAM is assumed.",
    "SPU, 500 MHz: 1,024 lanes of 16 adders, 2 words a cycle into each, 2,048 banks (assumed); "
    "slices of features chosen for the fewest bytes; only wanted outputs are written.",
    "HyGCN, 1 GHz: all lanes busy at any degree; AWB-GCN, 330 MHz: rows dealt to units, smoothing "
    "over 2 hops, switching after each column (assumed); neither knows the mask.",
    "All three load the same rows, in the same slices and tiles, so that no lead is a tiling that "
    "only one side has. The rows below have the rivals as published: HyGCN's features not sliced, "
    "in windows of one row or as tall as half the node buffer; AWB-GCN streaming all sources.",
    "Both rivals are known here from abstracts and from what others say of them.",
    "CPU: 64 cores of Xeon 8462Y+, a row for each edge and one more pass for the mask over "
    "614 GB/s; what its caches save is left out, and what random access costs.",
)
#: What bounds the ratios.
REASONS = (
    "With the same rows loaded HBM bounds all three wherever outputs are many tiles' worth, and "
    "the SPU's mask saves half of the outputs' bytes. As published, HyGCN's wide rows make small "
    "tiles, and AWB-GCN reads all sources again for every tile.",
)
SCALING = (
    "Stand-ins at 1/16 (Reddit), 1/32 (Orkut), 1/512 (Twitter, Friendster) and 1/1024 "
    "(papers100M) of the vertices, on machines with as small a share of SRAM, bandwidth and units: "
    "times are those of the whole; bytes and joules are multiplied. They have the degrees' skew "
    "and no other locality than classes.",
)


class Figure12(Reproduction):
    """The machines' times."""

    name: ClassVar[str] = "mixgcn-figure12"
    summary: ClassVar[str] = "speed of the sparse accelerator over HyGCN, AWB-GCN and the CPU"

    def run(self) -> tuple[Table, ...]:
        compared = compare_originals()
        return (
            Table(
                name=self.name,
                title="Figure 12: an epoch's neighbour aggregation on four machines, stand-ins",
                columns=tuple(original.title for original in ORIGINALS),
                rows=(*time_rows(compared), compare_figure7()),
                notes=(
                    "section 4.4.1 states the least and the largest speed-up over each machine; "
                    "what is compared is what exceeds 1, since a lead of 1.01x is none",
                    *ASSUMPTIONS,
                    *SCALING,
                    *REASONS,
                    contradict_figure7(compared),
                ),
                contradictions=tuple(
                    each
                    for original, epochs in zip(ORIGINALS, compared, strict=True)
                    for each in explain_speeds(original.title, epochs, SPEEDUPS)
                ),
            ),
        )


class Table3(Reproduction):
    """The machines' energy."""

    name: ClassVar[str] = "mixgcn-table3"
    summary: ClassVar[str] = "energy of the sparse accelerator, HyGCN, AWB-GCN and the CPU"

    def run(self) -> tuple[Table, ...]:
        compared = compare_originals()
        names = ("CPU", "HyGCN", "AWB-GCN", "SPU")
        energy = [
            TableRow(
                name,
                tuple(
                    Cell(epochs[name].energy_j, "J", quoted=original.joules[place])
                    for original, epochs in zip(ORIGINALS, compared, strict=True)
                ),
            )
            for place, name in enumerate(names)
        ]
        ratios = [
            TableRow(
                f"{name} over SPU",
                tuple(
                    Cell(
                        epochs[name].energy_j / epochs["SPU"].energy_j,
                        "x",
                        quoted=original.joules[place] / original.joules[-1],
                        uncounted="quotients of the rows above",
                    )
                    for original, epochs in zip(ORIGINALS, compared, strict=True)
                ),
            )
            for place, name in enumerate(names[:-1])
        ]
        published = [
            TableRow(name, tuple(Cell(each[name].energy_j, "J") for each in compared))
            for name in (UNSLICED, STREAMING)
        ]
        return (
            Table(
                name=self.name,
                title="Table 3: energy of an epoch's neighbour aggregation, stand-ins",
                columns=tuple(original.title for original in ORIGINALS),
                rows=(*energy, *ratios, *published),
                notes=(
                    *ASSUMPTIONS,
                    *SCALING,
                    "Accelerators by operations and bytes (Horowitz 2014, 45 nm): 0.9 pJ for an "
                    "addition, 100 pJ for 64 bits of SRAM, which an addition reads 32 of and every "
                    "byte of the memory crosses, 1.3 nJ for 64 bits of DRAM; the CPU 600 W (two "
                    "TDPs, an upper estimate) while it works.",
                    *name_winners(compared),
                    "The paper does not say how many epochs its joules are for, nor what of them "
                    "is HyGCN's, AWB-GCN's or the CPU's memory.",
                    "Its ratios to the CPU (3,386 to 19,329) over its speed-ups (3.77 to 21.6) "
                    "make the CPU draw about 900 times the SPU's power, 35 kW: not one node's.",
                    "Its text has up to 3.5x over HyGCN, its Table 3 up to 4.6x (Orkut).",
                ),
            ),
        )


def time_rows(compared: Sequence[Mapping[str, Epoch]]) -> tuple[TableRow, ...]:
    """Return times, the SPU's speed over others, leads beside the paper's, occupancy and bytes."""

    def row(label: str, name: str, make_cell: Callable[[Epoch, Epoch], Cell]) -> TableRow:
        """Return one cell a graph, of the machine called ``name`` and the SPU."""
        return TableRow(label, tuple(make_cell(each[name], each["SPU"]) for each in compared))

    accelerators, others = ("SPU", "HyGCN", "AWB-GCN"), tuple(SPEEDUPS)
    published = (UNSLICED, TALL, STREAMING)
    times = [
        row(name, name, lambda own, _: Cell(own.seconds, "s"))
        for name in ("SPU", *others, *published)
    ]
    speeds = [
        row(f"SPU over {name}", name, lambda own, spu: Cell(own.seconds / spu.seconds, "x"))
        for name in (*others, *published)
    ]
    leads = [row(f"SPU's lead over {name}", name, partial(show_lead, name)) for name in others]
    busy = [
        row(f"{name}: adders busy", name, lambda own, _: Cell(100 * own.occupancy, "%"))
        for name in accelerators
    ]
    moved = [
        row(f"{name}: HBM", name, lambda own, _: Cell(own.bytes, "B")) for name in accelerators
    ]
    return (*times, *speeds, *leads, *busy, *moved)


def compare_figure7() -> TableRow:
    """Return the SPU's speed over the CPU in whole epochs, as Figure 7 is priced."""
    ratios = list_ratios(Scene(), "MixGCN-SPU")
    cells = (Cell() if ratio is None else Cell(ratio, "x") for ratio in ratios)
    return TableRow("SPU over CPU, by Figure 7", tuple(cells))


def contradict_figure7(compared: Sequence[Mapping[str, Epoch]]) -> str:
    """Say how far the SPU's speed over the CPU is from the one that Figure 7 is priced with."""
    apart = {
        original.title: ratio * epochs["SPU"].seconds / epochs["CPU"].seconds
        for original, epochs, ratio in zip(
            ORIGINALS, compared, list_ratios(Scene(), "MixGCN-SPU"), strict=True
        )
        if ratio is not None
    }
    title = max(apart, key=lambda each: apart[each])
    return (
        f"our own numbers contradict each other: Figure 7 has the SPU up to {apart[title]:,.0f} "
        f"times further ahead of the CPU than stands here ({title}). There each worker's eight "
        f"cores aggregate all edges, and wait for each row; here 64 cores stream them at the peak "
        f"of the memory"
    )


def show_lead(name: str, own: Epoch, spu: Epoch) -> Cell:
    """Return how much faster the SPU is than a machine, percent, beside the paper's range."""
    low, high = (100 * (ratio - 1) for ratio in SPEEDUPS[name])
    lead = 100 * (own.seconds / spu.seconds - 1)
    return Cell(lead, "%", quoted_text=f"{low:.0f}-{high:.0f}")


def name_winners(compared: Sequence[Mapping[str, Epoch]]) -> list[str]:
    """Name the machine of least energy on each graph where it is not the paper's."""
    names = ("CPU", "HyGCN", "AWB-GCN", "SPU")
    wrong = []
    for original, epochs in zip(ORIGINALS, compared, strict=True):
        joules = [epochs[name].energy_j for name in names]
        ours = names[joules.index(min(joules))]
        theirs = names[original.joules.index(min(original.joules))]
        if ours != theirs:
            wrong.append(f"{original.title} (paper {theirs}, here {ours})")
    where = f"the paper's but on {', '.join(wrong)}" if wrong else "the paper's on every graph"
    return [f"The machine of least energy is {where}."]
