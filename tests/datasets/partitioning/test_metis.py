"""METIS's partitions are whole, or there is none; and METIS takes no signal that is not its own."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pymetis
import pytest

from gnnbench import datasets
from gnnbench.datasets.partitioning import partition_metis
from gnnbench.errors import GnnbenchError
from gnnbench.records import Graph

#: Protects from hanging alone.
HANGING_S = 600

pytestmark = pytest.mark.filterwarnings("ignore:Passing xadj")


@pytest.fixture(scope="module")
def graph():
    return datasets.load("sbm:vertices=400,edges=2400,features=4,classes=4").graph


def answer_with(monkeypatch, part):
    monkeypatch.setattr(
        pymetis, "part_graph", lambda *_, **how: (0, part(how) if callable(part) else part)
    )


def test_the_parts_are_those_that_metis_makes_in_one_process(graph):
    options = pymetis.Options(seed=3)
    for parts in (2, 8, 9, 32):
        _, expected = pymetis.part_graph(
            parts, xadj=graph.indptr, adjncy=graph.indices, options=options
        )
        assert partition_metis(graph, parts, 3).tolist() == list(expected)


def test_parts_of_hardly_a_vertex_are_even_too():
    """By its k-way method METIS puts all vertices of some such graphs in one part."""
    draw, worst = np.random.default_rng(0), 0
    for seed in range(30):
        ends = draw.integers(0, 16, (2, 12))
        ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
        both = np.hstack((ends, ends[::-1]))
        both = both[:, np.lexsort(both)]
        indptr = np.searchsorted(both[1], np.arange(17)).astype(np.int64)
        made = Graph(indptr, both[0].astype(np.int32))
        worst = max(worst, np.bincount(partition_metis(made, 15, seed)).max())
    assert 1 < worst <= 4


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ([0] * 400, "made a part of 400 vertices, more than the limit of 127"),
        ([0] * 130 + [1, 2, 3] * 90, "made a part of 130 vertices, more than the limit of 127"),
        ([0, 1, 2, 3] * 99, "has not given every vertex of 400 one of 4 parts"),
        ([0, 1, 2, 4] * 100, "has not given every vertex of 400 one of 4 parts"),
        ([0, 1, 2, -1] * 100, "has not given every vertex of 400 one of 4 parts"),
    ],
)
def test_a_partition_that_is_none_is_refused(monkeypatch, graph, part, says):
    answer_with(monkeypatch, part)
    with pytest.raises(GnnbenchError, match=says):
        partition_metis(graph, 4, 0)


def test_a_part_that_is_somewhat_larger_is_no_reason_to_refuse(monkeypatch, graph):
    part = [0] * 127 + [1] * 73 + [2, 3] * 100
    answer_with(monkeypatch, part)
    assert partition_metis(graph, 4, 0).tolist() == part


def test_where_the_k_way_method_misses_its_bound_bisection_is_asked(monkeypatch, graph):
    answer_with(monkeypatch, lambda how: list(range(10)) * 40 if how["recursive"] else [0] * 400)
    assert np.bincount(partition_metis(graph, 10, 0)).tolist() == [40] * 10


def test_an_error_of_metis_is_said(monkeypatch, graph):
    def fail(_):
        raise RuntimeError("no such luck")

    answer_with(monkeypatch, fail)
    with pytest.raises(GnnbenchError, match=r"did not finish 4 parts .* \(RuntimeError: no such"):
        partition_metis(graph, 4, 0)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_signal_to_metis_alone_leaves_no_partition(monkeypatch, graph, name):
    answer_with(monkeypatch, lambda _: os.kill(os.getpid(), getattr(signal, name)))
    with pytest.raises(GnnbenchError, match=rf"did not finish 4 parts of 400 vertices \({name}\)"):
        partition_metis(graph, 4, 0)


def test_the_handlers_of_this_process_are_its_own_meanwhile(monkeypatch, graph):
    """SIGTERM comes here while METIS is at work: METIS is ended, and what was raised is raised."""

    class Ended(BaseException):
        pass

    raised = []

    def end(_, frame):
        # Where a fork calls back, nothing that is raised comes out.
        if frame.f_code.co_name == "call_apart" and not raised:
            raised.append(frame)
            raise Ended

    parent = os.getpid()

    def hang(_):
        # Never to a stranger that has taken this child over.
        while os.getppid() == parent:
            os.kill(parent, signal.SIGTERM)
            time.sleep(0.01)

    answer_with(monkeypatch, hang)
    before = signal.signal(signal.SIGTERM, end)
    children = set(psutil.Process().children())
    try:
        with pytest.raises(Ended):
            partition_metis(graph, 4, 0)
        assert signal.getsignal(signal.SIGTERM) is end
        assert set(psutil.Process().children()) <= children
    finally:
        # Those that the child sent before it was ended have come by now, and are none of pytest's.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, before)


def test_a_signal_between_the_fork_and_its_return_leaves_no_child(monkeypatch, graph):
    class Ended(BaseException):
        pass

    def end(*_):
        raise Ended

    fork = os.fork

    def fork_and_be_interrupted():
        child = fork()
        if child:
            # As what another thread receives, whatever this one blocks.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            signal.raise_signal(signal.SIGTERM)
        return child

    answer_with(monkeypatch, lambda _: time.sleep(HANGING_S))
    monkeypatch.setattr(os, "fork", fork_and_be_interrupted)
    before = signal.signal(signal.SIGTERM, end)
    children = set(psutil.Process().children())
    try:
        with pytest.raises(Ended):
            partition_metis(graph, 4, 0)
        assert set(psutil.Process().children()) <= children
    finally:
        signal.signal(signal.SIGTERM, before)
        for child in set(psutil.Process().children()) - children:
            child.kill()


def wait_for_metis(command):
    """METIS's process, by its time on a core: libraries ask in others for a moment when they are
    loaded (a torch with CUDA asks ldconfig)."""
    while command.poll() is None:
        for child in psutil.Process(command.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.cpu_times().user > 0.1:
                    return child
        time.sleep(0.01)
    return None


def test_a_command_that_is_terminated_during_partitioning_ends_with_143(tmp_path):
    """The real METIS, at a graph on which it takes seconds."""
    words = ("plan", "hongtu", "--dataset", "rmat:vertices=40k,edges=300k,features=1", "--set")
    own = ("sampler.partitioner=metis", "--set", "sampler.chunks_per_partition=4", "--threads", "1")
    command = subprocess.Popen(
        [sys.executable, "-m", "gnnbench", *words, *own],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        child = wait_for_metis(command)
        command.terminate()
        out, said = command.communicate(timeout=HANGING_S)
    finally:
        command.kill()
        command.wait()
    assert child is not None, said
    assert (command.returncode, out) == (143, "")
    assert said.strip() == "gnnbench: error: terminated."
    assert not child.is_running()
