"""The calls of a library on described machines: those of an update, and those of attention."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnbench.check.graphs import make_platform
from gnnbench.jobs.sized import price_plan
from gnnbench.machines.machine import CallTimes, Device, Hardware, LibraryRates, RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import AggregateWork, CopyWork
from gnnbench_plugins.dgl.kernel import DGLKernel

GPU = Device("gpu0", "gpu", "", Hardware(15e12, 900e9, 10**10, launch_s=1e-5, cache_bytes=6e6))
DGL = DGLKernel()


def test_an_update_of_a_full_graph_takes_the_calls_of_its_library_once():
    """Times of the library on a platform replace them, and so do rates of whole steps."""
    platform = replace(make_platform(1), accelerators=(GPU,))
    seconds = ModelClock(platform, DGL).seconds(CopyWork(loss=True), GPU.name, 0.0)
    assert seconds == DGL.library.batch_s > 0
    stated = replace(GPU, libraries={"dgl": LibraryRates(calls=CallTimes(batch_s=0.25))})
    assert DGL.batch_seconds(stated) == 0.25
    rated = replace_fields(GPU, update=RateCurve((1,), (1e9,), (1e9,)))
    for other in (replace(GPU, kind="fpga"), rated):
        assert DGL.batch_seconds(other) == 0.0


def test_a_share_of_a_graph_takes_a_share_of_an_update():
    """Calls take most of an epoch of a graph as small as this one."""
    options = {
        "strategy": "dgl",
        "model": "gcn",
        "platform": "p3-2xlarge",
        "dims": (16, 16, 8),
        "vertices": 2_000,
        "edges": 4_000,
    }
    whole_s, half_s = (
        price_plan((*options.items(), ("share", share))).epoch_s for share in (1.0, 0.5)
    )
    assert half_s == pytest.approx(whole_s, rel=1e-3)
    assert DGL.library.batch_s < whole_s < 2 * DGL.library.batch_s


@pytest.mark.parametrize(("form", "calls"), [("attention", 3), ("scaled", 1)])
def test_attention_of_dgl_has_three_calls_of_its_front_end(form, calls):
    for backward in (False, True):
        work = AggregateWork(3000, 1000, 8, 1000, form=form, backward=backward)
        counted = sum(each.calls for each in DGL.operations(work, GPU))
        assert counted == (0 if backward else calls)
