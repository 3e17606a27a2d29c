"""Is the advice right? ``python -m suites.advice`` holds it against every combination there is.

A question is a graph, a model, a mode and a machine, some with less device memory. The truth is the
shortest epoch of all combinations of parts that fit, sample by the same law and compute what the
reference does, each planned to the end with its settings as they come; of halos among partitions of
one device, which transfer nothing, ``none`` stands for all. The advice is right where its first
choice takes at most a tenth longer. It may take less: it searches settings too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gnnbench import datasets
from gnnbench.advice import Question, advise
from gnnbench.advice.pricing import Pricer, read_metric
from gnnbench.advice.search import find_space
from gnnbench.advice.variations import with_device_memory
from gnnbench.errors import IncompatibleParts
from gnnbench.partitioning import remember_partitions
from gnnbench.platforms.describe import load_platform
from gnnbench.plugins import Registry, load
from gnnbench.records import Dataset, Mode, Workload
from gnnbench.units import format_si

#: The first choice may take so many times as long as the truth.
WITHIN = 1.1
#: So many questions of all must be answered so.
RIGHT = 0.9

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
#: A few that the test suite asks, a line of the list each.
SAMPLE = (
    ("cora", "sage", "mini-batch", "epyc7763x2-4xa5000", ""),
    ("cora", "gat", "full-graph", "epyc7763x2-4xa5000", ""),
    ("cora", "gcn", "full-graph", "epyc7763x2-4xa5000", "12MB"),
    ("cora", "gcn", "mini-batch", "ryzen3990x-a100-u250", "40MB"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question by its words; no ``memory`` is that of the machine."""

    graph: str
    model: str
    mode: Mode
    machine: str
    memory: str = ""

    def __str__(self) -> str:
        return " ".join((self.graph, self.model, self.mode, self.machine, self.memory)).rstrip()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first choice's epoch, the shortest of all, how many were planned for each, and the CPU
    seconds of the advice. Infinite epochs are of questions to which nothing fits."""

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
        """1 where advice and truth agree that nothing fits."""
        return 1.0 if self.chosen_s == self.best_s else self.chosen_s / self.best_s


def list_questions() -> tuple[Asked, ...]:
    """Both modes of each graph and machine, the models in turn, and some again with less memory."""
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
        threads=1,
    )
    return Question(dataset, workload, platform, registry, (asked.mode,))


def find_truth(question: Question) -> tuple[str, float, int]:
    """The shortest epoch of all combinations, planned one by one, and how many there are."""
    pricer = Pricer(question)
    (mode,) = question.modes
    with remember_partitions():
        space = find_space(pricer, mode)
        distinct = [parts for parts in space.ranked if not pricer.is_idle(parts)]
        rows = [question.make_row(mode, parts) for parts in distinct]
        times = [(read_metric(pricer.plan(row), "epoch_time"), row.label) for row in rows]
    best_s, best = min(times, default=(float("inf"), "nothing"))
    return best if best_s < float("inf") else "nothing", best_s, len(rows)


def judge(asked: Asked, registry: Registry, dataset: Dataset) -> Verdict:
    """Ask, and hold the first choice against all."""
    question = make_question(asked, registry, dataset)
    began_s = time.process_time()
    chosen, chosen_s, plans = "nothing", float("inf"), 0
    try:
        found = advise(question, vary=False)
        plans, first = found.planned, found.answers[0].best
        if first is not None:
            chosen, chosen_s = first.row.label, first.epoch_s
    except IncompatibleParts:
        pass
    took_s = time.process_time() - began_s
    best, best_s, combinations = find_truth(question)
    return Verdict(asked, chosen, chosen_s, best, best_s, plans, combinations, took_s)


def judge_all(questions: Iterable[Asked]) -> Iterator[Verdict]:
    registry = load(())
    for asked in questions:
        yield judge(asked, registry, datasets.load(asked.graph))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", action="store_true", help="ask the test suite's few alone")
    parser.add_argument("--first", type=int, default=0, help="the number of the first question")
    parser.add_argument("--every", type=int, default=1, help="ask each so-many-th alone")
    asked = parser.parse_args()
    questions = list_sample() if asked.sample else list_questions()
    verdicts = []
    for verdict in judge_all(questions[asked.first :: asked.every]):
        verdicts.append(verdict)
        print(
            f"{verdict.asked!s:62s} {verdict.ratio:6.3f}  {format_si(verdict.chosen_s, 's'):>8s} "
            f"{verdict.chosen} [{verdict.plans} plans, {verdict.took_s:.1f} s of CPU]  best "
            f"{format_si(verdict.best_s, 's')} {verdict.best} of {verdict.combinations}",
            flush=True,
        )
    right = sum(verdict.ratio <= WITHIN for verdict in verdicts)
    print(
        f"{right} of {len(verdicts)} within {WITHIN - 1:.0%} of the best of all combinations "
        f"({right / len(verdicts):.0%}); median "
        f"{statistics.median(v.ratio for v in verdicts):.3f}, "
        f"worst {max(v.ratio for v in verdicts):.2f}; at most "
        f"{max(v.took_s for v in verdicts):.1f} s of CPU"
    )
    return 0 if right >= RIGHT * len(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
