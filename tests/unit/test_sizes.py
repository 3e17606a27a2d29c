"""Files, classes and functions of the packages that a schedule is made and read in stay short."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gnnbench

PACKAGES = ("engine", "lowering", "partitioning", "price", "program")
#: Lines.
MOST = {"file": 600, "class": 300, "function": 60}


def list_files():
    root = Path(gnnbench.__file__).parent
    return sorted(path for package in PACKAGES for path in (root / package).glob("**/*.py"))


def measure(path):
    text = path.read_text(encoding="utf-8")
    yield "file", path.name, text.count("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield kind, node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("path", list_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_it_can_be_read_at_a_sitting(path):
    too_long = [(kind, name, size) for kind, name, size in measure(path) if size > MOST[kind]]
    assert not too_long
