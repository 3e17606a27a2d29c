"""Whole programs: an honest one is ranked, and each that cheats or breaks is named or refused."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from click.testing import Result

import gnnbench
from gnnbench import datasets, plugins
from gnnbench.comparison import Request, compare, frame, make_setting
from gnnbench.comparison.ranking import make_row
from gnnbench.errors import IncompatiblePartsError, PluginError, UsageError
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.plugins import Registry
from gnnbench.programs import beside, process, spread
from gnnbench.programs.files import read_program
from gnnbench.programs.keeper import list_descendants
from gnnbench.programs.messages import ProgramFailedError
from gnnbench.programs.references import References
from gnnbench.programs.rows import ProgramRows
from gnnbench.programs.run import AnyProgram, make_task
from gnnbench.programs.sessions import CommandTraining, TimedEpoch, check_seconds
from gnnbench.programs.task_folder import TaskFolders
from gnnbench.records import (
    CommandProgram,
    EpochReport,
    Mode,
    Parameters,
    Program,
    ProgramSession,
    RunResult,
    Task,
    Workload,
)
from gnnbench.report.results.schema import dump_json, parse_json, to_document
from gnnbench.sweep.grid import read_grid
from gnnbench.sweep.running import SourceDigests, find_key

pytestmark = pytest.mark.usefixtures("one_thread", "few_epochs")

HONEST = Path(__file__).parent / "honest.py"
GRAPH = "sbm:vertices=120,edges=500,features=8,classes=3"
EPOCHS = 5


@pytest.fixture(autouse=True, scope="module")
def few_epochs() -> object:
    """Epochs of a millisecond are timed for this test's sake only a few times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "ENOUGH_SAMPLES", EPOCHS + 3)
        yield


def command(fault: str = "", **fields: object) -> CommandProgram:
    given: dict[str, object] = {
        "name": "mine",
        "command": ("{python}", str(HONEST), "{task}", fault),
        "modes": ("full-graph", "mini-batch"),
        "models": ("gcn",),
        "folder": str(HONEST.parent),
        "patience_s": 120,
    }
    return CommandProgram(**(given | fields))  # type: ignore[arg-type]


def make_request() -> Request:
    data = datasets.load(GRAPH)
    workload = Workload("gcn", (8, 6, 3), EPOCHS, 5, (0, 0), seed=3, threads=1)
    return Request((), data, workload, load_platform(LOCAL))


def train(
    registry: Registry, program: AnyProgram, mode: Mode = "full-graph", check: bool = True
) -> RunResult:
    """Train a program alone, and return its run."""
    programs = ProgramRows((program,), registry)
    request = dataclasses.replace(make_request(), check=check, modes=(mode,), programs=programs)
    comparison = compare(request, registry)
    document = parse_json(Path("result"), dump_json(to_document(comparison)))
    assert document.runs[0].parts is None
    assert document.runs[0].program is not None
    (found,) = comparison.runs
    return found


def why_not(found: RunResult) -> str:
    return make_row(found.label, found.mode, [found]).why_not


def find_state(process: int | str) -> str:
    """The state of a process, in a letter; empty if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def list_left() -> list[str]:
    """The processes that programs of this tree have started and that are still there."""
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(HONEST).encode() in words and find_state(folder.name) not in ("Z", ""):
            left.append(b" ".join(words).decode())
    return left


@pytest.mark.parametrize("mode", ["full-graph", "mini-batch"])
def test_an_honest_program_is_verified_and_ranked(registry: Registry, mode: Mode) -> None:
    found = train(registry, command(), mode)
    assert (found.status, found.reason, found.unverified) == ("done", "", "")
    assert why_not(found) == ""
    assert found.work is not None
    assert found.work.seeds == 30
    assert found.work.updates == (1 if mode == "full-graph" else 6)
    assert len(found.metrics["epoch_time"].samples) == EPOCHS + 3
    assert found.metrics["epoch_time"].provenance == "measured"
    assert found.metrics["preprocessing_time"].value > found.metrics["epoch_time"].value
    assert found.program is not None
    assert set(found.program.versions) == {"numpy"}
    if mode == "full-graph":
        assert found.equivalence is not None
        assert found.equivalence.max_relative_loss_error < 1e-5
    else:
        assert found.spread_seeds == spread.SEEDS
        assert found.work.sampling == "uniform without replacement, fan-outs 0, 0"
    assert not list_left()


#: Faults, their modes, and what the sentence about each says.
CHEATS = [
    ("test-set", "full-graph", "the loss of epoch 0 is off by"),
    ("test-set", "mini-batch", "lies between"),
    ("false losses", "full-graph", "the loss of epoch 0 is off by"),
    ("false losses", "mini-batch", "lies between"),
    ("no training saved", "full-graph", "of its movement"),
    ("late", "full-graph", "the loss of epoch 5 is off by"),
    ("skips", "mini-batch", "lies between"),
]


@pytest.mark.parametrize(("fault", "mode", "sentence"), CHEATS)
def test_a_program_that_cheats_is_found_out(
    registry: Registry, fault: str, mode: Mode, sentence: str
) -> None:
    found = train(registry, command(fault), mode)
    assert found.status == "done"
    assert found.equivalence is not None
    assert sentence in found.equivalence.fault
    assert why_not(found).startswith("not equal to the reference")


BREAKS = [
    ("works outside", "from the order of an epoch to epoch_begin"),
    ("no epoch_end", "it sent no 'epoch_end' for 3 s"),
    ("never ready", "it sent no 'ready' for 3 s"),
    ("forks", "it left 1 process behind, which was ended"),
    ("garbage", "it wrote 'Epoch 0: training starts' to standard output"),
    ("ends early", "it ended with status 3 before 'epoch_end'; its standard error ends with"),
    ("two epochs", "was ordered; answer each order once"),
    ("other epoch", "it was asked for epoch 0, and its epoch_end says 1"),
    ("no file", "its parameters cannot be read"),
    ("other shape", "has shape (1, 6), not (8, 6)"),
    ("does not end", "it did not end within"),
]


@pytest.mark.parametrize(("fault", "sentence"), BREAKS)
def test_a_program_that_breaks_ends_in_one_sentence_and_leaves_nothing(
    registry: Registry, fault: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "does not end":
        monkeypatch.setattr(process, "END_S", 1.0)
    patience_s = 3 if "for 3 s" in sentence else 120
    found = train(registry, command(fault, patience_s=patience_s), check=False)
    assert found.status == "error"
    assert sentence in found.reason
    assert "\n" not in found.reason
    assert not list_left()


def test_what_was_not_verified_keeps_a_program_from_being_ranked(registry: Registry) -> None:
    found = train(registry, command("no edges"), "mini-batch")
    assert "it does not state its edges" in why_not(found)
    assert found.work is not None
    assert found.work.sampling.endswith("as program 'mine' states")
    found = train(registry, command("more edges"), "mini-batch")
    assert "its edges in layer" in why_not(found)


def test_fewer_seeds_are_other_work(registry: Registry) -> None:
    found = train(registry, command("skips and says so"), "mini-batch", check=False)
    assert found.work is not None
    assert found.work.seeds < 30


def test_a_refusal_is_a_skipped_row(registry: Registry) -> None:
    found = train(registry, command("refuses"))
    assert (found.status, found.reason) == ("skipped", "it has no licence here.")
    with pytest.raises(
        IncompatiblePartsError, match="does not train model 'gcn'; its models are sage"
    ):
        train(registry, command(models=("sage",)))
    found = train(registry, command(command=("no-such-command",)))
    assert found.status == "error"
    assert "its command 'no-such-command' cannot be started: No such file" in found.reason


def make_small_task() -> Task:
    return make_task(make_setting(make_request()), "full-graph")


def test_a_program_has_its_limits_and_stands_still_between_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    task, folders = make_small_task(), TaskFolders()
    training = CommandTraining(command("limits"), task, folders.write(task))
    try:
        assert len(task.cores) == 1
        assert training.versions["cores"] == str(list(task.cores))
        assert training.versions["threads"] == "1"
        assert training.versions["memory"] == str(task.memory_bytes)
        assert training.versions["path"] == ""
        for epoch in range(2):
            training.run_epoch(epoch)
            (program,) = list_descendants(training.keeper)
            # The signal takes effect when the program is next given a core.
            until_s = time.monotonic() + 10
            while find_state(program) != "T" and time.monotonic() < until_s:
                time.sleep(0.01)
            assert find_state(program) == "T"
        training.close()
    finally:
        training.kill()
        folders.close()
    assert not list_left()


@pytest.mark.parametrize("scaling", ["none", "rows"])
def test_the_dataset_of_a_task_can_be_loaded(scaling: datasets.ScalingChoice) -> None:
    """Sparse features are written dense, scaled or not."""
    task = make_small_task()
    sparse = scipy.sparse.csr_matrix(np.eye(*task.dataset.features.shape, dtype=np.float32))
    unscaled = dataclasses.replace(
        task.dataset, features=sparse, feature_scaling="none", stored_digest=""
    )
    scaled = datasets.scale_features(unscaled, scaling)
    folders = TaskFolders()
    try:
        folder = folders.write(dataclasses.replace(task, dataset=scaled))
        loaded = datasets.load(str(folder / "dataset"))
    finally:
        folders.close()
    np.testing.assert_array_equal(loaded.features, scaled.features.toarray())
    np.testing.assert_array_equal(loaded.train_mask, task.dataset.train_mask)
    assert (loaded.digest() == unscaled.digest()) == (scaling == "rows")


def test_a_program_that_nobody_ends_is_ended() -> None:
    task, folders = make_small_task(), TaskFolders()
    training = CommandTraining(command(), task, folders.write(task))
    assert list_left()
    del training
    assert not list_left()


class Own(Program):
    """The initial parameters are all that it returns."""

    name = "own"
    modes = ("full-graph",)
    models = ("gcn",)

    def refuses(self, task: Task) -> str | None:
        return "it trains one epoch." if task.workload.epochs == 1 else None

    def open(self, task: Task) -> ProgramSession:
        return OwnSession(task)


class OwnSession(ProgramSession):
    def __init__(self, task: Task) -> None:
        self._task = task

    def run_epoch(self, epoch: int) -> EpochReport:
        time.sleep(0.001)
        return EpochReport(loss=1.0, updates=1, seeds=30)

    def parameters(self) -> Parameters:
        return self._task.parameters


def test_a_stage_may_last_as_long_as_the_order_allows() -> None:
    """The message of an epoch's beginning may be read late, which makes the epoch look shorter."""
    report = EpochReport(loss=1.0, updates=1, seeds=1, stages={"sample": 0.00804})
    check_seconds(TimedEpoch(report, 0.00753, 0.0006), 9)
    with pytest.raises(
        ProgramFailedError, match=r"0.00804 s of sample in epoch 9, which took 0.00"
    ):
        check_seconds(TimedEpoch(report, 0.00753, 0.0), 9)


def test_a_class_is_a_program_too() -> None:
    registry = plugins.load(objects=[Own])
    found = train(registry, registry.program("own"))
    assert found.status == "done"
    assert found.program is not None
    assert found.program.module.endswith("test_programs.Own")
    assert "the loss of epoch 0" in why_not(found)
    with pytest.raises(PluginError, match="there is no program 'mien'"):
        registry.program("mien")


def test_a_programs_file_is_read_and_its_faults_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = 'name = "mine"\ncommand = ["x"]\nmodes = ["full-graph"]\nmodels = ["gcn"]\n'
    file.write_text(f'{text}patience = 7\n[environment]\nA = "1"\n')
    program = read_program(file)
    assert (program.folder, program.patience_s) == (str(tmp_path), 7)
    assert program.environment == {"A": "1"}
    for wrong, sentence in (
        (text.replace("full-graph", "full"), "at modes"),
        (f"{text}colour = 1\n", "there is no key 'colour'"),
        (text.replace("command", "commands"), "there is no key|command is missing"),
        ("name = [", "not valid TOML"),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=sentence):
            read_program(file)


def test_a_program_dies_with_gnnbench(tmp_path: Path) -> None:
    """The keeper ends a program, and what it started, when its own starter is killed."""
    sleep = f"{sys.executable} -S -c 'import time; time.sleep(1000)' {HONEST}"
    script = (
        "import sys, time; from pathlib import Path;"
        "from gnnbench.programs.process import ProgramProcess;"
        "from tests.programs.test_programs import command, GRAPH;"
        "from gnnbench import datasets; from gnnbench.records import Task, Workload;"
        "task = Task('full-graph', None, None, {}, 1, (0,), 1 << 34);"
        f"words = ('sh', '-c', {f'setsid {sleep} & exec {sleep}'!r});"
        f"kept = ProgramProcess(command(command=words), task, Path({str(tmp_path)!r}));"
        "print('started', flush=True); time.sleep(1000)"
    )
    root = HONEST.parents[2]
    path = os.pathsep.join((str(root), str(root / "plugins")))
    starter = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert starter.stdout is not None
    until_s = time.monotonic() + 120
    try:
        assert starter.stdout.readline() == b"started\n"
        while len(list_left()) < 2 and time.monotonic() < until_s:
            time.sleep(0.05)
        assert len(list_left()) == 2
    finally:
        starter.kill()
        starter.wait()
    while list_left() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not list_left()


@pytest.mark.long
def test_a_program_runs_in_an_environment_of_its_own(registry: Registry, tmp_path: Path) -> None:
    """The other environment has another NumPy, and neither torch nor anything of gnnbench."""
    home, version = tmp_path / "other", "1.26.4"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    python = str(home / "bin" / "python")
    # `make test` pins the versions of this environment through the variable.
    unpinned = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
    install = [python, "-m", "pip", "install", "-q", f"numpy=={version}"]
    subprocess.run(install, check=True, env=unpinned)
    assert np.__version__ != version
    for mode in ("full-graph", "mini-batch"):
        found = train(registry, command(command=(python, str(HONEST), "{task}")), mode)
        assert (found.status, found.reason, why_not(found)) == ("done", "", "")
        assert found.program is not None
        assert found.program.versions == {"numpy": version}


def test_each_rounded_course_rounds_otherwise(registry: Registry) -> None:
    courses = References(registry).full_graph(make_setting(make_request()))._rounded
    found = [course.train(EPOCHS).parameters[0] for course in courses]
    assert len({float(weight.sum()) for weight in found}) == len(courses)


def test_the_error_of_a_course_is_that_of_its_worst_epoch(registry: Registry) -> None:
    reference = References(registry).full_graph(make_setting(make_request()))
    exact = reference._exact.train(EPOCHS)
    losses = list(exact.losses[:EPOCHS])
    losses[1] *= 1.5
    names = zip(reference._names, exact.parameters, strict=True)
    found = reference.judge(losses, {name: weight.numpy() for name, weight in names})
    assert found.error == pytest.approx(0.5)
    assert "the loss of epoch 1 is off by" in found.fault


def test_a_value_outside_the_spread_is_found_and_one_inside_is_not() -> None:
    reference = (1.0, 1.1, 0.9, 1.05, 0.95, 1.0)
    inside = spread.Quantity("it", 1.2, reference, 0.002)
    outside = spread.Quantity("it", 2.0, reference, 0.002)
    assert spread.find_outside([inside, inside]) is None
    found = spread.find_outside([inside, outside])
    assert found is not None
    assert found[0] is outside
    assert found[1] < 0.8 < 1.2 < found[2]
    # Student's quantile with 5 degrees of freedom at 1 - 0.01 / 2, sqrt(1 + 1/6), s = 0.0707.
    _, low, high = spread.find_outside([outside]) or (outside, 0.0, 0.0)
    assert (low, high) == pytest.approx((1 - 0.3080, 1 + 0.3080), abs=5e-4)


def test_a_new_program_works_and_passes_its_check(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    made = run("programs", "new", "mine", "--out", tmp_path)
    assert made.exit_code == 0
    table = tmp_path / "mine.toml"
    result = run("programs", "check", table, "--json", tmp_path / "check.json")
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "check.json").read_text())
    assert document["counts"] == {"passed": 1, "not-ranked": 0, "failed": 0, "refused": 0}
    assert run("programs", "new", "mine", "--out", tmp_path).exit_code == 2


def test_strategies_are_set_beside_the_programs_that_they_rebuild(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "HIDDEN", 6)
    monkeypatch.setattr(beside, "EPOCHS", EPOCHS)
    offered = {
        "mine": command(peer="reference"),
        "other": command("false losses", name="other", peer="reference", modes=("full-graph",)),
    }
    table = beside.measure(dataclasses.replace(registry, programs=offered), [GRAPH])
    full, batches = table.rows
    assert (full.label, batches.label) == (f"{GRAPH}, full-graph, gcn", f"{GRAPH}, mini-batch, gcn")
    ratio, low, high, *others = full.cells
    assert ratio.provenance == "measured"
    assert low.value is not None
    assert high.value is not None
    assert ratio.value is not None
    assert low.value <= ratio.value <= high.value
    assert [cell.text for cell in others] == ["-", "-", "-"]
    assert any("other is not equal to the reference" in note for note in table.notes)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The TOML file of the honest program."""
    file = tmp_path / "mine.toml"
    file.write_text(
        f'name = "mine"\ncommand = ["{{python}}", "{HONEST}", "{{task}}"]\n'
        'modes = ["full-graph"]\nmodels = ["gcn"]\n'
    )
    return file


SMALL = ("--dataset", GRAPH, "--hidden", "6", "--epochs", "5", "--threads", "1")


def test_compare_ranks_a_program_beside_a_strategy(
    run: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    words = ("compare", "--plugins", "reference", "--mode", "full-graph", "--program", table)
    json_path, page = tmp_path / "result.json", tmp_path / "page.html"
    result = run(*words, *SMALL, "--json", json_path, "--html", page)
    assert result.exit_code == 0, result.output
    document = json.loads(json_path.read_text())
    assert document["platform"]["name"] == "local"  # a program is only timed here
    ours, theirs = document["runs"]
    assert "program" not in ours
    assert theirs["parts"] is None
    assert theirs["program"]["name"] == "mine"
    assert theirs["program"]["command"][-1] == "{task}"
    assert "numpy" in theirs["program"]["environment"]["versions"]
    assert (theirs["work"]["ranked"], theirs["work"]["why_not"]) == (True, "")
    assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-5)
    # Rows take turns, so that they have as many epochs.
    counts = [len(run["metrics"]["epoch_time"]["samples"]) for run in (ours, theirs)]
    assert counts[1] == EPOCHS + 3
    assert "mine" in page.read_text()
    assert "mine" in run("compare", json_path, json_path).output


def test_options_that_would_have_no_effect_are_refused(
    run: Callable[..., Result], table: Path
) -> None:
    for words, sentence in (
        (("--program", table, "--processes", "2"), "--processes is for strategies alone"),
        (("--program", table, "--swap", "kernel=dgl"), "no strategy is named that has parts"),
        (("--program", table, "--program", table), "program 'mine' is named twice"),
        (("--program", table, "--mode", "mini-batch"), "it trains full-graph only"),
        (("--program", table, "--platform", "epyc7543x4-4xa100"), "only timed on this machine"),
        (("--program", "pyg-lop"), "did you mean 'pyg-loop'"),
    ):
        result = run("compare", *words, *SMALL)
        assert result.exit_code == 2, words
        assert sentence in " ".join(result.stderr.split())


def test_python_compares_programs_too(table: Path) -> None:
    sizes = {"dataset": GRAPH, "hidden": 6, "epochs": EPOCHS, "threads": 1}
    result = gnnbench.compare(programs=[table, Own], **sizes)
    frame = result.frame().set_index("label")
    assert list(frame["ranked"]) == [True, False]
    assert frame.loc["mine", "kernel"] is None
    assert "mine" in result._repr_html_()
    with pytest.raises(UsageError, match="is no program"):
        gnnbench.compare("reference", programs=[3])


def test_a_sweep_runs_programs_again_when_they_have_changed(
    run: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    grid = tmp_path / "sweep.toml"
    grid.write_text(
        f'datasets = ["{GRAPH}"]\nstrategies = ["reference"]\nplatforms = ["local"]\n'
        f'programs = ["{table}"]\nepochs = 2\nhidden = 6\n'
    )
    registry = plugins.load()
    (configuration,) = read_grid(grid).configurations
    keys = []
    for text in (table.read_text(), table.read_text().replace('"{task}"', '"{task}", ""')):
        table.write_text(text)
        keys.append(find_key(configuration, {}, SourceDigests(registry)))
    assert keys[0] != keys[1]
    result = run("sweep", grid, "--store", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert "mine" in run("report", tmp_path / "store").output


def test_programs_are_listed(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run("programs", "list", "--json", tmp_path / "all.json").exit_code == 0
    found = {each["name"] for each in json.loads((tmp_path / "all.json").read_text())["programs"]}
    assert {"pyg-loop", "dgl-loop"} <= found
