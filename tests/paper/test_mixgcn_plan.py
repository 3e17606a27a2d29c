"""MixGCN's groups, plan and tables: prices by hand, plans beside trained epochs, Tables 4 and 5."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner

from gnnbench import datasets, plugins
from gnnbench.cli import main
from gnnbench.compare import Request, compare
from gnnbench.errors import DatasetError, IncompatibleParts, UsageError
from gnnbench.kernels.dispatch import RmatStream
from gnnbench.models import MODELS, build
from gnnbench.platforms import load_platform
from gnnbench.platforms.machine import Device, Platform
from gnnbench.records import Dataset, Table, Workload
from gnnbench.studies import PlanRequest
from gnnbench_plugins.mixgcn.groups import (
    Groups,
    choose_groups,
    find_groups,
    make_groups,
    price_epoch,
    price_passes,
    share_out,
    take_some,
    use_host,
)
from gnnbench_plugins.mixgcn.ordering import Batches
from gnnbench_plugins.mixgcn.pipeline import STEPS
from gnnbench_plugins.reference.kernel import TorchKernel
from gnnbench_plugins.studies.mixgcn import tables

NODE = "xeon8462-8xh100-8xspu"
GPUS = "epyc7763x2-4xa5000"
pytestmark = pytest.mark.usefixtures("one_thread")


def make_workload(dims: tuple[int, ...], model: str = "gcn") -> Workload:
    return Workload(model, dims, 1, 1024, (0,) * (len(dims) - 1), 0, threads=1)


@pytest.fixture(scope="module")
def registry() -> plugins.Registry:
    return plugins.load()


@pytest.fixture(scope="module")
def small() -> Dataset:
    return datasets.load("sbm:vertices=301,edges=1500,features=37,classes=5")


@pytest.fixture
def node() -> Groups:
    return find_groups(load_platform(NODE))


# --------------------------------------------------------------------------- prices


def test_passes_are_priced_by_their_counts(node: Groups) -> None:
    """A pass of each way by hand: 3 SPUs and 2 GPUs share 10 and 7 rows of 5 -> 4 -> 3 features."""
    groups = dataclasses.replace(node, sparse_count=3, dense_count=2)
    layers = build(make_workload((5, 4, 3))).shapes
    batches = Batches(np.array([10, 7]), np.array([40, 21]), np.array([1, 1]))
    kernel, link = TorchKernel(), node.link
    passes = price_passes(layers, batches, groups, kernel)
    assert [each.label for each in passes] == ["forward 1", "forward 2", "backward 2"]
    spu, gpu = node.sparse, node.dense
    assert link is not None

    def exchange(rows: int, columns: int) -> float:
        return 3 * (link.latency_s + rows * columns * 4 / link.bandwidth_bytes_per_s)

    def update(*products: int) -> float:
        return sum(gpu.launch_s + 2 * macs / gpu.flops_per_s for macs in products)

    expected = {
        # Two columns of five each, five rows of ten; back as two of four.
        "forward 1": (40 * 2 * 4, exchange(5, 2), update(5 * 5 * 4), exchange(5, 2)),
        # The last layer's update, forward and twice backward.
        "forward 2": (40 * 2 * 4, exchange(5, 2), update(5 * 12, 2 * 5 * 12), exchange(5, 2)),
        # Layer 1's update backward has one product and returns nothing.
        "backward 2": (40 * 2 * 4, exchange(5, 2), update(5 * 20), 0),
    }
    for each in passes:
        assert each.seconds.shape == (len(STEPS), 2)
        traffic, *others = expected[each.label]
        aggregate = spu.launch_s + traffic / spu.memory_bandwidth_bytes_per_s
        assert each.seconds[:, 0] == pytest.approx([aggregate, *others])


def test_a_single_layer_turns_round_at_once(node: Groups) -> None:
    layers = build(make_workload((5, 3))).shapes
    batches = Batches(np.array([10]), np.array([40]), np.array([0]))
    (only,) = price_passes(layers, batches, node, TorchKernel())
    assert only.seconds[3].tolist() == [0]


def test_groups_of_a_platform(node: Groups) -> None:
    assert (node.sparse.kind, node.sparse_count, node.dense.kind, node.dense_count) == (
        "sparse",
        8,
        "gpu",
        8,
    )
    host = use_host(load_platform(NODE))
    assert (host.sparse.kind, host.sparse_count, host.dense_count) == ("cpu", 1, 8)
    platform = load_platform(GPUS)
    alone = make_groups(platform, platform.accelerators[:1], platform.accelerators[:1])
    assert alone.shared
    assert alone.exchange_s(1000, 100, 4) == 0
    shared = make_groups(platform, platform.accelerators, platform.accelerators)
    apart = make_groups(platform, platform.accelerators[2:], platform.accelerators[:2])
    # Of four devices each has three peers for a sixteenth, of two and two two for a quarter.
    rate = platform.link("gpu0", "gpu1").bandwidth_bytes_per_s
    late = platform.link("gpu0", "gpu1").latency_s
    assert shared.exchange_s(1000, 100, 4) == pytest.approx(3 * (late + 250 * 25 * 4 / rate))
    assert apart.exchange_s(1000, 100, 4) == pytest.approx(2 * (late + 500 * 50 * 4 / rate))


def test_groups_that_cannot_be(node: Groups) -> None:
    platform = load_platform(GPUS)
    with pytest.raises(UsageError, match="no device left that aggregates"):
        find_groups(platform)
    mixed = (platform.accelerators[0], platform.host)
    with pytest.raises(UsageError, match="that would update differ"):
        make_groups(platform, platform.accelerators, mixed)
    with pytest.raises(UsageError, match="1 devices cannot be"):
        share_out(node, 1)
    with pytest.raises(UsageError, match="at least one of each"):
        choose_groups([], (), Batches(*[np.array([1])] * 3), TorchKernel())


def test_numbers_of_devices(node: Groups) -> None:
    small = dataclasses.replace(node, sparse_count=2, dense_count=3)

    def counts(candidates: list[Groups]) -> list[tuple[int, int]]:
        return [(each.sparse_count, each.dense_count) for each in candidates]

    assert counts(share_out(small, 4)) == [(1, 3), (2, 2), (3, 1)]
    assert counts(take_some(small)) == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    assert counts(take_some(small, 3)) == [(1, 1), (1, 2), (2, 1)]


def test_the_scarce_work_gets_the_devices(node: Groups) -> None:
    """The best split moves with the work, and is the best of all that were allowed."""
    layers = build(make_workload((128, 128, 128))).shapes
    kernel = TorchKernel()
    chosen = []
    for edges in (10_000_000, 4_000_000_000):
        batches = Batches(np.full(8, 1_000_000), np.full(8, edges // 8), np.full(8, 6))
        candidates = share_out(node, 16)
        best = choose_groups(candidates, layers, batches, kernel)
        epochs = [price_epoch(layers, batches, each, kernel).epoch_s for each in candidates]
        assert best.epoch_s == min(epochs)
        assert best.groups.sparse_count + best.groups.dense_count == 16
        chosen.append(best.groups.sparse_count)
    assert chosen[0] == 8  # all-to-all alone: what half the devices send the others take in
    assert chosen[1] > 12


# --------------------------------------------------------------------------- plans


class Silent:
    def begin(self, label: str, edges: int) -> None: ...

    def advance(self, edges: int) -> None: ...

    def end(self) -> None: ...


def plan(
    registry: plugins.Registry,
    graph: Dataset | RmatStream,
    workload: Workload,
    platform: Platform,
    options: dict[str, dict[str, str]],
) -> dict[str, Table]:
    parts = registry.strategy("mixgcn").bundles["full-graph"]
    bundle = plugins.assemble(registry, parts, options)
    request = PlanRequest(graph, workload, platform, MODELS[workload.model], Silent())
    return {table.name: table for table in registry.planner("mixgcn")().plan(bundle, request)}


def values(table: Table) -> dict[str, list[float | None]]:
    return {row.label: [cell.value for cell in row.cells] for row in table.rows}


@pytest.mark.parametrize(("schedule", "stages"), [("naive", 0), ("pipelined", 5), ("reordered", 4)])
@pytest.mark.parametrize(
    ("platform", "model", "placement"),
    [
        (NODE, "gcn", {}),
        (NODE, "sage", {"accelerators": "3", "sparse_devices": "5"}),
        (GPUS, "sage", {}),
        (GPUS, "gin", {"sparse": "apart", "sparse_devices": "1"}),
    ],
)
def test_a_plan_has_the_epoch_and_the_bytes_that_training_has(
    registry: plugins.Registry,
    small: Dataset,
    schedule: str,
    stages: int,
    platform: str,
    model: str,
    placement: dict[str, str],
) -> None:
    machine = load_platform(platform)
    workload = make_workload((37, 11, 6, 5), model)
    sampler = {"schedule": schedule, "stages": str(stages)}
    options = {"sampler": sampler, "placement": placement}
    request = Request(("mixgcn",), small, workload, machine, options=options, check=False)
    (run,) = compare(request, registry).runs
    assert run.status == "done", run.reason
    planned = plan(registry, small, workload, machine, options)
    exchanged = values(planned["exchange"])["epoch"][2]
    assert exchanged == run.metrics["all_to_all_bytes"].value
    needed = max(row[2] or 0 for row in values(planned["memory"]).values())
    assert needed == run.metrics["peak_device_bytes"].value
    epochs = {label: row[6] for label, row in values(planned["schedules"]).items()}
    assert epochs.pop(schedule) == run.metrics["epoch_time"].value
    assert set(epochs.values()) == {None}


def test_the_pipeline_s_epoch_is_near_the_trained_one_s(registry: plugins.Registry) -> None:
    """In training an exchange is a step for each pair, in the order that devices become free."""
    machine = load_platform(NODE)
    data = datasets.load("sbm:vertices=20000,edges=400000,features=64,classes=8")
    workload = make_workload((64, 64, 8))
    options = {"sampler": {"schedule": "naive"}}
    request = Request(("mixgcn",), data, workload, machine, options=options, check=False)
    (run,) = compare(request, registry).runs
    found = plan(registry, data, workload, machine, options)
    planned = values(found["schedules"])["naive"][7]
    assert planned is not None
    groups = values(found["groups"])
    assert groups["as asked for"] == [8, 8, planned]
    sparse, dense, shortest_s = groups["the best 16 of either kind"]
    assert (sparse or 0) + (dense or 0) == 16
    assert (shortest_s or 0) <= planned
    assert (groups["the best of these or fewer"][2] or 0) <= planned
    assert planned <= run.metrics["epoch_time"].value < 1.25 * planned


def test_a_stream_is_planned_from_its_size(registry: plugins.Registry) -> None:
    machine = load_platform(NODE)
    stream = RmatStream(1_000_000, 8_000_000, (0.57, 0.19, 0.19), 0)
    planned = plan(registry, stream, make_workload((16, 8, 4)), machine, {})
    rows = {row.label: row.cells for row in planned["schedules"].rows}
    assert [cell.text for cell in rows["reordered"][:4]] == ["not known"] * 4
    assert [rows[name][4].value for name in ("naive", "reordered")] == [1, 64]
    # Proposition 3.4: n rows of f^0, f^1 and f^1 forward, 2 f^1 backward.
    assert values(planned["exchange"])["epoch"] == [4e6 * 32, 4e6 * 16, 4e6 * 48]


@pytest.mark.parametrize(
    ("options", "model", "words"),
    [
        ({"placement": {"row_groups": "2"}}, "gcn", "leave out placement.row_groups"),
        ({}, "gat", "needs all features of both ends"),
    ],
)
def test_what_cannot_be_planned(
    registry: plugins.Registry, options: dict[str, dict[str, str]], model: str, words: str
) -> None:
    stream = RmatStream(1000, 8000, (0.57, 0.19, 0.19), 0)
    with pytest.raises((UsageError, IncompatibleParts), match=words):
        plan(registry, stream, make_workload((16, 4), model), load_platform(NODE), options)


# --------------------------------------------------------------------------- tables


@pytest.fixture
def few_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stand-in, one graph that is there, and one that is not."""
    spec = "orkut:0.0005"
    monkeypatch.setattr(tables, "QUOTED", {spec: tables.QUOTED["orkut:0.01"]})
    monkeypatch.setattr(tables, "REAL", ("sbm", "nowhere"))
    real = datasets.load

    def load(name: str) -> Dataset:
        if name == "nowhere":
            raise DatasetError("there is no dataset 'nowhere'.")
        return real("sbm:vertices=400,edges=900,features=9,classes=3" if name == "sbm" else name)

    monkeypatch.setattr(datasets, "load", load)


@pytest.mark.usefixtures("few_graphs")
def test_table_4_has_stages_and_speed_ups_beside_the_paper_s() -> None:
    orders, spu, cpu = tables.Table4().run()
    stand_in, real = orders.rows
    assert (stand_in.label, real.label) == ("orkut:0.0005", "sbm")
    n, _, b, share, granularity, stages = (cell.value for cell in stand_in.cells)
    assert stages == -(-2 * n // (n - b))
    assert share == b / n
    assert granularity == (n - b) / (2 * n)
    assert stand_in.cells[-1].quoted == 11
    assert real.cells[-1].quoted is None
    assert any("nowhere is left out" in note for note in orders.notes)
    for table in (spu, cpu):
        columns = dict(zip(table.columns, table.rows[0].cells, strict=True))
        assert columns["speed-up"].quoted == 1.07
        assert columns["s"].value == stages
        ratio = columns["pipelined"].value / columns["reordered"].value
        assert columns["speed-up"].value == ratio
        assert ratio >= 1
        assert columns["idle, reordered"].value <= columns["idle, pipelined"].value
    assert "MixGCN SPU" in spu.notes[0]
    assert "Xeon" in cpu.notes[0]


@pytest.mark.usefixtures("few_graphs")
def test_chosen_numbers_are_never_worse_than_equal_ones() -> None:
    (table,) = tables.GroupSizes().run()
    for row in table.rows:
        equal_s, sparse, dense, chosen_s, speedup = (cell.value for cell in row.cells)
        assert sparse + dense == 16
        assert chosen_s <= equal_s
        assert speedup == equal_s / chosen_s


@pytest.mark.usefixtures("few_graphs")
def test_a_graph_without_stages_is_cut_by_price(node: Groups) -> None:
    vertices = 40
    ends = np.triu_indices(vertices, 1)
    graph, _ = datasets.construct.symmetrise(
        ends[0].astype(np.int64), ends[1].astype(np.int64), vertices
    )
    case = tables.Case("complete", graph, (8, 8, 8), 1e6, None)
    ordering = tables.reorder(graph)
    ordered = tables.Ordered(case, ordering, ordering, None)
    kernel = TorchKernel()
    chosen = ordered.choose_stages(node, kernel)
    epochs = {s: ordered.run(ordering, s, node, kernel).epoch_s for s in (2, 4, 8, 16, 32)}
    assert epochs[chosen] == min(epochs.values())


class Counter:
    """Says that every call takes a second more than the one before."""

    def __init__(self) -> None:
        self.calls = 0

    def measure(self, work) -> float:
        work()
        self.calls += 1
        return float(self.calls)


@pytest.mark.usefixtures("few_graphs")
def test_table_5_is_what_the_timer_says() -> None:
    timer = Counter()
    (table,) = tables.Table5(timer).run()
    assert timer.calls == 8
    first, second = ([cell.value for cell in row.cells] for row in table.rows)
    # METIS, SciPy's, one search, two; then what one search earns.
    assert first == [1, 4, 2, 3, 1 / 2, 4 / 2]
    assert second == [5, 8, 6, 7, 5 / 6, 8 / 6]
    assert {cell.provenance for row in table.rows for cell in row.cells} == {"measured"}


@pytest.mark.usefixtures("few_graphs")
def test_table_5_on_the_command_line() -> None:
    result = CliRunner().invoke(main, ["reproduce", "mixgcn-table5", "--json", "-"])
    assert result.exit_code == 0, result.output
    (table,) = json.loads(result.stdout)["tables"]
    assert all(cell["value"] > 0 for row in table["rows"] for cell in row["cells"])


# --------------------------------------------------------------------------- trained epochs


def slow_aggregation() -> Platform:
    """Two SPUs that take a second for some ten thousand values, two GPUs that update while they
    do, and links that cost next to nothing."""
    platform = load_platform(NODE)

    def change(device: Device) -> Device:
        if device.kind == "sparse":
            return dataclasses.replace(device, memory_bandwidth_bytes_per_s=4e4, launch_s=0.0)
        return dataclasses.replace(device, flops_per_s=1e5, launch_s=0.0)

    devices = tuple(
        change(device)
        for device in platform.accelerators
        if device.name in ("gpu0", "gpu1", "spu0", "spu1")
    )
    links = tuple(
        dataclasses.replace(link, bandwidth_bytes_per_s=1e15, latency_s=1e-12)
        for link in platform.links
    )
    return dataclasses.replace(platform, accelerators=devices, links=links)


def shuffled_band(vertices: int, width: int) -> Dataset:
    """Every vertex has the ``width`` before and after it for neighbours, but for the numbering."""
    place = np.random.default_rng(1).permutation(vertices)
    steps = [(place[:-d], place[d:]) for d in range(1, width + 1)]
    src, dst = (np.concatenate(ends) for ends in zip(*steps, strict=True))
    graph, _ = datasets.construct.symmetrise(src, dst, vertices)
    like = datasets.load(f"sbm:vertices={vertices},edges={4 * vertices},features=8,classes=3")
    return dataclasses.replace(like, graph=graph)


@pytest.mark.parametrize("model", ["gcn", "gin"])
def test_reordered_training_leaves_no_sparse_step_idle(
    registry: plugins.Registry, model: str
) -> None:
    """Proposition 3.5 on the spans of a run: with s stages of a good order the SPUs never wait,
    with as many stages of the vertices as numbered they do, at each border of two layers."""
    data, machine = shuffled_band(240, 20), slow_aggregation()
    ordering = tables.reorder(data.graph)
    stages = tables.count_stages(240, ordering.bandwidth)
    assert stages == 3
    numbered = tables.make_batches(data.graph, tables.keep_order(data.graph).order, stages)
    assert numbered.last_read[0] == stages - 1
    idle_s = {}
    for schedule in ("pipelined", "reordered"):
        options = {"sampler": {"schedule": schedule, "stages": str(stages)}}
        workload = make_workload((8, 8, 8, 3), model)
        request = Request(("mixgcn",), data, workload, machine, options=options, check=False)
        (run,) = compare(request, registry).runs
        assert run.status == "done", run.reason
        spans = [each for each in run.timeline if each.span.stage == "aggregate"]
        for name in ("spu0", "spu1"):
            own = sorted((each.start_s, each.end_s) for each in spans if each.span.place == name)
            # Three layers forward, and the gradients of two.
            assert len(own) == 5 * stages
            gaps = [after[0] - before[1] for before, after in pairwise(own)]
            idle_s[schedule, name] = [gap for gap in gaps if gap > 1e-9]
    for name in ("spu0", "spu1"):
        assert idle_s["reordered", name] == []
        # Forward between layers 1 and 2, 2 and 3; backward between 3 and 2.
        assert len(idle_s["pipelined", name]) == 3
