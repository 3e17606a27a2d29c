"""Whether the advice is right: ``python -m suites.advice`` tests it against every combination.

A question is a graph, a model, a mode and a machine, some with less device memory. The truth is the
shortest epoch of all combinations that fit, follow the same sampling law and compute the
reference's result. Each combination is planned to the end with its default settings. On one device
halos transfer nothing, so ``none`` represents all of them. The advice is right if its first choice
takes at most a tenth longer. It may take less, because it searches settings too.

With ``--measured`` the machine is this one (run ``gnnbench platforms probe --save`` first), and the
advice trains its best two choices. The truth is trained too: each distinct program for a few
epochs, then the fastest ones in turns with the first choice. The first choice may take at most 15 %
longer.
"""

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gnnbench import datasets
from gnnbench.advice import Question, advise
from gnnbench.advice.preparation import count_trained
from gnnbench.advice.pricing import Pricer, read_metric
from gnnbench.advice.search import find_space
from gnnbench.advice.variations import with_device_memory
from gnnbench.comparison import compare, make_setting
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.datasets.partitioning import remember_partitions
from gnnbench.errors import GnnbenchError, IncompatiblePartsError
from gnnbench.host.cores import count_cores
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.parts import Setting
from gnnbench.plugins import Registry, assemble, load
from gnnbench.price.folds import digest
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import Dataset, Mode, RunResult, Workload
from gnnbench.run import Training
from gnnbench.units import format_si

#: The most that the first choice may take, as a multiple of the truth.
WITHIN = 1.1
#: The share of questions that must be answered right.
RIGHT = 0.9
#: Both limits if epochs are measured.
WITHIN_MEASURED, RIGHT_MEASURED = 1.15, 0.85
#: Epochs of each combination, and the number of fastest combinations that race.
TRIED_EPOCHS, FINALISTS = 4, 4
MEASURED_GRAPHS = ("cora", "citeseer", "amazon_photo", "rmat:vertices=20k,edges=160k")

GRAPHS = ("cora", "rmat:vertices=2k,edges=16k", "citeseer", "ogbn-products:0.001", "amazon_photo")
MACHINES = (
    "epyc7543x4-4xa100",
    "epyc7763x2-4xa5000",
    "p3-2xlarge",
    "ryzen3990x-a100-u250",
    "r6i-12xlarge",
)
MODELS = ("gcn", "sage", "gat")
MODES: tuple[Mode, ...] = ("full-graph", "mini-batch")
#: Small enough that some combinations do not fit.
MEMORIES: Mapping[str, int] = {"12MB": 12_000_000, "40MB": 40_000_000}
#: Questions that the test suite asks, one a line of the list.
SAMPLE = (
    ("cora", "sage", "mini-batch", "epyc7763x2-4xa5000", ""),
    ("cora", "gat", "full-graph", "epyc7763x2-4xa5000", ""),
    ("cora", "gcn", "full-graph", "epyc7763x2-4xa5000", "12MB"),
    ("cora", "gcn", "mini-batch", "ryzen3990x-a100-u250", "40MB"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question by its words; without ``memory`` the machine's memory counts."""

    graph: str
    model: str
    mode: Mode
    machine: str
    memory: str = ""

    def __str__(self) -> str:
        return " ".join((self.graph, self.model, self.mode, self.machine, self.memory)).rstrip()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first choice's epoch, the shortest epoch, the plans for each, and advice's CPU seconds.

    Epochs are infinite if nothing fits.
    """

    asked: Asked
    chosen: str
    chosen_s: float
    best: str
    best_s: float
    plans: int
    combinations: int
    took_s: float

    @property
    def ratio(self) -> float:
        """The first choice's epoch over the truth; 1 if both find that nothing fits."""
        return 1.0 if self.chosen_s == self.best_s else self.chosen_s / self.best_s


def list_questions() -> tuple[Asked, ...]:
    """Return questions: both modes of each graph and machine, with the models in turn.

    Some are repeated with less memory.
    """
    found = []
    for number, (graph, machine) in enumerate((g, m) for m in MACHINES for g in GRAPHS):
        model = MODELS[number % len(MODELS)]
        found += [Asked(graph, model, mode, machine) for mode in MODES]
        if machine in MACHINES[:2]:
            memory = tuple(MEMORIES)[number % len(MEMORIES)]
            found += [Asked(graph, model, mode, machine, memory) for mode in MODES]
    return tuple(found)


def list_sample() -> tuple[Asked, ...]:
    return tuple(Asked(*words) for words in SAMPLE)  # type: ignore[arg-type]


def list_measured() -> tuple[Asked, ...]:
    """Return questions: both modes of each graph and model, on this machine."""
    return tuple(
        Asked(graph, model, mode, LOCAL)
        for graph in MEASURED_GRAPHS
        for model in MODELS
        for mode in MODES
    )


def make_question(asked: Asked, registry: Registry, dataset: Dataset) -> Question:
    platform = load_platform(asked.machine)
    if asked.memory:
        platform = with_device_memory(platform, MEMORIES[asked.memory])
    workload = Workload(
        model=asked.model,
        dims=(dataset.num_features, 64, dataset.num_classes),
        epochs=1,
        batch_size=256,
        fanouts=(10, 5),
        seed=0,
        threads=1 if platform.virtual else count_cores(),
    )
    return Question(dataset, workload, platform, registry, (asked.mode,))


def plan_all(question: Question) -> list[tuple[PlannedRow, RunResult]]:
    """Return every combination that may be ranked, with default settings, and its plan."""
    pricer = Pricer(question)
    (mode,) = question.modes
    with remember_partitions():
        space = find_space(pricer, mode)
        distinct = [parts for parts in space.ranked if not pricer.is_idle(parts)]
        rows = [question.make_row(mode, parts) for parts in distinct]
        return [(row, pricer.plan(row)) for row in rows]


def find_truth(question: Question) -> tuple[str, float, int]:
    """Return the fastest combination, its epoch, and the number of combinations planned."""
    times = [(read_metric(run, "epoch_time"), row.label) for row, run in plan_all(question)]
    best_s, best = min(times, default=(float("inf"), "nothing"))
    return best if best_s < float("inf") else "nothing", best_s, len(times)


def list_programs(question: Question) -> list[PlannedRow]:
    """Return one combination for each distinct plan: with one device many parts have no effect.

    Samplers that draw are distinguished by name, because only training shows their time.
    """
    found: dict[object, PlannedRow] = {}
    for row, run in plan_all(question):
        if run.status == "done":
            figures = sorted((name, metric.value) for name, metric in run.metrics.items())
            sampler = row.parts.sampler if row.mode == "mini-batch" else ""
            found.setdefault((row.parts.kernel, sampler, tuple(figures)), row)
    return list(found.values())


def try_row(question: Question, setting: Setting, row: PlannedRow) -> float:
    """Return the shortest of a few measured epochs after the first; infinite if the row fails."""
    bundle = assemble(question.registry, row.parts, question.options)
    try:
        training = Training(bundle, setting, WallClock())
        epochs = [training.run_epoch(number) for number in range(TRIED_EPOCHS)]
    except GnnbenchError:
        return float("inf")
    return min(digest(each, "measured", question.platform).epoch_s for each in epochs[1:])


def measure_truth(question: Question, chosen: PlannedRow) -> tuple[float, str, float, int]:
    """Return the first choice's epoch, the fastest combination and its epoch, and rows measured."""
    rows = list_programs(question)
    request = Request(
        (), question.dataset, question.workload, question.platform, rows=(chosen,), check=False
    )
    setting = make_setting(request)
    fastest = sorted(rows, key=lambda row: try_row(question, setting, row))[:FINALISTS]
    request = replace(request, rows=tuple(dict.fromkeys([chosen, *fastest])))
    # Rows are found by position: a choice with special settings has the same name as without them.
    runs = compare(request, question.registry).runs
    times = [read_metric(run, "epoch_time") for run in runs]
    best_s, best = min(zip(times, (row.label for row in request.rows), strict=True))
    return times[0], best, best_s, len(rows)


def judge(asked: Asked, registry: Registry, dataset: Dataset) -> Verdict:
    """Ask a question, and compare the first choice with all combinations."""
    question = make_question(asked, registry, dataset)
    measured = not question.platform.virtual
    began_s = time.process_time()
    chosen, chosen_s, plans, first = "nothing", float("inf"), 0, None
    try:
        found = advise(question, vary=False, train=count_trained(question))
        plans, first = found.planned, found.answers[0].best
        if first is not None:
            chosen, chosen_s = first.row.label, first.epoch_s
    except IncompatiblePartsError:
        pass
    took_s = time.process_time() - began_s
    if measured and first is not None:
        chosen_s, best, best_s, combinations = measure_truth(question, first.row)
    else:
        best, best_s, combinations = find_truth(question)
    return Verdict(asked, chosen, chosen_s, best, best_s, plans, combinations, took_s)


def judge_all(questions: Iterable[Asked]) -> Iterator[Verdict]:
    registry = load(())
    for asked in questions:
        yield judge(asked, registry, datasets.load(asked.graph))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", action="store_true", help="ask the test suite's few alone")
    parser.add_argument("--measured", action="store_true", help="ask about this machine, and train")
    parser.add_argument("--first", type=int, default=0, help="the number of the first question")
    parser.add_argument("--every", type=int, default=1, help="ask each so-many-th alone")
    asked = parser.parse_args()
    questions = list_sample() if asked.sample else list_questions()
    within, least = WITHIN, RIGHT
    if asked.measured:
        questions, within, least = list_measured(), WITHIN_MEASURED, RIGHT_MEASURED
    verdicts = []
    for verdict in judge_all(questions[asked.first :: asked.every]):
        verdicts.append(verdict)
        print(
            f"{verdict.asked!s:62s} {verdict.ratio:6.3f}  {format_si(verdict.chosen_s, 's'):>8s} "
            f"{verdict.chosen} [{verdict.plans} plans, {verdict.took_s:.1f} s of CPU]  best "
            f"{format_si(verdict.best_s, 's')} {verdict.best} of {verdict.combinations}",
            flush=True,
        )
    right = sum(verdict.ratio <= within for verdict in verdicts)
    print(
        f"{right} of {len(verdicts)} within {within - 1:.0%} of the best of all combinations "
        f"({right / len(verdicts):.0%}); median "
        f"{statistics.median(v.ratio for v in verdicts):.3f}, "
        f"worst {max(v.ratio for v in verdicts):.2f}; at most "
        f"{max(v.took_s for v in verdicts):.1f} s of CPU"
    )
    return 0 if right >= least * len(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
