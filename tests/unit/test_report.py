"""The table, the trace and the page say what the comparison says, whatever the width."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from example_comparison import (
    every_status,
    make_comparison,
    make_failure,
    make_run,
    make_span,
)
from rich.console import Console

from gnnbench.records import Equivalence, Metric
from gnnbench.report.chrome import lanes, trace_events, write_chrome_trace
from gnnbench.report.html import make_page, write_html
from gnnbench.report.rows import group_runs, list_devices, speed_ratio, summarise, widest_gap
from gnnbench.report.svg import draw_curves, reduce_timeline
from gnnbench.report.table import format_equivalence, print_comparison


def show(comparison, width=160, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_comparison(comparison, Console(file=stream, width=width))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


# --------------------------------------------------------------------------- table


def test_first_lines_say_what_and_on_what():
    lines = show(every_status()).splitlines()
    assert lines[0] == (
        "gnnbench compare · coauthor_physics · GCN 2 layers, 8415-256-5 · 3 epochs, seed 0"
    )
    assert lines[1] == (
        "No CUDA device here: numerics are real, device times are modelled on epyc7763x2-4xa5000."
    )
    assert "Note: split 25/50/25 drawn" in lines


def test_a_measured_comparison_says_so():
    run = make_run("hongtu", provenance="measured")
    text = show(make_comparison(run, modelled=False))
    assert "device times are measured" in text
    assert "epoch [measured]" in text
    assert "modelled" not in text


def test_rows_hold_every_figure():
    lines = show(every_status()).splitlines()
    row = next(line for line in lines if line.startswith(" hongtu·vanilla"))
    for figure in (
        "0.412", "0.951", "213 ms", "0.55x", "0.54-0.57", "1.21 GB", "320 MB", "880 MB", "610 MB",
        "yes (3e-7)",
    ):  # fmt: skip
        assert figure in row


def test_groups_stand_apart_full_graph_first():
    lines = show(every_status()).splitlines()
    full = next(i for i, line in enumerate(lines) if line.startswith(" full graph"))
    mini = lines.index(" mini-batch")
    assert full < next(i for i, s in enumerate(lines) if s.startswith(" hongtu ")) < mini
    assert mini < next(i for i, s in enumerate(lines) if s.startswith(" hyscale"))


def test_failed_runs_stay_with_their_reason():
    text = " ".join(show(every_status(), width=80).split())
    assert "dgl out-of-memory: gpu0 is out of memory: features of layer 0 needs 1,161" in text
    assert "pyg skipped: torch-sparse is not installed; install it." in text
    assert "broken error: ValueError: it broke" in text


def test_a_reason_does_not_repeat_the_label():
    text = show(make_comparison(make_failure("dgl", "skipped", "dgl: it does not fit.")))
    assert "skipped: it does not fit." in text


def test_only_failures_still_make_a_table():
    text = show(make_comparison(make_failure("dgl", "skipped", "DGL is not installed.")))
    assert "full graph" in text
    assert "skipped: DGL is not installed." in text


def test_this_machines_own_times_are_apart():
    text = show(every_status(), width=200)
    assert re.search(
        r"this machine +wall \[measured\]: hongtu 2\.31 s, .* an epoch, of which harness 0\.8 %",
        text,
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
def test_no_number_is_cut_and_nothing_is_wider(width):
    text = show(every_status(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for figure in ("0.54-0.57", "1.21 GB", "610 MB", "18.2 G", "NO (1e-2)", "213 ms", "55.0 ms"):
        assert figure in text


def test_stages_stay_on_one_line_where_shorter_bars_allow_it():
    for width in (160, 100):
        headings = [s for s in show(every_status(), width).splitlines() if "stages [" in s]
        assert len(headings) == 1
        assert headings[0].split()[2:] == ["load", "transfer", "aggregate", "update", "synchronize"]
    narrow = [s for s in show(every_status(), 60).splitlines() if "stages [" in s]
    assert " ".join(s.split("]")[1].strip() for s in narrow).split() == headings[0].split()[2:]


def test_no_escape_codes_or_trailing_blanks_in_a_file():
    text = show(every_status())
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


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
    assert "epoch [modelled]" in text
    assert "epoch [measured]" in text
    rows = [line for line in text.splitlines() if re.match(r" [ab]  +0\.412", line)]
    assert [row.count("1.00x") for row in rows] == [1, 1]
    assert "stages [modelled]" in text
    assert "stages [measured]" in text
    winners = [
        sentence for group in group_runs(make_comparison(*runs)) for sentence in summarise(group)
    ]
    assert len(winners) == 2
    assert not any("as fast as" in sentence for sentence in winners)


def test_time_to_accuracy_has_a_column_when_asked_for():
    run = make_run("hongtu")
    run = replace(run, metrics={**run.metrics, "time_to_accuracy": Metric(1.25, "s", "modelled")})
    text = show(make_comparison(run, make_run("dgl")), width=240)
    assert "time to accuracy [modelled]" in text
    assert "1.25 s" in text
    assert "not reached" in text
    assert "time to accuracy" not in show(every_status(), width=240)


def test_repeats_are_one_row():
    runs = [replace(make_run("a", epoch_s=(0.1 + 0.01 * i,)), repeat=i) for i in range(3)]
    row = group_runs(make_comparison(*runs))[0].rows[0]
    assert row.metric("epoch_time").samples == pytest.approx((0.1, 0.11, 0.12))
    assert row.metric("epoch_time").value == pytest.approx(0.11)
    rows = [s for s in show(make_comparison(*runs)).splitlines() if re.match(r" a +0\.412", s)]
    assert len(rows) == 1


def test_same_label_in_both_groups_is_told_apart():
    runs = (make_run("reference"), make_run("reference", "mini-batch"))
    text = show(make_comparison(*runs), width=200)
    assert "reference (full-graph) 2.31 s, reference (mini-batch) 2.31 s an epoch" in text


def shared_notes():
    """Rows that say the same, partly; ``a`` in both groups."""
    said = {"a": ("cut in 4", "of a alone"), "b": ("cut in 4",), "c": ("of c alone", "cut in 4")}
    runs = [replace(make_run(label), notes=notes) for label, notes in said.items()]
    mini_batch = replace(make_run("a", "mini-batch"), notes=("of a alone",))
    return make_comparison(*runs, replace(runs[0], repeat=1), mini_batch)


def test_a_note_of_several_rows_is_said_once_and_names_them():
    lines = show(shared_notes()).splitlines()
    at = lines.index(" a (full-graph), b, c")
    assert lines[at + 1].strip() == "cut in 4"
    assert lines[at + 2 : at + 4] == [" a (full-graph), a (mini-batch)", f"{'':18}of a alone"]
    assert lines[at + 4].split() == ["c", "of", "c", "alone"]
    assert sum("cut in 4" in line for line in lines) == 1


def test_the_names_of_many_rows_are_wrapped():
    labels = [f"strategy-{number}" for number in range(20)]
    runs = [replace(make_run(label), notes=("cut in 4",)) for label in labels]
    lines = show(make_comparison(*runs), width=100).splitlines()
    (said,) = (number for number, line in enumerate(lines) if line.strip() == "cut in 4")
    blank = max(number for number in range(said) if not lines[number])
    assert " ".join(lines[blank + 1 : said]).split() == ", ".join(labels).split()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("error", "text"),
    [(3e-7, "yes (3e-7)"), (0.0, "yes (0)"), (1e-2, "NO (1e-2)"), (float("nan"), "NO (nan)")],
)
def test_equivalence_in_words(error, text):
    assert format_equivalence(Equivalence("full-graph", error, 1e-4)) == text
    assert format_equivalence(None) == "not checked"


# --------------------------------------------------------------------------- ranking


def test_speed_ratio_spans_the_samples():
    ratio = speed_ratio(Metric(0.2, "s", "modelled", (0.1, 0.4)), Metric(0.2, "s", "modelled"))
    assert (ratio.value, ratio.low, ratio.high) == (1.0, 0.5, 2.0)
    assert speed_ratio(Metric(0.0, "s", "modelled"), Metric(0.2, "s", "modelled")) is None


def test_the_summary_names_winner_margin_and_stage():
    full, mini = group_runs(every_status())
    (sentence,) = summarise(full)
    assert "hongtu is fastest, 118 ms an epoch [modelled], 1.81 times as fast as" in sentence
    assert "the widest gap is transfer, 59.0 ms against 107 ms" in sentence
    # hyscale is faster but not equal to the reference: it cannot win.
    assert summarise(mini)[0].startswith("mini-batch: reference takes 500 ms")
    assert summarise(mini)[1] == "mini-batch: not ranked, for unequal losses: hyscale."


def test_a_win_without_a_shorter_stage_is_put_down_to_overlap():
    loser = make_run("b", epoch_s=(0.2,))
    winner = replace(make_run("a", epoch_s=(0.1,)), stages=loser.stages)
    (group,) = group_runs(make_comparison(loser, winner))
    assert "2.00 times as fast as b (no stage is much shorter" in summarise(group)[0]


def test_rows_whose_stages_are_alike_have_no_gap():
    one, other = make_run("a", epoch_s=(0.1,)), make_run("b", epoch_s=(0.1,))
    (group,) = group_runs(make_comparison(one, replace(other, stages=one.stages)))
    assert widest_gap(*group.rows) == ""


def test_overlapping_samples_are_no_win():
    runs = (make_run("a", epoch_s=(0.10, 0.12)), make_run("b", epoch_s=(0.11, 0.115)))
    (group,) = group_runs(make_comparison(*runs))
    assert "a and b are level within the spread" in summarise(group)[0]


def test_all_rows_that_are_level_are_named():
    runs = [make_run(label, epoch_s=(0.1,)) for label in "abc"]
    (group,) = group_runs(make_comparison(*runs, make_run("d", epoch_s=(0.2,))))
    assert summarise(group)[0].startswith("full graph: a, b and c are level within the spread")


def test_the_table_says_who_trained_and_against_whom_speeds_are():
    text = show(every_status())
    assert re.search(r"1\.00x +the first row of each group: hongtu, hyscale", text)
    assert re.search(r"trained on +hongtu gpu0; hongtu·vanilla gpu0; hyscale gpu0", text)
    assert list_devices(("gpu0", "gpu1", "gpu2", "gpu10", "host")) == "gpu0-gpu2, gpu10, host"


def test_mini_batches_are_told_of_where_there_are_any():
    assert "mini-batches of 1,024 seeds, fan-outs 25, 10." in show(every_status())
    full_graph = make_comparison(make_run("hongtu"))
    assert "mini-batches" not in show(full_graph)
    assert "fan-outs" not in make_page(full_graph)


# --------------------------------------------------------------------------- chrome trace


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
        "stage": "aggregate", "place": "gpu0", "epoch": 2, "round": 0, "layer": 1, "bytes": 1000,
        "edges": 10, "provenance": "modelled",
    }  # fmt: skip
    # A span that holds two links is on both.
    assert sum(e["name"] == "transfer 2" for e in events) == 2


def test_overlap_on_a_place_without_resource_gets_its_own_lane():
    spans = [make_span(i, "load", 0.0, 1.0, "host") for i in range(2)]
    loose = [replace(item, span=item.span._replace(resources=())) for item in spans]
    assert [name for name, _ in lanes(loose)] == ["host", "host (2)"]


# --------------------------------------------------------------------------- page

VOID = {"meta", "rect", "line", "circle"}


class Reader(HTMLParser):
    """Checks that tags balance, and collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID or (tag == "rect" and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read_page(comparison) -> Reader:
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
    assert not {"script", "link", "img", "iframe"} & set(reader.tags)
    assert not {"src", "href"} & {name for name, _ in reader.attributes}
    assert "prefers-color-scheme:dark" in page


def test_the_page_says_what_the_table_says():
    text = read_page(every_status()).text
    for words in (
        "Full graph: hongtu is fastest, 118 ms an epoch [modelled]", "0.55x (0.54-0.57)",
        "out-of-memory: gpu0 is out of memory", "NO (1e-2)", "not checked",
        "measured: timed or counted on this machine", "modelled: what the described platform",
        "split 25/50/25 drawn", "Example CPU", "4 partitions of 8 chunks", "host-device",
        "device-device", "peak device",
    ):  # fmt: skip
        assert words in text


def test_the_page_names_all_rows_of_a_note():
    page = make_page(shared_notes())
    assert "<li>a (full-graph), b, c: cut in 4</li>" in page
    assert page.count("cut in 4") == 1


def test_every_chart_has_a_title_and_a_description():
    page = make_page(every_status())
    charts = re.findall(r'<svg viewBox="[^"]*" role="img">(.{7})', page)
    assert len(charts) == 2 * (2 + 1) + 4
    assert set(charts) == {"<title>"}
    assert page.count("<desc>") == len(charts)


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
    assert cut.drawn == 400
    assert cut.describe() == "Only the first 400 ms of 2.00 s are drawn."
    assert reduce_timeline(mixed[:10]).describe() == ""


def test_curves_survive_losses_that_are_not_finite():
    chart = draw_curves("loss", {"a": (1.0, float("nan"), 0.5), "b": (float("inf"),)})
    assert "nan," not in chart.split("</desc>")[1]
    assert 'd="M' in chart
