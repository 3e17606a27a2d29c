"""``gnnbench sweep`` and ``gnnbench report``: a grid goes on wherever it was stopped."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from gnnbench.cli import main
from gnnbench.errors import UsageError
from gnnbench.jobs.job import Job
from gnnbench.report.results.frames import frame_kept
from gnnbench.report.results.kept import list_kept, name_kept, read_kept
from gnnbench.sweep import EXECUTORS, find_tasks, read_grid
from tests.commands import one_sentence, read_document, run_python

pytestmark = pytest.mark.usefixtures("forked_workers")

GRAPH = "sbm:vertices=60,edges=200,features=4,classes=3"
SMALL = f"""
datasets = ["{GRAPH}"]
strategies = ["reference", "hongtu"]
platforms = ["epyc7543x4-4xa100"]
epochs = 1
hidden = 4
"""
#: 24 runs, half of which train in two processes.
SPREAD = (
    SMALL.replace('"reference", "hongtu"', '"partition", "hongtu"')
    + """
set = ["placement.accelerators=2"]
processes = [1, 2]
seeds = [0, 1, 2, 3, 4, 5]
"""
)
#: Two that train like the reference, but raise or die before it while a file is there.
MOODY = """
import os, pathlib, signal
from gnnbench.hookspecs import hookimpl
from gnnbench_plugins.reference.kernel import TorchKernel
from suites.faults.fault import make_part, offer

MOOD = pathlib.Path(__file__).with_name("mood")

def begin_or(fail):
    def begin(self, setting):
        if MOOD.exists():
            fail()
        TorchKernel.begin(self, setting)
    return begin

def complain():
    raise RuntimeError("in a bad mood")

PARTS = [
    make_part(TorchKernel, "raising", "raises", begin=begin_or(complain)),
    make_part(
        TorchKernel, "dying", "dies", begin=begin_or(lambda: os.kill(os.getpid(), signal.SIGKILL))
    ),
]

@hookimpl
def gnnbench_kernel():
    return PARTS

@hookimpl
def gnnbench_strategy():
    return [offer(part) for part in PARTS]
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="sweep.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_file


def read_store(store):
    return [read_kept(path) for path in list_kept(store)]


def stamp(store):
    """What tells a file that was written again from one that was left."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in list_kept(store)}


def test_every_combination_is_a_configuration_once(write):
    text = """
    datasets = ["cora", "sbm"]
    strategies = ["hyscale", "hongtu:kernel=native", "hyscale"]
    platforms = ["epyc7763x2-4xa5000"]
    models = ["gcn", "gat"]
    seeds = [0, 1, 2]
    set = [[], ["placement.drm=false"]]
    hidden = [16, 32]
    fanouts = [5, 5]
    """
    made = read_grid(write(text)).configurations
    assert len(made) == len(set(made)) == 2 * 2 * 1 * 2 * 3 * 2 * 2
    jobs = [each.job for each in made]
    assert {job.strategies for job in jobs} == {("hyscale",), ("hongtu:kernel=native",)}
    assert {job.options for job in jobs} == {None, ("placement.drm=false",)}
    assert {job.fanouts for job in jobs} == {(5, 5)}
    assert {(job.threads, job.plain, job.epochs) for job in jobs} == {(1, False, 10)}


def test_what_a_file_leaves_out_is_as_in_a_comparison(write):
    """But for threads and plain rows."""
    text = 'datasets = ["sbm"]\nstrategies = ["hongtu"]\nplatforms = ["local"]'
    (configuration,) = read_grid(write(text)).configurations
    usual = Job("hongtu", "sbm", platform="local", threads=1, plain=False)
    assert configuration.job == usual


def test_keys_of_kept_results_are_those_of_the_first_version(write):
    """Their digest names the file of a finished run: a newer key may not be in it by default."""
    (configuration,) = read_grid(write(SMALL.replace(', "hongtu"', ""))).configurations
    assert sorted(configuration.to_json()) == [
        *("batch_size", "check", "dataset", "epochs", "fanouts", "hidden", "layers"),
        *("learning_rate", "model", "plain", "platform", "plugins", "repeats", "scaling", "seed"),
        *("set", "strategy", "target_accuracy", "threads"),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", "datasets is missing"),
        ('datasets = []\nstrategies = ["a"]\nplatforms = ["b"]', "at datasets,"),
        (f"{SMALL}\nepoch = 3", "there is no key 'epoch'; the keys are datasets,"),
        (f"{SMALL}\nseeds = [-1]", "seed is -1; give a whole number from 0"),
        ("datasets = [", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(write, change, words):
    with pytest.raises(UsageError, match=words):
        read_grid(write(change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('strategies = ["hongto"]', "there is no strategy 'hongto'"),
        ('strategies = ["hongtu:kernel=no"]', "there is no kernel 'no'"),
        ('models = ["gnc"]', "there is no model 'gnc'"),
        ('platforms = ["nowhere"]', "nowhere"),
        ("fanouts = [3]", "fanouts are [3] for 2 layers"),
        ('set = ["drm=false"]', "is not PART.option=value"),
    ],
)
def test_names_are_looked_up_before_anything_runs(run, write, tmp_path, change, words):
    key = change.partition(" ")[0]
    kept = "\n".join(line for line in SMALL.splitlines() if not line.startswith(key))
    result = run("sweep", write(f"{kept}\n{change}"), "--store", tmp_path / "store")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list((tmp_path / "store").glob("*"))


def test_names_spelt_out_for_speed_are_the_real_ones():
    # The module, which the package's name of the same spelling (the command) hides.
    assert sys.modules["gnnbench.cli.sweep"].EXECUTOR_NAMES == EXECUTORS


@pytest.fixture(scope="module")
def swept(tmp_path_factory, forked_workers):
    """A sweep of four configurations that is done, its file, and its output."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "sweep.toml").write_text(f"{SMALL}\nseeds = [0, 1]")
    words = ("sweep", folder / "sweep.toml", "--store", folder / "store", "--jobs", "2")
    done = CliRunner().invoke(main, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return folder


def test_what_is_kept_is_not_run_again(run, swept):
    store = swept / "store"
    before = stamp(store)
    assert len(before) == 4
    told = read_document(run("sweep", swept / "sweep.toml", "--store", store, "--json", "-"))
    assert (told["configurations"], told["run"], told["done"]) == (4, 0, 4)
    assert stamp(store) == before


def test_what_lacks_or_is_damaged_is_run(run, swept, tmp_path):
    """Another seed or number of layers is another run, and those that are kept stay."""
    store = tmp_path / "store"
    shutil.copytree(swept / "store", store)
    damaged = next(
        kept.path
        for kept in read_store(store)
        if kept.header.configuration["strategy"] == "reference"
    )
    damaged.write_bytes(damaged.read_bytes()[:40])
    before = stamp(store)
    assert damaged.name in " ".join(run("report", store).stdout.split())
    more = tmp_path / "more.toml"
    text = SMALL.replace(', "hongtu"', "")
    more.write_text(f"{text}\nseeds = [0, 1, 2]\nlayers = [1, 2]")
    again = run("sweep", more, "--store", store, "--json", "-")
    told = json.loads(again.stdout)
    assert (told["configurations"], told["run"], told["done"]) == (6, 5, 6)
    assert "is not a kept run" in again.stderr
    after = stamp(store)
    assert (len(after), len(read_store(store))) == (8, 8)
    assert [name for name in before if after[name] != before[name]] == [damaged.name]


def test_times_that_another_machine_measured_are_measured_again(registry, swept, tmp_path):
    """Modelled times are the same everywhere."""
    store, grid = tmp_path / "store", read_grid(swept / "sweep.toml")
    shutil.copytree(swept / "store", store)

    def count_tasks(here):
        return len(find_tasks(grid.configurations, store, registry, here=here).tasks)

    (machine,) = {kept.header.machine for kept in read_store(store)}
    assert count_tasks("other123") == 0
    for kept in read_store(store):
        header, document = map(json.loads, kept.path.read_text().splitlines())
        document["platform"]["modelled"] = False
        kept.path.write_text(f"{json.dumps(header)}\n{json.dumps(document)}\n")
    assert [count_tasks(here) for here in ("other123", machine, "")] == [4, 0, 0]


def test_kept_runs_are_what_compare_finds(run, swept):
    for kept in read_store(swept / "store"):
        asked = kept.header.configuration
        words = ("--dataset", GRAPH, "--platform", asked["platform"], "--seed", asked["seed"])
        words += ("--epochs", 1, "--hidden", 4, "--threads", 1, "--no-plain", "--json", "-")
        found = json.loads(run("compare", "--plugins", asked["strategy"], *words).stdout)
        (ours,), (theirs,) = kept.document.runs, found["runs"]
        assert list(ours.loss) == theirs["loss"]
        assert ours.metrics["epoch_time"].value == theirs["metrics"]["epoch_time"]["value"]


def test_compare_takes_kept_files(run, swept, tmp_path):
    paths = list_kept(swept / "store")
    (earlier,) = [path for path in paths if read_kept(path).header.configuration["seed"] == 0][:1]
    later = tmp_path / "later.jsonl"
    shutil.copy(earlier, later)
    (row,) = read_document(run("compare", earlier, later, "--json", "-"))["rows"]
    assert (row["ratio"], row["difference_shown"]) == (1.0, False)


def test_the_report_has_a_line_for_every_strategy(run, swept, tmp_path):
    page, lines, rows = (tmp_path / name for name in ("page.html", "runs.csv", "runs.parquet"))
    words = ("--html", page, "--csv", lines, "--parquet", rows, "--json", "-")
    (table,) = read_document(run("report", swept / "store", *words))["tables"]
    frame = frame_kept(read_store(swept / "store"))
    pd.testing.assert_frame_equal(pd.read_parquet(rows), frame, check_dtype=False)
    rows = {row["label"]: row["cells"] for row in table["rows"]}
    assert set(rows) == {"reference · mini-batch", "hongtu · full-graph"}
    for label in ("reference", "hongtu"):
        (cells,) = [cells for name, cells in rows.items() if name.startswith(label)]
        epochs = frame[frame["label"] == label]["epoch_time"]
        assert len(epochs) == 2
        assert cells[0]["value"] == pytest.approx(epochs.median())
        assert cells[0]["provenance"] == "modelled"
        accuracies = frame[frame["label"] == label]["test_accuracy"]
        assert accuracies.nunique() == 2
        assert cells[3]["text"] == f"{accuracies.median():.3f}"
        assert cells[4]["text"] == "2 of 2"
    assert "hongtu · full-graph" in page.read_text()
    assert len(pd.read_csv(lines)) == 4


def test_an_empty_store_is_said(run, tmp_path):
    assert "holds no kept run" in one_sentence(run("report", tmp_path))
    assert "there is no folder" in run("report", tmp_path / "none").stderr


def test_failures_are_rows_and_are_retried_on_demand(run, write, tmp_path):
    """Parts that do not fit are an answer, and no failure."""
    plugin, store, mood = write(MOODY, "moody.py"), tmp_path / "store", write("", "mood")
    four = '"reference", "raising", "dying", "hongtu:sampler=neighbour"'
    text = SMALL.replace('"reference", "hongtu"', four) + f'plugins = ["{plugin}"]'
    words = ("sweep", write(text), "--store", store)
    result, reasons = run(*words), ("in a bad mood", "its process ended by SIGKILL before")
    assert result.exit_code == 3
    assert all(reason in result.stdout for reason in reasons)
    kept = {each.header.configuration["strategy"]: each.header for each in read_store(store)}
    assert [kept[name].status for name in ("reference", "raising", "dying")] == [
        "done",
        "failed",
        "failed",
    ]
    shown = run("report", store)
    assert all(reason in " ".join(shown.stdout.split()) for reason in reasons)
    assert "failed" in shown.stdout
    table, _ = read_document(run("report", store, "--json", "-"))["tables"]
    counts = {row["label"].split()[0]: row["cells"][4]["text"] for row in table["rows"]}
    assert counts == {"reference": "1 of 1", "raising": "0 of 1"}
    # The cause is mended, but nobody asked for what failed.
    mood.unlink()
    before = stamp(store)
    assert run(*words).exit_code == 3
    assert stamp(store) == before
    retried = run(*words, "--retry", "--json", "-")
    told = json.loads(retried.stdout)
    assert (retried.exit_code, told["run"], told["failed"]) == (0, 2, 0)
    assert (told["done"], told["refused"]) == (3, 1)
    assert len(stamp(store)) == 4


def test_a_sweep_in_which_nothing_ran_has_a_status_of_its_own(run, write, tmp_path):
    file = write(SMALL.replace('"reference", "hongtu"', '"hongtu:sampler=neighbour"'))
    result = run("sweep", file, "--store", tmp_path / "store", "--json", "-")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["done"], told["refused"], told["failed"]) == (4, 0, 1, 0)


def test_two_machines_in_one_store_are_held_against_each_other(run, swept, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(swept / "store", store)
    for kept in read_store(store):
        lines = kept.path.read_text().replace(
            json.dumps(kept.document.machine.cpu), '"Another CPU"'
        )
        header, document = map(json.loads, lines.splitlines())
        header["machine"] = "other123"
        for entry in document["runs"]:
            entry["metrics"]["epoch_time"]["value"] *= 2
            entry["metrics"]["epoch_time"].pop("samples", None)
        path = name_kept(store, header["key"], "other123")
        path.write_text(f"{json.dumps(header)}\n{json.dumps(document)}\n")
    tables = json.loads(run("report", store, "--json", "-").stdout)["tables"]
    assert len(tables) == 2
    both = tables[1]
    assert len(both["rows"]) == 4
    assert "other123" in both["title"]
    speeds = [row["cells"][2]["text"] for row in both["rows"]]
    order = both["title"].endswith("other123")
    assert speeds == ["0.50x" if order else "2.00x"] * 4
    assert any("Another CPU" in note for note in both["notes"])
    assert any(" on other123" in row["label"] for row in tables[0]["rows"])


def sweep_with_kills(folder, text, kills, seed, *options):
    """Run a sweep that is killed so often at random moments, and then to its end. What was kept at
    a kill must be whole and stay as it is. One that ends before its kills are over, on a machine
    that let this test wait, begins anew in another store. Jobs of Slurm go on after a kill, and
    Ray's workers may end the run that they are at."""
    path, store = folder / "sweep.toml", folder / "store"
    path.write_text(text)
    command = [sys.executable, "-m", "gnnbench", "sweep", str(path), "--store", str(store)]
    command[-2:-2] = options
    draw = random.Random(seed)
    killed = 0
    while killed < kills:
        have = len(stamp(store)) if store.is_dir() else 0
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        # Not before it has kept something new, so that every kill comes amid runs.
        while process.poll() is None and len(stamp(store) if store.is_dir() else ()) == have:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 0.5))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if process.returncode == 0:
            store = store.with_name(f"{store.name}-again")
            command[-1] = str(store)
            continue
        assert process.returncode == -signal.SIGKILL
        assert not [kept for kept in read_store(store) if kept.document is None]
        before = stamp(store)
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    left = told["configurations"] - len(before)
    assert told["run"] <= left if {"slurm", "ray"} & {*options} else told["run"] == left
    after = stamp(store)
    assert {name: after[name] for name in before} == before
    # A writer that is killed leaves a hidden file; every kill leaves at most one a job.
    others = {path.name for path in store.iterdir()} - set(after)
    assert all(re.fullmatch(r"\.gnnbench-[0-9a-f]{16}\.tmp", name) for name in others)
    assert len(others) <= kills * 2
    return told, store


@pytest.mark.long
def test_48_configurations_killed_ten_times(tmp_path):
    text = SMALL.replace('"hongtu"]', '"hongtu", "hyscale", "mixgcn"]')
    text += '\nmodels = ["gcn", "sage"]\nseeds = [0, 1, 2, 3, 4, 5]'
    told, store = sweep_with_kills(tmp_path, text, 10, 1)
    assert told["configurations"] == told["done"] == 48
    assert len(read_store(store)) == 48


@pytest.mark.long
def test_24_runs_on_slurm_killed_three_times(tmp_path, real_slurm):
    """Half of them train in two processes. Each is submitted once."""
    told, _ = sweep_with_kills(tmp_path, SPREAD, 3, 1, "--executor", "slurm", "--jobs", "2")
    assert told["configurations"] == told["done"] == real_slurm() == 24


@pytest.mark.long
def test_24_runs_on_ray_killed_three_times(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed for this Python")
    told, _ = sweep_with_kills(tmp_path, SPREAD, 3, 1, "--executor", "ray", "--jobs", "2")
    assert told["configurations"] == told["done"] == 24


@pytest.mark.long
@pytest.mark.parametrize("executor", ["ray", "slurm"])
def test_other_executors_give_the_same_rows(swept, write, tmp_path, request, executor):
    if executor == "ray":
        pytest.importorskip("ray", reason="ray is not installed for this Python")
    else:
        request.getfixturevalue("stub_slurm")
    some, store = write(f"{SMALL}\nseeds = [1]"), tmp_path / "store"
    words = ("sweep", some, "--store", store, "--executor", executor, "--jobs", "2")
    done = run_python("-m", "gnnbench", *words)
    assert done.returncode == 0, done.stderr
    kept = [each for each in read_store(swept / "store") if each.header.configuration["seed"] == 1]
    assert len(kept) == len(read_store(store)) == 2
    ours, theirs = frame_kept(kept), frame_kept(read_store(store))
    measured = [name.removeprefix("provenance_") for name in ours if "provenance_" in name]
    left = ours.drop(columns=measured).sort_values(["key", "label"], ignore_index=True)
    right = theirs.drop(columns=measured).sort_values(["key", "label"], ignore_index=True)
    assert "wall_time" in measured
    pd.testing.assert_frame_equal(left, right, check_exact=True)


def test_a_library_or_a_command_that_lacks_is_named(run, swept, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for executor, named in (("ray", "pip install gnnbench[ray]"), ("slurm", "sbatch is not on")):
        words = ("sweep", swept / "sweep.toml", "--store", tmp_path, "--executor", executor)
        assert named in one_sentence(run(*words), 3)
    assert not list(Path(tmp_path).iterdir())
