"""HongTu's Figure 10: device memory and epoch time with more chunks.

The figure is a drawing without numbers. Section 7.5 states ranges for four times the chunks. The
program of an epoch is laid out on the volumes of Table 8, which grow as alpha does in Table 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from gnnbench.constants import Bound, Constant
from gnnbench.parts import OffloadingMemory
from gnnbench.records import Cell, Contradiction, Table, TableRow
from gnnbench.reproduce.sensitivity import Assumption, Quantity, find_contradictions, scale_field
from gnnbench.reproduce.studies import Reproduction
from gnnbench_plugins.hongtu.memory import HongTuMemory
from gnnbench_plugins.hongtu.outlook import PathStep, foresee, price_path
from gnnbench_plugins.studies.hongtu.assumptions import list_assumptions
from gnnbench_plugins.studies.hongtu.quoted import (
    LARGE,
    PARTITIONS,
    PaperGraph,
    Range,
    show_growth,
    show_range,
)
from gnnbench_plugins.studies.hongtu.server import (
    HOST_STAGE,
    LINK_STAGES,
    Server,
    assemble,
    fitted_server,
    make_kernel,
    make_workload,
    multiply_chunks,
    note_additions,
    place_graph,
)

#: Multiples of the initial chunks. Table 3 has no number of partitions for 3.
TIMES: Bound[tuple[int, ...]] = (1, 2, 4)
#: At four times the chunks: percent of memory saved, and how many times as long an epoch is.
LESS_MEMORY: Annotated[Range, Constant("%", "quoted", "HongTu, section 7.5")] = (51, 65)
LONGER: Annotated[Range, Constant("", "quoted", "HongTu, section 7.5")] = (1.5, 2.2)
#: A growth outside of that range is explained however little it is off.
ANY: Bound[float] = 1e-3


@dataclass(frozen=True, slots=True)
class Strain:
    """Bytes of the fullest device, seconds of an epoch and its critical path at some chunks."""

    device_bytes: int
    epoch_s: float
    path: Sequence[PathStep]


def list_alphas(graph: PaperGraph) -> list[float]:
    """Return Table 3's replication factors at ``TIMES`` the chunks of section 7.1."""
    return [graph.replication(times * PARTITIONS * graph.chunks) for times in TIMES]


def strain_graph(graph: PaperGraph, memory: OffloadingMemory) -> list[Strain]:
    """Return the strains of a graph at ``TIMES`` its chunks."""
    setting = place_graph(graph, make_workload(graph.dims(2)), fitted_server().platform)
    first, *_ = alphas = list_alphas(graph)
    strains = []
    for times, alpha in zip(TIMES, alphas, strict=True):
        counts = multiply_chunks(graph, times, alpha / first)
        found = foresee(counts, assemble(memory), setting)
        fullest = max(found.peak_bytes[device.name] for device in setting.platform.accelerators)
        strains.append(Strain(fullest, found.epoch_s, found.path))
    return strains


class Figure10(Reproduction):
    """Memory and time with more chunks."""

    name: ClassVar[str] = "hongtu-figure10"
    summary: ClassVar[str] = "device memory and epochs with 1, 2 and 4 times the chunks"

    def run(self) -> tuple[Table, ...]:
        crossing, staying = (
            [strain_graph(graph, HongTuMemory(topology=where)) for graph in LARGE]
            for where in ("host", "device")
        )
        longer = [
            there.epoch_s / here.epoch_s - 1
            for one, other in zip(crossing, staying, strict=True)
            for there, here in zip(one, other, strict=True)
        ]
        columns = tuple(f"{times}x chunks" for times in TIMES)
        title = "HongTu Figure 10: memory of the fullest device, by chunks of a partition"
        return (
            Table(
                name=self.name,
                title=title,
                columns=(*columns, "less"),
                rows=tabulate_memory(staying, ""),
                notes=(
                    "2-layer GCN, by the ledger of a run. Topologies stay on the devices "
                    "(memory.topology=device, the default, as in all other tables) and do not "
                    "shrink with the chunks",
                    "section 7.5 has one range for its three graphs. It does not state the first "
                    "number of chunks, taken to be that of section 7.1, nor where topologies lie",
                ),
            ),
            Table(
                name=self.name,
                title=f"{title}, where topologies cross with their chunks",
                columns=(*columns, "less"),
                rows=tabulate_memory(crossing, "a second reading of the same cell"),
                notes=("with memory.topology=host: a device holds one layer of one chunk",),
            ),
            Table(
                name=self.name,
                title="HongTu Figure 10: seconds of an epoch, by chunks of a partition",
                columns=(*columns, "longer"),
                rows=tuple(map(tabulate_time, LARGE, crossing)),
                notes=(
                    f"topologies cross with their chunks, which makes these epochs "
                    f"{min(longer):.1%} to {max(longer):.0%} longer than they are with all on the "
                    f"devices",
                    "all volumes of Table 8 grow as alpha does in Table 3. Left out: fewer rows "
                    "stay from batch to batch where chunks are smaller",
                    note_additions(),
                ),
                contradictions=explain_times(crossing),
            ),
        )


@dataclass(frozen=True)
class Stretch:
    """The server, and multiples of the rows that cross, and are added to, at the most chunks."""

    server: Server
    volume: float = 1.0

    def longer(self, strains: Sequence[Strain]) -> float:
        """Return how many times as long an epoch becomes."""
        few, many = (
            price_path(strain.path, self.server.platform, make_kernel("gcn"))
            for strain in (strains[0], strains[-1])
        )
        moved = (*LINK_STAGES, HOST_STAGE)
        grown = sum(
            seconds * (self.volume if stage in moved else 1.0) for stage, seconds in many.items()
        )
        return grown / sum(few.values())


def explain_times(found: Sequence[Sequence[Strain]]) -> tuple[Contradiction, ...]:
    """Explain each graph with a growth outside of section 7.5's range."""
    low, high = LONGER
    asked = list(zip(LARGE, map(_ask_longer, LARGE, found), strict=True))
    model = Stretch(fitted_server())
    told: list[Contradiction] = []
    for graph, quantity in asked:
        value = quantity.predict(model)
        if low <= value <= high:
            continue
        first, *_, last = list_alphas(graph)
        volume = Assumption[Stretch](
            "rows that cross at four times the chunks, over those at the first number",
            last / first, "x", "alpha, HongTu Table 3",
            scale_field("volume"),
        )  # fmt: skip
        # GCN has no attention over edges, which is the last assumption.
        rates = [_of_server(each) for each in list_assumptions(model.server)[:-1]]
        nearest = replace(quantity, quoted=low if value < low else high)
        others = [other for _, other in asked]
        told += find_contradictions(model, [nearest], [volume, *rates], others, tolerance=ANY)
    return tuple(told)


def _ask_longer(graph: PaperGraph, strains: Sequence[Strain]) -> Quantity[Stretch]:
    """Return the growth of an epoch as a quantity, beside the lower end of the paper's range."""

    def predict(model: Stretch) -> float:
        return model.longer(strains)

    return Quantity(f"the growth of {graph.name}'s epoch", predict, LONGER[0], "x")


def _of_server(assumption: Assumption[Server]) -> Assumption[Stretch]:
    """Return an assumption of the server as one of a stretch."""

    def scale(model: Stretch, factor: float) -> Stretch:
        return replace(model, server=assumption.scale(model.server, factor))

    return Assumption(
        assumption.label, assumption.stated, assumption.unit, assumption.source, scale
    )


def _label(graph: PaperGraph) -> str:
    return f"{graph.name}, from {graph.chunks}"


def tabulate_memory(found: Sequence[Sequence[Strain]], uncounted: str) -> tuple[TableRow, ...]:
    """Return a row a graph: bytes, and the percentage that more chunks save."""
    rows = []
    for graph, strains in zip(LARGE, found, strict=True):
        sizes = [strain.device_bytes for strain in strains]
        saved = 100 * (1 - sizes[-1] / sizes[0])
        less = Cell(saved, "%", quoted_text=show_range(LESS_MEMORY), uncounted=uncounted)
        rows.append(TableRow(_label(graph), (*(Cell(size, "B") for size in sizes), less)))
    return tuple(rows)


def tabulate_time(graph: PaperGraph, strains: Sequence[Strain]) -> TableRow:
    """Return the seconds of a graph, and the percentage by which an epoch becomes longer."""
    seconds = [strain.epoch_s for strain in strains]
    longer = Cell(100 * (seconds[-1] / seconds[0] - 1), "%", quoted_text=show_growth(LONGER))
    return TableRow(_label(graph), (*(Cell(each, "s") for each in seconds), longer))
