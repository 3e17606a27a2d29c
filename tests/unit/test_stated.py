"""What pages state of errors and constants is what is computed."""

from __future__ import annotations

import pytest

from tests import stated
from tests.stated import find_stated, list_pages, make_text, rewrite

FOUND = [(page, name, text) for page in list_pages() for name, text in find_stated(page)]
QUICK = [each for each in FOUND if not each[1].startswith("agreement ")]


@pytest.mark.parametrize(("page", "name", "text"), QUICK, ids=lambda value: str(value)[-30:])
def test_a_page_states_what_is_computed(page, name, text):
    assert text == make_text(name), "run python -m tests.stated --write"


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "name", "text"),
    [each for each in FOUND if each not in QUICK],
    ids=lambda value: str(value)[-30:],
)
def test_a_page_states_how_far_tables_are_from_the_papers(page, name, text):
    assert text == make_text(name), "run python -m tests.stated --write"


def test_errors_are_stated_somewhere():
    assert {"ledger", "model-error", "constants"} <= {name for _, name, _ in FOUND}


def test_a_stale_number_is_found_and_mended(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(stated, "make_text", lambda name: f"{name}: 2 %\n")
    page.write_text("a\n<!-- stated: ledger -->\nledger: 1 %\n<!-- /stated -->\nb\n")
    assert list(find_stated(page)) == [("ledger", "ledger: 1 %\n")]
    assert rewrite(page)
    assert page.read_text() == "a\n<!-- stated: ledger -->\nledger: 2 %\n<!-- /stated -->\nb\n"
    assert not rewrite(page)
