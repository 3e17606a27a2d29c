"""Files, classes and functions stay short enough to be read at a sitting."""

import ast
from pathlib import Path

import gnnbench

ROOT = Path(gnnbench.__file__).parents[1]
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


#: Rooms without long chains of base classes.
UNCHAINED = [
    "gnnbench/lowering",
    "gnnbench/parts",
    "gnnbench/plugins",
    "gnnbench/run",
    "plugins/gnnbench_plugins",
]
#: Rooms without records of many fields.
SMALL_RECORDS = [
    "gnnbench/datasets",
    "gnnbench/kernels",
    "gnnbench/machines",
    "gnnbench/parts",
    "gnnbench/plugins",
    "plugins/gnnbench_plugins",
]
FIELDS = 12


def list_classes(rooms):
    """Yield every class of some rooms."""
    for room in rooms:
        for path in sorted(ROOT.glob(f"{room}/**/*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield node


def test_no_chain_of_base_classes_is_deeper_than_two():
    bases = {}
    for node in list_classes(UNCHAINED):
        names = {each.id for each in node.bases if isinstance(each, ast.Name)}
        bases.setdefault(node.name, set()).update(names - {node.name})

    def count(name):
        return max((1 + count(base) for base in bases[name] if base in bases), default=0)

    depths = {name: count(name) for name in bases}
    assert max(depths.values()) == 2, "a chain of two is seen"
    assert not [name for name, depth in depths.items() if depth > 2]


def count_fields(node):
    """Return the number of fields that a dataclass declares."""
    if not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return 0
    declared = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum("ClassVar" not in ast.unparse(each.annotation) for each in declared)


def test_no_record_has_more_than_twelve_fields():
    counts = [(count_fields(node), node.name) for node in list_classes(SMALL_RECORDS)]
    assert (FIELDS, "Device") in counts, "the largest records are seen"
    assert not [each for each in counts if each[0] > FIELDS]
