"""HP-GNN on the command line: beside a library, and the designs for a board."""

import pytest
import torch

from tests.commands import read_document

SMALL = "sbm:vertices=600,edges=4000,features=32,classes=4"
QUICK = ("--dataset", SMALL, "--epochs", "1", "--batch-size", "128", "--fanouts", "5,3")
FPGAS = "epyc7763x2-4xu250"

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="the usual platform is this machine")


@no_cuda
@pytest.mark.parametrize(
    ("plugins", "platform"),
    [
        ("hpgnn,reference", FPGAS),
        ("hyscale,hpgnn", FPGAS),
        ("reference", "epyc7763x2-4xa5000"),
        ("reference:placement=hpgnn", FPGAS),
        ("reference,reference:placement=hpgnn", FPGAS),
    ],
)
def test_the_default_platform_has_what_the_strategies_train_on(run, plugins, platform):
    document = read_document(
        run("compare", "--plugins", plugins, *QUICK, "--no-check", "--json", "-")
    )
    assert document["platform"]["name"] == platform
    assert {each["status"] for each in document["runs"]} == {"done"}


def test_a_platform_that_is_named_is_kept(run):
    words = ("--platform", "epyc7763x2-4xa5000")
    document = read_document(
        run("compare", "--plugins", "hpgnn,reference", *QUICK, *words, "--json", "-")
    )
    by_name = {each["strategy"]: each for each in document["runs"]}
    assert by_name["hpgnn"]["status"] == "skipped"
    assert "name one that has, such as epyc7763x2-4xu250" in by_name["hpgnn"]["reason"]
    assert by_name["reference"]["status"] == "done"


@pytest.mark.parametrize(("words", "device"), [((), "gpu0"), (("on_host=true",), "host")])
def test_the_papers_three_platforms_stand_in_one_table(run, words, device):
    """CPU-only or CPU-GPU rows beside the board's, on the machine of the paper's comparison."""
    options = [word for each in words for word in ("--set", f"placement.{each}")]
    machine = ("--platform", "ryzen3990x-a100-u250")
    result = run("compare", "--plugins", "hpgnn,reference", *QUICK, *machine, *options, "--details")
    assert result.exit_code == 0, result.output
    assert f"hpgnn fpga0; reference {device}" in result.stdout


@no_cuda
def test_designs_are_planned_without_naming_a_platform(run):
    document = read_document(run("plan", "hpgnn", "--dataset", SMALL, "--json", "-"))
    assert document["platform"] == FPGAS
    (table,) = (table for table in document["tables"] if table["name"] == "hpgnn-designs")
    assert sum("(best)" in row["label"] for row in table["rows"]) == 1
    assert {cell["provenance"] for row in table["rows"] for cell in row["cells"]} == {"modelled"}
