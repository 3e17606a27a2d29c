"""Commands that are stopped keep what is finished, and ``--resume`` makes the rest alone."""

import json
import re

import pytest

import gnnbench.check
import gnnbench.datasets
from gnnbench.check import Check
from gnnbench.cli.resuming import _find_key
from gnnbench.comparison import frame
from gnnbench.comparison.run import PartsSteps
from gnnbench.records import Table
from tests.commands import one_sentence

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(frame, "ENOUGH_SAMPLES", 12)


@pytest.mark.parametrize("form", ["{} other", "--dataset {}", "--dataset={}", "a,{}"])
def test_a_file_that_has_changed_is_another_command(tmp_path, form):
    file = tmp_path / "graph.npz"
    file.write_text("one")
    words = tuple(form.format(file).split())
    before = _find_key(words)
    assert before == _find_key(words)
    file.write_text("another")
    assert before != _find_key(words)


@pytest.fixture
def stop_at(monkeypatch):
    """Interrupts the given call of a method, and lists the rows of all calls."""

    def set_stop(method, number, times=1):
        rows, original = [], getattr(PartsSteps, method)

        def call(self, *given, **its):
            rows.append(self._row.label)
            if number <= len(rows) < number + times:
                raise KeyboardInterrupt
            return original(self, *given, **its)

        monkeypatch.setattr(PartsSteps, method, call)
        return rows

    return set_stop


def read(path):
    found = json.loads(path.read_text())
    return {(run["label"], run["repeat"]): run for run in found["runs"]}


def test_modelled_rows_that_are_finished_are_not_trained_again(run, small, tmp_path, stop_at):
    words = ("compare", "--plugins", "hongtu,reference", "--dataset", small, "--repeats", "2",
             "--epochs", "2", "--mode", "full-graph", "--threads", "1",
             "--platform", "epyc7763x2-4xa5000")  # fmt: skip
    whole, resumed = tmp_path / "whole.json", tmp_path / "resumed.json"
    assert run(*words, "--json", whole).exit_code == 0
    rows = stop_at("open", 4)
    stopped = run(*words, "--json", resumed)
    assert stopped.exit_code == 130
    assert stopped.stderr == (
        "gnnbench: error: interrupted; 3 finished items are kept, continue with --resume.\n"
    )
    del rows[:]
    rows += [""] * 9  # no further stop
    assert run(*words, "--json", resumed, "--resume").exit_code == 0
    assert rows[9:] == ["hongtu", "hongtu·vanilla", "reference"]
    for key, found in read(resumed).items():
        expected = read(whole)[key]
        assert found["loss"] == expected["loss"]
        assert found["metrics"]["epoch_time"] == expected["metrics"]["epoch_time"]
        assert found["notes"] == expected["notes"]
    again = one_sentence(run(*words, "--json", resumed, "--resume"))
    assert "no finished items of this command are kept for this code" in again


def test_measured_rows_say_that_they_took_no_turns(run, small, tmp_path, stop_at):
    words = ("compare", "--plugins", "reference,native", "--dataset", small, "--epochs", "2",
             "--mode", "full-graph", "--threads", "1", "--platform", "local", "--no-plain",
             "--json", tmp_path / "out.json")  # fmt: skip
    rows = stop_at("close", 2, times=2)
    assert run(*words).exit_code == 130
    del rows[:]
    rows += [""] * 9
    assert run(*words, "--resume").exit_code == 0
    assert rows[9:] == ["native"]
    found = {label: each for (label, _), each in read(tmp_path / "out.json").items()}
    for label, when, other in (("reference", "before", "native"), ("native", "after", "reference")):
        told = f"measured {when} the comparison was stopped and resumed, so not in turns with"
        assert found[label]["notes"][-1] == f"{told} {other}"


def test_rows_with_fewer_samples_than_are_enough_are_measured_again(run, small, tmp_path, stop_at):
    words = ("compare", "--plugins", "reference,native", "--dataset", small, "--epochs", "2",
             "--mode", "full-graph", "--threads", "1", "--platform", "local", "--no-plain",
             "--json", tmp_path / "out.json")  # fmt: skip
    stop_at("train", 10)
    stopped = run(*words)
    assert (stopped.exit_code, stopped.stderr) == (130, "gnnbench: error: interrupted.\n")
    assert {run["status"] for run in read(tmp_path / "out.json").values()} == {"done"}


def test_an_input_that_changed_is_another_job(run, small, stop_at):
    words = ("compare", "--plugins", "hongtu", "--dataset", small, "--epochs", "1",
             "--threads", "1", "--platform", "epyc7763x2-4xa5000")  # fmt: skip
    stop_at("open", 2)
    assert run(*words).exit_code == 130
    small.touch()
    assert "no finished items" in one_sentence(run(*words, "--resume"))


def test_checks_of_a_plugin_that_are_finished_are_not_run_again(run, monkeypatch):
    ran = []

    def make_check(name):
        def check(subject):
            ran.append((name, sorted(subject.ran)))
            subject.reached.methods.add(("kernel", "torch", name))
            if name == "second" and len(ran) == 2:
                raise KeyboardInterrupt
            return ", ".join(sorted(method for _, _, method in subject.reached.methods))

        return Check(name, check, "it is tested")

    checks = tuple(map(make_check, ("first", "second", "third")))
    monkeypatch.setattr(gnnbench.check, "CHECKS", checks)
    stopped = run("plugins", "check", "kernel=torch")
    assert stopped.exit_code == 130
    assert "1 finished item is kept" in stopped.stderr
    found = run("plugins", "check", "kernel=torch", "--resume")
    assert found.exit_code == 0
    assert [name for name, _ in ran] == ["first", "second", "second", "third"]
    assert ran[2][1] == ["first"]
    assert re.search("third +passed +first, second, third", found.stdout)


def test_tables_that_are_finished_are_not_computed_again(run, registry, monkeypatch):
    computed, names = [], ("hongtu-table1", "hongtu-table5")
    for name in names:

        def compute(self):
            computed.append(self.name)
            if computed == list(names):
                raise KeyboardInterrupt
            return (Table(self.name, f"{self.name} in short", ("",), (), ("as computed",)),)

        monkeypatch.setattr(registry.reproduction(name), "run", compute)
    assert run("reproduce", *names).exit_code == 130
    found = run("reproduce", *names, "--resume")
    assert found.exit_code == 0
    assert computed == [*names, names[1]]
    assert all(f"{name} in short" in found.stdout for name in names)
