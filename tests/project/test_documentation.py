"""The documentation builds without a warning, fetches nothing, and says where equations live."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gnnbench import plugins
from tests.commands import run_python

pytest.importorskip("mkdocs", reason="the documentation needs the extra 'test'")

ROOT = Path(__file__).resolve().parents[2]


def load_generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
PAPERS = GENERATOR.read_papers()


def test_every_equation_of_a_paper_lives_somewhere_and_no_other_is_cited():
    """The list of the documentation is whole, and no docstring miscounts."""
    places = GENERATOR.find_places(PAPERS)
    known = {(paper.name, item) for paper in PAPERS for item in paper.items}
    assert places.keys() == known
    assert all(places.values())


@pytest.mark.parametrize(
    ("text", "default", "cited"),
    [
        ("Equation 7 and more.", "HongTu", [("HongTu", "Equation 7")]),
        ("(HyScale-GNN Equations 7, 8 and 13)", None, "7 8 13"),
        ("Equations 6 to 9 of HP-GNN", "HongTu", "6 7 8 9"),
        ("MixGCN's Proposition 3.5 says", None, [("MixGCN", "Proposition 3.5")]),
        ("HongTu's section 5; GraphSAINT (Zeng et al. 2020, Algorithm 2)", "HongTu", []),
        ("Equation 5", None, []),
    ],
)
def test_citations_are_read(text, default, cited):
    found = list(GENERATOR.cite(text, PAPERS, default))
    if isinstance(cited, str):
        cited = [(found[0][0], f"Equation {number}") for number in cited.split()]
    assert found == cited


def test_the_page_of_cards_has_every_clause_of_every_strategy():
    page = GENERATOR.write_fidelity().replace("`", "")
    for strategy in plugins.load().strategies:
        section = page.partition(f"\n## {strategy.name}\n")[2].partition("\n## ")[0]
        assert strategy.card is not None
        for clauses in strategy.card.by_heading().values():
            for clause in clauses:
                assert f"\n- {clause.replace('`', '')}\n" in f"{section}\n"


def test_roles_of_sphinx_are_not_shown():
    shown = "see :meth:<code>~gnnbench.parts.Bundle.refusal()</code>, :class:<code>Step</code>"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="limits.md"))
    read = GENERATOR.on_page_content(shown, page, config=None, files=None)
    assert read == "see <code>refusal</code>, <code>Step</code>"


@pytest.mark.long
def test_the_site_builds_and_a_reader_fetches_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    words = ("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site)
    done = run_python(*words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    pages = list(site.rglob("*.html"))
    assert {"tutorial.html", "errors.html", "equations.html", "fidelity.html"} < {
        page.name for page in pages
    }
    home = (site / "index.html").read_text(encoding="utf-8")
    assert home.count('class="chart"') == 3
    # Charts follow the system's scheme, so the page must not keep the scheme of an earlier visit.
    schemes = re.findall(r'data-md-color-media="([^"]*)"', home)
    assert schemes[0] == "(prefers-color-scheme)"
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"([^\"]*)\"", text)
        assert not [each for each in loaded if re.match(r"https?:|//", each)], page.name
        assert not re.search(r":(?:meth|class|func|attr):", text), page.name


@pytest.mark.parametrize(("page", "most"), [("README.md", 150), ("docs/architecture.md", 200)])
def test_a_page_for_newcomers_is_read_in_minutes(page, most):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most
