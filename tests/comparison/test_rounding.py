"""How far rounding goes in the check of equality: sums may cancel, and weights underflow."""

import dataclasses

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.comparison.plain import Shared
from gnnbench.comparison.rounding import Rounded
from suites import equality as suite


@pytest.mark.parametrize("strategy", ["native", "pyg"])
@pytest.mark.parametrize("seed", [7, 38])
def test_attention_to_one_edge_alone_rounds_as_far_as_any_right_row(registry, strategy, seed):
    """Its gradient is what rounding leaves of a difference, and zero in some orders of the sums."""
    random = np.random.default_rng(seed)
    spread = np.exp(np.linspace(-3, 3, 12)).astype(np.float32)
    features = random.standard_normal((150, 12)).astype(np.float32) * spread
    steep = suite.scale(suite.random_graph(150, 900, 3, features, seed), 1e4)
    setting = suite.make_row(steep, "gat", 32, 2, epochs=1)
    parts = registry.strategy(strategy).bundles["full-graph"]
    trained = suite.train_row(registry, setting, parts, 1)
    held = suite.hold_row(registry, setting, parts, trained, Shared())
    assert [judgement.fault for judgement in held] == [""]


def test_a_right_row_is_equal_where_attention_underflows(registry):
    """Native's kernels flush attention weights below the smallest normal number to zero."""
    piece = datasets.find_shared_data().parent / "cases" / "right-row-refused" / "piece.npz"
    setting = suite.make_row(datasets.load(str(piece)), "gat", 256, 2, epochs=1)
    setting = dataclasses.replace(setting, workload=dataclasses.replace(setting.workload, seed=0))
    parts = registry.strategy("native").bundles["mini-batch"]
    trained = suite.train_row(registry, setting, parts, 1)
    judged = list(suite.hold_row(registry, setting, parts, trained, Shared()))
    assert not any(each.fault for each in judged)
    assert any(part.error > 1e-3 for each in judged for part in each.deviations)


@pytest.mark.parametrize(
    ("count", "factor", "model", "hidden", "layers"),
    [(17, 1.0, "gcn", 16, 2), (50, 1.0, "gcn", 16, 2), (17, 100.0, "gin", 256, 3)],
)
def test_right_rows_are_equal_where_sums_are_rounding_alone(
    registry, count, factor, model, hidden, layers
):
    """All rows of a complete graph have one sum, so that their ReLUs change sides together. The
    exact gradients of GIN's weights are zero, and those of a run are those of its rounded sums."""
    scaled = suite.scale(suite.complete(count), factor)
    setting = suite.make_row(scaled, model, hidden, layers, epochs=5)
    shared = Shared()
    for strategy in ("reference", "native", "pyg"):
        parts = registry.strategy(strategy).bundles["full-graph"]
        trained = suite.train_row(registry, setting, parts)
        held = list(suite.hold_row(registry, setting, parts, trained, shared))
        assert len(held) == 5
        assert not any(judged.fault for judged in held), (strategy, held)


@pytest.mark.parametrize("strategy", ["native", "pyg"])
def test_right_rows_are_equal_when_nothing_is_left_to_learn(registry, strategy):
    """The gradient of a small loss is a difference of probabilities that round as numbers up to 1,
    so the sums of the weights' gradients have few digits."""
    setting = suite.make_row(suite.GRAPHS["cora"](), "sage", 256, 2, epochs=25)
    workload = dataclasses.replace(setting.workload, batch_size=1024, fanouts=(25, 10))
    setting = dataclasses.replace(setting, workload=workload)
    parts = registry.strategy(strategy).bundles["mini-batch"]
    trained = suite.train_row(registry, setting, parts)
    assert min(map(min, trained.losses)) < 1e-5
    held = list(suite.hold_row(registry, setting, parts, trained, Shared()))
    assert len(held) >= 25
    assert not [judged.fault for judged in held if judged.fault]


def test_a_rounded_pass_is_off_by_units_of_its_summands_forward_and_backward():
    """The columns sum to zero, of 40 summands of size 1: each sum may be off by 40 units. Results
    of other operations are off by a unit of their own, zeros by less than the smallest normal
    number, and rows that are copied are exact."""
    unit = torch.finfo(torch.float64).eps
    h = torch.tensor([[1.0, 3.0], [-1.0, -3.0]], dtype=torch.float64).repeat(20, 1).requires_grad_()
    ones = torch.ones(1, 40, dtype=torch.float64)
    with Rounded(torch.float64, 1) as mode:
        sums = torch.cat([h.sum(dim=0, keepdim=True), ones @ h])
        picked, scaled = h.index_select(0, torch.arange(3)), 3 * h
        nothing = torch.zeros(9, dtype=torch.float64) * 3
    sums, off = sums.detach().abs(), (scaled - 3 * h).abs().detach()
    assert 0 < float(sums[:, 0].max()) <= 40 * unit
    assert 40 * unit < float(sums[:, 1].max()) <= 120 * unit
    assert torch.equal(picked, h[:3])
    assert 0 < float(nothing.abs().max()) <= torch.finfo(torch.float64).tiny
    assert 0.5 * unit < float((off / h.detach().abs()).max()) <= 3.5 * unit
    with mode:
        (slopes,) = torch.autograd.grad((torch.tanh(h) @ torch.ones(2, 1).double()).sum(), h)
    assert not torch.equal(slopes[0], slopes[2])
    assert torch.allclose(slopes[0], slopes[2], rtol=16 * unit)
