"""``compare --mode``, and options that would have no effect in the modes of the rows."""

import pytest

import gnnbench
from gnnbench.errors import UsageError
from tests.commands import one_sentence, read_runs

SMALL = "sbm:vertices=60,edges=200,features=4,classes=3"
WORK = ("--dataset", SMALL, "--epochs", "1", "--hidden", "4", "--no-check", "--no-plain")


def list_modes(run, *words):
    return [each["mode"] for each in read_runs(run("compare", *WORK, *words, "--json", "-"))]


def test_the_mode_is_chosen_or_the_strategies_own(run):
    assert list_modes(run, "--plugins", "native") == ["full-graph"]
    fanouts = ("--fanouts", "5,3", "--batch-size", "16")
    assert list_modes(run, "--plugins", "native", "--mode", "mini-batch", *fanouts) == [
        "mini-batch"
    ]
    # One row of mini-batches is enough for their options to have an effect.
    modes = list_modes(run, "--plugins", "hyscale,hongtu", *fanouts)
    assert set(modes) == {"full-graph", "mini-batch"}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--fanouts", "5,3"), "--fanouts"),
        (("--batch-size", "1024"), "--batch-size"),
        (("--fanouts", "5,3", "--batch-size", "16"), "--batch-size and --fanouts"),
    ],
)
def test_options_of_mini_batches_alone_are_refused_in_full_graphs(run, words, named):
    said = one_sentence(run("compare", *WORK, "--plugins", "native", *words))
    assert f"error: {named} would have no effect: every row trains the full graph" in said
    assert "--mode mini-batch" in said


def test_python_refuses_them_too():
    options = {"dataset": SMALL, "epochs": 1, "hidden": 4, "check": False}
    with pytest.raises(UsageError, match="fanouts would have no effect"):
        gnnbench.compare("native", fanouts=[5, 3], **options)
    found = gnnbench.compare("native", fanouts=[5, 3], mode="mini-batch", plain=False, **options)
    assert set(found.frame()["mode"]) == {"mini-batch"}
