"""What devices take at least, by hand, and plugins that state less."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from gnnbench.errors import PluginError
from gnnbench.machines import load_platform
from gnnbench.machines.costs import Library
from gnnbench.machines.costs.bounds import Peaks, find_peaks, least_seconds
from gnnbench.machines.costs.library import read_devices
from gnnbench.machines.machine import (
    Device,
    EdgeRates,
    Hardware,
    LibraryRates,
    Platform,
    RateCurve,
    SumRates,
    TrainerRates,
)
from gnnbench.machines.tables import replace_fields
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import AggregateWork, CopyWork, ProductSize, SampleWork, UpdateWork
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.reference.sampler import NeighbourSampler

#: A value crosses in 0.04 s, and in 0.01 s where it is kept; ten operations take a second.
PEAKS = Peaks(
    bytes_per_s=100.0,
    cached_bytes_per_s=400.0,
    cache_bytes=80.0,
    operations_per_s=10.0,
    drawn_edges_per_s=20.0,
    skips=False,
)
GPU = Device("gpu0", "gpu", "made by hand", Hardware(1e12, 1e9, 10**9, cache_bytes=1e3))
HOST = Device(
    "host",
    "cpu",
    "made by hand",
    Hardware(1e11, 1e8, 10**9),
    cores=4,
    rates=TrainerRates(sampled_edges_per_s=1e4),
)
PLATFORM = Platform("tiny", "", HOST, (GPU,), ())
SUM = AggregateWork(edges=4000, rows=1000, features=10, sources=3000)
UPDATE = UpdateWork(macs=10**9, rows=1000, features=10)
DRAW = SampleWork(edges=10**6, layers=2)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (AggregateWork(edges=7, rows=5, features=10), 2.0),
        (AggregateWork(edges=8, rows=5, features=10), 3.0),
        (AggregateWork(edges=2, rows=5, features=10), 0.8),
        (AggregateWork(edges=0, rows=5, features=10), 0.0),
        (AggregateWork(edges=12, rows=11, features=10, sources=12), 4.4),
        (AggregateWork(edges=12, rows=12, features=1, itemsize=80, sources=12), 9.6),
        (AggregateWork(edges=5, rows=5, features=10, sources=500), 2.0),
        (AggregateWork(edges=20, rows=1, features=1, sources=20), 1.9),
        (AggregateWork(edges=20, rows=1, features=1, itemsize=100, sources=20), 9.2 + 0.2),
        (AggregateWork(20, 1, 1, itemsize=100, sources=20, backward=True), 1.9),
        (AggregateWork(20, 1, 1, itemsize=100, sources=20, product=ProductSize(15)), 4.9),
        (UpdateWork(macs=100, rows=1, features=1), 20.0),
        (SampleWork(edges=30, layers=5), 1.5),
        (CopyWork(bytes=10**6, loss=True), 0.0),
    ],
)  # fmt: skip
def test_a_work_takes_what_its_bytes_and_operations_do(work, seconds):
    assert least_seconds(work, PEAKS) == pytest.approx(seconds, rel=1e-12)


def test_a_device_with_masks_computes_nothing_that_is_not_wanted():
    """Of what it reads it may skip nothing."""
    masked = replace(PEAKS, skips=True)
    assert least_seconds(AggregateWork(edges=50, rows=5, features=10), masked) == 0.0
    read = AggregateWork(edges=20, rows=1, features=1, itemsize=100, sources=20)
    assert least_seconds(read, masked) == pytest.approx(9.2 + 0.2)
    assert least_seconds(UpdateWork(macs=100), masked) == 20.0
    spu = load_platform("xeon8462-8xh100-8xspu").device("spu0")
    assert find_peaks(spu).skips
    assert not find_peaks(GPU).skips


def test_the_largest_rates_of_a_device_are_its_peaks():
    """Of its kind the cache's, 2.5 times the memory's on a GPU, and five times on a CPU."""
    assert find_peaks(GPU) == Peaks(1e9, 2.5e9, 1e3, 1e12, 2.5e8, skips=False)
    assert find_peaks(HOST) == Peaks(1e8, 5e8, 4 * 2.4e6, 1e11, 2.5e7, skips=False)
    board = Device("fpga0", "fpga", "made by hand", Hardware(1e12, 1e9, 10**9))
    assert find_peaks(board) == Peaks(1e9, 1e9, 0.0, 1e12, 2.5e8, skips=False)


def test_what_a_platform_states_beyond_a_devices_own_rates_is_believed():
    def curve(rate):
        return RateCurve((4, 64), (rate / 2, rate), (1.0, 1.0))

    assert find_peaks(replace_fields(GPU, aggregate=curve(3e9))).bytes_per_s == 3e9
    assert find_peaks(replace_fields(GPU, aggregate_backward=curve(4e9))).bytes_per_s == 4e9
    assert find_peaks(replace_fields(GPU, update=curve(2e12))).operations_per_s == 2e12
    rates = LibraryRates(
        sums=SumRates(aggregate=curve(5e9), cached=curve(8e9), written=curve(6e9)),
        update=curve(3e12),
        edges=EdgeRates(sampled_edges_per_s=1e9),
    )
    peaks = find_peaks(replace(HOST, libraries={"some": rates}))
    assert peaks == Peaks(6e9, 8e9, 4 * 2.4e6, 3e12, 4e9, skips=False)
    assert find_peaks(replace_fields(HOST, sampled_edges_per_s=1e7)).drawn_edges_per_s == 4e7


@dataclass
class Stating(TorchKernel):
    """A kernel that takes what it is told to."""

    name: ClassVar[str] = "stating"
    stated: object = 1.0
    of_batch: object = 0.0

    def seconds(self, work, device):
        return self.stated

    def batch_seconds(self, device):
        return self.of_batch


def price(work, **stated):
    return ModelClock(PLATFORM, Stating(**stated)).seconds(work, "gpu0", 0.0)


@pytest.mark.parametrize("work", [SUM, UPDATE], ids=lambda work: type(work).__name__)
def test_a_time_may_be_what_the_device_takes_at_least_and_no_less(work):
    least = least_seconds(work, find_peaks(GPU))
    assert least > 0
    for stated in (least, 0.9995 * least, 2 * least, 10**6):
        assert price(work, stated=stated) == stated
    with pytest.raises(PluginError, match="states"):
        price(work, stated=0.998 * least)


def test_a_time_below_that_is_refused_in_a_sentence():
    """Half of 3,000 rows of 40 bytes are read, of which 1,000 bytes are in the cache."""
    with pytest.raises(PluginError) as caught:
        price(SUM, stated=1e-5)
    assert str(caught.value) == (
        "kernel 'stating' states 1e-05 s on gpu0 (made by hand) for 4,000 edges of width 10 into "
        "1,000 rows, which takes at least 5.940e-05 s at the device's largest rates. "
        "Let its seconds() give a finite time that is no shorter, or correct the rates in the "
        "platform's file."
    )


@pytest.mark.parametrize("stated", [0.0, -1.0, float("nan"), float("inf"), None, "1"], ids=repr)
@pytest.mark.parametrize("work", [SUM, UPDATE], ids=lambda work: type(work).__name__)
def test_what_is_no_time_is_refused(work, stated):
    with pytest.raises(PluginError, match=r"kernel 'stating' states .* Let its seconds\(\) give"):
        price(work, stated=stated)


@pytest.mark.parametrize("stated", [-1.0, float("nan"), float("inf"), None], ids=repr)
def test_the_loss_takes_a_time(stated):
    work = CopyWork(bytes=1000, loss=True)
    assert price(work, of_batch=2.0) == pytest.approx(2.0 + 1e-6)
    with pytest.raises(PluginError, match=r"the loss and the optimiser.* Let its batch_seconds\("):
        price(work, of_batch=stated)


def draw(host=HOST, work=DRAW, **rates):
    class Drawing(NeighbourSampler):
        name: ClassVar[str] = "drawing"
        library: ClassVar[Library] = Library(**rates)

    platform = replace(PLATFORM, host=host)
    return ModelClock(platform, TorchKernel(), Drawing()).seconds(work, host.name, 0.0)


def test_edges_are_drawn_no_faster_than_they_are_written():
    """4 bytes an edge at 100 MB/s; a library's rate is that of one of four cores, which contend."""
    cores = 4 ** read_devices()["cpu"].workers_gain
    assert draw(sampled_edges_per_s=2.5e7 / cores) == pytest.approx(1e6 / 2.5e7)
    for rates in (
        {"sampled_edges_per_s": 2.51e7 / cores},
        {"sampled_edges_per_s": 1e18},
        {"sampled_edges_per_s": float("nan")},
        {"sampled_edges_per_s": -1.0},
        {"sampling_call_s": -1e3},
        {"sampling_call_s": float("inf")},
    ):
        with pytest.raises(PluginError, match=r"sampler 'drawing' .* Let its library give a"):
            draw(**rates)


def test_what_the_platform_says_of_drawing_is_believed():
    fast = replace_fields(HOST, sampled_edges_per_s=1e9)
    assert draw(fast) == pytest.approx(1e6 / 4e9)
    measured = {"drawing": LibraryRates(edges=EdgeRates(sampled_edges_per_s=2e9))}
    assert draw(replace(HOST, libraries=measured)) == pytest.approx(1e6 / 8e9)
