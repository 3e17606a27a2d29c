"""compare: which rows there are, that one cannot spoil another, and that wrong maths is caught."""

from __future__ import annotations

import dataclasses
import math
import textwrap

import pytest

import gnnbench.compare
from gnnbench import plugins
from gnnbench.compare import (
    ReferenceLosses,
    Request,
    Variant,
    choose_modes,
    compare,
    loss_error,
    plan_rows,
)
from gnnbench.conformance.graphs import make_dataset, make_platform, make_workload
from gnnbench.errors import IncompatibleParts, PluginError, UsageError
from gnnbench.records import EpochTrace, Parts, Strategy, Trace

#: Kernels that differ from 'torch' in one way each, and strategies that use them.
KERNELS = '''
from dataclasses import dataclass
from typing import ClassVar

import torch

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Adjacency
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel


class PlainAdjacency(TorchAdjacency):
    """All of whose products are ``sum`` and ``sum_transposed``."""

    sum_scaled = Adjacency.sum_scaled
    own_plus_sum = Adjacency.own_plus_sum
    own_and_mean = Adjacency.own_and_mean
    own_and_mean_transposed = Adjacency.own_and_mean_transposed


class UnweightedAdjacency(PlainAdjacency):
    """As if every trainer's gradient counted the same, however few seeds it had."""

    def sum_transposed(self, g, weight=None, into=None):
        return super().sum_transposed(g * (5 / max(1, self.block.num_dst)), weight, into)


class NoisyAdjacency(PlainAdjacency):
    """Rounding of another order: some units in the last place of float32, up and down."""

    def sum(self, h, weight=None):
        out = super().sum(h, weight)
        sign = torch.arange(out.numel()).reshape(out.shape) % 3 - 1
        return out * (1 + 1e-6 * sign.to(out.dtype))


class FailingAdjacency(PlainAdjacency):
    def sum(self, h, weight=None):
        raise RuntimeError("the kernel fell over")


class BrokenAdjacency(PlainAdjacency):
    def sum_transposed(self, g, weight=None, into=None):
        return super().sum_transposed(g * torch.nan, weight, into)


@dataclass
class Base(TorchKernel):
    made: ClassVar[type] = TorchAdjacency

    def adjacency(self, block, dtype, device):
        return self.made(block, dtype, device)


@dataclass
class Unweighted(Base):
    name: ClassVar[str] = "unweighted"
    made: ClassVar[type] = UnweightedAdjacency


@dataclass
class Noisy(Base):
    name: ClassVar[str] = "noisy"
    made: ClassVar[type] = NoisyAdjacency


@dataclass
class Failing(Base):
    name: ClassVar[str] = "failing"
    made: ClassVar[type] = FailingAdjacency


@dataclass
class Broken(Base):
    name: ClassVar[str] = "broken"
    made: ClassVar[type] = BrokenAdjacency


@hookimpl
def gnnbench_kernel():
    return [Unweighted, Noisy, Failing, Broken]


@hookimpl
def gnnbench_strategy():
    return [
        Strategy(
            name=f"{kernel}-{mode}",
            summary="for a test",
            source="gnnbench",
            bundles={mode: Parts(*parts, kernel)},
        )
        for kernel in ("unweighted", "noisy", "failing", "broken")
        for mode, parts in (
            ("mini-batch", ("neighbour", "hyscale", "hyscale", "host")),
            ("full-graph", ("hongtu", "hongtu", "hongtu", "hongtu")),
        )
    ]
'''


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "odd_kernels.py"
    path.write_text(textwrap.dedent(KERNELS), encoding="utf-8")
    return plugins.load([str(path)])


def request(*strategies, dtype="float64", epochs=2, model="gcn", **fields):
    workload = dataclasses.replace(make_workload(model, 2, epochs), dtype=dtype)
    return Request(
        strategies=strategies,
        dataset=make_dataset(),
        workload=workload,
        platform=make_platform(3),
        **fields,
    )


def strategy(name, *modes):
    parts = Parts("neighbour", "single", "vanilla", "host", "torch")
    return Strategy(name, "for a test", "gnnbench", dict.fromkeys(modes, parts))


# --------------------------------------------------------------------------- which rows


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


def test_a_variant_that_changes_nothing_is_refused(registry):
    with pytest.raises(UsageError, match="has the kernel 'torch' already; leave out kernel=torch"):
        rows(registry, Variant("hongtu", (("kernel", "torch"),)))
    twice = Variant("hongtu", (("kernel", "native"), ("kernel", "dgl")))
    with pytest.raises(UsageError, match="kernel is swapped twice"):
        rows(registry, twice)


def test_unknown_names_are_refused(registry):
    with pytest.raises(PluginError, match="hongtuu"):
        rows(registry, "hongtuu")
    with pytest.raises(PluginError, match="teleport"):
        rows(registry, "hongtu", swaps=(("communication", "teleport"),))


# --------------------------------------------------------------------------- options


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
    with pytest.raises(UsageError, match="warp"):
        compare(request("hongtu", options={"communication": {"warp": "9"}}), registry)
    with pytest.raises(UsageError, match="stages"):
        compare(request("hongtu", options={"communication": {"stages": "1"}}), registry)
    with pytest.raises(UsageError, match="several"):
        compare(
            request("hongtu", options={"sampler": {"chunks_per_partition": "several"}}), registry
        )


# --------------------------------------------------------------------------- refusals


def test_a_swap_that_fits_nobody_is_refused(registry):
    """hongtu has that memory already, so the one row that is swapped is hyscale's."""
    swaps = (("memory", "hongtu"),)
    with pytest.raises(IncompatibleParts, match="hyscale·hongtu: memory 'hongtu' works for"):
        compare(request("hyscale", "hongtu", swaps=swaps), registry)


def test_a_swapped_row_that_does_not_fit_is_skipped_and_says_why(registry):
    swaps = (("memory", "host"), ("communication", "vanilla"))
    result = compare(request("hyscale", "hongtu", swaps=swaps), registry)
    status = {run.label: (run.status, run.reason) for run in result.runs}
    assert status["hyscale"][0] == status["hyscale·vanilla"][0] == status["hongtu"][0] == "done"
    skipped, reason = status["hongtu·host·vanilla"]
    assert skipped == "skipped"
    assert "memory 'host' works for mini-batch training only" in reason


# --------------------------------------------------------------------------- the check


def test_all_bundled_strategies_are_done_and_equal(registry):
    result = compare(request("reference", "pyg", "dgl", "native", "hyscale", "hongtu"), registry)
    assert len(result.runs) == 10
    for run in result.runs:
        assert (run.status, run.reason) == ("done", ""), run.label
        assert run.equivalence.reference == run.mode
        assert run.equivalence.max_relative_loss_error <= 1e-9, run.label


def count_reference_runs(monkeypatch):
    """A list that grows by one entry, followed or not, with every reference run."""
    made = []
    real = gnnbench.compare.train

    def counting(bundle, setting, clock, watch=None, checkpoints=None, collectives=None, lend=None):
        if setting.platform.name == "reference":
            made.append(checkpoints is not None)
        return real(bundle, setting, clock, watch, checkpoints, collectives, lend)

    monkeypatch.setattr(gnnbench.compare, "train", counting)
    return made


def test_one_reference_serves_all_rows_that_it_fits(registry, monkeypatch):
    made = count_reference_runs(monkeypatch)
    swaps = (("communication", "vanilla"),)
    compare(request("reference", "pyg", "hongtu", "hyscale", swaps=swaps, repeats=2), registry)
    # One for the full graph, one for the neighbour sampler, none of them followed.
    # pyg's sampler is the plain one where no library for its own is installed.
    samplers = {
        registry.strategy(name).bundles["mini-batch"].sampler for name in ("reference", "pyg")
    }
    assert made == [False] * (1 + len(samplers))


def test_no_check_makes_no_reference(registry, monkeypatch):
    made = count_reference_runs(monkeypatch)
    (run,) = compare(request("hongtu", check=False), registry).runs
    assert (made, run.equivalence, run.status) == ([], None, "done")


@pytest.mark.parametrize("mode", ["mini-batch", "full-graph"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_averaged_without_their_weights_are_caught(registry, monkeypatch, mode, dtype):
    """Adam hides a gradient wrong by one factor everywhere, but not by one for each unit."""
    made = count_reference_runs(monkeypatch)
    (run,) = compare(request(f"unweighted-{mode}", dtype=dtype, epochs=8), registry).runs
    assert run.status == "done"
    assert run.equivalence.max_relative_loss_error > run.equivalence.tolerance
    assert not run.equivalence.holds
    # It had its second chance, with a reference beside its own states.
    assert made == [False, True]


@pytest.mark.parametrize("mode", ["mini-batch", "full-graph"])
def test_rounding_noise_is_not_wrong_maths(registry, monkeypatch, mode):
    """Over 40 epochs at a high rate rounding grows beyond the tolerance; beside the row's own
    states it does not."""
    made = count_reference_runs(monkeypatch)
    base = request(f"noisy-{mode}", dtype="float32", epochs=40, model="gin")
    fast = dataclasses.replace(base.workload, learning_rate=0.1)
    (run,) = compare(dataclasses.replace(base, workload=fast), registry).runs
    assert run.status == "done"
    assert 0 < run.equivalence.max_relative_loss_error <= run.equivalence.tolerance
    assert made[0] is False


def test_a_loss_that_is_not_a_number_is_not_equal(registry):
    (run,) = compare(request("broken-full-graph"), registry).runs
    assert run.status == "done"
    assert math.isnan(run.loss[-1])
    assert not run.equivalence.holds


@pytest.mark.parametrize(
    ("losses", "final", "error"),
    [
        ((1.0, 0.5), 0.25, 0.0),
        ((1.0, 0.55), 0.25, 0.1),
        ((1.0, 0.5), 0.3, 0.2),
        ((1.0, math.nan), 0.25, math.inf),
        ((math.nan, 0.5), 0.25, math.inf),
        ((1.0, 0.5), math.nan, math.inf),
    ],
)
def test_the_error_is_the_largest_over_rounds_and_the_last_update(losses, final, error):
    epoch = EpochTrace(0, (), {}, 0, 0, 0.0, losses, {}, 0.0, 0.0)
    trace = Trace((epoch,), {}, {}, 0.0)
    found = loss_error(trace, final, ReferenceLosses(((1.0, 0.5),), 0.25))
    assert found == pytest.approx(error)


# --------------------------------------------------------------------------- one row and the others


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


# --------------------------------------------------------------------------- repeats and accuracy


def test_repeats_are_rows_of_their_own_and_checked_once(registry):
    result = compare(request("hongtu", repeats=3), registry)
    assert [run.repeat for run in result.runs] == [0, 1, 2]
    assert [run.equivalence is not None for run in result.runs] == [True, False, False]
    assert len({run.loss for run in result.runs}) == 1


def test_time_to_accuracy_is_the_time_of_the_epochs_it_took(registry):
    base = request("hongtu", epochs=8)
    (plain,) = compare(base, registry).runs
    epochs = plain.metrics["epoch_time"].samples
    (at_once,) = compare(dataclasses.replace(base, target_accuracy=0.0), registry).runs
    assert at_once.metrics["time_to_accuracy"].value == epochs[0]
    assert at_once.metrics["time_to_accuracy"].provenance == "modelled"
    (never,) = compare(dataclasses.replace(base, target_accuracy=1.01), registry).runs
    assert "time_to_accuracy" not in never.metrics
    assert "validation accuracy 1.01 was not reached in 8 epochs" in never.notes


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
