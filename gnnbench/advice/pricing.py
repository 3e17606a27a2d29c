"""The cost of a combination by a dry run, which runs once, or why it cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnbench.advice.questions import Question
from gnnbench.advice.recall import Recall, with_recall
from gnnbench.comparison.frame import describe_failure, empty_result
from gnnbench.comparison.planned import plan_run
from gnnbench.comparison.ranking import Kind
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.comparison.rows import options_for
from gnnbench.comparison.run import name_sampling
from gnnbench.errors import GnnbenchError, IncompatiblePartsError
from gnnbench.host.progress import note_steps
from gnnbench.machines.machine import Platform
from gnnbench.models import build
from gnnbench.parts import Bundle, HaloExchange, Setting
from gnnbench.plugins import assemble
from gnnbench.records import BYTE_KINDS, Parts, RunResult

#: The number of mini-batch rounds that stand for an epoch while combinations are screened.
SCREENED_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Law:
    """The conditions for ranking a row: its sampling law, and its maths.

    ``other_maths`` is empty if the row computes the same as the reference.
    """

    sampling: str
    other_maths: str


class Pricer:
    """Plans combinations for a question, each once.

    ``planned`` counts dry runs. A *short* plan of mini-batches has ``SCREENED_ROUNDS`` rounds of
    one epoch, and stands for the whole while combinations are screened. A short plan of a full
    graph is the whole plan.
    """

    def __init__(self, question: Question, recall: Recall | None = None) -> None:
        self.question = question
        self.recall = recall or Recall()
        self.planned = 0
        self._registry = with_recall(question.registry, self.recall)
        self._whole = self._make_setting(question, few=False)
        self._short = self._make_setting(question, few=True)
        self._runs: dict[tuple[object, ...], RunResult] = {}

    @property
    def platform(self) -> Platform:
        """The platform in question."""
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
        """Assemble parts with the question's options."""
        row = PlannedRow("", "", "full-graph", parts)  # its name and mode are unused
        options = options_for(row, self.question.options, self._registry)
        return assemble(self._registry, parts, options)

    def refuse(self, parts: Parts) -> str:
        """Return why parts cannot work together, as a sentence; empty if they can."""
        try:
            return self.assemble(parts).refusal(self._whole) or ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, GnnbenchError):
                return str(error)
            return f"its parts could not be asked whether they fit: {describe_failure(error)}"

    def find_law(self, parts: Parts) -> Law:
        """Return the sampling law of parts that fit, and how their maths differ, if at all."""
        bundle = self.assemble(parts)
        return Law(name_sampling(bundle, self._whole), bundle.other_maths(self.platform))

    def is_idle(self, parts: Parts) -> bool:
        """Return whether the communication is a halo exchange on one device, without transfers.

        With ``none`` the epoch is the same, and no more memory is held.
        """
        bundle = self.assemble(parts)
        alone = len(bundle.placement.trainers(self.platform)) == 1
        return alone and isinstance(bundle.communication, HaloExchange)

    # ------------------------------------------------------------------ what it takes

    def plan(self, row: PlannedRow, *, short: bool = False) -> RunResult:
        """Plan a row; a run that does not fit a memory, or cannot work, says so."""
        short = short and row.mode == "mini-batch"
        key = (row.parts, frozenset(row.options), short)
        if key not in self._runs:
            self._runs[key] = replace(self._plan(row, short=short), timeline=())
        return replace(self._runs[key], strategy=row.strategy, label=row.label)

    def skip(self, row: PlannedRow, why: str) -> RunResult:
        """Return the run of a row with parts that cannot work together."""
        return empty_result(row, 0, "skipped", why)

    def _plan(self, row: PlannedRow, *, short: bool) -> RunResult:
        setting = self._short if short else self._whole
        request = Request(
            (), setting.dataset, setting.workload, self.platform, options=self.question.options
        )
        self.planned += 1
        note_steps()
        try:
            return plan_run(request, row, setting, self._registry)
        except IncompatiblePartsError as error:
            return empty_result(row, 0, "skipped", str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return empty_result(row, 0, "error", describe_failure(error))


def find_kind(run: RunResult) -> Kind | None:
    """Return the properties that runs ranked together share; None of a run that is not done."""
    work = run.work
    return None if work is None else (run.mode, work.alike)


def read_metric(run: RunResult, *names: str) -> float:
    """Return the sum of some metrics of a run; infinite for one that is not done."""
    if run.status != "done":
        return float("inf")
    return sum(run.metrics[name].value for name in names if name in run.metrics)


#: The bytes that cross a link.
LINK_METRICS = tuple(f"{kind}_bytes" for kind in BYTE_KINDS if kind != "reused")
#: The targets to minimise: the metrics that are compared, the first one first.
TARGETS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "time": (("epoch_time",), LINK_METRICS, ("peak_device_bytes",)),
    "memory": (("peak_device_bytes",), ("epoch_time",), LINK_METRICS),
    "traffic": (LINK_METRICS, ("epoch_time",), ("peak_device_bytes",)),
}


def score(run: RunResult, target: str = "time") -> tuple[float, ...]:
    """Return the values to minimise, the target first and then the tie-breakers."""
    return tuple(read_metric(run, *names) for names in TARGETS[target])
