"""What the probe makes of times that libraries take, and that it measures those it says."""

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gnnbench import plugins
from gnnbench.machines import load_platform, show_platform, to_toml
from gnnbench.machines.costs import DotProducts, Library
from gnnbench.machines.libraries import best_of
from gnnbench.machines.local import describe_unmeasured
from gnnbench.machines.machine import CallTimes, EdgeRates, LibraryRates, Platform, RateCurve
from gnnbench.machines.tables import list_leaves
from gnnbench.machines.timing import time_runs, typical_rate
from gnnbench.parts import Adjacency
from gnnbench.probing import Probed, calls, kernels, libraries, probe_libraries, samplers
from gnnbench.probing.calls import Calls
from gnnbench.probing.kernels import Amounts, KernelProbe, draw_block, split_time
from gnnbench.records import Block, BlockSize
from gnnbench_plugins.reference.kernel import TorchKernel


@pytest.fixture(scope="module")
def small() -> Iterator[pytest.MonkeyPatch]:
    """Rates that are wrong and soon measured."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (
            ("WIDTHS", (4, 16)),
            ("NARROW_SIDES", (4, 16)),
            ("CACHED_BYTES", 2**10),
            ("ON_HOST", Amounts(2**12, 2**10, 2**14, 2**6, 2**5, 2**8)),
            ("WARMUPS", 1),
        ):
            patch.setattr(kernels, name, size)
        patch.setattr(libraries, "VERTICES", 2**12)
        patch.setattr(calls, "EPOCHS", 3)
        patch.setattr(calls, "SWEPT_EPOCHS", 3)
        for module in (calls, kernels, samplers):
            patch.setattr(module, "make_sweep", lambda: lambda: None)
        yield patch


@pytest.fixture(scope="module")
def machine() -> Platform:
    platform = describe_unmeasured()
    return replace(platform, accelerators=(), links=(), host=replace(platform.host, cores=1))


@pytest.fixture
def clock(small, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("gnnbench.machines.timing.read_clock", lambda threads: lambda: now[0])
    return now


@pytest.fixture(scope="module")
def probed(small, machine) -> Probed:
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries, "PASSES", 1)
        found = probe_libraries(machine, plugins.load(), 0.001)
    assert torch.get_num_threads() == threads
    return found


def test_two_sums_tell_an_edge_from_a_row() -> None:
    edge_s, row_s = split_time((1000, 250, 1000 * 3 + 250 * 40), (960, 30, 960 * 3 + 30 * 40))
    assert (edge_s, row_s) == (pytest.approx(3.0), pytest.approx(40.0))


def test_what_noise_hides_has_a_small_share() -> None:
    """More rows that take less time would be negative seconds."""
    edge_s, row_s = split_time((1000, 250, 10.0), (1000, 31, 11.0))
    assert row_s == pytest.approx(0.02 * 10.0 / 250)
    assert edge_s > 0.0


def test_a_block_has_so_many_edges_to_a_row() -> None:
    block = draw_block(rows=5, degree=3, sources=7)
    assert (block.num_dst, block.num_src, block.num_edges) == (5, 7, 15)
    assert set(block.indptr[1:] - block.indptr[:-1]) == {3}
    assert 0 <= block.indices.min() <= block.indices.max() < 7


def test_kernels_and_samplers_are_measured_and_who_cannot_says_why(probed, machine) -> None:
    here = probed.platform.host.libraries
    kernels_here = {name: rates for name, rates in here.items() if rates.sums.aggregate}
    samplers_here = {name: rates for name, rates in here.items() if rates.edges.sampled_edges_per_s}
    assert {"torch", "native"} <= set(kernels_here)
    for rates in kernels_here.values():
        assert rates.calls.call_s is not None
        taken = (
            rates.calls.call_s,
            rates.calls.fresh_call_s,
            rates.calls.update_call_s,
            rates.calls.update_fresh_call_s,
        )
        taken += (rates.calls.attention_call_s, rates.calls.attention_fresh_call_s)
        taken += (rates.calls.batch_s, rates.calls.fresh_batch_s)
        assert all(1e-7 < seconds < 1.0 for seconds in taken)
        assert rates.calls.fresh_batch_s > rates.calls.batch_s
        assert min(rates.edges.bound_edges_per_s, rates.edges.transposed_edges_per_s) > 0.0
        curves = [rates.sums.aggregate, rates.sums.cached, rates.sums.written, rates.update]
        if rates.sums.weighted:
            curves += [
                rates.sums.weighted,
                rates.sums.weighted_cached,
                rates.sums.dotted,
                rates.sums.dotted_cached,
            ]
        for curve in curves:
            assert curve is not None
            assert curve.widths == (4, 16)
            assert all(1e3 < rate < 1e15 for rate in (*curve.rates, *curve.core_rates))
    weighted = {name for name, rates in kernels_here.items() if rates.sums.weighted}
    assert weighted == {"dgl"} & set(kernels_here)
    assert {"neighbour", "saint", "layerwise"} <= set(samplers_here)
    assert all(1e2 < rates.edges.sampled_edges_per_s < 1e12 for rates in samplers_here.values())
    for rates in samplers_here.values():
        assert rates.edges.jointly_sampled_edges_per_s >= rates.edges.sampled_edges_per_s
    assert 1e-7 < probed.platform.step_s < 1.0
    assert (probed.platform.mark("step").kind, machine.step_s) == ("measured", 0.0)
    reasons = {each.part: each.reason for each in probed.unmeasured}
    assert "sparse accelerators" in reasons["kernel spu"]
    assert not {f"kernel {name}" for name in kernels_here} & set(reasons)
    assert not {f"sampler {name}" for name in samplers_here} & set(reasons)


class ByValues(TorchKernel):
    """Says that sums with a weight an edge have no vector instructions, and counts either kind."""

    library = Library(scalar_values_per_s=1e9)

    def __init__(self) -> None:
        self.weighted = self.plain = 0

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> Adjacency:
        made = super().adjacency(block, dtype, device)

        class Counted(type(made)):  # type: ignore[misc]
            def sum(counted, h: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
                if weight is None:
                    self.plain += 1
                else:
                    assert len(weight) == block.num_edges
                    self.weighted += 1
                return super().sum(h, weight)

        made.__class__ = Counted
        return made


def test_weights_are_there_where_sums_with_them_are_measured(small, machine) -> None:
    kernel = ByValues()
    rates = KernelProbe(kernel, machine.host, 0.0).measure()
    assert rates.sums.weighted is not None
    assert rates.sums.weighted_cached is not None
    # Two widths, two tables and two degrees of either, once to warm up and once at least measured.
    assert kernel.weighted >= 16
    assert kernel.plain >= 16
    kernel.weighted, kernel.library = 0, Library()
    assert KernelProbe(kernel, machine.host, 0.0).measure().sums.weighted is None
    assert kernel.weighted == 0


def test_what_libraries_reach_is_written_and_read_back(probed, tmp_path) -> None:
    found = probed.platform
    path = tmp_path / "here.toml"
    path.write_text(to_toml(found))
    again = load_platform(str(path))
    assert again.host.libraries == found.host.libraries
    assert again.sources == found.sources
    assert again.step_s == found.step_s > 0.0
    measured = [key for key in again.sources if key.startswith("host.libraries.")]
    assert {again.mark(key).kind for key in measured} == {"measured"}
    rows = {row.key: row for row in show_platform(again)}
    assert re.search(r"\b[GM]B/s", rows["host.libraries.torch.cached"].value)
    assert "edges/s" in rows["host.libraries.neighbour.sampling"].value
    assert rows["host.libraries.torch.call"].source.startswith("measured here on")
    assert rows["step"].source.startswith("measured here on")
    assert rows["step"].mark == "measured"


class _SlowOnce:
    """A kernel whose sums take a known time for an edge and a row, by a clock that they move."""

    def __init__(self, clock: list[float], edge_s: float, row_s: float) -> None:
        self._clock, self._edge_s, self._row_s = clock, edge_s, row_s

    def adjacency(self, block, dtype, device):
        del dtype, device
        kernel = self

        class Adjacency:
            def sum(self, h):
                kernel._clock[0] += block.num_edges * kernel._edge_s * h.shape[1]
                kernel._clock[0] += block.num_dst * kernel._row_s * h.shape[1]

        return Adjacency()


def test_rates_are_those_of_the_kernel(clock, machine) -> None:
    """An edge's value takes a microsecond and a row's ten, so 4 MB/s are picked and 0.4 MB/s
    written, whatever the width."""
    slow = _SlowOnce(clock, 1e-6, 1e-5)
    probe = KernelProbe(slow, machine.host, 0.0)
    picked, cached, written = probe._measure_sums(1, "plain")
    assert picked == cached == [pytest.approx(4e6)] * 2
    assert written == [pytest.approx(4e5)] * 2


class _SlowGradients:
    """A kernel whose weights' gradients take known seconds, by a clock that it moves."""

    library = Library(dot_values_per_s=1e9)

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock

    def adjacency(self, block, dtype, device):
        del dtype, device
        clock = self._clock

        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, h, weight):
                clock[0] += 1.0
                ctx.needed, ctx.width = ctx.needs_input_grad, h.shape[1]
                return h.new_zeros(block.num_dst, h.shape[1])

            @staticmethod
            def backward(ctx, g):
                assert ctx.needed == (False, True)
                assert g.shape == (block.num_dst, ctx.width)
                clock[0] += (block.num_edges * 1e-6 + block.num_dst * 1e-5) * ctx.width
                return None, g.new_zeros(block.num_edges)

        class Adjacency:
            def sum(self, h, weight=None):
                return Sum.apply(h, weight)

        return Adjacency()


def test_gradients_of_weights_are_measured_without_the_sums_before(clock, machine) -> None:
    """The same times as above; of a library that has vector instructions for them, nothing."""
    kernel = _SlowGradients(clock)
    probe = KernelProbe(kernel, machine.host, 0.0)
    for curve in probe._measure_slow(DotProducts, "dotted", [1]):
        assert curve is not None
        assert curve.core_rates == (pytest.approx(4e6),) * 2
    kernel.library = Library(scalar_values_per_s=1e9)
    assert probe._measure_slow(DotProducts, "dotted", [1]) == (None, None)


class _SlowProducts:
    """A kernel whose UPDATE takes a second a product, and longer in three of four calls."""

    def __init__(self, clock: list[float]) -> None:
        self._clock, self._calls = clock, 0

    def linear(self, a, weight, bias, *, relu):
        del relu
        clock = self._clock
        clock[0] += 7.0 * (self._calls % 4 != 3)
        self._calls += 1

        class Multiply(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, weight, bias):
                clock[0] += 1.0
                ctx.save_for_backward(a, weight)
                return a @ weight + bias

            @staticmethod
            def backward(ctx, g):
                a, weight = ctx.saved_tensors
                clock[0] += sum(ctx.needs_input_grad[:2])
                return g @ weight.t(), a.t() @ g, g.sum(dim=0)

        return Multiply.apply(a, weight, bias)


def test_products_are_those_of_training(clock, machine) -> None:
    """64 rows of 256 values by 4 and by 16 columns: so many operations in each of three seconds."""
    curve = KernelProbe(_SlowProducts(clock), machine.host, 0.0).measure_update()
    expected = (2.0 * 64 * 256 * 4, 2.0 * 64 * 256 * 16)
    assert curve.rates == pytest.approx(expected, rel=1e-3)


@pytest.fixture
def sweeps(small, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    def sweep() -> None:
        found.append(time.perf_counter())
        time.sleep(0.002)

    for module in (calls, kernels, samplers):
        monkeypatch.setattr(module, "make_sweep", lambda: sweep)
    return found


def assemble(mode):
    registry = plugins.load()
    return plugins.assemble(registry, registry.strategy("reference").bundles[mode], {})


def test_a_mini_batch_finds_its_caches_swept_after_every_step(sweeps, machine) -> None:
    setting = calls._make_tiny("gcn", libraries._make_setting(machine))
    epochs = calls._train(assemble("mini-batch"), setting, sweeps=True)
    steps = len(epochs[0].trace.spans)
    assert {len(each.trace.spans) for each in epochs} == {steps}
    assert sum(span.label == "loss" for span in epochs[0].trace.spans) == calls.BATCHES
    # The first epoch is not told.
    assert len(epochs) == calls.SWEPT_EPOCHS
    assert len(sweeps) == steps * (1 + len(epochs))
    for each in epochs:
        assert each.trace.harness_s - each.harness_s >= 0.002 * steps
        assert each.step_s == pytest.approx(each.harness_s / steps)
        assert each.harness_s > 0.0
    again = calls._train(assemble("full-graph"), setting)
    assert len(sweeps) == steps * (1 + len(epochs))
    assert all(each.harness_s == each.trace.harness_s for each in again)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_what_a_host_does_for_an_accelerator_stays_in_its_caches(sweeps, machine, kind) -> None:
    setting = libraries._make_setting(machine)
    bundles = assemble("full-graph"), assemble("mini-batch")
    known = LibraryRates(edges=EdgeRates(sampled_edges_per_s=3.0))
    found = calls.measure_calls(*bundles, setting, replace(machine.host, kind=kind), known)
    assert bool(sweeps) == (kind == "cpu")
    assert found.rates.edges.sampled_edges_per_s == 3.0
    assert found.rates.calls.fresh_batch_s > found.rates.calls.batch_s > 0.0


def test_times_of_calls_are_those_of_their_steps_in_their_mode(machine, monkeypatch) -> None:
    full, mini = assemble("full-graph"), assemble("mini-batch")
    unit_s = {
        (full, "gcn", False): 1.0,
        (mini, "gcn", True): 2.0,
        (full, "gat", False): 3.0,
        (mini, "gat", True): 5.0,
        (full, "gcn", True): 0.5,
    }
    seconds = {
        "aggregate forward": 1e-3,
        "aggregate backward": 3e-3,
        "update forward": 4e-3,
        "update backward": 6e-3,
        "loss": 10e-3,
        "average and step": 20e-3,
        "load features": 40e-3,
        "sample": 80e-3,
    }

    def train(bundle, setting, *, sweeps=False) -> list[calls._Epoch]:
        unit = unit_s[bundle, setting.workload.model, sweeps]
        # A disturbed epoch in three, and each has two steps of a kind, one twice as long.
        epochs = []
        for slowed in (1.0, 9.0, 1.0):
            steps = [
                SimpleNamespace(label=label, wall_s=unit * slowed * taken_s * length)
                for label, taken_s in seconds.items()
                for length in (1.0, 2.0)
            ]
            epochs.append(calls._Epoch(SimpleNamespace(spans=steps), unit * slowed * 0.16))
        return epochs

    monkeypatch.setattr(calls, "_train", train)
    setting = libraries._make_setting(machine)
    found = calls.measure_calls(full, mini, setting, machine.host, LibraryRates())
    # The harness takes 0.02 s of each of the 16 steps of mini-batches, and 0.005 s of any step.
    ended_s, more_s = 2 * 3 * 30e-3, 2 * 3 * 40e-3 + 16 * (0.02 - 0.005)
    assert found.step_s == pytest.approx(0.005, rel=0.01)
    assert asdict(found.rates.calls) == pytest.approx(
        asdict(LibraryRates().calls)
        | {
            "call_s": 3e-3,
            "fresh_call_s": 6e-3,
            "attention_call_s": 9e-3,
            "attention_fresh_call_s": 15e-3,
            "update_call_s": 7.5e-3,
            "update_fresh_call_s": 15e-3,
            "batch_s": ended_s / calls.BATCHES,
            "fresh_batch_s": (ended_s + more_s) / calls.BATCHES,
        },
        rel=0.01,
    )


def test_rows_out_of_memory_are_summed_with_swept_caches_and_cached_ones_are_not(
    sweeps, machine, monkeypatch
) -> None:
    seen: list[tuple[int, int]] = []
    run = KernelProbe._run

    def watch(probe, work, threads, *, sweeps: bool = False):
        seen.append((len(work.args[0]), sweeps))
        return run(probe, work, threads, sweeps=sweeps)

    monkeypatch.setattr(KernelProbe, "_run", watch)
    KernelProbe(TorchKernel(), machine.host, 0.0)._measure_sums(1, "plain")
    # Tables of 1 KiB and 16 KiB, of rows of 16 and 64 bytes, but of 32 rows at least.
    assert {rows for rows, swept in seen if swept} == {1024, 256}
    assert {rows for rows, swept in seen if not swept} == {64, 32}
    assert len(sweeps) == 3 * 2 * 2


def test_what_comes_before_a_run_is_not_counted(clock) -> None:

    def advance(seconds: float) -> None:
        clock[0] += seconds

    place = torch.device("cpu")
    taken = time_runs(lambda: advance(1.0), 0.0, place, 1, lambda: advance(100.0))
    assert taken == [1.0] * 3
    assert clock[0] == 3 * 101.0 + 1.0
    assert typical_rate(lambda: advance(2.0), 8.0, 0.0, 1, lambda: advance(100.0)) == 4.0
    assert clock[0] == 3 * 101.0 + 1.0 + 3 * 102.0 + 2.0


class _SlowSampler:
    """Draws 10 edges a seed: a second a call and an edge, at most twice as fast on cores."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock

    def begin(self, setting) -> None:
        self._size = setting.workload.batch_size

    def rounds(self, epoch):
        return [np.arange(self._size)]

    def sample(self, seeds, epoch, threads):
        edges = 10 * len(seeds)
        self._clock[0] += 2.0 + edges / min(threads, 2)
        return [BlockSize(0, 0, edges // 2)] * 2


def test_a_sampler_is_measured_on_one_core_and_on_all(sweeps, clock, machine) -> None:
    setting = libraries._make_setting(replace(machine, host=replace(machine.host, cores=3)))
    known = LibraryRates(calls=CallTimes(batch_s=7.0))
    rates = samplers.measure_sampler(_SlowSampler(clock), setting, 0.0, known)
    assert rates.edges.sampled_edges_per_s == pytest.approx(1.0)
    assert rates.edges.jointly_sampled_edges_per_s == pytest.approx(2.0)
    assert rates.edges.sampling_call_s == pytest.approx(1.0)
    assert rates.calls.batch_s == 7.0
    # Three runs each, of few and of many seeds, on one core and on three.
    assert len(sweeps) == 3 * 2 * 2


def test_the_graph_that_is_drawn_from_has_hubs() -> None:
    data = samplers.make_dataset(2**12, 16, 1)
    degrees = np.diff(data.graph.indptr)
    assert 8 < degrees.mean() <= 16
    assert degrees.max() > 10 * degrees.mean()
    assert degrees[: 2**8].mean() > 2 * degrees.mean()


def test_the_numbers_of_a_library_are_all_of_a_kind() -> None:
    units = {each.key.unit for each in list_leaves(LibraryRates).values()}
    assert units == {"B/s", "FLOP/s", "edges/s", "s"}


def test_of_two_measurements_the_better_counts_number_by_number() -> None:
    one = LibraryRates(
        update=RateCurve((4, 8), (2.0, 9.0), (1.0, 5.0)),
        calls=CallTimes(call_s=3.0, batch_s=1.0),
        edges=EdgeRates(sampled_edges_per_s=5.0),
    )
    other = LibraryRates(
        update=RateCurve((4, 8), (3.0, 7.0), (2.0, 4.0)),
        calls=CallTimes(call_s=2.0, batch_s=4.0),
        edges=EdgeRates(sampled_edges_per_s=8.0),
    )
    best = LibraryRates(
        update=RateCurve((4, 8), (3.0, 9.0), (2.0, 5.0)),
        calls=CallTimes(call_s=2.0, batch_s=1.0),
        edges=EdgeRates(sampled_edges_per_s=8.0),
    )
    assert best_of(one, other) == best_of(other, one) == best
    assert best_of(LibraryRates(), LibraryRates()) == LibraryRates()


@dataclass
class _Disturbed:
    """Measures nothing; of two passes over two kernels each is disturbed once."""

    registry: object
    each_s: float

    def measure_kernel(self, name, setting):
        number = len(self.registry.asked)
        self.registry.asked.append(name)
        slow = number in (0, 3)
        return Calls(LibraryRates(calls=CallTimes(call_s=9.0 if slow else 1.0)), 1.0 + number)


@dataclass
class _TwoKernels:
    asked: list[str]

    def parts_of(self, kind):
        first = type("First", (TorchKernel,), {"name": "first"})
        second = type("Second", (TorchKernel,), {"name": "second"})
        return (first, second) if kind == "kernel" else ()


def test_what_disturbs_one_pass_is_not_told(small, machine, monkeypatch) -> None:
    monkeypatch.setattr(libraries, "_LibraryProbe", _Disturbed)
    registry = _TwoKernels([])
    found = probe_libraries(machine, registry, 1.0).platform
    assert registry.asked == ["first", "second"] * 2
    assert {name: rates.calls.call_s for name, rates in found.host.libraries.items()} == {
        "first": 1.0,
        "second": 1.0,
    }
    assert found.step_s == 1.0
