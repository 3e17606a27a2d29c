"""Ctrl-C and SIGTERM end the command in one sentence from its first import on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

#: Protects from hanging alone.
HANGING_S = 600
#: Sends the process a signal where a function of a module is first called, or as a module's import
#: begins; in a library that takes whatever is raised there for something missing.
PROGRAM = """
import builtins, importlib, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
number, kind, where = int(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)

def send():
    os.kill(os.getpid(), number)

if kind == "import":
    find = importlib._bootstrap._find_spec

    def find_spec(name, *given):
        if name == where:
            try:
                send()
                for _ in range(1000): pass
            except BaseException:
                pass
        return find(name, *given)

    importlib._bootstrap._find_spec = find_spec
elif kind == "call":
    # In the module's own code, once it has run: tracing every call takes longer than the command.
    module, name = where.split(":")
    find = importlib._bootstrap._find_spec

    def find_spec(asked, *given):
        spec = find(asked, *given)
        if asked == module:
            execute = spec.loader.exec_module

            def exec_module(made):
                execute(made)
                *owners, last = name.split(".")
                for owner in owners:
                    made = getattr(made, owner)
                function = getattr(made, last)

                def sending(*given, **named):
                    send()
                    return function(*given, **named)

                setattr(made, last, sending)

            spec.loader.exec_module = exec_module
        return spec

    importlib._bootstrap._find_spec = find_spec
from gnnbench.__main__ import start
start()
"""
GRAPH = "sbm:vertices=60,edges=200,features=4,classes=2"
COMPARE = ("compare", "--plugins", "hongtu", "--dataset", GRAPH, "--epochs", "2", "--no-check")
ENDS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}


def run(number, kind, where, *words):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number)), kind, where, *words],
        capture_output=True,
        text=True,
        timeout=HANGING_S,
    )


#: Where a comparison has begun.
IN_TRAINING = (
    "gnnbench_plugins.hongtu.sampler:read_sets",
    "gnnbench.run.evaluate:Evaluator.evaluate",
)
#: Both signals before and in it, each at some of the places.
PLACES = (
    ("SIGINT", "import", "click"),
    ("SIGTERM", "import", "gnnbench.cli.reproduce"),
    ("SIGINT", "import", "torch"),
    ("SIGTERM", "import", "gnnbench_plugins.hongtu.search"),
    ("SIGINT", "call", "gnnbench.cli.compare:parse_strategies"),
    ("SIGTERM", "call", "gnnbench.plugins.loading:load"),
    ("SIGINT", "call", "gnnbench.datasets.synthetic:check_size"),
    ("SIGINT", "call", IN_TRAINING[0]),
    ("SIGTERM", "call", IN_TRAINING[1]),
    ("SIGTERM", "call", "gnnbench.results.schema:to_document"),
)


@pytest.mark.parametrize(("name", "kind", "where"), PLACES)
def test_a_signal_ends_the_command_wherever_it_comes(tmp_path, name, kind, where):
    """With files on the disk where training has begun: their folder is empty again."""
    number = signal.Signals[name]
    found, spilt = tmp_path / "found.json", tmp_path / "spilt"
    words = ("--json", str(found))
    if where in IN_TRAINING:
        spilt.mkdir()
        words += ("--set", f"memory.spill_dir={spilt}", "--set", "memory.host_bytes=40kB")
    ended = run(number, kind, where, *COMPARE, *words)
    status, word = ENDS[number]
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.strip() == f"gnnbench: error: {word}."
    if where in IN_TRAINING:  # what is done is told, and that the rest is not
        assert "interrupted" in ended.stdout
        assert json.loads(found.read_text())["interrupted"]
        assert list(spilt.iterdir()) == []
    else:
        assert ended.stdout == "" or where == "gnnbench.results.schema:to_document"
        assert list(tmp_path.iterdir()) == []


def test_ignored_signals_stay_ignored():
    """As what a shell runs in the background has them."""
    program = PROGRAM.replace("signal.default_int_handler", "signal.SIG_IGN")
    ended = subprocess.run(
        [
            *(sys.executable, "-c", program, str(int(signal.SIGINT))),
            *("call", "gnnbench.plugins.loading:load", *COMPARE),
        ],
        capture_output=True,
        text=True,
        timeout=HANGING_S,
    )
    assert ended.returncode == 0, ended.stderr
