"""What a combination takes, by a dry run, asked for once; and why it cannot work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnbench.advice.questions import Question
from gnnbench.advice.recall import Recall, with_recall
from gnnbench.comparison.planned import plan_run
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.comparison.rows import options_for
from gnnbench.comparison.run import describe_failure, empty_result, name_sampling
from gnnbench.errors import GnnbenchError, IncompatibleParts
from gnnbench.models import build
from gnnbench.parts import Bundle, HaloExchange, Setting
from gnnbench.platforms.machine import Platform
from gnnbench.plugins import assemble
from gnnbench.ranking import Kind
from gnnbench.records import BYTE_KINDS, Parts, RunResult

#: So many rounds of mini-batches stand for an epoch where combinations are looked through.
SCREENED_ROUNDS = 4

#: Is told of each combination that has been planned.
Watch = Callable[[PlannedRow], None]


@dataclass(frozen=True, slots=True)
class Law:
    """What a row would have to do to be ranked: ``sampling`` by a law, and ``other_maths`` empty
    where it computes what the reference does."""

    sampling: str
    other_maths: str


class Pricer:
    """Plans combinations for a question, each once.

    ``planned`` counts dry runs. A *short* plan of mini-batches has ``SCREENED_ROUNDS`` rounds of
    one epoch, and stands for the whole where combinations are looked through; a full graph's is
    the whole.
    """

    def __init__(
        self, question: Question, recall: Recall | None = None, watch: Watch | None = None
    ) -> None:
        self.question = question
        self.recall = recall or Recall()
        self.planned = 0
        self._watch = watch
        self._registry = with_recall(question.registry, self.recall)
        self._whole = self._make_setting(question, few=False)
        self._short = self._make_setting(question, few=True)
        self._runs: dict[tuple[object, ...], RunResult] = {}

    @property
    def platform(self) -> Platform:
        return self.question.platform

    def _make_setting(self, question: Question, *, few: bool) -> Setting:
        dataset, workload = question.dataset, question.workload
        if few:
            workload = replace(workload, epochs=1)
            train_ids = dataset.train_ids
            chosen = SCREENED_ROUNDS * workload.batch_size
            if chosen < len(train_ids):
                mask = np.zeros_like(dataset.train_mask)
                drawn = np.random.default_rng(workload.seed).permutation(train_ids)
                mask[drawn[:chosen]] = True
                dataset = replace(dataset, train_mask=mask)
        model = question.registry.model(workload.model)
        layers = build(workload, model=model).shapes
        return Setting(dataset, question.platform, workload, layers, model)

    # ------------------------------------------------------------------ whether it fits

    def assemble(self, parts: Parts) -> Bundle:
        """Parts with the question's options."""
        row = PlannedRow("", "", "full-graph", parts)  # neither its name nor its mode is asked for
        options = options_for(row, self.question.options, self._registry)
        return assemble(self._registry, parts, options)

    def refuse(self, parts: Parts) -> str:
        """Why parts cannot work together, as a sentence; empty where they can."""
        try:
            return self.assemble(parts).refusal(self._whole) or ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, GnnbenchError):
                return str(error)
            return f"its parts could not be asked whether they fit: {describe_failure(error)}"

    def find_law(self, parts: Parts) -> Law:
        """By which law parts that fit sample, and whether their maths are others."""
        bundle = self.assemble(parts)
        return Law(name_sampling(bundle, self._whole), bundle.other_maths(self.platform))

    def is_idle(self, parts: Parts) -> bool:
        """Whether the communication is a halo among the partitions of one device, which never
        transfers anything: with ``none`` the epoch is the same, and no more memory is held."""
        bundle = self.assemble(parts)
        alone = len(bundle.placement.trainers(self.platform)) == 1
        return alone and isinstance(bundle.communication, HaloExchange)

    # ------------------------------------------------------------------ what it takes

    def plan(self, row: PlannedRow, *, short: bool = False) -> RunResult:
        """What a row takes; one that does not fit a memory, or cannot work, says so."""
        short = short and row.mode == "mini-batch"
        key = (row.parts, frozenset(row.options), short)
        if key not in self._runs:
            self._runs[key] = replace(self._plan(row, short=short), timeline=())
        return replace(self._runs[key], strategy=row.strategy, label=row.label)

    def skip(self, row: PlannedRow, why: str) -> RunResult:
        """The run of a row whose parts cannot work together."""
        return empty_result(row, 0, "skipped", why)

    def _plan(self, row: PlannedRow, *, short: bool) -> RunResult:
        setting = self._short if short else self._whole
        request = Request(
            (), setting.dataset, setting.workload, self.platform, options=self.question.options
        )
        self.planned += 1
        if self._watch is not None:
            self._watch(row)
        try:
            return plan_run(request, row, setting, self._registry)
        except IncompatibleParts as error:
            return empty_result(row, 0, "skipped", str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return empty_result(row, 0, "error", describe_failure(error))


def find_kind(run: RunResult) -> Kind | None:
    """What runs that are ranked beside each other have in common; None of one that is not done."""
    work = run.work
    return None if work is None else (run.mode, work.alike)


def read_metric(run: RunResult, *names: str) -> float:
    """The sum of some metrics of a run, infinite of one that is not done."""
    if run.status != "done":
        return float("inf")
    return sum(run.metrics[name].value for name in names if name in run.metrics)


#: What crosses a link.
LINK_METRICS = tuple(f"{kind}_bytes" for kind in BYTE_KINDS if kind != "reused")
#: What can be asked to be least: the metrics that are compared, the first one first.
TARGETS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "time": (("epoch_time",), LINK_METRICS, ("peak_device_bytes",)),
    "memory": (("peak_device_bytes",), ("epoch_time",), LINK_METRICS),
    "traffic": (LINK_METRICS, ("epoch_time",), ("peak_device_bytes",)),
}


def score(run: RunResult, target: str = "time") -> tuple[float, ...]:
    """What is to be least, and what decides between equals."""
    return tuple(read_metric(run, *names) for names in TARGETS[target])
