"""The page of a store: who is fastest among equal work, and a point and a line for each row."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gnnbench.report.kept import _pool_setting
from gnnbench.report.kept_html import make_page
from gnnbench.report.results.frames import frame_kept, to_parquet
from gnnbench.report.results.kept import Kept, KeptHeader
from gnnbench.report.results.schema import to_document
from gnnbench.sweep.grid import KEYS
from tests.report.example_comparison import make_comparison, make_failure, make_run


def keep(run, seed=0, dataset="cora", **settings):
    """A kept run of a configuration with these settings."""
    comparison = make_comparison(run)
    comparison = replace(comparison, dataset={**comparison.dataset, "name": dataset})
    asked = {"dataset": dataset, "model": "gcn", "platform": "p", "strategy": run.label}
    header = KeptHeader(
        schema_version=1, key=f"{run.label}{seed}", machine="m1", gnnbench="0.1.0",
        configuration={**asked, "seed": seed, **settings}, status="done", reason="", began="",
        took_s=1.0,
    )  # fmt: skip
    return Kept(Path("store/x.jsonl"), header, to_document(comparison))


def make_store():
    """Two strategies with two seeds and two widths on one graph, and one of them on another."""
    epochs = {("hongtu", 64): 0.1, ("hongtu", 256): 0.5, ("pyg", 64): 0.2, ("pyg", 256): 0.3}
    kept = [
        keep(make_run(label, epoch_s=(seconds + seed / 100,)), seed, hidden=hidden)
        for (label, hidden), seconds in epochs.items()
        for seed in (0, 1)
    ]
    return [
        *kept,
        keep(make_run("hongtu", epoch_s=(0.01,)), dataset="reddit", hidden=64),
        keep(make_failure("pyg", "error", "ValueError: it broke"), dataset="reddit", hidden=64),
    ]


@pytest.fixture(scope="module")
def page():
    return make_page(Path("store"), make_store())


def test_rows_of_the_same_work_are_ranked_and_no_others(page):
    """Another strategy is fastest with more hidden units; no row of other widths is named."""
    said = re.findall(r"<p>(hidden \d+: Full graph: [^<]*)</p>", page)
    assert len(said) == 2
    assert said[0].startswith("hidden 64: Full graph: hongtu is fastest, 105 ms an epoch")
    assert "1.95 times" in said[0]
    assert said[1].startswith("hidden 256: Full graph: pyg is fastest, 305 ms an epoch")
    wins = re.findall(r'<td data-name="epoch \[modelled\]" class="win"[^>]*><span>([^<]*)', page)
    assert wins == ["105 ms", "305 ms"]


def test_runs_of_one_seed_are_one_repeat_of_all_strategies():
    kept = [keep(make_run(label), seed) for label in ("hongtu", "pyg") for seed in (7, 3)]
    rows = _pool_setting("a setting", kept).rows
    assert [[result.repeat for result in row.results] for row in rows] == [[0, 1], [0, 1]]


def test_each_row_is_a_line_and_a_point_and_may_be_filtered(page):
    assert "<h1>Results in store: 10 runs of 2 settings</h1>" in page
    lines = dict(re.findall(r'<tr id="(row-\d)"([^>]*)>', page))
    assert len(lines) == 6
    assert 'data-dataset="reddit"' in lines["row-4"]
    assert set(re.findall(r'data-filter="(\w+)"', page)) == {"strategy", "dataset", "hidden"}
    # The failure has neither a time nor memory.
    assert re.findall(r'data-row="([^"]*)"', page) == [f"row-{n}" for n in (0, 1, 2, 3, 4)] * 2
    assert "1.53 GB" not in page
    assert ">1 of 1<" in page
    assert ">0 of 1<" in page


@pytest.mark.parametrize("name", [each.kept for each in KEYS])
def test_settings_set_rows_apart_unless_runs_are_repetitions(name):
    """A setting that the report does not know sets rows apart, too."""
    page = make_page(Path("store"), [keep(make_run("a"), **{name: value}) for value in ("x", "y")])
    repeated = name in ("seed", "repeats", "target_accuracy", "check", "checked_updates", "plain")
    pooled = repeated or name in ("strategy", "plugins", "programs")
    assert (">2 of 2<" in page) == pooled
    assert len(re.findall(r'<tr id="row-', page)) == (1 if pooled else 2)


def test_a_parquet_file_has_every_run_with_its_types():
    frame = frame_kept(make_store())
    read = pd.read_parquet(io.BytesIO(to_parquet(frame)))
    pd.testing.assert_frame_equal(read, frame, check_dtype=False)
    assert read["epoch_time"].dtype == float
    assert read["epoch_time"].isna().sum() == 1
    assert read["ranked"].tolist()[0] is True
