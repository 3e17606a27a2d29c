"""Every number of every stand-in a second time, and what a stand-in makes of them, by hand."""

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.datasets.construct import make_split
from gnnbench.datasets.standins import HOMOPHILY, STAND_INS, draw_stand_in, power_law_weights

#: Vertices, undirected edges, features, classes, training vertices, degree exponent, and where the
#: numbers come from. A share is given where no training vertices are published.
PUBLISHED = {
    "ogbn-products": (2_449_029, 61_859_140, 100, 47, 196_615, 2.5, "OGB; assumed exponent"),
    "ogbn-papers100M": (111_059_956, 1_615_685_872, 128, 172, 1_207_179, 3.0, "OGB; Redner 1998"),
    "mag240m": (121_751_666, 1_297_748_926, 756, 153, 1_112_392, 3.0, "HyScale-GNN, Table III"),
    "reddit": (232_965, 114_615_892 // 2, 602, 41, 153_431, 2.5, "MixGCN, Table 2: entries"),
    "it-2004": (41_291_594, 1_027_474_947, 256, 64, 0.25, 2.1, "LAW; Broder et al. 2000"),
    "friendster": (65_608_366, 1_806_067_135, 256, 64, 0.25, 2.5, "SNAP com-Friendster"),
    "orkut": (3_072_441, 117_185_083, 320, 20, 0.25, 2.5, "SNAP com-Orkut; MixGCN, Table 2"),
    "twitter": (41_652_230, 1_202_513_046, 52, 16, 0.25, 2.276, "Kwak et al. 2010"),
    "flickr": (89_250, 899_756 // 2, 500, 7, 0.5, 2.5, "GraphSAINT, Table 1: 0.50 train"),
    "yelp": (716_847, 6_977_410, 300, 100, 0.75, 2.5, "GraphSAINT, Table 1: 0.75 train"),
    "amazonproducts": (1_598_960, 132_169_734, 200, 107, 0.85, 2.5, "GraphSAINT, Table 1"),
}


def test_every_number_of_every_stand_in():
    found = {
        row.name: (row.vertices, row.edges, row.features, row.classes, row.degree_exponent)
        for row in STAND_INS
    }
    assert found == {
        name: (*numbers, exponent) for name, (*numbers, _, exponent, _) in PUBLISHED.items()
    }
    for row in STAND_INS:
        train = PUBLISHED[row.name][4]
        share = train if train < 1 else train / row.vertices
        assert row.train_fraction == pytest.approx(share, rel=1e-12)
        assert row.mean_degree == pytest.approx(2 * row.edges / row.vertices, rel=1e-12)
        papers = ("HyScale-GNN", "HongTu", "MixGCN", "HP-GNN")
        assert any(paper in row.source for paper in papers)


def test_a_tail_has_the_exponent_that_it_was_asked_for():
    """Of weights P(w > x) ~ x^(1 - gamma), by the ranks of those below the cut."""
    for exponent in (2.1, 2.5, 3.0):
        weights = power_law_weights(200_000, 10.0, exponent)
        assert weights.mean() == pytest.approx(10.0, rel=1e-2)
        ranks = np.array([2_000, 100_000])
        slope = np.diff(np.log(weights[ranks]))[0] / np.diff(np.log(ranks + 0.5))[0]
        assert 1 - 1 / slope == pytest.approx(exponent, rel=1e-9)
        assert weights.max() <= np.sqrt(200_000 * 10.0)


def test_of_those_that_do_not_train_two_in_three_validate():
    data = datasets.load("flickr:0.02")
    count = data.graph.num_vertices
    assert count == round(0.02 * 89_250)
    shares = [mask.sum() / count for mask in (data.train_mask, data.val_mask, data.test_mask)]
    assert shares == pytest.approx([1 / 2, 1 / 3, 1 / 6], abs=2 / count)


def test_a_stand_in_has_its_edges():
    """Half the entries of the symmetric graph: the mean degree times the vertices."""
    vertices = round(0.02 * 89_250)
    edges = round(vertices * 2 * 449_878 / 89_250 / 2)
    assert len(draw_stand_in("flickr:0.02").indices) == 2 * edges


def test_half_of_the_edges_stay_within_a_class():
    assert HOMOPHILY == 0.5
    data = datasets.load("flickr:0.05")
    graph = data.graph
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    within = (data.labels[rows] == data.labels[graph.indices]).mean()
    # Of the half that is drawn anywhere, one in seven classes is hit by chance.
    assert within == pytest.approx(0.5 + 0.5 / 7, abs=0.03)


def test_a_topology_alone_trains_on_a_quarter_and_validates_on_a_half(tmp_path):
    """HongTu's split of graphs without one: 25 % train, 50 % validate, 25 % test."""
    graph = draw_stand_in("flickr:0.02")
    path = tmp_path / "bare.npz"
    np.savez(path, indptr=graph.indptr.astype(np.int64), indices=graph.indices.astype(np.int32))
    for spec in (str(path), "sbm:vertices=400,edges=3k,features=8,classes=4"):
        data = datasets.load(spec)
        count = data.graph.num_vertices
        shares = [mask.sum() / count for mask in (data.train_mask, data.val_mask, data.test_mask)]
        assert shares == pytest.approx([0.25, 0.5, 0.25], abs=2 / count)


def test_another_seed_splits_otherwise_and_the_same_one_alike():
    labels = np.arange(200) % 5
    one, again, other = (make_split(labels, seed) for seed in (3, 3, 4))
    for kind in range(3):
        assert np.array_equal(one[kind], again[kind])
        assert not np.array_equal(one[kind], other[kind])
        assert one[kind].sum() == other[kind].sum()
