"""The ledger: every published measurement beside its prediction.

There is a table for each kind of machine, the worst prediction first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import ClassVar, get_args

from gnnbench.constants import Bound
from gnnbench.price.held_out import find_group_factors, list_held_out, share_within
from gnnbench.price.model_error import find_path
from gnnbench.records import (
    Cell,
    LedgerEntry,
    MachineKind,
    Mode,
    Origin,
    Subject,
    Table,
    TableRow,
)
from gnnbench.reproduce.studies import Ledger
from gnnbench_plugins.studies.validation.groups import join_groups, list_fits
from gnnbench_plugins.studies.validation.leave_out import LeftOutSource, read_left_out
from gnnbench_plugins.studies.validation.prediction import (
    count_epoch_edges,
    predict,
    read_plan,
)
from gnnbench_plugins.studies.validation.published import (
    Aggregation,
    FullGraphEpoch,
    LayerForward,
    MiniBatchEpoch,
    PublishedCell,
    PublishedSource,
    read_sources,
)

#: By what a prediction may be off to count as near.
NEAR: Bound[float] = 2.0
KINDS: tuple[MachineKind, ...] = get_args(MachineKind)
#: Why a measurement does not count on which nothing was fitted.
DEPENDENT = "of groups that are not held out"
COLUMNS = ("measurements", "groups", "held-out groups", "median factor", f"within {NEAR:g}x")
NOTES = (
    "predicted as `gnnbench plan` does: by the bytes, launches and calls that a library's kernels, "
    "its sampler and its loader make, on platforms of published rates",
    "measurements of one group are not independent: multiples, sums or neighbours of each other in "
    "a table, the same quantity measured again, or measurements that a constant was fitted on "
    "together. A group counts once, by the median of its absolute log errors, and an equal "
    "measurement once within it. Factors and shares are over groups",
    "a group is held out if no constant was fitted on any of its measurements, and no reading of "
    "one was chosen in view of it; fitted_on names both",
    "--json has each measurement's quote, how it was taken, its doubts, what of it is inferred, "
    "and where the sizes come from",
)
LEAVING_OUT = (
    "left out: all measurements of the source, by constants found without it. A constant that was "
    "fitted on the source is fitted on the measurements of the other sources that move with it: "
    "the value within its plausible range with the least median factor. Where none moves, it is "
    "the geometric middle of that range",
    "no constant was fitted on the other sources, so that leaving them out changes no prediction: "
    "their factors are those of the ledger",
)
#: Families of measurements that stay off, by what their ids begin with, and what is not in the
#: model there.
LEFT_OUT = {
    "dgl05bench-cora": "epochs of milliseconds, and scores of eight heads",
    "dglreadme-reddit": "sums of 16 columns by DGL 0.3 on a P100 take longer than their bytes",
    "pyg139": "epochs of milliseconds, and scores of eight heads",
    "pygreadme": "epochs of milliseconds, in which calls take a fifth of the usual time for GCN; "
    "DGL 0.2 did not fuse attention",
    "dgl3674": "sizes are the defaults of a script, and what processes of several GPUs that sample "
    "on the host take from each other is not priced",
    "quiverdgl-products-gpu-cpu": "four workers draw almost three times as fast as elsewhere, and "
    "the host is not named",
    "gnnlab-t5-gsg-uk": "the stand-in of a web graph has none of its locality",
    "gnnlab-t4": "eight processes of PyG with five workers each take seconds more in every epoch, "
    "on graphs of all sizes alike, and the source does not say where",
    "dgl1364-sage-m5d-dgl": "DGL of March 2020 is older than its fused kernels on CPUs, and how "
    "many threads its workers left to training is not said",
    "dgl3924-graphconv": "fixed costs of 64 hardware threads on tensors of 4 columns",
    "dgl4048-graphconv": "fixed costs of 64 hardware threads on tensors of 4 columns",
    "hongtu-t5-distgnn-gat": "how many heads GAT has is not said, and one is taken",
    "hongtu-t7-distgnn-gat": "how many heads GAT has is not said, and one is taken",
    "hongtu-t7-distgnn-gcn-it": "DistGNN cuts vertices, whose copies of a web graph's hubs are "
    "more than METIS's replication factor says",
    "hongtu-t6-sancus-gcn-opt": "how often Sancus broadcasts is not said, and how it packs what "
    "it sends",
    "hongtu-t6-distdgl": "where DistDGL keeps features and who samples is not said",
}


class Validation(Ledger):
    """Measurements that others made, each beside this project's prediction."""

    name: ClassVar[str] = "validation"
    summary: ClassVar[str] = "measurements made by others on their machines, beside predictions"

    def entries(self) -> tuple[LedgerEntry, ...]:
        return self._entries

    @cached_property
    def _entries(self) -> tuple[LedgerEntry, ...]:
        return make_entries(predict_all(read_sources()))

    def run(self) -> tuple[Table, ...]:
        return tabulate(self.entries(), read_sources(), read_left_out())


def predict_all(sources: Iterable[PublishedSource]) -> dict[str, float]:
    """Return the prediction of each cell, by id."""
    return {cell.id: predict(cell) for published in sources for cell in published.cell}


def make_entries(
    predicted: Mapping[str, float], sources: Sequence[PublishedSource] | None = None
) -> tuple[LedgerEntry, ...]:
    """Return the measurements that have a prediction, of all sources unless some are given."""
    sources = read_sources() if sources is None else sources
    groups = join_groups(sources)
    return tuple(
        _make_entry(published, cell, groups[cell.id], predicted[cell.id])
        for published in sources
        for cell in published.cell
        if cell.id in predicted
    )


def _make_entry(
    published: PublishedSource, cell: PublishedCell, group: str, predicted: float
) -> LedgerEntry:
    """Return a measurement with its prediction."""
    task, stack = cell.task, cell.stack
    part = isinstance(task, Aggregation | LayerForward) or bool(getattr(task, "stages", ()))
    mode: Mode | None = "full-graph" if isinstance(task, FullGraphEpoch) else "mini-batch"
    if part:
        mode = None
    path = find_path(cell.kind, stack.kernel, mode, count_epoch_edges(task))
    if path is None:
        raise ValueError(f"cell {cell.id} has no kind of machine")
    return LedgerEntry(
        id=cell.id,
        group=group,
        machine=cell.machine,
        what=cell.what,
        measured=cell.measured,
        predicted=predicted,
        unit=cell.unit,
        path=path,
        subject=Subject(
            f"{stack.library} {stack.version}",
            stack.kernel,
            task.graph,
            "" if isinstance(task, Aggregation) else task.model,
        ),
        origin=Origin(
            published.source,
            cell.quote,
            published.about,
            cell.reading.doubts,
            cell.reading.inferred,
            describe_sizes(cell),
        ),
        fitted_on=list_fits(cell),
        plan=read_plan(cell),
    )


def describe_sizes(cell: PublishedCell) -> str:
    """Return where the sizes come from that a prediction is made of."""
    task = cell.task
    if isinstance(task, MiniBatchEpoch):
        inputs = "|V^0| as published, the rest " if task.batches.inputs else ""
        return f"mini-batches: {inputs}drawn from a stand-in of {task.graph} of full size"
    if isinstance(task, FullGraphEpoch):
        replicas = " and replication factor" if task.replication > 1 else ""
        part = f", gone through at {task.scale:g} of the graph" if task.scale < 1 else ""
        return f"published counts{replicas}{part}"
    return "published counts"


# --------------------------------------------------------------------------- tables


def tabulate(
    entries: Sequence[LedgerEntry],
    sources: Sequence[PublishedSource],
    left_out: Sequence[LeftOutSource] = (),
) -> tuple[Table, ...]:
    """Return how near the predictions are, by kind and by source, and then every entry."""
    kinds = [(kind, [e for e in entries if e.kind == kind]) for kind in KINDS]
    rows = [(kind, chosen) for kind, chosen in kinds if chosen]
    omitted = tuple(f"{each.source}: {text}" for each in sources for text in each.omitted)
    held_out = list_held_out(entries)
    summary = Table(
        name="validation",
        title=sum_up(entries),
        columns=COLUMNS,
        rows=tuple(
            TableRow(kind, _count(chosen, held_out)) for kind, chosen in (*rows, ("all", entries))
        ),
        notes=(
            *NOTES,
            count_commands(entries),
            *(f"left out of the ledger: {text}" for text in omitted),
        ),
    )
    by_source = _list_sources(entries, held_out, left_out)
    return (summary, by_source, *[_list_kind(kind, chosen, held_out) for kind, chosen in rows])


def _list_sources(
    entries: Sequence[LedgerEntry],
    held_out: Sequence[LedgerEntry],
    left_out: Sequence[LeftOutSource],
) -> Table:
    """Return how near each source is, and how near it is when it is left out."""
    sources: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        sources.setdefault(entry.source, []).append(entry)
    found = {each.source: each for each in left_out}
    rows, every = [], []
    for name, chosen in sorted(sources.items()):
        without = found.get(name)
        factors = without.factors if without is not None else find_group_factors(chosen)
        every += list(factors.values())
        rows.append(TableRow(name, (*_count(chosen, held_out), *_state(list(factors.values())))))
    rows.append(TableRow("all", (*_count(entries, held_out), *_state(every))))
    told = tuple(f"without {each.source}: {each.how}" for each in left_out if each.how)
    return Table(
        name="validation-sources",
        title="validation by source, and with the source left out of every fit",
        columns=(*COLUMNS, "median factor, left out", f"within {NEAR:g}x, left out"),
        rows=tuple(rows),
        notes=(*LEAVING_OUT, *told),
    )


def sum_up(entries: Sequence[LedgerEntry]) -> str:
    """Return how many measurements there are, and how near the predictions of held-out groups."""
    sources = len({entry.source for entry in entries})
    groups = len({entry.group for entry in entries})
    head = f"{len(entries)} measurements of {sources} sources form {groups} independent groups"
    held_out = list_held_out(entries)
    factors = find_group_factors(held_out).values()
    if not factors:
        return f"{head}, none of which is held out of every fit."
    kinds = [
        (kind, find_group_factors([entry for entry in held_out if entry.kind == kind]).values())
        for kind in KINDS
    ]
    by_kind = [
        f"{kind} {median(each):.2g}x ({len(each)} group{'s' * (len(each) > 1)})"
        for kind, each in kinds
        if each
    ]
    return (
        f"{head}; {len(factors)} groups are held out of every fit. The median error of their "
        f"predictions is {median(factors):.2g}x, and {100 * share_within(factors, NEAR):.0f} % are "
        f"within {NEAR:g}x. The median by kind is {', '.join(by_kind)}."
    )


def count_commands(entries: Sequence[LedgerEntry]) -> str:
    """Return how many predictions a plan has, and why the others have no command."""
    planned = sum(bool(entry.plan.command) for entry in entries)
    reasons = Counter(entry.plan.reason for entry in entries if not entry.plan.command)
    others = "; ".join(f"{count} have no command: {reason}" for reason, count in reasons.items())
    said = (
        f"{planned} of {len(entries)} predictions are those of a `gnnbench plan` command to the "
        f"digit, which --details prints and --json has as command"
    )
    return f"{said}; {others}" if others else said


def _count(entries: Sequence[LedgerEntry], held_out: Sequence[LedgerEntry]) -> tuple[Cell, ...]:
    """Return the columns of a row: counts, and how near the held-out groups are."""
    ids = {entry.id for entry in held_out}
    factors = list(find_group_factors([e for e in entries if e.id in ids]).values())
    groups = len({entry.group for entry in entries})
    return (Cell(len(entries)), Cell(groups), Cell(len(factors)), *_state(factors))


def _state(factors: Sequence[float]) -> tuple[Cell, Cell]:
    """Return the median factor and the share that is near; empty cells without any."""
    if not factors:
        return Cell(text="-"), Cell(text="-")
    return Cell(median(factors)), Cell(100 * share_within(factors, NEAR), unit="%")


def _list_kind(
    kind: MachineKind, entries: Sequence[LedgerEntry], held_out: Sequence[LedgerEntry]
) -> Table:
    """Return the entries of one kind of machine, the worst predictions first."""
    ids = {entry.id for entry in held_out}
    worst_first = sorted(entries, key=lambda entry: (-entry.factor, entry.id))
    return Table(
        name=f"validation-{kind}",
        title=f"{kind}: measured by others and predicted, the worst first",
        columns=("prediction and measurement", "group"),
        rows=tuple(
            TableRow(
                f"{entry.id} · {entry.machine}",
                (
                    Cell(
                        value=entry.predicted,
                        unit=entry.unit,
                        quoted=entry.measured,
                        fitted_on=entry.fitted_on,
                        uncounted="" if entry.fitted_on or entry.id in ids else DEPENDENT,
                    ),
                    Cell(text=entry.group),
                ),
            )
            for entry in worst_first
        ),
        notes=tuple(
            f"{family}: {reason}"
            for family, reason in LEFT_OUT.items()
            if any(entry.id.startswith(family) and entry.factor > NEAR for entry in entries)
        ),
    )
