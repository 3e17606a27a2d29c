"""``gnnbench reproduce programs``: strategies named after a library beside the library's program.

Each strategy rebuilds a library's training from parts. The library's own program does the same work
without this project, so their ratio shows what the rebuilding costs or saves. Both take turns.
If the ratio is far from 1, the stages of both say why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from gnnbench import datasets
from gnnbench.comparison import Request, make_setting
from gnnbench.comparison.ranking import find_difference, make_row
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.host.cores import count_cores
from gnnbench.host.progress import doing
from gnnbench.host.resume import once
from gnnbench.plugins import Registry
from gnnbench.programs.messages import ProgramFailedError
from gnnbench.programs.reasons import explain, time_stages
from gnnbench.programs.run import AnyProgram, make_task
from gnnbench.programs.trial import TrialSizes, make_trial, run_trial
from gnnbench.records import Cell, Mode, RunResult, Table, TableRow

NAME = "programs"
MODES: tuple[Mode, ...] = ("full-graph", "mini-batch")
#: The task, where its graph does not decide.
HIDDEN, EPOCHS, BATCH, FANOUTS = 256, 10, 1024, (25, 10)
#: Ratios further from 1 than this have their reason below the table.
FAR = 1.15
NOTHING = Cell(text="-", provenance="measured")
#: By default, the table has the data sets in the data folders with the fewest edges.
GRAPHS = 6


def list_graphs() -> tuple[str, ...]:
    """Return the names of the smallest data sets in the data folders, by edges."""
    files = [entry for entry in datasets.list_datasets() if entry.kind == "file"]
    files.sort(key=lambda entry: entry.edges or 0)
    return tuple(entry.name for entry in files[:GRAPHS])


def measure(registry: Registry, graphs: Sequence[str] = (), chosen: Sequence[str] = ()) -> Table:
    """Return the table: a row for each graph, mode and model, by default of small graphs at hand.

    ``chosen`` are models and modes; without any of one kind, the table has all of it. Three cells
    for each program have the ratio of times and the ends of its interval. Raises ``UsageError`` for
    a model that no program trains.
    """
    programs = [each for _, each in sorted(registry.programs.items()) if each.peer]
    known = list(dict.fromkeys(model for each in programs for model in each.models))
    for word in chosen:
        if word not in (*MODES, *known):
            names = ", ".join((*MODES, *known))
            raise UsageError(f"no row is of model or mode {word!r}; the rows are of {names}.")
    modes = [mode for mode in MODES if mode in chosen] or MODES
    models = [model for model in known if model in chosen] or known
    tried = list(product(graphs or list_graphs(), modes, models))
    rows: list[TableRow] = []
    notes: list[str] = []
    with doing("training beside programs", len(tried)) as training:
        for name, mode, model in tried:
            label = f"{name}, {mode}, {model}"
            own = [each for each in programs if mode in each.modes and model in each.models]
            request = _make_request(registry, own, name, mode, model)
            runs = once(partial(_train, request, registry), NAME, label)
            cells: list[Cell] = []
            for program in programs:
                found, note = _set_beside(program, runs, request)
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


def _make_request(
    registry: Registry, programs: Sequence[AnyProgram], name: str, mode: Mode, model: str
) -> Request:
    """Return the request for the programs and their peers."""
    data = datasets.scale_features(datasets.load(name), "auto")
    sizes = TrialSizes(HIDDEN, EPOCHS, BATCH, FANOUTS, count_cores())
    peers = tuple(dict.fromkeys(each.peer for each in programs))
    trial = make_trial(programs, registry, data, mode, model, sizes)
    return replace(trial, strategies=peers)


def _train(request: Request, registry: Registry) -> tuple[RunResult, ...]:
    """Return the runs of the programs and of their peers, which took turns."""
    try:
        return run_trial(request, registry)
    except IncompatiblePartsError:
        return ()


def _set_beside(
    program: AnyProgram, runs: Sequence[RunResult], request: Request
) -> tuple[list[Cell], str]:
    """Return the three cells of a program, and a note if the ratio is far from 1 or is missing."""
    rows = {run.label: make_row(run.label, run.mode, [run]) for run in runs}
    own, peer = rows.get(program.name), rows.get(program.peer)
    if own is None or peer is None:
        return [NOTHING] * 3, ""
    for row in (peer, own):
        if not row.done:
            return [NOTHING] * 3, f"{row.label}: {row.runs[0].reason}"
        if row.equivalence is not None and not row.equivalence.holds:
            return [NOTHING] * 3, f"{row.label} is {row.why_not}"
    found = find_difference(peer, own)
    if found is None:
        return [NOTHING] * 3, ""
    cells = [Cell(value, "x", "measured") for value in (found.ratio, found.low, found.high)]
    told = []
    if not 1.0 / FAR <= found.ratio <= FAR:
        which = "faster" if found.ratio > 1.0 else "slower"
        reason = "the interval holds 1, so measure again on a quiet machine"
        if not found.low <= 1.0 <= found.high:
            reason = _give_reason(program, peer.done[0], own.done[0], request)
        told.append(
            f"{program.peer} is {max(found.ratio, 1 / found.ratio):.2f} times {which}: {reason}"
        )
    if own.why_not:
        told.append(f"{program.name} does other work ({own.why_not})")
    return cells, "; ".join(told)


def _give_reason(program: AnyProgram, peer: RunResult, own: RunResult, request: Request) -> str:
    """Return why a strategy is faster or slower than its program, by the stages of both."""
    try:
        stages = time_stages(program, own, make_task(make_setting(request), own.mode))
    except ProgramFailedError as error:
        return f"its stages are unknown, since {error}"
    return explain(peer, own, stages) if stages else f"{program.name} states no stages"
