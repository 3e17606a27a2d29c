"""Draws are counted as the law makes them: every count, over all draws that there are."""

import itertools
import math

import numpy as np
import pytest

from gnnbench.records import Block, Graph
from gnnbench.run import draws
from gnnbench.run.draws import DrawAudit

DEGREE, FANOUT = 6, 3
SETS = list(itertools.combinations(range(DEGREE), FANOUT))


def make_graph():
    """Vertices 0 and 1 have the neighbours 2 to 7, whose degrees are 3, 0, 0, 1, 2 and 0; vertex 8
    has eight."""
    rows = {0: range(2, 8), 1: range(2, 8), 2: (0, 1, 8), 5: (0,), 6: (0, 1), 8: range(8)}
    neighbours = [list(rows.get(vertex, ())) for vertex in range(9)]
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in neighbours])))
    return Graph(indptr.astype(np.int64), np.concatenate(neighbours).astype(np.int32))


GRAPH = make_graph()


def draw(places, *others, beside=()):
    """A block of vertices 0, 1, .. with neighbours at places of their rows; it has the sources
    ``beside`` as destinations too."""
    drawn = [np.array(each) for each in (places, *others)]
    ids = np.concatenate((np.arange(len(drawn)), np.array(beside, dtype=np.int64)))
    sources = np.concatenate((ids, np.setdiff1d(np.arange(9), ids)))
    place = np.argsort(sources)
    ends = [GRAPH.indices[GRAPH.indptr[row] + each] for row, each in enumerate(drawn)]
    counts = [len(each) for each in ends] + [0] * len(beside)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Block(sources, len(ids), indptr, place[np.concatenate(ends)].astype(np.int32))


def count(*epochs, fanouts=(FANOUT,)):
    audit = DrawAudit(GRAPH, fanouts, seed=0)
    for epoch, blocks in enumerate(epochs):
        assert audit.look(epoch, blocks, 1) is None
    return audit._counts


def hold(what, depth, cases):
    """Found, over all cases, has the mean and the variance that each case is due."""
    counts = [case[what, depth] for case in cases]
    found = np.array([each.found for each in counts])
    assert found.mean() == pytest.approx(counts[0].expected)
    assert found.var() == pytest.approx(counts[0].variance)
    assert all(each.variance == pytest.approx(counts[0].variance) for each in counts)
    assert found.var() > 0


@pytest.mark.parametrize(
    "what", [draws.FRONT, draws.FIRST, draws.LAST, draws.DEGREE, draws.PRESENT, draws.APART]
)
def test_what_a_row_draws_is_due_as_over_all_sets(what):
    hold(what, 0, [count([draw(places, beside=(3, 4))]) for places in SETS])


def test_marks_are_what_they_say():
    found = {
        what: each.found
        for (what, _), each in count([draw((0, 2, 3), beside=(4, 6))]).items()
        if each.variance
    }
    assert found == {
        draws.FRONT: 2,
        draws.FIRST: 2,
        draws.LAST: 1,
        draws.DEGREE: 1,
        draws.PRESENT: 1,
        draws.APART: 2,
    }


def test_what_was_drawn_before_is_no_likelier():
    hold(draws.BEFORE, 0, [count([draw((0, 2, 5))], [draw(places)]) for places in SETS])
    third = [count([draw((0, 2, 5))], [draw((0, 1, 2))], [draw(places)]) for places in SETS]
    found = np.array([[each[what, 0].found for each in third] for what in WHEN])
    again = [[len({*earlier} & {*places}) for places in SETS] for earlier in EARLIER]
    assert (found == np.array(again) + 2).all()


#: The second epoch has two of the first's neighbours.
WHEN, EARLIER = (draws.BEFORE, draws.ORIGIN), ((0, 1, 2), (0, 2, 5))


def test_what_was_drawn_in_the_layer_above_is_no_likelier():
    above = draw((1, 2, 4))
    hold(
        draws.ABOVE, 1, [count([draw(places), above], fanouts=(FANOUT, FANOUT)) for places in SETS]
    )


def test_vertices_do_not_draw_alike():
    cases = [count([draw(one, other)]) for one in SETS for other in SETS]
    for what in (draws.ALIKE, draws.APART):
        hold(what, 0, cases)


def test_what_an_earlier_mini_batch_had_is_not_present():
    counts = count([draw((0, 1, 2), beside=(2, 3))], [draw((0, 1, 2))])
    assert counts[draws.PRESENT, 0].found == 2


def test_places_of_rows_of_unlike_lengths_are_as_far_along():
    """Of eight neighbours the places 0, 4 and 6 are those 0, 3 and 5 of six, rounded up."""
    audit = DrawAudit(GRAPH, (FANOUT,), seed=0)
    ends = np.array([2, 5, 7, 0, 4, 6])
    made = Block(np.array([0, 8, 2, 5, 7, 4, 6]), 2, np.array([0, 3, 6]), np.zeros(6, np.int32))
    place = {vertex: number for number, vertex in enumerate(made.src_ids.tolist())}
    indices = np.array([place[vertex] for vertex in ends.tolist()], dtype=np.int32)
    assert audit.look(0, [Block(made.src_ids, 2, made.indptr, indices)], 1) is None
    assert audit._counts[draws.ALIKE, 0].found == 3


def test_a_draw_counts_once_in_however_many_units_it_is():
    audit = DrawAudit(GRAPH, (FANOUT,), seed=0)
    for epoch, drawn in ((0, 3), (0, 3), (1, 6)):
        assert audit.look(epoch, [draw((0, 2, 5))], 1) is None
        assert audit._counts[draws.FRONT, 0].drawn == drawn


def test_rows_are_looked_at_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(draws, "EDGES_AN_EPOCH", 2 * DEGREE)
    block = draw((0, 1, 2), (1, 2, 3))
    for rounds, drawn in ((1, 6), (2, 3)):
        audit = DrawAudit(GRAPH, (FANOUT,), seed=0)
        audit.look(0, [block], rounds)
        assert audit._counts[draws.FRONT, 0].drawn == drawn


def test_without_room_the_earlier_draws_are_not_kept(monkeypatch):
    monkeypatch.setattr(draws, "MOST_KEPT", 1)
    counts = count(*[[draw((0, 2, 5), (0, 2, 5))]] * 2)
    assert counts[draws.BEFORE, 0].found == 3


@pytest.mark.parametrize("places", [(0, 0, 1), (5, 1, 5)])
def test_an_edge_that_comes_twice_is_said(places):
    assert "in-edge twice" in DrawAudit(GRAPH, (FANOUT,), 0).look(0, [draw(places)], 1)


def test_an_edge_of_another_vertex_is_said():
    made = Block(np.array([0, 2, 3, 8]), 1, np.array([0, 3]), np.array([1, 2, 3], np.int32))
    assert "the graph does not have" in DrawAudit(GRAPH, (FANOUT,), 0).look(0, [made], 1)


def test_the_least_likely_count_is_told_from_a_bound_for_all_tests_on():
    audit = DrawAudit(GRAPH, (FANOUT,), seed=0)
    assert audit.find_fault("one") is None
    for epoch in range(60):
        audit.look(epoch, [draw((0, 1, 2))], 1)
        least = min(each.log_chance for each in audit._counts.values())
        said = audit.find_fault("one")
        assert (said is None) == (least >= math.log(1e-6 / len(audit._counts)))
    assert said.startswith("of 180 neighbours that sampler 'one' drew in layer 0 from the seeds, ")
