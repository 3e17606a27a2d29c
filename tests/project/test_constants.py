"""Numbers in code that stand for the world are marked, and an unmarked one is refused.

Where something is priced or made to stand for something, numbers say what they are
in their annotation, ``Annotated[..., Constant(...)]`` or ``Bound[...]``: module-level names in
capitals, and fields of classes with a default that is not plain. In functions none but plain ones
may stand.
"""

import ast
from pathlib import Path

from gnnbench import plugins
from gnnbench_plugins.studies import list_constants
from gnnbench_plugins.studies.validation.published import read_sources

ROOT = Path(__file__).resolve().parents[2]
PRICING = (
    "gnnbench/datasets/standins.py",
    "gnnbench/datasets/synthetic.py",
    "gnnbench/price/design_phase.py",
    "gnnbench/lowering/footprint.py",
    "gnnbench/kernels/reference/fpga.py",
    "gnnbench/kernels/reference/spmm.py",
    "gnnbench/machines",
    "gnnbench/price",
    "plugins/gnnbench_plugins",
)
#: Small counts, a half, and powers of a thousand, which convert units.
PLAIN = {0.5, *map(float, range(65)), *(10.0 ** (3 * power) for power in range(-5, 6))}
_OPERATIONS = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)


def list_files():
    return [
        path
        for place in (ROOT / each for each in PRICING)
        for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])
    ]


def holds_number(node):
    """Whether it is a number, arithmetic on numbers, or a tuple of those."""
    if node is None or not all(isinstance(each, _OPERATIONS) for each in ast.walk(node)):
        return False
    values = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return bool(values) and all(type(value) in (int, float) for value in values)


def is_plain(node):
    if isinstance(node, ast.UnaryOp):
        return is_plain(node.operand)
    return isinstance(node, ast.Constant) and float(node.value) in {0.0, 1.0, 2.0}


def is_marked(statement):
    if not isinstance(statement, ast.AnnAssign):
        return False
    written = ast.unparse(statement.annotation)
    return "Bound[" in written or "Constant(" in written


def find_unmarked(source):
    tree = ast.parse(source)
    assigned = [each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    for each in assigned:
        name = ast.unparse(each.targets[0] if isinstance(each, ast.Assign) else each.target)
        if name.isupper() and holds_number(each.value) and not is_marked(each):
            yield f"line {each.lineno}: {name}"
    for holder in ast.walk(tree):
        if isinstance(holder, ast.ClassDef):
            fields = [each for each in holder.body if isinstance(each, ast.AnnAssign)]
            for each in fields:
                number = each.value is not None and holds_number(each.value)
                if number and not is_plain(each.value) and not is_marked(each):
                    yield f"line {each.lineno}: {ast.unparse(each.target)} of {holder.name}"
        elif isinstance(holder, ast.FunctionDef):
            numbers = [each for each in ast.walk(holder) if isinstance(each, ast.Constant)]
            for each in numbers:
                if type(each.value) is float and each.value not in PLAIN:
                    yield f"line {each.lineno}: {each.value} in {holder.name}"


EXAMPLE = """
RATE = 3.5
SIZES = (1, 2)
MARKED: Annotated[float, Constant("B/s", "quoted", "a page")] = 3.5
LIMIT: Bound[int] = 64
NAME = "4"
class Machine:
    cores: int = 96
    layers: int = 2
    clock_hz: Annotated[int, Constant("Hz", "quoted", "a page")] = 10**9
def price(width: float) -> float:
    return 0.064 * width + 1e9
"""


def test_unmarked_numbers_are_found():
    assert list(find_unmarked(EXAMPLE)) == [
        "line 2: RATE", "line 3: SIZES", "line 8: cores of Machine", "line 12: 0.064 in price",
    ]  # fmt: skip


def test_numbers_are_marked():
    """Each has Annotated[float, Constant(unit, mark, source)], or Bound[float] where it is no fact
    of the world."""
    unmarked = {
        str(path.relative_to(ROOT)): sorted(set(found))
        for path in list_files()
        if (found := list(find_unmarked(path.read_text(encoding="utf-8"))))
    }
    assert unmarked == {}


def test_every_kind_of_constant_is_listed():
    found = {(number.place, number.name): number for number in list_constants()}
    for place, name, mark in (
        ("gnnbench/machines/epyc7763x2-4xu250.toml", "host.aggregate", "fitted"),
        ("gnnbench/machines/epyc7763x2-4xu250.toml", "accelerators.fpga.flops", "quoted"),
        ("gnnbench/machines/epyc7763x2-4xu250.toml", "links.host-fpga.latency", "assumed"),
        ("gnnbench_plugins/hpgnn/boards/u250.toml", "rho2", "quoted"),
        ("gnnbench.datasets.standins", "WEB_EXPONENT", "quoted"),
        ("gnnbench_plugins.mixgcn.machines", "Spu.clock_hz", "quoted"),
        ("gnnbench_plugins.hpgnn.program", "Program.host_threads", "quoted"),
    ):
        assert found[place, name].mark == mark
    assert len(found) == len(list_constants())


def test_what_constants_were_fitted_on_can_be_looked_up():
    """It is a cell of the ledger, or of a table that ``gnnbench reproduce`` lists."""
    cells = {cell.id for source in read_sources() for cell in source.cell}
    offered = plugins.load().reproductions
    tables = {*offered, *(each.name for cls in offered.values() for each in cls.left_out)}
    fitted = [number for number in list_constants() if number.mark == "fitted"]
    for number in fitted:
        for result in number.fitted_on:
            assert result in cells or result.partition(" ")[0] in tables, (number.name, result)
    assert fitted
