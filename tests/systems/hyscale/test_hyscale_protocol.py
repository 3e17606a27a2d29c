"""HyScale-GNN's Processor-Accelerator Training Protocol: §III, §IV, Listing 1, and its failures."""

import os
import random
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.errors import (
    DeviceOutOfMemoryError,
    IncompatiblePartsError,
    Interrupted,
    MissingDependencyError,
    StageFailedError,
)
from gnnbench.lowering.mini_batch import MiniBatchLowering
from gnnbench.machines.machine import (
    Device,
    Hardware,
    Link,
    MemoryRates,
    Platform,
    RateCurve,
    TrainerRates,
)
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import hand_out
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import HostThreads, Parts, Share, StageTimes, Workload
from gnnbench.run import train
from gnnbench.run.protocol import _Crew
from gnnbench_plugins.hyscale.drm import Balancer, BalanceWork, decide
from tests.sessions import keep_opened, on_open
from tests.systems.bundles import Run, bundle_of, run_bundle, setting_of

HYSCALE = Parts("neighbour", "hyscale", "hyscale", "host", "torch")
PREFETCH = (0, 1, 2)
SMALL = Workload("sage", (12, 8, 4), 2, 17, (4, 3), 0, dtype="float64", threads=1)

pytestmark = pytest.mark.usefixtures("no_hang_and_no_leak")


@pytest.fixture(scope="module")
def small_graph():
    return datasets.load("sbm:vertices=400,edges=2400,features=12,classes=4")


def make_machine(accelerators, *, real=False, memory_bytes=10**8, sampled_edges_per_s=1e5):
    """A host with unequal GPUs that state rates of a whole step; ``real`` ones are this CPU."""

    def curve(rate, part=1.0):
        return RateCurve((1,), (part * rate,), (part * rate / 8,))

    #: The second is the fastest, and the third the slowest.
    parts = [(1.0, 1.5, 0.8, 1.2)[number % 4] for number in range(accelerators)]
    host = Device(
        name="host",
        kind="cpu",
        model="eight cores",
        hardware=Hardware(flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e8, memory_bytes=10**9),
        cores=8,
        memory=MemoryRates(core_bandwidth_bytes_per_s=1e8 / 8),
        rates=TrainerRates(
            sampled_edges_per_s=1e5, gather=curve(1e8), aggregate=curve(1e8), update=curve(1e9)
        ),
        virtual=not real,
    )
    gpus = tuple(
        Device(
            name=f"gpu{number}",
            kind="gpu",
            model="accelerator",
            hardware=Hardware(
                flops_per_s=part * 1e9,
                memory_bandwidth_bytes_per_s=part * 1e8,
                memory_bytes=memory_bytes,
            ),
            rates=TrainerRates(
                sampled_edges_per_s=sampled_edges_per_s,
                aggregate=curve(1e8, part),
                update=curve(1e9, part),
            ),
            virtual=not real,
        )
        for number, part in enumerate(parts)
    )
    links = [
        Link(f"host-{gpu.name}", ("host", gpu.name), 1e7 / part, 1e-6)
        for gpu, part in zip(gpus, parts, strict=True)
    ]
    links += [
        Link(f"{one.name}-{other.name}", (one.name, other.name), 1e7, 1e-6)
        for place, one in enumerate(gpus)
        for other in gpus[place + 1 :]
    ]
    return Platform("machine", "made for a test", host, gpus, tuple(links))


def prepare(dataset, platform, workload=SMALL, parts=HYSCALE, **options):
    return bundle_of(parts, **options), setting_of(dataset, platform, workload)


def run(dataset, platform, workload=SMALL, clock=None, parts=HYSCALE, watch=None, **options) -> Run:
    return run_bundle(*prepare(dataset, platform, workload, parts, **options), clock, watch)


@pytest.fixture(scope="module")
def one_large_batch(small_graph):
    parts = Parts("neighbour", "single", "vanilla", "host", "torch")
    return run(small_graph, make_machine(1), parts=parts).losses


@pytest.mark.parametrize(("accelerators", "prefetch"), [(1, 2), (3, 0), (3, 2), (16, 1)])
@pytest.mark.parametrize("real", [False, True], ids=["in-turn", "threads"])
def test_any_split_over_any_trainers_equals_one_large_batch(
    small_graph, one_large_batch, accelerators, prefetch, real
):
    """A random split every round: trainers come and go, and each share is of any size."""
    platform = make_machine(accelerators, real=real)
    bundle, setting = prepare(small_graph, platform, communication_stages=prefetch)
    draw = random.Random(accelerators)

    def share_out(session, seeds):
        num_seeds = len(seeds)
        session._under_way.append((session.balancer.assignment, False))
        cuts = sorted(draw.randint(0, num_seeds) for _ in range(accelerators))
        sizes = np.diff([0, *cuts, num_seeds]).tolist()
        return hand_out(seeds, [Share(slot, count) for slot, count in enumerate(sizes)])

    def split_at_random(session, *_):
        session.share_out = partial(share_out, session)

    on_open(bundle.placement, split_at_random)
    clock = WallClock() if real else ModelClock(platform, bundle.kernel)
    losses = [loss for epoch in train(bundle, setting, clock).epochs for loss in epoch.round_losses]
    assert losses == pytest.approx(one_large_batch, rel=1e-9, abs=0)
    assert len(set(losses)) == len(losses) > 10


@pytest.mark.parametrize(
    ("communication", "stages"),
    [("hyscale", {"communication_stages": each}) for each in PREFETCH] + [("hongtu", {})],
)
def test_threads_give_what_taking_turns_gives_to_the_bit(small_graph, communication, stages):
    """On the model clock: losses, spans, their order and times, splits, and what was observed."""
    parts = replace(HYSCALE, communication=communication)
    options = {"placement_skew": 0.4, "placement_accelerator_sampling": "true", **stages}
    in_turn, on_threads = (
        run(small_graph, make_machine(3, real=real), parts=parts, **options)
        for real in (False, True)
    )
    assert on_threads.losses == in_turn.losses
    assert on_threads.spans == in_turn.spans
    assert on_threads.times == in_turn.times
    assert on_threads.session.history == in_turn.session.history
    assert on_threads.trace.notes == in_turn.trace.notes
    for ours, theirs in zip(on_threads.trace.epochs, in_turn.trace.epochs, strict=True):
        assert (ours.bytes, ours.work_by_device) == (theirs.bytes, theirs.work_by_device)


@pytest.mark.parametrize(("cores", "accelerators"), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)])
@pytest.mark.parametrize("real", [False, True], ids=["described", "here"])
def test_a_host_that_trains_alone_on_few_cores_takes_turns(small_graph, cores, accelerators, real):
    """Who runs the stages, the split, the plan and the spans follow one answer."""
    machine = make_machine(accelerators, real=real)
    platform = replace(machine, host=replace(machine.host, cores=cores))
    in_turn = accelerators == 0 and cores < 3
    bundle, setting = prepare(small_graph, platform, SMALL)
    assert bundle.communication.prefetch == 2
    assert bundle.prefetch_stages(platform) == (0 if in_turn else 2)
    here = set()
    sample = bundle.sampler.sample

    def note(seeds, epoch, threads):
        here.add(threading.current_thread() is threading.main_thread())
        return sample(seeds, epoch, threads)

    bundle.sampler.sample = note
    clock = WallClock() if real else ModelClock(platform, bundle.kernel)
    opened = keep_opened(bundle.placement)
    spans = train(bundle, setting, clock).epochs[-1].spans
    # The design phase samples on this thread in any case.
    assert here == ({True, False} if real and not in_turn else {True})
    threads = opened[-1].host_threads()
    assert (threads.sample == threads.load == threads.train == cores) is (in_turn or cores == 1)
    steps = {span.round: span.id for span in spans if span.label == "average and step"}
    for span in spans:
        if span.stage == "sample" and span.round > 0:
            assert (steps[span.round - 1] in span.after) is in_turn


@pytest.mark.parametrize("real", [False, True], ids=["described", "here"])
def test_stages_have_the_threads_they_were_given(small_graph, real):
    workload = replace(SMALL, epochs=1, threads=0 if real else 1)
    bundle, setting = prepare(
        small_graph, make_machine(1, real=real), workload, placement_drm="false"
    )
    sampling, training = [], []
    sample, linear = bundle.sampler.sample, bundle.kernel.linear

    def note_sampling(seeds, epoch, threads):
        if threading.current_thread() is not threading.main_thread() or not real:
            sampling.append((threads, torch.get_num_threads()))
        return sample(seeds, epoch, threads)

    def note_training(*args, **options):
        training.append((threading.current_thread().name, torch.get_num_threads()))
        return linear(*args, **options)

    bundle.sampler.sample, bundle.kernel.linear = note_sampling, note_training
    before = torch.get_num_threads()
    clock = WallClock() if real else ModelClock(setting.platform, bundle.kernel)
    opened = keep_opened(bundle.placement)
    train(bundle, setting, clock)
    assert torch.get_num_threads() == before
    planned = opened[-1].host_threads()
    assert planned.sample + planned.load + planned.train == 8
    if not real:
        assert set(sampling) == {(1, 1)}
        assert {count for _, count in training} == {1}
        return
    assert set(sampling) == {(planned.sample, planned.sample)}
    assert ("gnnbench train host", planned.train) in training
    assert {count for name, count in training if name.endswith("gpu0")} <= {before}


class InjectedError(Exception):
    """What a stage raises in these tests."""


STAGES = ("sample", "load", "transfer", "propagate", "synchronize")
#: Each stage on threads, and two where one thread takes turns.
WHERE = [*((stage, True) for stage in STAGES), ("load", False), ("propagate", False)]
METHODS = dict(zip(STAGES, ("sample", "load", "transfer", "propagate", "synchronise"), strict=True))


def inject(monkeypatch, fate):
    """Have stages of rounds do what ``fate(stage, round, slot)`` does first; it may raise."""
    for stage, method in METHODS.items():
        original = getattr(MiniBatchLowering, method)

        def stand_in(lowering, round_, *slot, stage=stage, original=original):
            fate(stage, round_.index, *(slot or (-1,)))
            return original(lowering, round_, *slot)

        monkeypatch.setattr(MiniBatchLowering, method, stand_in)


@pytest.mark.parametrize(("stage", "real"), WHERE)
def test_an_error_names_its_stage_round_and_device(monkeypatch, small_graph, stage, real):
    def fate(at, index, slot):
        if at == stage and index == 3 and slot in (-1, 1):
            raise InjectedError("no luck")

    inject(monkeypatch, fate)
    device = "gpu1" if stage == "propagate" else "host"
    with pytest.raises(StageFailedError) as caught:
        run(small_graph, make_machine(2, real=real))
    error = caught.value
    assert (error.stage, error.round, error.device, error.exit_status) == (stage, 3, device, 3)
    assert str(error) == (
        f"stage {stage} of round 3 failed on {device}: InjectedError: no luck; run with --debug "
        f"for the traceback."
    )
    assert isinstance(error.__cause__, InjectedError)
    assert error.also == ()


@pytest.mark.parametrize("real", [False, True], ids=["in-turn", "threads"])
def test_a_full_device_says_at_which_stage(small_graph, real):
    platform = make_machine(2, real=real, memory_bytes=5_000)
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        run(small_graph, platform, placement_cpu_trainer="false")
    error = caught.value
    assert (error.stage, error.round, error.capacity_bytes) == ("transfer", 0, 5_000)
    assert "mini-batch" in error.tensor
    where = f" bytes are needed for {error.tensor} in stage transfer of round 0, "
    assert where in str(error)


def test_a_missing_library_stays_what_it_is(small_graph):
    bundle, setting = prepare(small_graph, make_machine(1, real=True))
    drawn = bundle.sampler.sample

    def sample(*args):
        if threading.current_thread() is threading.main_thread():
            return drawn(*args)
        raise MissingDependencyError("it is not installed.")

    bundle.sampler.sample = sample
    with pytest.raises(MissingDependencyError, match="it is not installed"):
        train(bundle, setting, WallClock())


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([Share(0, 16)], r"stage assign of round 0 .* gave out 16 of 17 seeds"),
        ([Share(0, 19), Share(1, -2)], r"gave slot 1 -2 seeds; a share has none or more"),
    ],
)
def test_a_broken_placement_is_refused(small_graph, shares, said):
    def deal(session, *_):
        session.share_out = lambda seeds: [
            (share, seeds[: max(0, share.seeds)]) for share in shares
        ]

    bundle, setting = prepare(small_graph, make_machine(1, real=True))
    on_open(bundle.placement, deal)
    with pytest.raises(StageFailedError, match=said):
        train(bundle, setting, WallClock())


@pytest.fixture
def noticed(monkeypatch):
    """An event that is set when the crew is told to end."""
    noticed, end = threading.Event(), _Crew.end

    def note_and_end(crew):
        noticed.set()
        end(crew)

    monkeypatch.setattr(_Crew, "end", note_and_end)
    return noticed


@pytest.mark.parametrize(("stage", "real"), WHERE)
def test_an_interrupt_names_the_stage_and_ends_every_thread(
    monkeypatch, small_graph, noticed, stage, real
):
    """Ctrl-C in the midst of a stage; on threads, while the runtime waits for it."""

    def fate(at, index, slot):
        if at == stage and index == 2 and slot < 1:
            os.kill(os.getpid(), signal.SIGINT)
            noticed.wait()

    inject(monkeypatch, fate)
    with pytest.raises(Interrupted) as caught:
        run(small_graph, make_machine(2, real=real))
    running = caught.value.running
    where = (stage, 2, "gpu0" if stage == "propagate" else "host")
    assert where in running if real else running == (where,)
    assert [index for _, index, _ in running] == sorted(index for _, index, _ in running)
    assert f"stage {stage} of round 2 on {where[2]}" in str(caught.value)


def test_an_interrupt_that_does_not_wake_the_runtime_is_noticed_all_the_same(
    monkeypatch, small_graph, noticed
):
    """A signal that goes to another thread does not wake the runtime."""

    def fate(at, index, slot):
        if at == "load" and index == 0:
            time.sleep(0.2)  # until all others wait for this stage
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.kill(os.getpid(), signal.SIGINT)
            noticed.wait()

    inject(monkeypatch, fate)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(Interrupted):
            run(small_graph, make_machine(2, real=True))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_watch_that_has_seen_enough_ends_the_training(small_graph):
    seen = []

    def watch(epoch, model):
        seen.append(threading.active_count())
        return True

    before = threading.active_count()
    workload = replace(SMALL, epochs=5)
    result = run(small_graph, make_machine(3, real=True), workload, watch=watch)
    assert len(result.trace.epochs) == 1
    assert seen == [before]


SAMPLING = {"placement_accelerator_sampling": "true", "placement_drm": "false"}


def test_accelerators_draw_what_the_host_would_draw(small_graph):
    """Same mini-batches, priced by their own rate; V^0 crosses for the feature loader."""
    platform = make_machine(3, sampled_edges_per_s=1e6)
    slow = replace_fields(platform.host, sampled_edges_per_s=1e3)
    platform = replace(platform, host=slow)
    plain, drawn = (
        run(small_graph, platform, placement_cpu_trainer="false", **options)
        for options in ({"placement_drm": "false"}, SAMPLING)
    )
    assert drawn.losses == plain.losses
    split = drawn.session.history[0]
    assert split.sampling == 3
    for epoch, reference in zip(drawn.trace.epochs, plain.trace.epochs, strict=True):
        on_gpus = [s for s in epoch.spans if s.label == "sample" and s.place != "host"]
        assert {span.place for span in on_gpus} == {"gpu0", "gpu1", "gpu2"}
        for span in on_gpus:
            assert span.seconds == pytest.approx(span.work.edges / 1e6)
        sent = [s for s in epoch.spans if s.label == "input vertices to the host"]
        assert sum(s.work.bytes for s in sent) == epoch.bytes["device_to_host"] > 0
        assert all(s.work.bytes == 8 * s.work.rows for s in sent)
        # Its blocks are there already.
        assert epoch.bytes["host_to_device"] < reference.bytes["host_to_device"]
        assert (epoch.edges, epoch.vertices) == (reference.edges, reference.vertices)
    graph = small_graph.graph
    held = drawn.trace.peak_bytes["gpu0"] - plain.trace.peak_bytes["gpu0"]
    assert held >= graph.indptr.nbytes + graph.indices.nbytes


@pytest.mark.parametrize("rule", ["algorithm1", "proportional"])
@pytest.mark.parametrize(("rate", "expected"), [(1e7, 4), (1e2, 0)])
def test_drm_moves_sampling_to_whoever_is_faster(small_graph, rate, expected, rule):
    """From the wrong side, with one host thread for sampling as the bottleneck."""
    platform = make_machine(4, sampled_edges_per_s=rate)
    platform = replace(
        platform,
        host=replace_fields(platform.host, sampled_edges_per_s=1e3),
        links=tuple(replace(link, bandwidth_bytes_per_s=1e10) for link in platform.links),
    )
    bundle, setting = prepare(
        small_graph,
        platform,
        placement_accelerator_sampling="true",
        placement_rule=rule,
        placement_cpu_trainer="false",
    )

    def start_wrong(session, *_):
        session.balancer.sampling = 4 - expected

    on_open(bundle.placement, start_wrong)
    result = run_bundle(bundle, setting)
    history, times = result.session.history, result.times
    assert history[0].sampling == 4 - expected
    assert history[-1].sampling == expected
    before, after = (max(times[at].sample_cpu, times[at].sample_accelerator) for at in (0, -2))
    assert after < before


def test_a_sampler_that_would_not_pay_is_left_alone():
    """The CPU would need 4 s for all; one accelerator needed 5 s when it last drew."""
    balancer = Balancer(100, 20, HostThreads(4, 2, 2), sampling=1, accelerators=4, samplers=4)
    slow = StageTimes(3.2, 1.0, 0.0, sample_accelerator=5.0, train_cpu=1.0, train_accelerator=1.0)
    balancer.apply(decide(slow), slow)
    assert balancer.sampling == 0
    # Sampling on the CPU is the bottleneck, and an accelerator the fastest: threads move instead.
    wake = StageTimes(4.0, 1.0, 0.0, sample_accelerator=0.0, train_cpu=1.5, train_accelerator=1.0)
    assert decide(wake) == BalanceWork("sample_cpu", "sample_accelerator")
    balancer.apply(decide(wake), wake)
    assert balancer.sampling == 0
    assert balancer.threads.sample == 5
    # Now it would take longer than that.
    wake = wake._replace(sample_cpu=8.0)
    balancer.apply(decide(wake), wake)
    assert balancer.sampling == 2


@pytest.mark.parametrize(
    ("platform", "reason"),
    [
        (make_machine(2, sampled_edges_per_s=0.0), "does not say how fast gpu0 samples"),
        (make_machine(2, memory_bytes=1_000), r"topology on gpu0, [\d,]+ bytes of 1,000"),
        (make_machine(0), "has no accelerator to sample on"),
    ],
)
def test_sampling_that_cannot_be_is_refused(small_graph, platform, reason):
    with pytest.raises(IncompatiblePartsError, match=reason):
        run(small_graph, platform, **SAMPLING)
