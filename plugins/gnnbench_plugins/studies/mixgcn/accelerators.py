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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

import numpy as np

from gnnbench import datasets
from gnnbench.constants import Bound
from gnnbench.datasets.standins import draw_stand_in
from gnnbench.kernels.dispatch.aggregation import SparseMatrix
from gnnbench.kernels.dispatch.checks import MaskArray
from gnnbench.platforms import load_platform
from gnnbench.records import Cell, Graph, Table, TableRow
from gnnbench.studies import Reproduction
from gnnbench_plugins.mixgcn.machines import DRAM_J_PER_BYTE, Machine, Simulation, Spu
from gnnbench_plugins.studies.mixgcn.leads import Epoch, explain_energies, explain_speeds
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
    """Bits of which half are set, at random."""
    random = np.random.default_rng((seed, width))
    return random.integers(0, 256, (num_dst, -(-width // 8)), dtype=np.uint8)


def list_passes(graph: Graph, features: int) -> Iterator[tuple[SparseMatrix, int, MaskArray, int]]:
    """The products of an epoch: matrix, width, mask, and how many there are."""
    matrix = SparseMatrix(graph.indptr, graph.indices, graph.num_vertices)
    for width, times in ((features, 1), (HIDDEN, HIDDEN_PASSES)):
        yield matrix, width, draw_mask(graph.num_vertices, width), times


def run_epoch(machine: Machine, graph: Graph, features: int, *, whole: int = 1) -> Epoch:
    """An epoch of a graph; of a stand-in for ``whole`` times as much, on a machine of its scale."""
    passes = tuple(
        (machine.plan(matrix, width, mask), times)
        for matrix, width, mask, times in list_passes(graph, features)
    )
    found = [(machine.simulate(steps), times) for steps, times in passes]
    return replace(_add_up(found, whole), machine=machine, passes=passes)


def run_cpu(cpu: Cpu, graph: Graph, features: int, whole: int) -> Epoch:
    """The same on a CPU, which has nothing to scale: its time follows from counts."""
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
        adds=adds * whole,
        whole=whole,
    )


def make_machines(divisor: int = 1) -> tuple[Machine, ...]:
    """The three accelerators with the same slices and tiles, at one in ``divisor``."""
    return tuple(machine.scale(divisor) for machine in (Spu(), HyGcn(), AwbGcn()))


def make_published(divisor: int = 1) -> tuple[Machine, ...]:
    """The rivals as published."""
    rivals = (
        HyGcn(name=UNSLICED, sliced=False),
        AwbGcn(name=STREAMING, tiled=False),
        HyGcn(name=TALL, sliced=False, window_rows=ANY_ROWS),
    )
    return tuple(machine.scale(divisor) for machine in rivals)


def compare_machines(graph: Graph, features: int, divisor: int = 1) -> dict[str, Epoch]:
    """An epoch on every machine, at one in ``divisor``, by its name."""
    found = {
        machine.name: run_epoch(machine, graph, features, whole=divisor)
        for machine in (*make_machines(divisor), *make_published(divisor))
    }
    found["CPU"] = run_cpu(Cpu(load_platform(PLATFORM).host), graph, features, divisor)
    return found


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
        tables = [
            Table(
                name=self.name,
                title="Figure 12: an epoch's neighbour aggregation on four machines, stand-ins",
                columns=tuple(original.title for original in ORIGINALS),
                rows=time_rows(compare_originals(), quoted=True),
                notes=(
                    *ASSUMPTIONS,
                    *SCALING,
                    *judge(compare_originals()),
                    *REASONS,
                ),
                contradictions=tuple(
                    each
                    for original, epochs in zip(ORIGINALS, compare_originals(), strict=True)
                    for each in explain_speeds(original.title, epochs, SPEEDUPS)
                ),
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
                rows=(*energy, *ratios, *other_energies(compared)),
                notes=(
                    *ASSUMPTIONS,
                    *SCALING,
                    "Accelerators by operations and bytes (Horowitz 2014, 45 nm): 0.9 pJ for an "
                    "addition, 100 pJ for 64 bits of SRAM, which an addition reads 32 of and every "
                    "byte of the memory crosses, 1.3 nJ for 64 bits of DRAM; the CPU 600 W (two "
                    "TDPs, an upper estimate) while it works.",
                    *name_winners(compared),
                    *judge_power(compared),
                    "The paper does not say how many epochs its joules are for, nor what of them "
                    "is HyGCN's, AWB-GCN's or the CPU's memory.",
                    "Its ratios to the CPU (3,386 to 19,329) over its speed-ups (3.77 to 21.6) "
                    "make the CPU draw about 900 times the SPU's power, 35 kW: not one node's.",
                    "Its text has up to 3.5x over HyGCN, its Table 3 up to 4.6x (Orkut).",
                ),
                contradictions=tuple(
                    each
                    for original, epochs in zip(ORIGINALS, compared, strict=True)
                    for each in explain_energies(original.title, epochs, names, original.joules)
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
    published = (UNSLICED, TALL, STREAMING)
    times = [
        row(name, name, lambda own, _: Cell(own.seconds, "s"))
        for name in ("SPU", *others, *published)
    ]
    speeds = [
        row(
            f"SPU over {name}",
            name,
            partial(compare_speeds, quoted_text=show_range(name)),
        )
        for name in others
    ]
    speeds += [
        row(f"SPU over {name}", name, partial(compare_speeds, quoted_text="")) for name in published
    ]
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


def spu_power_w() -> float:
    """What the paper says that an SPU draws, without its HBM."""
    spu = next(each for each in load_platform(PLATFORM).accelerators if each.kind == "sparse")
    if spu.power_w is None:
        raise ValueError(f"{spu.model} has no stated power; add power to its platform file.")
    return spu.power_w


def count_stated_energy(epoch: Epoch) -> float:
    """Joules of an SPU that draws its stated power while it works, busy or not, and of its DRAM."""
    return spu_power_w() * epoch.seconds + DRAM_J_PER_BYTE * epoch.bytes


def other_energies(compared: Sequence[Mapping[str, Epoch]]) -> list[TableRow]:
    """The rivals as published, and the SPU by its stated power; beside nothing of the paper."""
    rows = [
        TableRow(name, tuple(Cell(each[name].energy_j, "J") for each in compared))
        for name in (UNSLICED, STREAMING)
    ]
    stated = (Cell(count_stated_energy(each["SPU"]), "J") for each in compared)
    return [*rows, TableRow("SPU, stated power", tuple(stated))]


def judge_power(compared: Sequence[Mapping[str, Epoch]]) -> list[str]:
    """What the SPU draws by its operations on a graph, beside what the paper states."""
    drawn = [
        (each["SPU"].energy_j - DRAM_J_PER_BYTE * each["SPU"].bytes) / each["SPU"].seconds
        for each in compared
    ]
    saved = [
        original.title
        for original, each in zip(ORIGINALS, compared, strict=True)
        if each["HyGCN"].energy_j < count_stated_energy(each["SPU"])
    ]
    then = f"HyGCN takes less on {', '.join(saved)}" if saved else "HyGCN takes more on all graphs"
    return [
        f"By its operations the SPU without DRAM draws {min(drawn):.3g} to {max(drawn):.3g} W; the "
        f"paper states {spu_power_w():g} W. With that power and its DRAM {then}; no power is "
        f"stated for the rivals, so that the rows above stay with operations for all."
    ]


def name_winners(compared: Sequence[Mapping[str, Epoch]]) -> list[str]:
    """Which machine takes the least energy on a graph, where that is not the paper's."""
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
