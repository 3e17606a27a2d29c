"""Figures that are printed for people, or handed out in frames, are those of the rows."""

import io

from rich.console import Console

from gnnbench.records import Ablation, Metric
from gnnbench.report.ablation import print_steps
from gnnbench.report.charts import find_epoch_range
from gnnbench.report.results.frames import make_samples
from gnnbench.report.results.schema import to_document
from tests.report.example_comparison import make_comparison, make_run


def test_an_ablation_says_how_fast_each_row_is_against_the_one_before_and_the_first():
    """Parts that are no steps are all held against the first row, the whole strategy."""
    epochs = {"one": 0.8, "two": 0.2, "three": 0.4}
    comparison = make_comparison(*(make_run(name, epoch_s=(s,) * 3) for name, s in epochs.items()))

    def show(*steps):
        console = Console(file=io.StringIO(), width=200)
        print_steps(comparison, console, steps)
        return [line.strip() for line in console.file.getvalue().splitlines()][2:]

    def gap(ours_ms, theirs_ms):
        return f"(transfer takes {ours_ms} ms instead of {theirs_ms} ms)"

    two = f"two    200 ms, 4.00x the speed of one {gap(100, 400)}"
    assert show(*map(Ablation, ("one", "three")), Ablation("two", quoted=3.5)) == [
        "one    800 ms",
        f"{two}; the paper has up to 3.50x [quoted]",
        f"three  400 ms, 0.50x the speed of two {gap(100, 200)}, 2.00x that of one",
    ]
    three = f"three  400 ms, 2.00x the speed of one {gap(200, 400)}"
    assert show() == ["one    800 ms", two, three]


def test_a_frame_marks_the_samples_that_no_summary_counts():
    run = make_run("a", epoch_s=(3.0, 2.0, 1.0, 1.0))
    epoch = run.metrics["epoch_time"]
    run.metrics["epoch_time"] = type(epoch)(1.0, "s", "measured", epoch.samples, warmup=2)
    frame = make_samples(to_document(make_comparison(run)))
    times = frame[frame["metric"] == "epoch_time"]
    assert times["warmup"].tolist() == [True, True, False, False]
    assert times["value"].tolist() == [3.0, 2.0, 1.0, 1.0]


def test_the_band_of_a_chart_leaves_warm_up_epochs_out():
    times = (9.0, 5.0, *[1.0, 1.1, 0.9, 1.05, 0.95] * 3)
    cold, warm = (
        Metric(1.0, "s", "measured", samples, warmup)
        for samples, warmup in ((times, 2), (times[2:], 0))
    )
    assert find_epoch_range(cold) == find_epoch_range(warm)
    assert find_epoch_range(warm)[1] < 5.0
    few = Metric(1.0, "s", "measured", (9.0, 1.0, 1.1), warmup=1)
    assert find_epoch_range(few) == (1.0, 1.1)
