"""No cell of a reproduction gets further from its paper unnoticed."""

import pytest

from gnnbench import plugins
from gnnbench.records import Cell, Table, TableRow
from gnnbench.reproduce.agreement import (
    Outcome,
    count_outcome,
    describe_agreement,
    describe_fits,
    describe_outcome,
    measure_agreement,
    read_outcomes,
)
from tests.agreements import QUICK, REPRODUCTIONS, collect_errors, compare, load

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in REPRODUCTIONS],
)
def test_no_cell_is_further_from_the_paper_than_it_was(name: str) -> None:
    """After a change that was meant: python -m tests.agreements --write."""
    tables = plugins.load().reproduction(name)().run()
    found = collect_errors(tables)
    assert found, name
    assert compare(load(), found, [name]) == []
    assert read_outcomes()[name] == count_outcome(tables)


def test_the_list_has_the_state_of_each_bundled_reproduction(registry) -> None:
    """Other reproductions compare nothing with a paper, or have a baseline of their own."""
    outcomes = read_outcomes()
    bundled = {
        name
        for name, origin in registry.reproduction_origins.items()
        if origin.plugin.startswith("studies.")
    }
    assert outcomes.keys() == bundled
    comparing = {name for name, outcome in outcomes.items() if outcome.numbers or outcome.words}
    assert comparing == {*REPRODUCTIONS, "validation"}
    assert outcomes.keys() - comparing == {"constants", "headlines"}


def test_an_outcome_is_counted_over_all_tables_and_told_in_a_few_words() -> None:
    near, far = Cell(1.2, quoted=1.0), Cell(1.3, quoted=1.0)
    fitted = Cell(1.0, quoted=1.0, fitted_on=("x",))
    word = Cell(text="fits", quoted_text="out of memory")
    again = Cell(1.0, quoted=1.0, uncounted="counted elsewhere")
    alone = Cell(1.0, uncounted="counted elsewhere")
    tables = [make_table(near, far), make_table(near, fitted, word, Cell(2.0), again, alone)]
    outcome = count_outcome(tables)
    told = describe_agreement(measure_agreement(tables[1].cells))
    assert told.endswith("constant fitted on it; 1 more does not count (counted elsewhere)")
    assert describe_fits(tables[1]) == ("x fitted on row, 1",)
    assert outcome == Outcome(numbers=3, close=2, words=1, same_words=0, fitted=1)
    assert describe_outcome(outcome) == "2 of 3 within 25 %, 0 of 1 words, 1 fitted"
    assert describe_outcome(count_outcome([make_table(Cell(2.0))])) == "no number to compare"


def make_table(*cells: Cell) -> Table:
    columns = tuple(map(str, range(len(cells))))
    return Table("a-table", "title", columns, (TableRow("row", cells),))


def test_a_change_for_the_worse_is_seen_whichever_way_it_goes() -> None:
    within, beyond = Cell(1.5, quoted_text="1.0-2.0"), Cell(2.5, quoted_text="1.0-2.0")
    words = Cell(text="out of memory", quoted_text="out of memory")
    one, other = Cell(1.2, quoted=1.0), Cell(0.9, quoted_text="1.0-2.0")
    before = collect_errors([make_table(one, other, words, Cell(1.0), within, beyond)])
    assert list(before.values()) == pytest.approx([0.2, -0.1, 0.0, 0.0, 0.25])
    one, other = Cell(0.7, quoted=1.0), Cell(0.95, quoted_text="1.0-2.0")
    now = collect_errors([make_table(one, other, Cell(3.0), Cell(1.0), within, beyond)])
    lines = compare(before, now, ["a-table"])
    assert lines == [
        "a-table 0 · row · 2: in baseline.toml, and in no reproduction",
        "a-table 0 · row · 0: off by +20.0% before, -30.0% now, WORSE",
        "a-table 0 · row · 1: off by -10.0% before, -5.0% now, better",
    ]
