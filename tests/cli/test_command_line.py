"""What holds for every command: exit status, one-sentence errors, clean output, quick start."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gnnbench
import gnnbench.comparison
import gnnbench.datasets
import gnnbench.plugins
from gnnbench import preparation
from gnnbench.cli import options
from gnnbench.errors import DatasetError, GnnbenchError, Interrupted
from gnnbench.models import MODELS
from gnnbench.records import PART_KINDS
from tests.report.example_comparison import every_status, make_comparison, make_failure, make_run

# The modules, which the package's names of the same spelling (the commands) hide.
COMPARE_COMMAND = sys.modules["gnnbench.cli.compare"]


@pytest.fixture
def small(tmp_path) -> Path:
    """A dataset file of 60 vertices, so that loading costs nothing."""
    path = tmp_path / "small.npz"
    gnnbench.datasets.save_npz(
        gnnbench.datasets.load("sbm:vertices=60,edges=200,features=4,classes=3"), path
    )
    return path


@pytest.fixture
def answer(monkeypatch, small):
    """Makes ``compare`` return or raise what a test wants, without training."""

    def set_answer(result) -> list[str]:
        def compare(request, registry, progress, command, processes):
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(gnnbench.comparison, "compare", compare)
        return ["compare", "--plugins", "reference", "--dataset", str(small)]

    return set_answer


def one_sentence(result, status: int) -> str:
    """The error line of a command that must have failed with ``status``."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("gnnbench: error: ")
    assert lines[0].endswith((".", "?"))
    return lines[0]


# --------------------------------------------------------------------------- starting


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys; from gnnbench.cli import main\n"
        "try: main(['compare', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'scipy', 'rich', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--target-accuracy" in done.stdout


def test_help_names_every_option_of_the_contract(run):
    text = run("compare", "--help").stdout
    for option in (
        "--plugins", "--dataset", "--model", "--layers", "--hidden", "--epochs", "--batch-size",
        "--fanouts", "--platform", "--swap", "--set", "--repeats", "--seed", "--threads",
        "--target-accuracy", "--json", "--trace", "--html", "--plugin", "--no-check", "--debug",
    ):  # fmt: skip
        assert f"{option} " in text


@pytest.mark.parametrize(
    "words",
    [
        ("compare",), ("plugins",), ("plugins", "list"), ("plugins", "show"), ("plugins", "check"),
        ("plugins", "new"), ("datasets",), ("datasets", "list"), ("datasets", "info"),
        ("datasets", "import"), ("datasets", "make"), ("platforms",), ("platforms", "list"),
        ("platforms", "show"), ("platforms", "probe"), ("ablate",), ("plan",), ("reproduce",),
        ("sweep",), ("report",),
    ],
)  # fmt: skip
def test_every_command_takes_json_and_debug(run, words):
    text = run(*words, "--help").stdout
    assert "--json" in text
    assert "--debug" in text


@pytest.mark.parametrize("group", ["plugins", "datasets", "platforms"])
def test_options_before_a_subcommand_are_not_lost_silently(run, group):
    assert "options go after 'list'" in one_sentence(run(group, "--json", "-", "list"), 2)


def test_names_spelt_out_for_speed_are_the_real_ones():
    assert tuple(MODELS) == options.MODEL_NAMES
    assert PART_KINDS == preparation.PART_NAMES


def test_version(run):
    assert run("--version").stdout == f"gnnbench, version {gnnbench.__version__}\n"


def test_it_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "gnnbench", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == ("gnnbench: error: No such command 'nonsense'. See 'gnnbench --help'.\n")


# --------------------------------------------------------------------------- exit status


def test_done_is_0(run, answer):
    full = make_failure("dgl", "out-of-memory", "gpu0 is out of memory.")
    result = run(*answer(make_comparison(make_run("reference"), full)))
    assert result.exit_code == 0
    assert "out-of-memory: gpu0 is out of memory." in result.stdout


def test_a_run_not_equal_to_the_reference_is_1(run, answer):
    result = run(*answer(make_comparison(make_run("reference"), make_run("b", fault="it is off"))))
    assert result.exit_code == 1
    assert "not ranked: b (not equal to the reference: it is off)." in result.stdout


@pytest.mark.parametrize("others", [0, 1])
def test_a_failed_run_is_3(run, answer, others):
    runs = [make_run("a", fault="it is off")] * others
    result = run(*answer(make_comparison(*runs, make_failure("b", "error", "ValueError: no"))))
    assert result.exit_code == 3
    assert "error: ValueError: no" in result.stdout


def test_nothing_done_is_4(run, answer):
    runs = [make_failure("a", "skipped", "no."), make_failure("b", "out-of-memory", "full.")]
    assert run(*answer(make_comparison(*runs))).exit_code == 4


def test_wrong_usage_is_2(run, answer):
    words = answer(DatasetError("dataset 'x' has no labels;\nadd some."))
    assert one_sentence(run(*words), 2).endswith("dataset 'x' has no labels; add some.")


def test_a_deliberate_failure_keeps_its_status(run, answer):
    assert "disk is full" in one_sentence(run(*answer(GnnbenchError("disk is full."))), 3)


def test_an_unexpected_error_is_one_sentence_and_3(run, answer):
    line = one_sentence(run(*answer(ZeroDivisionError("by\nzero"))), 3)
    assert "unexpected ZeroDivisionError: by zero." in line
    assert "--debug" in line


def test_too_little_memory_is_no_surprise(run, answer):
    line = one_sentence(run(*answer(MemoryError("Unable to allocate 9 TiB."))), 3)
    assert "not enough memory for what was asked for (Unable to allocate 9 TiB); ask for" in line
    line = one_sentence(run(*answer(MemoryError())), 3)
    assert "not enough memory for what was asked for; ask for a smaller graph" in line


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_the_traceback(run, answer, place, monkeypatch):
    monkeypatch.setenv("GNNBENCH_DEBUG", "")  # which --debug sets; restored afterwards
    words = answer(ZeroDivisionError("by zero"))
    words = ["--debug", *words] if place == "before" else [*words, "--debug"]
    result = run(*words)
    assert result.exit_code == 3
    assert "Traceback (most recent call last)" in result.stderr


def test_an_interrupt_is_130_without_a_traceback(run, answer):
    result = run(*answer(KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.stderr.strip() == "gnnbench: error: interrupted."
    where = (("load", 7, "host"), ("propagate", 5, "gpu1"))
    result = run(*answer(Interrupted(where)))
    assert result.exit_code == 130
    assert result.stderr.strip() == (
        "gnnbench: error: interrupted in stage load of round 7 on host, stage propagate of round 5 "
        "on gpu1."
    )


#: A plugin that offers no strategy, and interrupts its process in the midst of a stage.
INTERRUPTING = """
import os
import signal

from gnnbench.hookspecs import hookimpl
from gnnbench.lowering.mini_batch import MiniBatchLowering

load = MiniBatchLowering.load


def interrupted(lowering, round_):
    if round_.index == 1:
        os.kill(os.getpid(), signal.SIGINT)
    return load(lowering, round_)


MiniBatchLowering.load = interrupted


@hookimpl
def gnnbench_strategy():
    return []
"""


def test_ctrl_c_in_a_run_of_one_thread_names_the_stage(tmp_path, small):
    """In a process of its own, which heeds interrupts wherever the tests are run from."""
    path = tmp_path / "interrupting.py"
    path.write_text(INTERRUPTING)
    words = ("compare", "--plugins", "hyscale", "--plugin", path, "--dataset", small)
    options = ("--platform", "local", "--batch-size", "8", "--threads", "1", "--no-check")
    unprefetched = ("--set", "communication.stages=0", "--set", "placement.design=false")
    ended = subprocess.run(
        [sys.executable, "-m", "gnnbench", *map(str, (*words, *options, *unprefetched))],
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.returncode == 130
    said = "gnnbench: error: interrupted in stage load of round 1 on host."
    assert ended.stderr.strip() == said


# --------------------------------------------------------------------------- output


def test_json_on_standard_output_is_alone_there(run, answer):
    result = run(*answer(every_status()), "--json", "-")
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert "gnnbench compare ·" in result.stderr
    assert result.exit_code == 3


def test_all_outputs_are_written(run, answer, tmp_path):
    words = answer(every_status())
    files = {name: tmp_path / name for name in ("json", "trace", "html")}
    result = run(*words, *(w for name, path in files.items() for w in (f"--{name}", path)))
    assert json.loads(files["json"].read_text())["schema"] == 1
    assert json.loads(files["trace"].read_text())["traceEvents"]
    assert files["html"].read_text().startswith("<!DOCTYPE html>")
    assert "gnnbench compare ·" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("option", ["--json", "--trace", "--html"])
def test_outputs_are_refused_before_anything_runs(run, answer, tmp_path, option):
    words = answer(AssertionError("it ran"))
    assert "is a folder" in one_sentence(run(*words, option, tmp_path), 2)
    lost = tmp_path / "none" / "file"
    assert "there is no folder" in one_sentence(run(*words, option, lost), 2)


def test_an_output_that_cannot_be_written_leaves_the_others(run, answer, tmp_path, monkeypatch):
    """A full disk, from whichever of the three outputs on."""
    from gnnbench.results import output

    words = answer(make_comparison(make_run("a")))
    real = output.publish
    for lost in ("json", "trace", "html"):
        files = {name: tmp_path / f"{lost}-{name}" for name in ("json", "trace", "html")}

        def publish(path, lost=files[lost].name, **given):
            if lost in path.name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, **given)

        monkeypatch.setattr(output, "publish", publish)
        result = run(*words, *(w for name, path in files.items() for w in (f"--{name}", path)))
        assert result.exit_code == 3
        assert result.stderr == (
            f"gnnbench: error: {files[lost]} could not be written: the disk is full.\n"
        )
        assert "a takes 118 ms an epoch" in result.stdout
        assert [name for name, path in files.items() if not path.exists()] == [lost]
        assert not list(tmp_path.glob("*.tmp"))


def test_a_folder_that_vanishes_meanwhile_costs_one_output(run, answer, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    answer(make_comparison(make_run("a")))
    fake = gnnbench.comparison.compare

    def compare(*given):
        folder.rmdir()
        return fake(*given)

    monkeypatch.setattr(gnnbench.comparison, "compare", compare)
    words = ("compare", "--plugins", "reference", "--dataset", tmp_path / "small.npz")
    page = tmp_path / "page.html"
    result = run(*words, "--json", folder / "out.json", "--html", page)
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"gnnbench: error: {folder / 'out.json'} cannot be written: there is no folder {folder}; "
        f"make it."
    ]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "a takes 118 ms" in result.stdout


def test_a_full_device_costs_one_output(run, answer, tmp_path):
    page = tmp_path / "page.html"
    words = answer(make_comparison(make_run("a")))
    result = run(*words, "--json", "/dev/full", "--html", page)
    assert result.exit_code == 3
    assert "/dev/full could not be written: the disk is full." in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert page.exists()


def test_a_full_standard_output_costs_only_the_table(small, tmp_path):
    found = tmp_path / "found.json"
    words = ("compare", "--plugins", "reference", "--dataset", small, "--json", found)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gnnbench", *map(str, words)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=300,
        )  # fmt: skip
    assert json.loads(found.read_text())["runs"][0]["status"] == "done"
    assert "standard output could not be written: the disk is full." in ended.stderr
    assert ended.returncode == 3


def test_an_interrupted_comparison_is_told_in_every_output(run, answer, tmp_path):
    cut = replace(
        make_comparison(make_run("a"), make_failure("b", "skipped", "it was interrupted.")),
        interrupted="interrupted in stage load.",
    )
    files = {name: tmp_path / name for name in ("json", "html")}
    words = [w for name, path in files.items() for w in (f"--{name}", path)]
    result = run(*answer(cut), *words)
    assert result.exit_code == 130
    assert result.stderr == "gnnbench: error: interrupted in stage load.\n"
    document = json.loads(files["json"].read_text())
    assert document["interrupted"] == "interrupted in stage load."
    assert [entry["status"] for entry in document["runs"]] == ["done", "skipped"]
    assert "interrupted in stage load." in files["html"].read_text()
    assert "a takes 118 ms" in result.stdout


#: A placement that ends the process when it is asked which devices it trains on.
LEAVING = """
import sys
from dataclasses import dataclass
from typing import ClassVar

from gnnbench.hookspecs import hookimpl
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.reference.placement import SinglePlacement


@dataclass(frozen=True)
class Leaving(SinglePlacement):
    name: ClassVar[str] = "leaving"

    def trainers(self, platform):
        sys.exit(0)


@hookimpl
def gnnbench_placement():
    return [Leaving]


@hookimpl
def gnnbench_strategy():
    parts = Parts("neighbour", "leaving", "vanilla", "host", "torch")
    return [Strategy("leaving", "for a test", "gnnbench", {"mini-batch": parts})]
"""


def test_a_part_cannot_end_the_command_while_a_platform_is_looked_for(run, small, tmp_path):
    path = tmp_path / "leaving.py"
    path.write_text(LEAVING)
    result = run(
        "compare", "--plugins", "leaving,reference", "--plugin", path, "--dataset", small,
        "--threads", "1", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 3
    status = {entry["label"]: entry["status"] for entry in json.loads(result.stdout)["runs"]}
    assert status == {"leaving": "error", "reference": "done"}


def test_outputs_may_not_overwrite_each_other(run, answer, tmp_path):
    words = answer(AssertionError("it ran"))
    file = tmp_path / "one"
    line = one_sentence(run(*words, "--json", file, "--html", file), 2)
    assert "named for two outputs" in line
    assert "only --json" in one_sentence(run(*words, "--html", "-"), 2)


def test_nothing_is_written_over_when_a_run_fails(run, answer, tmp_path):
    file = tmp_path / "result.json"
    file.write_text("precious")
    one_sentence(run(*answer(ValueError("no")), "--json", file), 3)
    assert file.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "small.npz"]


def test_no_progress_bar_where_it_is_no_terminal(run, answer):
    assert run(*answer(every_status())).stderr == ""


def test_a_progress_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with COMPARE_COMMAND.ProgressBar() as progress:
        progress.begin("hongtu", 4)
        progress.advance("hongtu")
        progress.end("hongtu", "done")
    shown = capsys.readouterr()
    assert "hongtu" in shown.err
    assert "/4" in shown.err
    assert shown.out == ""


# --------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--epochs", "0"), "'0' is not a whole number from 1 to"),
        (("--batch-size", "-3"), "'-3' is not a whole number from 1 to"),
        (("--hidden", "0"), "'--hidden'"),
        (("--layers", "0"), "'--layers'"),
        (("--repeats", "0"), "'--repeats'"),
        (("--threads", "0"), "'--threads'"),
        (("--seed", "-1"), "'--seed'"),
        (("--epochs", "many"), "'many' is not a whole number from 1 to"),
        (("--target-accuracy", "0"), "'--target-accuracy'"),
        (("--target-accuracy", "1.5"), "'--target-accuracy'"),
        (("--model", "mlp"), "there is no model 'mlp'; --model takes gcn, sage, gin"),
        (("--fanouts", "25"), "has 1 number for 2 layers"),
        (("--fanouts", "25,10,5"), "has 3 numbers for 2 layers"),
        (("--fanouts", "25,-1"), "0 stands for every neighbour"),
        (("--fanouts", "25,x"), "not a list of whole numbers"),
        (("--fanouts", ""), "not a list of whole numbers"),
        (("--swap", "communication"), "is not PART=NAME"),
        (("--swap", "transport=hongtu"), "there is no part 'transport'"),
        (("--set", "memory.device_bytes"), "is not PART.option=value"),
        (("--set", "device_bytes=2GB"), "is not PART.option=value"),
        (("--set", "memory.a=1", "--set", "memory.a=2"), "set twice"),
        (("--plugins", "a,,b"), "empty name"),
        (("--plugins", "dgl,dgl"), "named twice"),
        (("--plugins", "dgl:kernel=torch,dgl:kernel=torch"), "'dgl:kernel=torch' is named twice"),
        (("--plugins", "hongtu:native"), "is not PART=NAME"),
        (("--plugins", "hongtu:engine=native"), "there is no part 'engine'"),
        (("--plugins", ":kernel=native"), "empty name"),
        (("--plugins", "hongtu:kernel=naive"), "'naive'"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_wrong_options_are_one_sentence(run, answer, words, says):
    assert says in one_sentence(run(*answer(AssertionError("it ran")), *words), 2)


def test_plugins_must_be_named(run):
    assert "--plugins" in one_sentence(run("compare"), 2)


def test_the_request_is_what_was_asked_for(run, monkeypatch, small):
    seen = []

    def compare(request, registry, progress, command, processes):
        seen.append((request, command))
        return make_comparison(make_run("reference"))

    monkeypatch.setattr(gnnbench.comparison, "compare", compare)
    words = (
        f"compare --plugins reference,hongtu --dataset {small} --model gin --layers 3 --hidden 8 "
        "--epochs 7 --batch-size 16 --platform epyc7543x4-4xa100 --swap communication=vanilla "
        "--set memory.device_bytes=2GB --set sampler.chunks_per_partition=8 --repeats 2 --seed 5 "
        "--threads 1 --target-accuracy 0.9 --no-check"
    ).split()
    assert run(*words).exit_code == 0
    ((request, command),) = seen
    assert request.strategies == ("reference", "hongtu")
    assert request.workload.model == "gin"
    assert request.workload.dims == (4, 8, 8, 3)
    assert request.workload.fanouts == (25, 10, 10)
    assert (request.workload.epochs, request.workload.batch_size) == (7, 16)
    assert (request.workload.seed, request.workload.threads) == (5, 1)
    assert request.platform.name == "epyc7543x4-4xa100"
    assert request.swaps == (("communication", "vanilla"),)
    assert request.options == {
        "memory": {"device_bytes": "2GB"},
        "sampler": {"chunks_per_partition": "8"},
    }
    assert (request.repeats, request.target_accuracy, request.check) == (2, 0.9, False)
    assert command == ("gnnbench", *words)


def test_a_broken_plugin_is_a_warning(run, monkeypatch):
    registry = replace(gnnbench.plugins.load(), problems=("plugin 'x' does not import.",))
    monkeypatch.setattr(gnnbench.plugins, "load", lambda extra: registry)
    result = run("plugins", "list", "--json", "-")
    assert result.exit_code == 0
    assert "gnnbench: warning: plugin 'x' does not import." in result.stderr
    assert json.loads(result.stdout)["problems"] == ["plugin 'x' does not import."]


def test_columns_that_wrap_never_lose_text():
    import io

    from rich.console import Console

    from gnnbench.cli.options import print_rows

    for width in (30, 60, 120):
        stream = io.StringIO()
        words = "one two three four five six seven eight nine ten"
        print_rows(
            Console(file=stream, width=width), ("name", "n", "text"), [("a" * 12, "7", words)]
        )
        assert stream.getvalue().split()[3:] == ["a" * 12, "7", *words.split()]
