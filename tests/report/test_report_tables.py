"""Tables in a terminal and as JSON: provenances apart, errors beside, words compared."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from gnnbench.records import Cell, Contradiction, Table, TableRow
from gnnbench.report.results.tables import make_document
from gnnbench.report.tables import format_quantity, print_table, sum_up_agreement
from gnnbench.report.tables_html import make_page
from gnnbench.reproduce.agreement import measure_agreement

TABLE = Table(
    name="t",
    title="A table",
    columns=("small", "large"),
    rows=(
        TableRow(
            "theirs", (Cell(0.5, "s", "quoted"), Cell(text="out of memory", provenance="quoted"))
        ),
        TableRow("ours", (Cell(0.6, "s", quoted=0.5), Cell(6260.2, "s", quoted=12520.4))),
        TableRow(
            "in memory",
            (
                Cell(0.5, "s", quoted=0.5),
                Cell(text="out of memory", unit="s", quoted_text="out of memory"),
            ),
        ),
    ),
    notes=("what was left out",),
)


FAR = Contradiction(
    "the epoch of reddit",
    "0.60 s",
    "0.50 s",
    "the bandwidth of the links between sockets 2 times as large: 20 GB/s for 10 GB/s",
    "the epoch of reddit is 0.60 s for 0.50 s; and all else that is known of it",
)


def show(table, width=120, *, details=False):
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=width, highlight=False), details=details)
    return stream.getvalue().splitlines()


def test_ours_theirs_and_the_error_stand_side_by_side():
    lines = show(TABLE)
    assert lines[0] == "A table"
    assert lines[2].split() == ["small", "large"]
    assert lines[3].split() == ["[modelled]", "[quoted]", "error"] * 2
    assert lines[4].split() == ["theirs", "500", "ms", "out", "of", "memory"]
    ours = "ours 600 ms 500 ms +20 % 6,260 s 12,520 s -50 %"
    assert " ".join(lines[5].split()) == ours
    assert lines[6].endswith("out of memory  out of memory   same")
    assert " note             what was left out" in lines


def test_cells_that_do_not_count_say_so_in_a_terminal_and_on_a_page():
    again = Cell(0.6, "s", quoted=0.5, uncounted="counted in t7")
    fitted = Cell(0.5, "s", quoted=0.5, fitted_on=("rate", "share"))
    table = Table("t", "t", ("one", "other"), (TableRow("row", (again, fitted)),))
    lines = show(table)
    assert lines[4].split()[5:7] == ["(+20", "%)"]
    assert lines[4].endswith("+0 % fitted")
    fit = "rate and share fitted on row, other"
    assert any(line.startswith(" no test") and line.endswith(fit) for line in lines)
    page = make_page([table, table])
    assert f"<h1>Beside the paper: {table.name}</h1>" in page
    assert "(+20 %)" in page
    assert "1 more does not count (counted in t7)." in page
    assert fit.capitalize() in page


def test_what_contradicts_the_paper_is_a_line_each_and_all_of_it_on_request():
    table = replace(TABLE, contradictions=(FAR, FAR._replace(what="cora", remedy="nothing")))
    short = show(table, 90)
    title = next(
        n for n, line in enumerate(short) if line.startswith("The smallest change that would")
    )
    assert short[title + 1 :] == [
        " the epoch of reddit  0.60 s for 0.50 s  the bandwidth of the links between sockets 2",
        "                                         times as large: 20 GB/s for 10 GB/s",
        " cora                 0.60 s for 0.50 s  nothing",
    ]
    assert not any("all else" in line for line in short)
    whole = " ".join(" ".join(show(table, 90, details=True)).split())
    assert whole.count("and all else that is known of it") == 2
    assert "The smallest change that would" not in whole
    assert "The smallest change that would" not in " ".join(show(TABLE))


def test_what_contradicts_the_paper_is_in_the_document_and_on_the_page():
    table = replace(TABLE, contradictions=(FAR,))
    (said,) = make_document([table])["tables"]
    assert said["contradictions"] == [FAR._asdict()]
    page = make_page([table])
    assert FAR.remedy in page
    assert "and all else that is known of it." in page


def test_a_quoted_number_never_stands_in_the_modelled_column():
    lines = show(TABLE)
    modelled = lines[3].index("[modelled]"), lines[3].index("[modelled]") + len("[modelled]")
    assert lines[4][slice(*modelled)].strip() == ""
    assert lines[5][slice(*modelled)].strip() == "600 ms"


def test_the_summary_counts_close_cells_and_equal_words():
    agreement = measure_agreement(TABLE.cells)
    assert (agreement.numbers, agreement.close) == (3, 2)
    assert agreement.median_error == pytest.approx(0.2)
    assert agreement.largest_error == pytest.approx(0.5)
    assert (agreement.words, agreement.same_words) == (1, 1)
    assert sum_up_agreement(TABLE) == (
        "Median error 20 %, largest 50 %; 2 of 3 cells within 25 %; 1 of 1 cells without a number "
        "say the same."
    )


@pytest.mark.parametrize(
    "cell",
    [
        Cell(1.0, "s", quoted_text="out of memory"),
        Cell(text="out of memory", unit="s", quoted=1.0),
        Cell(text="fits", quoted_text="out of memory"),
    ],
)
def test_words_against_a_number_or_other_words_differ(cell):
    table = Table("t", "t", ("a",), (TableRow("r", (cell,)),))
    agreement = measure_agreement(table.cells)
    assert (agreement.words, agreement.same_words) == (1, 0)
    assert show(table)[4].endswith("DIFFERS")


@pytest.mark.parametrize(
    ("value", "quoted", "error", "says"),
    [
        (2.0, "1.20-3.40", 0.0, "within"),
        (6.8, "1.20-3.40", 1.0, "+100 %"),
        (600.0, "1,200 \u2013 3,400", -0.5, "-50 %"),
    ],
)
def test_a_number_beside_a_range_is_held_against_it(value, quoted, error, says):
    table = Table("t", "t", ("a",), (TableRow("r", (Cell(value, "x", quoted_text=quoted),)),))
    agreement = measure_agreement(table.cells)
    assert (agreement.numbers, agreement.words) == (1, 0)
    assert agreement.largest_error == pytest.approx(abs(error))
    line = show(table)[4]
    assert quoted in line
    assert line.endswith(says)
    (row,) = make_document([table])["tables"][0]["rows"]
    assert row["cells"][0]["error"] == pytest.approx(error)


def test_a_table_without_a_paper_has_no_summary():
    table = Table("t", "t", ("a",), (TableRow("r", (Cell(3.0, "B", "measured"),)),))
    assert sum_up_agreement(table) == ""
    lines = show(table)
    assert lines[3].split() == ["[measured]"]
    assert lines[4].split() == ["r", "3.00", "B"]


def test_columns_that_do_not_fit_move_to_another_panel_whole():
    lines = show(TABLE, width=60)
    assert max(map(len, lines)) <= 60
    assert sum("[modelled]" in line for line in lines) == 2
    assert sum(line.startswith(" ours") for line in lines) == 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.403, "s", "403 ms"),
        (3.906, "s", "3.91 s"),
        (6260.2, "s", "6,260 s"),
        (177.19, "GiB", "177 GiB"),
        (0.0, "s", "0 s"),
        (1.6, "", "1.60"),
        (math.inf, "s", "inf s"),
    ],
)
def test_quantities_keep_three_digits(value, unit, text):
    assert format_quantity(value, unit) == text


def test_the_document_has_every_cell_and_is_strict_json():
    odd = Table("o", "o", ("a",), (TableRow("r", (Cell(math.nan, "s", quoted=1.0),)),))
    document = json.loads(json.dumps(make_document([TABLE, odd]), allow_nan=False))
    first, second = document["tables"]
    assert (first["name"], first["columns"], first["notes"]) == (
        "t", ["small", "large"], ["what was left out"],
    )  # fmt: skip
    assert [row["label"] for row in first["rows"]] == ["theirs", "ours", "in memory"]
    assert first["rows"][1]["cells"][1] == {
        "value": 6260.2,
        "unit": "s",
        "provenance": "modelled",
        "quoted": 12520.4,
        "error": pytest.approx(-0.5),
        "text": "",
        "quoted_text": "",
        "fitted_on": [],
        "uncounted": "",
    }
    assert first["agreement"]["close"] == 2
    assert second["rows"][0]["cells"][0]["value"] is None


def test_a_count_is_printed_whole_and_stays_one_in_json():
    cells = (Cell(3), Cell(2708, "rows", "measured"), Cell(3.0), Cell(np.int64(7)))
    table = Table("t", "t", ("a", "b", "c", "d"), (TableRow("r", cells),))
    assert show(table)[-1].split() == ["r", "3", "2,708", "rows", "3.00", "7"]
    (row,) = make_document([table])["tables"][0]["rows"]
    assert [type(cell["value"]) for cell in row["cells"]] == [int, int, float, int]
