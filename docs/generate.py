"""Pages of the documentation that are made of the code when the site is built: a hook of MkDocs.

Nothing here is written twice. Strategies come from the installed plugins, and equations from the
docstrings that cite them. Errors of the model come from the ledger of published measurements.
The pictures of the home page show a comparison that runs while the site is built.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import gnnbench
from gnnbench import plugins
from gnnbench.comparison.ranking import group_runs
from gnnbench.host.toml import read_toml
from gnnbench.records import Cell, LedgerEntry, Parts, Strategy, Table
from gnnbench.report.charts import chart_epochs, list_charts
from gnnbench.report.page import render_page
from gnnbench.reproduce.studies import Ledger
from gnnbench.units import format_si

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("gnnbench", "plugins")
CITATION = re.compile(
    r"\b(Equation|Algorithm|Proposition)s?\s+(\d(?:[\d.]*\d)?)"
    r"((?:\s*,\s*\d+)*(?:\s+(?:and|or|to)\s+\d(?:[\d.]*\d)?)?)"
)
#: What says that a citation is of none of the four papers.
ELSEWHERE = re.compile(r"et al\.|\b(?:19|20)\d\d\b")
#: A role of Sphinx, and the last part of the name that it marks.
ROLE = re.compile(
    r":(?:attr|class|data|exc|func|meth|mod):<code>~?(?:[\w.]*\.)?(\w+)(?:\(\))?</code>"
)
KINDS = ("sampler", "placement", "communication", "memory", "kernel")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for path, write in PAGES.items():
        files.append(File.generated(config, path, content=write()))
    return files


# --------------------------------------------------------------------------- pictures


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove Sphinx's roles before names; on the home page, put pictures in place of comments."""
    html = ROLE.sub(r"<code>\1</code>", html)
    if page.file.src_uri != "index.md":
        return html
    for name, picture in draw_pictures().items():
        assert f"<!-- {name} -->" in html
        html = html.replace(f"<!-- {name} -->", picture)
    return html


def draw_pictures() -> dict[str, str]:
    """Run a comparison, and return three charts of its page as HTML, by name."""
    found = gnnbench.compare(["hyscale", "hongtu"], dataset="sbm", epochs=1, check=False)
    groups = group_runs(found.comparison)
    charts = {chart.name: chart for group in groups for chart in list_charts(group)}
    epochs = chart_epochs(groups)
    assert epochs is not None
    pictures = {
        "epochs": epochs,
        "timeline": charts["full-graph-timeline-hongtu"],
        "timeline of the baseline": charts["full-graph-timeline-hongtu-vanilla"],
    }
    return {
        name: render_page("figure.html", "", chart=replace(chart, name=""))
        for name, chart in pictures.items()
    }


# --------------------------------------------------------------------------- strategies


def write_strategies() -> str:
    """Write every installed strategy with its source and its five parts."""
    registry = plugins.load()
    lines = [
        "# Strategies and their parts",
        "",
        "A strategy is five parts. `gnnbench plugins show NAME` lists the options of each.",
    ]
    for strategy in registry.strategies:
        lines += _describe(strategy)
    return "\n".join(lines) + "\n"


def _describe(strategy: Strategy) -> Iterator[str]:
    yield from ("", f"## {strategy.name}", "", f"{_sentence(strategy.summary)}")
    if strategy.source:
        yield from ("", f"Source: {_sentence(strategy.source)}")
    yield from ("", f"| trains | {' | '.join(KINDS)} |", f"|{'---|' * (len(KINDS) + 1)}")
    for mode, parts in strategy.bundles.items():
        yield f"| {mode} | {' | '.join(_name_parts(parts))} |"


def _name_parts(parts: Parts) -> list[str]:
    return [f"`{getattr(parts, kind)}`" for kind in KINDS]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


# --------------------------------------------------------------------------- fidelity


def write_fidelity() -> str:
    """Write the card of every installed strategy: what of its system is here, and what is not."""
    strategies = plugins.load().strategies
    lines = [
        "# How faithful is each strategy to its system?",
        "",
        "A strategy stands for a published system, or says that there is none. Its card says what "
        "of that system is implemented, what is simpler here, what is left out, and what the rest "
        "was held against: a command that prints ours beside the paper's, or a file of tests. "
        "`gnnbench plugins show NAME` prints the same.",
        "",
        "| strategy | simplified | left out | validated |",
        "|---|---|---|---|",
    ]
    carded = [(strategy, strategy.card) for strategy in strategies if strategy.card is not None]
    for strategy, card in carded:
        counts = map(len, (card.simplified, card.left_out, card.validated))
        cells = " | ".join(map(str, counts))
        lines.append(f"| [{strategy.name}](#{strategy.name}) | {cells} |")
    for strategy, card in carded:
        lines += ["", f"## {strategy.name}", "", _sentence(strategy.summary)]
        if strategy.source:
            lines += ["", f"Source: {_sentence(strategy.source)}"]
        for heading, clauses in card.by_heading().items():
            lines += ["", f"{heading.capitalize()}:", ""]
            lines += [f"- {_mark_up(clause)}" for clause in clauses]
    return "\n".join(lines) + "\n"


def _mark_up(clause: str) -> str:
    """Return a clause with the command or the file at its beginning as code."""
    what, colon, shows = clause.partition(":")
    if colon and (what.startswith("gnnbench reproduce ") or what.endswith(".py")):
        return f"`{what}`:{shows}"
    return clause


# --------------------------------------------------------------------------- equations


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: which folders' docstrings mean it when they name none, and what it has."""

    name: str
    folders: tuple[str, ...]
    items: Mapping[str, str]


def read_papers() -> tuple[Paper, ...]:
    """Read ``equations.toml``."""
    tables = read_toml(ROOT / "docs" / "equations.toml")["paper"]
    assert isinstance(tables, list)
    return tuple(Paper(each["name"], tuple(each["folders"]), each["items"]) for each in tables)


def find_places(papers: tuple[Paper, ...]) -> dict[tuple[str, str], list[str]]:
    """Find the modules, classes and functions that cite each paper's items in their docstrings."""
    places: dict[tuple[str, str], list[str]] = {}
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            module_paper = _of_folder(path, papers)
            about = ast.get_docstring(tree) or ""
            known = module_paper or _last_named(about, papers)
            for name, text in _docstrings(tree):
                place = f"{path.relative_to(ROOT)}{f': {name}' if name else ''}"
                for paper, item in cite(text, papers, known):
                    found = places.setdefault((paper, item), [])
                    if place not in found:
                        found.append(place)
    return places


def cite(text: str, papers: tuple[Paper, ...], default: str | None) -> Iterator[tuple[str, str]]:
    """Yield each item that a docstring cites, of the paper named last before it, or ``default``."""
    for match in CITATION.finditer(text):
        before = text[: match.start()]
        named = _last_named(before, papers)
        since = before.rpartition(named)[2] if named else before
        if ELSEWHERE.search(since):
            continue
        paper = _named_after(text[match.end() : match.end() + 24], papers) or named or default
        if paper is not None:
            yield from ((paper, f"{match[1]} {number}") for number in _numbers(match))


def _numbers(match: re.Match[str]) -> list[str]:
    first, rest = match[2], match[3]
    others = re.findall(r"\d(?:[\d.]*\d)?", rest)
    if re.search(r"\bto\b", rest) and "." not in first:
        return [str(number) for number in range(int(first), int(others[-1]) + 1)]
    return [first, *others]


def _named_after(text: str, papers: tuple[Paper, ...]) -> str | None:
    """Return the paper of ``Equation 5 of HyScale-GNN``."""
    match = re.match(r"\s+of\s+([\w-]+)", text)
    return next((each.name for each in papers if match and match[1] == each.name), None)


def _last_named(text: str, papers: tuple[Paper, ...]) -> str | None:
    found = [(text.rfind(each.name), each.name) for each in papers]
    position, name = max(found)
    return name if position >= 0 else None


def _of_folder(path: Path, papers: tuple[Paper, ...]) -> str | None:
    folders = set(path.parts)
    return next((each.name for each in papers if folders & set(each.folders)), None)


def _docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    yield "", ast.get_docstring(tree) or ""
    yield from _below(tree.body, "")


def _below(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            name = f"{prefix}{node.name}"
            yield name, ast.get_docstring(node) or ""
            yield from _below(node.body, f"{name}.")


def write_equations() -> str:
    """Write what each paper states and where the code follows it."""
    papers = read_papers()
    places = find_places(papers)
    lines = [
        "# The papers' equations, and where each lives",
        "",
        "Every place below is a module, class or function whose docstring cites the item.",
    ]
    for paper in papers:
        lines += ["", f"## {paper.name}"]
        for item, formula in paper.items.items():
            lines += ["", f"**{item}**", "", f"    {formula}", ""]
            lines += [f"- `{place}`" for place in places.get((paper.name, item), ())]
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------- errors of the model


def write_errors() -> str:
    """Write how far predictions are from published measurements, by kind of machine."""
    ledger = plugins.load().reproduction("validation")
    assert issubclass(ledger, Ledger)
    study = ledger()
    summary, entries = study.run()[0], study.entries()
    lines = [
        "# How wrong may a modelled number be?",
        "",
        summary.title,
        "",
        "A time is *modelled* as soon as one device of the platform does not exist here. The "
        "tables below hold the model against what others measured on machines of theirs. "
        "`gnnbench reproduce validation` prints them, with `--json` each one's quote and doubts.",
        "",
        *_as_markdown(summary),
    ]
    for kind in dict.fromkeys(entry.kind for entry in entries):
        lines += ["", f"## {kind}: the furthest off first", ""]
        lines += _list_entries([entry for entry in entries if entry.kind == kind])
    return "\n".join(lines) + "\n"


def _as_markdown(table: Table) -> Iterator[str]:
    yield f"| | {' | '.join(table.columns)} |"
    yield f"|---|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {row.label} | {' | '.join(_format(cell) for cell in row.cells)} |"
    for note in table.notes:
        yield from ("", _sentence(note))


def _list_entries(entries: Sequence[LedgerEntry]) -> Iterator[str]:
    yield "| measurement | machine | predicted | measured | error | source |"
    yield "|---|---|---|---|---|---|"
    for entry in sorted(entries, key=lambda each: (-each.factor, each.id)):
        fitted = " (fitted on)" if entry.fitted_on else ""
        yield (
            f"| {entry.what}{fitted} | {entry.machine} | {format_si(entry.predicted, entry.unit)} "
            f"| {format_si(entry.measured, entry.unit)} "
            f"| {entry.predicted / entry.measured - 1:+.0%} | {entry.source} |"
        )


def _format(cell: Cell) -> str:
    if cell.value is None:
        return ""
    return f"{cell.value:.3g} {cell.unit}".strip()


PAGES: dict[str, Callable[[], str]] = {
    "strategies.md": write_strategies,
    "fidelity.md": write_fidelity,
    "equations.md": write_equations,
    "errors.md": write_errors,
}
