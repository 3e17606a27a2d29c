"""Rules of plain English for documentation and docstrings, counted over sentences."""

import ast
import re
from collections import Counter
from pathlib import Path

import click
import pytest

from gnnbench.cli import main

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 25
RULES = {
    "opener": re.compile(
        r"^(Of|What|Whoever|Whatever|Those|The same|That which|So many|Nobody|None|Where|As)\b"
    ),
    "idiom": re.compile(
        r"\b(whoever|nobody|so many|by itself|goes? back from|(?:is|are) lent|in the median|"
        r"of its own|for who|that of|those of|are there|as they are|by which|of whom|whose)\b",
        re.IGNORECASE,
    ),
    "long": re.compile(rf"^(?:\S+\s+){{{MOST_WORDS}}}\S"),
}
#: Words that have another fixed term: contributes, distribution, baseline, unmodified, held-out.
REPLACED = re.compile(
    r"\b(earns?|law|plain counterparts?|as (?:it|they) comes?|untouched)\b", re.IGNORECASE
)
CODE = re.compile(r"```.*?```", re.DOTALL)
PARAGRAPH = re.compile(r"(?:^(?!\s*[|#`>]).+\n?)+", re.MULTILINE)
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[])")


def split_sentences(text):
    """Yield the sentences of prose, without code, headings and tables."""
    for paragraph in PARAGRAPH.finditer(CODE.sub("", text)):
        for sentence in END.split(" ".join(paragraph.group().split())):
            if len(sentence.split()) > 2:
                yield sentence.strip("-* ")


def list_docstrings(source):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return [text for node in nodes if (text := ast.get_docstring(node))]


def list_help(command=main, path="gnnbench"):
    """Yield the path and each text of the help of a command and of its subcommands."""
    yield path, command.help or ""
    yield path, command.short_help or ""
    for parameter in command.params:
        yield path, getattr(parameter, "help", None) or ""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from list_help(inner, f"{path} {name}")


def count(texts):
    """Count the sentences, and those that break each rule."""
    found = Counter()
    for text in texts:
        for sentence in split_sentences(text):
            found["all"] += 1
            found.update(rule for rule, pattern in RULES.items() if pattern.search(sentence))
    return found


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Of each unit the first layer counts. Short one.", "opener"),
        ("The unit has an order of its own.", "idiom"),
        (f"It {'really ' * 24}ends.", "long"),
    ],
)
def test_each_rule_is_counted(sentence, rule):
    assert count([f"# As a title\n\n| Of a table |\n\n{sentence}\n\n```\nOf code it is\n```"])[rule]
    assert count(["A short sentence stands here."]) == {"all": 1}


def test_pages_are_in_plain_english():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    found = count(texts.values())
    assert (found["opener"], found["idiom"]) == (0, 0)
    assert found["long"] <= 0.03 * found["all"]
    replaced = [
        f"{name}: {sentence}"
        for name, text in texts.items()
        for sentence in split_sentences(text)
        if REPLACED.search(sentence)
    ]
    assert replaced == []


def test_docstrings_are_in_plain_english():
    files = [
        file for room in ("gnnbench", "plugins") for file in sorted((ROOT / room).rglob("*.py"))
    ]
    found = count(text for file in files for text in list_docstrings(file.read_text("utf-8")))
    assert found["opener"] <= 0.01 * found["all"]
    assert found["idiom"] <= 0.01 * found["all"]
    assert found["long"] <= 0.03 * found["all"]


def test_the_help_of_all_commands_is_in_plain_english():
    texts = dict.fromkeys((path, " ".join(text.split())) for path, text in list_help())
    found = count(text for _, text in texts)
    assert (found["opener"], found["idiom"]) == (0, 0)
    assert found["long"] <= 0.03 * found["all"]
    assert [each for each in texts if REPLACED.search(each[1])] == []
