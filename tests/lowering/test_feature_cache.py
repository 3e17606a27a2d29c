"""A cache of feature rows on a device: what it serves, and what it says of itself."""

from __future__ import annotations

import numpy as np
import torch

from gnnbench.lowering.feature_cache import FeatureCache
from gnnbench.records import Fetch, RoundTraffic
from gnnbench.run.feature_cache import CachedRows


def ids(*values):
    return np.array(values, dtype=np.int64)


def make_cache():
    """Of ten vertices, rows 2, 0 and 1 on the device of slot 3."""
    cache = FeatureCache(10)
    cache.keep(3, ids(2, 0, 1))
    return cache


def copy_rows(cache):
    rows = CachedRows(cache)
    rows.keep(3, torch.tensor([[2.0], [0.0], [1.0]]))
    return rows


def serve(cache, slot, *needed):
    fetch = Fetch(slot, ids(*needed), ids(*needed), ids())
    (served,) = cache.serve(RoundTraffic((fetch,), merged=True)).fetches
    return served


def test_rows_that_are_cached_do_not_cross():
    served = serve(make_cache(), 3, 1, 2, 5, 6, 7)
    assert served.from_host.tolist() == [5, 6, 7]
    assert served.reused.tolist() == [1, 2]
    assert serve(make_cache(), 0, 1, 5).from_host.tolist() == [1, 5]


def test_the_hit_rate_is_of_the_rows_needed():
    cache = make_cache()
    assert cache.notes({3: "gpu3"}) == ()
    serve(cache, 3, 1, 2, 5, 6, 7)
    serve(cache, 3, 0, 8, 9)
    (note,) = cache.notes({3: "gpu3"})
    assert "gpu3 3" in note
    assert "hit rate 37.5% of 8 rows needed" in note


def test_rows_are_put_together_in_the_order_asked_for():
    cache = make_cache()
    places = cache.find(3, ids(5, 1, 2, 7))
    rows = copy_rows(cache).assemble(3, 4, places, torch.tensor([[5.0], [7.0]]))
    assert rows.ravel().tolist() == [5.0, 1.0, 2.0, 7.0]
    assert make_cache().count_missing(3, ids(5, 1, 2, 7)) == 2
    assert make_cache().count_missing(0, ids(5, 1)) == 2
