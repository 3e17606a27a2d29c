"""Every stage of a mini-batch is priced on the threads of the host that the placement gave it."""

import dataclasses

import pytest

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.machines.costs.library import read_devices
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import HostThreads, Parts
from gnnbench.run import train
from tests.sessions import on_open

pytestmark = pytest.mark.usefixtures("one_thread")

#: Of the eight cores of the conformance host, whose core draws a fifth of its memory's rate.
THREADS = HostThreads(1, 2, 3)


@pytest.fixture(scope="module")
def traced():
    workload = dataclasses.replace(make_workload("gcn", 2), epochs=1)
    platform = make_platform(2)
    setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
    parts = Parts("neighbour", "hyscale", "hyscale", "host", "torch")
    bundle = plugins.assemble(plugins.load(), parts, {"placement": {"drm": "false"}})

    def give_threads(session, *_):
        session.host_threads = lambda: THREADS

    on_open(bundle.placement, give_threads)
    (epoch,) = train(bundle, setting, ModelClock(platform, bundle.kernel)).epochs
    return epoch.spans, platform


@pytest.mark.parametrize(
    ("label", "threads"), [("sample", THREADS.sample), ("load features", THREADS.load)]
)
def test_a_stage_has_its_threads(traced, label, threads):
    found = [span.work.threads for span in traced[0] if span.label == label]
    assert found
    assert set(found) == {threads}


def test_a_stage_takes_as_long_as_its_threads_do(traced):
    """Rows that two cores pick out of their cache, and write; sampling: edges over what one draws.
    The graph's few rows all fit."""
    spans, platform = traced
    loads = [span for span in spans if span.label == "load features"]
    draws = [span for span in spans if span.label == "sample"]
    host, rates = platform.host, read_devices()["cpu"]
    for span in loads:
        drawn = THREADS.load * host.memory.core_bandwidth_bytes_per_s
        in_order = (span.work.rows * 8 + span.work.bytes) / (drawn * rates.reached.stream)
        picked = max(
            span.work.rows * 64 / (drawn * rates.cache.cache_times),
            span.work.rows * rates.cache.line_s / THREADS.load,
        )
        assert span.seconds == pytest.approx(in_order + picked, rel=1e-12)
        assert span.work.bytes == span.work.rows * 7 * 8
    for span in draws:
        expected = span.work.edges / (THREADS.sample * host.rates.sampled_edges_per_s)
        assert span.seconds == pytest.approx(expected, rel=1e-12)
