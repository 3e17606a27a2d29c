"""The table, the trace and the page say what the comparison says, whatever the width."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from gnnbench.comparison.ranking import group_runs, list_devices
from gnnbench.records import Card, Equivalence, Metric
from gnnbench.report.chrome import lanes, trace_events, write_chrome_trace
from gnnbench.report.columns import format_equivalence
from gnnbench.report.comparison import print_comparison
from gnnbench.report.html import make_page, write_html
from gnnbench.report.svg import MAX_RECTANGLES, reduce_timeline
from gnnbench.report.verdict import describe_noise, summarise
from gnnbench.statistics import FEWEST_PAIRS
from tests.report.example_comparison import (
    do_work,
    every_status,
    make_comparison,
    make_failure,
    make_run,
    make_span,
    shared_notes,
)


def show(comparison, width=160, encoding="utf-8", details=True, terminal=False):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=stream,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
    )
    print_comparison(comparison, console, details=details)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def test_every_line_is_as_it_was():
    """All that is printed, with another figure in every row; ``every_status.txt`` is its text."""
    expected = Path(__file__).with_name("every_status.txt").read_text(encoding="utf-8")
    assert show(every_status()) == expected


def test_the_answer_comes_first_and_everything_else_by_details():
    """The answer, a table a group with what decides, and a line on what is modelled."""
    brief, full = show(every_status(), 100, details=False), show(every_status(), 100)
    lines = brief.splitlines()
    answer = next(i for i, line in enumerate(lines) if "hongtu is fastest" in line)
    table = next(i for i, line in enumerate(lines) if line.startswith(" full graph  "))
    assert answer < table
    heading = lines[table].split("  ")
    assert [word.strip() for word in heading if word.strip()] == [
        "full graph", "epoch [modelled]", "host links", "peak device", "test",
        "equal to reference",
    ]  # fmt: skip
    assert full.startswith(brief)
    for detail in ("stages [", "energy", "edges/s", "this machine", "4 partitions of 8 chunks"):
        assert detail not in brief
    for figure in ("118 ms", "1.21 GB", "610 MB", "0.951", "NO", "not checked"):
        assert figure in brief
    for detail in ("stages [", "edges/s", "this machine", "4 partitions of 8 chunks"):
        assert detail in full


def test_a_measured_comparison_says_so():
    run = make_run("hongtu", provenance="measured")
    text = show(make_comparison(run, modelled=False))
    assert "device times are measured" in text
    assert "epoch [measured]" in text
    assert "modelled" not in text


def test_the_memory_of_each_rank_is_a_detail():
    run = make_run("hongtu")
    size = Metric(2e9, "B", "measured", (1.5e9, 2e9))
    comparison = make_comparison(replace(run, metrics={**run.metrics, "peak_rank_bytes": size}))
    line = "peak memory [measured]: hongtu 1.50 GB, 2.00 GB"
    assert line in show(comparison)
    assert line not in show(comparison, details=False)


@pytest.mark.parametrize("width", [60, 100, 240])
def test_no_number_is_cut_and_nothing_is_wider(width):
    text = show(every_status(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    for figure in ("0.54-0.57", "1.21 GB", "610 MB", "18.2 G", "NO", "214 ms", "55.0 ms"):
        assert figure in text


def test_plain_characters_where_the_encoding_lacks_others():
    text = show(every_status(), encoding="ascii")
    assert text.isascii()
    assert "gnnbench compare . coauthor_physics" in text
    assert "118 us" in text
    assert "107 ms #####" in text
    assert "?" not in text


def test_provenances_never_share_a_column():
    runs = (make_run("a"), make_run("b", epoch_s=(0.001,), provenance="measured"))
    text = show(make_comparison(*runs), width=240)
    for heading in (
        "epoch [modelled]",
        "epoch [measured]",
        "stages [modelled]",
        "stages [measured]",
    ):
        assert heading in text
    rows = [line for line in text.splitlines() if re.match(r" [ab]  .* 0\.951 +yes", line)]
    assert [row.count("1.00x") for row in rows] == [1, 1]
    winners = summarise(group_runs(make_comparison(*runs)))
    assert len(winners) == 2
    assert not any("fast" in sentence for sentence in winners)
    assert all("no other row to compare it with" in sentence for sentence in winners)


def list_marked(*runs):
    """The epochs that the page marks, and those that the screen shows in green."""
    comparison = make_comparison(*runs)
    marked = re.findall(r'<td [^>]*class="win"[^>]*><span>([^<]*)', make_page(comparison))
    coloured = show(comparison, details=False, terminal=True)
    green = re.findall(r"\x1b\[1;32m *([\d.]+ \wi?s)", coloured)
    return marked, green


def test_the_fastest_of_each_provenance_is_marked():
    """A measured time is shorter than every modelled one here, and wins nothing from them."""
    steady = tuple(0.002 + 1e-6 * number for number in range(12))
    slower = tuple(2 * seconds for seconds in steady)
    runs = (
        make_run("a"),
        make_run("b", epoch_s=(0.2,)),
        make_run("c", epoch_s=steady, provenance="measured"),
        make_run("d", epoch_s=(0.001,), provenance="measured", fault="it is wrong"),
        make_run("e", epoch_s=slower, provenance="measured"),
    )
    assert list_marked(*runs) == (["118 ms", "2.01 ms"],) * 2


@pytest.mark.parametrize("others", [(), ("b",)], ids=["alone", "no difference shown"])
def test_who_wins_from_nobody_is_not_marked(others):
    runs = (make_run("a", epoch_s=(0.1, 0.2), provenance="measured"),)
    runs += tuple(make_run(n, epoch_s=(0.2, 0.15), provenance="measured") for n in others)
    assert list_marked(*runs) == ([], [])


def test_time_to_accuracy_has_a_column_when_asked_for():
    run = make_run("hongtu")
    run = replace(run, metrics={**run.metrics, "time_to_accuracy": Metric(1.25, "s", "modelled")})
    text = show(make_comparison(run, make_run("dgl")), width=240)
    assert "time to accuracy [modelled]" in text
    assert "1.25 s" in text
    assert "not reached" in text
    assert "time to accuracy" not in show(every_status(), width=240)


def test_a_preparation_longer_than_an_epoch_stands_in_the_row_and_beside_the_winner():
    """0.48 s before epochs of 0.2 s against 0.05 s before 0.25 s: nine epochs of 50 ms make up."""

    def make(label, epoch_s, before_s):
        run = make_run(label, epoch_s=(epoch_s,) * 12, provenance="measured")
        before = Metric(before_s, "s", "measured")
        return replace(run, metrics={**run.metrics, "preprocessing_time": before})

    text = show(make_comparison(make("a", 0.2, 0.48), make("b", 0.25, 0.05), modelled=False))
    assert "prepared before" in text
    (a, b) = (next(s for s in text.splitlines() if s.startswith(f" {label} ")) for label in "ab")
    assert "480 ms" in a
    assert "50.0 ms" not in b
    said = "Before the first epoch a took 480 ms and b 50.0 ms: a is ahead after 9 epochs."
    assert said in " ".join(text.split())
    alike = show(make_comparison(make("a", 0.2, 0.48), make("b", 0.25, 0.5), modelled=False))
    assert "prepared before" in alike
    assert "Before the first epoch" not in alike
    short = show(make_comparison(make("a", 0.2, 0.1), make("b", 0.25, 0.0), modelled=False))
    assert "prepared before" not in short


def test_repeats_are_one_row_with_the_median_of_their_values():
    """One of three was disturbed: their mean is 0.27, their median 0.11."""
    runs = [
        replace(make_run("a", epoch_s=(seconds,)), repeat=i)
        for i, seconds in enumerate((0.1, 0.11, 0.6))
    ]
    row = group_runs(make_comparison(*runs))[0].rows[0]
    assert row.metric("epoch_time").samples == (0.1, 0.11, 0.6)
    assert row.metric("epoch_time").value == 0.11
    assert row.stage("transfer").value == 0.11 * 0.5
    text = show(make_comparison(*runs))
    assert len([s for s in text.splitlines() if re.match(r" a +110 ms", s)]) == 1
    assert "270 ms" not in text


def test_cold_epochs_of_a_repeat_are_not_pooled():
    run = make_run("a", provenance="measured")
    metrics = [
        Metric(0.05, "s", "measured", (0.2, 0.05, 0.05), warmup=1),
        Metric(0.06, "s", "measured", (0.3, 0.1, 0.06, 0.06), warmup=2),
    ]
    runs = [
        replace(run, repeat=i, metrics={**run.metrics, "epoch_time": metric})
        for i, metric in enumerate(metrics)
    ]
    (group,) = group_runs(make_comparison(*runs, modelled=False))
    assert group.rows[0].metric("epoch_time").samples == (0.05, 0.05, 0.06, 0.06)
    assert group.rows[0].metric("epoch_time").value == 0.055


def test_same_label_in_both_groups_is_told_apart():
    runs = (make_run("reference"), make_run("reference", "mini-batch"))
    text = show(make_comparison(*runs), width=200)
    assert "reference (full-graph) 2.31 s, reference (mini-batch) 2.31 s an epoch" in text


def test_a_note_of_several_rows_is_said_once_and_names_them():
    lines = show(shared_notes()).splitlines()
    at = lines.index(" a (full-graph), b, c")
    assert lines[at + 1].strip() == "cut in 4"
    assert lines[at + 2 : at + 4] == [" a (full-graph), a (mini-batch)", f"{'':18}of a alone"]
    assert lines[at + 4].split() == ["c", "of", "c", "alone"]
    assert sum("cut in 4" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("error", "fault", "text"),
    [(3e-7, "", "yes"), (1e-2, "", "yes"), (0.0, "a block lacks an edge", "NO")],
)
def test_equivalence_in_words(error, fault, text):
    """What counts is whether rounding explains it, not how large it is."""
    assert format_equivalence(Equivalence("full-graph", error, fault)) == text
    assert format_equivalence(None) == "not checked"


def test_a_lead_has_a_reason():
    """The stage that shrinks most, the parts that differ and the bytes that they save."""

    def tell(winner, loser):
        return summarise(group_runs(make_comparison(loser, winner)))[0].split(" as fast as ")[1]

    loser, winner = make_run("b", epoch_s=(0.2,)), make_run("a", epoch_s=(0.1,))
    assert tell(winner, loser) == "b (transfer takes 50.0 ms instead of 100 ms)."
    loser, winner = make_run("b·vanilla", epoch_s=(0.2,), amount=3), make_run("a", epoch_s=(0.1,))
    assert tell(winner, loser) == (
        "b·vanilla (communication: transfer takes 50.0 ms instead of 100 ms, and 1.21 GB instead "
        "of 3.63 GB go over the host links)."
    )
    same = replace(winner, stages=loser.stages)
    assert tell(same, loser) == (
        "b·vanilla (communication: no stage is much shorter, but they overlap: 240 ms of work in "
        "100 ms)."
    )
    stages = {"update": replace(loser.stages["update"], value=0.09)}
    waiting = replace(loser, stages=stages, parts=winner.parts)
    assert tell(replace(winner, stages=stages), waiting) == (
        "b·vanilla (no stage is much shorter; devices wait less)."
    )


def test_modelled_epochs_that_take_turns_to_be_shorter_are_no_win():
    runs = (make_run("a", epoch_s=(0.10, 0.12)), make_run("b", epoch_s=(0.11, 0.118)))
    assert summarise(group_runs(make_comparison(*runs)))[0] == (
        "Full graph: a takes 110 ms an epoch [modelled]; no difference is shown between a and b."
    )


def test_all_rows_that_are_level_are_named():
    runs = [make_run(label, epoch_s=(0.1,)) for label in "abc"]
    groups = group_runs(make_comparison(*runs, make_run("d", epoch_s=(0.2,))))
    assert summarise(groups)[0] == (
        "Full graph: a takes 100 ms an epoch [modelled]; no difference is shown between a, b and "
        "c; slower: d."
    )


def take_turns(ours, theirs, warmup=1):
    runs = []
    for label, samples in (("a", ours), ("b", theirs)):
        run = make_run(label, epoch_s=samples, provenance="measured")
        steady = sorted(samples[warmup:])
        middle = (steady[(len(steady) - 1) // 2] + steady[len(steady) // 2]) / 2
        epoch = Metric(middle, "s", "measured", tuple(samples), warmup)
        runs.append(replace(run, lot=1, metrics={**run.metrics, "epoch_time": epoch}))
    return make_comparison(*runs, modelled=False)


def test_a_difference_within_pairs_is_shown_however_the_machine_wanders():
    """b takes 5 % longer than a in each pair of epochs; the machine's own pace varies by half."""
    pace = [0.3, *[0.1 + 0.005 * (i * 7 % 11) for i in range(15)]]
    comparison = take_turns(pace, [1.05 * s for s in pace])
    sentence = summarise(group_runs(comparison))[0]
    assert "a is fastest" in sentence
    assert "1.05 times" in sentence
    apart = [replace(run, lot=number) for number, run in enumerate(comparison.runs)]
    sentence = summarise(group_runs(replace(comparison, runs=tuple(apart))))[0]
    assert "no difference is shown between a and b" in sentence


def test_too_few_epochs_show_nothing_and_say_so():
    sentence = summarise(group_runs(take_turns([0.3, 0.1, 0.1], [0.3, 0.2, 0.2])))[0]
    assert sentence == (
        "Full graph: a takes 100 ms an epoch [measured]; no difference is shown between a and b "
        "(2 epochs are too few to show one; ask for more --epochs or --repeats)."
    )


@pytest.mark.parametrize("warmups", [(1, 3), (3, 1)])
def test_pairs_begin_after_both_warm_ups(warmups):
    """With one pair fewer than the fewest that can show a difference, none is shown."""
    for pairs in (FEWEST_PAIRS - 1, FEWEST_PAIRS):
        comparison = take_turns([0.1] * (3 + pairs), [0.2] * (3 + pairs))
        runs = []
        for run, warmup in zip(comparison.runs, warmups, strict=True):
            epoch = replace(run.metrics["epoch_time"], warmup=warmup)
            runs.append(replace(run, metrics={**run.metrics, "epoch_time": epoch}))
        sentence = summarise(group_runs(replace(comparison, runs=tuple(runs))))[0]
        assert ("a is fastest" in sentence) is (pairs == FEWEST_PAIRS), sentence


@pytest.mark.parametrize("faults", [("it is wrong", ""), ("", "it is wrong")])
def test_one_wrong_repeat_forbids_winning(faults):
    runs = [
        replace(make_run(label, epoch_s=(seconds,), fault=fault), repeat=repeat)
        for label, seconds, told in (("a", 0.1, faults), ("b", 0.2, ("", "")))
        for repeat, fault in enumerate(told)
    ]
    winner, apart = summarise(group_runs(make_comparison(*runs)))
    assert winner.startswith("Full graph: b takes 200 ms an epoch [modelled]")
    assert apart == "Full graph, not ranked: a (not equal to the reference: it is wrong)."
    assert format_equivalence(group_runs(make_comparison(*runs))[0].rows[0].equivalence) == "NO"


def test_a_ratio_is_that_of_the_two_epochs_beside_it():
    """Whatever pairs there are: a cold epoch more in one row must not part the columns."""
    comparison = take_turns([0.3] + [0.14] * 5 + [0.1] * 4, [0.3] + [0.2] * 9)
    ours, theirs = comparison.runs
    cold = Metric(0.2, "s", "measured", (0.9, 0.9, 0.9, *[0.2] * 7), warmup=3)
    theirs = replace(theirs, metrics={**theirs.metrics, "epoch_time": cold})
    (group,) = group_runs(make_comparison(theirs, ours, modelled=False))
    values = [row.metric("epoch_time").value for row in group.rows]
    ratio = group.ratio(group.rows[1])
    assert ratio.ratio == pytest.approx(values[0] / values[1]) == pytest.approx(0.2 / 0.14)
    assert ratio.low <= ratio.ratio <= ratio.high


@pytest.mark.parametrize("other", [{"updates": 1}, {"seeds": 10}, {"sampling": "none"}])
def test_rows_of_other_work_are_ranked_apart_and_say_which(other):
    runs = (do_work("a", epoch_s=(0.2,)), do_work("b"), do_work("quick", epoch_s=(0.001,), **other))
    main, apart = group_runs(make_comparison(*runs))
    assert [row.label for row in main.rows] == ["a", "b"]
    assert [row.label for row in apart.rows] == ["quick"]
    text = show(make_comparison(*runs), details=False)
    work = {"updates": 3, "seeds": 100, "sampling": "uniform without replacement, fan-outs 5"}
    work |= other
    updates = "1 update" if work["updates"] == 1 else f"{work['updates']} updates"
    title = f"other work ({work['sampling']}; {updates} from {work['seeds']} seeds an epoch)"
    assert f"Mini-batch, {title}: quick takes 1.00 ms" in text
    assert "Mini-batch: b is fastest, 118 ms" in text
    assert "quick is fastest" not in text
    assert f"\n mini-batch, {title}\n" in text


def test_rows_with_a_fault_do_not_make_a_group_the_main_one():
    wrong = [do_work(f"wrong{i}", updates=1, fault="seeds are left out") for i in range(3)]
    main, apart = group_runs(make_comparison(*wrong, do_work("right")))
    assert (main.title, [row.label for row in main.rows]) == ("mini-batch", ["right"])
    assert len(apart.rows) == 3


def test_groups_of_one_law_that_differ_in_seeds_alone_are_told_apart():
    runs = [do_work(f"row{seeds}", seeds=seeds) for seeds in (10, 20, 30)]
    groups = group_runs(make_comparison(*runs, do_work("more", seeds=10)))
    assert len({group.title for group in groups}) == len(groups) == 3


def test_devices_stand_in_the_row_where_their_numbers_differ():
    four = ("gpu0", "gpu1", "gpu2", "gpu3")
    runs = (do_work("one", epoch_s=(0.2,)), do_work("four", epoch_s=(0.1,), devices=four))
    text = show(make_comparison(*runs), details=False)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.endswith(" yes")}
    # 1e9 edges an epoch: 5 and 10 G/s, over one and four devices.
    assert rows["one"][4:7] == ["1", "5.00", "G"]
    assert rows["four"][3:7] == ["2.00x*", "4", "2.50", "G"]
    assert "2.00 times as fast as one, with 4 devices against 1" in text
    assert "devices" not in show(make_comparison(runs[0], do_work("other")), details=False)


def test_noise_is_told_where_there_is_some():
    loud, louder = ([0.1, *[0.1 + step * (i % 5) for i in range(20)]] for step in (0.02, 0.04))
    comparison = replace(take_turns(loud, louder), noise="other processes took 50% of it")
    told = describe_noise(comparison, group_runs(comparison))
    # Quartiles of 140 and 220 ms about 180 ms.
    assert told == "Epochs of b vary by 22% about their median: other processes took 50% of it."
    assert told in show(comparison, details=False)
    assert told in make_page(comparison)
    calm = take_turns([0.1] * 20, [0.1] * 20)
    assert describe_noise(calm, group_runs(calm)) == ""
    assert describe_noise(replace(comparison, modelled=True), ()) == ""


def test_times_to_accuracy_are_compared_over_all_groups():
    runs = []
    for label, seconds, sampling in (("a", 4.0, "one law"), ("b", 2.5, "another law")):
        runs.append(reach(do_work(label, sampling=sampling), seconds))
    sentences = summarise(group_runs(make_comparison(*runs)))
    assert sentences[-1] == (
        "Time to the target accuracy [modelled]: b 2.50 s, a 4.00 s; no difference is shown "
        "between b and a (ask for --repeats 3 or more)."
    )


def reach(run, seconds, repeat=0):
    """A run that reached the target after these seconds, or missed it."""
    metric = {} if seconds is None else {"time_to_accuracy": Metric(seconds, "s", "modelled")}
    metrics = {**run.metrics, **metric}
    return replace(run, metrics=metrics, repeat=repeat, target_accuracy=0.8)


def test_times_to_accuracy_have_intervals_over_seeds_and_rows_that_miss_stay():
    reached = {
        "a": (4.0, 4.4, 4.2), "b": (2.0, 2.2, 2.1), "c": (1.0, None, 1.0), "d": (None,) * 3,
    }  # fmt: skip
    runs = [
        reach(do_work(label), seconds, repeat)
        for label, times in reached.items()
        for repeat, seconds in enumerate(times)
    ]
    comparison = make_comparison(*runs)
    words = summarise(group_runs(comparison))[-1]
    assert words.startswith("Time to the target accuracy [modelled]: b 2.10 s (")
    assert re.search(r"a 4\.20 s \(3\.7\d s to 4\.7\d s over 3 seeds\)", words)
    assert "c missed it with 1 of 3 seeds, d missed it with 3 of 3 seeds; b is first" in words
    assert "b is first, 2.00 times as fast as a" in words
    lines = [line for line in show(comparison, 240, details=False).splitlines() if " yes" in line]
    assert ["not reached" in line for line in lines] == [False, False, True, True]


def test_an_idea_that_had_nothing_to_do_is_told():
    run = replace(make_run("a"), idle=("hybrid training (no seed)",))
    said = "so their benefit is unknown: a's hybrid training (no seed)."
    assert any(said in sentence for sentence in summarise(group_runs(make_comparison(run))))


def test_devices_of_one_number_after_another_are_a_range():
    assert list_devices(("gpu0", "gpu1", "gpu2", "gpu10", "host")) == "gpu0-gpu2, gpu10, host"


def test_mini_batches_are_told_of_where_there_are_any():
    assert "mini-batches of 1,024 seeds, fan-outs 25, 10." in show(every_status())
    full_graph = make_comparison(make_run("hongtu"))
    assert "mini-batches" not in show(full_graph)
    assert "fan-outs" not in make_page(full_graph)


def test_trace_events_are_legal(tmp_path):
    path = tmp_path / "trace.json"
    write_chrome_trace(every_status(), path)
    events = json.loads(path.read_text())["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} == {"X", "M"}
    assert all((event["pid"], event["tid"]) in named for event in spans)
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)
    for lane in named:
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == lane)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(own))


def test_trace_events_say_what_they_are():
    events = trace_events(make_comparison(make_run("hongtu")))
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    threads = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert processes == ["hongtu [full-graph]"]
    assert threads == ["gpu0", "pcie0", "pcie1"]
    (aggregate,) = (e for e in events if e["name"] == "aggregate 1")
    assert (aggregate["ts"], aggregate["dur"]) == (10_000.0, 10_000.0)
    assert aggregate["args"] == {
        "stage": "aggregate", "place": "gpu0", "epoch": 2, "round": 0, "layer": 1, "bytes": 0,
        "edges": 10, "provenance": "modelled",
    }  # fmt: skip
    # A span that holds two links is on both.
    crossed = [e["args"] for e in events if e["name"] == "transfer 2"]
    assert [(each["bytes"], each["edges"]) for each in crossed] == [(2000, 0)] * 2


def test_overlap_on_a_place_without_resource_gets_its_own_lane():
    spans = [make_span(i, "load", 0.0, 1.0, "host") for i in range(2)]
    loose = [replace(item, span=item.span._replace(resources=())) for item in spans]
    assert [name for name, _ in lanes(loose)] == ["host", "host (2)"]


VOID = {"meta", "input"}


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []
        self.tags = []
        self.attributes = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read_page(comparison):
    reader = Reader()
    reader.feed(make_page(comparison))
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_needs_nothing_else_and_is_well_formed(tmp_path):
    path = tmp_path / "page.html"
    write_html(every_status(), path)
    page = path.read_text(encoding="utf-8")
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    reader = read_page(every_status())
    assert not {"link", "img", "iframe", "object", "base"} & set(reader.tags)
    assert "src" not in {name for name, _ in reader.attributes}
    assert all(text.startswith("#") for name, text in reader.attributes if name == "href")
    # A browser is told to refuse whatever else might be asked for.
    assert "default-src 'none'" in page
    assert "prefers-color-scheme:dark" in page


def test_the_page_says_what_the_table_says():
    text = read_page(every_status()).text
    for words in (
        "Full graph: hongtu is fastest, 118 ms an epoch [modelled]", "0.55x (0.54-0.57)",
        "out-of-memory: gpu0 is out of memory", "NO", "not checked",
        "Mini-batch, not ranked: hyscale",
        "measured: timed or counted on this machine", "modelled: what the described platform",
        "split 25/50/25 drawn", "Example CPU", "4 partitions of 8 chunks", "host-device",
        "device-device", "peak device",
    ):  # fmt: skip
        assert words in text


def test_the_page_shows_the_columns_of_the_screen_first():
    """Checked boxes are what the screen has, also where groups differ in what they need."""
    one, two = do_work("a"), do_work("b", devices=("gpu0", "gpu1"))
    for runs in ((one, make_run("c")), (one, two, make_run("c"))):
        comparison = make_comparison(*runs)
        page = make_page(comparison)
        shown = re.findall(r'data-column="([^"]*)" checked', page)
        assert ("devices" in shown) is (two in runs)
        (heading,) = (s for s in show(comparison, 240, details=False).splitlines() if " test " in s)
        # The epoch's column has its speed beside it, which the screen does not name.
        assert len(shown) - 1 == len(re.split(" {2,}", heading.strip())) - 1
        firsts = [re.findall(r'data-key="([^"]*)"', part) for part in page.split("</thead>")]
        groups = [keys for keys in firsts if keys]
        assert len(groups) == 2
        assert all(keys[1 : len(shown) + 1] == shown for keys in groups)


def test_the_page_names_all_rows_of_a_note():
    page = make_page(shared_notes())
    assert "<li>a (full-graph), b, c: cut in 4</li>" in page
    assert page.split('<script type="application/json"')[0].count("cut in 4") == 1


def test_the_page_says_how_faithful_each_strategy_is():
    """Under its name and its headings, those alone that have clauses."""
    card = Card(("Algorithm 1 (`memory.policy`)",), ("<even> shares", "no `sync"), (), ("a test",))
    page = make_page(replace(every_status(), cards={"hongtu": card}))
    assert "<summary>hongtu</summary>" in page
    for clause in (
        "Algorithm 1 (<code>memory.policy</code>)",
        "&lt;even&gt; shares",
        "no <code>sync</code>",
        "a test",
    ):
        assert f"<li>{clause}</li>" in page
    headings = ["Implemented", "Simplified", "Validated"]
    faithful = page.split("How faithful")[1].split("<h2>Setting")[0]
    assert re.findall("<h3>(.*?)</h3>", faithful) == headings
    assert "How faithful" not in make_page(every_status())


def test_every_chart_has_a_title_and_a_description():
    page = make_page(every_status())
    charts = re.findall(r'<svg class="chart" role="img"[^>]*>(.{7})', page)
    # Epochs; in each group a path, two timelines, memory, bytes, losses and their difference.
    assert len(charts) == 1 + 2 * 7
    assert set(charts) == {"<title>"}
    assert page.count("<desc>") == len(charts)


def test_a_bar_of_bytes_says_how_many_crossed_a_link():
    """1.00 GB in, 0.21 GB out and 0.32 GB to a peer; 0.88 GB were reused."""
    assert ">1.53 GB moved</text>" in make_page(make_comparison(make_run("a")))


def test_names_are_escaped():
    page = make_page(make_comparison(make_run("<b>&evil")))
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;evil" in page


def test_a_page_without_a_finished_run_says_so():
    reader = read_page(make_comparison(make_failure("dgl", "error", "ValueError: no")))
    assert "No run finished." in reader.text
    assert "error: ValueError: no" in reader.text


def test_a_long_timeline_is_merged_then_cut_and_says_so():
    alike = [make_span(i, "load", i * 1e-3, (i + 1) * 1e-3, "host") for i in range(2000)]
    merged = reduce_timeline(alike)
    assert (merged.drawn, merged.spans) == (1, 2000)
    assert "drawn as one" in merged.describe()
    mixed = [
        make_span(i, ("load", "sample")[i % 2], i * 1e-3, (i + 1) * 1e-3, "host")
        for i in range(2000)
    ]
    cut = reduce_timeline(mixed)
    assert cut.drawn == MAX_RECTANGLES
    assert cut.describe() == "Only the first 600 ms of 2.00 s are drawn."
    assert reduce_timeline(mixed[:10]).describe() == ""


def test_curves_survive_losses_that_are_not_finite():
    losses = {"a": (1.0, float("nan"), 0.5), "b": (float("inf"),)}
    page = make_page(make_comparison(*[replace(make_run(n), loss=v) for n, v in losses.items()]))
    paths = re.findall(r' d="([^"]*)"', page)
    assert paths[0].count("M") == 2
    assert not any("nan" in path or "inf" in path for path in paths)


def test_times_to_accuracy_of_one_label_in_two_modes_are_told_apart():
    runs = (reach(make_run("a"), 2.0), reach(make_run("a", "mini-batch"), 3.0))
    words = summarise(group_runs(make_comparison(*runs)))[-1]
    assert "a (full-graph) 2.00 s, a (mini-batch) 3.00 s" in words
