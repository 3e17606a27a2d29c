"""No cell of the papers' tables gets further from its paper unseen."""

from __future__ import annotations

import pytest

from gnnbench.records import Cell, Table, TableRow
from tests.errors import TABLES, find_worse, load, measure, run, write


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_no_cell_is_further_from_the_paper_than_before(name):
    kept = {key: error for key, error in load().items() if key.split(":")[0].startswith(name)}
    worse = find_worse(kept, measure(run(name)))
    assert not worse, "\n".join([*worse, "see tests/errors/__init__.py"])


def make(value: float) -> Table:
    cells = (Cell(value, "s", quoted=2.0), Cell(1.0, "s"), Cell(9.0, "%", quoted_text="5-14"))
    return Table("table", "", ("one", "two", "three"), (TableRow("row", cells),))


def test_what_is_further_off_is_named(tmp_path):
    before = measure([make(2.2)])
    assert before == {
        "table: row: one": pytest.approx(0.1),
        "table: row: three": 0.0,
    }
    path = tmp_path / "baseline.toml"
    write(before, path)
    assert load(path) == pytest.approx(before)
    assert find_worse(load(path), measure([make(2.1)])) == []
    assert find_worse(load(path), measure([make(1.8)])) == []
    (line,) = find_worse(load(path), measure([make(1.7)]))
    assert line == "table: row: one: +10.0% before, -15.0% now"
    assert "in no table" in find_worse(before, {})[0]
    assert len(find_worse({}, before)) == 2
