"""The mini-batches of an epoch: every training vertex once, and in another order each epoch. The
ranges of a whole graph: about the same work in each."""

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.records import Graph
from gnnbench_plugins.reference.sampler import balance_ranges


def test_an_epoch_has_every_training_vertex_once():
    workload, data = make_workload(), make_dataset()
    sampler = plugins.load().part("sampler", "neighbour")()
    sampler.begin(Setting(data, make_platform(), workload, build(workload).shapes))
    first, again, second = (sampler.rounds(epoch) for epoch in (0, 0, 1))
    count = len(data.train_ids)
    assert count % workload.batch_size  # the last one is smaller, and there
    sizes = [len(seeds) for seeds in first]
    assert sizes == [workload.batch_size] * (count // workload.batch_size) + [
        count % workload.batch_size
    ]
    for rounds in (first, second):
        assert np.array_equal(np.sort(np.concatenate(rounds)), data.train_ids)
    assert np.array_equal(np.concatenate(first), np.concatenate(again))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))


@pytest.mark.parametrize(
    ("degrees", "bounds"),
    [
        # Work is one more than the in-edges; half of it, or a third, is reached at each bound.
        ([8, 1, 1, 1, 1, 1, 1, 0], [0, 2, 8]),
        ([0, 0, 0, 0, 2, 2, 3, 3], [0, 6, 8]),
        ([0] * 6, [0, 2, 4, 6]),
        ([5, 0, 0, 0, 0, 0, 5], [0, 1, 6, 7]),
    ],
)
def test_ranges_of_the_whole_graph_have_the_same_work_each(degrees, bounds):
    random = np.random.default_rng(0)
    count = len(degrees)
    rows = [np.sort(random.choice(count, degree, replace=False)) for degree in degrees]
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    graph = Graph(indptr, np.concatenate(rows).astype(np.int32))
    assert balance_ranges(graph, len(bounds) - 1).tolist() == bounds
