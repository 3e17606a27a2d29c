"""Figures: tables with an axis become line charts on a page of their own."""

from __future__ import annotations

import json
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from gnnbench.records import Cell, Table, TableRow
from gnnbench.report.svg import draw_lines
from gnnbench.report.tables_html import make_page, write_tables
from gnnbench.results.tables import make_document

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


def svg_of(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def texts(root: ElementTree.Element) -> list[str]:
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


def test_a_table_without_an_axis_has_no_chart(tmp_path):
    plain = Table("t", "A table", ("seconds",), (TableRow("row", (Cell(text="out of memory"),)),))
    path = tmp_path / "page.html"
    write_tables((plain,), path)
    page = path.read_text()
    assert "<svg" not in page
    assert "out of memory" in page


def test_the_axis_stands_in_the_document():
    (table,) = json.loads(json.dumps(make_document((FIGURE,))))["tables"]
    assert table["axis"] == "accelerators"
