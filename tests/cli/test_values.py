"""Numbers that mean nothing, or more than this machine has, are refused before anything runs."""

import importlib
import resource
import subprocess

import click
import pytest

from gnnbench import datasets, plugins
from gnnbench.cli import values
from gnnbench.errors import UsageError
from gnnbench.jobs import capacity
from gnnbench.jobs.limits import Whole
from gnnbench.machines import probe
from gnnbench.parts import parse_option
from tests.commands import one_sentence, run_python

#: The module; the package's attribute of that name is the command.
COMPARING = importlib.import_module("gnnbench.cli.compare")
GRAPH = "sbm:vertices=40,edges=120,features=4,classes=2"
COMPARE = ("compare", "--plugins", "hongtu", "--dataset", GRAPH)
ABLATE = ("ablate", "hongtu", "--dataset", GRAPH)
PLAN = ("plan", "hongtu", "--dataset", GRAPH)
DRAWN = {"--vertices": "1000", "--edges": "3000", "--dims": "8,4"}

NO_NUMBER = ("nan", "inf", "-inf", "1e30", "", "x", "9" * 400, "-1")
TOO_LARGE = (str(2**63), str(10**19))
NO_COUNT = (*NO_NUMBER, *TOO_LARGE, "0", "1.5")
WHOLE = (*NO_NUMBER, *TOO_LARGE, "1.5")

#: By option: what it takes, in the words of its refusal, and what it does not.
COMPARED = {
    "--learning-rate": ("above 0 and up to 1e+06", (*NO_NUMBER, *TOO_LARGE, "0", str(2**31))),
    "--target-accuracy": ("above 0 and up to 1", (*NO_NUMBER, *TOO_LARGE, "0", str(2**31), "1.01")),
    "--seed": ("a whole number from 0 to 9,223,372,036,854,775,807", WHOLE),
    "--layers": ("a whole number from 1 to 9,223,372,036,854,775,807", NO_COUNT),
    "--hidden": ("a whole number from 1 to 9,223,372,036,854,775,807", NO_COUNT),
    "--batch-size": ("a whole number from 1 to 9,223,372,036,854,775,807", NO_COUNT),
    "--epochs": ("a whole number from 1 to 9,223,372,036,854,775,807", NO_COUNT),
    "--repeats": ("a whole number from 1 to 9,223,372,036,854,775,807", NO_COUNT),
    "--threads": ("a whole number from 1 to 1,024", (*NO_COUNT, str(2**31), "1025")),
    "--fanouts": (
        "whole numbers from 0 to 2,147,483,647",
        (*WHOLE, str(2**31), "5,nan", f"{2**31},5", "5,-1", "5,", ","),
    ),
    "--set": (
        "a whole number from -9,223,372,036,854,775,807 to 9,223,372,036,854,775,807",
        tuple(f"sampler.chunks_per_partition={text}" for text in WHOLE if text != "-1"),
    ),
}
SEEDED = {"--seed": COMPARED["--seed"]}
PLANNED = {
    name: COMPARED[name] for name in ("--seed", "--layers", "--hidden", "--threads", "--set")
}
RANKED = {
    "--processes": ("a whole number from 2 to 1,024", (*NO_COUNT, "1", str(2**31))),
    "--patience": ("a whole number from 1 to 86,400", (*NO_COUNT, "86401")),
}
STREAMED = {
    "--vertices": ("a positive whole number below 1e+18", NO_COUNT),
    "--edges": ("a positive whole number below 1e+18", NO_COUNT),
    "--dims": (
        "whole numbers from 1 to 9,223,372,036,854,775,807",
        (*NO_COUNT, "8,nan", f"8,{2**63}", "8,0", "8,-1", "8", "8,"),
    ),
}
PROBED = {"--seconds": ("above 0 and up to 3600", (*NO_NUMBER, *TOO_LARGE, "0", str(2**31)))}
TABLE = [
    (words, option, text, range_)
    for words, options in (
        (COMPARE, COMPARED),
        (COMPARE, RANKED),
        (ABLATE, SEEDED),  # it has the options of compare
        (PLAN, PLANNED),
        (("datasets", "make", GRAPH), SEEDED),
        (("datasets", "info", GRAPH), SEEDED),
        (("platforms", "probe"), PROBED),
    )
    for option, (range_, texts) in options.items()
    for text in texts
]


@pytest.fixture
def nothing_begins(monkeypatch):
    """No dataset is loaded or made, no process started, nothing measured."""

    def refuse(*_, **__):
        raise AssertionError("it began")

    monkeypatch.setattr(datasets, "load", refuse)
    monkeypatch.setattr(datasets, "default_dataset", refuse)
    monkeypatch.setattr(COMPARING, "run_ranks", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(probe, "probe", refuse)


@pytest.mark.parametrize(
    ("words", "option", "text", "range_"),
    [
        pytest.param(*case, id=f"{' '.join(case[0][:2])} {case[1]}={case[2][:24]}")
        for case in TABLE
        if case[1] != "--set"
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    run, nothing_begins, words, option, text, range_
):
    line = one_sentence(run(*words, option, text))
    assert option in line
    assert range_ in line
    assert len(line) < 400


@pytest.mark.parametrize("option", STREAMED)
def test_sizes_of_a_graph_to_draw_are_refused_with_the_range(run, nothing_begins, option):
    range_, texts = STREAMED[option]
    for text in texts:
        given = DRAWN | {option: text}
        line = one_sentence(
            run("plan", "hongtu", *(word for pair in given.items() for word in pair))
        )
        assert option in line
        assert range_ in line


def test_an_option_of_a_part_is_refused_with_its_range():
    part = plugins.load().part("sampler", "hongtu")
    range_, texts = COMPARED["--set"]
    for text in texts:
        with pytest.raises(UsageError) as caught:
            parse_option(part, "chunks_per_partition", text.partition("=")[2])
        assert f"sampler.chunks_per_partition of sampler 'hongtu' takes {range_}" in str(
            caught.value
        )
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("size", ["9" * 400, "1e99", "1e18", "nan", "inf", "-1", "", "1e400"])
def test_a_size_in_bytes_is_refused_with_its_range(size):
    part = plugins.load().part("memory", "hongtu")
    with pytest.raises(UsageError, match=r"takes a size in bytes .* below 1e\+18, not"):
        parse_option(part, "device_bytes", size)


@pytest.mark.parametrize("words", [COMPARE, ABLATE], ids=["compare", "ablate"])
@pytest.mark.parametrize(
    ("given", "what"),
    [
        (("--hidden", str(2**31)), "a model with layers 2 and hidden 2147483648 takes"),
        (("--hidden", str(2**63 - 1)), "hidden 9223372036854775807 takes 3e+20 bytes or more"),
        (("--layers", "1000000"), "layers 1000000 and hidden 256 takes 1.05 TB or more"),
        (("--layers", str(2**62)), "layers 4611686018427387904 and hidden 256 takes"),
        (("--epochs", str(2**62)), "what is recorded of epochs 4611686018427387904 with"),
        (("--repeats", str(2**62)), "repeats 4611686018427387904 takes 5e+22 bytes or more"),
        (("--epochs", "2000000", "--repeats", "2000000"), "epochs 2000000 with repeats 2000000"),
    ],
)
def test_what_no_memory_can_hold_is_said_before_anything_is_loaded(
    run, nothing_begins, monkeypatch, words, given, what
):
    monkeypatch.setattr(capacity, "memory_bytes", lambda: 16 * 10**9)
    line = one_sentence(run(*words, *given))
    assert what in line
    assert "and this machine has 16.0 GB of memory; give fewer" in line


def test_a_layer_that_only_the_dataset_makes_too_wide_is_refused_before_it_is_made(
    run, monkeypatch
):
    """4 features and 2 classes: 6 weights for each hidden unit."""
    monkeypatch.setattr(capacity, "memory_bytes", lambda: 10**9)
    assert "takes 1.02 GB or more" in one_sentence(
        run(*COMPARE, "--hidden", str(10**9 // (6 * 16) + 200_000))
    )
    fits = 10**9 // (2 * 16) - 2_000  # of one feature and one class
    assert "takes 3.00 GB or more" in one_sentence(run(*COMPARE, "--hidden", str(fits)))


@pytest.mark.parametrize(
    "dims", ["2147483648,2147483648,2147483648", f"4,{2**63 - 1},4", "1,100000,100000"]
)
def test_weights_that_cannot_be_drawn_are_not_planned_for(run, nothing_begins, monkeypatch, dims):
    monkeypatch.setattr(capacity, "memory_bytes", lambda: 16 * 10**9)
    given = DRAWN | {"--dims": dims}
    line = one_sentence(run("plan", "hongtu", *(word for pair in given.items() for word in pair)))
    assert f"a model with dims {dims} takes" in line


def test_threads_that_cannot_be_started_are_refused_with_how_many_can(
    run, nothing_begins, monkeypatch
):
    """As where a limit of processes is low; OpenMP would end the process."""
    monkeypatch.setattr(capacity, "count_startable", lambda threads: min(threads, 130))
    line = one_sentence(run(*COMPARE, "--threads", "300"))
    assert "threads is 300, which is more than can be started here; the system takes up to 32." in (
        line
    )


def test_threads_are_counted_up_to_the_limit_of_the_system():
    """In a process of its own, whose address space has no room for the stacks of many."""
    program = (
        "from gnnbench.jobs.capacity import count_startable as count\n"
        "few, many = count(8), count(100_000)\n"
        "print(few, many)\n"
    )

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))

    few, many = map(int, run_python("-c", program, check=True, preexec_fn=limit).stdout.split())
    assert few == 8
    assert 8 < many < 100_000


def test_memory_that_the_system_refuses_is_said_in_a_sentence(run, monkeypatch):
    def load(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    monkeypatch.setattr(datasets, "load", load)
    result = run(*COMPARE)
    assert result.exit_code == 3
    assert "this machine has not enough memory for what was asked for" in result.stderr


@pytest.mark.parametrize("rule", [Whole(0), Whole(3, 9)])
def test_the_ends_of_a_range_are_in_it(rule):
    number = values.Number(rule)
    for end in (rule.least, rule.most):
        assert number.convert(str(end), None, None) == end
    for beyond in (rule.least - 1, rule.most + 1):
        with pytest.raises(click.BadParameter, match="is not a whole number from"):
            number.convert(str(beyond), None, None)
