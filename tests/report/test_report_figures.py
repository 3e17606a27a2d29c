"""Figures: tables with an axis become line charts on a page of their own."""

import json
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from gnnbench.records import Cell, Table, TableRow
from gnnbench.report import page as pages
from gnnbench.report.results.tables import make_document
from gnnbench.report.svg import Bar, Segment, draw_bars, draw_curves, draw_lines
from gnnbench.report.tables_html import make_page, write_tables

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


def svg_of(page):
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def texts(root):
    return [element.text or "" for element in root.iter("text")]


def test_a_figure_has_a_curve_for_each_row_and_says_where_its_points_come_from():
    page = make_page((FIGURE,))
    chart = svg_of(page)
    assert len(list(chart.iter("path"))) == 2
    assert len(list(chart.iter("circle"))) == 6
    labels = texts(chart)
    assert {"GCN", "SAGE", "accelerators", "1", "4", "16", "0 x"} <= set(labels)
    assert "Every point is modelled." in page
    assert "Speed-up &lt;over&gt; accelerators" in page
    assert "Against one accelerator." in page
    assert "+12 %" in page


def ticks(chart):
    """The texts below an axis."""
    found = [each for each in chart.iter("text") if each.attrib["text-anchor"] == "middle"]
    return [each.text for each in found if each.attrib.get("class") == "tick"]


def test_bars_are_stacked_on_one_scale_from_zero():
    pieces = (Segment("x", "one", 3.0), Segment("y", "two", 1.0)), (Segment("x", "one", 2.0),)
    chart = ElementTree.fromstring(draw_bars("t", [Bar("b", each, "") for each in pieces], "s"))
    shapes = [each.attrib for each in chart.iter("rect")]
    left, widths = ([float(each[name]) for each in shapes] for name in ("x", "width"))
    assert widths == pytest.approx([580 * share for share in (0.75, 0.25, 0.5)])
    assert left == pytest.approx([left[0], left[0] + widths[0], left[0]])
    assert ticks(chart) == ["0 s", "1.00 s", "2.00 s", "3.00 s", "4.00 s"]


def test_losses_are_drawn_from_the_first_epoch_on_and_high_ones_above():
    chart = ElementTree.fromstring(draw_curves("t", {"a": (0.2, 0.1, 0.0)}))
    points = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in chart.iter("circle")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert 0 < x1 - x0 == pytest.approx(x2 - x1)
    assert 0 < y1 - y0 == pytest.approx(y2 - y1)
    assert ticks(chart) == ["1", "2", "3", "epoch"]


def test_places_and_heights_are_in_proportion():
    chart = ElementTree.fromstring(
        draw_lines("t", "n", (0.0, 5.0, 10.0), {"a": (0.0, 1.0, 2.0)}, "x")
    )
    points = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in chart.iter("circle")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2)
    assert y0 > y2


def test_labels_of_curves_that_end_together_do_not_overlap():
    curves = {f"curve {number}": (1.0, 2.0 + number / 1000) for number in range(6)}
    chart = ElementTree.fromstring(draw_lines("t", "n", (1.0, 2.0), curves, "x"))
    heights = sorted(
        float(text.attrib["y"]) for text in chart.iter("text") if "curve" in (text.text or "")
    )
    assert len(heights) == 6
    assert all(below - above >= 14.9 for above, below in pairwise(heights))


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


@pytest.mark.parametrize(("colours", "paper"), [("_LIGHT", "#ffffff"), ("_DARK", "#15181c")])
def test_colours_of_series_are_told_apart_by_all_eyes(colours, paper):
    colours = getattr(pages, colours)
    assert f"--page:{paper[:4] if paper == '#ffffff' else paper}" in make_page((FIGURE,))
    for eye in EYES.values():
        seen = [to_lab(eye @ linear(colour)) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) >= 30
    behind = TO_XYZ[1] @ linear(paper)
    for colour in colours:
        low, high = sorted((behind, TO_XYZ[1] @ linear(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3


def test_no_two_of_twenty_series_are_drawn_alike():
    looks = pages.list_series()
    assert len(set(looks)) == len(looks) >= 20
    assert all(one[0] != other[0] and one[1] != other[1] for one, other in pairwise(looks))
