"""What pages state of errors and constants is what is computed."""

import functools
from dataclasses import replace

import pytest

from gnnbench import comparison
from gnnbench.comparison.frame import RowRun
from gnnbench.comparison.planned import plan_run
from gnnbench.records import Equivalence
from tests import stated
from tests.stated import agrees, find_stated, list_pages, make_text, rewrite

FOUND = [(page, name, text) for page in list_pages() for name, text in find_stated(page)]
QUICK = [each for each in FOUND if not each[1].startswith("agreement ")]


class Priced(RowRun):
    """A run whose epochs are priced and not trained. A screen shows of training the accuracies,
    which :func:`agrees` leaves out, and that every row equals the reference."""

    def open(self):
        state = self._state
        scene, row = state.scene, state.row
        found = plan_run(scene.request, row, state.setting, scene.registry)
        equal = Equivalence(row.mode, 0.0)
        self.result = replace(found, loss=(1.0,), accuracy={"test": 0.5}, equivalence=equal)

    def close(self):
        return self.result


@pytest.fixture(autouse=True, scope="module")
def once():
    """Pages that state the same share what is computed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stated, "print_screen", functools.cache(stated.print_screen))
        patched.setattr(comparison, "RowRun", Priced)
        yield


@pytest.mark.parametrize(("page", "name", "text"), QUICK, ids=lambda value: str(value)[-30:])
def test_a_page_states_what_is_computed(page, name, text):
    assert agrees(text, make_text(name)), "run python -m tests.stated --write"


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "name", "text"),
    [each for each in FOUND if each not in QUICK],
    ids=lambda value: str(value)[-30:],
)
def test_a_page_states_how_far_tables_are_from_the_papers(page, name, text):
    assert agrees(text, make_text(name)), "run python -m tests.stated --write"


def test_errors_are_stated_somewhere():
    assert {"screen", "ledger", "model-error", "constants"} <= {name for _, name, _ in FOUND}


def test_a_stale_number_is_found_and_mended(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(stated, "make_text", lambda name: f"{name}: 2 %\n")
    page.write_text("a\n<!-- stated: ledger -->\nledger: 1 %\n<!-- /stated -->\nb\n")
    assert list(find_stated(page)) == [("ledger", "ledger: 1 %\n")]
    assert rewrite(page)
    assert page.read_text() == "a\n<!-- stated: ledger -->\nledger: 2 %\n<!-- /stated -->\nb\n"
    assert not rewrite(page)


@pytest.mark.parametrize(
    ("printed", "computed", "same"),
    [
        ("1.00x  0.828  yes", "1.00x  0.829  yes", True),
        ("1.00x  0.828  yes", "1.01x  0.828  yes", False),
        ("1.00x  0.828  yes", "1.00x  0.828  NO (2e-4)", False),
        ("0.128 ms  0.828  yes", "0.129 ms  0.828  yes", False),
    ],
)
def test_a_screen_may_differ_in_accuracies_alone(printed, computed, same):
    assert agrees(printed, computed) is same
