"""The clocks' prices, against numbers worked out by hand."""

from dataclasses import replace

import pytest

from gnnbench.errors import PlatformError
from gnnbench.machines.machine import Device, Hardware, Link, MemoryRates, Platform, TrainerRates
from gnnbench.machines.tables import replace_fields
from gnnbench.plugins import load
from gnnbench.price import model_clock
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import AggregateWork, CopyWork, LossWork, RowsWork, SampleWork, UpdateWork

HOST = Device(
    name="host",
    kind="cpu",
    model="eight cores",
    hardware=Hardware(
        flops_per_s=800.0, memory_bandwidth_bytes_per_s=100.0, memory_bytes=10**9, launch_s=0.5
    ),
    cores=8,
    memory=MemoryRates(core_bandwidth_bytes_per_s=20.0),
    rates=TrainerRates(sampled_edges_per_s=5.0),
)
GPU = Device(
    name="gpu0",
    kind="gpu",
    model="one accelerator",
    hardware=Hardware(
        flops_per_s=4000.0, memory_bandwidth_bytes_per_s=1000.0, memory_bytes=10**9, launch_s=0.25
    ),
)
LINK = Link("host-gpu0", ("host", "gpu0"), 50.0, latency_s=2.0)
PLATFORM = Platform("tiny", "made by hand", HOST, (GPU,), (LINK,))
TORCH = type(load().part("kernel", "torch")())


def clock_of(**host):
    return ModelClock(replace(PLATFORM, host=replace_fields(HOST, **host)), TORCH())


@pytest.fixture(scope="module")
def clock():
    return clock_of()


@pytest.mark.parametrize(
    ("work", "place", "seconds"),
    [
        # A link: its latency, and bytes over its bandwidth, whatever the threads.
        (CopyWork(bytes=300), "host-gpu0", 2.0 + 300 / 50),
        (CopyWork(bytes=0), "host-gpu0", 2.0),
        (CopyWork(bytes=300, threads=1), "host-gpu0", 2.0 + 300 / 50),
        # A memory: all its bandwidth; by threads 20 bytes/s each, until 5 of them draw all of it.
        (CopyWork(bytes=300), "host", 3.0),
        (CopyWork(bytes=300, threads=1), "host", 15.0),
        (CopyWork(bytes=300, threads=5), "host", 3.0),
        (CopyWork(bytes=300, threads=8), "host", 3.0),
        (CopyWork(bytes=300), "gpu0", 0.3),
        # Sampling: 5 edges a second for each thread, eight threads when none are named.
        (SampleWork(edges=80), "host", 80 / (5 * 8)),
        (SampleWork(edges=80, threads=2), "host", 80 / (5 * 2)),
    ],
)
def test_model_prices(clock, work, place, seconds):
    assert clock.seconds(work, place, wall_s=123.0) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "place", "more_s"),
    [(LossWork, "host", 11.0), (LossWork, "gpu0", 4.0), (UpdateWork, "host", 4.0)],
)
def test_what_a_round_takes_besides_comes_with_the_hosts_loss(clock, kind, place, more_s):
    """A step takes 4 seconds besides its work, and a round 7."""
    work = kind(rows=10, features=8, macs=80)
    slower = ModelClock(replace(PLATFORM, round_s=7.0, step_s=4.0), TORCH())
    seconds = clock.seconds(work, place, 0.0)
    assert slower.seconds(work, place, 0.0) == pytest.approx(seconds + more_s)


def test_rows_that_are_picked_cross_a_link_at_a_rate_of_their_own(clock):
    work = RowsWork(bytes=300, features=5)
    assert clock.seconds(work, "host-gpu0", 0.0) == pytest.approx(2.0 + 300 / 50)
    for rate, across in ((20.0, 20.0), (70.0, 40.0)):
        host = replace_fields(HOST, sockets=2, socket_bandwidth_bytes_per_s=40.0)
        platform = replace(PLATFORM, host=host, links=(replace(LINK, picked_bytes_per_s=rate),))
        picking = ModelClock(platform, TORCH())
        local = min(rate, 50.0)
        assert picking.seconds(work, "host-gpu0", 0.0) == pytest.approx(2.0 + 300 / local)
        far = work._replace(remote_bytes=100)
        expected = 2.0 + 200 / local + 100 / across
        assert picking.seconds(far, "host-gpu0", 0.0) == pytest.approx(expected)
        blocks = CopyWork(bytes=300)
        assert picking.seconds(blocks, "host-gpu0", 0.0) == pytest.approx(2.0 + 300 / 50)


def test_a_copy_into_new_memory_waits_until_a_large_one_is_mapped():
    """150 of 300 bytes are written, into memory that is mapped at 10 bytes/s from 100 bytes on."""
    clock = clock_of(mapped_from_bytes=100.0, fresh_bandwidth_bytes_per_s=10.0)
    assert clock.seconds(CopyWork(bytes=300), "host", 0.0) == 3.0
    assert clock.seconds(CopyWork(bytes=300, fresh=True), "host", 0.0) == 15.0
    assert clock.seconds(CopyWork(bytes=150, fresh=True), "host", 0.0) == 1.5
    assert clock.seconds(CopyWork(bytes=300, fresh=True), "gpu0", 0.0) == 0.3


def test_a_place_must_be_on_the_platform(clock):
    with pytest.raises(PlatformError, match="has no device 'gpu7'; it has host, gpu0"):
        clock.seconds(CopyWork(bytes=1), "gpu7", 0.0)


def test_a_host_without_a_bandwidth_per_core_gives_all_of_it_to_any_thread():
    clock = clock_of(core_bandwidth_bytes_per_s=0.0)
    assert clock.seconds(CopyWork(bytes=300, threads=1), "host", 0.0) == 3.0


def test_the_kernel_has_the_last_word_on_its_own_work():
    class Costly(TORCH):
        def seconds(self, work, device):
            return 42.0 + work.edges

    clock = ModelClock(PLATFORM, Costly())
    assert clock.seconds(AggregateWork(edges=3, features=1), "gpu0", 0.0) == 45.0
    assert clock.seconds(CopyWork(bytes=300), "host", 0.0) == 3.0


AGGREGATE = AggregateWork(edges=60, rows=20, features=2, sources=30)


def watch(method, asked):

    class Watched(TORCH):
        pass

    def ask(self, work, device):
        asked.append((work, device.name))
        return getattr(super(Watched, self), method)(work, device)

    setattr(Watched, method, ask)
    return Watched()


def test_equal_work_on_one_device_is_priced_once(monkeypatch):
    asked = []
    clock = ModelClock(PLATFORM, watch("operations", asked))
    other = AGGREGATE._replace(edges=61)
    first = [clock.seconds(work, place, 1.0) for work, place in 2 * [(AGGREGATE, "gpu0")]]
    assert first[0] == first[1]
    assert len(asked) == 1
    assert clock.seconds(other, "gpu0", 1.0) > first[0]
    assert clock.seconds(AGGREGATE, "host", 1.0) != first[0]
    assert len(asked) == 3
    # As many as are remembered: the next one forgets them.
    monkeypatch.setattr(model_clock, "MOST_PRICES", 3)
    clock.seconds(other, "host", 1.0)
    assert clock.seconds(AGGREGATE, "gpu0", 1.0) == first[0]
    assert len(asked) == 5


def test_a_kernel_that_states_seconds_is_asked_each_time():
    asked = []
    clock = ModelClock(PLATFORM, watch("seconds", asked))
    for _ in range(2):
        clock.seconds(AGGREGATE, "gpu0", 1.0)
    assert len(asked) == 2


def test_a_kernel_prices_only_aggregation_and_update():
    with pytest.raises(TypeError, match="no cost for SampleWork"):
        TORCH().seconds(SampleWork(edges=1), GPU)


def test_the_wall_clock_says_what_was_measured():
    clock = WallClock()
    assert clock.seconds(UpdateWork(macs=10**15), "anywhere", wall_s=0.125) == 0.125
    assert (clock.provenance, clock_of().provenance) == ("measured", "modelled")
