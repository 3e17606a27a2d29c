"""A plan says what HongTu's training would do: the same chunks, rows and memory, from counts."""

import dataclasses
import re

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.comparison import Request, compare
from gnnbench.datasets.partitioning import cut_ranges
from gnnbench.errors import IncompatiblePartsError
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.kernels.reference.streams import draw_edges
from gnnbench.machines import describe
from gnnbench.models import MODELS, build
from gnnbench.parts import Setting
from gnnbench.records import Workload
from gnnbench.reproduce.studies import PlanRequest
from gnnbench_plugins.hongtu.in_memory_planner import InMemoryPlanner, InMemoryProspect
from gnnbench_plugins.hongtu.planner import HongTuPlanner, Prospect, count, cut_balanced
from tests.systems.training import bundle_of, epoch_s, load_dense, registry, run, sent

PLATFORM = describe.load_platform("epyc7543x4-4xa100")
PLANNERS = {planner.name: planner for planner in (HongTuPlanner, InMemoryPlanner)}


def make_workload(dims, model="gcn"):
    return Workload(model, dims, 1, 1024, (25, 10), 0, threads=2)


def ask(graph, dims, model="gcn"):
    return PlanRequest(graph, make_workload(dims, model), PLATFORM, MODELS[model])


def plan(graph, dims, strategy="hongtu", model="gcn", **options):
    request = ask(graph, dims, model)
    tables = PLANNERS[strategy]().plan(bundle_of(strategy, **options), request)
    return {table.name: table for table in tables}


def foresee(prospect):
    return prospect.foresee(count(prospect))


def values(table):
    return {row.label: [cell.value for cell in row.cells] for row in table.rows}


@pytest.mark.parametrize(
    ("name", "chunks"),
    [("cora", 4), ("cora", 3), pytest.param("ego_twitter", 8, marks=pytest.mark.long)],
)
def test_a_plan_has_the_rows_that_training_notes(name, chunks):
    dataset = datasets.load(name)
    dims = (dataset.num_features, 8, dataset.num_classes)
    request = Request(
        strategies=("hongtu",),
        dataset=dataset,
        workload=make_workload(dims),
        platform=PLATFORM,
        options={"sampler": {"chunks_per_partition": str(chunks)}},
        check=False,
    )
    (result,) = compare(request, registry()).runs
    assert result.status == "done", result.reason
    noted = re.search(
        r"V_ori ([\d,]+) .*V_\+p2p ([\d,]+) .*V_\+ru ([\d,]+)", " ".join(result.notes)
    )
    assert noted is not None
    options = {"sampler": {"chunks_per_partition": chunks}}
    tables = plan(dataset, dims, **options)
    rows = [found[0] for found in values(tables["volumes"]).values()]
    assert [f"{count:,.0f}" for count in rows if count is not None] == list(noted.groups())
    outlook = foresee(Prospect(bundle_of("hongtu", **options), ask(dataset, dims)))
    fullest = max(size for name, size in outlook.peak_bytes.items() if name.startswith("gpu"))
    assert fullest == result.metrics["peak_device_bytes"].value
    assert outlook.epoch_s == pytest.approx(result.metrics["epoch_time"].value, rel=1e-12)
    if 4 * chunks in (16, 32):
        alpha = values(tables["replication"])["and own vertices"]
        chunk_count = tables["replication"].columns.index(str(4 * chunks))
        assert alpha[chunk_count] == values(tables["volumes"])["V_ori"][1]


def test_a_stream_is_planned_like_the_graph_it_makes():
    stream = RmatStream(3000, 12_000, (0.57, 0.19, 0.19), 5)
    src, dst = (side.astype(np.int64) for side in draw_edges(stream, 0, stream.edges))
    graph, _ = datasets.construct.symmetrise(
        np.concatenate((src, dst)), np.concatenate((dst, src)), stream.vertices
    )
    small = datasets.load("rmat:vertices=3000,edges=12k,features=9,classes=3")
    stored = dataclasses.replace(small, graph=graph)
    # One partition, so that both cut the same ranges but for the weight of edges that come twice.
    for chunks in (1, 8):
        sampler = {"search": "none", "chunks_per_partition": chunks}
        ours, theirs = (
            values(
                plan(source, (9, 8, 3), placement={"accelerators": 1}, sampler=sampler)["volumes"]
            )
            for source in (stream, stored)
        )
        assert ours.keys() == theirs.keys()
        for label, (rows, _) in ours.items():
            assert rows == pytest.approx(theirs[label][0], rel=0.02)


def test_ranges_are_cut_as_for_training():
    graph = datasets.load("rmat:vertices=5000,edges=20k,features=2,classes=2").graph
    degrees = graph.degrees.astype(np.int32)
    for ranges in (1, 2, 7, 64, 512):
        parts = cut_ranges(graph, np.arange(5000), ranges)
        expected = np.cumsum([0, *map(len, parts)]).tolist()
        assert cut_balanced(degrees, ranges).tolist() == expected


def test_ranges_over_several_stretches():
    """More vertices than are summed at a time, one of them with more edges than a range."""
    degrees = np.random.default_rng(0).integers(0, 9, (1 << 20) + 5000).astype(np.int32)
    degrees[1 << 20] = 4_000_000
    bounds = cut_balanced(degrees, 16)
    weight = np.cumsum(degrees.astype(np.int64) + 1)
    cuts = np.searchsorted(weight, [weight[-1] * c // 16 for c in range(1, 16)], side="right")
    assert bounds.tolist() == [0, *cuts.tolist(), len(degrees)]


@pytest.mark.parametrize(
    ("name", "model", "accelerators", "chunks"),
    [
        ("cora", "gcn", 4, 1),
        ("cora", "gcn", 1, 1),
        ("cora", "gat", 2, 3),
        *(
            pytest.param("ego_twitter", model, accelerators, 1, marks=pytest.mark.long)
            for model in ("gcn", "gat")
            for accelerators in (1, 2, 4)
        ),
    ],
)
def test_a_plan_in_memory_has_the_bytes_and_the_time_of_training(name, model, accelerators, chunks):
    dataset = load_dense(name)
    dims = (dataset.num_features, 32, dataset.num_classes)
    options = {
        "placement": {"accelerators": accelerators},
        "sampler": {"chunks_per_partition": chunks},
    }
    workload = make_workload(dims, model)
    setting = Setting(dataset, PLATFORM, workload, build(workload).shapes)
    trace = run(setting, "hongtu-im", **options)
    devices = values(plan(dataset, dims, "hongtu-im", model, **options)["devices"])
    assert len(devices) == accelerators
    for label, (vertices, _, halo, needed, limit, _) in devices.items():
        assert (needed, limit) == (
            trace.peak_bytes[label],
            PLATFORM.device(label).hardware.memory_bytes,
        )
        assert vertices
        assert bool(halo) == (accelerators > 1)
    halo_bytes = sum(row[2] or 0 for row in devices.values()) * workload.itemsize
    crossing = sum(dims[:-1]) + sum(dims[1:-1])  # rows at every layer, gradients but for the first
    assert sent(trace) == [halo_bytes * crossing]
    prospect = InMemoryProspect(bundle_of("hongtu-im", **options), ask(dataset, dims, model))
    outlook = foresee(prospect)
    assert [outlook.epoch_s] == pytest.approx(epoch_s(trace), rel=1e-12)
    assert sum(outlook.stages_s.values()) == pytest.approx(outlook.epoch_s, rel=1e-9)


def test_a_plan_in_memory_says_what_does_not_fit():
    """The capacity decides: a byte less than the fullest device needs is too little."""
    stream = RmatStream(1 << 14, 100_000, (0.57, 0.19, 0.19))
    tables = plan(stream, (64, 32, 8), "hongtu-im")
    needed = {label: int(row[3] or 0) for label, row in values(tables["devices"]).items()}
    assert values(tables["memory"])["fullest device"][0] == max(needed.values())
    for less, fits in ((0, True), (1, False)):
        limit = max(needed.values()) - less
        tight = plan(stream, (64, 32, 8), "hongtu-im", memory={"device_bytes": limit})
        told = {row.label: row.cells[-1].text for row in tight["devices"].rows}
        assert told == {
            label: "fits" if size <= limit else "does not fit" for label, size in needed.items()
        }
        assert ("does not fit" not in told.values()) == fits
        fullest = next(row for row in tight["memory"].rows if row.label == "fullest device")
        assert fullest.cells[-1].text == ("fits" if fits else "does not fit")
        full = [label for label, size in needed.items() if size > limit]
        told_of = [note.split()[0] for note in tight["memory"].notes]
        assert told_of == full[:1]
    with pytest.raises(IncompatiblePartsError, match="needs communication 'halo'"):
        InMemoryPlanner().plan(bundle_of("hongtu"), ask(stream, (64, 32, 8)))
