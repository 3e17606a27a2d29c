"""What a library takes on a device where it was measured, by hand."""

from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.check.graphs import (
    fit_workload,
    make_dataset,
    make_platform,
    make_sparse_dataset,
    make_this_host,
)
from gnnbench.machines.costs import (
    DotProducts,
    Library,
    Operation,
    Product,
    ScalarLoop,
    Sum,
    price_calls,
    price_measured,
)
from gnnbench.machines.costs.loading import price_sampling
from gnnbench.machines.machine import (
    CallTimes,
    Device,
    EdgeRates,
    Hardware,
    LibraryRates,
    MemoryRates,
    RateCurve,
    SumRates,
)
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.price.epochs import price_epochs
from gnnbench.records import AggregateWork, LossWork, ProductSize, SampleWork, UpdateWork
from gnnbench_plugins.reference.kernel import TorchKernel


def flat(rate: float) -> RateCurve:
    return RateCurve((16,), (2 * rate,), (rate,))


RATES = LibraryRates(
    sums=SumRates(aggregate=flat(1e3), cached=flat(4e3), written=flat(2e3)),
    update=flat(5e3),
    calls=CallTimes(call_s=0.5, fresh_call_s=0.75, update_call_s=0.25, batch_s=3.0),
    edges=EdgeRates(
        bound_edges_per_s=100.0,
        transposed_edges_per_s=50.0,
        sampled_edges_per_s=1000.0,
        sampling_call_s=0.1,
    ),
)
CPU = Device(
    "host",
    "cpu",
    "",
    Hardware(1e9, 1e9, 1, cache_bytes=7040.0),
    cores=2,
    memory=MemoryRates(core_bandwidth_bytes_per_s=1e9),
)
#: 1,000 rows of 64 bytes are picked, 100 of them different, and 10 written: 110 are in the cache.
SUM = Sum(
    read_bytes=4000.0,
    written_bytes=640.0,
    picked_rows=1000,
    distinct_rows=100,
    row_bytes=64.0,
    launches=0,
)


def price(*operations: Operation, threads: int = 1) -> float:
    return price_measured(operations, CPU, Library(), RATES, threads)


def test_rows_in_the_cache_are_picked_at_its_rate_and_written_at_theirs() -> None:
    assert price(SUM) == pytest.approx(64_000 / 4e3 + 640 / 2e3)
    assert price(SUM, threads=2) == pytest.approx((64_000 / 4e3 + 640 / 2e3) / 2)


def test_what_the_cache_does_not_hold_comes_out_of_the_memory() -> None:
    """Of 400 different rows 110 fit; 600 of the 1,000 have been picked before."""
    taken_s = price(replace(SUM, distinct_rows=400))
    kept = 110 / 400 * 600 / 1000
    assert taken_s == pytest.approx(kept * 64_000 / 4e3 + (1 - kept) * 64_000 / 1e3 + 640 / 2e3)


def test_what_is_written_puts_out_of_the_cache_what_was_there_before() -> None:
    """A row more than fits, and all hundred come from the memory once; the others of the thousand
    find them."""
    taken_s = price(replace(SUM, written_bytes=704.0))
    assert taken_s == pytest.approx(900 * 64 / 4e3 + 100 * 64 / 1e3 + 704 / 2e3)


def test_what_the_cache_does_not_hold_is_written_no_faster_than_the_memory_takes_it() -> None:
    slow = replace_fields(CPU, memory_bandwidth_bytes_per_s=500.0, core_bandwidth_bytes_per_s=500.0)
    assert price_measured([SUM], slow, Library(), RATES, 1) == pytest.approx(price(SUM))
    more = replace(SUM, written_bytes=704.0)
    later_s = price_measured([more], slow, Library(), RATES, 1) - price(more)
    assert later_s == pytest.approx(704 / 500 - 704 / 2e3)


@dataclass(frozen=True)
class KnownOrder:
    """A cache of 110 rows has so large a share of those that are read, either way."""

    share: float

    def kept(self, rows: float, *, backward: bool = False) -> float:
        return self.share if rows == 110 and not backward else 0.0


def test_where_the_order_is_known_the_cache_has_what_comes_again_soon_enough() -> None:
    """It has room for 110 rows of 64 bytes: for all of them, or for some."""
    far = replace(SUM, distinct_rows=400, kept=KnownOrder(0.75).kept)
    assert price(far) == pytest.approx(0.75 * 64_000 / 4e3 + 0.25 * 64_000 / 1e3 + 640 / 2e3)
    assert price(replace(far, kept=partial(KnownOrder(0.75).kept, backward=True))) == pytest.approx(
        64_000 / 1e3 + 640 / 2e3
    )
    assert price(replace(far, distinct_rows=100)) == price(SUM)


def test_sums_too_large_to_be_kept_are_mapped_anew_besides() -> None:
    mapped = replace_fields(CPU, mapped_from_bytes=640.0, fresh_bandwidth_bytes_per_s=160.0)
    taken_s = price_measured([SUM], mapped, Library(), RATES, 1)
    assert taken_s == pytest.approx(price(SUM) + 640 / 160)
    kept = replace_fields(mapped, mapped_from_bytes=641.0)
    assert price_measured([SUM], kept, Library(), RATES, 1) == pytest.approx(price(SUM))


def test_sums_with_a_weight_an_edge_have_rates_of_their_own_where_they_are_not_vectors() -> None:
    """Of a library whose own file says less, and of another that sums all rows alike."""
    library = Library(scalar_values_per_s=1e3)
    weighted = ScalarLoop(**{**asdict(SUM), "flops": 32_000.0})
    rates = replace_fields(RATES, weighted=flat(200.0), weighted_cached=flat(400.0))
    for threads in (1, 2):
        taken_s = price_measured([weighted], CPU, library, rates, threads)
        assert taken_s == pytest.approx((64_000 / 400 + 640 / 2e3) / threads)
        far = replace(weighted, distinct_rows=400)
        taken_s = price_measured([far], CPU, library, rates, threads)
        kept = 64_000 * 110 / 400 * 600 / 1000
        expected_s = (64_000 - kept) / 200 + kept / 400 + 640 / 2e3
        assert taken_s == pytest.approx(expected_s / threads)
    assert price_measured([SUM], CPU, library, rates, 1) == pytest.approx(price(SUM))
    assert price_measured([weighted], CPU, library, RATES, 1) == pytest.approx(32.0)


def test_gradients_of_weights_have_rates_of_their_own_where_they_are_not_vectors() -> None:
    """All that is read and written in order is in them, and the rows of destinations, whether those
    are told apart or not."""
    library = Library(dot_values_per_s=1e3)
    dots = DotProducts(**{**asdict(SUM), "flops": 16_000.0})
    rates = replace_fields(RATES, dotted=flat(160.0), dotted_cached=flat(320.0))
    for threads in (1, 2):
        for picked in (1000, 2000):
            either = replace(dots, picked_rows=picked)
            taken_s = price_measured([either], CPU, library, rates, threads)
            assert taken_s == pytest.approx(64_000 / 320 / threads)
        taken_s = price_measured([replace(dots, distinct_rows=400)], CPU, library, rates, threads)
        kept = 64_000 * 110 / 400 * 600 / 1000
        assert taken_s == pytest.approx(((64_000 - kept) / 160 + kept / 320) / threads)
    assert price_measured([dots], CPU, library, RATES, 1) == pytest.approx(price(SUM) + 16.0)


def test_a_product_goes_as_fast_as_the_library_multiplies() -> None:
    product = Product(read_bytes=1e12, flops=20_000.0, width=16.0, launches=0)
    assert price(product) == pytest.approx(4.0)


def test_what_a_product_makes_is_mapped_besides_where_nobody_keeps_it() -> None:
    mapped = replace_fields(CPU, mapped_from_bytes=640.0, fresh_bandwidth_bytes_per_s=160.0)
    product = Product(written_bytes=640.0, flops=20_000.0, width=16.0, launches=1)
    for made, more_s in ((product, 4.0), (replace(product, outputs=0), 0.0)):
        taken_s = price_measured([made], mapped, Library(), RATES, 1)
        assert taken_s == pytest.approx(4.0 + more_s)
    assert price_measured([replace(product, outputs=2)], mapped, Library(), RATES, 1) == 4.0


def test_calls_are_those_of_the_step_and_a_new_block_is_made_ready() -> None:
    again = AggregateWork(edges=200)
    assert price_calls(again, RATES) == 0.5
    assert price_calls(again._replace(fresh=True), RATES) == 0.75 + 2.0
    assert price_calls(again._replace(fresh=True, backward=True), RATES) == 0.75 + 4.0
    stored = again._replace(features=4, product=ProductSize(4 * 300, columns=7))
    assert price_calls(stored, RATES) == 0.5
    assert price_calls(stored._replace(fresh=True), RATES) == 0.75 + 5.0
    assert price_calls(stored._replace(fresh=True, backward=True), RATES) == 0.75 + 10.0
    attends = again._replace(form="attention")
    assert price_calls(attends, RATES) == 0.5
    assert price_calls(attends._replace(fresh=True), RATES) == 0.75 + 2.0
    rates = replace_fields(RATES, attention_call_s=0.6, attention_fresh_call_s=0.9)
    assert price_calls(again, rates) == 0.5
    assert price_calls(attends, rates) == 0.6
    assert price_calls(attends._replace(fresh=True, backward=True), rates) == 0.9 + 4.0
    update, loss = UpdateWork(), LossWork()
    assert price_calls(update, RATES) == price_calls(update._replace(fresh=True), RATES) == 0.25
    assert price_calls(loss, RATES) == price_calls(loss._replace(fresh=True), RATES) == 3.0
    rates = replace_fields(RATES, update_fresh_call_s=0.4, fresh_batch_s=5.0)
    assert (price_calls(update, rates), price_calls(loss, rates)) == (0.25, 3.0)
    assert price_calls(update._replace(fresh=True), rates) == 0.4
    assert price_calls(loss._replace(fresh=True), rates) == 5.0


def test_a_measured_kernel_is_priced_by_what_it_does_at_its_own_rates() -> None:
    """Torch's sum of 1,000 edges of 16 values, 100 sources and 10 destinations."""
    work = AggregateWork(edges=1000, rows=10, features=16, threads=1, sources=100)
    here = replace(CPU, libraries={"torch": RATES})
    taken_s = TorchKernel().seconds(work, here)
    assert taken_s == pytest.approx(64_000 / 4e3 + 640 / 2e3 + 0.5)
    faster = replace(here, libraries={"torch": replace_fields(RATES, cached=flat(8e3))})
    assert TorchKernel().seconds(work, faster) == pytest.approx(8.0 + 0.32 + 0.5)
    assert TorchKernel().seconds(work, replace(here, libraries={"dgl": RATES})) < 0.1


def test_a_measured_sampler_has_its_own_calls() -> None:
    work = SampleWork(edges=2000, threads=1, layers=2)
    library = Library(sampled_edges_per_s=1.0, sampling_call_s=9.0)
    assert price_sampling(work, CPU, library, RATES) == pytest.approx(2.0 + 0.2)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_of_sparse_features_a_full_graph_multiplies_the_stored_values_alone(model: str) -> None:
    data = make_sparse_dataset()
    assert not isinstance(data.features, np.ndarray)
    dims = (data.num_features, 2, data.num_classes)
    workload = replace(fit_workload(data), model=model, dims=dims)
    setting = Setting(data, make_this_host(), workload, build(workload).shapes)
    registry = plugins.load()
    parts = registry.strategy("native").bundles["full-graph"]
    dry = DryRun(plugins.assemble(registry, parts, {}), setting)
    spans = [span for span in dry.run_epoch(0).spans if span.layer == 0 and span.work.macs]
    assert {span.label for span in spans} == {"aggregate forward", "aggregate backward"}
    assert {span.work.macs for span in spans} == {data.features.nnz * 2}


@pytest.mark.parametrize("mode", ["mini-batch", "full-graph"])
@pytest.mark.parametrize("accelerators", [0, 2])
def test_mini_batches_are_new_to_caches_and_full_graphs_are_not(mode, accelerators) -> None:
    """Rows that are sent on are picked into memory that stays."""
    data, platform = make_dataset(), make_platform(2) if accelerators else make_this_host()
    workload = fit_workload(data, "gcn", 1)
    setting = Setting(data, platform, workload, build(workload).shapes)
    apart = {"mini-batch": "pyg-multi-gpu", "full-graph": "partition"}[mode]
    name, registry = apart if accelerators else "reference", plugins.load()
    parts = registry.strategy(name).bundles[mode]
    spans = DryRun(plugins.assemble(registry, parts, {}), setting).run_epoch(0).spans
    computed = [
        span.work.fresh for span in spans if isinstance(span.work, AggregateWork | UpdateWork)
    ]
    assert len(computed) > 2
    assert set(computed) == {mode == "mini-batch"}
    loads = [span.work.fresh for span in spans if span.label == "load features"]
    assert set(loads) == ({not accelerators} if mode == "mini-batch" else set())


def list_bundles():
    """But for HP-GNN's, whose FPGA computes with no library."""
    registry = plugins.load()
    return [
        pytest.param(registry, each.name, mode, id=f"{each.name}-{mode}")
        for each in registry.strategies
        for mode in sorted(each.bundles)
        if each.name != "hpgnn"
    ]


def price_epoch(registry, strategy, mode, batch_s, options=None):
    """Return an epoch's seconds where a batch's loss and update take ``batch_s``."""
    bundle = plugins.assemble(registry, registry.strategy(strategy).bundles[mode], options or {})
    rates = dict.fromkeys(
        [bundle.kernel.name],
        LibraryRates(sums=SumRates(aggregate=flat(1e9)), calls=CallTimes(batch_s=batch_s)),
    )
    for platform in (make_platform(2), make_this_host()):
        platform = replace(
            platform,
            host=replace(platform.host, libraries=rates),
            accelerators=tuple(replace(each, libraries=rates) for each in platform.accelerators),
        )
        data = make_dataset()
        workload = fit_workload(data, "gcn", 1)
        setting = Setting(data, platform, workload, build(workload).shapes)
        if bundle.refusal(setting) is None:
            (price,) = price_epochs(bundle, setting, 1)
            return price.epoch_s
    return None


@pytest.mark.parametrize(("registry", "strategy", "mode"), list_bundles())
def test_every_strategy_pays_for_its_losses(registry, strategy, mode):
    without_s = price_epoch(registry, strategy, mode, 0.0)
    assert without_s is not None, f"{strategy} runs on neither"
    more_s = price_epoch(registry, strategy, mode, 1000.0) - without_s
    if mode == "full-graph":
        assert more_s == pytest.approx(1000.0, rel=1e-3)
    else:
        assert more_s >= 1000.0 * (1 - 1e-3)


def test_batches_that_are_updated_together_pay_once():
    options = {"sampler": {"schedule": "pipelined"}}
    whole = (plugins.load(), "mixgcn", "full-graph")
    without_s, with_s = (price_epoch(*whole, batch_s, options) for batch_s in (0.0, 1000.0))
    assert with_s - without_s == pytest.approx(1000.0, rel=1e-3)
