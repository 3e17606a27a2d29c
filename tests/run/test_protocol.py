"""HyScale-GNN's protocol by steps that compute nothing: order, overlap, failures and timers."""

import random
import threading
import time
from functools import partial

import pytest
import torch

from gnnbench.errors import DeviceOutOfMemoryError, StageFailedError
from gnnbench.lowering.footprint import ROUNDS_UNDER_WAY
from gnnbench.lowering.rounds import open_pipeline
from gnnbench.run.protocol import Steps, Trainer, run_in_turn, run_on_threads
from gnnbench.run.timers import StreamTimer

PREFETCH = (0, 1, 2)

pytestmark = pytest.mark.usefixtures("no_hang_and_no_leak")


def make_steps(trainers, *, propagate, stages=None, **changed) -> Steps:
    quiet = {name: lambda index: None for name in ("sample", "load", "transfer")}
    return Steps(
        stages=quiet | (stages or {}),
        propagate=propagate,
        host="host",
        trainers=tuple(trainers),
        **{
            "assign": lambda index: index,
            "begin": lambda index: None,
            "synchronise": lambda index: None,
            "observe": lambda index: None,
            **changed,
        },
    )


@pytest.mark.parametrize("runner", [run_in_turn, run_on_threads])
@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize("num_rounds", [0, 1, 3, 4, 11])
def test_a_split_rests_on_the_times_of_a_fixed_number_of_rounds_before(
    runner, prefetch, num_rounds
):
    observed, known, log = [], {}, []

    def note(stage):
        return lambda index: log.append((stage, index))

    def assign(index):
        known[index] = list(observed)
        return index

    steps = make_steps(
        (Trainer("gpu0", 0), Trainer("gpu1", 1), Trainer("host", 1)),
        assign=assign,
        stages={name: note(name) for name in ("sample", "load", "transfer")},
        begin=note("begin"),
        propagate=lambda index, slot: log.append((f"propagate {slot}", index)),
        synchronise=note("synchronise"),
        observe=observed.append,
    )
    runner(steps, num_rounds, open_pipeline(prefetch))
    depth = ROUNDS_UNDER_WAY[prefetch]
    assert known == {index: list(range(index - depth + 1)) for index in range(num_rounds)}
    assert observed == list(range(num_rounds))
    order = ["sample", "load", "transfer", "begin", "propagate 0", "synchronise"]
    for index in range(num_rounds):
        places = [log.index((stage, index)) for stage in order]
        assert places == sorted(places)
        for slot in range(3):
            assert places[3] < log.index((f"propagate {slot}", index)) < places[5]
        # The model of the round before, and a buffer on the device that is free again.
        if index:
            assert log.index(("synchronise", index - 1)) < places[3]
        if index >= 2 and prefetch:
            assert log.index(("synchronise", index - 2)) < places[2]
    for stage in order:
        assert [at for name, at in log if name == stage] == list(range(num_rounds))


def test_two_stage_prefetching_has_four_rounds_under_way():
    together = threading.Barrier(4)

    def meet(index, place):
        # Round 3 is sampled while 2 is loaded, 1 transferred and 0 trained.
        if index == 3 - place:
            together.wait()

    names = ("sample", "load", "transfer")
    stages = {name: partial(meet, place=place) for place, name in enumerate(names)}
    steps = make_steps(
        [Trainer("gpu0", 0)], stages=stages, propagate=lambda index, slot: meet(index, 3)
    )
    run_on_threads(steps, 4, open_pipeline(2))


def test_trainers_compute_at_the_same_time_unless_they_share_a_processor():
    together = threading.Barrier(2)
    alone = threading.Lock()

    def propagate(index, slot):
        if slot < 2:
            together.wait()
            return
        assert alone.acquire(blocking=False)
        time.sleep(0.002)
        alone.release()

    trainers = [Trainer(f"gpu{slot}", min(slot, 2)) for slot in range(5)]
    run_on_threads(make_steps(trainers, propagate=propagate), 3, open_pipeline(0))


class InjectedError(Exception):
    """What a stage raises in these tests."""


def check_failure(caught, faults):
    """Whatever failed is said, and the first of it in the order of rounds is what is raised."""
    failures = [caught, *caught.also]
    assert len(failures) == len(faults.raised)
    assert caught.round == min(failure.round for failure in failures)
    for error in failures:
        if isinstance(error, StageFailedError):
            assert (error.stage, error.round, error.device) in faults.raised
            assert isinstance(error.__cause__, InjectedError)
            assert f"stage {error.stage} of round {error.round} failed on" in str(error)
        else:
            assert (error.stage, error.round) in [where[:2] for where in faults.raised]
            where = f"{error.tensor} in stage {error.stage} of round {error.round},"
            assert f" bytes are needed for {where}" in str(error)


class CheckedRounds:
    """Steps that compute nothing: they note the progress of each round, sleep, and fail."""

    ORDER = ("assign", "sample", "load", "transfer", "begin", "synchronize", "observe")

    def __init__(self, trainers, fate, tick):
        self.trainers = tuple(Trainer(f"gpu{slot}", min(slot, 2)) for slot in range(trainers))
        self.fate, self.tick = fate, tick
        self.rounds, self.raised, self.observed = [], [], []

    def steps(self):
        def stage(name):
            return lambda round_: self.take(round_, name, "host")

        return make_steps(
            self.trainers,
            assign=self.assign,
            stages={name: stage(name) for name in ("sample", "load", "transfer")},
            begin=stage("begin"),
            propagate=lambda round_, slot: self.take(round_, slot, self.trainers[slot].device),
            synchronise=stage("synchronize"),
            observe=stage("observe"),
        )

    def assign(self, index):
        self.rounds.append({"index": index, "done": []})
        self.take(self.rounds[-1], "assign", "host")
        return self.rounds[-1]

    def take(self, round_, step, device):
        self.tick()
        stage = "propagate" if isinstance(step, int) else step
        fated = self.fate()
        if isinstance(fated, Exception):
            self.raised.append((stage, round_["index"], device))
            raise fated
        if fated:
            time.sleep(fated)
        round_["done"].append(step)
        if step == "observe":
            self.observed.append(round_["index"])

    def check(self, num_rounds):
        assert self.observed == list(range(num_rounds))
        for round_ in self.rounds:
            done = round_["done"]
            assert [step for step in done if isinstance(step, str)] == list(self.ORDER)
            trained = done[done.index("begin") + 1 : done.index("synchronize")]
            assert sorted(trained) == list(range(len(self.trainers)))


def test_many_rounds_with_random_faults(watchdog):
    """Every run ends: a complete one has lost no round; another one says what failed first."""
    draw, kinds, begun = random.Random(7), {"done": 0, "failed": 0}, 0
    while begun < 1500:
        lock, fates = threading.Lock(), random.Random(draw.random())

        def fate(lock=lock, fates=fates):
            with lock:
                drawn = fates.random()
            if drawn < 0.005:
                return InjectedError("no luck")
            if drawn < 0.007:
                return DeviceOutOfMemoryError("gpu0", "rows", 5, 96, 100)
            return 0.0005 * fates.random() if drawn < 0.05 else 0.0

        checked = CheckedRounds(draw.randint(1, 6), fate, watchdog.tick)
        num_rounds, prefetch = draw.randint(1, 20), draw.choice(PREFETCH)
        try:
            run_on_threads(checked.steps(), num_rounds, open_pipeline(prefetch))
        except (StageFailedError, DeviceOutOfMemoryError) as error:
            kinds["failed"] += 1
            check_failure(error, checked)
        else:
            kinds["done"] += 1
            assert not checked.raised
            checked.check(num_rounds)
        begun += len(checked.rounds)
    assert min(kinds.values()) > 15, kinds


def test_the_failure_of_the_earliest_round_is_raised_and_others_are_beside_it():
    """Two stages fail at the same moment, in either order."""
    together = threading.Barrier(2)

    def fail(index, at):
        if index == at:
            together.wait()
            raise InjectedError(f"in round {index}")

    stages = {"sample": partial(fail, at=3), "transfer": partial(fail, at=1)}
    steps = make_steps([Trainer("gpu0", 0)], stages=stages, propagate=lambda index, slot: None)
    for _ in range(10):
        with pytest.raises(StageFailedError) as caught:
            run_on_threads(steps, 5, open_pipeline(2))
        assert (caught.value.stage, caught.value.round) == ("transfer", 1)
        assert [(error.stage, error.round) for error in caught.value.also] == [("sample", 3)]


class FakeEvent:
    """An event of a device whose clock runs from 100 ms on, 2 ms between records."""

    clock_ms, waited = 100.0, False

    def __init__(self, enable_timing):
        assert enable_timing
        FakeEvent.newest = self

    def record(self, stream):
        assert stream == "a stream"
        FakeEvent.clock_ms += 2.0
        self.at_ms = FakeEvent.clock_ms

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, later):
        return later.at_ms - self.at_ms


def test_a_stream_is_timed_by_its_events(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    before_s = time.perf_counter()
    timer = StreamTimer("a stream")
    after_s = time.perf_counter()
    began_s, lasted_s = timer.since(timer.read())
    assert FakeEvent.newest.waited
    assert lasted_s == pytest.approx(0.002)
    assert before_s + 0.002 <= began_s <= after_s + 0.002 + 1e-9
