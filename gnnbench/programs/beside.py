"""``gnnbench reproduce programs``: strategies named after a library beside the library's program.

Each strategy rebuilds a library's training from parts. The library's own program does the same work
without this project, so their ratio shows what the rebuilding costs or saves. Both take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

from gnnbench import datasets
from gnnbench.comparison import Request, compare
from gnnbench.comparison.ranking import find_difference, make_row
from gnnbench.errors import IncompatiblePartsError
from gnnbench.host.cores import count_cores
from gnnbench.host.progress import doing
from gnnbench.host.resume import once
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.plugins import Registry
from gnnbench.programs.rows import ProgramRows
from gnnbench.programs.run import AnyProgram
from gnnbench.records import Cell, Mode, RunResult, Table, TableRow, Workload

NAME = "programs"
MODES: tuple[Mode, ...] = ("full-graph", "mini-batch")
#: The task, where its graph does not decide.
HIDDEN, EPOCHS, BATCH, FANOUTS = 256, 10, 1024, (25, 10)
#: Ratios further from 1 than this are named below the table.
FAR = 1.15


def list_graphs() -> tuple[str, ...]:
    """Return the names of the data sets in the data folders."""
    return tuple(entry.name for entry in datasets.list_datasets() if entry.kind == "file")


def measure(registry: Registry, graphs: Sequence[str] = ()) -> Table:
    """Return the table: a row for each graph, mode and model, by default of all graphs at hand.

    Three cells for each program have the ratio of times and the ends of its interval.
    """
    programs = [each for _, each in sorted(registry.programs.items()) if each.peer]
    models = list(dict.fromkeys(model for each in programs for model in each.models))
    tried = list(product(graphs or list_graphs(), MODES, models))
    rows: list[TableRow] = []
    notes: list[str] = []
    with doing("training beside programs", len(tried)) as training:
        for name, mode, model in tried:
            label = f"{name}, {mode}, {model}"
            own = [each for each in programs if mode in each.modes and model in each.models]
            runs = once(partial(_train, registry, own, name, mode, model), NAME, label)
            cells: list[Cell] = []
            for program in programs:
                found, note = _set_beside(program, runs)
                cells += found
                notes += [f"{label}: {note}"] if note else []
            rows.append(TableRow(label, tuple(cells)))
            training.advance()
    titles = [(f"{each.name} / {each.peer}", "from", "to") for each in programs]
    return Table(
        NAME,
        f"Times of whole programs over those of the strategies that rebuild them, above 1 if the "
        f"strategy is faster; {count_cores()} threads, measured here in turns",
        tuple(title for each in titles for title in each),
        tuple(rows),
        tuple(notes),
    )


def _train(
    registry: Registry,
    programs: Sequence[AnyProgram],
    name: str,
    mode: Mode,
    model: str,
) -> tuple[RunResult, ...]:
    """Return the runs of the programs and of their peers, which took turns."""
    data = datasets.scale_features(datasets.load(name), "auto")
    workload = Workload(
        model=model,
        dims=(data.num_features, HIDDEN, data.num_classes),
        epochs=EPOCHS,
        batch_size=BATCH,
        fanouts=FANOUTS,
        seed=0,
        learning_rate=registry.model(model).learning_rate,
        threads=count_cores(),
    )
    request = Request(
        tuple(dict.fromkeys(each.peer for each in programs)),
        data,
        workload,
        load_platform(LOCAL),
        modes=(mode,),
        programs=ProgramRows(programs, registry),
    )
    try:
        found = compare(request, registry)
    except IncompatiblePartsError:
        return ()
    if found.interrupted:
        raise KeyboardInterrupt
    return found.runs


def _set_beside(program: AnyProgram, runs: Sequence[RunResult]) -> tuple[list[Cell], str]:
    """Return the three cells of a program, and a note if the ratio is far from 1 or is missing."""
    rows = {run.label: make_row(run.label, run.mode, [run]) for run in runs}
    own, peer = rows.get(program.name), rows.get(program.peer)
    if own is None or peer is None:
        return [Cell(text="-")] * 3, ""
    for row in (peer, own):
        if not row.done:
            return [Cell(text="-")] * 3, f"{row.label}: {row.runs[0].reason}"
        if row.equivalence is not None and not row.equivalence.holds:
            return [Cell(text="-")] * 3, f"{row.label} is {row.why_not}"
    found = find_difference(peer, own)
    if found is None:
        return [Cell(text="-")] * 3, ""
    cells = [Cell(value, "x", "measured") for value in (found.ratio, found.low, found.high)]
    told = []
    if not 1.0 / FAR <= found.ratio <= FAR:
        which = "faster" if found.ratio > 1.0 else "slower"
        told.append(f"{program.peer} is {max(found.ratio, 1 / found.ratio):.2f} times {which}")
    if own.why_not:
        told.append(f"{program.name} does other work ({own.why_not})")
    return cells, "; ".join(told)
