"""The recorder and the ledger keep exact books."""

import threading
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.lowering.memory import open_ledger
from gnnbench.machines.describe import load_platform
from gnnbench.program import Counts, Ledger, Place, Step, Times
from gnnbench.program.recorder import Recorder
from gnnbench.records import AggregateWork, CopyWork, SampleWork, Span
from gnnbench_plugins.reference.memory import HostMemory
from tests.run.counting_clock import CountingClock


@pytest.fixture
def recorder():
    recorder = Recorder(CountingClock())
    recorder.start_epoch(3)
    return recorder


@contextmanager
def span(recorder, stage, label, place, work, after=(), resources=None, layer=-1):
    """A step that lasts as long as the body, recorded as by who takes the steps of a program."""
    opened = SimpleNamespace(id=next(recorder.ids), work=work)
    track = recorder.track
    began = track.read()
    yield opened
    held, times = Place(place, resources or (place,)), Times()
    step = Step(None, stage, label, held, opened.work, layer, track.key[0], times=times)
    track.add(step, opened.id, after, *track.since(began))
    opened.seconds = times.total


def test_a_span_is_recorded_with_its_work_and_what_it_waits_for(recorder):
    with span(recorder, "sample", "draw", "host", SampleWork()) as first:
        first.work = SampleWork(edges=4)  # which its execution alone can size
    held = {"after": (first.id,), "resources": ("gpu0.update",), "layer": 1}
    with span(recorder, "update", "train", "gpu0", AggregateWork(edges=5), **held) as second:
        time.sleep(0.01)
    assert (first.id, second.id, first.seconds, second.seconds) == (0, 1, 4.0, 5.0)
    one, two = recorder.end_epoch(0.5, [0.25, 0.75], 1).spans
    assert (one.resources, one.after, one.layer, one.epoch, one.round) == (("host",), (), -1, 3, 0)
    assert one.work.edges == 4
    assert (two.resources, two.after, two.layer, two.place) == (("gpu0.update",), (0,), 1, "gpu0")
    assert two.wall_s >= 0.01
    assert two.wall_start_s >= one.wall_start_s + one.wall_s


def test_a_step_that_is_done_is_added_to_its_track_with_all_that_it_counts(recorder):
    place, times = Place("host", ("host.load",)), Times()
    first = Step(None, "load", "load", place, CopyWork(rows=2), round=2, times=times)
    moves = (("host_to_device", 5), ("reused", 7), ("host_to_device", 11))
    counts = Counts(moves, 13, 17, 0.5)
    second = first._replace(work=CopyWork(rows=3), counts=counts, layer=1)
    with recorder.stage(2, (0, 0)) as track:
        track.add(first, 0, (), *track.since(track.read()))
        began = track.read()
        time.sleep(0.01)
        track.add(second, 1, (0,), *track.since(began))
    assert times.seconds == [2.0, 3.0]
    trace = recorder.end_epoch(0.0, [], 1)
    one, two = trace.spans
    assert isinstance(two, Span)
    assert (one.id, one.work, one.seconds, one.layer) == (0, first.work, 2.0, -1)
    assert (two.id, two.work, two.seconds, two.layer) == (1, second.work, 3.0, 1)
    assert (two.stage, two.label, two.place) == ("load", "load", "host")
    assert (two.after, two.round, two.epoch, two.resources) == ((0,), 2, 3, ("host.load",))
    assert two.wall_s >= 0.01
    assert two.wall_start_s >= one.wall_start_s + one.wall_s
    assert {kind: size for kind, size in trace.bytes.items() if size} == {
        "host_to_device": 16,
        "reused": 7,
    }
    assert (trace.edges, trace.vertices, trace.work_by_device) == (13, 17, {"host": 0.5})


def test_a_failed_span_leaves_no_trace_and_the_next_may_open(recorder):
    with pytest.raises(KeyError), span(recorder, "load", "fails", "host", CopyWork()):
        raise KeyError("x")
    with span(recorder, "load", "works", "host", CopyWork()):
        pass
    assert [(s.id, s.label) for s in recorder.end_epoch(0.0, [], 1).spans] == [(0, "works")]


def test_the_harness_share_is_what_no_span_and_no_part_covers(recorder):
    began_s = time.perf_counter()
    recorder.start_epoch(4)
    with recorder.excluded():
        time.sleep(0.05)
    with recorder.inside_part():
        time.sleep(0.02)
    with span(recorder, "load", "load", "host", CopyWork()):
        time.sleep(0.01)
    time.sleep(0.02)
    trace = recorder.end_epoch(0.0, [], 1)
    assert 0.05 <= trace.wall_s <= time.perf_counter() - began_s - 0.05
    assert 0.02 <= trace.harness_s <= trace.wall_s - trace.spans[0].wall_s - 0.02


def test_what_other_threads_compute_while_the_harness_checks_is_the_epochs(recorder):
    """A check beside a stage takes no time away from the epoch; a check in a stage does."""

    def check():
        with recorder.stage(0, (1, 0)), recorder.excluded():
            began.set()
            computed.wait()

    began, computed = threading.Event(), threading.Event()
    checking = threading.Thread(target=check)
    recorder.start_epoch(0)
    checking.start()
    began.wait()
    time.sleep(0.02)
    record_stage(recorder, 0, (0, 0), "load", 0.04)
    record_stage(recorder, 1, (0, 0), "load", 0.03)
    time.sleep(0.02)
    computed.set()
    checking.join()
    with recorder.stage(2, (0, 0)), span(recorder, "load", "load", "host", CopyWork()):
        time.sleep(0.01)
        with recorder.excluded():
            time.sleep(0.05)
    trace = recorder.end_epoch(0.0, [], 1)
    took_s = time.perf_counter() - recorder.started_s
    loaded_s = sum(each.wall_s for each in trace.spans if each.round < 2)
    assert loaded_s + 0.01 <= trace.wall_s <= took_s - 0.09


def test_counts_add_up_and_a_new_epoch_starts_from_nothing(recorder):
    recorder.count_bytes("host_to_device", 5)
    recorder.count_bytes("host_to_device", 6)
    recorder.track.edges += 30
    recorder.track.vertices += 7
    recorder.count_work("gpu0", 1.5)
    recorder.count_work("gpu0", 2.0)
    trace = recorder.end_epoch(0.5, [0.25], 1)
    assert trace.bytes["host_to_device"] == 11
    assert trace.bytes["all_reduce"] == 0
    assert (trace.edges, trace.vertices, trace.work_by_device) == (30, 7, {"gpu0": 3.5})
    assert (trace.epoch, trace.loss, trace.round_losses) == (3, 0.5, (0.25,))
    recorder.start_epoch(4)
    fresh = recorder.end_epoch(0.0, [], 1)
    assert (fresh.edges, fresh.spans, fresh.work_by_device) == (0, (), {})
    assert set(fresh.bytes.values()) == {0}


def record_stage(recorder, round_, rank, label, seconds=0.0, after=()):
    with (
        recorder.stage(round_, rank),
        span(recorder, "load", label, "host", CopyWork(rows=1), after=after) as opened,
    ):
        time.sleep(seconds)
        recorder.count_bytes("reused", 2)
        recorder.track.edges += 3
        recorder.track.vertices += 4
        recorder.count_work("gpu0", 0.5)
    return opened.id


def in_threads(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_trace_does_not_depend_on_who_records_first(recorder):
    """By round, then by the stage's place in it; ids and what is waited for follow."""
    last = record_stage(recorder, 1, (0, 0), "sample 1")
    first = record_stage(recorder, 0, (3, 1), "train 0 on 1")
    record_stage(recorder, 0, (3, 0), "train 0 on 0", after=(first, last))
    record_stage(recorder, 0, (0, 0), "sample 0")
    trace = recorder.end_epoch(0.0, [], 1)
    assert [(s.id, s.round, s.label) for s in trace.spans] == [
        (0, 0, "sample 0"),
        (1, 0, "train 0 on 0"),
        (2, 0, "train 0 on 1"),
        (3, 1, "sample 1"),
    ]
    assert [span.after for span in trace.spans] == [(), (2, 3), (), ()]


def test_threads_record_at_once_and_nothing_is_lost(recorder):
    def record(slot):
        for round_ in range(200):
            record_stage(recorder, round_, (0, slot), f"{slot}")

    in_threads(*(partial(record, slot) for slot in range(4)))
    trace = recorder.end_epoch(0.0, [], 1)
    assert [(s.id, s.round, s.label) for s in trace.spans] == [
        (4 * round_ + slot, round_, f"{slot}") for round_ in range(200) for slot in range(4)
    ]
    assert (trace.bytes["reused"], trace.edges, trace.vertices) == (1600, 2400, 3200)
    assert trace.work_by_device == {"gpu0": 400.0}


def test_time_that_several_threads_use_counts_once(recorder):
    """Harness is when no thread is in a span or a part; sums of spans may exceed the epoch."""
    both = threading.Barrier(2)

    def record(slot):
        with (
            recorder.stage(0, (0, slot)),
            span(recorder, "load", f"{slot}", "host", CopyWork(rows=1)),
        ):
            both.wait()  # both are in their spans, whatever else the machine does

    in_threads(partial(record, 0), partial(record, 1))
    time.sleep(0.02)
    trace = recorder.end_epoch(0.0, [], 1)
    one, other = trace.spans
    overlap_s = min(s.wall_start_s + s.wall_s for s in trace.spans) - max(
        s.wall_start_s for s in trace.spans
    )
    assert overlap_s > 0
    covered_s = one.wall_s + other.wall_s - overlap_s
    assert trace.harness_s == pytest.approx(trace.wall_s - covered_s)
    assert trace.harness_s >= 0.02


def test_time_under_a_long_span_counts_once_after_a_shorter_one_in_it(recorder):
    entered, done = threading.Event(), threading.Event()

    def compute():
        with recorder.stage(0, (0, 0)), span(recorder, "load", "long", "host", CopyWork(rows=1)):
            entered.set()
            done.wait()

    def load():
        entered.wait()
        for round_ in (1, 2):
            record_stage(recorder, round_, (0, 1), "short", 0.02)
        done.set()

    in_threads(compute, load)
    time.sleep(0.01)
    trace = recorder.end_epoch(0.0, [], 1)
    (long_s,) = (each.wall_s for each in trace.spans if each.label == "long")
    assert trace.harness_s == pytest.approx(trace.wall_s - long_s)


@pytest.fixture
def ledger():
    return Ledger({"gpu0": 100, "host": 1000})


def test_one_byte_too_many_is_refused_and_changes_nothing(ledger):
    ledger.allocate("gpu0", "features", 60)
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        ledger.allocate("gpu0", "weights", 41)
    error = caught.value
    assert (error.device, error.tensor) == ("gpu0", "weights")
    assert (error.requested_bytes, error.in_use_bytes, error.capacity_bytes) == (41, 60, 100)
    assert str(error).startswith(
        "gpu0 is out of memory: 41 bytes are needed for weights, 60 of 100 are in use"
    )
    ledger.allocate("gpu0", "weights", 40)
    assert ledger.peak_bytes == {"gpu0": 100, "host": 0}


def test_what_is_held_together_may_fill_a_memory_to_the_last_byte(ledger):
    """A part that fits before one that does not counts towards the peak, and is released."""
    ledger.allocate("gpu0", "weights", 40)
    held = ledger.hold("gpu0", {"rows": 20, "edges": 30})
    assert ledger.free_bytes("gpu0") == 10
    with pytest.raises(
        DeviceOutOfMemoryError, match="gpu0 is out of memory: 8 bytes are needed for edges"
    ):
        ledger.hold("gpu0", {"labels": 5, "edges": 8})
    assert ledger.free_bytes("gpu0") == 10
    assert ledger.peak_bytes["gpu0"] == 95
    held.release()
    with ledger.hold("gpu0", {"rows": 60}):
        assert ledger.in_use_bytes["gpu0"] == ledger.peak_bytes["gpu0"] == 100
    assert ledger.free_bytes("gpu0") == 60


def test_a_cap_on_devices_holds_for_a_host_that_trains_alone():
    platform, memory = load_platform("epyc7763x2-4xa5000"), HostMemory(device_bytes=1000)
    host, gpu = platform.host, platform.accelerators[0]
    parts = SimpleNamespace(memory=memory)
    alone = open_ledger(parts, platform, (host,))
    assert alone.free_bytes(host.name) == 1000
    beside = open_ledger(parts, platform, (gpu, host))
    assert (beside.free_bytes(host.name), beside.free_bytes(gpu.name)) == (
        host.hardware.memory_bytes,
        1000,
    )


def test_a_memory_has_no_more_than_its_device():
    """Whatever the memory part states, of accelerators and of hosts."""

    class Boundless(HostMemory):
        def capacity_bytes(self, device):
            return 10**18

        def host_capacity_bytes(self, host):
            return 10**18

    platform = load_platform("epyc7763x4-8xa5000")
    parts, (gpu, *_) = SimpleNamespace(memory=Boundless()), platform.accelerators
    ledger = open_ledger(parts, platform, (gpu,))
    for device in (gpu, *platform.hosts):
        assert ledger.free_bytes(device.name) == device.hardware.memory_bytes
    alone = open_ledger(parts, platform, (platform.host,))
    assert alone.free_bytes(platform.host.name) == platform.host.hardware.memory_bytes


def test_the_same_name_replaces_what_it_held(ledger):
    ledger.allocate("gpu0", "features", 90)
    ledger.allocate("gpu0", "features", 95)
    ledger.allocate("gpu0", "features", 10)
    ledger.allocate("gpu0", "weights", 90)
    assert ledger.peak_bytes["gpu0"] == 100
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        ledger.allocate("gpu0", "features", 11)
    assert caught.value.in_use_bytes == 90


def test_freed_bytes_can_be_held_again_and_freeing_what_is_not_held_is_an_error(ledger):
    ledger.allocate("gpu0", "features", 70)
    ledger.allocate("gpu0", "weights", 30)
    ledger.free("gpu0", "features", "weights")
    ledger.allocate("gpu0", "rows", 100)
    ledger.allocate("host", "features", 1)
    with pytest.raises(KeyError, match="features"):
        ledger.free("gpu0", "features")


def test_a_scope_releases_what_was_newly_held_inside(ledger):
    ledger.allocate("gpu0", "weights", 10)
    with ledger.scope("gpu0"):
        ledger.allocate("gpu0", "activations", 80)
        ledger.allocate("host", "rows", 500)
    ledger.allocate("gpu0", "activations", 90)
    ledger.allocate("host", "others", 500)
    assert ledger.peak_bytes == {"gpu0": 100, "host": 1000}


def test_a_scope_releases_after_an_error_too(ledger):
    def overfill():
        with ledger.scope("gpu0"):
            ledger.allocate("gpu0", "first", 100)
            ledger.allocate("gpu0", "second", 1)

    with pytest.raises(DeviceOutOfMemoryError):
        overfill()
    ledger.allocate("gpu0", "third", 100)


def test_a_scope_leaves_what_other_threads_hold(ledger):
    with ledger.scope("host"):
        ledger.allocate("host", "activations", 100)
        in_threads(lambda: ledger.allocate("host", "rows of the next round", 300))
    ledger.allocate("host", "more", 700)
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        ledger.allocate("host", "too much", 1)
    assert caught.value.in_use_bytes == 1000
    ledger.free("host", "rows of the next round")
    with pytest.raises(KeyError):
        ledger.free("host", "activations")


def test_threads_share_a_memory_exactly(ledger):
    def hold_and_free(slot):
        for _ in range(300):
            ledger.allocate("host", f"rows of {slot}", 100)
            ledger.grow("host", f"rows of {slot}", 50)
            ledger.free("host", f"rows of {slot}")

    in_threads(*(partial(hold_and_free, slot) for slot in range(4)))
    assert 150 <= ledger.peak_bytes["host"] <= 600
    ledger.allocate("host", "everything", 1000)
