"""A full-graph program that every epoch shares is made once, and trains as one made anew does."""

import dataclasses
from functools import cache

import pytest

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.program.recorder import Recorder
from gnnbench.records import EpochTrace, Parts
from gnnbench.run import base, make_engine
from tests.uneven import make_uneven

EPOCHS = 4
REGISTRY = plugins.load()
#: Full graphs by bundled strategies, and by others of HongTu's parts.
BUNDLES = {
    **{
        one.name: one.bundles["full-graph"]
        for one in REGISTRY.strategies
        if "full-graph" in one.bundles
    },
    "hongtu·vanilla": Parts("hongtu", "hongtu", "vanilla", "hongtu-recompute", "torch"),
    "hongtu·cache": Parts("hongtu", "hongtu", "hongtu", "hongtu-cache", "torch"),
}
#: What differs from epoch to epoch: rows or gradients of earlier ones are read, or halos are drawn.
CHANGING = {"pipegcn", "distgnn", "sancus", "bnsgcn"}
#: Those whose programs are others where a layer's aggregates cannot be made again.
OF_ATTENTION = ("hongtu", "hongtu·vanilla", "hongtu·cache", "roc", "pipegcn")


@cache
def train_epochs(name: str, model: str, most_kept: int) -> tuple[list[EpochTrace], int]:
    """The epochs of a run, without what this machine's clock says, and how many programs were
    made."""
    workload = make_workload(model, 2, EPOCHS)
    setting = Setting(make_dataset(), make_uneven(3), workload, build(workload).shapes)
    bundle = plugins.assemble(REGISTRY, BUNDLES[name], {})
    assert bundle.refusal(setting) is None
    bundle = bundle.begin(setting)
    engine = make_engine(bundle, setting, Recorder(ModelClock(setting.platform, bundle.kernel)))
    engine.prepare()
    made, lower = [], engine.lowering.run_epoch

    def count(epoch: int) -> object:
        made.append(epoch)
        return lower(epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "MOST_KEPT", most_kept)
        patch.setattr(engine.lowering, "run_epoch", count)
        epochs = [engine.run_epoch(epoch) for epoch in range(EPOCHS)]
    return [strip_clock(epoch) for epoch in epochs], len(made)


def strip_clock(epoch: EpochTrace) -> EpochTrace:
    spans = tuple(span._replace(wall_start_s=0.0, wall_s=0.0) for span in epoch.spans)
    return dataclasses.replace(epoch, spans=spans, wall_s=0.0, harness_s=0.0)


@pytest.mark.parametrize(
    ("name", "model"),
    [(name, "gcn") for name in BUNDLES] + [(name, "gat") for name in OF_ATTENTION],
)
def test_a_kept_program_trains_as_one_made_anew(name: str, model: str) -> None:
    kept, made = train_epochs(name, model, 4096)
    anew, made_anew = train_epochs(name, model, 0)
    assert made_anew == EPOCHS
    assert made == (EPOCHS if name in CHANGING else 1)
    assert kept == anew
    assert kept[0].loss != kept[1].loss


@pytest.mark.parametrize("name", ["reference", "hongtu", "mixgcn"])
def test_a_program_of_many_steps_is_not_kept(name: str) -> None:
    few, made = train_epochs(name, "gcn", 5)
    assert made == EPOCHS
    assert few == train_epochs(name, "gcn", 4096)[0]


@pytest.mark.parametrize("name", sorted(CHANGING - {"distgnn"}))
def test_what_changes_from_epoch_to_epoch_is_seen(name: str) -> None:
    epochs, _ = train_epochs(name, "gcn", 4096)
    steps = {
        tuple((span.label, span.place, span.work, span.after) for span in epoch.spans)
        for epoch in epochs
    }
    assert len(steps) > 1
