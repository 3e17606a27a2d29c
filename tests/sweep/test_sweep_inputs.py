"""Sweeps refuse what they cannot do, replace nothing that they read, and know a stale result."""

import dataclasses
import os
import sys

import pandas as pd
import pytest
from click.testing import CliRunner

from gnnbench import datasets, plugins
from gnnbench.cli import main
from gnnbench.report.results.frames import to_csv
from gnnbench.report.results.kept import list_kept
from gnnbench.sweep import Configuration, read_grid
from gnnbench.sweep.running import SourceDigests, find_key
from tests.commands import one_sentence

GRID = """
datasets = ["{dataset}"]
strategies = ["reference"]
platforms = ["epyc7543x4-4xa100"]
hidden = 4
check = false
"""
PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from gnnbench.hookspecs import hookimpl
from gnnbench_plugins.reference.kernel import TorchKernel

@dataclass
class Mine(TorchKernel):
    name: ClassVar[str] = "mine"

@hookimpl
def gnnbench_kernel():
    return [Mine]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = datasets.load("sbm:vertices=60,edges=200,features=4,classes=3")
    datasets.save_npz(data, tmp_path / "tiny.npz")
    write_grid(tmp_path)
    return tmp_path


def write_grid(folder, lines="epochs = 1"):
    (folder / "s.toml").write_text(GRID.format(dataset="tiny.npz") + lines, encoding="utf-8")


def run(*words):
    return CliRunner().invoke(main, ["sweep", "s.toml", *words])


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            "epochs = 9223372036854775808",
            "epochs is 9223372036854775808; give a whole number from 1",
        ),
        ("epochs = 9223372036854775807", "this machine has"),
        ("layers = 100000000000", "this machine has"),
        ("target_accuracy = inf", "target_accuracy is inf; give a number above 0 and up to 1"),
        ("learning_rate = nan", "learning_rate is nan; give a number above 0"),
        ("threads = 100000", "threads is 100000; give a whole number from 1 to 1,024"),
    ],
)
def test_numbers_have_the_command_line_s_ranges(folder, lines, sentence):
    write_grid(folder, lines)
    assert sentence in one_sentence(run())
    assert not list(folder.glob("results/*.jsonl"))


def test_combinations_are_counted_before_they_are_made(folder, monkeypatch):
    monkeypatch.setattr("gnnbench.sweep.grid.MOST_CONFIGURATIONS", 23)
    write_grid(
        folder, "seeds = [0, 1, 2]\nepochs = [1, 2]\nset = [[], []]\nlayers = [2, 10000000000]"
    )
    assert "its lists make 24 combinations; 23 are the most of one sweep" in one_sentence(run())


def test_no_output_replaces_what_a_sweep_or_a_report_reads(folder, forked_workers):
    assert run().exit_code == 0
    (kept,) = list_kept(folder / "results")
    os.link(folder / "tiny.npz", folder / "other.npz")
    before = (folder / "tiny.npz").read_bytes(), kept.read_bytes()
    for output in ("tiny.npz", "other.npz", str(kept)):
        assert "would be overwritten, and the command reads it" in one_sentence(
            run("--json", output)
        )
    for option in ("--json", "--csv", "--html", "--parquet"):
        assert CliRunner().invoke(main, ["report", option, str(kept)]).exit_code == 2
    assert before == ((folder / "tiny.npz").read_bytes(), kept.read_bytes())


def test_a_store_that_may_not_be_written_is_refused_before_anything_is_trained(folder, monkeypatch):
    (folder / "results").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder / "results")
    assert "may not be written to" in one_sentence(run("--store", str(folder / "results")))


def test_workers_import_nothing_from_the_current_folder(folder):
    for name in ("multiprocessing", "pickle", "socket"):
        (folder / f"{name}.py").write_text("open('ran', 'w')\nraise ImportError", encoding="utf-8")
    assert run().exit_code == 0
    assert not (folder / "ran").exists()


def test_an_edited_plugin_and_another_library_make_a_result_stale(folder, monkeypatch):
    package = folder / "site" / "minepackage"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from minepackage.kernel import *", encoding="utf-8")
    (package / "kernel.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    write_grid(folder, 'epochs = 1\nplugins = ["minepackage"]')
    (plain,) = read_grid(folder / "s.toml").configurations
    mine = Configuration(dataclasses.replace(plain.job, strategies="reference:kernel=mine"))
    registry = plugins.load(["minepackage"])

    def keys():
        return [find_key(each, {}, SourceDigests(registry)) for each in (plain, mine)]

    first = keys()
    assert first == keys()
    (package / "kernel.py").write_text(f"{PLUGIN}\n# twice the sums", encoding="utf-8")
    edited = keys()
    assert edited[1] != first[1]
    monkeypatch.setattr("gnnbench.sweep.running.list_versions", lambda: {"torch": "0.1"})
    assert not set(keys()) & {*first, *edited}
    del sys.modules["minepackage"], sys.modules["minepackage.kernel"]


def test_no_text_of_a_csv_is_a_formula():
    texts = ["=cmd|calc!A0", "+1", "-x", "@y", "a=b"]
    lines = to_csv(pd.DataFrame({"label": texts, "loss": [-0.5] * 5})).splitlines()
    assert lines == ["label,loss", *(f"'{text},-0.5" for text in texts[:4]), "a=b,-0.5"]


def test_overwriting_a_data_set_leaves_other_files_alone(folder):
    words = ["datasets", "import", "tiny.npz", "--out", "fold"]
    assert CliRunner().invoke(main, words).exit_code == 0
    (folder / "fold" / "notes.txt").write_text("precious", encoding="utf-8")
    assert "fold has files that belong to no data set, such as notes.txt" in one_sentence(
        CliRunner().invoke(main, [*words, "--overwrite"])
    )
    assert (folder / "fold" / "notes.txt").read_text(encoding="utf-8") == "precious"
    (folder / "fold" / "notes.txt").unlink()
    assert CliRunner().invoke(main, [*words, "--overwrite"]).exit_code == 0
