"""Which rows a cache still has, from the order in which a sum reads them."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.check.graphs import fit_workload, make_platform, make_sparse_dataset
from gnnbench.kernels.dispatch import transpose
from gnnbench.kernels.read_order import BlockOrder
from gnnbench.machines.costs import Library, Sum, price_operation
from gnnbench.machines.costs.library import read_devices
from gnnbench.machines.machine import Device, Hardware
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.dry_run import DryRun
from gnnbench.records import AggregateWork, Block, Mode


def make_block(rows: np.ndarray, sources: int) -> Block:
    """A destination for every ten reads."""
    bounds = np.arange(0, len(rows) + 1, 10, dtype=np.int64)
    ids = np.arange(max(sources, len(bounds) - 1), dtype=np.int64)
    return Block(ids, len(bounds) - 1, bounds, rows.astype(np.int32))


def simulate(rows: np.ndarray, capacity: int) -> float:
    """The share of reads that a cache of the rows read last has, one read after the other."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in rows.tolist():
        if row in held:
            hits += 1
            held.move_to_end(row)
        else:
            held[row] = None
            if len(held) > capacity:
                held.popitem(last=False)
    return hits / len(rows)


def test_rows_in_a_circle_are_all_kept_or_none() -> None:
    order = BlockOrder(make_block(np.tile(np.arange(100), 20), 100))
    assert order.kept(80) == 0.0
    assert order.kept(110) == pytest.approx(0.95)
    assert order.kept(1e9) == pytest.approx(0.95)  # the first read of each finds none


@pytest.mark.parametrize("capacity", [8, 40, 200, 600])
@pytest.mark.parametrize("kind", ["alike", "hubs", "near"])
def test_it_is_what_a_cache_of_the_rows_read_last_has(kind: str, capacity: int) -> None:
    """Rows that are read alike, some far more often than others, or again soon."""
    rng = np.random.default_rng(0)
    drawn = {
        "alike": rng.integers(0, 1000, 40_000),
        "hubs": (1000 * rng.random(40_000) ** 4).astype(np.int64),
        "near": np.clip(np.arange(40_000) // 40 + rng.integers(-30, 30, 40_000), 0, 999),
    }[kind]
    order = BlockOrder(make_block(drawn, 1000))
    assert order.kept(capacity) == pytest.approx(simulate(drawn, capacity), abs=0.03)


def test_backward_reads_the_rows_of_destinations_source_after_source() -> None:
    rng = np.random.default_rng(1)
    block = make_block((300 * rng.random(4000) ** 3).astype(np.int64), 400)
    bounds, destinations, _ = transpose(block.indptr, block.indices, block.num_src)
    other_way = Block(block.src_ids, block.num_src, bounds, destinations)
    kept = [BlockOrder(block).kept(rows, backward=True) for rows in (4, 20, 90)]
    assert kept == [BlockOrder(other_way).kept(rows) for rows in (4, 20, 90)]
    assert kept != [BlockOrder(block).kept(rows) for rows in (4, 20, 90)]


def test_orders_are_equal_where_the_same_rows_are_read_in_the_same_order() -> None:
    rows = np.arange(100) % 7
    first, same = (BlockOrder(make_block(rows, 7)) for _ in range(2))
    assert first == same
    assert hash(first) == hash(same)
    assert first != BlockOrder(make_block(rows[::-1], 7))
    assert first != BlockOrder(make_block(rows, 11))


@pytest.mark.parametrize(
    ("strategy", "mode", "known"),
    [
        ("native", "full-graph", True),
        ("hongtu", "full-graph", True),
        ("mixgcn", "full-graph", True),
        ("bnsgcn", "full-graph", False),
        ("native", "mini-batch", False),
    ],
)
def test_the_order_is_known_of_blocks_that_stay(strategy: str, mode: Mode, known: bool) -> None:
    data = make_sparse_dataset()
    workload = replace(fit_workload(data), dims=(data.num_features, 2, data.num_classes))
    setting = Setting(data, make_platform(4), workload, build(workload).shapes)
    registry = plugins.load()
    parts = registry.strategy(strategy).bundles[mode]
    spans = DryRun(plugins.assemble(registry, parts, {}), setting).run_epoch(0).spans
    orders = [span.work.order for span in spans if isinstance(span.work, AggregateWork)]
    assert len(orders) > 1
    assert all((order is not None) is known for order in orders)


def test_of_sizes_alone_no_order_is_known() -> None:
    listed = make_block(np.arange(100), 100)
    assert listed.lists_edges
    assert not replace(listed, indices=np.broadcast_to(np.int32(0), (100,))).lists_edges


@pytest.mark.parametrize("way", ["read_bytes", "written_bytes"])
def test_other_traffic_takes_rows_from_the_cache(way: str) -> None:
    """Rows that fit are found there, unless they and the traffic do not fit together."""
    hardware = Hardware(15e12, 900e9, 10**10, cache_bytes=1_000_000)
    device, rates = Device("gpu0", "gpu", "", hardware), read_devices()["gpu"]
    rows = Sum(picked_rows=1e6, distinct_rows=1000, row_bytes=512)
    times = [
        price_operation(replace(rows, **{way: size}), device, Library())
        for size in (488_000.0, 488_001.0)
    ]
    slow, fast = 900e9 * rates.reached.gather, 900e9 * rates.cache.cache_times
    assert times[1] - times[0] == pytest.approx(512e3 / slow - 512e3 / fast, rel=1e-3)
