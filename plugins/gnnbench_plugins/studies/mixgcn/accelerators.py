"""Figure 12 and Table 3 of MixGCN: time and energy of the SPU, its rivals and the CPU.

The work is the neighbour aggregation of an epoch as in section 4.1: three layers of 128 hidden
units, forward at the widths f^0, 128, 128 and backward at 128, 128 (nobody needs the gradient of
the features), each with a random mask of half of the outputs, as section 3.2.1 says of dropout and
ReLU. Passes of one width have one mask here, and take the same time.

The five graphs are stood in for at one in ``divisor`` of their vertices, on machines of which all
but the clock is one in ``divisor`` as well (:meth:`Machine.scale`): tiles, reuse and times are then
those of the whole graph on the whole machine, bytes and joules are multiplied. Real graphs run on
the whole machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar, Protocol

import numpy as np

from gnnbench import datasets
from gnnbench.constants import Bound
from gnnbench.datasets.standins import draw_stand_in
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.platforms import load_platform
from gnnbench.records import Cell, Graph, Table, TableRow
from gnnbench.studies import Reproduction
from gnnbench_plugins.mixgcn.machines import Machine, Simulation, Spu
from gnnbench_plugins.studies.mixgcn.rivals import ANY_ROWS, AwbGcn, Cpu, HyGcn

PLATFORM = "xeon8462-8xh100-8xspu"
HIDDEN: Bound[int] = 128
#: Aggregations of a width of HIDDEN in an epoch of three layers, beside the one of f^0.
HIDDEN_PASSES: Bound[int] = 4


@dataclass(frozen=True, slots=True)
class Original:
    """A graph of Table 2: its name here, its features, how small its stand-in is, and its column of
    Table 3 in joules: CPU, HyGCN, AWB-GCN and the SPU."""

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
REAL_GRAPHS = ("facebook_top8", "ego_twitter", "amazon_photo")

#: HyGCN with windows as tall as half its node buffer, the other end of what is assumed of them.
TALL = "HyGCN, tall windows"

#: Section 4.4.1: the SPU's speed over each machine's on the five graphs.
SPEEDUPS: Mapping[str, tuple[float, float]] = {
    "HyGCN": (1.32, 1.80),
    "AWB-GCN": (1.05, 1.66),
    "CPU": (3.77, 21.6),
}


class Runs(Protocol):
    """A machine of any kind."""

    @property
    def name(self) -> str: ...

    def run(
        self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None
    ) -> Simulation: ...


@dataclass(frozen=True, slots=True)
class Epoch:
    """All aggregations of an epoch on one machine, at the size of the whole graph."""

    seconds: float
    bytes: float
    energy_j: float
    occupancy: float


def draw_mask(num_dst: int, width: int, seed: int = 0) -> MaskArray:
    """Bits of which half are set, at random."""
    random = np.random.default_rng((seed, width))
    return random.integers(0, 256, (num_dst, -(-width // 8)), dtype=np.uint8)


def run_epoch(machine: Runs, graph: Graph, features: int, *, whole: int = 1) -> Epoch:
    """An epoch of a graph; of a stand-in for ``whole`` times as much, on a machine of its scale."""
    matrix = SparseMatrix(graph.indptr, graph.indices, graph.num_vertices)
    passes = [
        (machine.run(matrix, width, draw_mask(graph.num_vertices, width)), times)
        for width, times in ((features, 1), (HIDDEN, HIDDEN_PASSES))
    ]
    capacity = sum(times * each.capacity for each, times in passes)
    return Epoch(
        seconds=sum(times * each.seconds for each, times in passes),
        bytes=sum(times * each.total_bytes for each, times in passes) * whole,
        energy_j=sum(times * each.energy_j for each, times in passes) * whole,
        occupancy=sum(times * each.adds for each, times in passes) / capacity,
    )


def make_machines(divisor: int = 1) -> tuple[Machine, ...]:
    """The three accelerators, at one in ``divisor``."""
    return tuple(machine.scale(divisor) for machine in (Spu(), HyGcn(), AwbGcn()))


@dataclass(frozen=True, slots=True)
class _ScaledCpu:
    """A CPU that has nothing to scale: its time follows from counts, which are multiplied."""

    cpu: Cpu
    divisor: int

    @property
    def name(self) -> str:
        return self.cpu.name

    def run(self, matrix: SparseMatrix, width: int, mask: MaskArray | None = None) -> Simulation:
        share = self.cpu.run(matrix, width, mask)
        times = self.divisor
        return Simulation(
            share.seconds * times, share.adds, share.capacity, share.bytes, share.energy_j
        )


def compare_machines(graph: Graph, features: int, divisor: int = 1) -> dict[str, Epoch]:
    """An epoch on every machine, by its name."""
    cpu = _ScaledCpu(Cpu(load_platform(PLATFORM).host), divisor)
    tall = replace(HyGcn(), name=TALL, window_rows=ANY_ROWS).scale(divisor)
    machines: tuple[Runs, ...] = (*make_machines(divisor), tall, cpu)
    return {
        machine.name: run_epoch(machine, graph, features, whole=divisor) for machine in machines
    }


@cache
def compare_originals() -> tuple[dict[str, Epoch], ...]:
    """Every graph of Table 2 by its stand-in."""
    return tuple(
        compare_machines(
            draw_stand_in(f"{original.stand_in}:{1 / original.divisor}"),
            original.features,
            original.divisor,
        )
        for original in ORIGINALS
    )


def compare_real_graphs() -> dict[str, dict[str, Epoch]]:
    """The real graphs that are at hand here."""
    there = [
        name
        for name in REAL_GRAPHS
        if any((folder / f"{name}.npz").is_file() for folder in datasets.data_folders())
    ]
    found = {}
    for name in there:
        data = datasets.load(name)
        found[name] = compare_machines(data.graph, data.num_features)
    return found


ASSUMPTIONS = (
    "An epoch's aggregations: 3 layers, 128 hidden units, widths f^0, 128, 128 forward and "
    "128, 128 backward, half of the outputs wanted, at random; edges without self loops.",
    "All three: 16,384 units, 32 + 32 + 32 + 4 MiB of double-buffered SRAM, 1,024 GB/s; rows "
    "picked one by one come in granules of 32 bytes. The rivals' split of the SRAM is assumed.",
    "SPU, 500 MHz: 1,024 lanes of 16 adders, 2 words a cycle into each, 2,048 banks (assumed); "
    "slices of features chosen for the fewest bytes; only wanted outputs are written.",
    "HyGCN, 1 GHz: all lanes busy at any degree; windows of one row, the best that sliding and "
    "shrinking come to (tall windows are of half the node buffer, the other end); features are not "
    "sliced; no mask. AWB-GCN, 330 MHz: columns of all sources streamed for each tile, rows dealt "
    "to units, smoothing over 2 hops, switching after each column (assumed); no mask.",
    "Both rivals are known here from abstracts and from what others say of them.",
    "CPU: 64 cores of Xeon 8462Y+, a row for each edge and one more pass for the mask over "
    "614 GB/s; what its caches save is left out, and what random access costs.",
)
#: Why speeds leave the paper's ranges.
REASONS = (
    "Where outputs are many tiles' worth, HBM bounds all machines: the SPU gains on HyGCN what "
    "slices and unwritten outputs save, which shrinks as a tile reads nearly a row for each edge "
    "(papers100M), and grows where wide rows make HyGCN's tiles small (Reddit, Orkut). AWB-GCN "
    "reads the adjacency again for every column or two, which costs most where degrees are low.",
    "Windows of one row are the paper's own case as far as its Table 3 tells: HyGCN's energy is "
    "0.88 to 1.22 times the SPU's on Twitter, Friendster and papers100M, which leaves no room for "
    "the rows between that tall windows load there.",
    "Over the CPU: with a row for each edge from DDR, its time is at most the SPU's times the "
    "ratio of the bandwidths (1.7) and of the bytes that tiles save, about 1 for the large graphs; "
    "a real CPU does not reach its peak bandwidth with random rows, and on Reddit its caches hold "
    "much of what is counted here.",
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
        tables = [
            Table(
                name=self.name,
                title="Figure 12: an epoch's neighbour aggregation on four machines, stand-ins",
                columns=tuple(original.title for original in ORIGINALS),
                rows=time_rows(compare_originals(), quoted=True),
                notes=(*ASSUMPTIONS, *SCALING, *judge(compare_originals()), *REASONS),
            )
        ]
        real = compare_real_graphs()
        if real:
            tables.append(
                Table(
                    name=f"{self.name}-real",
                    title="The same on real graphs, which the paper does not have",
                    columns=tuple(real),
                    rows=time_rows(tuple(real.values()), quoted=False),
                    notes=("Small graphs on the whole machines: few tiles, or one.",),
                )
            )
        else:
            missing = f"No real graph here: none of {', '.join(REAL_GRAPHS)} is in a data folder."
            tables = [replace(tables[0], notes=(*tables[0].notes, missing))]
        return tuple(tables)


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
                    )
                    for original, epochs in zip(ORIGINALS, compared, strict=True)
                ),
            )
            for place, name in enumerate(names[:-1])
        ]
        return (
            Table(
                name=self.name,
                title="Table 3: energy of an epoch's neighbour aggregation, stand-ins",
                columns=tuple(original.title for original in ORIGINALS),
                rows=(*energy, *ratios),
                notes=(
                    *ASSUMPTIONS,
                    *SCALING,
                    "SPU 38.96 W (section 4.1), HyGCN and AWB-GCN that in proportion to the clock "
                    "(assumed), and 7 pJ for each bit of HBM; CPU 600 W (two TDPs, an upper "
                    "estimate).",
                    "The paper does not say how many epochs its joules are for, nor with which "
                    "power of HyGCN, AWB-GCN and the CPU: compare ratios.",
                    "Its ratios to the CPU (3,386 to 19,329) over its speed-ups (3.77 to 21.6) "
                    "make the CPU draw about 900 times the SPU's power, 35 kW: not one node's.",
                    "Its AWB-GCN takes 3.8 to 5.5 times the SPU's energy on Twitter, Friendster "
                    "and papers100M, where it is at most 1.66 times slower: its power there is "
                    "above the SPU's, and not that in proportion to the clock.",
                    "Its text has up to 3.5x over HyGCN, its Table 3 up to 4.6x (Orkut).",
                ),
            ),
        )


TABLES: tuple[type[Reproduction], ...] = (Figure12, Table3)


def time_rows(compared: Sequence[Mapping[str, Epoch]], *, quoted: bool) -> tuple[TableRow, ...]:
    """Times, the SPU's speed over the others beside the paper's ranges, occupancy and bytes."""

    def row(label: str, name: str, make_cell: Callable[[Epoch, Epoch], Cell]) -> TableRow:
        """One cell a graph, of the machine called ``name`` and the SPU."""
        return TableRow(label, tuple(make_cell(each[name], each["SPU"]) for each in compared))

    def show_range(name: str) -> str:
        low, high = SPEEDUPS[name]
        return f"{low:.2f}-{high:.2f}" if quoted else ""

    accelerators, others = ("SPU", "HyGCN", "AWB-GCN"), tuple(SPEEDUPS)
    times = [
        row(name, name, lambda own, _: Cell(own.seconds, "s")) for name in ("SPU", *others, TALL)
    ]
    speeds = [
        row(
            f"SPU over {name}",
            name,
            partial(compare_speeds, quoted_text=show_range(name)),
        )
        for name in others
    ]
    speeds.append(row(f"SPU over {TALL}", TALL, partial(compare_speeds, quoted_text="")))
    busy = [
        row(f"{name}: adders busy", name, lambda own, _: Cell(100 * own.occupancy, "%"))
        for name in accelerators
    ]
    moved = [
        row(f"{name}: HBM", name, lambda own, _: Cell(own.bytes, "B")) for name in accelerators
    ]
    return (*times, *speeds, *busy, *moved)


def compare_speeds(own: Epoch, spu: Epoch, quoted_text: str) -> Cell:
    """How much longer a machine takes than the SPU."""
    return Cell(own.seconds / spu.seconds, "x", quoted_text=quoted_text)


def judge(compared: Sequence[Mapping[str, Epoch]]) -> list[str]:
    """Which speed-ups lie outside the paper's range, one sentence a machine."""
    sentences = []
    for name, (low, high) in SPEEDUPS.items():
        outside = []
        for original, epochs in zip(ORIGINALS, compared, strict=True):
            ratio = epochs[name].seconds / epochs["SPU"].seconds
            if not low <= ratio <= high:
                outside.append(f"{original.title} {ratio:.2f}x")
        where = f"outside: {', '.join(outside)}" if outside else "all inside"
        sentences.append(f"SPU over {name}, the paper's {low} to {high}: {where}.")
    return sentences
