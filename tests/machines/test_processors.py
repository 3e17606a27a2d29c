"""torch's own error for a full CUDA device becomes the project's, with what torch had left."""

from dataclasses import replace

import pytest
import torch

import gnnbench.run
from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.machines import load_platform
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.wall_clock import WallClock
from gnnbench.run import train
from gnnbench.run.processors import on_devices

TOTAL = 1000
#: By CUDA device: what is free there, what torch has taken, and what of that tensors hold.
STATE = {0: (400, 300, 250), 1: (100, 500, 480), 2: (90, 700, 500)}


@pytest.fixture
def counters(monkeypatch):
    def read(place):
        return lambda where: STATE[torch.device(where).index][place]

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda where: (read(0)(where), TOTAL))
    monkeypatch.setattr(torch.cuda, "memory_reserved", read(1))
    monkeypatch.setattr(torch.cuda, "memory_allocated", read(2))


def on_cuda(*indices):
    """Accelerators of a platform, each computing on the CUDA device of that number."""
    platform = load_platform("epyc7763x2-4xa5000")
    return [
        replace(device, torch_device=f"cuda:{index}")
        for device, index in zip(platform.accelerators, indices, strict=False)
    ]


def fill(devices):
    with on_devices(devices):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


def test_the_fullest_of_several_devices_is_named(counters):
    # Free, and unused by torch: 450, 120 and 290 bytes.
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        fill(on_cuda(0, 1, 2))
    error = caught.value
    assert (error.device, error.requested_bytes) == ("gpu1", 121)
    assert (error.in_use_bytes, error.capacity_bytes) == (TOTAL - 120, TOTAL)
    assert isinstance(error.__cause__, torch.OutOfMemoryError)
    assert "gpu1 is out of memory" in str(error)


def test_one_that_is_several_of_the_platforms_goes_by_its_own_name(counters):
    with pytest.raises(DeviceOutOfMemoryError, match=r"^cuda:2 is out of memory"):
        fill(on_cuda(0, 2, 2))


def test_without_cuda_devices_the_error_is_left_as_it_is():
    with pytest.raises(torch.OutOfMemoryError):
        fill(load_platform("epyc7763x2-4xa5000").accelerators)


def test_training_raises_it_whatever_the_engine(registry, counters, monkeypatch):
    platform = load_platform("epyc7763x2-4xa5000")
    (device,) = on_cuda(0)
    platform = replace(platform, accelerators=(device, *platform.accelerators[1:]))
    workload = make_workload("gcn")
    setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
    parts = registry.strategy("hongtu").bundles["full-graph"]
    bundle = plugins.assemble(registry, parts, {})

    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gnnbench.run, "make_engine", refuse)
    monkeypatch.setattr(gnnbench.run, "open_timer", lambda _: None)
    with pytest.raises(
        DeviceOutOfMemoryError, match=r"^gpu0 .* 451 bytes are needed for a torch tensor"
    ):
        train(bundle, setting, WallClock())
