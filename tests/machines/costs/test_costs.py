"""What libraries cost, against counts of their bytes, launches and calls worked out by hand."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnbench.kernels.read_order import BlockOrder
from gnnbench.machines.costs import (
    DotProducts,
    Gather,
    Library,
    Product,
    ScalarLoop,
    Scatter,
    SerialLoop,
    Stream,
    Sum,
    price_operation,
    price_operations,
    read_library,
)
from gnnbench.machines.costs.library import read_devices
from gnnbench.machines.costs.loading import limit_rate, price_rows, price_sampling
from gnnbench.machines.costs.measured import price_measured
from gnnbench.machines.costs.passes import weigh_edges
from gnnbench.machines.costs.roofline import mapping_seconds
from gnnbench.machines.machine import (
    CallTimes,
    Device,
    EdgeRates,
    Hardware,
    LibraryRates,
    RateCurve,
    SumRates,
)
from gnnbench.machines.tables import replace_fields
from gnnbench.plugins import load
from gnnbench.records import (
    AggregateWork,
    Block,
    LossWork,
    ProductSize,
    RowsWork,
    SampleWork,
    UpdateWork,
)
from gnnbench_plugins.pyg.kernel import PyGKernel

GPU = Device("gpu0", "gpu", "", Hardware(15e12, 900e9, 10**10, launch_s=1e-5, cache_bytes=6e6))
CPU = Device(
    "host", "cpu", "", Hardware(2e12, 100e9, 10**11, launch_s=5e-6, cache_bytes=40e6), cores=20
)
RATES = read_devices()
#: 3 million edges from 200,000 rows of 64 values to 100,000.
SUM = AggregateWork(edges=3_000_000, rows=100_000, features=64, sources=200_000)
EDGES, ROW = 3e6, 256.0
BLOCK = Block(np.arange(1), 1, np.array([0, 1]), np.zeros(1, dtype=np.int32))


def kernel(name):
    return load().part("kernel", name)()


def written(operations):
    return sum(operation.written_bytes for operation in operations)


def moved(operations):
    return sum(
        each.read_bytes + each.written_bytes + each.picked_rows * each.row_bytes
        for each in operations
    )


def test_dgl_sums_without_a_value_an_edge_and_pyg_with_one():
    """Ends of 8 bytes and the positions of rows; the rows of sources, and of sums."""
    (dgl,) = kernel("dgl").operations(SUM, GPU)
    (pyg,) = kernel("pyg").operations(SUM, GPU)
    fused = EDGES * 8 + 8 * 100_000 + EDGES * ROW + 100_000 * ROW
    assert moved([dgl]) == fused
    assert moved([pyg]) == fused + EDGES * 4
    assert (dgl.launches, dgl.calls, pyg.calls) == (1, 1, 1)


def test_messages_are_a_row_an_edge_written_and_read_again():
    fused, messages = (
        kernel("pyg").operations(SUM, GPU),
        PyGKernel(messages=True).operations(SUM, GPU),
    )
    # Each is written, read, and added to its destination's row, which is read and written.
    assert written(messages) - written(fused) == EDGES * ROW
    assert moved(messages) > moved(fused) + 4 * EDGES * ROW
    assert [type(each) for each in messages] == [Gather, Scatter]


def test_attention_makes_messages_in_pyg_and_none_in_dgl():
    attention = SUM._replace(form="attention", product=ProductSize(200_000 * 32 * 64))
    dgl, pyg = (kernel(name).operations(attention, GPU) for name in ("dgl", "pyg"))
    assert written(pyg) > written(dgl) + 2 * EDGES * ROW
    products = [each for each in dgl if isinstance(each, Product)]
    assert [(each.flops, each.width) for each in products] == [(2.0 * 200_000 * 32 * 64, 32)]


class _Messages(TorchDispatchMode):
    """Counts tensors of values that operations make, a row of so many for every edge."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        made = isinstance(out, torch.Tensor) and out.shape == self.shape and not out._is_view()
        self.count += made and out.is_floating_point()
        return out


def test_pyg_s_attention_makes_as_many_messages_as_are_priced():
    """A row of the source and its product with the weight; backward the gradient of the sum, and
    its products with either."""
    block = Block(np.arange(6), 4, np.array([0, 3, 5, 9, 11]), np.arange(11, dtype=np.int32) % 6)
    adjacency = kernel("pyg").adjacency(block, torch.float32, torch.device("cpu"))
    h, scores = torch.rand(6, 3, requires_grad=True), torch.rand(11, requires_grad=True)
    with _Messages((11, 3)) as forward:
        out = adjacency.sum(h, adjacency.edge_softmax(scores))
    with _Messages((11, 3)) as backward:
        out.sum().backward()
    attention = SUM._replace(form="attention")
    for work, found in ((attention, forward), (attention._replace(backward=True), backward)):
        priced = [
            int(each.written_bytes / (EDGES * ROW)) for each in kernel("pyg").operations(work, CPU)
        ]
        assert sum(priced) == found.count
    assert (forward.count, backward.count) == (2, 3)


def test_scores_of_attention_are_products_of_the_rows_of_both_ends():
    """Forward they are read. Backward each has a gradient of as many rows, which is added to what
    there is: written, two read and one written; and the rows are read once more."""
    attention, rows = SUM._replace(form="attention"), 300_000 * ROW
    forward, back = (
        [each for each in kernel("dgl").operations(work, GPU) if isinstance(each, Stream)]
        for work in (attention, attention._replace(backward=True))
    )
    assert (forward[0].read_bytes, forward[0].written_bytes, forward[0].launches) == (rows, 0, 2)
    assert [(each.read_bytes, each.written_bytes, each.launches) for each in back[:3]] == [
        (0, 200_000 * ROW, 1),
        (0, 100_000 * ROW, 1),
        (4 * rows, 0, 4),
    ]


@pytest.mark.parametrize("name", ["native", "torch", "dgl"])
def test_weights_of_attention_are_brought_into_the_order_of_the_transpose(name):
    """Each is picked once, out of all of them; weights that stay are brought into it once and for
    all, and messages are added where they belong."""
    attention = SUM._replace(form="attention", backward=True)
    picked = {
        work.form: [
            each
            for each in kernel(name).operations(work, CPU)
            if (type(each), each.picked_rows, each.distinct_rows) == (Gather, EDGES, EDGES)
        ]
        for work in (attention, attention._replace(form="weighted"))
    }
    (weights,) = picked["attention"]
    assert (weights.row_bytes, weights.written_bytes) == (4, 4 * EDGES)
    assert not picked["weighted"]


def test_where_edges_come_in_order_destinations_rows_are_there_from_the_edge_before():
    """Dot products of the rows at both ends: of sources alone are picked, and as many are read
    again."""
    attention = SUM._replace(form="attention", backward=True)
    (both,) = weigh_edges(attention, ROW, 4)
    assert (both.picked_rows, both.distinct_rows) == (2 * EDGES, 300_000)
    of_sources, again = weigh_edges(attention._replace(order=BlockOrder(BLOCK)), ROW, 4)
    assert (of_sources.picked_rows, of_sources.distinct_rows) == (EDGES, 200_000)
    assert (again.picked_rows, again.distinct_rows, again.launches) == (EDGES, 1, 0)
    assert of_sources.flops + again.flops == both.flops


def test_a_described_device_is_priced_as_by_sizes_alone():
    attention = SUM._replace(form="attention", backward=True)
    known = attention._replace(order=BlockOrder(BLOCK))
    assert kernel("dgl").seconds(known, GPU) == kernel("dgl").seconds(attention, GPU)


def test_backward_sums_the_other_way_and_multiplies_twice_above_the_first_layer():
    back = SUM._replace(backward=True)
    (one,) = kernel("dgl").operations(back, GPU)
    assert (one.written_bytes, one.distinct_rows) == (200_000 * ROW, 100_000)
    update = UpdateWork(rows=100, features=16, macs=2 * 100 * 32 * 16, products=2, backward=True)
    products = [e for e in kernel("dgl").operations(update, GPU) if isinstance(e, Product)]
    assert [each.flops for each in products] == [2.0 * 100 * 32 * 16] * 2
    assert {each.width for each in products} == {16}


def test_backward_a_product_is_one_for_the_weights_and_one_for_the_rows():
    """10 rows of 32 values, times weights of 32 by 64: the rows and the gradients make gradients of
    the weights, which are small, and the gradients and the weights those of the rows."""
    rows, gradients, weights = 10 * 32 * 4, 10 * 64 * 4, 32 * 64 * 4
    work = UpdateWork(rows=10, features=64, macs=10 * 32 * 64)
    (forward, *_) = kernel("torch").operations(work, CPU)
    assert (forward.read_bytes, forward.written_bytes) == (rows, gradients)
    back = work._replace(backward=True, products=2, macs=2 * work.macs)
    of_weights, of_rows, _ = kernel("torch").operations(back, CPU)
    assert (of_weights.read_bytes, of_weights.written_bytes) == (rows + gradients, weights)
    assert (of_rows.read_bytes, of_rows.written_bytes) == (gradients, rows)
    assert of_weights.flops == of_rows.flops == forward.flops == 2 * 10 * 32 * 64
    first = back._replace(products=1, macs=work.macs)
    assert kernel("torch").operations(first, CPU)[0] == of_weights
    assert len(kernel("torch").operations(first, CPU)) == 2
    projected = SUM._replace(form="scaled", product=ProductSize(200_000 * 32 * 64), backward=True)
    (product,) = [
        each for each in kernel("native").operations(projected, CPU) if isinstance(each, Product)
    ]
    assert product.written_bytes == weights


def test_relu_is_in_place_and_its_gradient_is_a_tensor_of_its_own():
    """Of 400 bytes from 100 on: the product, and ReLU's gradient, are mapped; ReLU is not."""
    here = replace_fields(CPU, mapped_from_bytes=300.0, fresh_bandwidth_bytes_per_s=10.0)
    work = UpdateWork(rows=10, features=10, macs=10 * 5 * 10, relu=True)
    for name, mapped in (("torch", (40.0, 0.0)), ("dgl", (40.0, 40.0, 0.0)), ("native", (0.0,))):
        operations = kernel(name).operations(work, here)
        assert tuple(mapping_seconds(each, here) for each in operations) == mapped
    back = work._replace(backward=True)
    for name, mapped in (("torch", (0.0, 0.0, 40.0)), ("native", (0.0, 0.0))):
        operations = kernel(name).operations(back, here)
        assert tuple(mapping_seconds(each, here) for each in operations) == mapped


def test_messages_are_mapped_where_one_of_them_alone_is_large():
    """Backward the picked gradients, those of the rows, and their products with the rows, each a
    row of 256 bytes an edge."""
    size = SUM.edges * 256.0
    here = replace_fields(CPU, mapped_from_bytes=size, fresh_bandwidth_bytes_per_s=size)
    work = SUM._replace(form="attention", backward=True)
    assert work.features * work.itemsize == 256
    operations = kernel("pyg").operations(work, here)
    assert sum(mapping_seconds(each, here) for each in operations) == pytest.approx(3.0)


def test_native_kernels_keep_memory_for_sums_and_products_and_torch_makes_the_rest():
    here = replace_fields(CPU, mapped_from_bytes=1e6, fresh_bandwidth_bytes_per_s=1e9)
    work = SUM._replace(form="attention", product=ProductSize(200_000 * 32 * 64), backward=True)
    made = {name: kernel(name).operations(work, here) for name in ("native", "torch")}
    found = {
        name: {type(each) for each in operations if mapping_seconds(each, here)}
        for name, operations in made.items()
    }
    assert found["native"] == {Stream, Gather}
    assert {Stream, Sum} <= found["torch"]


def test_a_bias_is_a_pass_of_its_own_in_dgl_and_none_in_the_native_kernels():
    update = UpdateWork(rows=1000, features=16, macs=1000 * 32 * 16)
    size = 1000 * 16 * 4
    assert (
        moved(kernel("dgl").operations(update, CPU))
        - moved(kernel("native").operations(update, CPU))
        == 2 * size
    )
    hidden = kernel("torch").operations(update._replace(relu=True), CPU)
    assert moved(hidden) - moved(kernel("torch").operations(update, CPU)) == 2 * size


def test_graphconv_scales_sources_and_destinations_and_adds_own_rows():
    """Rows of sources and sums are read and written; then sums and own rows are read, and written
    as what they add up to."""
    scaled = kernel("dgl").operations(SUM._replace(form="scaled"), GPU)
    (plain,) = kernel("dgl").operations(SUM, GPU)
    assert moved(scaled) - moved([plain]) == (2 * 200_000 + 5 * 100_000) * ROW


@pytest.mark.parametrize(("name", "own"), [("torch", 6), ("dgl", 6), ("native", 2)])
def test_a_mean_stands_beside_the_own_rows(name, own):
    """Sums are read, and written as means, and own rows and means are read and written once more to
    stand beside each other. Where means are made in their place, own rows alone are."""
    mean = kernel(name).operations(SUM._replace(form="mean"), GPU)
    (plain,) = kernel(name).operations(SUM, GPU)
    degrees = [each for each in mean if isinstance(each, Stream)][:-1]
    assert moved(mean) - moved([plain]) - moved(degrees) == own * 100_000 * ROW


def test_weights_of_edges_are_not_on_the_path_of_vector_instructions_of_a_cpu():
    weighted = SUM._replace(form="weighted")
    kinds = [type(kernel("dgl").operations(weighted, device)[0]) for device in (CPU, GPU)]
    assert kinds == [ScalarLoop, Sum]
    rate = kernel("dgl").library.scalar_values_per_s
    assert kernel("dgl").seconds(weighted, CPU) == pytest.approx(
        EDGES * 64 / (20 * rate) + CPU.hardware.launch_s + kernel("dgl").library.call_s
    )


def test_dgl_goes_through_edges_of_attention_value_after_value_on_a_cpu():
    """Its softmax reads and writes 8 values of each edge forward and 12 backward, the gradient of
    each weight is a dot product of 64 values, and a GPU has vectors for all of them."""
    attention = SUM._replace(form="attention")
    forward, back = (
        kernel("dgl").operations(work, CPU)
        for work in (attention, attention._replace(backward=True))
    )
    assert [each.flops for each in forward if isinstance(each, ScalarLoop)] == [
        8 * EDGES,
        64 * EDGES,
    ]
    assert [each.flops for each in back if isinstance(each, ScalarLoop)] == [12 * EDGES, 64 * EDGES]
    (dot,) = (each for each in back if isinstance(each, DotProducts))
    assert (dot.flops, dot.picked_rows, dot.distinct_rows) == (64 * EDGES, 2 * EDGES, 300_000)
    back = kernel("dgl").operations(attention._replace(backward=True), GPU)
    assert {type(each) for each in back} == {Gather, Stream, Sum}


def test_sparse_rows_pick_a_row_of_w_for_each_value_that_they_store():
    """700,000 of 200,000 rows of 500 columns; backward as many rows of the gradient, into W's."""
    work = SUM._replace(form="scaled", product=ProductSize(700_000 * 64, columns=500))
    product, total = kernel("native").operations(work, CPU)[:2]
    assert (type(product), product.picked_rows, product.distinct_rows) == (Sum, 700_000, 500)
    assert product.read_bytes == 700_000 * 8 + 8 * 200_000
    assert (product.written_bytes, product.flops) == (200_000 * ROW, 2 * 700_000 * 64)
    assert (total.picked_rows, total.distinct_rows) == (EDGES, 200_000)
    back = kernel("native").operations(work._replace(backward=True), CPU)[0]
    assert (back.picked_rows, back.distinct_rows) == (700_000, 200_000)
    assert back.read_bytes == 700_000 * 8 + 8 * 500
    assert back.written_bytes == 500 * ROW


def test_dgl_counts_degrees_by_one_core_for_every_mean():
    mean = SUM._replace(form="mean")
    (counted,) = (e for e in kernel("dgl").operations(mean, CPU) if isinstance(e, SerialLoop))
    assert counted.flops == 100_000
    library = kernel("dgl").library
    for device in (CPU, replace(CPU, cores=2)):
        assert price_operation(counted, device, library) == pytest.approx(
            100_000 / library.serial_values_per_s
        )
    assert not [
        each
        for work, device in ((mean._replace(backward=True), CPU), (SUM, CPU), (mean, GPU))
        for each in kernel("dgl").operations(work, device)
        if isinstance(each, SerialLoop)
    ]
    # On a GPU it is a kernel of its own beside the sum and the division.
    assert len(kernel("dgl").operations(mean, GPU)) == 3


def test_an_accelerators_host_goes_on_and_a_cpu_does_not():
    library = Library(call_s=0.5)
    work = Stream(read_bytes=900e9, launches=3, calls=1)
    busy_s = 1 / RATES["gpu"].reached.stream
    assert price_operations([work], GPU, library) == pytest.approx(busy_s)
    assert price_operations([work], replace_fields(GPU, launch_s=2.0), library) == pytest.approx(
        6.5
    )
    work = replace(work, read_bytes=100e9)
    assert price_operations([work], CPU, library) == pytest.approx(
        1 / RATES["cpu"].reached.stream + 3 * 5e-6 + 0.5
    )


def test_a_dot_product_waits_for_its_rows_and_a_sum_goes_on():
    library = Library(scalar_values_per_s=1e9, dot_values_per_s=2e9)
    rows = Sum(picked_rows=1e6, distinct_rows=1e6, row_bytes=1024)
    rows_s = price_operation(rows, CPU, library, 4)
    for flops in (1e6, 1e10):
        dot, scalar = (
            kind(**{**asdict(rows), "flops": flops}) for kind in (DotProducts, ScalarLoop)
        )
        assert price_operation(dot, CPU, library, 4) == pytest.approx(rows_s + flops / 8e9)
        longer_s = max(rows_s, flops / 4e9)
        assert price_operation(scalar, CPU, library, 4) == pytest.approx(longer_s)
        # A library that is not known to be without vector instructions moves its rows.
        assert price_operation(dot, CPU, Library(), 4) == pytest.approx(rows_s)


def test_values_of_edges_take_as_long_where_sums_were_measured():
    library = Library(scalar_values_per_s=1e9, dot_values_per_s=2e9)
    measured = LibraryRates(sums=SumRates(aggregate=RateCurve((4,), (2e9,), (1e9,))))
    passes = ScalarLoop(read_bytes=8, written_bytes=8, flops=1e9)
    launched_s = CPU.hardware.launch_s
    assert price_measured([passes], CPU, library, measured, 2) == pytest.approx(0.5 + launched_s)
    dot = DotProducts(picked_rows=1e6, distinct_rows=1e9, row_bytes=400, flops=1e8)
    assert price_measured([dot], CPU, library, measured, 2) == pytest.approx(
        1e6 * 400 / measured.sums.aggregate.at(100, 2) + 1e8 / 4e9 + launched_s
    )


def test_small_work_is_its_launches():
    small = AggregateWork(edges=1000, rows=200, features=16, sources=400, form="scaled")
    operations = kernel("torch").operations(small, GPU)
    launches = sum(each.launches for each in operations)
    assert launches > 2
    assert kernel("torch").seconds(small, GPU) == pytest.approx(launches * 1e-5)


def test_rows_that_fit_in_the_cache_come_from_there():
    """4 MB of rows do and 400 MB do not, which cost whole sectors of the memory each."""
    rates = RATES["gpu"]
    picked = Sum(picked_rows=1e7, distinct_rows=1e4, row_bytes=400.0)
    sectors = 13 * 32.0  # 400 bytes
    cached_s = 1e7 * sectors / (900e9 * rates.cache.cache_times)
    assert price_operation(picked, GPU, Library()) == pytest.approx(cached_s)
    missed = replace(picked, distinct_rows=1e6)
    kept = (6e6 / 400e6) ** rates.cache.skew
    lost = 1e6 + 9e6 * (1 - kept)
    expected = (
        sectors / 900e9 * (lost / rates.reached.gather + (1e7 - lost) / rates.cache.cache_times)
    )
    assert price_operation(missed, GPU, Library()) == pytest.approx(expected)


def test_a_core_waits_for_each_row_that_it_picks():
    rates = RATES["cpu"]
    wide = Sum(picked_rows=1e7, distinct_rows=1e7, row_bytes=64.0)
    few_s = price_operation(wide, CPU, Library(), threads=1)
    first = 1e7  # more than fits goes through
    assert few_s == pytest.approx(first * rates.cache.row_s)
    assert price_operation(wide, CPU, Library()) == pytest.approx(few_s / 20)


def test_a_line_that_comes_from_memory_has_more_narrow_rows_than_one():
    """A hundred thousand values are 6,250 lines. The index of ten million picks goes through the
    cache, so that each comes from memory once; they fit there, and are in it from then on."""
    rates = RATES["cpu"]
    values = Gather(read_bytes=4e7, picked_rows=1e7, distinct_rows=1e5, row_bytes=4.0)
    index_s = 4e7 / (CPU.bandwidth_bytes_per_s(1) * rates.reached.stream)
    waited_s = 6_250 * rates.cache.row_s + (1e7 - 6_250) * rates.cache.line_s
    taken_s = price_operation(values, CPU, Library(), threads=1)
    assert taken_s == pytest.approx(index_s + waited_s)


def test_larger_tensors_than_the_allocator_keeps_are_mapped_anew():
    rates = RATES["cpu"]
    kept = Stream(written_bytes=32 * 2**20 - 1)
    mapped = replace(kept, written_bytes=32 * 2**20)
    assert price_operation(kept, CPU, Library()) == pytest.approx(
        kept.written_bytes / (100e9 * rates.reached.stream)
    )
    assert price_operation(mapped, CPU, Library()) == pytest.approx(
        mapped.written_bytes / rates.pages.fresh_bytes_per_s
    )
    # A machine may say how fast one process fills new memory, and a core of it.
    measured = replace_fields(
        CPU, fresh_bandwidth_bytes_per_s=3e9, core_fresh_bandwidth_bytes_per_s=1e9
    )
    for threads, rate in ((1, 1e9), (2, 2e9), (7, 3e9), (0, 3e9)):
        assert price_operation(mapped, measured, Library(), threads) == pytest.approx(
            mapped.written_bytes / rate
        )
    alone = replace_fields(measured, core_fresh_bandwidth_bytes_per_s=0.0)
    assert price_operation(mapped, alone, Library(), 1) == pytest.approx(mapped.written_bytes / 3e9)
    # Two tensors of half the size are both kept.
    assert price_operation(replace(mapped, launches=2), CPU, Library()) < 1e-3


def test_a_narrow_product_reaches_less_of_the_peak():
    rates = RATES["gpu"]
    wide = Product(flops=15e12, width=rates.reached.half_width)
    assert price_operation(wide, GPU, Library()) == pytest.approx(2 / rates.reached.product)
    assert price_operation(replace(wide, width=1), GPU, Library()) > 20


def test_a_mini_batch_takes_its_library_s_overhead_once():
    loss = LossWork(rows=10, features=4, macs=40)
    dgl = kernel("dgl")
    plain = dgl.seconds(UpdateWork(*loss), GPU)
    assert dgl.seconds(loss, GPU) == pytest.approx(plain + dgl.library.batch_s)


@pytest.mark.parametrize("kind", ["fpga", "sparse"])
def test_other_accelerators_keep_equations_11_and_12(kind):
    device = replace(GPU, kind=kind)
    for name in ("torch", "dgl", "pyg"):
        assert kernel(name).seconds(SUM, device) == pytest.approx(1e-5 + EDGES * ROW / 900e9)


def test_a_measured_curve_stands_for_all_of_a_step():
    slow = RateCurve((1,), (2e9,), (1e9,))
    device = replace_fields(CPU, aggregate=RateCurve((1,), (4e9,), (2e9,)))
    assert kernel("dgl").seconds(SUM, device) == pytest.approx(5e-6 + EDGES * ROW / 4e9)
    own = replace(
        device,
        libraries={"dgl": LibraryRates(sums=SumRates(aggregate=slow), calls=CallTimes(call_s=0.5))},
    )
    assert kernel("dgl").seconds(SUM, own) == pytest.approx(0.5 + 5e-6 + EDGES * ROW / 2e9)
    assert kernel("pyg").seconds(SUM, own) == pytest.approx(5e-6 + EDGES * ROW / 4e9)


def test_staged_rows_are_picked_into_new_memory_and_cross_as_fast_as_the_driver_copies():
    rates = RATES["cpu"]
    rows = RowsWork(rows=10**6, features=128, bytes=512 * 10**6)
    staged = rows._replace(loading="staged")
    assert price_rows(staged, CPU) == pytest.approx(512e6 / rates.pages.fresh_bytes_per_s)
    assert price_rows(rows, CPU) < price_rows(staged, CPU)
    described = replace_fields(CPU, fresh_bandwidth_bytes_per_s=2e9)
    assert price_rows(staged, described) == pytest.approx(512e6 / 2e9)
    four = staged._replace(processes=4)
    assert price_rows(four, CPU) == pytest.approx(
        max(
            price_rows(rows, CPU),
            512e6 / rates.pages.fresh_bytes_per_s / 4**rates.pages.side_by_side,
        )
    )
    assert price_rows(rows._replace(loading="in-place"), CPU) == 0
    assert limit_rate("staged", 12e9, CPU, GPU) == rates.pages.staged_bytes_per_s
    assert limit_rate("staged", 1e9, CPU, GPU) == 1e9
    assert limit_rate("in-place", 12e9, CPU, GPU) == 12e9 * RATES["gpu"].in_place


@pytest.mark.parametrize(("loading", "fresh"), [("staged", False), ("blocks", True)])
def test_where_it_was_measured_rows_are_mapped_if_allocators_do_not_keep_as_many(loading, fresh):
    """32 MiB are, whoever picks them and how many do; rows into memory that stays never are."""
    here = replace_fields(
        CPU, gather=RateCurve((1,), (50e9,), (5e9,)), fresh_bandwidth_bytes_per_s=2e9
    )
    rows = RowsWork(rows=2**17, features=64, bytes=2**25, loading=loading, fresh=fresh, processes=3)
    assert price_rows(rows, here) == pytest.approx(2**25 / 2e9)
    assert price_rows(rows._replace(bytes=2**25 - 256), here) == pytest.approx(2**25 / 50e9, 1e-4)
    stays = rows._replace(loading="blocks", fresh=False)
    assert price_rows(stays, here) == pytest.approx(2**25 / 50e9)
    cores = replace_fields(here, core_fresh_bandwidth_bytes_per_s=5e8)
    assert price_rows(rows._replace(threads=3), cores) == pytest.approx(2**25 / 1.5e9)


def test_a_described_gather_rate_stands():
    rows = RowsWork(rows=10**6, features=128, bytes=512 * 10**6)
    described = replace_fields(CPU, gather=RateCurve((1,), (50e9,), (5e9,)))
    assert price_rows(rows, described) == pytest.approx(512e6 / 50e9)


def test_a_sampler_takes_its_calls_and_its_own_rate_shared_by_its_workers():
    """Workers of a library contend. Threads of a native sampler do not, nor do measured ones."""
    gain = RATES["cpu"].workers_gain
    assert 0.5 < gain < 1
    library = Library(
        sampled_edges_per_s=2e6, device_sampled_edges_per_s=1e8, sampling_call_s=0.01,
        worker_start_s=0.5,
    )  # fmt: skip
    work = SampleWork(edges=10**6, layers=3, threads=4)
    assert price_sampling(work, CPU, library) == pytest.approx(0.53 / 4**gain)
    assert price_sampling(work._replace(threads=0), CPU, library) == pytest.approx(0.53 / 20**gain)
    starting_s = price_sampling(work._replace(starts=2), CPU, library)
    assert starting_s == pytest.approx(1 + 0.53 / 4**gain)
    assert price_sampling(work, GPU, library) == pytest.approx(0.03 + 0.01)
    measured = LibraryRates(edges=EdgeRates(sampled_edges_per_s=1e6))
    assert price_sampling(work, CPU, library, measured) == pytest.approx(1.03 / 4)
    plain = replace_fields(CPU, sampled_edges_per_s=5e6)
    assert price_sampling(work, plain, Library()) == pytest.approx(1 / 5 / 4)


def test_cores_that_were_measured_together_draw_one_mini_batch_no_faster_than_they_did():
    """One draws a million edges a second, all of them 2.5: three are no faster than all. The calls
    are made once for all."""
    library = Library(worker_start_s=0.5)
    measured = LibraryRates(
        edges=EdgeRates(
            sampled_edges_per_s=1e6, jointly_sampled_edges_per_s=2.5e6, sampling_call_s=0.01
        )
    )
    work = SampleWork(edges=10**6, layers=3)
    for threads, drawn_s in ((1, 1.0), (2, 0.5), (3, 0.4), (0, 0.4)):
        taken_s = price_sampling(work._replace(threads=threads), CPU, library, measured)
        assert taken_s == pytest.approx(0.03 + drawn_s)
    started = price_sampling(work._replace(starts=2), CPU, library, measured)
    assert started == pytest.approx(1.0 + 0.03 + 0.4)
    on_gpu = replace_fields(measured, sampled_edges_per_s=1e8)
    assert price_sampling(work, GPU, library, on_gpu) == pytest.approx(0.03 + 0.01)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('value = 9, unit = "ms", mark = "assumed", plausible = [1, 5]', "not within"),
        ('value = 3, unit = "ms", mark = "fitted", plausible = [1, 5]', "fitted on"),
        ('value = 3, unit = "ms", mark = "guessed", plausible = [1, 5]', "mark"),
        ('value = 3, unit = "GB", mark = "assumed", plausible = [1, 5]', "unit"),
        ('value = 3, mark = "quoted", fitted_on = ["a"], plausible = [1, 5]', "goes with"),
        ('value = 3, unit = "ms", plausible = [1, 5]', "mark"),
        ('value = 3, unit = "ms", mark = "assumed", plausible = [1]', "at least 2"),
    ],
)
def test_a_constant_has_its_range_its_mark_and_its_unit(tmp_path, entry, says):
    path = tmp_path / "library.toml"
    path.write_text(f'batch_s = {{ {entry}, source = "x" }}\n')
    with pytest.raises(ValueError, match=says):
        read_library(path)


def test_a_constant_that_nobody_knows_is_refused(tmp_path):
    path = tmp_path / "library.toml"
    path.write_text('colour = { value = 1, mark = "assumed", plausible = [0, 2], source = "x" }\n')
    with pytest.raises(ValueError, match="colour is no constant"):
        read_library(path)
