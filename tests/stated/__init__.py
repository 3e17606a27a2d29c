"""What the README and the pages of ``docs/`` state and print, from what is computed.

A page has them between two comments,

    <!-- stated: ledger -->
    ...
    <!-- /stated -->

of which the first names a text of :func:`make_text`. ``python -m tests.stated --write`` writes all
of them anew, and a test holds them.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from gnnbench import plugins
from gnnbench.cli import main
from gnnbench.price.model_error import describe_errors, read_errors
from gnnbench.report.tables import sum_up_agreement
from gnnbench_plugins.studies import list_constants
from gnnbench_plugins.studies.validation.constants import count_marks
from gnnbench_plugins.studies.validation.ledger import make_entries, sum_up
from tests.ledger import load

ROOT = Path(__file__).resolve().parents[2]
STATED = re.compile(r"<!-- stated: (?P<name>[^>]*) -->\n(?P<text>.*?)<!-- /stated -->", re.DOTALL)
WIDTH = 120
#: The comparison that ``make compare`` runs.
FIRST_COMPARISON = ("compare", "--plugins", "hyscale,hongtu")
#: Test accuracies in a table: those of training on this processor.
ACCURACY = re.compile(r"\b[01]\.\d{3}(?=  (yes|NO))")


def list_pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def find_stated(page: Path) -> Iterator[tuple[str, str]]:
    """The names of what a page states, and what stands there."""
    for found in STATED.finditer(page.read_text(encoding="utf-8")):
        yield found["name"], found["text"]


def make_text(name: str) -> str:
    """A text by its name: ``screen``, ``ledger``, ``model-error``, ``constants``, or ``agreement``
    and the name of a table that ``gnnbench reproduce`` has."""
    kind, _, table = name.partition(" ")
    if kind == "screen":
        return print_screen()
    told = {
        "ledger": tell_ledger,
        "model-error": tell_model_error,
        "constants": tell_constants,
        "agreement": lambda: tell_agreement(table),
    }[kind]()
    return "\n".join(textwrap.wrap(told, WIDTH, break_on_hyphens=False)) + "\n"


def agrees(text: str, computed: str) -> bool:
    """Whether a page states what is computed, but for the accuracies of a screen, which other
    processors may round otherwise."""
    return ACCURACY.sub("0.000", text) == ACCURACY.sub("0.000", computed)


def print_screen() -> str:
    """What ``make compare`` prints, as a block of Markdown."""
    result = CliRunner().invoke(main, FIRST_COMPARISON)
    if result.exit_code:
        raise RuntimeError(result.stderr)
    return f"```\n{result.stdout.strip(chr(10))}\n```\n"


def tell_ledger() -> str:
    """How near the predictions of the baseline are."""
    return sum_up(make_entries(load()))


def tell_model_error() -> str:
    """The error of modelled times, by every kind of path that the ledger has."""
    text = describe_errors(read_errors())
    return f"{text[0].upper()}{text[1:]}."


def tell_constants() -> str:
    return count_marks(list_constants()).title


def tell_agreement(name: str) -> str:
    """How far a reproduction's tables are from the paper's, over untouched cells."""
    tables = plugins.load().reproduction(name)().run()
    return " ".join(f"`{table.name}`: {sum_up_agreement(table)}" for table in tables)


def rewrite(page: Path) -> bool:
    """State everything of a page anew; whether something was other before."""
    before = page.read_text(encoding="utf-8")
    after = STATED.sub(_restate, before)
    if after != before:
        page.write_text(after, encoding="utf-8")
    return after != before


def _restate(found: re.Match[str]) -> str:
    computed = make_text(found["name"])
    text = found["text"] if agrees(found["text"], computed) else computed
    return f"<!-- stated: {found['name']} -->\n{text}<!-- /stated -->"
