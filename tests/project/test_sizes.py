"""Files, classes and functions stay short enough to be read at a sitting."""

import ast
from pathlib import Path

import gnnbench

ROOT = Path(gnnbench.__file__).parents[1]
#: The rooms whose records are held to ``MOST_FIELDS``; ``records/`` itself is exempt.
SMALL_RECORDS = ("lowering", "price", "program", "run")
MOST_FIELDS = 12
#: Lines.
MOST = {"file": 600, "class": 300, "function": 60}


def list_files():
    return sorted(
        path for folder in ("gnnbench", "plugins") for path in ROOT.glob(f"{folder}/**/*.py")
    )


def measure(path):
    text = path.read_text(encoding="utf-8")
    yield "file", path.name, text.count("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield kind, node.name, node.end_lineno - node.lineno + 1


def test_every_file_can_be_read_at_a_sitting():
    files = list_files()
    folders = {path.relative_to(ROOT).parts[:2] for path in files}
    assert {("gnnbench", "cli"), ("plugins", "gnnbench_plugins")} <= folders
    too_long = [
        (str(path.relative_to(ROOT)), kind, name, size)
        for path in files
        for kind, name, size in measure(path)
        if size > MOST[kind]
    ]
    assert not too_long


def list_bases(rooms):
    """Return the names of the base classes of every class of some rooms."""
    return {
        node.name: [each.id for each in node.bases if isinstance(each, ast.Name)]
        for room in rooms
        for path in ROOT.glob(f"gnnbench/{room}/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }


def test_no_chain_of_base_classes_is_deeper_than_two():
    bases = list_bases(("lowering", "run"))

    def count(name):
        return max((1 + count(base) for base in bases[name] if base in bases), default=0)

    depths = {name: count(name) for name in bases}
    assert max(depths.values()) == 2, "a chain of two is seen"
    assert not [name for name, depth in depths.items() if depth > 2]


def count_fields(node):
    """Return the fields that a class declares as a record; a class variable is none."""
    declared = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum("ClassVar" not in ast.unparse(each.annotation) for each in declared)


def is_record(node):
    """Return whether a class is a dataclass, a named tuple or a model of pydantic."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    bases = [ast.unparse(each) for each in node.bases]
    return any(each.startswith("dataclass") for each in decorators) or not {
        "NamedTuple", "BaseModel", "TomlTable"
    }.isdisjoint(bases)  # fmt: skip


def test_no_record_has_more_than_a_dozen_fields():
    found = {
        f"{room}: {node.name}": count_fields(node)
        for room in SMALL_RECORDS
        for path in ROOT.glob(f"gnnbench/{room}/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and is_record(node)
    }
    assert found["program: Step"] > 8, "fields are seen"
    assert {name for name, count in found.items() if count > MOST_FIELDS} == set()
