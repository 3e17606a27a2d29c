"""compare: which rows there are, that one cannot spoil another, repeats, and times to accuracy."""

import dataclasses

import pytest
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.comparison import Request, Variant, choose_modes, compare, plan_rows
from gnnbench.comparison.equality import FLOOR
from gnnbench.comparison.request import PlannedRow
from gnnbench.comparison.rows import options_for
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.jobs.preparation import find_placements
from gnnbench.records import Parts, Strategy
from suites.faults.kernels import kernel
from tests.uneven import make_uneven


def fall_over(self, h, weight=None):
    raise RuntimeError("the kernel fell over")


#: A kernel that fails in its first product, and strategies that use it.
FAILING = kernel("failing", "falls over", adjacency={"sum": fall_over}).part
STRATEGIES = [
    Strategy(f"failing-{mode}", "for a test", "gnnbench", {mode: Parts(*parts, "failing")})
    for mode, parts in (
        ("mini-batch", ("neighbour", "hyscale", "hyscale", "host")),
        ("full-graph", ("hongtu", "hongtu", "hongtu", "hongtu")),
    )
]


@pytest.fixture(scope="module")
def registry():
    return plugins.load(objects=[FAILING, *STRATEGIES])


def request(*strategies, dtype="float64", epochs=2, model="gcn", **fields):
    workload = dataclasses.replace(make_workload(model, 2, epochs), dtype=dtype)
    return Request(
        strategies=strategies,
        dataset=make_dataset(),
        workload=workload,
        platform=make_uneven(3),
        **fields,
    )


def strategy(name, *modes):
    parts = Parts("neighbour", "single", "vanilla", "host", "torch")
    return Strategy(name, "for a test", "gnnbench", dict.fromkeys(modes, parts))


@pytest.mark.parametrize(
    ("strategies", "modes"),
    [
        # Those with one mode decide ...
        ([("mini-batch",)], ["mini-batch"]),
        ([("full-graph",), ("mini-batch",)], ["full-graph", "mini-batch"]),
        # ... for those with both ...
        ([("mini-batch", "full-graph"), ("full-graph",)], ["full-graph"]),
        # ... which run as they usually do where nobody decides.
        ([("mini-batch", "full-graph")], ["mini-batch"]),
        (
            [("full-graph", "mini-batch"), ("mini-batch", "full-graph")],
            ["full-graph", "mini-batch"],
        ),
    ],
)
def test_strategies_with_one_mode_choose_for_the_others(strategies, modes):
    chosen = choose_modes(tuple(strategy(f"s{i}", *m) for i, m in enumerate(strategies)))
    assert list(chosen) == modes


def rows(registry, *strategies, **fields):
    planned = plan_rows(request(*strategies, **fields), registry)
    return [(row.label, row.mode, row.swapped) for row in planned]


def test_peers_stand_beside_each_system_in_its_mode(registry):
    assert rows(registry, "reference", "hyscale", "hongtu") == [
        ("reference", "full-graph", False),
        ("reference", "mini-batch", False),
        ("hyscale", "mini-batch", False),
        ("hongtu", "full-graph", False),
    ]
    assert rows(registry, "reference", "hongtu") == [
        ("reference", "full-graph", False),
        ("hongtu", "full-graph", False),
    ]
    assert rows(registry, "reference", modes=("mini-batch",)) == [
        ("reference", "mini-batch", False)
    ]


def test_a_mode_that_nobody_has_is_refused(registry):
    with pytest.raises(UsageError, match="no chosen strategy trains mini-batch"):
        rows(registry, "hongtu", modes=("mini-batch",))


def test_a_swap_adds_a_row_beside_the_strategys_own(registry):
    swaps = (("communication", "vanilla"),)
    assert rows(registry, "hongtu", "hyscale", swaps=swaps) == [
        ("hongtu", "full-graph", False),
        ("hongtu·vanilla", "full-graph", True),
        ("hyscale", "mini-batch", False),
        ("hyscale·vanilla", "mini-batch", True),
    ]
    # The label names the parts that changed; a swap that changes nothing adds nothing.
    two = (("communication", "vanilla"), ("kernel", "torch"))
    assert ("hongtu·vanilla", "full-graph", True) in rows(registry, "hongtu", swaps=two)
    same = (("communication", "hongtu"),)
    assert rows(registry, "hongtu", swaps=same) == [("hongtu", "full-graph", False)]


def test_a_variant_runs_instead_of_the_strategy(registry):
    native = Variant("hongtu", (("kernel", "native"),))
    assert rows(registry, native) == [("hongtu·native", "full-graph", False)]
    (row,) = plan_rows(request(native), registry)
    assert (row.strategy, row.parts.kernel, row.parts.memory) == ("hongtu", "native", "hongtu")
    # Beside the strategy itself, and with a swap of the request besides.
    assert rows(registry, "hongtu", native, swaps=(("communication", "vanilla"),)) == [
        ("hongtu", "full-graph", False),
        ("hongtu·vanilla", "full-graph", True),
        ("hongtu·native", "full-graph", False),
        ("hongtu·native·vanilla", "full-graph", True),
    ]


def test_a_sampler_makes_rows_of_the_mode_it_trains(registry):
    """In either mode of a strategy that has both, mini-batches are mini-batches, in one row."""
    saint = Variant("reference", (("sampler", "saint"),))
    expected = ("reference·saint", "mini-batch", False)
    assert rows(registry, saint) == [expected]
    both = ("full-graph", "mini-batch")
    assert rows(registry, saint, modes=both) == [expected]
    assert rows(registry, "reference", modes=both, swaps=(("sampler", "saint"),)) == [
        ("reference", "full-graph", False),
        ("reference·saint", "mini-batch", True),
        ("reference", "mini-batch", False),
    ]
    # Where a strategy has no parts for it, the row stays and says why it cannot work.
    assert rows(registry, Variant("hongtu", (("sampler", "saint"),))) == [
        ("hongtu·saint", "full-graph", False)
    ]


def test_a_variant_that_changes_nothing_is_refused(registry):
    with pytest.raises(UsageError, match="has the kernel 'torch' already; leave out kernel=torch"):
        rows(registry, Variant("hongtu", (("kernel", "torch"),)))
    twice = Variant("hongtu", (("kernel", "native"), ("kernel", "dgl")))
    with pytest.raises(UsageError, match="kernel is swapped twice"):
        rows(registry, twice)


def test_an_option_goes_to_the_rows_whose_part_has_it(registry):
    result = compare(
        request(
            "hongtu",
            swaps=(("communication", "vanilla"),),
            options={"communication": {"reuse": "false"}},
        ),
        registry,
    )
    own, vanilla = result.runs
    assert (own.status, vanilla.status) == ("done", "done")
    assert own.metrics["reused_bytes"].value == 0
    assert own.metrics["device_to_device_bytes"].value > 0


def test_an_option_that_no_part_has_is_refused(registry):
    with pytest.raises(UsageError, match="stages"):
        compare(request("hongtu", options={"communication": {"stages": "1"}}), registry)


def test_a_swap_that_fits_nobody_is_refused(registry):
    """hongtu has that memory already, so the one row that is swapped is hyscale's."""
    swaps = (("memory", "hongtu"),)
    with pytest.raises(IncompatiblePartsError, match="hyscale·hongtu: memory 'hongtu' works for"):
        compare(request("hyscale", "hongtu", swaps=swaps), registry)


def test_a_swapped_row_that_does_not_fit_is_skipped_and_says_why(registry):
    swaps = (("memory", "host"), ("communication", "vanilla"))
    result = compare(request("hyscale", "hongtu", swaps=swaps), registry)
    status = {run.label: (run.status, run.reason) for run in result.runs}
    assert status["hyscale"][0] == status["hyscale·vanilla"][0] == status["hongtu"][0] == "done"
    skipped, reason = status["hongtu·host·vanilla"]
    assert skipped == "skipped"
    assert "memory 'host' works for mini-batch training only" in reason


def test_all_bundled_strategies_are_done_and_equal(registry):
    assert FLOOR[torch.float64] == 1e-9
    result = compare(request("reference", "pyg", "dgl", "native", "hyscale", "hongtu"), registry)
    assert len(result.runs) == 10
    for run in result.runs:
        assert (run.status, run.reason) == ("done", ""), run.label
        assert run.equivalence.reference == run.mode
        assert run.equivalence.holds, (run.label, run.equivalence.fault)
        assert run.equivalence.max_relative_loss_error <= 1e-9, run.label


def test_no_check_holds_nothing_equal_and_still_states_the_work(registry):
    (run,) = compare(request("hongtu", check=False), registry).runs
    assert (run.equivalence, run.status) == (None, "done")
    assert (run.work.updates, run.work.sampling) == (1, "every neighbour")


def test_a_run_states_its_work(registry):
    """Counted here by another path: rounds of 13 seeds, one update of the whole graph."""
    mini, full = compare(
        request("reference", "hyscale", "hongtu", modes=("mini-batch", "full-graph")), registry
    ).runs[:2]
    dataset = make_dataset()
    seeds = int((dataset.train_mask & (dataset.labels >= 0)).sum())
    by_mode = {run.mode: run.work for run in (mini, full)}
    assert by_mode["mini-batch"].updates == -(-seeds // 13)
    assert by_mode["full-graph"].updates == 1
    assert by_mode["mini-batch"].seeds == by_mode["full-graph"].seeds == seeds
    assert by_mode["full-graph"].edges == 2 * dataset.graph.num_edges
    assert by_mode["mini-batch"].sampling == "uniform without replacement, fan-outs 4, 3"
    assert by_mode["full-graph"].devices == by_mode["mini-batch"].devices == ("gpu0",)


def test_a_row_that_raises_leaves_the_others(registry, monkeypatch):
    monkeypatch.delenv("GNNBENCH_DEBUG", raising=False)
    result = compare(request("failing-full-graph", "hongtu", "failing-mini-batch"), registry)
    first, second, third = result.runs
    assert first.reason.startswith("RuntimeError: the kernel fell over")
    assert third.reason.startswith(
        "stage propagate of round 0 failed on host: RuntimeError: the kernel fell over"
    )
    for run in (first, third):
        assert run.status == "error"
        assert (run.loss, run.metrics, run.equivalence) == ((), {}, None)
    assert second.status == "done"
    assert second.equivalence.holds
    # The others name no system.
    assert result.cards == {"hongtu": registry.strategy("hongtu").card}


def test_plain_rows_have_the_card_of_the_strategy_that_they_are(registry):
    """A step of an ablation is none."""
    result = compare(request("hongtu", "p3", plain=True), registry)
    assert {run.strategy for run in result.runs} > {"hongtu", "p3", "data-parallel"}
    assert list(result.cards) == [
        name
        for name in dict.fromkeys(run.strategy for run in result.runs)
        if name in registry.strategies_by_name
    ]


def test_a_row_out_of_memory_leaves_the_others(registry):
    """A capacity between what hongtu with many chunks and what one chunk a device needs."""
    free = compare(
        request("reference", "hongtu", options={"sampler": {"chunks_per_partition": "16"}}),
        registry,
    )
    need = {run.label: int(run.metrics["peak_device_bytes"].value) for run in free.runs}
    assert need["hongtu"] < need["reference"]
    capped = compare(
        request(
            "reference",
            "hongtu",
            options={
                "sampler": {"chunks_per_partition": "16"},
                "memory": {"device_bytes": str(need["hongtu"])},
            },
        ),
        registry,
    )
    reference, hongtu = capped.runs
    assert reference.status == "out-of-memory"
    assert "gpu0 is out of memory: " in reference.reason
    assert f"of {need['hongtu']:,} are in use" in reference.reason
    assert hongtu.status == "done"
    assert hongtu.metrics["peak_device_bytes"].value <= need["hongtu"]
    # The check is no part of the run: the reference has the memory that it needs.
    assert hongtu.equivalence.holds


def test_repeats_have_seeds_of_their_own_and_are_each_checked(registry):
    """A repeat is what a run with the next seed would be."""
    runs = compare(request("hongtu", repeats=3), registry).runs
    assert [run.repeat for run in runs] == [0, 1, 2]
    assert all(run.equivalence.holds for run in runs)
    assert len({run.loss for run in runs}) == 3
    same = compare(request("hongtu", repeats=3, same_seed=True), registry).runs
    assert {run.loss for run in same} == {runs[0].loss}
    base = request("hongtu")
    for number, run in enumerate(runs):
        workload = dataclasses.replace(base.workload, seed=base.workload.seed + number)
        (alone,) = compare(dataclasses.replace(base, workload=workload), registry).runs
        assert alone.loss == run.loss


def test_time_to_accuracy_is_the_time_of_the_epochs_it_took(registry):
    """The accuracies of all epochs are found by training as many; each that is higher than all
    before is a target that is first reached there."""
    epochs = 6

    def train(epochs, **fields):
        base = request("hongtu", epochs=epochs, check=False, model="sage", **fields)
        fast = dataclasses.replace(base.workload, learning_rate=0.05)
        return compare(dataclasses.replace(base, workload=fast), registry).runs[0]

    reached = [train(count).accuracy["val"] for count in range(1, epochs + 1)]
    records = [n for n, value in enumerate(reached) if n == 0 or value > max(reached[:n])]
    within = [n for n in records if 0 < n < epochs - 1]
    assert within, reached
    samples = train(epochs).metrics["epoch_time"].samples
    for number in (0, *within):
        metric = train(epochs, target_accuracy=reached[number]).metrics["time_to_accuracy"]
        assert metric.value == pytest.approx(sum(samples[: number + 1]), rel=1e-12)
        assert metric.provenance == "modelled"
    never = train(epochs, target_accuracy=1.01)
    assert "time_to_accuracy" not in never.metrics
    assert "validation accuracy 1.01 was not reached in 6 epochs" in never.notes


def test_two_comparisons_are_equal_to_the_bit(registry):
    names = ("reference", "hyscale", "hongtu")
    one, two = (compare(request(*names, dtype="float32"), registry) for _ in range(2))
    for ours, theirs in zip(one.runs, two.runs, strict=True):
        assert ours.loss == theirs.loss
        assert ours.accuracy == theirs.accuracy
        assert ours.stages == theirs.stages
        for name, metric in ours.metrics.items():
            if metric.provenance == "modelled":
                assert metric == theirs.metrics[name], name
        assert [(s.start_s, s.end_s) for s in ours.timeline] == [
            (s.start_s, s.end_s) for s in theirs.timeline
        ]


def test_a_step_of_an_ablation_has_its_own_value_where_the_user_gives_another(registry):
    parts = registry.strategy("neugraph").bundles["full-graph"]
    step = (("communication", "overlap", "false"),)
    row = PlannedRow("neugraph", "+own", "full-graph", parts, options=step)
    given = {"communication": {"overlap": "true"}, "sampler": {"chunks_per_device": "3"}}
    found = options_for(row, given, registry)
    assert found["communication"] == {"overlap": "false"}
    assert found["sampler"] == {"chunks_per_device": "3"}


def test_the_default_platform_is_for_the_placement_that_is_swapped_in(registry):
    chosen = (("hyscale", (("placement", "single"),)), ("hongtu", ()))
    assert [each.name for each in find_placements(registry, chosen)] == ["single", "hongtu"]
