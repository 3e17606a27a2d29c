"""Placement ``single``: which device computes."""

from __future__ import annotations

import pytest

from gnnbench.comparison import Request, Variant, compare
from gnnbench.datasets import load
from gnnbench.errors import IncompatibleParts
from gnnbench.platforms.describe import load_platform
from gnnbench.plugins import load as load_plugins
from gnnbench.records import Workload
from gnnbench_plugins.reference.placement import HostPlacement, SinglePlacement

GPUS = load_platform("epyc7763x2-4xa5000")
FPGAS = load_platform("epyc7763x2-4xu250")


@pytest.mark.parametrize(
    ("placement", "platform", "name"),
    [
        (SinglePlacement(), GPUS, "gpu0"),
        (SinglePlacement(), FPGAS, "host"),
        (SinglePlacement(on_host=True), GPUS, "host"),
        (HostPlacement(), GPUS, "host"),
        (SinglePlacement(device="gpu2"), GPUS, "gpu2"),
        (SinglePlacement(device="host"), GPUS, "host"),
        (SinglePlacement(device="fpga1"), FPGAS, "fpga1"),
    ],
)
def test_a_gpu_computes_or_what_is_asked_for(placement, platform, name):
    assert [device.name for device in placement.trainers(platform)] == [name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu9"}, "has host, gpu0, gpu1, gpu2, gpu3; name one of these"),
        ({"device": "gpu1", "on_host": "true"}, "both say what computes; give one"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    request = Request(
        strategies=(Variant("reference"),),
        dataset=load("sbm:vertices=60,edges=200,features=4,classes=2"),
        workload=Workload("gcn", (4, 2), 1, 8, (3,), 0),
        platform=GPUS,
        options={"placement": options},
        modes=("mini-batch",),
    )
    with pytest.raises(IncompatibleParts, match=message):
        compare(request, load_plugins())
