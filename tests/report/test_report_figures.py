"""Charts: places and lengths are in proportion, and colours are told apart by all eyes."""

import json
from dataclasses import replace
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from gnnbench.comparison.ranking import group_runs
from gnnbench.records import STAGES, Cell, Table, TableRow
from gnnbench.report import charts
from gnnbench.report.axes import Axis, scale_by_ratio
from gnnbench.report.charts import chart_epochs
from gnnbench.report.page import DARK, LIGHT, list_series
from gnnbench.report.results.tables import make_document
from gnnbench.report.svg import NUM_COLOURS, Across, Bar, Segment, draw_bars, draw_lines
from gnnbench.report.tables_html import make_page, write_tables
from tests.report.example_comparison import make_comparison, make_run

FIGURE = Table(
    name="figure9",
    title="Speed-up <over> accelerators",
    columns=("1", "4", "16"),
    rows=(
        TableRow("GCN", tuple(Cell(value, "x") for value in (1.0, 3.6, 11.0))),
        TableRow("SAGE", tuple(Cell(value, "x", quoted=10.0) for value in (1.0, 3.7, 11.2))),
    ),
    notes=("against one accelerator",),
    axis="accelerators",
)


def parse(drawing):
    return ElementTree.fromstring(drawing.embed())


def texts(root):
    return [element.text or "" for element in root.iter("text")]


def shares(chart, tag, name):
    """An attribute of shapes, as shares of the width, or as pixels."""
    found = [each.attrib[name] for each in chart.iter(tag) if each.attrib.get("class") != "grid"]
    return [float(value[:-1]) / 100 if value[-1] == "%" else float(value) for value in found]


def test_a_figure_has_a_curve_for_each_row_and_says_where_its_points_come_from():
    page = make_page((FIGURE,))
    start = page.index('<svg class="chart"')
    chart = ElementTree.fromstring(page[start : page.index('<ul class="legend"')])
    assert len(list(chart.iter("path"))) == 2
    assert len(list(chart.iter("circle"))) == 6
    labels = texts(chart)
    assert {"GCN", "SAGE", "accelerators", "1", "4", "16", "0 x"} <= set(labels)
    assert "Every point is modelled." in page
    assert "Speed-up &lt;over&gt; accelerators" in page
    assert "Against one accelerator." in page
    assert "+12 %" in page
    assert page.count("<h1>") == 1


def ticks(chart):
    """The texts below an axis."""
    found = [each for each in chart.iter("text") if each.attrib.get("class") == "tick"]
    return [each.text for each in found if "dx" not in each.attrib]


def test_bars_are_stacked_on_one_scale_from_zero():
    pieces = (Segment("x", "one", 3.0), Segment("y", "two", 1.0)), (Segment("x", "one", 2.0),)
    chart = parse(draw_bars("t", [Bar("b", each, "") for each in pieces], "s"))
    assert shares(chart, "rect", "width") == pytest.approx([0.75, 0.25, 0.5])
    assert shares(chart, "rect", "x") == pytest.approx([0.0, 0.75, 0.0])
    assert ticks(chart) == ["0 s", "1.00 s", "2.00 s", "3.00 s", "4.00 s"]


def find_chart(groups, words):
    (found,) = [chart for chart in list_charts(groups) if words in chart.drawing.title]
    return found


def list_charts(groups):
    epochs = [chart_epochs(groups)]
    return [*epochs, *(chart for group in groups for chart in charts.list_charts(group))]


def test_epochs_stand_by_their_ratio_with_the_interval_and_stripes_where_modelled():
    """One measured in epochs of 1 to 4 ms; one modelled at 4 ms, within a factor of 2."""
    measured = make_run("a", epoch_s=(0.001, 0.002, 0.004), provenance="measured")
    modelled = make_run("b", epoch_s=(0.004,))
    epoch = replace(modelled.metrics["epoch_time"], error_factor=2.0)
    modelled = replace(modelled, metrics={**modelled.metrics, "epoch_time": epoch})
    chart = parse(chart_epochs(group_runs(make_comparison(measured, modelled))).drawing)
    low, high = shares(chart, "line", "x1"), shares(chart, "line", "x2")
    dots = shares(chart, "circle", "cx")
    octave = dots[1] - dots[0]
    assert (dots[0] - low[0], high[0] - dots[0]) == pytest.approx((octave, octave), abs=2e-4)
    assert (dots[1] - low[1], high[1] - dots[1]) == pytest.approx((octave, octave), abs=2e-4)
    bands = [each.attrib["class"] for each in chart.iter("line") if each.attrib["class"] != "grid"]
    assert ["striped" in style for style in bands] == [False, True]
    assert ["hollow" in each.attrib["class"] for each in chart.iter("circle")] == [False, True]


def test_a_bar_of_the_critical_path_has_no_work_that_is_hidden():
    """A transfer of 10 ms, then 20 ms beside an aggregation of 10 ms, which ends earlier."""
    groups = group_runs(make_comparison(make_run("a")))
    chart = find_chart(groups, "Critical path")
    assert chart.legend == [("stage-transfer", "transfer")]
    assert "30.0 ms, 100 % transfer" in texts(parse(chart.drawing))


def test_timelines_of_a_group_share_a_scale():
    long, short = make_run("long"), make_run("short")
    halved = tuple(
        replace(item, start_s=item.start_s / 2, end_s=item.end_s / 2) for item in short.timeline
    )
    groups = group_runs(make_comparison(long, replace(short, timeline=halved)))
    widths = [
        sum(shares(parse(find_chart(groups, f"Timeline of {name}").drawing), "rect", "width"))
        for name in ("long", "short")
    ]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)


def test_losses_that_coincide_are_drawn_by_their_difference():
    """From the first epoch on, and ten times as far off is as much higher as a hundred times."""
    first = replace(make_run("a"), loss=(1.0, 1.0, 1.0))
    other = replace(make_run("b"), loss=(1.0 + 1e-6, 1.0 + 1e-5, 1.0 + 1e-4))
    groups = group_runs(make_comparison(first, other))
    assert not [chart for chart in list_charts(groups) if chart.heading == "Training loss"]
    chart = parse(find_chart(groups, "Loss difference to a").drawing)
    x, y = shares(chart, "circle", "cx"), shares(chart, "circle", "cy")
    assert x == pytest.approx([0.0, 0.5, 1.0])
    assert 0 < y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.1)
    assert [text for text in ticks(chart) if text != "epoch"] == ["1", "2", "3"]
    apart = group_runs(make_comparison(first, replace(other, loss=(1.2, 1.1, 1.1))))
    curves = parse(find_chart(apart, "Training loss").drawing)
    assert len(list(curves.iter("path"))) == 2


def draw(places, curves):
    """Curves on axes from 0 to 10 and to 2."""
    across = Across("n", Axis(0.0, 10.0, tuple(places)))
    return parse(draw_lines("t", across, places, curves, Across("", Axis(0.0, 2.0, (0.0, 2.0)))))


def test_places_and_heights_are_in_proportion():
    chart = draw((0.0, 5.0, 10.0), {"a": (0.0, 1.0, 2.0)})
    assert shares(chart, "circle", "cx") == pytest.approx([0.0, 0.5, 1.0])
    assert shares(chart, "circle", "cy") == pytest.approx([200.0, 100.0, 0.0])


def test_labels_of_curves_that_end_together_do_not_overlap():
    curves = {f"curve {number}": (1.0, 2.0 + number / 1000) for number in range(6)}
    chart = draw((1.0, 2.0), curves)
    heights = sorted(
        float(text.attrib["y"]) for text in chart.iter("text") if "curve" in (text.text or "")
    )
    assert len(heights) == 6
    assert all(below - above >= 14.9 for above, below in pairwise(heights))


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((0.02, 0.021), (0.0195, 0.02, 0.0205, 0.021, 0.0215)),
        ((0.003, 0.3), (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)),
        ((1e-9, 1.0), (1e-9, 1e-7, 1e-5, 1e-3, 1e-1)),
    ],
)
def test_an_axis_by_ratio_names_few_round_values(values, ticks):
    axis = scale_by_ratio(values)
    assert axis.ticks == pytest.approx(ticks)
    middle = (values[0] * values[1]) ** 0.5
    assert axis.share(middle) == pytest.approx(0.5)
    assert axis.share(0.0) == 0.0


def test_the_axis_stands_in_the_document_and_a_table_without_one_has_no_chart(tmp_path):
    (table,) = json.loads(json.dumps(make_document((FIGURE,))))["tables"]
    assert table["axis"] == "accelerators"
    plain = Table("t", "A table", ("seconds",), (TableRow("row", (Cell(text="out of memory"),)),))
    path = tmp_path / "page.html"
    write_tables((plain,), path)
    page = path.read_text()
    assert "<svg" not in page
    assert "out of memory" in page


#: What is seen of linear RGB by everybody, and without one of the three cones: Machado, Oliveira
#: and Fernandes, "A physiologically-based model for simulation of color vision deficiency", 2009,
#: severity 1.
EYES = {
    "all cones": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]),
    "tritanopia": np.array([
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip
#: Linear sRGB to CIE XYZ of daylight D65, whose white is the sum of the columns.
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    levels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def to_lab(rgb):
    share = TO_XYZ @ rgb.clip(0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), share * 841 / 108 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    ("colours", "paper", "rule"),
    [(LIGHT, "#ffffff", "#d9dde2"), (DARK, "#15181c", "#353b43")],
    ids=["light", "dark"],
)
def test_colours_are_told_apart_by_all_eyes(colours, paper, rule):
    """Stages, series and ways have these colours. Waiting has the colour of rules."""
    page = make_page((FIGURE,))
    assert f"--rule:{rule};--page:{paper[:4] if paper == '#ffffff' else paper}" in page
    assert len(STAGES) <= len(colours) == NUM_COLOURS
    for eye in EYES.values():
        seen = [to_lab(eye @ linear(colour)) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) >= 25
        waiting = to_lab(eye @ linear(rule))
        assert min(np.linalg.norm(waiting - each) for each in seen) >= 10
    behind = TO_XYZ[1] @ linear(paper)
    for colour in colours:
        low, high = sorted((behind, TO_XYZ[1] @ linear(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3


def test_no_two_of_twenty_series_are_drawn_alike():
    looks = list_series()
    assert len(set(looks)) == len(looks) >= 20
    assert all(one[0] != other[0] and one[1] != other[1] for one, other in pairwise(looks))
