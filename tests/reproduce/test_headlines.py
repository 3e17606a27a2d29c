"""The headline claims of the papers: found in the studies' tables, and judged."""

from typing import ClassVar

import pytest

from gnnbench import plugins
from gnnbench.records import Cell, Contradiction, Table, TableRow
from gnnbench.reproduce.studies import LeftOut, Reproduction
from gnnbench_plugins.studies.headlines import (
    CLAIMS,
    Claim,
    judge,
    pick_column,
    pick_most,
    pick_row,
    pick_speed_up,
    tabulate,
)


class Study(Reproduction):
    """A study with a row of a paper's numbers."""

    name: ClassVar[str] = "study"
    summary: ClassVar[str] = "a made-up study"
    left_out: ClassVar[tuple[LeftOut, ...]] = (LeftOut("study-table8", "a table", "it is lost"),)

    def run(self) -> tuple[Table, ...]:
        return ()


def make_table(*cells: Cell, label: str = "up to", **others: object) -> Table:
    columns = tuple(map(str, range(len(cells))))
    return Table("study", "a table", columns, (TableRow(label, cells),), **others)


def claim(pick: object = None, **others: str) -> Claim:
    return Claim("a paper", "twice as fast", Study, pick, **others)


def verdict(*cells: Cell) -> tuple[str, str]:
    found = judge(claim(pick_row("up to")), [make_table(*cells)])
    return found.verdict, found.why


@pytest.mark.parametrize(
    ("ours", "quoted", "agrees"),
    [
        # A lead is judged by what exceeds 1: 1.8 beside 2 is 20 % off, 1.7 is 30 %.
        (1.8, 2.0, "yes"),
        (1.7, 2.0, "no"),
        (2.3, 2.0, "no"),
        # 1.06 for 1.32 is within 20 % as a ratio, and no lead.
        (1.06, 1.32, "no"),
        # Both as fast: the ratio itself is judged.
        (1.06, 0.9, "yes"),
        (2.4, 1.19, "no"),
        (0.6, 0.9, "no"),
    ],
)
def test_a_ratio_agrees_by_its_lead(ours: float, quoted: float, agrees: str) -> None:
    assert verdict(Cell(ours, "x", quoted=quoted))[0] == agrees


def test_a_lead_that_vanishes_contradicts_the_claim() -> None:
    assert verdict(Cell(0.95, "x", quoted=12.6)) == ("no", "the lead vanishes: 0.95x for 12.6x")
    assert verdict(Cell(6.6, "x", quoted=55.7)) == ("no", "6.6x for 55.7x")
    low, high = Cell(1.0, "%", quoted_text="32-80"), Cell(60.0, "%", quoted_text="32-80")
    found = verdict(low, high)
    assert found == ("no", "the lead vanishes: 1 % for 32 %; 1 of 2 numbers are off")
    assert verdict(high, high) == ("yes", "")


def test_a_claim_on_which_something_was_fitted_is_no_test() -> None:
    cells = (Cell(2.0, "x", quoted=2.0, fitted_on=("a rate",)), Cell(9.0, "x", quoted=2.0))
    assert verdict(*cells) == ("no test", "fitted on what it is made of: a rate")
    epochs = Table(
        "study", "epochs", ("a", "b"),
        (
            TableRow("theirs", (Cell(4.0, "s", "quoted"), Cell(9.0, "s", "quoted"))),
            TableRow("ours", (Cell(2.0, "s"), Cell(3.0, "s", fitted_on=("a rate",)))),
        ),
    )  # fmt: skip
    (found,) = pick_speed_up(("theirs",), ("ours",), 5.0)([epochs])
    assert (found.value, found.quoted, found.fitted_on) == (3.0, 5.0, ("a rate",))


def test_the_reason_is_the_studys_own_and_a_lost_table_is_not_judged() -> None:
    mended = Contradiction("a over b at most", "0.5x", "2x", "the link 9 times as large", "...")
    table = make_table(Cell(0.5, "x", quoted=2.0), contradictions=(mended,))
    found = judge(claim(pick_row("up to"), about="a over b"), [table])
    assert found.why.endswith("at the least, the link 9 times as large (a over b at most)")
    lost = judge(claim(absent="study-table8"), [])
    assert (lost.verdict, lost.why) == ("not judged", "study-table8: it is lost")
    printed = tabulate([(claim(), lost), (claim(), found)])
    assert printed.title.endswith("0 of 1 agree")
    assert [cell.text for cell in printed.rows[1].cells] == ["2x", "0.5x", "no"]
    assert len(printed.notes) == 3


def test_cells_are_found_by_row_by_column_and_by_the_most() -> None:
    table = make_table(Cell(1.0), Cell(3.0, "%", quoted=5.0), Cell(4.0, "%", quoted_text="1-2"))
    assert [cell.value for cell in pick_row("up to")([table])] == [3.0, 4.0]
    assert [cell.value for cell in pick_row("up to", "1")([table])] == [3.0]
    assert [cell.value for cell in pick_column("2")([table])] == [4.0]
    with pytest.raises(LookupError, match=r"a row 'below'"):
        pick_row("below")([table])
    both = make_table(Cell(3.0, "%", quoted=1.0), Cell(2.0, "%", quoted=18.0))
    (most,) = pick_most(pick_row("up to"))([both])
    assert (most.value, most.quoted) == (3.0, 18.0)


def test_every_paper_has_claims_and_every_claim_a_study_that_is_offered() -> None:
    offered = plugins.load().reproductions
    assert {each.paper for each in CLAIMS} == {"HongTu", "HP-GNN", "HyScale-GNN", "MixGCN"}
    for each in CLAIMS:
        assert offered[each.study.name] is each.study
        assert (each.pick is None) == bool(each.absent)


@pytest.mark.long
def test_the_claims_are_judged_by_what_the_studies_compute() -> None:
    (table,) = plugins.load().reproduction("headlines")().run()
    assert len(table.rows) == len(CLAIMS)
    verdicts = {row.label: row.cells[-1].text for row in table.rows}
    assert set(verdicts.values()) <= {"yes", "no", "no test", "not judged"}
    assert all(row.cells[1].text != "-" for row in table.rows if row.cells[-1].text != "not judged")
    reasons = [note for note in table.notes if note.startswith(("no,", "no test,"))]
    assert len(reasons) == sum(text in ("no", "no test") for text in verdicts.values())
