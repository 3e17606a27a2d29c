"""Devices that are made of this machine's cores."""

import dataclasses
import itertools
import os
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import gnnbench
from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.constants import MEASURED
from gnnbench.errors import IncompatiblePartsError, PlatformError
from gnnbench.lowering import choose_lowering
from gnnbench.machines import workers
from gnnbench.machines.describe import is_made_of_cores, load_platform
from gnnbench.machines.files import CoreLink, CoreSet, Sets
from gnnbench.machines.local import describe_unmeasured
from gnnbench.machines.machine import CallTimes, EdgeRates, LibraryRates, Link, RateCurve
from gnnbench.machines.ranks import assign_ranks
from gnnbench.machines.show import show_platform
from gnnbench.machines.tables import replace_fields
from gnnbench.machines.workers import make_workers, parse_cores
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.model_error import find_kind
from gnnbench.price.processes import hold_processes
from gnnbench.price.wall_clock import WallClock
from gnnbench.program import Access, Buffer, Collective, Ledger, Place, Step, reader
from gnnbench.program.recorder import Recorder
from gnnbench.records import CopyWork
from gnnbench.run import arrivals
from gnnbench.run.arrivals import Arrivals, Lanes, LimitedLinks
from gnnbench.run.processors import on_cores

GB = 1_000_000_000


@pytest.fixture
def machine(monkeypatch):
    """A machine of eight cores, numbered 10, 12, .. 24, whose rates are easy to count with."""
    host = replace_fields(
        describe_unmeasured().host,
        cores=8,
        flops_per_s=80.0 * GB,
        memory_bandwidth_bytes_per_s=40.0 * GB,
        core_bandwidth_bytes_per_s=12.0 * GB,
        memory_bytes=32 * GB,
        launch_s=1e-6,
        sampled_edges_per_s=2e7,
        gather=RateCurve((16, 64), (20.0 * GB, 40.0 * GB), (8.0 * GB, 10.0 * GB)),
        libraries={
            "torch": LibraryRates(
                calls=CallTimes(call_s=1e-5, batch_s=2e-4), edges=EdgeRates(bound_edges_per_s=1e6)
            )
        },
    )
    local = dataclasses.replace(
        describe_unmeasured(),
        host=host,
        step_s=40e-6,
        sources={**describe_unmeasured().sources, "step": "a stopwatch"},
        marks={**describe_unmeasured().marks, "step": MEASURED},
    )
    monkeypatch.setattr(workers, "load_local", lambda: local)
    monkeypatch.setattr(workers, "list_cores", lambda: list(range(10, 26, 2)))
    return local


@pytest.mark.parametrize(
    ("spec", "devices", "host"),
    [("cores:1", (1,), None), ("cores:2,1,3", (2, 1, 3), None), ("cores:2+1,4", (1, 4), 2)],
)
def test_a_spec_says_how_many_cores_each_device_has(spec, devices, host):
    sets = parse_cores(spec)
    assert tuple(each.cores for each in sets.devices) == devices
    assert (sets.host.cores if sets.host else None) == host
    assert is_made_of_cores(spec)


@pytest.mark.parametrize(
    "spec", ["cores:", "cores:0", "cores:1,", "cores:0+1", "cores:1+", "cores:a"]
)
def test_a_spec_that_cannot_be_read_is_refused(spec):
    with pytest.raises(PlatformError, match=r"is not cores:A,B,\.\.\. with the number of cores"):
        load_platform(spec)


def test_cores_are_handed_out_in_their_order_and_the_hosts_come_last(machine):
    made = make_workers(parse_cores("cores:2+3,1"), "three sets")
    assert [device.pinned for device in made.accelerators] == [(10, 12, 14), (16,)]
    assert made.host.pinned == (18, 20)
    assert not made.shares_cores
    assert not made.virtual


def test_a_host_without_cores_of_its_own_has_those_of_all_devices(machine):
    made = make_workers(parse_cores("cores:1,2"), "two sets")
    assert made.host.pinned == (10, 12, 14)
    assert made.host.cores == 3
    assert made.shares_cores


def test_more_cores_than_there_are_are_refused(machine):
    with pytest.raises(PlatformError, match=r"made of 9 cores, and this process may use 8; ask"):
        make_workers(parse_cores("cores:4,5"), "too many")


def test_more_memory_than_there_is_is_refused(machine):
    sets = Sets((CoreSet(1, memory_bytes=20 * GB), CoreSet(1, memory_bytes=13 * GB)))
    with pytest.raises(PlatformError, match="may hold 33,000,000,000 bytes together, and this"):
        make_workers(sets, "too much")


def test_memory_is_shared_evenly_unless_a_budget_says_otherwise(machine):
    sets = Sets((CoreSet(1), CoreSet(1, memory_bytes=3 * GB)))
    first, second = make_workers(sets, "budgets").accelerators
    assert (first.hardware.memory_bytes, second.hardware.memory_bytes) == (16 * GB, 3 * GB)
    beside = make_workers(parse_cores("cores:1+1,1,1"), "beside")
    assert [device.hardware.memory_bytes for device in beside.devices] == [8 * GB] * 4


def test_devices_share_what_all_cores_at_work_reach_together(machine):
    """Two of eight cores, while four are at work: 24 GB/s alone, and half of what all reach."""
    device, _ = make_workers(parse_cores("cores:2,2"), "two pairs").accelerators
    assert device.cores == 2
    assert device.hardware.flops_per_s == 20.0 * GB
    assert device.hardware.memory_bandwidth_bytes_per_s == 20.0 * GB
    assert device.rates.gather is not None
    assert device.rates.gather.rates == (10.0 * GB, 20.0 * GB)
    single, _ = make_workers(parse_cores("cores:1,1"), "two cores").accelerators
    assert single.hardware.memory_bandwidth_bytes_per_s == 12.0 * GB
    assert single.rates.gather.rates == (8.0 * GB, 10.0 * GB)


def test_a_device_that_is_slow_leaves_others_the_more(machine):
    """Four cores beside four at half their speed share 40 GB/s with two on average."""
    fast, slow = make_workers(Sets((CoreSet(4), CoreSet(4, speed=0.5))), "unequal").accelerators
    assert fast.hardware.memory_bandwidth_bytes_per_s == pytest.approx(40.0 * GB * 4 / 6)
    assert slow.hardware.memory_bandwidth_bytes_per_s == pytest.approx(40.0 * GB * 4 / 8 / 2)


def test_a_device_at_half_its_speed_takes_twice_as_long_for_everything(machine):
    sets = Sets((CoreSet(1), CoreSet(1, speed=0.5)))
    whole, half = make_workers(sets, "unequal").accelerators
    assert half.speed == 0.5
    assert half.hardware.flops_per_s == whole.hardware.flops_per_s / 2
    assert (
        half.hardware.memory_bandwidth_bytes_per_s
        == whole.hardware.memory_bandwidth_bytes_per_s / 2
    )
    assert half.rates.sampled_edges_per_s == whole.rates.sampled_edges_per_s / 2
    assert half.rates.gather.rates == tuple(rate / 2 for rate in whole.rates.gather.rates)
    assert half.rates.gather.core_rates == tuple(rate / 2 for rate in whole.rates.gather.core_rates)
    assert half.hardware.launch_s == 2 * whole.hardware.launch_s
    slow, fast = half.libraries["torch"], whole.libraries["torch"]
    assert (slow.calls.call_s, slow.calls.batch_s) == (
        2 * fast.calls.call_s,
        2 * fast.calls.batch_s,
    )
    assert slow.edges.bound_edges_per_s == fast.edges.bound_edges_per_s / 2


def test_a_link_is_two_copies_by_a_core_or_what_it_is_limited_to(machine):
    free = make_workers(parse_cores("cores:1,1"), "free").links
    assert [link.name for link in free] == ["host-worker0", "host-worker1", "worker0-worker1"]
    assert {link.bandwidth_bytes_per_s for link in free} == {3.0 * GB}  # 12 GB/s, four passes
    assert not any(link.limited or link.blocking for link in free)
    sets = Sets((CoreSet(1),), link=CoreLink(5e8, blocking=True))
    (limited,) = make_workers(sets, "limited").links
    assert (limited.bandwidth_bytes_per_s, limited.limited, limited.blocking) == (5e8, True, True)


def test_at_a_blocking_link_a_transfer_keeps_both_its_ends():
    ends = ("host", "worker0")
    assert Link("a", ends, 1.0).lanes("host") == ("host>worker0",)
    blocking = Link("a", ends, 1.0, blocking=True)
    assert blocking.lanes("worker0") == ("worker0>host", "host", "worker0")


def test_both_directions_of_a_limited_link_are_in_use_at_once(machine):
    """A message takes 1,000 s; two of one direction take twice as long."""
    sets = Sets((CoreSet(1),), link=CoreLink(1.0))
    arrived = []
    keeper = SimpleNamespace(add=lambda number, until, _: arrived.append(until._moment_s))
    links = LimitedLinks(make_workers(sets, "limited"), keeper)
    for source in ("host", "worker0", "host"):
        (lane,) = links._links["host-worker0"].lanes(source)
        place = Place("host-worker0", (lane,))
        links.leave(Step(None, "transfer", "rows", place, CopyWork(bytes=1000)), 0)
    there, back, again = arrived
    assert back - there == pytest.approx(0.0, abs=300.0)
    assert again - there == pytest.approx(1000.0)


def test_devices_of_one_machine_are_its_cpu_and_no_nodes(machine):
    made = make_workers(parse_cores("cores:1,1"), "cores:1,1")
    assert find_kind(made, ["worker0", "worker1"]) == "cpu"


FILE = """
name = "unequal"
description = "two cores, one at half its speed"

[[cores]]
count = 2

[[cores]]
count = 1
speed = 0.5
memory = { value = 2, unit = "GB", source = "a budget" }

[host]
count = 1

[link]
bandwidth = { value = 500, unit = "MB/s", source = "a limit" }
blocking = true
"""


def test_a_file_says_what_each_device_may_hold_and_how_fast_it_is(machine, tmp_path):
    path = tmp_path / "unequal.toml"
    path.write_text(FILE)
    assert is_made_of_cores(str(path))
    made = load_platform(str(path))
    assert made.name == "unequal"
    first, second = made.accelerators
    assert (first.cores, first.speed, second.cores, second.speed) == (2, 1.0, 1, 0.5)
    assert second.hardware.memory_bytes == 2 * GB
    assert made.host.pinned == (16,)
    assert {link.bandwidth_bytes_per_s for link in made.links} == {5e8}
    assert all(link.limited and link.blocking for link in made.links)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("speed = 0.5", "speed = 1.5", "speed of [[cores]] number 2 is 1.5; it must be at most 1"),
        ("speed = 0.5", "sped = 0.5", "unknown key 'sped' in [[cores]] number 2; did you mean"),
        ("count = 2", "count = 0", "count of [[cores]] number 1 is 0; it must be above zero"),
        ("count = 2\n", "", "[[cores]] number 1 has no count; add count ="),
        ("blocking", "blocks", "unknown key 'blocks' in [link]; did you mean 'blocking'"),
        ('"MB/s"', '"MB"', "bandwidth of [link]: unit 'MB' is not one of bytes per second"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(machine, tmp_path, old, new, sentence):
    path = tmp_path / "wrong.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(PlatformError) as refused:
        load_platform(str(path))
    assert sentence in str(refused.value)


def test_a_described_platform_is_not_made_of_cores(tmp_path):
    assert not is_made_of_cores("epyc7763x2-4xa5000")
    assert not is_made_of_cores("local")
    assert not is_made_of_cores(str(tmp_path / "nowhere.toml"))


def test_a_host_with_cores_of_its_own_is_a_rank_of_its_own(machine):
    beside = make_workers(parse_cores("cores:1+1,1"), "beside")
    assert assign_ranks((*beside.accelerators, beside.host), beside) == (0, 1, 2)
    among = make_workers(parse_cores("cores:1,1"), "among")
    assert assign_ranks((*among.accelerators, among.host), among) == (0, 1, 0)


def test_a_process_is_on_its_cores_and_nowhere_else_meanwhile():
    before = os.sched_getaffinity(0)
    chosen = [min(before)]
    with on_cores(chosen):
        assert os.sched_getaffinity(0) == set(chosen)
        threads = {int(each) for each in os.listdir("/proc/self/task")}
        assert all(os.sched_getaffinity(each) == set(chosen) for each in threads)
    assert os.sched_getaffinity(0) == before


class Clock:
    """A clock that stands still unless somebody sleeps; ``slept`` has each sleep."""

    def __init__(self):
        self.now_s, self.slept, self.computed_s = 100.0, [], 0.0

    def process_time(self):
        return self.computed_s

    def monotonic(self):
        return self.now_s

    perf_counter = monotonic

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(arrivals, "time", made)
    monkeypatch.setattr(reader, "time", made)
    return made


def test_what_is_sent_over_a_lane_crosses_one_after_the_other(clock):
    lanes = Lanes()
    assert lanes.send("a", 500, 1000.0) == 100.5
    assert lanes.send("a", 1000, 1000.0) == 101.5
    assert lanes.send("b", 250, 1000.0) == 100.25
    clock.now_s = 103.0
    assert lanes.send("a", 1000, 1000.0) == 104.0


class Do(NamedTuple):
    seconds: float


def take_over_limited_link(clock, *, blocking, needed):
    """Take steps that send for 2 s, compute for 1.5 s, and need what was sent or not."""
    link = Link("host-a", ("host", "a"), 1000.0, limited=True, blocking=blocking)
    platform = SimpleNamespace(host=SimpleNamespace(name="host"), links=(link,))
    recorder = Recorder(WallClock())
    under_way = Arrivals(recorder)
    links = LimitedLinks(platform, under_way)
    began = []

    def compute(operation):
        began.append(clock.now_s)
        clock.now_s += operation.seconds

    moved = Buffer("rows")

    def step(seconds, place="a", **buffers):
        work = CopyWork(bytes=2000 if place == "host-a" else 0)
        where, access = Place(place, (place,), 0), Access(**buffers)
        return Step(Do(seconds), "update", "do", where, work, access=access)

    reader.Reader(
        recorder,
        Ledger({}),
        {Do: compute},
        arrive=lambda _, after: under_way.arrive(after, needed=True),
        leave=links.leave,
    ).take(
        [
            step(0.0, place="host-a", writes=(moved,)),
            step(1.5),
            step(1.0, reads=(moved,) if needed else ()),
        ]
    )
    under_way.finish()
    return began, clock.now_s


@pytest.mark.parametrize(
    ("blocking", "needed", "starts_s", "end_s"),
    [
        (False, True, [100.0, 100.0, 102.0], 103.0),  # a step that needs the rows waits for them
        (False, False, [100.0, 100.0, 101.5], 102.5),  # an epoch is over when all has crossed
        (True, False, [100.0, 102.0, 103.5], 104.5),  # nothing goes on until all has crossed
    ],
)
def test_steps_wait_for_what_crosses_a_limited_link(clock, blocking, needed, starts_s, end_s):
    assert take_over_limited_link(clock, blocking=blocking, needed=needed) == (starts_s, end_s)
    assert blocking or clock.slept == ([0.5] if needed else [])


def test_links_that_are_not_limited_take_what_they_take(clock):
    link = Link("host-a", ("host", "a"), 1.0)
    platform = SimpleNamespace(host=SimpleNamespace(name="host"), links=(link,))
    assert not LimitedLinks(platform, Arrivals(Recorder(WallClock())))


def test_a_slow_process_rests_for_as_long_as_its_share_makes_a_step_longer(clock):
    slow = reader.Reader(Recorder(WallClock()), Ledger({}), {}, speed=0.25)
    slow._rest_after(2.0)
    assert clock.slept == [6.0]
    slow._rest_after(1e-4)  # too short for a sleep of its own
    assert clock.slept == [6.0]
    slow._rest_after(1e-3)
    assert clock.slept[1] == pytest.approx(3 * 1.1e-3)


@pytest.mark.parametrize(("computed_s", "rest_s"), [(1.0, 1.0), (0.0, 0.0), (6.0, 3.0)])
def test_only_what_it_computes_takes_a_slow_process_longer(clock, computed_s, rest_s):
    """Of 3 s a step computes for one, waits for another process, or computes on two cores."""

    def do(operation):
        clock.now_s += operation.seconds
        clock.computed_s += computed_s

    step = Step(Do(3.0), "update", "do", Place("a", ("a",), 0), CopyWork())
    slow = reader.Reader(Recorder(WallClock()), Ledger({}), {Do: do}, speed=0.5)
    slow.take([step])
    assert sum(clock.slept) == pytest.approx(rest_s)


def test_a_sleep_that_took_too_long_is_made_up_for(clock, monkeypatch):
    def oversleep(seconds):
        clock.slept.append(seconds)
        clock.now_s += seconds + 1.0

    monkeypatch.setattr(clock, "sleep", oversleep)
    slow = reader.Reader(Recorder(WallClock()), Ledger({}), {}, speed=0.5)
    slow._rest_after(2.0)
    slow._rest_after(3.0)
    assert clock.slept == [2.0, 2.0]


TWO, HYBRID, UNEQUAL = "two", "hybrid", "unequal"


@pytest.fixture
def made(machine):
    """Return platforms by name: two cores, a host of its own, a slow core, a limited link."""
    unequal = Sets((CoreSet(1, speed=0.5), CoreSet(1)))
    return {
        TWO: make_workers(parse_cores("cores:1,1"), TWO),
        HYBRID: make_workers(parse_cores("cores:1+1"), HYBRID),
        UNEQUAL: make_workers(unequal, UNEQUAL),
        "limited": make_workers(Sets((CoreSet(1), CoreSet(1)), link=CoreLink(1e6)), "limited"),
    }


def hold_item(platform, item, mode="full-graph", *, hybrid):
    """Have an item held by a platform's processes; a ``hybrid`` run has the host train, too."""
    trainers = (*platform.accelerators, *([platform.host] if hybrid else []))
    bundle = SimpleNamespace(mode=mode)
    lowering = SimpleNamespace(platform=platform, trainers=trainers, bundle=bundle)
    (held,) = hold_processes([item], lowering)
    return held


def hold(platform, step, mode="full-graph"):
    """Where a step is priced and who holds it; a host that has cores of its own trains, too."""
    held = hold_item(platform, step, mode, hybrid=not platform.shares_cores)
    return held.place.name, held.place.resources


def make_step(place, stage="update", device=None, source=None):
    where = Place(place, ("anything",), device, source)
    return Step(Do(0.0), stage, "do", where, CopyWork(bytes=8))


def assemble(platform, strategy):
    workload = make_workload("gcn")
    setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
    registry = plugins.load()
    parts = next(iter(registry.strategy(strategy).bundles.values()))
    return setting, plugins.assemble(registry, parts, {})


LINK = "worker0-worker1"
FIRST, SECOND = ("worker0",), ("worker1",)


@pytest.mark.parametrize(
    ("name", "step", "held"),
    [
        (TWO, make_step("worker1", device=1), ("worker1", SECOND)),
        (TWO, make_step(LINK, "transfer", device=1, source=0), (LINK, FIRST)),
        (TWO, make_step("host-worker1", "transfer", device=1), ("host-worker1", SECOND)),
        (TWO, make_step("host", "offload", device=1), ("worker1", SECOND)),
        (TWO, make_step("host"), ("host", (*FIRST, *SECOND))),
        (TWO, make_step("host", "sample"), ("worker0", (*FIRST, *SECOND))),
        (UNEQUAL, make_step("host", "sample"), ("worker0", (*FIRST, *SECOND))),
        (HYBRID, make_step("host", device=1), ("host", ("host.train",))),
        (HYBRID, make_step("host", "load", device=0), ("worker0", FIRST)),
        (HYBRID, make_step("host", "sample"), ("worker0", (*FIRST, "host.train"))),
        ("limited", make_step(LINK, "transfer", device=1, source=0), (LINK, ("anything",))),
    ],
)
def test_a_step_is_held_by_the_processes_that_take_it(made, name, step, held):
    assert hold(made[name], step) == held


def test_the_slowest_process_says_how_long_a_mini_batch_takes_that_all_draw(machine):
    sets = Sets((CoreSet(1), CoreSet(1, speed=0.5)))
    assert hold(make_workers(sets, "slow"), make_step("host", "sample"))[0] == "worker1"


def test_transfers_of_a_collective_are_held_by_their_senders(made):
    steps = tuple(make_step(LINK, "transfer", device=1 - i, source=i) for i in range(2))
    held = hold_item(made[TWO], Collective(steps), hybrid=False)
    assert [step.place.resources for step in held.steps] == [FIRST, SECOND]


def test_a_host_on_the_devices_cores_is_in_the_first_process(made):
    step = make_step("host", device=2)
    held = hold_item(made[TWO], step, "mini-batch", hybrid=True)
    assert held.place.resources == FIRST


def test_what_a_process_has_loaded_for_itself_goes_nowhere(made):
    step = make_step("host-worker0", "transfer", device=0)
    assert hold(made[TWO], step, "mini-batch") == ("worker0", FIRST)
    assert hold_item(made[TWO], step, "mini-batch", hybrid=False).work.bytes == 0
    assert hold(made[TWO], step) == ("host-worker0", FIRST)
    assert hold_item(made[TWO], step, hybrid=False).work.bytes == 8


@pytest.mark.parametrize("strategy", ["hyscale", "hongtu", "mixgcn", "p3", "pyg-multi-gpu"])
def test_a_whole_epoch_is_held_by_processes_alone(machine, strategy):
    hybrid = strategy == "hyscale"
    platform = make_workers(parse_cores("cores:1+1" if hybrid else "cores:1,1"), "pair")
    names = {"worker0", "host.train" if hybrid else "worker1"}
    # HyScale-GNN's plan gives a host that is no faster no seeds of so few.
    setting, bundle = assemble(platform, strategy)
    ((_, found),) = DryRun(bundle, setting).run_epochs(1)
    timeline = found.timeline
    assert {name for item in timeline for name in item.span.resources} == names
    for name in names:
        own = sorted((i.start_s, i.end_s) for i in timeline if name in i.span.resources)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(own))
    loads = [item.span for item in timeline if item.span.label == "load features"]
    own = {"hyscale": {FIRST}, "pyg-multi-gpu": {FIRST, SECOND}}
    assert {span.resources for span in loads} == own.get(strategy, set())


@pytest.mark.parametrize(
    ("strategy", "spec", "apart"),
    [
        ("pyg-multi-gpu", "cores:1", True),
        ("pyg-multi-gpu", "cores:1,1", True),
        ("salient", "cores:1,1", True),
        ("pyg", "cores:1,1", False),
    ],
)
def test_a_host_that_trains_alone_has_threads(machine, strategy, spec, apart):
    setting, bundle = assemble(make_workers(parse_cores(spec), spec), strategy)
    assert choose_lowering(bundle)(bundle, setting, ()).frame.in_processes == apart


def test_a_step_takes_every_process_its_part_of_reading_the_program(machine):
    platform = make_workers(parse_cores("cores:1+1,1"), "three")
    assert platform.step_s == pytest.approx(3 * 40e-6)
    (shown,) = [row for row in show_platform(platform) if row.key == "step"]
    assert (shown.value, shown.mark) == ("120 µs", "measured")
    assert shown.source == "3 processes read all steps; one: a stopwatch"
    kernel = plugins.load().part("kernel", "torch")()
    without = ModelClock(dataclasses.replace(platform, step_s=0.0), kernel)
    clock = ModelClock(platform, kernel)
    for place in ("worker0", LINK):
        work = CopyWork(bytes=1000)
        more_s = clock.seconds(work, place, 0.0) - without.seconds(work, place, 0.0)
        assert more_s == pytest.approx(3 * 40e-6)


def test_one_process_is_not_several_devices(machine):
    two = make_workers(parse_cores("cores:1,1"), "cores:1,1")
    with pytest.raises(
        IncompatiblePartsError, match="each device of platform cores:1,1 needs a separate process"
    ):
        gnnbench.compare("partition", dataset=make_dataset(), platform=two, epochs=1)
