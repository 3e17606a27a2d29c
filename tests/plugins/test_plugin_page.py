"""The examples of the page on plugins are whole files, short, and keep every promise of a part."""

import re
from pathlib import Path

import pytest

from gnnbench import check as conformance
from gnnbench import parts, plugins
from gnnbench.plugins.registry import BASES
from gnnbench.records import PART_KINDS

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def part_of(example):
    (base,) = re.findall(r"^@dataclass.*\nclass \w+\((\w+)\)", example, re.M)
    (name,) = re.findall(r'name: ClassVar\[str\] = "(.*)"', example)
    return getattr(parts, base).kind, name


def test_there_is_an_example_of_each_kind_of_part():
    assert {part_of(example)[0] for example in EXAMPLES} == set(PART_KINDS)
    assert max(example.count("\n") for example in EXAMPLES) < 60


def test_the_page_names_every_kind_and_what_its_parts_must_and_may_define():
    cells = r"^\| [^|]+ \| `(\w+)` \| ([^|]*) \| ([^|]*) ?\|$"
    rows = re.findall(cells, PAGE.read_text(encoding="utf-8"), re.M)
    kinds = [kind for bases in BASES.values() for kind in bases]
    assert [name for name, *_ in rows] == [kind.__name__ for kind in kinds]
    for kind, (_, must, may) in zip(kinds, rows, strict=True):
        assert set(re.findall(r"`(\w+)`", must)) == kind.__abstractmethods__
        assert [name for name in re.findall(r"`(\w+)`", may) if not hasattr(kind, name)] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=["=".join(part_of(each)) for each in EXAMPLES])
def test_an_example_keeps_every_promise(tmp_path, example, one_thread):
    path = tmp_path / "mine.py"
    path.write_text(example, encoding="utf-8")
    registry = plugins.load([str(path)])
    kind, name = part_of(example)
    outcomes = conformance.check_strategy(registry, f"{kind}={name}")
    assert [outcome.check for outcome in outcomes] == [check.name for check in conformance.CHECKS]
    for outcome in outcomes:
        assert outcome.status in ("passed", "not-applicable"), f"{outcome.check}: {outcome.reason}"
