"""Figures that are printed for people, or handed out in frames, are those of the rows."""

import io

from rich.console import Console

from gnnbench.report.ablation import print_steps
from gnnbench.results.frames import make_samples
from gnnbench.results.schema import to_document
from tests.report.example_comparison import make_comparison, make_run


def test_an_ablation_says_how_fast_each_row_is_against_the_whole():
    whole, without = make_run("whole", epoch_s=(0.1,) * 3), make_run("without", epoch_s=(0.8,) * 3)
    console = Console(file=io.StringIO(), width=200)
    print_steps(make_comparison(whole, without), console)
    lines = console.file.getvalue().splitlines()
    (line,) = (line for line in lines if line.startswith(" without"))
    assert "800 ms, 0.12x the speed of whole" in line or "800 ms, 0.13x the speed of whole" in line


def test_a_frame_marks_the_samples_that_no_summary_counts():
    run = make_run("a", epoch_s=(3.0, 2.0, 1.0, 1.0))
    epoch = run.metrics["epoch_time"]
    run.metrics["epoch_time"] = type(epoch)(1.0, "s", "measured", epoch.samples, warmup=2)
    frame = make_samples(to_document(make_comparison(run)))
    times = frame[frame["metric"] == "epoch_time"]
    assert times["warmup"].tolist() == [True, True, False, False]
    assert times["value"].tolist() == [3.0, 2.0, 1.0, 1.0]
