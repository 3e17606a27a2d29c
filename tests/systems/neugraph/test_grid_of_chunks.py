"""NeuGraph: the grid of chunks, what crosses for its pieces, what stays, and what overlaps."""

import numpy as np
import pytest

from gnnbench.check.graphs import make_platform
from gnnbench.datasets import load
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.kernels.dispatch import edge_cut
from gnnbench.lowering.footprint import size_of
from gnnbench.lowering.working_sets import StreamedSets
from gnnbench.price.dry_run import DryRun
from tests.systems import training
from tests.systems.training import (
    PLAIN,
    assert_same_training,
    epoch_s,
    list_before,
    make_setting,
    run_ablation,
)
from tests.uneven import on_cpus

DEVICES, CHUNKS = 2, 3
ITEM = 8


def setting_of(model="gcn", accelerators=DEVICES, epochs=1):
    return training.setting_for(model, accelerators, epochs=epochs, dims=(7, 12, 10, 3))


def bundle_of(swaps=(), chunks=CHUNKS, **options):
    options = {"sampler": {"chunks_per_device": chunks}, **options}
    return training.bundle_of("neugraph", swaps, **options)


def run(setting, chunks=CHUNKS, swaps=(), **options):
    options = {"sampler": {"chunks_per_device": chunks}, **options}
    return training.run(setting, "neugraph", dict(swaps).items(), **options)


@pytest.mark.parametrize(("devices", "chunks"), [(1, 1), (1, 4), (3, 2)])
def test_every_edge_is_in_one_piece(devices, chunks):
    setting = setting_of()
    cut = bundle_of(chunks=chunks).sampler.chunks(setting, devices)
    assert cut.pieces == devices * chunks
    assert len(cut.rounds) == chunks * cut.pieces
    graph, found, chunk_of = setting.dataset.graph, [], {}
    columns = [cut.rounds[i : i + cut.pieces] for i in range(0, len(cut.rounds), cut.pieces)]
    for column in columns:
        for slot in range(devices):
            ids = tuple(column[0].units[slot].output_ids.tolist())
            assert all(cut.owner[v] == slot for v in ids)
            chunk_of |= dict.fromkeys(ids, ids)
    assert sorted(chunk_of) == list(range(graph.num_vertices))
    for column in columns:
        for slot in range(devices):
            read = []
            for piece in column:
                (block,) = piece.units[slot].blocks
                assert block.dst_ids.tolist() == column[0].units[slot].output_ids.tolist()
                rows = np.repeat(block.dst_ids, np.diff(block.indptr))
                sources = block.src_ids[block.indices]
                found += zip(rows.tolist(), sources.tolist(), strict=True)
                # Nothing is a source that no edge of the piece reads, but the destinations.
                assert {*block.src_ids.tolist()} == {*sources.tolist(), *block.dst_ids.tolist()}
                assert len({chunk_of[u] for u in sources.tolist()}) <= 1
                read += [{chunk_of[u] for u in sources.tolist()}]
            # A chunk's edges within itself are the first piece.
            own = chunk_of[column[0].units[slot].output_ids[0]]
            assert read[0] <= {own}
            assert all(own not in each for each in read[1:])
    due = [
        (v, u)
        for v in range(graph.num_vertices)
        for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
    ]
    assert sorted(found) == sorted(due)


@pytest.mark.parametrize(
    ("model", "memory", "communication", "kernel"),
    [
        ("gcn", "neugraph", "neugraph", "torch"),
        ("gcn", "hongtu", "vanilla", "native"),
        ("sage", "neugraph", "vanilla", "torch"),
        ("sage", "hongtu", "neugraph", "native"),
        ("gin", "neugraph", "neugraph", "native"),
        ("gin", "hongtu", "vanilla", "torch"),
        ("commnet", "neugraph", "vanilla", "native"),
        ("commnet", "hongtu", "neugraph", "torch"),
    ],
)
def test_pieces_add_up_to_the_whole(model, memory, communication, kernel):
    swaps = {"memory": memory, "communication": communication, "kernel": kernel}
    pieces = run(on_cpus(setting_of(model, epochs=2)), swaps=swaps)
    plain = training.run(setting_of(model, accelerators=1, epochs=2), PLAIN)
    assert_same_training(pieces, plain)


def count_read(setting, cut):
    """Over all chunks, the vertices that each reads, its own among them: from the graph alone."""
    graph, total = setting.dataset.graph, 0
    for round_ in cut.rounds[:: cut.pieces]:
        for unit in round_.units:
            ids = unit.output_ids
            read = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in ids]
            total += len(np.union1d(np.concatenate(read), ids))
    return total


def test_bytes_by_hand():
    """Forward every layer's rows once for each chunk that reads them, and its outputs back; going
    back gradients of outputs, and above the first layer those of all rows that were read."""
    setting = setting_of()
    cut = bundle_of().sampler.chunks(setting, DEVICES)
    count, read, dims = len(cut.owner), count_read(setting, cut), setting.workload.dims
    (epoch,) = run(setting).epochs
    assert epoch.bytes["host_to_device"] == ITEM * (read * sum(dims[:-1]) + count * sum(dims[1:]))
    assert epoch.bytes["device_to_host"] == ITEM * (count * sum(dims[1:]) + read * sum(dims[1:-1]))
    again = (cut.pieces - 1) * count
    assert epoch.bytes["reused"] == ITEM * again * sum(dims[:-1])
    # The ablation begins where a chunk's own rows cross with every piece.
    steps = run_ablation(setting, "neugraph", sampler={"chunks_per_device": CHUNKS})
    assert [*steps] == ["vanilla", "+own", "+overlap"]
    (plain,) = steps["vanilla"].epochs
    more = ITEM * again * sum(dims[:-1])
    assert plain.bytes["host_to_device"] == epoch.bytes["host_to_device"] + more
    assert plain.bytes["reused"] == 0
    assert steps["+own"].epochs[0].bytes == steps["+overlap"].epochs[0].bytes == epoch.bytes
    times = [epoch_s(trace)[0] for trace in steps.values()]
    assert times == sorted(set(times), reverse=True)
    # Edges and vertices are counted once.
    graph, depth = setting.dataset.graph, len(setting.layers)
    assert epoch.edges == depth * graph.num_edges
    assert epoch.vertices == depth * graph.num_vertices + read
    units = [unit for round_ in cut.rounds for unit in round_.units]
    empty = sum(unit.blocks[0].num_edges == 0 for unit in units)
    edges = edge_cut(graph.indptr, graph.indices, cut.owner.astype(np.int32))
    assert cut.notes[0] == (
        f"a grid of 6 by 6 chunks, {empty} of its pieces without edges; metis partitions cut "
        f"{100 * edges / graph.num_edges:.2g} % of the edges; a row crosses {read / count:.2f} "
        f"times in a pass"
    )


@pytest.mark.parametrize(
    ("memory", "overlap", "topology"),
    [
        ("neugraph", True, "device"),
        ("neugraph", False, "host"),
        ("hongtu", True, "host"),
        ("hongtu", False, "device"),
    ],
)
def test_what_a_device_holds_is_what_chunks_are_cut_for(memory, overlap, topology):
    setting = setting_of("sage")
    options = {"communication": {"overlap": overlap}, "memory": {"topology": topology}}
    bundle = bundle_of({"memory": memory}, **options).begin(setting)
    cut = bundle.sampler.chunks(setting, DEVICES)
    held = run(setting, swaps={"memory": memory}, **options).peak_bytes
    assert held["gpu0"] != held["gpu1"]
    sets = StreamedSets(bundle, setting.layers, ITEM, cut.pieces)
    for slot in range(DEVICES):
        units = [unit for each in cut.rounds for unit in each.units if unit.slot == slot]
        bound = sets.device_bytes([size_of(unit.blocks[0]) for unit in units])
        assert held[f"gpu{slot}"] == bound


def test_the_least_chunks_that_fit_are_cut():
    dataset = load("rmat:vertices=2000,edges=20000,features=64")
    dims = (64, 32, dataset.num_classes)
    setting = make_setting(dataset, make_platform(DEVICES), "gcn", 2, 1, dims=dims)

    def plan(chunks, **memory):
        options = {"topology": "device", **memory}
        dry = DryRun(bundle_of(chunks=chunks, memory=options), setting)
        return dry.finish([dry.run_epoch(0)])

    sizes = {}
    for count in (1, 2, 4):
        held = plan(count).peak_bytes
        sizes[count] = max(held[f"gpu{slot}"] for slot in range(DEVICES))
    assert sizes[4] < sizes[2] < sizes[1]
    for count, size in sizes.items():
        found = plan(0, device_bytes=size)
        (note,) = [note for note in found.notes if note.startswith("a grid of")]
        assert note.startswith(f"a grid of {DEVICES * count} by {DEVICES * count} chunks")
        with pytest.raises(DeviceOutOfMemoryError):
            plan(count, device_bytes=size - 1)


def test_update_follows_the_last_piece():
    setting = setting_of()
    (epoch,) = run(setting).epochs
    pieces = DEVICES * CHUNKS

    def follows(span):
        found = list_before(span, epoch.spans)
        return [each for each in epoch.spans if each.id in found]

    for span in epoch.spans:
        if span.label == "update forward":
            column = range(span.round + 1 - pieces, span.round + 1)
            summed = {
                each.round
                for each in follows(span)
                if each.label in ("aggregate forward", "add sums of a piece")
                and (each.layer, each.place) == (span.layer, span.place)
            }
            assert {*column} <= summed
        elif span.label == "aggregate backward":
            back = [each for each in follows(span) if each.label == "update backward"]
            place = span.layer, span.place, span.round - span.round % pieces
            assert place in {(each.layer, each.place, each.round) for each in back}
