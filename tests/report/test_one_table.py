"""The table of deciding columns: one panel on a narrow terminal, and a mark beside each speed."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gnnbench.comparison.ranking import group_runs
from gnnbench.records import Metric
from gnnbench.report.columns import deciding_columns
from gnnbench.report.comparison import print_comparison
from tests.report.example_comparison import every_status, make_comparison, make_failure, make_run


def show(comparison, width):
    stream = io.StringIO()
    print_comparison(comparison, Console(file=stream, width=width))
    return stream.getvalue().splitlines()


def crowd(label, seconds, devices):
    """A run with a figure in every column."""
    run = make_run(label, epoch_s=(seconds,))
    metrics = {
        **run.metrics,
        "preprocessing_time": Metric(3.0, "s", "modelled"),
        "time_to_accuracy": Metric(4.0, "s", "modelled"),
    }
    work = replace(run.work, devices=devices)
    return replace(run, metrics=metrics, work=work, target_accuracy=0.5)


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (80, ["edges/s a device", "devices", "prepared before", "test", "host links"]),
        (100, ["edges/s a device", "devices"]),
        (160, []),
    ],
)
def test_a_narrow_terminal_has_one_table_and_names_what_it_leaves_out(width, left_out):
    runs = (crowd("hongtu", 0.2, ("gpu0", "gpu1")), crowd("hongtu·vanilla", 0.1, ("gpu0",)))
    lines = show(make_comparison(*runs), width)
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith(" hongtu·vanilla ")]
    assert len(rows) == 1
    assert rows[0].endswith("yes")
    text = " ".join(" ".join(lines).split())
    assert ("Left out" in text) == bool(left_out)
    assert not left_out or f"Left out at this width: {', '.join(left_out)}. " in text


@pytest.mark.parametrize("width", [80, 100])
def test_failures_and_several_groups_are_in_the_one_table(width):
    lines = show(every_status(), width)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith(" hongtu·vanilla ") for line in lines) == 1


def test_the_mark_says_what_the_rule_of_verdicts_says():
    """Of rows in turns ``same`` is within the margin, and ``other`` may not win."""

    def measured(label, factor, fault=""):
        samples = tuple(factor * (0.1 + 0.0001 * (number % 3)) for number in range(24))
        run = make_run(label, epoch_s=samples, provenance="measured", fault=fault)
        return replace(run, lot=1)

    runs = [measured("base", 1.0), measured("quick", 0.5), measured("slow", 1.5)]
    runs += [measured("same", 1.005), measured("wrong", 0.1, fault="it is off")]
    groups = group_runs(make_comparison(*runs, make_failure("failed", "skipped", "no")))
    cells = [text.split() for text, _ in deciding_columns(groups)[0].cells]
    speeds = [cell[2] if len(cell) > 2 else "" for cell in cells]
    assert speeds == ["1.00x", "2.00x*", "0.67x*", "1.00x~", ""]
    text = " ".join(" ".join(show(make_comparison(*runs, modelled=False), 100)).split())
    assert "* means faster or slower: the whole range is more than 2 % from 1x" in text
    assert ". ~ marks all others." in text
