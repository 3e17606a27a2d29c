"""The ledger: every published measurement beside its prediction.

There is a table for each kind of machine, the worst prediction first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from statistics import median
from typing import ClassVar, get_args

from gnnbench.constants import Bound
from gnnbench.records import Cell, LedgerEntry, MachineKind, Table, TableRow
from gnnbench.reproduce.studies import Ledger
from gnnbench_plugins.studies import find_fitted
from gnnbench_plugins.studies.validation.prediction import predict
from gnnbench_plugins.studies.validation.published import (
    Aggregation,
    FullGraphEpoch,
    MiniBatchEpoch,
    PublishedCell,
    PublishedSource,
    read_sources,
)

#: By what a prediction may be off to count as near.
NEAR: Bound[float] = 2.0
KINDS: tuple[MachineKind, ...] = get_args(MachineKind)
NOTES = (
    "predicted by the parts that stand for each library: bytes, launches and calls that its "
    "kernels, its sampler and its loader make, on platforms of published rates",
    "a constant that was fitted on a measurement is named in its fitted_on, and such a "
    "measurement counts as touched; the table by source says how near the sources are of which "
    "no measurement was touched",
    "--json has each measurement's quote, how it was taken, its doubts, what of it is inferred, "
    "and where the sizes come from",
)
#: Families of measurements that stay off, by what their ids begin with, and what is not in the
#: model there.
LEFT_OUT = {
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
    "salient-arxiv-pyg-epoch": "a worker of PyG's loader starts in a second, as GNNLab's "
    "measurements have it, and twenty of them do here in an epoch of 1.7 s",
    "salient-products-pyg-epoch": "a worker of PyG's loader starts in a second, as GNNLab's "
    "measurements have it, and twenty of them do here in an epoch of 8.9 s",
}


class Validation(Ledger):
    """Measurements that others made, each beside this project's prediction."""

    name: ClassVar[str] = "validation"
    summary: ClassVar[str] = "measurements made by others on their machines, beside predictions"

    def entries(self) -> tuple[LedgerEntry, ...]:
        return self._entries

    @cached_property
    def _entries(self) -> tuple[LedgerEntry, ...]:
        return tuple(
            make_entry(published, cell, predict(cell))
            for published in read_sources()
            for cell in published.cell
        )

    def run(self) -> tuple[Table, ...]:
        return tabulate(self.entries())


def make_entry(published: PublishedSource, cell: PublishedCell, predicted: float) -> LedgerEntry:
    """Make the entry of a measurement with its prediction."""
    return LedgerEntry(
        id=cell.id,
        source=published.source,
        library=f"{cell.library} {cell.version}",
        machine=cell.machine,
        kind=cell.kind,
        what=cell.what,
        measured=cell.measured,
        predicted=predicted,
        unit=cell.unit,
        quote=cell.quote,
        conditions=published.about,
        doubts=cell.doubts,
        inferred=cell.inferred,
        sizes=describe_sizes(cell),
        graph=cell.task.graph,
        model="" if isinstance(cell.task, Aggregation) else cell.task.model,
        kernel=cell.kernel,
        fitted_on=find_fitted(cell.id, cell.fitted_on),
    )


def describe_sizes(cell: PublishedCell) -> str:
    """Say where the sizes behind a prediction come from."""
    task = cell.task
    if isinstance(task, MiniBatchEpoch):
        inputs = "|V^0| as published, the rest " if task.inputs else ""
        return f"mini-batches: {inputs}drawn from a stand-in of {task.graph} of full size"
    if isinstance(task, FullGraphEpoch):
        replicas = " and replication factor" if task.replication > 1 else ""
        part = f", gone through at {task.scale:g} of the graph" if task.scale < 1 else ""
        return f"published counts{replicas}{part}"
    return "published counts"


# --------------------------------------------------------------------------- tables


def tabulate(entries: Sequence[LedgerEntry]) -> tuple[Table, ...]:
    """Return how near the predictions are, in sentences and by kind, then every entry."""
    kinds = [(kind, [e for e in entries if e.kind == kind]) for kind in KINDS]
    rows = [(kind, chosen) for kind, chosen in kinds if chosen]
    summary = Table(
        name="validation",
        title=sum_up(entries),
        columns=("measurements", "untouched", "median factor", f"within {NEAR:g}x"),
        rows=tuple(TableRow(kind, _count(chosen)) for kind, chosen in (*rows, ("all", entries))),
        notes=NOTES,
    )
    by_source = _list_sources(entries)
    return (summary, by_source, *[_list_kind(kind, chosen) for kind, chosen in rows])


def _name_source(entries: Sequence[LedgerEntry]) -> str:
    """Return the common beginning of the ids of a source's entries."""
    if len(entries) == 1:
        return entries[0].id
    words = zip(*(entry.id.split("-") for entry in entries), strict=False)
    alike = itertools.takewhile(lambda each: len(set(each)) == 1, words)
    return "-".join(each[0] for each in alike)


def _list_sources(entries: Sequence[LedgerEntry]) -> Table:
    """Return how near each source is; sources without a touched measurement come first."""
    sources: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        sources.setdefault(entry.source, []).append(entry)
    untouched = {
        name: chosen
        for name, chosen in sources.items()
        if not any(entry.fitted_on for entry in chosen)
    }
    rows = sorted(sources.items(), key=lambda each: (each[0] not in untouched, each[0]))
    labelled = [
        (
            _name_source(chosen)
            if name in untouched
            else f"{_name_source(chosen)} (in part fitted)",
            chosen,
        )
        for name, chosen in rows
    ]
    whole = [entry for chosen in untouched.values() for entry in chosen]
    if whole:
        labelled.append(("sources untouched, all", whole))
    return Table(
        name="validation-sources",
        title="validation by source: those first on no measurement of which a constant was fitted",
        columns=("measurements", "untouched", "median factor", f"within {NEAR:g}x"),
        rows=tuple(TableRow(name, _count(chosen)) for name, chosen in labelled),
    )


def sum_up(entries: Sequence[LedgerEntry]) -> str:
    """Say how many measurements there are, and how near the predictions of untouched ones are."""
    untouched = [entry for entry in entries if not entry.fitted_on]
    if not untouched:
        return f"{len(entries)} measurements made by others, every one of which is fitted on."
    factor, share = median(entry.factor for entry in untouched), near_share(untouched)
    by_kind = [
        f"{kind} {median(chosen):.1f}x of {len(chosen)}"
        for kind in KINDS
        if (chosen := [entry.factor for entry in untouched if entry.kind == kind])
    ]
    fitted = len(entries) - len(untouched)
    besides = f"; {fitted} more have a constant fitted on them" if fitted else ""
    return (
        f"{len(untouched)} measurements made by others, on none of which a constant was fitted, "
        f"are predicted within a factor of {factor:.1f} in the median, {100 * share:.0f} % of them "
        f"within {NEAR:g}x{besides}. By kind the median factor is {', '.join(by_kind)}."
    )


def near_share(entries: Sequence[LedgerEntry]) -> float:
    """Return the share of entries that are predicted within ``NEAR``."""
    return sum(entry.factor <= NEAR for entry in entries) / len(entries)


def _count(entries: Sequence[LedgerEntry]) -> tuple[Cell, ...]:
    untouched = [entry for entry in entries if not entry.fitted_on]
    counts = (Cell(value=len(entries)), Cell(value=len(untouched)))
    if not untouched:
        return (*counts, Cell(), Cell())
    return (
        *counts,
        Cell(value=median(entry.factor for entry in untouched)),
        Cell(value=100 * near_share(untouched), unit="%"),
    )


def _list_kind(kind: MachineKind, entries: Sequence[LedgerEntry]) -> Table:
    """Return the entries of one kind of machine, the worst predictions first."""
    worst_first = sorted(entries, key=lambda entry: (-entry.factor, entry.id))
    return Table(
        name=f"validation-{kind}",
        title=f"{kind}: measured by others and predicted, the worst first",
        columns=("prediction and measurement",),
        rows=tuple(
            TableRow(
                f"{entry.id} · {entry.machine}",
                (
                    Cell(
                        value=entry.predicted,
                        unit=entry.unit,
                        quoted=entry.measured,
                        fitted_on=entry.fitted_on,
                    ),
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
