"""Races of kernels: turns, statistics, results that are checked, and what the command reports."""

import dataclasses
import gc
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from click.testing import CliRunner

from gnnbench.errors import DeviceOutOfMemoryError, MissingDependencyError
from gnnbench.programs.messages import ProgramFailedError
from tests.commands import run_python

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from suites import compare_kernels  # noqa: E402
from suites.contestants import aggregation, ordering, sampling  # noqa: E402
from suites.graphs import GRAPHS, SMALL_GRAPHS, Graphs  # noqa: E402
from suites.race import (  # noqa: E402
    LONG_S,
    OURS,
    Case,
    Contestant,
    Limits,
    Outcome,
    Target,
    WrongResultError,
    check_close,
    find_speedup,
    race,
)

sys.path.remove(str(ROOT))

PEERS = ("dgl", "torch csr")


@pytest.fixture(scope="module", autouse=True)
def known_stream():
    """Memory that copies 10 GB/s and is not measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_kernels, "measure_stream", lambda threads: 1e10)
        yield


def make_case(makers, targets=()):
    def check(result, ours):
        if result != ours:
            raise WrongResultError("differs.")

    return Case("kernel", "graph", "case", makers, check, targets)


@pytest.fixture
def sleeper(monkeypatch):
    """Contestants whose every call takes so many seconds, of a clock that only they move."""
    now = 0.0

    def make_sleeper(seconds):
        def call(_):
            nonlocal now
            now += seconds

        return lambda: Contestant(call)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    return make_sleeper


def bounds(speedup):
    assert speedup.interval is not None
    return speedup.interval


def make_outcome(targets=(), **seconds):
    return Outcome(make_case({}, targets), 1, seconds=seconds)


def test_interval_is_the_percentile_bootstrap_of_pairs():
    rng = np.random.default_rng(1)
    drift = rng.lognormal(0, 0.3, size=25)
    ours, theirs = drift * rng.lognormal(0, 0.1, 25), 1.7 * drift * rng.lognormal(0, 0.1, 25)
    speedup = find_speedup(ours, theirs, resamples=20_000)
    expected = scipy.stats.bootstrap(
        (ours, theirs),
        lambda a, b, axis: np.median(b, axis=axis) / np.median(a, axis=axis),
        paired=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert speedup.ratio == np.median(theirs) / np.median(ours)
    assert bounds(speedup) == pytest.approx((expected.low, expected.high), rel=0.02)


def test_interval_of_few_rounds_is_students_and_holds_the_ratio():
    ours, theirs = np.array([1.0, 2.0, 1.5]), np.array([2.0, 4.4, 2.85])
    speedup = find_speedup(ours, theirs)
    logs = scipy.stats.ttest_1samp(np.log(theirs / ours), 0).confidence_interval(0.95)
    assert bounds(speedup) == pytest.approx((np.exp(logs.low), np.exp(logs.high)))
    # Medians of different rounds: a ratio that no round has.
    apart = find_speedup([1.0, 1.1, 9.0], [1.0, 1.1, 9.0])
    assert bounds(apart) == (apart.ratio, apart.ratio) == (1.0, 1.0)
    crossed = find_speedup([1.0, 2.0, 4.0], [2.0, 4.0, 2.0])
    low, high = bounds(crossed)
    assert low <= crossed.ratio <= high


def test_speedup_pairs_the_rounds_that_both_ran():
    outcome = make_outcome(gnnbench=[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], slow=[4.0, 4.0, 4.0])
    assert outcome.speedup("slow").ratio == 4.0
    assert outcome.median(OURS) == 5.0


def test_claims_hold_the_fastest_of_each_target():
    targets = (Target("dgl", 2.0), Target("scipy", 9.0), Target("absent", 5.0))
    outcome = make_outcome(targets, gnnbench=[1.0], dgl=[4.0], dgl_fused=[3.0], scipy=[8.0])
    found = [(claim.peer, claim.factor, claim.met) for claim in outcome.claims()]
    assert found == [("dgl_fused", 2.0, True), ("scipy", 9.0, False)]
    outcome.seconds["numpy"] = [2.0]
    assert (outcome.claims()[-1].peer, outcome.claims()[-1].met) == ("numpy", None)


def test_contestants_take_turns_each_after_an_untimed_call():
    calls = []

    def make(name):
        def call(turn):
            assert not gc.isenabled()
            assert torch.get_num_threads() == 2
            calls.append((name, turn))

        return lambda: Contestant(call)

    before = torch.get_num_threads()
    names = ("b", OURS, "c")
    outcome = race(make_case({name: make(name) for name in names}), 2, Limits(4))
    assert gc.isenabled()
    assert torch.get_num_threads() == before
    assert {name: len(samples) for name, samples in outcome.seconds.items()} == dict.fromkeys(
        names, 4
    )
    checks, turns = calls[:3], calls[3:]
    assert checks == [(OURS, 0), ("b", 0), ("c", 0)]
    expected = []
    for turn, order in enumerate(((OURS, "b", "c"), ("b", "c", OURS), ("c", OURS, "b"))):
        expected += [(name, 2 * turn + timed) for name in order for timed in (0, 1)]
    assert turns[:18] == expected


def test_times_are_those_of_the_calls(sleeper):
    outcome = race(make_case({OURS: sleeper(0.25), "slow": sleeper(0.5)}), 1, Limits(3))
    assert outcome.seconds == {OURS: [0.25] * 3, "slow": [0.5] * 3}
    assert (outcome.prepare_s, outcome.check_s, outcome.race_s) == (0.0, 0.75, 4.5)


@pytest.mark.parametrize(
    ("times", "targets", "limits", "rounds"),
    [
        # Slow contestants run fewer rounds.
        ((1 / 1024, 1 / 512, 0.125), (), Limits(9, 0.3), (9, 9, 1)),
        # A race ends when no peer has time left.
        ((1 / 1024, 0.0625), (), Limits(1000, 0.3), (3, 3)),
        # The fastest peer, a peer about as fast, and the peer of a target run three rounds.
        (
            (0.001, 0.035, 0.03, 0.1, 0.1),
            (Target("peer4", 1.0), Target("")),
            Limits(9, 0.01),
            (3, 3, 3, 1, 3),
        ),
    ],
)
def test_rounds_that_are_run(sleeper, times, targets, limits, rounds):
    names = [OURS, *(f"peer{number}" for number in range(1, len(times)))]
    makers = {name: sleeper(seconds) for name, seconds in zip(names, times, strict=True)}
    outcome = race(make_case(makers, targets), 1, limits)
    assert tuple(len(outcome.seconds[name]) for name in names) == rounds


def test_long_calls_are_their_own_warm_up(sleeper):
    """No call precedes a timed one where the call before took long; checking it was the first."""
    makers = {OURS: sleeper(LONG_S / 2), "long": sleeper(LONG_S)}
    outcome = race(make_case(makers, (Target("long"),)), 1, Limits(2, 100.0))
    assert outcome.seconds == {OURS: [LONG_S / 2] * 2, "long": [LONG_S] * 2}
    assert outcome.race_s == 2 * (2 * LONG_S / 2 + LONG_S)


def test_warm_ups_follow_the_checked_call():
    calls = []
    checked = []
    case = make_case(
        {OURS: lambda: Contestant(calls.append, lambda _: checked.append(list(calls)), warm_ups=2)}
    )
    race(case, 1, Limits(1))
    assert calls == [0, 1, 2, 0, 1]
    assert checked == [[0]]


def test_wrong_and_absent_contestants_are_named_and_not_timed():
    def absent():
        raise MissingDependencyError("not here")

    makers = {
        OURS: lambda: Contestant(lambda _: 1),
        "right": lambda: Contestant(lambda _: [1], lambda result: result[0]),
        "wrong": lambda: Contestant(lambda _: 2),
        "absent": absent,
    }
    outcome = race(make_case(makers), 1, Limits(3))
    assert outcome.wrong == {"wrong": "differs."}
    assert outcome.absent == {"absent": "not here"}
    assert set(outcome.seconds) == {OURS, "right"}


def test_what_does_not_fit_in_memory_is_absent_and_other_failures_are_not_hidden():
    def overflow(_):
        return torch.empty(1 << 60, dtype=torch.uint8)

    def fail_with(error):
        def fail():
            raise error

        return fail

    ours = {OURS: lambda: Contestant(lambda _: 1)}
    for wide in (
        lambda: Contestant(overflow),
        fail_with(MemoryError()),
        fail_with(RuntimeError("DefaultCPUAllocator: can't allocate memory")),
    ):
        outcome = race(make_case({**ours, "wide": wide}), 1, Limits(1))
        assert outcome.absent == {"wide": "needs more memory than this machine has"}
        assert list(outcome.seconds) == [OURS]
    for known in (DeviceOutOfMemoryError("host", "rows", 8, 0, 4), ProgramFailedError("it ended")):
        outcome = race(make_case({**ours, "wide": fail_with(known)}), 1, Limits(1))
        assert outcome.absent == {"wide": str(known)}
        assert list(outcome.seconds) == [OURS]
    with pytest.raises(RuntimeError, match="of another kind"):
        race(make_case({**ours, "wide": fail_with(RuntimeError("of another kind"))}), 1, Limits(1))


def test_sums_are_compared_everywhere():
    ours = np.random.default_rng(0).random((70_000, 3), dtype=np.float32)
    check_close(ours * np.float32(1 + 1e-6), ours)
    for row in (0, 69_999):
        broken = ours.copy()
        broken[row, 1] += 0.01
        with pytest.raises(WrongResultError, match=r"differs by up to 0\.01"):
            check_close(broken, ours)
    with pytest.raises(WrongResultError, match="shape"):
        check_close(ours[1:], ours)
    with pytest.raises(WrongResultError):
        check_close(ours + np.float32(1e-6), ours, tolerance=0.0)


@pytest.fixture(scope="module")
def graph():
    return dict(Graphs(SMALL_GRAPHS))["rmat-4k"]


@pytest.fixture(scope="module")
def task(graph):
    return sampling.Task(graph, (5, 3))


def draw(task):
    contestant = sampling.draw_ours(task)
    drawn = contestant.read(contestant.call(0))
    return drawn


def replace_indices(block, place, source):
    indices = block.indices.copy()
    indices[place] = source
    return dataclasses.replace(block, indices=indices)


def repeat_a_pick(block):
    place = int(block.indptr[np.flatnonzero(np.diff(block.indptr) > 1)[0]])
    return replace_indices(block, place, int(block.indices[place + 1]))


def pick_itself(block):
    row = int(np.flatnonzero(np.diff(block.indptr))[0])
    return replace_indices(block, int(block.indptr[row]), row)


def leave_one_out(block):
    indptr = block.indptr.copy()
    indptr[-1] -= 1
    indptr = np.minimum(indptr, indptr[-1])
    return dataclasses.replace(block, indptr=indptr, indices=block.indices[:-1])


def swap_seeds(block):
    ids = block.src_ids.copy()
    ids[[0, 1]] = ids[[1, 0]]
    return dataclasses.replace(block, src_ids=ids)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (repeat_a_pick, "twice"),
        (pick_itself, "not its neighbour"),
        (leave_one_out, "more or fewer"),
        (swap_seeds, "destinations are not"),
    ],
)
def test_spoilt_samples_are_caught(task, spoil, complaint):
    drawn = draw(task)
    task.check(drawn, drawn)
    for place in range(len(drawn.blocks)):
        blocks = list(drawn.blocks)
        blocks[place] = spoil(blocks[place])
        with pytest.raises(WrongResultError, match=complaint):
            sampling.check_drawn(task, sampling.Drawn(tuple(blocks)))


def test_samplers_that_draw_fewer_edges_are_caught(task):
    drawn = draw(task)
    more = sampling.Drawn((*drawn.blocks, *drawn.blocks))
    with pytest.raises(WrongResultError, match="edges where ours has"):
        task.check(drawn, more)


def test_orders_are_checked(graph):
    identity = np.arange(graph.num_vertices, dtype=np.int32)
    ours = ordering.order_ours(graph).call(0)
    ordering.check_order(graph, identity, ours)
    with pytest.raises(WrongResultError, match="below"):
        ordering.check_order(graph, ours, identity)
    with pytest.raises(WrongResultError, match="permutation"):
        ordering.check_order(graph, np.zeros_like(identity), ours)


def run(*words):
    return CliRunner().invoke(compare_kernels.main, ["--quick", "--threads", "1", *words])


def test_broken_kernels_fail_the_run(monkeypatch):
    def sum_wrongly(product):
        right = aggregation.sum_torch(product)

        def call(turn):
            out = right.call(turn)
            out[-1, -1] += 1
            return out

        return dataclasses.replace(right, call=call)

    def call_off(product):
        return Contestant(lambda _: np.zeros_like(product.h))

    words = ("--kernels", "aggregation", "--cases", "rmat-4k width 32")
    assert run(*words).exit_code == 0
    monkeypatch.setitem(aggregation.CONTESTANTS, "torch csr", sum_wrongly)
    done = run(*words)
    assert done.exit_code == 1
    assert "WRONG: aggregation rmat-4k width 32: torch csr differs by up to 1 " in done.output
    monkeypatch.undo()
    monkeypatch.setitem(aggregation.CONTESTANTS, OURS, call_off)
    assert run(*words).exit_code == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--kernels", "sampling,nothing"), "there is no 'nothing'"),
        (("--graphs", "nothing"), "there is no 'nothing'"),
        (("--graphs", "rmat-1m"), "graphs of its own"),
        (("--threads", "0"), "whole numbers from 1"),
        (("--threads", "one"), "whole numbers from 1"),
        (("--rounds", "0"), "rounds"),
        (("--budget", "0"), "budget"),
        (("--minutes", "0"), "minutes"),
    ],
)
def test_wrong_usage(words, complaint):
    done = run(*words)
    assert done.exit_code == 2
    assert complaint in done.output


def race_graphs(monkeypatch, file, graph, *words):
    """What the command says of a small graph that goes by a large one's name."""
    monkeypatch.setitem(GRAPHS, graph, SMALL_GRAPHS["rmat-4k"])
    done = CliRunner().invoke(compare_kernels.main, [*words, "--json", str(file)])
    assert done.exit_code == 0, done.output
    return done, json.loads(file.read_text(encoding="utf-8"))


def test_absent_graphs_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setitem(GRAPHS, "ego_twitter", "no_such_dataset")
    words = ("--kernels", "ordering", "--graphs", "rmat-262k,ego_twitter", "--rounds", "3")
    done, report = race_graphs(monkeypatch, tmp_path / "race.json", "rmat-262k", *words)
    assert "left out: graph ego_twitter: there is no dataset 'no_such_dataset'" in done.output
    assert list(report["absent_graphs"]) == ["ego_twitter"]
    assert [row["graph"] for row in report["rows"]] == ["rmat-262k", "rmat-262k"]


@pytest.mark.parametrize(("threads", "raced", "left_out"), [("2,1", [2], 1), ("1", [1], 0)])
def test_lengthy_cases_race_with_the_most_threads_alone(
    monkeypatch, tmp_path, threads, raced, left_out
):
    words = ("--kernels", "aggregation", "--graphs", "rmat-1m", "--cases", "width 32")
    words += ("--threads", threads, "--rounds", "1")
    done, report = race_graphs(monkeypatch, tmp_path / "race.json", "rmat-1m", *words)
    assert [row["threads"] for row in report["rows"]] == raced
    assert report["left_out"] == ["aggregation rmat-1m width 32, 1 thread"] * left_out
    assert done.output.count("left out: aggregation rmat-1m width 32, 1 thread") == left_out
    for row in report["rows"]:
        compulsory, gathered = 2 * 60_000 * 4 + 4096 * (32 + 32) * 4, 2 * 60_000 * 32 * 4
        sizes = (row["compulsory_bytes"], row["gathered_bytes"])
        assert sizes == (compulsory, gathered)
        shares = (row["share_of_stream"], row["rows_share_of_stream"])
        assert shares == pytest.approx([size / row["median_s"] / 1e10 for size in sizes])


@pytest.mark.parametrize(("minutes", "rounds"), [("1e-9", 3), ("60", 6)])
def test_where_no_time_is_left_three_rounds_are_run(monkeypatch, tmp_path, minutes, rounds):
    words = ("--kernels", "ordering", "--graphs", "rmat-262k", "--threads", "1", "--rounds", "6")
    words += ("--minutes", minutes)
    _, report = race_graphs(monkeypatch, tmp_path / "race.json", "rmat-262k", *words)
    peers = report["rows"][0]["peers"].values()
    assert [len(peer["samples_s"]) for peer in peers] == [rounds]


@pytest.mark.long
def test_report_has_every_kernel_and_its_peers():
    """The command in a process of its own, on small graphs and a stream that is measured."""
    words = ("-m", "suites.compare_kernels", "--quick", "--json", "-")
    paths = os.pathsep.join(path for path in sys.path if path)
    done = run_python(*words, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert "95 % interval" in done.stderr
    assert "\n2 of " in done.stderr
    report = json.loads(done.stdout)
    assert report["machine"]["cores"] >= 1
    assert report["command"] == ["--quick", "--json", "-"]
    assert set(report["pages"]) == {"THP_MEM_ALLOC_ENABLE", "transparent_hugepage"}
    assert set(report["stream_bytes_per_s"]) == {"1", "2"}
    assert min(report["stream_bytes_per_s"].values()) > 1e8
    kernels = {row["kernel"]: row for row in report["rows"]}
    assert list(kernels) == list(compare_kernels.KERNELS)
    for row in report["rows"]:
        assert row["wrong"] == {}
        assert len(row["samples_s"]) == 3
        assert row["median_s"] == np.median(row["samples_s"]) > 0
        assert row["wall_s"]["race"] > sum(row["samples_s"])
        assert row["peers"]
        for peer in row["peers"].values():
            assert peer["median_s"] == np.median(peer["samples_s"])
            # A peer that is slow has fewer rounds, and is held against ours of the same ones.
            same = row["samples_s"][: len(peer["samples_s"])]
            assert peer["ratio"] == pytest.approx(peer["median_s"] / np.median(same))
            low, high = peer["interval"] or (peer["ratio"], peer["ratio"])
            assert low <= peer["ratio"] <= high
            assert (peer["interval"] is None) == (len(peer["samples_s"]) == 1)
        for claim in row["claims"]:
            assert (claim["target"] is None) == (claim["met"] is None)
    assert set(PEERS) <= set(kernels["aggregation"]["peers"])
    assert {"dgl", "dgl fused"} <= set(kernels["sampling"]["peers"])
    related = {row["kernel"] for row in report["rows"] if row["share_of_stream"]}
    assert {"aggregation", "backward", "gather", "masked"} <= related
    epochs = [row for row in report["rows"] if row["kernel"] == "epochs"]
    assert [row["case"].split()[1] for row in epochs] == ["GCN", "GIN", "GAT", "SAGE"]
    assert report["left_out"] == [
        f"epochs {row['graph']} {row['case']}, 1 thread" for row in epochs
    ]
