"""The script that plants faults: what it refuses, and that it tells a fault that is seen."""

import pytest

from tests import mutants

ENTRY = """
[["sums.py"]]
breaks = "One and one are three."
old = "return a + b"
new = "return a + b + 1"
tests = ["test_sums.py"]
"""
CODE = "def add(a, b):\n    return a + b\n"
TEST = "from sums import add\n\n\ndef test_two():\n    assert add(1, 1) == 2\n"
BLIND = "from sums import add\n\n\ndef test_two():\n    assert add(1, 1)\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "all.toml").write_text(ENTRY, encoding="utf-8")
    (tmp_path / "sums.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "test_sums.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: x\n", encoding="utf-8")
    return tmp_path


def test_a_fault_that_a_test_sees_is_killed_and_taken_out_again(tree):
    (mutant,) = mutants.load(tree)
    verdict = mutants.judge(mutant, tree, likely_only=True)
    assert verdict.killed_by == "test_sums.py::test_two"
    assert (tree / "sums.py").read_text(encoding="utf-8") == CODE


def test_a_fault_that_no_test_sees_survives(tree):
    (tree / "test_sums.py").write_text(BLIND, encoding="utf-8")
    (mutant,) = mutants.load(tree)
    assert mutants.judge(mutant, tree, likely_only=True).killed_by == ""


def test_survivors_of_the_likely_tests_see_the_rest(tree):
    (tree / "test_sums.py").write_text(BLIND, encoding="utf-8")
    (tree / "test_others.py").write_text(TEST, encoding="utf-8")
    (mutant,) = mutants.load(tree)
    verdict = mutants.judge(mutant, tree, likely_only=False)
    assert verdict.killed_by == "test_others.py::test_two"


def test_tests_that_are_stopped_from_outside_say_nothing_of_a_fault(tree):
    stopped = "import os\nimport signal\n\n\ndef test_two():\n    os.kill(os.getpid(), signal.{})\n"
    (mutant,) = mutants.load(tree)
    (tree / "test_sums.py").write_text(stopped.format("SIGTERM"), encoding="utf-8")
    with pytest.raises(RuntimeError, match="stopped from outside"):
        mutants.judge(mutant, tree, likely_only=True)
    assert (tree / "sums.py").read_text(encoding="utf-8") == CODE
    # A fault that ends the interpreter is seen.
    (tree / "test_sums.py").write_text(stopped.format("SIGSEGV"), encoding="utf-8")
    assert "ended with -11" in mutants.judge(mutant, tree, likely_only=True).killed_by


def test_words_that_pytest_does_not_take_say_nothing_of_a_fault(tree):
    (mutant,) = mutants.load(tree)
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="the tests cannot be run: ERROR: usage"):
        mutants.judge(mutant, tree, likely_only=True)
    (tree / "pytest.ini").unlink()
    (tree / "test_sums.py").unlink()
    with pytest.raises(RuntimeError, match="the tests cannot be run: ERROR: file or directory"):
        mutants.judge(mutant, tree, likely_only=True)


def test_the_project_s_own_settings_let_its_tests_run():
    """Of one test, as the script runs them."""
    name = "tests/program/test_program.py::test_buffers_of_one_name_are_two"
    assert mutants.run_tests(mutants.ROOT, [name]) == ""


@pytest.mark.parametrize("code", ["def add(a, b):\n    return b + a\n", CODE + CODE])
def test_a_fault_whose_text_is_not_there_once_is_stale(tree, code):
    (tree / "sums.py").write_text(code, encoding="utf-8")
    (mutant,) = mutants.load(tree)
    with pytest.raises(mutants.StaleError, match=r"three\. Its text is [02] times in sums\.py"):
        mutant.find(tree)


def test_two_faults_of_one_sentence_are_refused(tree):
    (tree / "all.toml").write_text(ENTRY + ENTRY, encoding="utf-8")
    with pytest.raises(ValueError, match="several mutants are called"):
        mutants.load(tree)


def test_the_faults_that_there_are_have_a_sentence_and_tests_that_exist():
    """Whether their texts still stand in the code is for the script to say, not for this suite."""
    listed = mutants.load()
    assert len(listed) >= 150
    for mutant in listed:
        assert mutant.breaks.endswith("."), mutant.breaks
        assert mutant.old != mutant.new, mutant.breaks
        assert mutant.tests, mutant.breaks
        for name in mutant.tests:
            assert (mutants.ROOT / name).is_file(), (mutant.breaks, name)


def test_every_test_file_guards_something():
    """Each has a fault that names it alone, or a contract: ``tests.mutants --files`` lists them."""
    guards = mutants.list_guards(mutants.load())
    assert [file for file, guarded in guards.items() if not guarded] == []
