"""After how many sparse steps a batch is back from the dense devices, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gnnbench_plugins.mixgcn.pipeline import Pass, find_lag


def passes(*seconds):
    """A pass of two equal batches for each (aggregate, send, update, return)."""
    return [Pass("a pass", np.array([[s, s] for s in each], dtype=np.float64)) for each in seconds]


@pytest.mark.parametrize(
    ("seconds", "lag"),
    [
        (((4.0, 1.0, 2.0, 1.0),), 1),  # back within one aggregation, to the second
        (((4.0, 2.0, 2.0, 1.0),), 2),  # a second later: the next but one
        (((4.0, 4.0, 4.0, 4.0),), 3),
        (((4.0, 4.0, 1.0, 4.0),), 3),  # nine seconds are more than two aggregations
        (((8.0, 1.0, 1.0, 1.0), (4.0, 1.0, 3.0, 1.0)), 2),  # the longest of each, the shortest
        (((4.0, 5.0, 1.0, 1.0),), None),  # sends queue
        (((4.0, 0.0, 0.0, 0.0),), 1),
    ],
)
def test_a_lag_is_rounded_up(seconds, lag):
    assert find_lag(passes(*seconds)) == lag
