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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gnnbench.errors import UsageError
from gnnbench.host.waiting import wait_briefly
from gnnbench.jobs.preparation import (
    AdviceJob,
    Job,
    PlanJob,
    make_request,
    parse_strategies,
    read_field,
    read_options,
    read_swaps,
    show_value,
)

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

    from gnnbench.advice import Advice
    from gnnbench.comparison import Progress
    from gnnbench.datasets import ScalingChoice
    from gnnbench.jobs.planning import PlannedJob
    from gnnbench.jobs.preparation import ChosenStrategy
    from gnnbench.machines.machine import Platform
    from gnnbench.parts import LayerClass
    from gnnbench.plugins import Registry
    from gnnbench.records import (
        Comparison,
        Dataset,
        Mode,
        RunResult,
        Strategy,
        Table,
    )
    from gnnbench.report.results.schema import ResultDocument

#: A strategy by name, ``"hongtu:kernel=dgl"`` with another part, or an object.
StrategyLike: TypeAlias = "str | Strategy"
#: The value of a part's option, as a part declares it or as text with a unit (``"2GB"``).
OptionValue: TypeAlias = "str | int | float | bool"
#: The quantity that advice minimises.
Target: TypeAlias = 'Literal["time", "memory", "traffic"]'
#: The methods of an object that shows progress.
_PROGRESS = ("begin", "advance", "end")


def compare(
    strategies: StrategyLike | Sequence[StrategyLike],
    *,
    dataset: str | os.PathLike[str] | Dataset | None = None,
    model: str | LayerClass = "gcn",
    layers: int = 2,
    hidden: int = 256,
    epochs: int = 10,
    batch_size: int = 1024,
    fanouts: Sequence[int] | None = None,
    mode: Mode | None = None,
    platform: str | os.PathLike[str] | Platform | None = None,
    swap: Mapping[str, str] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    learning_rate: float | None = None,
    scaling: ScalingChoice = "auto",
    repeats: int = 1,
    same_seed: bool = False,
    seed: int = 0,
    threads: int | None = None,
    target_accuracy: float | None = None,
    check: bool = True,
    checked_updates: int | None = None,
    plain: bool = True,
    plugins: Sequence[object] = (),
    progress: Progress | None = None,
) -> ComparisonResult:
    """Train each strategy on one dataset and compare losses, times and traffic.

    Parameters are the options of ``gnnbench compare``. Raises ``UsageError`` and related errors.
    """
    registry, chosen, model_name = _load_plugins(strategies, model, plugins, progress)
    job = Job(
        strategies=chosen,
        dataset=_as_given(dataset),
        platform=_as_given(platform),
        model=model_name,
        layers=layers,
        hidden=hidden,
        epochs=epochs,
        batch_size=batch_size,
        fanouts=_as_given(fanouts),
        swaps=read_swaps(swap),
        options=read_options(options),
        learning_rate=learning_rate,
        scaling=scaling,
        repeats=repeats,
        same_seed=same_seed,
        seed=seed,
        threads=threads,
        target_accuracy=target_accuracy,
        check=check,
        checked_updates=checked_updates,
        plain=plain,
        mode=mode,
        demanded=() if fanouts is None else ("fanouts",),
    )
    return _train_all(job, registry, progress)


def _train_all(job: Job, registry: Registry, progress: Progress | None) -> ComparisonResult:
    from gnnbench.comparison import compare as train_all

    with _own_threads():
        request = make_request(job, registry)
        return ComparisonResult(train_all(request, registry, progress, ("gnnbench.compare",)))


def plan(
    strategy: StrategyLike,
    *,
    dataset: str | os.PathLike[str] | Dataset | None = None,
    vertices: int | str | None = None,
    edges: int | str | None = None,
    dims: Sequence[int] | None = None,
    model: str | LayerClass = "gcn",
    layers: int = 2,
    hidden: int = 256,
    mode: Mode | None = None,
    epochs: int = 10,
    batch_size: int = 1024,
    fanouts: Sequence[int] | None = None,
    platform: str | os.PathLike[str] | Platform | None = None,
    swap: Mapping[str, str] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    seed: int = 0,
    threads: int | None = None,
    plugins: Sequence[object] = (),
) -> PlanResult:
    """Predict memory, traffic and time of a strategy without training.

    Over a ``dataset``, a dry run goes through every step of training. The numbers are the same as
    from :func:`compare` with modelled times. With ``vertices`` and ``edges`` (``"1G"`` is a
    billion) and ``dims``, a graph is drawn edge by edge and counted. Each parameter is the option
    of ``gnnbench plan`` of that name, with the same default.

    Raises ``UsageError`` and related errors for unknown names and jobs that cannot be planned.
    """
    from gnnbench.jobs.planning import make_plan, prepare_plan

    sizes = _check_sizes(dataset is not None, vertices, edges, dims)
    registry, ((name, own_swaps),), model_name = _load_plugins([strategy], model, plugins)
    job = PlanJob(
        strategy=name,
        swaps=(*own_swaps, *read_swaps(swap)),
        dataset=_as_given(dataset),
        sizes=sizes,
        widths=_as_given(dims),
        model=model_name,
        layers=layers,
        hidden=hidden,
        mode=mode,
        epochs=epochs,
        batch_size=batch_size,
        fanouts=_as_given(fanouts),
        platform=_as_given(platform),
        options=read_options(options),
        seed=seed,
        threads=threads,
    )
    found = prepare_plan(job, registry)
    return PlanResult(found, *make_plan(found, registry))


def advise(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    strategies: StrategyLike | Sequence[StrategyLike] | None = None,
    target: Target = "time",
    model: str | LayerClass = "gcn",
    layers: int = 2,
    hidden: int = 256,
    mode: Mode | None = None,
    epochs: int = 1,
    batch_size: int = 1024,
    fanouts: Sequence[int] | None = None,
    platform: str | os.PathLike[str] | Platform | None = None,
    device_memory: int | str | None = None,
    swap: Mapping[str, str] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    train: int | None = None,
    changes: bool = True,
    seed: int = 0,
    threads: int | None = None,
    plugins: Sequence[object] = (),
    progress: Progress | None = None,
) -> AdviceResult:
    """Find the combination of parts and settings to use on a graph and a machine.

    Combinations of the parts of ``strategies``, by default of all, are planned, and the best
    ``train`` of each mode are trained. ``target`` is the quantity to minimise. ``device_memory`` is
    bytes or text such as ``"24GB"``; ``changes=False`` is ``--no-changes``. Each other parameter is
    the option of ``gnnbench advise`` of that name. Raises ``UsageError`` and related errors for
    unknown names, for a machine without measurements, and if no combination fits.
    """
    from gnnbench.advice import preparation
    from gnnbench.advice.advise import advise as search

    registry, chosen, model_name = _load_plugins(strategies, model, plugins, progress)
    wanted = None if train is None else read_field("train", train)
    vary = read_field("changes", changes)
    job = AdviceJob(
        dataset=_as_given(dataset),
        strategies=_without_swaps(chosen),
        model=model_name,
        layers=layers,
        hidden=hidden,
        mode=mode,
        epochs=epochs,
        batch_size=batch_size,
        fanouts=_as_given(fanouts),
        platform=_as_given(platform),
        device_memory=device_memory,
        swaps=read_swaps(swap),
        options=read_options(options),
        seed=seed,
        threads=threads,
    )
    with _own_threads():
        question = preparation.make_question(job, registry)
        count = preparation.count_trained(question) if wanted is None else wanted
        found = search(question, target=target, train=count, vary=vary, progress=progress)
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

        Metrics are in unprefixed SI units. ``provenance`` is the provenance of the times."""
        from gnnbench.report.results.frames import list_lines, to_frame

        return to_frame(list_lines(self.document))

    def samples(self) -> DataFrame:
        """Return a row for every raw sample of every metric, such as each epoch's time."""
        from gnnbench.report.results.frames import make_samples

        return make_samples(self.document)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result completely or not at all, and return the path.

        It is a ``.json`` result file, an ``.html`` page, or the frame as ``.csv``."""
        from gnnbench.report.html import write_html
        from gnnbench.report.results.output import write_text
        from gnnbench.report.results.schema import write_json

        target = _choose_file(path, ".json", ".html", ".csv")
        if target.suffix == ".json":
            write_json(self.document, target)
        elif target.suffix == ".html":
            write_html(self.comparison, target)
        else:
            write_text(target, self.frame().to_csv(index=False))
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

    A drawn graph has no runs. The tables are of everything that was counted."""

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

        target, job = _choose_file(path, ".json"), self.job
        content = make_plan_document(
            ("gnnbench.plan",),
            job.row.strategy,
            job.graph_name,
            job.workload,
            job.machine.name,
            self.runs,
            self.tables,
        )
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

    They include each choice's run, and the comparison in which the best were trained."""

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
        ``epoch_time_high``."""
        from gnnbench.advice.tables import list_lines
        from gnnbench.report.results.frames import to_frame

        return to_frame(list(list_lines(self.advice)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the advice as ``.json``, as ``gnnbench advise --json``, or the frame as ``.csv``.

        Returns the path."""
        from gnnbench.advice.documents import describe_advice
        from gnnbench.report.results.output import write_text

        target = _choose_file(path, ".json", ".csv")
        if target.suffix == ".csv":
            write_text(target, self.frame().to_csv(index=False))
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

    return Console(file=io.StringIO(), width=100, color_system=None)


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


def _load_plugins(
    strategies: StrategyLike | Sequence[StrategyLike] | None,
    model: str | LayerClass,
    plugins: Sequence[object],
    progress: Progress | None = None,
) -> tuple[Registry, tuple[ChosenStrategy, ...], str]:
    """Load all plugins, given objects included; return strategies by name, and the model's name.

    Raises ``UsageError`` for arguments of wrong types.
    """
    wait_briefly()  # before anything imports torch
    from gnnbench.models import Layer
    from gnnbench.plugins import load
    from gnnbench.records import Strategy

    if not _is_list_of(plugins, object):
        raise UsageError(f"plugins is {show_value(plugins)}; give a list of modules or objects.")
    if not isinstance(model, str) and not (isinstance(model, type) and issubclass(model, Layer)):
        raise UsageError(f"model is {show_value(model)}; give a name or a class of layers.")
    if progress is not None and not all(hasattr(progress, each) for each in _PROGRESS):
        raise UsageError(
            f"progress is {show_value(progress)}; give an object with {', '.join(_PROGRESS)}."
        )
    words = () if strategies is None else strategies
    if isinstance(words, (str, Strategy)):
        words = [words]
    if not _is_list_of(words, (str, Strategy)):
        raise UsageError(
            f"strategies is {show_value(strategies)}; give names, such as ['hyscale', 'hongtu']."
        )
    if strategies is not None and not words:
        raise UsageError("no strategies are named; name some, such as ['hyscale', 'hongtu'].")
    extra = [os.fspath(each) for each in plugins if isinstance(each, (str, os.PathLike))]
    objects = [each for each in plugins if not isinstance(each, (str, os.PathLike))]
    registry = load(extra, objects)
    known = registry.strategies_by_name
    new: list[object] = [
        each for each in words if isinstance(each, Strategy) and known.get(each.name) != each
    ]
    if not isinstance(model, str) and model not in registry.models.values():
        new.append(model)
    if new:
        registry = load(extra, [*objects, *new])
    for problem in registry.problems:
        warnings.warn(problem, stacklevel=3)
    names = ",".join(each.name if isinstance(each, Strategy) else each for each in words)
    chosen = parse_strategies(names) if words else ()
    return registry, chosen, model if isinstance(model, str) else model.name


def _without_swaps(chosen: Sequence[ChosenStrategy]) -> tuple[str, ...]:
    """Return names alone: advice combines the parts of strategies anyway."""
    for name, swaps in chosen:
        if swaps:
            raise UsageError(f"advice is of whole strategies; name {name!r} and use swap.")
    return tuple(name for name, _ in chosen)


@contextmanager
def _own_threads() -> Iterator[None]:
    """Restore torch's number of threads afterwards."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _as_given(value: object) -> Any:
    """Pass a value of a wider type than a field has, which the job reads or refuses."""
    return value


def _is_list_of(value: object, kind: type | tuple[type, ...]) -> bool:
    """Whether a value is a list or a tuple of objects of one kind only."""
    return isinstance(value, (list, tuple)) and all(isinstance(each, kind) for each in value)


def _check_sizes(
    named: bool, vertices: int | str | None, edges: int | str | None, dims: Sequence[int] | None
) -> tuple[int | str, int | str] | None:
    """Return the sizes of a graph to draw; None if a data set is named instead."""
    if named == (vertices is not None) or (vertices is None) != (edges is None):
        raise UsageError("give either dataset, or both vertices and edges.")
    if vertices is None or edges is None:
        return None
    if dims is None:
        raise UsageError("say how wide the layers are, such as dims=[256, 128, 64].")
    return vertices, edges
