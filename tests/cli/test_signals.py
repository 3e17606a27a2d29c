"""Ctrl-C and SIGTERM end the command in one sentence from its first import on."""

import json
import signal
import subprocess
import sys

import pytest

#: Only prevents a hang.
HANGING_S = 600
ENDS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
    signal.SIGHUP: (129, "its terminal was closed"),
}
GRAPH = "sbm:vertices=60,edges=200,features=4,classes=2"
COMPARE = ("compare", "--plugins", "hongtu", "--dataset", GRAPH, "--epochs", "2")
COMPARE += ("--no-plain", "--no-check", "--threads", "1")

#: The command, to which a signal is sent as the import of a module begins.
IMPORTING = """
import importlib, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
number, where = int(sys.argv.pop(1)), sys.argv.pop(1)
find = importlib._bootstrap._find_spec

def find_spec(name, *given):
    if name == where:
        os.kill(os.getpid(), number)
    return find(name, *given)

importlib._bootstrap._find_spec = find_spec
from gnnbench.__main__ import start
start()
"""
#: Commands of one process that has imported everything. Each command runs in a fork, is sent a
#: signal where a function is called, and writes to files of its own. The exit statuses are printed.
CALLING = """
import importlib, json, os, signal, sys
import gnnbench.cli.compare, gnnbench.comparison, gnnbench.report, gnnbench.report.results.schema
from gnnbench import plugins
from gnnbench.__main__ import start
plugins.load()

def run(folder, number, handler, where, words):
    for descriptor, name in ((1, "out"), (2, "error")):
        os.dup2(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY), descriptor)
    signal.signal(signal.SIGINT, getattr(signal, handler))
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup would have it ignored
    module, names = where.split(":")
    *owners, last = names.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    function = getattr(owner, last)

    def sending(*given, **named):
        os.kill(os.getpid(), number)
        return function(*given, **named)

    setattr(owner, last, sending)
    sys.argv[1:] = words
    start()

for each in json.loads(sys.argv[1]):
    if os.fork() == 0:
        run(*each)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def run_python(program, *words):
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=HANGING_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("number", "where"),
    [
        (signal.SIGINT, "click"),
        (signal.SIGINT, "torch"),
        (signal.SIGTERM, "gnnbench_plugins.hongtu.search"),
    ],
)
def test_a_signal_ends_an_import(tmp_path, number, where):
    found = tmp_path / "found.json"
    ended = run_python(IMPORTING, str(int(number)), where, *COMPARE, "--json", str(found))
    status, word = ENDS[number]
    assert ended.stderr.strip() == f"gnnbench: error: {word}."
    assert (ended.returncode, ended.stdout, found.exists()) == (status, "", False)


#: By place in the code: the signal.
BEFORE = {
    "gnnbench.jobs.words:parse_strategies": signal.SIGTERM,
    "gnnbench.datasets.synthetic:check_size": signal.SIGINT,
}
IN_TRAINING = {
    "gnnbench_plugins.hongtu.sampler:read_sets": signal.SIGINT,
    "gnnbench.run.evaluate:Evaluator.evaluate": signal.SIGTERM,
}
AFTER = {"gnnbench.report.results.schema:to_document": signal.SIGHUP}
IGNORED, STAGE = "ignored", "stage"
#: One thread that does not prefetch.
UNPREFETCHED = ("compare", "--plugins", "hyscale", "--dataset", GRAPH, "--platform", "local")
UNPREFETCHED += ("--batch-size", "8", "--threads", "1", "--no-check")
UNPREFETCHED += ("--set", "communication.stages=0", "--set", "placement.design=false")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """By place: the folder, exit status, output and error of a command that has ended."""
    commands = {}
    for where, number in (BEFORE | IN_TRAINING | AFTER).items():
        folder = tmp_path_factory.mktemp("called")
        (folder / "spilt").mkdir()
        words = [*COMPARE, "--json", str(folder / "found.json")]
        if where in IN_TRAINING:
            words += ["--set", f"memory.spill_dir={folder}/spilt"]
            words += ["--set", "memory.host_bytes=40kB"]
        commands[where] = [str(folder), int(number), "default_int_handler", where, words]
    place, folder = next(iter(BEFORE)), tmp_path_factory.mktemp("ignored")
    commands[IGNORED] = [str(folder), int(signal.SIGINT), "SIG_IGN", place, [*COMPARE]]
    place, folder = "gnnbench.lowering.mini_batch:MiniBatchLowering.load", folder / "stage"
    folder.mkdir()
    words = list(UNPREFETCHED)
    commands[STAGE] = [str(folder), int(signal.SIGINT), "default_int_handler", place, words]
    done = run_python(CALLING, json.dumps(list(commands.values())))
    assert done.stderr == ""
    found = {}
    for (where, command), status in zip(commands.items(), done.stdout.split(), strict=True):
        folder = tmp_path_factory.getbasetemp() / command[0]
        texts = [(folder / name).read_text() for name in ("out", "error")]
        found[where] = (folder, int(status), *texts)
    return found


@pytest.mark.parametrize(("where", "number"), (BEFORE | IN_TRAINING | AFTER).items())
def test_a_signal_ends_the_command_wherever_it_comes(ended, where, number):
    """Training writes files, and their folder is empty again afterwards."""
    folder, status, out, error = ended[where]
    told = error.strip().replace("; 1 finished item is kept, continue with --resume", "")
    assert (status, told) == (ENDS[number][0], f"gnnbench: error: {ENDS[number][1]}.")
    assert list((folder / "spilt").iterdir()) == []
    if where in IN_TRAINING:  # a result says that it is not complete
        assert "interrupted" in out
        assert json.loads((folder / "found.json").read_text())["interrupted"]
    else:
        assert out == "" or where in AFTER
        assert {path.name for path in folder.iterdir()} == {"spilt", "out", "error"}


def test_an_interrupt_names_the_stage(ended):
    _, status, _, error = ended[STAGE]
    said = "gnnbench: error: interrupted in stage load of round 0 on host."
    assert (status, error.strip()) == (130, said)


def test_ignored_signals_stay_ignored(ended):
    """A shell has its background jobs ignore SIGINT."""
    _, status, out, error = ended[IGNORED]
    assert (status, error) == (0, "")
    assert "hongtu" in out


def test_a_current_folder_that_was_deleted_is_said(tmp_path):
    program = (
        f"import os; os.rmdir({str(tmp_path)!r}); from gnnbench.__main__ import start; start()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "plugins", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANGING_S,
    )
    said = "gnnbench: error: the current folder was deleted; go to one that is there.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)
