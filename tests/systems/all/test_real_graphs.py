"""Training on real graphs: every strategy runs and equals its reference, and GCN learns.

The graphs are in the shared data folder, beside the repository or where ``GNNBENCH_DATA`` says.
"""

from functools import cache

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.comparison import Request, compare
from gnnbench.machines import load_platform
from gnnbench.records import Workload
from tests.systems.training import registry

EVERYBODY = ("reference", "pyg", "dgl", "native", "hyscale", "hongtu")


@cache
def dataset(name):
    return datasets.load(name)


def run(name, strategies, model, hidden=16, epochs=2, batch_size=64, fanouts=(25, 10), **fields):
    data = dataset(name)
    dims = (data.num_features, hidden, data.num_classes)
    request = Request(
        strategies=strategies,
        dataset=data,
        workload=Workload(model, dims, epochs, batch_size, fanouts, seed=0),
        platform=load_platform("epyc7763x2-4xa5000"),
        **fields,
    )
    return compare(request, registry()).runs


def assert_done_and_equal(runs, count):
    assert len(runs) == count
    for row in runs:
        assert (row.status, row.reason) == ("done", ""), row.label
        assert row.equivalence.reference == row.mode
        assert row.equivalence.holds, (row.label, row.mode, row.equivalence.fault)
        assert np.isfinite(row.loss).all()


@pytest.mark.parametrize(("name", "model"), [("cora", "sage"), ("citeseer", "gcn")])
def test_every_strategy_is_done_and_equal(name, model):
    """Four strategies have both modes, hyscale mini-batches, hongtu the full graph."""
    assert_done_and_equal(run(name, EVERYBODY, model), 10)


def test_gcn_learns_cora_to_78_percent():
    """On the features as they come; with rows normalised 0.82 is usual."""
    how = dict(epochs=100, check=False, modes=("full-graph",))
    (row,) = run("cora", ("reference",), "gcn", **how)
    assert row.status == "done"
    assert row.loss[-1] < row.loss[0] / 4
    assert row.accuracy["test"] >= 0.78
