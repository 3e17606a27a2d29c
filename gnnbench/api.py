"""gnnbench from Python: compare strategies, plan and choose them, by names or with objects.

Values given here mean the same as text on the command line::

    import gnnbench
    found = gnnbench.compare(["hyscale", "hongtu"], dataset="cora", epochs=5)
    found                # in a notebook: who wins, by how much, and why
    found.frame()        # every run with all its figures, as a pandas DataFrame
    found.save("cora.json")

``options`` is ``--set``; ``plugins`` are modules, ``.py`` files, objects with hooks, and classes.
Make your own data sets with ``gnnbench.datasets.from_arrays`` and its siblings for PyG, DGL and
NetworkX. Errors are ``gnnbench.errors.GnnbenchError``, each one sentence that says how to fix it; a
run that fails is a row with a reason.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnbench.errors import UsageError
from gnnbench.host.progress import shown_by
from gnnbench.host.waiting import wait_briefly
from gnnbench.jobs.groups import Training
from gnnbench.jobs.job import AdviceJob, Job, PlanJob
from gnnbench.jobs.limits import show_value
from gnnbench.jobs.options import asks, list_bound

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

    from gnnbench.advice import Advice
    from gnnbench.comparison.planning import PlannedJob
    from gnnbench.plugins import Registry
    from gnnbench.records import Comparison, RunResult, Table
    from gnnbench.report.results.schema import ResultDocument


@asks(Job)
def compare(job: Job, given: Collection[str]) -> ComparisonResult:
    """Train each strategy on one dataset and compare losses, times and traffic.

    Parameters are the options of ``gnnbench compare``. Raises ``UsageError`` and related errors.
    """
    registry = _load_plugins(job)

    from gnnbench.comparison import compare as train_all
    from gnnbench.programs.rows import make_request

    demanded = tuple(each.name for each in list_bound(Job, given))
    with _own_threads(), shown_by(job.progress):
        request = make_request(job, registry, demanded)
        return ComparisonResult(train_all(request, registry, ("gnnbench.compare",)))


@asks(PlanJob)
def plan(job: PlanJob, given: Collection[str]) -> PlanResult:
    """Predict memory, traffic and time of a strategy without training.

    Over a ``dataset``, a dry run goes through every step of training. The numbers are the same as
    from :func:`compare` with modelled times. With ``vertices`` and ``edges`` (``"1G"`` is a
    billion) and ``dims``, a graph is drawn edge by edge and counted.

    Raises ``UsageError`` and related errors for unknown names and jobs that cannot be planned.
    """
    job.refuse_ignored(given)
    registry = _load_plugins(job)

    from gnnbench.comparison.planning import make_plan, prepare_plan

    found = prepare_plan(job, registry)
    return PlanResult(found, *make_plan(found, registry, []))


@asks(AdviceJob)
def advise(job: AdviceJob, given: Collection[str]) -> AdviceResult:
    """Find the combination of parts and settings to use on a graph and a machine.

    Combinations of the parts of ``strategies``, by default of all, are planned, and the best
    ``train`` of each mode are trained. ``target`` is the quantity to minimise. ``device_memory`` is
    bytes or text such as ``"24GB"``; ``changes=False`` is ``--no-changes``. Raises ``UsageError``
    and related errors for unknown names, for a machine without measurements, and if no combination
    fits.
    """
    job.refuse_ignored(given)
    registry = _load_plugins(job)

    from gnnbench.advice import preparation
    from gnnbench.advice.advise import advise as search

    with _own_threads(), shown_by(job.progress):
        question = preparation.make_question(job, registry)
        count = preparation.count_trained(question) if job.train is None else job.train
        found = search(question, target=job.target, train=count, vary=job.changes)
    return AdviceResult(found)


# --------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult:
    """The result of :func:`compare`; printed, it looks as on the command line.

    ``comparison`` has everything as records, every run's timeline included.
    """

    comparison: Comparison

    @property
    def answer(self) -> tuple[str, ...]:
        """Who is fastest in each group, by how much and why, in sentences."""
        from gnnbench.comparison.ranking import group_runs
        from gnnbench.report.verdict import summarise

        return tuple(summarise(group_runs(self.comparison)))

    @property
    def document(self) -> ResultDocument:
        """The content of the result file, as written by ``--json``."""
        from gnnbench.report.results.schema import to_document

        return to_document(self.comparison)

    def frame(self) -> DataFrame:
        """Return a row for every run: its setting, its outcome, and every metric by name.

        Metrics are in unprefixed SI units. ``provenance`` is the provenance of the times.
        """
        from gnnbench.report.results.frames import list_lines, to_frame

        return to_frame(list_lines(self.document))

    def samples(self) -> DataFrame:
        """Return a row for every raw sample of every metric, such as each epoch's time."""
        from gnnbench.report.results.frames import make_samples

        return make_samples(self.document)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result completely or not at all, and return the path.

        It is a ``.json`` result file, an ``.html`` page, or the frame as ``.csv``.
        """
        from gnnbench.report.html import write_html
        from gnnbench.report.results.frames import to_csv
        from gnnbench.report.results.output import write_text
        from gnnbench.report.results.schema import write_json

        target = _choose_file(path, ".json", ".html", ".csv")
        if target.suffix == ".json":
            write_json(self.document, target)
        elif target.suffix == ".html":
            write_html(self.comparison, target)
        else:
            write_text(target, to_csv(self.frame()))
        return target

    def _repr_html_(self) -> str:
        from gnnbench.report.notebook import render_comparison

        return render_comparison(self.comparison)

    def __str__(self) -> str:
        from gnnbench.report.comparison import print_comparison

        console = _open_console()
        print_comparison(self.comparison, console)
        return _read_console(console)

    __repr__ = __str__


@dataclass(frozen=True, slots=True, repr=False)
class PlanResult:
    """The result of :func:`plan`: ``runs`` as :func:`compare` would report them, and ``tables``.

    A drawn graph has no runs. The tables are of everything that was counted.
    """

    job: PlannedJob
    runs: tuple[RunResult, ...]
    tables: tuple[Table, ...]

    def frame(self) -> DataFrame:
        """Return a row for the planned run, with the columns of a comparison's frame.

        Raises ``UsageError`` for a drawn graph, which has only tables.
        """
        from gnnbench.report.results.frames import describe_run, describe_setting, to_frame
        from gnnbench.report.results.schema import RunEntry, describe_runs

        if not self.runs:
            raise UsageError("a graph that was drawn has no run; its counts are in tables.")
        setting = describe_setting(self.job.graph_name, self.job.workload, self.job.machine.name)
        entries = map(RunEntry.model_validate, describe_runs(self.runs))
        return to_frame([{**setting, **describe_run(entry)} for entry in entries])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan as ``.json``, as ``gnnbench plan --json`` does. Returns the path."""
        from gnnbench.report.results.output import write_text
        from gnnbench.report.results.plans import make_plan_document

        target = _choose_file(path, ".json")
        content = make_plan_document(("gnnbench.plan",), self.job, self.runs, self.tables)
        text = json.dumps({"schema": 1, **content}, indent=2, allow_nan=False)
        write_text(target, f"{text}\n")
        return target

    @property
    def _title(self) -> str:
        dims = "-".join(map(str, self.job.workload.dims))
        return f"{self.job.row.label} · {self.job.graph_name} · {dims} · {self.job.machine.name}"

    def _repr_html_(self) -> str:
        from gnnbench.report.notebook import render_tables

        return render_tables(self._title, self.tables)

    def __str__(self) -> str:
        return _print_tables(self._title, self.tables)

    __repr__ = __str__


@dataclass(frozen=True, slots=True, repr=False)
class AdviceResult:
    """The result of :func:`advise`, with everything as records in ``advice``.

    They include each choice's run, and the comparison in which the best were trained.
    """

    advice: Advice

    @property
    def answer(self) -> tuple[str, ...]:
        """The choice for each mode and the reason, in sentences."""
        from gnnbench.advice.tables import summarise

        return tuple(sentence for each in self.advice.answers for sentence in summarise(each))

    @property
    def tables(self) -> tuple[Table, ...]:
        """For each answer its choices, the best first, and changes that would alter it."""
        from gnnbench.advice.tables import make_table

        return tuple(map(make_table, self.advice.answers))

    def frame(self) -> DataFrame:
        """Return a row for every choice, answer by answer, the best first.

        Units are unprefixed SI units. To the columns of a comparison, advice adds ``place`` in its
        answer, ``settings`` and ``why``. The epoch is expected between ``epoch_time_low`` and
        ``epoch_time_high``.
        """
        from gnnbench.advice.tables import list_lines
        from gnnbench.report.results.frames import to_frame

        return to_frame(list(list_lines(self.advice)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the advice as ``.json``, as ``gnnbench advise --json``, or the frame as ``.csv``.

        Returns the path.
        """
        from gnnbench.advice.documents import describe_advice
        from gnnbench.report.results.frames import to_csv
        from gnnbench.report.results.output import write_text

        target = _choose_file(path, ".json", ".csv")
        if target.suffix == ".csv":
            write_text(target, to_csv(self.frame()))
            return target
        content = {"schema": 1, **describe_advice(self.advice)}
        write_text(target, f"{json.dumps(content, indent=2, allow_nan=False)}\n")
        return target

    @property
    def _title(self) -> str:
        asked = self.advice.question
        return f"{asked.dataset.name} · {asked.workload.model} · {asked.platform.name}"

    def _repr_html_(self) -> str:
        from gnnbench.report.notebook import render_tables

        return render_tables(self._title, self.tables, self.answer)

    def __str__(self) -> str:
        return _print_tables(self._title, self.tables, self.answer)

    __repr__ = __str__


def _print_tables(title: str, tables: Sequence[Table], answers: Sequence[str] = ()) -> str:
    from gnnbench.report.tables import print_table

    console = _open_console()
    for line in (title, *answers):
        console.print(line, markup=False, highlight=False, soft_wrap=line == title)
    for table in tables:
        console.print()
        print_table(table, console)
    return _read_console(console)


def _open_console() -> Console:
    """Open a console as wide as the command line's tables in a file, and without colours."""
    from rich.console import Console

    # In Jupyter rich would also display what is printed here.
    return Console(file=io.StringIO(), width=100, color_system=None, force_jupyter=False)


def _read_console(console: Console) -> str:
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream.getvalue().rstrip("\n")


def _choose_file(path: str | os.PathLike[str], *endings: str) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"path is {show_value(path)}; give the name of a file.")
    target = Path(path)
    if target.suffix not in endings:
        raise UsageError(
            f"{target} does not end in {' or '.join(endings)}; its ending says what to write."
        )
    return target


# --------------------------------------------------------------------------- values


def _load_plugins(job: Training) -> Registry:
    """Load all plugins, and the objects that a job has in place of names."""
    wait_briefly()  # before anything imports torch
    from gnnbench.plugins import load
    from gnnbench.records import Strategy

    extra = [os.fspath(each) for each in job.plugins if isinstance(each, (str, os.PathLike))]
    objects = [each for each in job.plugins if not isinstance(each, (str, os.PathLike))]
    registry = load(extra, objects)
    known = registry.strategies_by_name
    new: list[object] = [
        each
        for each in job.list_strategies()
        if isinstance(each, Strategy) and known.get(each.name) != each
    ]
    if not isinstance(job.model, str) and job.model not in registry.models.values():
        new.append(job.model)
    if new:
        registry = load(extra, [*objects, *new])
    for problem in registry.problems:
        warnings.warn(problem, stacklevel=4)
    return registry


@contextmanager
def _own_threads() -> Iterator[None]:
    """Restore torch's number of threads afterwards."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
