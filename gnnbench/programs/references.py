"""Plain training beside the programs of a comparison, each course computed once for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from gnnbench.comparison.plain import PlainTraining
from gnnbench.models import GNN
from gnnbench.parts import Bundle, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.programs.curves import FullGraphReference
from gnnbench.programs.spread import SEEDS, MiniBatchReference
from gnnbench.records import Mode, Workload
from gnnbench.run.evaluate import Evaluator


class References:
    """The reference in both modes, by workload: each repeat has a seed of its own."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._full_graph: dict[Workload, FullGraphReference] = {}
        self._mini_batch: dict[Workload, MiniBatchReference] = {}

    def full_graph(self, setting: Setting) -> FullGraphReference:
        """Return plain full-graph training of a setting."""
        found = self._full_graph.get(setting.workload)
        if found is None:
            plain = PlainTraining(setting, self._assemble("full-graph").kernel)
            found = self._full_graph[setting.workload] = FullGraphReference(setting, plain)
        return found

    def mini_batch(self, setting: Setting) -> MiniBatchReference:
        """Return plain mini-batch training of a setting, over several seeds."""
        found = self._mini_batch.get(setting.workload)
        if found is None:
            found = MiniBatchReference(setting, lambda: self._assemble("mini-batch"))
            self._mini_batch[setting.workload] = found
        return found

    def evaluate(self, setting: Setting, model: GNN) -> Mapping[str, float]:
        """Return the accuracies of a model over the whole graph."""
        bundle = self._assemble("full-graph")
        return Evaluator(setting, bundle.kernel, bundle.memory).evaluate(model)[1]

    def _assemble(self, mode: Mode) -> Bundle:
        return assemble(self._registry, self._registry.strategy("reference").bundles[mode], {})


def describe_spread() -> str:
    """Return the note of a mini-batch program that passed."""
    return (
        f"its loss curve and accuracies lie inside the spread of the reference over {SEEDS} seeds; "
        f"single updates of another program cannot be computed again"
    )
