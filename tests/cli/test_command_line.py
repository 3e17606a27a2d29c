"""What holds for every command: exit status, one-sentence errors, clean output, quick start."""

import errno
import json
import os
import sys
from dataclasses import replace

import pytest

import gnnbench
import gnnbench.cli
import gnnbench.comparison
import gnnbench.datasets
import gnnbench.plugins
from gnnbench.errors import DatasetError, GnnbenchError, Interrupted
from gnnbench.jobs import limits
from gnnbench.jobs import words as job_words
from gnnbench.models import MODELS
from gnnbench.records import PART_KINDS
from tests.commands import one_sentence, run_python
from tests.report.example_comparison import make_comparison, make_failure, make_run


@pytest.fixture
def answer(monkeypatch, small):
    """Makes ``compare`` return or raise what a test wants, without training."""

    def set_answer(result):
        def compare(request, registry, command, processes):
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(gnnbench.comparison, "compare", compare)
        return ["compare", "--plugins", "reference", "--dataset", str(small)]

    return set_answer


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
    assert tuple(MODELS) == limits.MODEL_NAMES
    assert PART_KINDS == job_words.PART_NAMES


def test_version(run):
    assert run("--version").stdout == f"gnnbench, version {gnnbench.__version__}\n"


def test_it_runs_as_a_module():
    done = run_python("-m", "gnnbench", "nonsense")
    assert done.returncode == 2
    assert done.stderr == ("gnnbench: error: No such command 'nonsense'. See 'gnnbench --help'.\n")


DONE = make_run("reference")
UNEQUAL = make_run("a", fault="it is off")
FAILED = make_failure("b", "error", "ValueError: no")
FULL = make_failure("dgl", "out-of-memory", "gpu0 is out of memory.")
SKIPPED = make_failure("c", "skipped", "no.")


@pytest.mark.parametrize(
    ("runs", "status", "says"),
    [
        ((DONE, FULL), 0, "out-of-memory: gpu0 is out of memory."),
        ((DONE, UNEQUAL), 1, "not ranked: a (not equal to the reference: it is off)."),
        ((FAILED,), 3, "error: ValueError: no"),
        ((UNEQUAL, FAILED), 3, "error: ValueError: no"),
        ((SKIPPED, FULL), 4, "skipped: no."),
    ],
)
def test_the_exit_status_is_that_of_the_worst_run(run, answer, runs, status, says):
    result = run(*answer(make_comparison(*runs)))
    assert result.exit_code == status
    assert says in result.stdout


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (DatasetError("dataset 'x' has no labels;\nadd some."), 2, "has no labels; add some."),
        (GnnbenchError("disk is full."), 3, "gnnbench: error: disk is full."),
        (
            ZeroDivisionError("by\nzero"),
            3,
            "unexpected ZeroDivisionError: by zero. Run again with --debug for the traceback.",
        ),
        (
            MemoryError("Unable to allocate 9 TiB."),
            3,
            "not enough memory for what was asked for (Unable to allocate 9 TiB); ask for a",
        ),
        (EOFError("cut off"), 3, "unexpected UnexpectedEndError: cut off. Run again"),
        (MemoryError(), 3, "not enough memory for what was asked for; ask for a smaller graph"),
    ],
)
def test_an_error_is_one_sentence(run, answer, error, status, says):
    assert says in one_sentence(run(*answer(error)), status)


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


@pytest.mark.parametrize("option", ["--json", "--trace", "--html"])
def test_outputs_are_refused_before_anything_runs(run, answer, tmp_path, option):
    words = answer(AssertionError("it ran"))
    assert "is a folder" in one_sentence(run(*words, option, tmp_path), 2)
    lost = tmp_path / "none" / "file"
    assert "there is no folder" in one_sentence(run(*words, option, lost), 2)


def test_an_output_that_cannot_be_written_leaves_the_others(run, answer, tmp_path, monkeypatch):
    """A full disk, from whichever of the three outputs on."""
    from gnnbench.report.results import output

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


def test_a_full_standard_output_costs_only_the_table(answer, tmp_path, monkeypatch, capfd):
    found = tmp_path / "found.json"
    words = [*answer(make_comparison(make_run("a"))), "--json", str(found)]
    full = os.open("/dev/full", os.O_WRONLY)
    with monkeypatch.context() as patch, open(full, "w", buffering=1, closefd=False) as stream:
        patch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            gnnbench.cli.main(words, prog_name="gnnbench")
    os.close(full)
    assert ended.value.code == 3
    assert json.loads(found.read_text())["runs"][0]["status"] == "done"
    assert "standard output could not be written: the disk is full." in capfd.readouterr().err


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

from gnnbench.hookspecs import hookimpl
from gnnbench_plugins.reference.placement import SinglePlacement
from suites.faults.fault import make_part, offer

LEAVING = make_part(SinglePlacement, "leaving", "ends", trainers=lambda *given: sys.exit(0))


@hookimpl
def gnnbench_placement():
    return [LEAVING]


@hookimpl
def gnnbench_strategy():
    return [offer(LEAVING)]
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


def test_nothing_is_written_over_when_a_run_fails(run, answer, tmp_path):
    file = tmp_path / "result.json"
    file.write_text("precious")
    one_sentence(run(*answer(ValueError("no")), "--json", file), 3)
    assert file.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "small.npz"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "mlp"), "there is no model 'mlp'; --model takes gcn, sage, gin"),
        (("--fanouts", "25"), "fanouts are [25] for 2 layers; give one number for each"),
        (("--fanouts", "25,10,5"), "fanouts are [25, 10, 5] for 2 layers"),
        (("--fanouts", "25,-1"), "0 stands for every neighbour"),
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
        (("--html", "-"), "only --json"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_wrong_options_are_one_sentence(run, answer, words, says):
    assert says in one_sentence(run(*answer(AssertionError("it ran")), *words), 2)


def test_plugins_must_be_named(run):
    assert "--plugins" in one_sentence(run("compare"), 2)


def test_the_request_is_what_was_asked_for(run, monkeypatch, small):
    seen = []

    def compare(request, registry, command, processes):
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
