"""``gnnbench reproduce``: the list, a table for people and as JSON, bad names, and times."""

import json

from gnnbench.reproduce.agreement import describe_outcome, read_outcomes
from tests.commands import one_sentence, read_document

NAMES = ["hongtu-table1", "hongtu-table6", "hongtu-table7", "hongtu-table9"]


def test_without_a_name_it_lists_what_there_is(run):
    result = run("reproduce")
    assert result.exit_code == 0
    listed = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    outcomes = read_outcomes()
    for name in NAMES:
        assert describe_outcome(outcomes[name]) in listed[name]
    left_out = result.stdout.split("why there is nothing to compare")[1]
    assert left_out.count("the graphs") == 4
    assert "hyscale-table7" in left_out
    assert "hyscale-table7" not in listed["hyscale-table6"]


def test_the_list_as_json(run):
    document = json.loads(run("reproduce", "--json", "-").stdout)
    entries = document["reproductions"]
    lost = {each["name"]: each["reason"] for each in document["left_out"]}
    assert lost["mixgcn-table5"] == "the text lost its numbers"
    found = {entry["name"]: entry["plugin"] for entry in entries}
    assert [found.get(name) for name in NAMES] == ["studies.hongtu"] * len(NAMES)
    assert all(entry["summary"] and entry["state"] for entry in entries)


def test_one_of_somebody_elses_has_no_state(run, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from gnnbench.hookspecs import hookimpl\n"
        "from gnnbench.reproduce.studies import Reproduction\n"
        "class Mine(Reproduction):\n"
        "    name, summary = 'mine', 'a table of mine'\n"
        "    def run(self): return ()\n"
        "@hookimpl\n"
        "def gnnbench_reproduction(): return [Mine]\n"
    )
    entries = json.loads(run("reproduce", "--plugin", path, "--json", "-").stdout)["reproductions"]
    (mine,) = (entry for entry in entries if entry["name"] == "mine")
    assert mine["state"] is None
    assert "a table of mine" in run("reproduce", "--plugin", path).stdout


def test_a_table_for_people(run):
    result = run("reproduce", "hongtu-table1")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "HongTu Table 1: memory of 3-layer full-graph GCN training"
    assert any("[modelled]  [quoted]  error" in line for line in lines)
    assert any(line.startswith("Median error ") for line in lines)


def test_several_tables_as_json_each_once(run, tmp_path):
    path = tmp_path / "tables.json"
    words = ("hongtu-table1", "hongtu-table9", "hongtu-table1")
    result = run("reproduce", *words, "--json", path)
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    assert document["schema"] == 1
    assert "cells" not in document  # these have no ledger
    assert [table["name"] for table in document["tables"]] == ["hongtu-table1", "hongtu-table9"]
    provenances = {
        cell["provenance"]
        for table in document["tables"]
        for row in table["rows"]
        for cell in row["cells"]
    }
    assert provenances == {"modelled", "quoted"}


def test_an_unknown_name_is_one_sentence(run):
    assert "did you mean 'hongtu-table6'" in one_sentence(run("reproduce", "hongtu-table66"))


def test_a_table_without_results_says_why(run):
    result = run("reproduce", "mixgcn-figure10")
    sentence = one_sentence(result)
    assert result.exit_code == 2
    assert "mixgcn-figure10 has nothing to compare: a drawing" in sentence


def test_tables_as_a_web_page(run, tmp_path):
    path = tmp_path / "tables.html"
    result = run("reproduce", "hongtu-table1", "--html", path)
    assert result.exit_code == 0, result.output
    page = path.read_text()
    assert "HongTu Table 1: memory of 3-layer full-graph GCN training" in page
    assert "quoted" in page
    assert run("reproduce", "hongtu-table1", "--html", tmp_path).exit_code == 2
    assert "name one" in run("reproduce", "--html", path).stderr


NAPS = """
from gnnbench.hookspecs import hookimpl
from gnnbench.records import LedgerEntry, Origin, PathKind, Subject, Table
from gnnbench.reproduce.studies import Ledger


class Naps(Ledger):
    name = "naps"
    summary = "how long others nap"

    def entries(self):
        path = PathKind("cpu", "l", "part", "small")
        subject, origin = Subject("l", "k", "g", "m"), Origin("a thread", "4 s")
        return (
            LedgerEntry("nap", "naps", "bed", "a nap", 4.0, 5.0, "s", path, subject, origin),
        )

    def run(self):
        return (Table(name="naps", title="naps", columns=(), rows=()),)


@hookimpl
def gnnbench_reproduction():
    return [Naps]
"""


def test_a_ledgers_entries_stand_beside_its_tables(run, tmp_path):
    path = tmp_path / "naps.py"
    path.write_text(NAPS)
    document = read_document(run("reproduce", "naps", "--plugin", path, "--json", "-"))
    (ledger,) = document["tables"]
    assert ledger["name"] == "naps"
    (cell,) = document["cells"]
    assert (cell["id"], cell["kind"], cell["machine"]) == ("nap", "cpu", "bed")
    assert (cell["measured"], cell["predicted"], cell["unit"]) == (4.0, 5.0, "s")
    assert (cell["error"], cell["fitted_on"]) == (0.25, [])


def test_constants_are_printed_and_written_with_their_marks(run):
    result = run("reproduce", "constants", "--json", "-")
    constants = json.loads(result.stdout)["constants"]
    marks = {(each["place"], each["name"]): each for each in constants}
    loading = marks["gnnbench/machines/epyc7763x2-4xu250.toml", "host.gather"]
    assert (loading["mark"], loading["fitted_on"]) == ("fitted", ["hyscale-figure9 (saturation)"])
    assert loading["value"] == "205 GB/s"
    screen = run("reproduce", "constants").stdout
    fitted = sum(each["mark"] == "fitted" for each in constants)
    assert f"The model has {len(constants)} constants. {fitted} of them were" in screen
    assert "hyscale-figure9 (saturation): half of" in screen
