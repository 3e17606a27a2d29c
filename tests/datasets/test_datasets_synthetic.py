"""Graphs made in memory: sizes, determinism, skew, and that there is something to learn."""

import functools

import numpy as np
import pytest

from gnnbench.datasets import STAND_INS, default_dataset, load
from gnnbench.datasets.topology import find_fault
from gnnbench.errors import DatasetError

SMALL = {
    "rmat": "rmat:vertices=1000,edges=6k,features=10,classes=4",
    "sbm": "sbm:vertices=1000,edges=10k,features=16,classes=4",
    "stand-in": "ogbn-products:0.0004",
}


made_default = functools.cache(default_dataset)


def homophily(dataset):
    """The share of edges whose ends have the same label."""
    rows = np.repeat(np.arange(dataset.graph.num_vertices), dataset.graph.degrees)
    return float((dataset.labels[rows] == dataset.labels[dataset.graph.indices]).mean())


@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
def test_same_seed_same_dataset(spec):
    digest = load(spec).digest()
    assert load(spec, seed=0).digest() == digest
    assert load(spec, seed=1).digest() != digest


@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
def test_made_graphs_are_canonical(spec):
    dataset = load(spec)
    assert find_fault(dataset.graph.indptr, dataset.graph.indices) is None
    assert dataset.name == spec
    assert any("synthetic" in note for note in dataset.notes)
    assert not any("reverse" in note for note in dataset.notes)


@pytest.mark.parametrize("kind", ["rmat", "sbm"])
def test_sizes_are_as_asked(kind):
    dataset = load(f"{kind}:vertices=1.5k,edges=7000,features=9,classes=5")
    assert dataset.graph.num_vertices == 1500
    assert dataset.graph.num_edges == 2 * 7000
    assert dataset.num_features == 9
    assert dataset.num_classes == 5
    assert int(dataset.train_mask.sum()) == 375
    assert int(dataset.val_mask.sum()) == 750
    assert int(dataset.test_mask.sum()) == 375


def test_default_dataset():
    dataset = made_default()
    assert dataset.graph.num_vertices == 20_000
    assert dataset.graph.num_edges == 800_000
    assert dataset.num_features == 128
    assert dataset.num_classes == 16
    assert dataset.digest() == load("sbm").digest()
    assert default_dataset(seed=3).digest() != dataset.digest()


def test_rmat_is_skewed_and_its_ids_are_shuffled():
    degrees = load("rmat:vertices=4096,edges=32k").graph.degrees
    assert degrees.max() > 15 * degrees.mean()
    assert (degrees == 0).any()
    hubs = np.argsort(degrees)[-40:]
    assert 1000 < hubs.mean() < 3100


def test_neighbours_agree_more_than_chance_in_sbm():
    # A quarter within the class and, of the rest, one in sixteen by chance.
    assert homophily(made_default()) == pytest.approx(0.25 + 0.75 / 16, abs=0.01)
    assert homophily(load(SMALL["rmat"])) == pytest.approx(1 / 4, abs=0.05)


def test_neighbours_tell_the_class_better_than_the_vertex():
    dataset = made_default()
    graph = dataset.graph
    assert isinstance(dataset.features, np.ndarray)
    sums = np.add.reduceat(dataset.features[graph.indices], graph.indptr[:-1])
    mixed = sums / graph.degrees[:, None]
    accuracy = {}
    for name, x in (("alone", dataset.features), ("neighbours", mixed)):
        train, y = dataset.train_mask, dataset.labels
        means = np.stack([x[train & (y == c)].mean(axis=0) for c in range(16)])
        score = x[dataset.test_mask] @ means.T - 0.5 * (means**2).sum(axis=1)
        accuracy[name] = (score.argmax(axis=1) == y[dataset.test_mask]).mean()
    assert accuracy["alone"] < 0.4
    assert accuracy["neighbours"] > accuracy["alone"] + 0.2


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("sbm:vertices=0", "positive whole number"),
        ("sbm:vertices=-5", "positive whole number"),
        ("sbm:edges=2.5", "positive whole number"),
        ("sbm:features=many", "positive whole number"),
        ("sbm:classes=", "positive whole number"),
        ("sbm:nodes=5", "not an option of sbm"),
        ("rmat:5", "not an option of rmat"),
        ("sbm:edges=5,edges=6", "twice"),
        ("sbm:vertices=1,edges=1,classes=1", "1 vertices"),
        ("sbm:vertices=3G", "3,000,000,000 vertices"),
        ("sbm:vertices=100,edges=4000", "more than half of all pairs"),
        ("sbm:vertices=100,edges=400,classes=101", "101 classes"),
        ("sbm:features=900G", "of memory"),
        ("friendster:1", "of memory"),
    ],
)
def test_impossible_sizes_are_refused(spec, reason):
    with pytest.raises(DatasetError, match=reason) as caught:
        load(spec)
    assert repr(spec) in str(caught.value)


def test_negative_seed_is_refused():
    with pytest.raises(DatasetError, match="seed -1"):
        load("sbm", seed=-1)


def test_edges_that_keep_repeating_are_refused():
    # Half of all pairs is allowed, but R-MAT hardly ever draws its last quadrant.
    with pytest.raises(DatasetError, match="distinct edges could be drawn"):
        load("rmat:vertices=512,edges=65k,features=1")


@pytest.mark.parametrize("real", [STAND_INS[0], STAND_INS[-1]], ids=lambda real: real.name)
def test_too_small_a_scale_names_the_least_one(real):
    with pytest.raises(DatasetError, match="too few") as caught:
        load(f"{real.name}:1e-7")
    least = str(caught.value).split("use at least ")[1].rstrip(".")
    assert load(least).graph.degrees.mean() == pytest.approx(real.mean_degree, rel=0.15)


@pytest.mark.parametrize("scale", ["0", "-0.1", "1.01", "nan", "inf", "", "tiny"])
def test_scale_outside_zero_to_one_is_refused(scale):
    with pytest.raises(DatasetError, match="above 0 and at most 1"):
        load(f"reddit:{scale}")


def test_stand_in_name_in_any_case():
    assert load("Flickr:0.01").digest() == load("flickr:0.01").digest()


def test_dense_stand_in_says_that_labels_are_hard():
    made, hard, *_ = load("reddit:0.015").notes
    assert made == "stand-in for reddit at 0.015 of its vertices: synthetic, not the real graph"
    assert "hard to learn" in hard
    assert len(load("flickr:0.02").notes) == 1
