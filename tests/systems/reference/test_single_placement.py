"""Placement ``single``: which device computes."""

import pytest

from gnnbench.machines.describe import load_platform
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
