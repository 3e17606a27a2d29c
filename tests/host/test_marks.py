"""Numbers in TOML files say how far they are to be believed: their marks are read and refused."""

from pathlib import Path

import pytest

from gnnbench.constants import MARKS, find_marked
from gnnbench.errors import PlatformError
from gnnbench.host.toml import read_toml
from gnnbench.machines.files import read_platform
from gnnbench.machines.show import show_platform, to_toml
from gnnbench_plugins import __path__ as plugins_path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path for folder in (ROOT / "gnnbench", Path(plugins_path[0])) for path in folder.rglob("*.toml")
)
HOST = """
name = "small"
description = "a host"
[host]
model = "m"
cores = { value = 4, source = "s" }
flops = { value = 1, unit = "TFLOP/s", %s source = "s" }
memory_bandwidth = { value = 10, unit = "GB/s", source = "s" }
core_bandwidth = { value = 10, unit = "GB/s", source = "s" }
memory = { value = 8, unit = "GB", source = "s" }
sampling = { value = 1, unit = "Medges/s", source = "s" }
launch = { value = 1, unit = "us", source = "s" }
"""


def find_unmarked(table):
    return [place for place, number in find_marked(table) if number.get("mark") not in MARKS]


def test_an_unmarked_number_is_found():
    rate = {"value": 1, "source": "s"}
    numbers = {"host": {"a": rate}, "links": [{"from": "a", "to": "b", "c": rate}]}
    assert find_unmarked(numbers) == ["host.a", "links.a-b.c"]
    assert not find_unmarked({"a": {**rate, "mark": "quoted"}})


def test_every_number_of_the_bundled_files_is_marked():
    unmarked = {path.stem: found for path in FILES if (found := find_unmarked(read_toml(path)))}
    assert unmarked == {}, 'give each mark = "quoted" or another'
    assert len(FILES) > 20


def read(text, folder):
    path = folder / "small.toml"
    path.write_text(HOST % text)
    return read_platform(path)


def test_a_number_of_a_user_without_a_mark_counts_as_assumed(tmp_path):
    platform = read("", tmp_path)
    assert platform.mark("host.flops").kind == "assumed"
    rows = {row.key: row for row in show_platform(platform)}
    assert (rows["host.flops"].mark, rows["host.flops"].source) == ("assumed", "s")


def test_what_was_fitted_says_on_what_and_is_written_back(tmp_path):
    platform = read('mark = "fitted", fitted_on = ["hyscale-figure9"],', tmp_path)
    mark = platform.mark("host.flops")
    assert (mark.kind, mark.fitted_on) == ("fitted", ("hyscale-figure9",))
    (tmp_path / "back.toml").write_text(to_toml(platform))
    assert read_platform(tmp_path / "back.toml") == platform
    assert "on hyscale-figure9: s" in {row.source for row in show_platform(platform)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('mark = "guessed",', "mark of flops of .host. is 'guessed'; it must be 'measured'"),
        ('mark = "fitted",', "needs fitted_on"),
        ('mark = "fitted", fitted_on = [],', "fitted_on"),
        ('mark = "quoted", fitted_on = ["x"],', 'fitted_on goes with mark = "fitted"'),
        ('fitted_on = ["x"],', 'fitted_on goes with mark = "fitted"'),
    ],
)
def test_a_mark_that_makes_no_sense_is_refused(text, sentence, tmp_path):
    with pytest.raises(PlatformError, match=sentence):
        read(text, tmp_path)
