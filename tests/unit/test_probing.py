"""What the probe makes of times that libraries take, and that it measures those it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnbench import plugins
from gnnbench.costs import Library
from gnnbench.parts import Adjacency
from gnnbench.platforms import load_platform, show_platform, to_toml
from gnnbench.platforms.local import describe_unmeasured
from gnnbench.platforms.machine import Platform
from gnnbench.probing import kernels, probe_libraries, samplers
from gnnbench.probing.kernels import Amounts, KernelProbe, draw_block, split_time
from gnnbench.records import Block
from gnnbench_plugins.reference.kernel import TorchKernel


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates that are wrong and soon measured."""
    for name, size in (
        ("WIDTHS", (4, 16)),
        ("NARROW_SIDES", (4, 16)),
        ("CACHED_BYTES", 2**10),
        ("ON_HOST", Amounts(2**12, 2**10, 2**14, 2**6, 2**5, 2**8)),
        ("WARMUPS", 1),
    ):
        monkeypatch.setattr(kernels, name, size)
    monkeypatch.setattr(samplers, "VERTICES", 2**10)


@pytest.fixture
def machine() -> Platform:
    platform = describe_unmeasured()
    return replace(platform, accelerators=(), links=(), host=replace(platform.host, cores=1))


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


def test_kernels_and_samplers_are_measured_and_who_cannot_says_why(small, machine) -> None:
    threads = torch.get_num_threads()
    found = probe_libraries(machine, plugins.load(), 0.001)
    assert torch.get_num_threads() == threads
    libraries = found.platform.host.libraries
    kernels_here = {name: rates for name, rates in libraries.items() if rates.aggregate}
    samplers_here = {name: rates for name, rates in libraries.items() if rates.sampled_edges_per_s}
    assert {"torch", "native"} <= set(kernels_here)
    for rates in kernels_here.values():
        for curve in (rates.aggregate, rates.cached, rates.written, rates.update):
            assert curve is not None
            assert curve.widths == (4, 16)
            assert all(1e3 < rate < 1e15 for rate in (*curve.rates, *curve.core_rates))
        assert rates.call_s is not None
        calls = (rates.call_s, rates.fresh_call_s, rates.update_call_s, rates.batch_s)
        calls += (rates.attention_call_s, rates.attention_fresh_call_s)
        assert all(1e-7 < seconds < 1.0 for seconds in calls)
        assert min(rates.bound_edges_per_s, rates.transposed_edges_per_s) > 0.0
    weighted = {name for name, rates in kernels_here.items() if rates.weighted}
    assert weighted == {"dgl"} & set(kernels_here)
    for rates in map(kernels_here.__getitem__, weighted):
        for curve in (rates.weighted, rates.weighted_cached):
            assert curve is not None
            assert curve.widths == (4, 16)
            assert all(1e3 < rate < 1e15 for rate in (*curve.rates, *curve.core_rates))
    assert {"neighbour", "saint", "layerwise"} <= set(samplers_here)
    assert all(1e2 < rates.sampled_edges_per_s < 1e12 for rates in samplers_here.values())
    reasons = {each.part: each.reason for each in found.unmeasured}
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
    assert rates.weighted is not None
    assert rates.weighted_cached is not None
    # Two widths, two tables and two degrees of either, once to warm up and once at least measured.
    assert kernel.weighted >= 16
    assert kernel.plain >= 16
    kernel.weighted, kernel.library = 0, Library()
    assert KernelProbe(kernel, machine.host, 0.0).measure().weighted is None
    assert kernel.weighted == 0


def test_what_libraries_reach_is_written_and_read_back(small, machine, tmp_path) -> None:
    found = probe_libraries(machine, plugins.load(), 0.001).platform
    path = tmp_path / "here.toml"
    path.write_text(to_toml(found))
    again = load_platform(str(path))
    assert again.host.libraries == found.host.libraries
    assert again.sources == found.sources
    measured = [key for key in again.sources if key.startswith("host.libraries.")]
    assert {again.mark(key).kind for key in measured} == {"measured"}
    rows = {row.key: row for row in show_platform(again)}
    assert (
        "GB/s" in rows["host.libraries.torch.cached"].value
        or "MB/s" in rows["host.libraries.torch.cached"].value
    )
    assert "edges/s" in rows["host.libraries.neighbour.sampling"].value
    assert rows["host.libraries.torch.call"].source.startswith("measured here on")


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


def test_rates_are_those_of_the_kernel(small, machine, monkeypatch) -> None:
    """An edge's value takes a microsecond and a row's ten, so 4 MB/s are picked and 0.4 MB/s
    written, whatever the width."""
    clock = [0.0]
    monkeypatch.setattr("gnnbench.platforms.timing.read_clock", lambda threads: lambda: clock[0])
    slow = _SlowOnce(clock, 1e-6, 1e-5)
    probe = KernelProbe(slow, machine.host, 0.0)
    picked, cached, written = probe._measure_sums(1)
    assert picked == cached == [pytest.approx(4e6)] * 2
    assert written == [pytest.approx(4e5)] * 2


class _SlowProducts:
    """A kernel whose UPDATE takes a second for each product, by a clock that it moves."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock

    def linear(self, a, weight, bias, *, relu):
        del relu
        clock = self._clock

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


def test_products_are_those_of_training(small, machine, monkeypatch) -> None:
    """64 rows of 256 values by 4 and by 16 columns: so many operations in each of three seconds."""
    clock = [0.0]
    monkeypatch.setattr("gnnbench.platforms.timing.read_clock", lambda threads: lambda: clock[0])
    curve = KernelProbe(_SlowProducts(clock), machine.host, 0.0).measure_update()
    expected = (2.0 * 64 * 256 * 4, 2.0 * 64 * 256 * 16)
    assert curve.rates == pytest.approx(expected, rel=1e-3)
