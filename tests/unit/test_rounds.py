"""The mini-batches of an epoch: every training vertex once, and in another order each epoch."""

from __future__ import annotations

import numpy as np

from gnnbench import plugins
from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.models import build
from gnnbench.parts import Setting


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
