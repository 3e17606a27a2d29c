"""MixGCN section 3.2.2: orders, Proposition 3.5, and the schedules of Figure 5 as timelines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench.datasets.construct import symmetrise
from gnnbench.errors import UsageError
from gnnbench.price.schedule import Task, schedule
from gnnbench.records import Graph
from gnnbench_plugins.mixgcn.ordering import (
    count_stages,
    cut_batches,
    keep_order,
    make_batches,
    reorder,
)
from gnnbench_plugins.mixgcn.pipeline import STEPS, Pass, Timeline, find_lag, schedule_passes

#: Six vertices, numbered from 0, that agree with what the text says of Figure 1a, whose drawing is
#: not in it: vertex 1 has the neighbours 2 and 6 (Figure 4c), vertices 1 and 2 read five of the six
#: (section 3.2.2), and in a better order the first two read four.
FIGURE_1A = [(0, 1), (0, 5), (1, 2), (1, 4), (2, 3), (4, 5)]


def make_graph(vertices: int, edges: list[tuple[int, int]]) -> Graph:
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return symmetrise(ends[:, 0].copy(), ends[:, 1].copy(), vertices)[0]


@st.composite
def graphs(draw, most=24):
    """Small graphs, some with components and vertices without neighbours."""
    vertices = draw(st.integers(1, most))
    ends = st.integers(0, vertices - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=40))
    return make_graph(vertices, [(u, v) for u, v in edges if u != v])


def even_passes(count: int, stages: int, steps: tuple[float, float, float, float]) -> list[Pass]:
    seconds = np.repeat(np.array(steps, dtype=float)[:, None], stages, axis=1)
    return [Pass(f"pass {number}", seconds) for number in range(count)]


# --------------------------------------------------------------------------- orders


def test_the_text_s_figure_1a():
    graph = make_graph(6, FIGURE_1A)
    first = np.unique(np.concatenate([graph.indices[: graph.indptr[2]], [0, 1]]))
    assert len(first) == 5
    ordering = reorder(graph)
    assert ordering.bandwidth == 2
    assert count_stages(6, ordering.bandwidth) == 3
    # Of three batches of two, the first reads the first two: four vertices.
    assert make_batches(graph, ordering.order, 3).last_read.tolist() == [1, 2, 2]
    assert make_batches(graph, keep_order(graph).order, 3).last_read.tolist() == [2, 1, 2]


@given(graph=graphs())
@settings(max_examples=60, deadline=None)
def test_the_bandwidth_is_the_longest_edge_and_batches_read_what_their_vertices_read(graph):
    ordering = reorder(graph)
    n = graph.num_vertices
    assert sorted(ordering.order) == list(range(n))
    place = np.argsort(ordering.order)
    rows = np.repeat(np.arange(n), graph.degrees)
    lengths = place[rows] - place[graph.indices]
    assert ordering.bandwidth == max(lengths, default=0)
    assert ordering.granularity == (n - ordering.bandwidth) / (2 * n)
    for stages in {1, (n + 1) // 2, n}:
        bounds = cut_batches(n, stages)
        batch = np.searchsorted(bounds, place, side="right") - 1
        batches = make_batches(graph, ordering.order, stages)
        for k in range(stages):
            members = np.flatnonzero(batch == k)
            read = [batch[members], *(batch[graph.indices[rows == v]] for v in members)]
            assert batches.last_read[k] == np.concatenate(read).max()
            assert batches.rows[k] == len(members)
            assert batches.edges[k] == graph.degrees[members].sum()


def test_components_one_after_the_other_widen_nothing():
    path = [(0, 1), (1, 2), (2, 3)]
    graph = make_graph(11, path + [(u + 5, v + 5) for u, v in path])
    assert reorder(graph).bandwidth == 1
    # 11 vertices of bandwidth 1: 2 n / (n - b) = 2.2.
    assert count_stages(11, 1) == 3


@pytest.mark.parametrize(
    ("vertices", "width", "stages"),
    [(6, 2, 3), (10, 8, 10), (1000, 800, 10), (1000, 801, 11), (100, 0, 2), (10, 9, None)],
)
def test_stages_are_the_fewest_of_proposition_3_5(vertices, width, stages):
    assert count_stages(vertices, width) == stages
    enough = [s for s in range(1, vertices + 1) if s * (vertices - width) >= 2 * vertices]
    assert (enough[0] if enough else None) == stages


def test_one_vertex_has_no_stages_and_a_complete_graph_neither():
    assert count_stages(1, reorder(make_graph(1, [])).bandwidth) is None
    complete = make_graph(5, [(u, v) for u in range(5) for v in range(u)])
    assert count_stages(5, reorder(complete).bandwidth) is None
    # Whatever s, the first batch reads the last.
    assert all(
        make_batches(complete, reorder(complete).order, s).last_read[0] == s - 1 for s in (2, 5)
    )


@pytest.mark.parametrize(("width", "lag"), [(-1, 1), (6, 1), (2, 0)])
def test_there_are_no_such_stages(width, lag):
    with pytest.raises(ValueError, match="bandwidth"):
        count_stages(6, width, lag=lag)


@pytest.mark.parametrize("stages", [0, 7])
def test_batches_have_a_vertex_at_least(stages):
    with pytest.raises(UsageError, match="6 vertices cannot be cut"):
        cut_batches(6, stages)


# --------------------------------------------------------------------------- Figure 5


def test_figure_5_by_hand():
    """Two layers forward; a batch takes a second on either side and nothing on the way."""
    graph = make_graph(6, FIGURE_1A)
    naive = schedule_passes(even_passes(2, 1, (3, 0, 3, 0)), np.array([0]))
    # Aggregate 0-3, update 3-6, and again.
    assert naive.epoch_s == 12
    assert naive.idle_s == 3
    passes = even_passes(2, 3, (1, 0, 1, 0))
    as_numbered = make_batches(graph, keep_order(graph).order, 3)
    pipelined = schedule_passes(passes, as_numbered.last_read)
    # Vertex 1 waits for vertex 6, which is updated from 3 to 4: a second without sparse work.
    assert pipelined.start_s[1, 0].tolist() == [4, 5, 6]
    assert pipelined.waits_s[1].tolist() == [1, 0, 0]
    assert pipelined.epoch_s == 8
    reordered = schedule_passes(passes, make_batches(graph, reorder(graph).order, 3).last_read)
    assert reordered.start_s[1, 0].tolist() == [3, 4, 5]
    assert reordered.idle_s == 0
    assert reordered.epoch_s == 7


def as_tasks(passes: list[Pass], last_read: np.ndarray) -> list[Task]:
    """The same work for the scheduler of runs: four resources, each takes batches as they come."""
    tasks: list[Task] = []
    stages = len(last_read)
    number = {}
    for p, each in enumerate(passes):
        for k in range(stages):
            for step, name in enumerate(STEPS):
                after = []
                if step:
                    after.append(number[p, step - 1, k])
                elif p:
                    # Everything that the batch may read, not the last alone.
                    after += [number[p - 1, 3, j] for j in range(last_read[k] + 1)]
                before = (p, step, k - 1) if k else (p - 1, step, stages - 1)
                if before in number:
                    after.append(number[before])
                number[p, step, k] = len(tasks)
                tasks.append(Task(float(each.seconds[step, k]), (name,), tuple(after)))
    return tasks


def draw_passes(draw, stages: int, longest: int = 9) -> list[Pass]:
    """Whole seconds, so that sums are exact."""
    count = draw(st.integers(1, 4))
    length = 4 * stages
    steps = st.lists(st.integers(0, longest), min_size=length, max_size=length)
    return [Pass("", np.array(draw(steps), dtype=float).reshape(4, stages)) for _ in range(count)]


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_the_timeline_is_the_scheduler_s(data):
    stages = data.draw(st.integers(1, 6))
    passes = draw_passes(data.draw, stages)
    reads = st.lists(st.integers(0, stages - 1), min_size=stages, max_size=stages)
    last_read = np.array([max(k, read) for k, read in enumerate(data.draw(reads))])
    timeline = schedule_passes(passes, last_read)
    starts = np.array([start_s for start_s, _ in schedule(as_tasks(passes, last_read))])
    expected = starts.reshape(len(passes), stages, 4).transpose(0, 2, 1)
    assert np.array_equal(timeline.start_s, expected)
    lengths = np.stack([each.seconds for each in passes])
    assert np.array_equal(timeline.end_s, timeline.start_s + lengths)
    assert timeline.epoch_s == timeline.end_s.max()


# --------------------------------------------------------------------------- Proposition 3.5


def draw_balanced(draw, stages: int, lag: int) -> list[Pass]:
    """Batches that are back within ``lag`` of the shortest sparse steps, without queueing."""
    shortest = draw(st.integers(3, 8))
    ways = st.tuples(*[st.integers(0, shortest)] * 3).filter(
        lambda steps: 0 < sum(steps) <= lag * shortest
    )
    longest = draw(ways)
    passes = []
    for _ in range(draw(st.integers(2, 4))):
        seconds = np.empty((4, stages))
        for k in range(stages):
            # With a lag of more than one step, sparse steps are of one length.
            longer = draw(st.integers(0, 4)) if lag == 1 else 0
            seconds[0, k] = shortest + longer
            seconds[1:, k] = [draw(st.integers(min(1, most), most)) for most in longest]
        passes.append(Pass("", seconds))
    return passes


@given(graph=graphs(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_with_enough_stages_no_sparse_step_waits(graph, data):
    """Proposition 3.5, for any s at or above the least, and its extension to longer ways."""
    ordering = data.draw(st.sampled_from([keep_order, reorder]))(graph)
    lag = data.draw(st.integers(1, 3))
    least = count_stages(graph.num_vertices, ordering.bandwidth, lag=lag)
    if least is None:
        return
    stages = data.draw(st.integers(least, graph.num_vertices))
    passes = draw_balanced(data.draw, stages, lag)
    found = find_lag(passes)
    assert found is not None
    assert found <= lag
    batches = make_batches(graph, ordering.order, stages)
    assert batches.last_read[0] <= stages - 1 - lag
    assert schedule_passes(passes, batches.last_read).idle_s == 0


@given(graph=graphs(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_first_batch_that_reads_the_last_waits_at_every_border(graph, data):
    """What the proposition prevents: the sparse devices wait for one batch's way and back."""
    ordering = data.draw(st.sampled_from([keep_order, reorder]))(graph)
    n, b = graph.num_vertices, ordering.bandwidth
    stages = data.draw(st.integers(1, n))
    batches = make_batches(graph, ordering.order, stages)
    # An edge as long as (s - 1) n / s can only join the first batch and the last.
    if stages > 1 and b * stages >= (stages - 1) * n:
        assert batches.last_read[0] == stages - 1
    if batches.last_read[0] < stages - 1:
        return
    passes = draw_balanced(data.draw, stages, 1)
    timeline: Timeline = schedule_passes(passes, batches.last_read)
    away = [each.seconds[1:, -1].sum() for each in passes]
    assert timeline.waits_s[1:, 0].tolist() == away[:-1]
    assert min(away) > 0


def test_devices_that_do_both_take_turns() -> None:
    """Two batches of one pass, each 3 s to aggregate, 2 to send, 1 to update and 1 to return.

    The device aggregates both, 0 to 6, and updates the first, which came at 5, from 6 on; the
    second comes at 8 and is updated until 9. The link sends 3 to 5 and 6 to 8, and returns 8 to 9
    and 9 to 10: the first was updated at 7, when the second was being sent.
    """
    passes = (Pass("only", np.array([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0], [1.0, 1.0]])),)
    timeline = schedule_passes(passes, np.array([1, 1]), shared=True)
    assert timeline.start_s[0].tolist() == [[0, 3], [3, 6], [6, 8], [8, 9]]
    assert timeline.epoch_s == 10
    # A second pass waits for both to be back.
    twice = schedule_passes((*passes, *passes), np.array([1, 1]), shared=True)
    assert twice.start_s[1, 0].tolist() == [10, 13]
    assert twice.epoch_s == 20
    # Apart, updates and returns wait for nobody.
    assert schedule_passes(passes, np.array([1, 1])).epoch_s == 10
    alone = (Pass("only", np.array([[3.0], [2.0], [1.0], [1.0]])),)
    assert schedule_passes(alone, np.array([0]), shared=True).epoch_s == 7


def test_updates_that_are_slower_than_aggregation_leave_sparse_devices_waiting():
    """The condition that the proposition is silent on: 'significant latency imbalances' (4.4.2)."""
    graph = make_graph(12, [(v, v + 1) for v in range(11)])
    ordering = reorder(graph)
    stages = count_stages(12, ordering.bandwidth)
    assert stages == 3
    last_read = make_batches(graph, ordering.order, stages).last_read
    slow = even_passes(3, stages, (1, 0, 1.5, 0))
    assert find_lag(slow) is None
    assert schedule_passes(slow, last_read).idle_s > 0
    # Two steps of 1 s on the way keep up, but are back a step later than s = 3 allows.
    late = even_passes(3, stages, (1, 1, 1, 0))
    assert find_lag(late) == 2
    assert schedule_passes(late, last_read).idle_s > 0
    more = count_stages(12, ordering.bandwidth, lag=2)
    assert more == 4
    late = even_passes(3, more, (1, 1, 1, 0))
    assert schedule_passes(late, make_batches(graph, ordering.order, more).last_read).idle_s == 0
