"""Every way of cutting up the graph trains as plain torch does, within the memory there is."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.datasets import build
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.models import MODELS
from gnnbench.models import build as build_model
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Parts
from gnnbench.run import train
from gnnbench.run.features import feature_rows
from tests.models.dense_training import FORMULAS, dense_of, train_dense
from tests.systems.training import PLAIN, assert_same_training, losses, registry
from tests.uneven import make_uneven, on_cpus

HONGTU = Parts("hongtu", "hongtu", "hongtu", "hongtu", "torch")
RESIDENT_CHUNKS = Parts("hongtu", "single", "none", "resident", "torch")
HYSCALE = Parts("neighbour", "hyscale", "hyscale", "host", "torch")
SHARED = Parts("neighbour", "hyscale", "hongtu", "host", "torch")
BATCHES = Parts("neighbour", "single", "vanilla", "host", "torch")
RESIDENT_BATCHES = Parts("neighbour", "single", "none", "resident", "torch")
EPOCHS = 3


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def dataset(name):
    """``awkward``: 60 vertices, a hub, two isolated. ``tiny``: a path of 4, one vertex alone.
    ``ring``: every vertex knows the two before and the two after it. ``sparse``: ``awkward`` with
    most features zero, stored as CSR; ``zeros``: the same stored dense."""
    if name == "awkward":
        return make_dataset()
    if name in ("sparse", "zeros"):
        awkward = make_dataset()
        kept = np.where(awkward.features > 0.8, awkward.features, 0)
        return dataclasses.replace(
            awkward, features=sp.csr_matrix(kept) if name == "sparse" else kept
        )
    random = np.random.default_rng(3)
    count = 5 if name == "tiny" else 600
    vertices = np.arange(count)
    if name == "tiny":
        edges = np.array([[0, 1, 2], [1, 2, 3]])
    else:
        edges = np.hstack([[vertices, (vertices + step) % count] for step in (1, 2)])
    return build(
        name,
        edges.astype(np.int64),
        num_vertices=count,
        features=random.standard_normal((count, 7)).astype(np.float32),
        labels=random.permutation(vertices % 3),
    )


@cache
def setting_for(model, num_layers, accelerators, data="awkward", dtype="float64", epochs=EPOCHS):
    workload = dataclasses.replace(make_workload(model, num_layers, epochs), dtype=dtype)
    platform, shapes = make_uneven(accelerators), build_model(workload).shapes
    return Setting(dataset(data), platform, workload, shapes)


def run(parts, options, setting):
    bundle = plugins.assemble(registry(), parts, options)
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


@cache
def plain_torch(model, num_layers, data):
    """Return losses and final parameters by autograd over dense matrices, without any engine."""
    setting = setting_for(model, num_layers, 1, data)
    return train_dense(setting, FORMULAS[model], dense_of(setting.dataset.graph))


def assert_equal_to_plain(trace, model, num_layers, data, case):
    expected_losses, parameters = plain_torch(model, num_layers, data)
    assert losses(trace) == pytest.approx(expected_losses, rel=1e-9, abs=0), case
    assert trace.parameters.keys() == parameters.keys()
    for name, expected in parameters.items():
        np.testing.assert_allclose(
            trace.parameters[name],
            expected,
            rtol=1e-9,
            atol=1e-9 * np.abs(expected).max(),
            err_msg=f"{name} {case}",
        )


@pytest.mark.parametrize(
    ("parts", "data", "accelerators", "chunks", "num_layers"),
    [
        (HONGTU, "awkward", 0, 4, 2),
        (HONGTU, "awkward", 1, 8, 3),
        (HONGTU, "tiny", 2, 3, 3),
        (HONGTU, "tiny", 4, 8, 2),
        (HONGTU, "awkward", 3, 2, 4),
        (dataclasses.replace(HONGTU, memory="hongtu-recompute"), "awkward", 4, 3, 3),
        (dataclasses.replace(HONGTU, memory="hongtu-cache"), "awkward", 4, 3, 2),
        (RESIDENT_CHUNKS, "awkward", 4, 4, 2),
        (PLAIN, "awkward", 4, 0, 2),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_every_engine_trains_as_plain_torch(model, parts, data, accelerators, chunks, num_layers):
    """On the host, one device and several; ``tiny`` has more chunks than vertices."""
    setting = setting_for(model, num_layers, accelerators, data)
    options = {"sampler": {"chunks_per_partition": str(chunks)}} if chunks else {}
    assert_equal_to_plain(run(parts, options, setting), model, num_layers, data, parts)


def test_more_chunks_than_vertices_leave_some_empty():
    """What the grid above relies on: chunks without vertices, and with vertices but no edges."""
    sampler = registry().part("sampler", "hongtu")(chunks_per_partition=8)
    rounds = sampler.chunks(setting_for("gcn", 2, 4, "tiny"), 4).rounds
    units = [unit for round_ in rounds for unit in round_.units]
    assert len(units) == 32
    assert sum(len(unit.output_ids) for unit in units) == 5
    assert any(len(unit.output_ids) == 0 for unit in units)
    assert any(len(unit.output_ids) and not unit.blocks[0].num_edges for unit in units)


@cache
def mini_batch_reference(model, num_layers=2, data="awkward"):
    return run(BATCHES, {}, setting_for(model, num_layers, 1, data))


def assert_equal_to_one_device(trace, model, num_layers=2, data="awkward"):
    expected = mini_batch_reference(model, num_layers, data)
    for ours, theirs in zip(trace.epochs, expected.epochs, strict=True):
        assert ours.round_losses == pytest.approx(theirs.round_losses, rel=1e-9, abs=0)
    assert_same_training(trace, expected)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("placement", "communication", "memory"),
    [
        ("hyscale", "hyscale", "host"),
        ("hyscale", "hongtu", "host"),
        ("hyscale", "vanilla", "host"),
        ("hyscale", "none", "resident"),
    ],
)
def test_mini_batches_train_as_one_device_does(model, placement, communication, memory):
    parts = Parts("neighbour", placement, communication, memory, "torch")
    assert_equal_to_one_device(run(parts, {}, setting_for(model, 2, 3)), model)


@pytest.mark.parametrize(("p2p", "reuse"), [("true", "false"), ("false", "true")])
def test_deduplicated_mini_batches_train_as_one_device_does(p2p, reuse):
    options = {"communication": {"p2p": p2p, "reuse": reuse}}
    trace = run(SHARED, options, setting_for("sage", 2, 3))
    assert_equal_to_one_device(trace, "sage")


def native(parts):
    return dataclasses.replace(parts, kernel="native")


@pytest.mark.parametrize(("data", "num_layers"), [("sparse", 2), ("awkward", 3), ("tiny", 3)])
@pytest.mark.parametrize("model", MODELS)
def test_native_kernels_train_as_plain_torch(model, num_layers, data):
    for parts, accelerators in ((PLAIN, num_layers - 2), (HONGTU, 0), (HONGTU, 3)):
        trace = run(native(parts), {}, on_cpus(setting_for(model, num_layers, accelerators, data)))
        assert_equal_to_plain(trace, model, num_layers, data, (parts, accelerators))


@pytest.mark.parametrize(("data", "num_layers"), [("sparse", 2), ("awkward", 3)])
@pytest.mark.parametrize("model", MODELS)
def test_native_mini_batches_train_as_one_device_does(model, num_layers, data):
    for parts, accelerators in (
        (BATCHES, 1),
        (RESIDENT_BATCHES, 0),
        (HYSCALE, 0),
        (HYSCALE, 3),
        (SHARED, 3),
    ):
        trace = run(native(parts), {}, on_cpus(setting_for(model, num_layers, accelerators, data)))
        assert_equal_to_one_device(trace, model, num_layers, data)


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_sparse_features_take_the_memory_they_are_stored_in(model):
    """Full graph: the features on the device shrink from dense rows to the three arrays."""
    sparse, dense = (setting_for(model, 2, 0, data) for data in ("sparse", "zeros"))
    kernel = registry().part("kernel", "native")()
    # Both must multiply by W first, so that all else they hold is the same.
    workload = dataclasses.replace(sparse.workload, dims=(7, 3, 3))
    shapes = build_model(workload).shapes
    sparse, dense = (
        dataclasses.replace(setting, workload=workload, layers=shapes)
        for setting in (sparse, dense)
    )
    assert all(kernel.projects_first(0, each, "full-graph") for each in (sparse, dense))
    everything = np.arange(60)
    rows = feature_rows(sparse, everything, sparse=True)
    parts = (rows.crow_indices(), rows.col_indices(), rows.values())
    kept = sum(part.numel() * part.element_size() for part in parts)
    nonzero = sparse.dataset.features.nnz
    assert kept == nonzero * (8 + 4) + 61 * 4
    one, other = (run(native(PLAIN), {}, setting).peak_bytes["host"] for setting in (sparse, dense))
    # The copy in the data set, which is float32 when sparse, and the one that trains.
    stored = sum(
        getattr(sparse.dataset.features, name).nbytes for name in ("data", "indices", "indptr")
    )
    assert other - one == 2 * 60 * 7 * 8 - stored - kept


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_loaded_rows_are_counted_as_they_are_stored(model):

    def loaded(data, kernel):
        trace = run(dataclasses.replace(BATCHES, kernel=kernel), {}, setting_for(model, 2, 0, data))
        return [
            (span.work.rows, span.work.bytes)
            for epoch in trace.epochs
            for span in epoch.spans
            if span.stage == "load"
        ]

    width = 7 * 8
    assert all(size == rows * width for rows, size in loaded("sparse", "torch"))
    assert all(size == rows * width for rows, size in loaded("zeros", "native"))
    for rows, size in loaded("sparse", "native"):
        count, rest = divmod(size - 4 * (rows + 1), 8 + 4)
        assert rest == 0
        assert 0 < count < rows * 7


@pytest.mark.parametrize("model", ["gcn", "gin", "gat"])
def test_of_sparse_rows_mini_batches_multiply_the_stored_values_alone(model):
    setting = setting_for(model, 2, 0, "sparse")
    trace = run(dataclasses.replace(BATCHES, kernel="native"), {}, setting)
    stored, multiplied = {}, {}
    for epoch in trace.epochs:
        for span in epoch.spans:
            if span.stage == "load":
                stored[epoch.epoch, span.round] = (span.work.bytes - 4 * (span.work.rows + 1)) // 12
            elif span.label == "aggregate forward" and span.layer == 0:
                multiplied[epoch.epoch, span.round] = span.work.macs
    width = setting.workload.dims[1]
    assert multiplied == {key: count * width for key, count in stored.items()}
    assert len(multiplied) > 2


def largest_device(trace):
    return max(size for name, size in trace.peak_bytes.items() if name != "host")


def with_chunks(chunks, **memory):
    return {"sampler": {"chunks_per_partition": str(chunks)}, "memory": memory}


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_more_chunks_need_less_memory(model):
    """Table 3: what a device holds of the vertex data falls with the number of chunks."""
    setting = setting_for(model, 2, 2, "ring", epochs=1)
    peaks = [largest_device(run(HONGTU, with_chunks(n), setting)) for n in (1, 4, 16)]
    assert peaks == sorted(set(peaks), reverse=True)


def test_a_capacity_between_the_two_tells_them_apart():
    setting = setting_for("gcn", 2, 2, "ring", epochs=1)
    setting = dataclasses.replace(
        setting, workload=dataclasses.replace(setting.workload, batch_size=150, fanouts=(0, 0))
    )
    peak = largest_device(run(HONGTU, with_chunks(16, topology="host"), setting))
    # Exactly what it needs is enough, and one byte less is not.
    cap = str(peak)
    fits = run(HONGTU, with_chunks(16, topology="host", device_bytes=cap), setting)
    assert largest_device(fits) == peak
    with pytest.raises(DeviceOutOfMemoryError):
        run(HONGTU, with_chunks(16, topology="host", device_bytes=str(peak - 1)), setting)
    # In memory, one chunk a device, or in mini-batches, it does not fit.
    for parts, options in (
        (PLAIN, {"memory": {"device_bytes": cap}}),
        (HONGTU, with_chunks(1, topology="host", device_bytes=cap)),
        (HYSCALE, {"memory": {"device_bytes": cap}, "placement": {"cpu_trainer": "false"}}),
    ):
        with pytest.raises(DeviceOutOfMemoryError) as caught:
            run(parts, options, setting)
        error = caught.value
        assert error.device.startswith("gpu")
        assert error.capacity_bytes == peak
        assert error.in_use_bytes <= peak < error.in_use_bytes + error.requested_bytes
        assert error.tensor in str(error)
        assert f"{error.requested_bytes:,} bytes" in str(error)


def test_the_host_holds_what_the_devices_do_not():
    """Algorithm 1, line 3: h^0..h^L and their gradients, and §4.2's aggregates."""
    setting = setting_for("gcn", 2, 2, "ring", epochs=1)
    f0, f1, f2 = setting.workload.dims
    offloaded = run(HONGTU, {}, setting).peak_bytes["host"]
    resident = run(PLAIN, {}, setting).peak_bytes["host"]
    rows = 600 * 8
    representations, gradients, aggregates = f0 + f1 + f2, f1 + f2, f0 + f1
    assert offloaded - resident == rows * (representations + gradients + aggregates)
