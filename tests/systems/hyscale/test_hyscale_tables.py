"""HyScale-GNN's tables and figures, and the equations that they rest on."""

import re
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import pytest
import scipy.sparse as sp

from gnnbench import datasets
from gnnbench.comparison import Request, compare, frame
from gnnbench.lowering.footprint import sparse_bytes
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Platform, RateCurve
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import LayerShape, Setting
from gnnbench.records import BatchProfile, HostThreads, StageTimes, Workload
from gnnbench.reproduce.agreement import measure_agreement
from gnnbench_plugins.hpgnn.design import Batch
from gnnbench_plugins.hyscale.performance import (
    Prediction,
    Split,
    add_described,
    plan_split,
    predict,
    sampling_seconds,
    trainer_seconds,
)
from gnnbench_plugins.hyscale.placement import HyScalePlacement, HyScaleSession
from gnnbench_plugins.studies.hyscale import hardware, tables
from gnnbench_plugins.studies.hyscale.neighbourhoods import PowerLaw, cut_profiles
from gnnbench_plugins.studies.hyscale.tables import (
    FPGAS,
    GPUS,
    PRODUCTS,
    Figure11,
    Table6,
    make_task,
    with_accelerators,
)
from tests.sessions import on_open
from tests.systems.bundles import REGISTRY, bundle_of, run_bundle, setting_of

FANOUTS = (25, 10)


@pytest.mark.parametrize("law", [
    PowerLaw(200_000, 50.5, 2.5),
    PowerLaw(200_000, 14.5, 3.0, directed=True, without=0.47),
])  # fmt: skip
def test_degrees_of_a_stand_in_have_the_mean_and_the_share_without(law):
    degrees = law.degrees(np.arange(law.vertices))
    assert degrees.mean() == pytest.approx(law.mean_degree, rel=0.05)
    assert np.mean(degrees == 0) == pytest.approx(law.without, abs=1e-3)
    assert degrees.max() <= np.sqrt(law.vertices * law.mean_degree) * (1 + 1e-9)


def test_neighbours_of_a_symmetric_stand_in_are_met_by_degree():
    law = PowerLaw(50_000, 20.0, 2.5)
    drawn = law.draw(200_000, np.random.default_rng(0))
    degrees = law.degrees(np.arange(law.vertices))
    # The share that goes to the hundred largest is their share of all degrees.
    assert np.mean(drawn < 100) == pytest.approx(degrees[:100].sum() / degrees.sum(), rel=0.05)
    assert degrees[drawn].mean() == pytest.approx((degrees**2).sum() / degrees.sum(), rel=0.1)


def test_profiles_are_cut_between_two_sizes():
    profiles = [BatchProfile(10, (100, 10), (90,)), BatchProfile(20, (160, 20), (140,))]
    assert cut_profiles(profiles, 20) == tuple(profiles)
    assert cut_profiles(profiles, 15) == (profiles[0], BatchProfile(15, (130, 15), (115,)))
    assert cut_profiles(profiles, 10) == (profiles[0],)


SHAPE = LayerShape(100, 256, 100, 0, 25_600, True)


def test_effective_rates_stand_in_equations_11_and_12():
    host = load_platform(FPGAS).host
    edges, rows, threads = 1e6, 1e5, 64
    seconds = trainer_seconds(host, threads, (2e5, rows), (edges,), (SHAPE,), 4)
    aggregate_s = edges * 100 * 4 / host.rates.aggregate.at(100, threads)
    update_s = rows * 25_600 / (host.rates.update.at(100, threads) / 2)
    assert seconds == pytest.approx(aggregate_s + 2 * update_s)


def test_sampling_is_timed_in_the_design_phase_where_it_can_be():
    host = load_platform(FPGAS).host
    plain = [BatchProfile(100, (900, 100), (1000,))]
    timed = [replace(plain[0], sampling_s=((1, 4e-3), (4, 1e-3)))]
    assert sampling_seconds(host, plain, 100, 2) == 1000 / (host.rates.sampled_edges_per_s * 2)
    assert sampling_seconds(host, timed, 100, 1) == 4e-3
    assert sampling_seconds(host, timed, 50, 1) == 2e-3
    assert sampling_seconds(host, timed, 100, 2) == pytest.approx(3e-3)
    assert sampling_seconds(host, timed, 100, 99) == 1e-3


def test_without_prefetching_stages_follow_each_other():
    prediction = Prediction(1.0, 2.0, 4.0, 3.0, 5.0, 0.5, prefetch=0)
    assert prediction.execution_s == prediction.latency_s == 1.0 + 2.0 + (4.0 + 5.0) + 0.5
    assert replace(prediction, prefetch=1).execution_s == 2.0 + 4.0
    assert replace(prediction, prefetch=2).execution_s == 5.0 + 0.5
    filled = replace(prediction, prefetch=2)
    assert filled.epoch_s(10) == 55.0
    assert filled.epoch_s(10, filling=True) == 12.5 + 9 * 5.5


def test_a_pipeline_is_no_faster_than_its_hosts_cores():
    task = make_task(load_platform(FPGAS), PRODUCTS, "gcn", FANOUTS, 256)
    profiles = [BatchProfile(64, (12_000, 1_400, 64), (14_000, 1_400))]
    cores = task.platform.host.cores
    split = Split(64, HostThreads(cores, cores, cores))
    found = predict(task, profiles, (), split)
    assert found.execution_s == found.busy_s
    assert found.busy_s == pytest.approx(found.sample_s + found.load_s + found.train_cpu_s)


def test_what_no_equation_has_follows_propagation():
    task = make_task(load_platform(FPGAS), PRODUCTS, "gcn", FANOUTS, 256)
    profiles = [BatchProfile(64, (12_000, 1_400, 64), (14_000, 1_400))]
    split = Split(64, HostThreads(8, 8, 16))
    without, found = (predict(task, profiles, (), split, fixed_s=s) for s in (0.0, 0.25))
    assert found.propagate_s == pytest.approx(without.propagate_s + 0.25)
    assert found.busy_s == pytest.approx(without.busy_s + 0.25)


def test_table_4_counts_each_number_of_the_paper_once(monkeypatch):
    """The paper's row is compared with the workload that takes most, in one of two readings."""

    def make_batch(graph, model):
        rows = 1.0 if model == "gcn" else 2.0
        widths = (graph.features, 256, graph.classes)
        return Batch((50_000 * rows, 9_000 * rows, 1024.0), (60_000.0, 10_000.0), widths)

    monkeypatch.setattr(hardware, "make_batch", make_batch)
    (table,) = hardware.Table4().run()
    found = measure_agreement(table.cells)
    assert (found.numbers, found.uncounted) == (4, {"a second reading of the same row": 4})
    counted, other = table.rows
    built = hardware.list_built(1, hardware.DESIGN)
    shares = [each.shares() for _, each in built]
    for name, cell, again in zip(table.columns, counted.cells, other.cells, strict=True):
        assert cell.value == max(each[name] for each in shares)
        assert (cell.quoted, again.quoted) == (hardware.QUOTED[name],) * 2
    assert len({each["BRAM"] for each in shares}) > 1


def test_cells_on_which_a_constant_was_fitted_are_those_of_its_record(monkeypatch):
    gains = {"gcn": (1.1, 1.2, 2.0), "sage": (1.1, 1.25, 1.9)}
    monkeypatch.setattr(tables, "epoch_s", lambda *_: (1.0, "transfer"))
    monkeypatch.setattr(tables, "step_gains", lambda platform, graph, model: gains[model])
    monkeypatch.setattr(tables, "note_sampling", lambda graphs, fanouts: "")
    (table,) = Table6().run()
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            papers = row.label.startswith("this work") and "ogbn-products" not in column
            law = ("CITATION_EXPONENT", "UNCITED_SHARE")
            assert cell.fitted_on == (law if papers and cell.value is not None else ())
    (figure,) = Figure11().run()
    *_, most = figure.rows
    assert [bool(cell.fitted_on) for cell in most.cells] == [True, False, False]
    host = "epyc7763x2-4xu250.host"
    assert {f"{host}.aggregate", f"{host}.update"} <= {*most.cells[0].fitted_on}
    # A speed-up of 1.33 is compared by the third that exceeds 1.
    assert [cell.quoted for cell in most.cells] == pytest.approx([13, 33, 79])
    assert [cell.value for cell in most.cells] == pytest.approx([10, 25, 100])


@dataclass
class Prepared:
    """What a placement is handed before the first round, and predicts from it."""

    setting: Setting
    profiles: list[BatchProfile]
    prediction: Prediction


def keep_prepared(placement):
    kept = []

    def keep(session, setting, profiles, _):
        kept.append(Prepared(setting, profiles, session.prediction))

    on_open(placement, keep)
    return kept


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("kernel", ["torch", "native"])
def test_sparse_features_are_predicted_as_training_has_them(kernel, model):
    """One round of all vertices: equal bytes, and seconds except launches and one product."""
    graph = datasets.load("sbm:vertices=300,edges=2400,features=40,classes=4")
    values = graph.features * (np.random.default_rng(3).random(graph.features.shape) < 0.1)
    graph = replace(graph, features=sp.csr_matrix(values.astype(np.float32)))
    host = replace_fields(load_platform(FPGAS).host, launch_s=0.0)
    platform = Platform("alone", "a host", host, (), ())
    count = len(graph.train_ids)
    workload = Workload(model, (40, 32, 4), 1, count, (5, 3), 0, threads=1)
    trained = bundle_of("hyscale", [("kernel", kernel)], communication_stages=0)
    kept = keep_prepared(trained.placement)
    (epoch,) = run_bundle(trained, setting_of(graph, platform, workload)).trace.epochs
    (prepared,) = kept
    profile, found = prepared.profiles[-1], prepared.prediction
    (load_span,) = [span for span in epoch.spans if span.label == "load features"]
    dense_bytes = profile.vertices[0] * 40 * 4
    if kernel == "native":
        assert load_span.work.bytes == sparse_bytes(profile.vertices[0], profile.stored[0], 4)
        assert load_span.work.bytes < dense_bytes / 3
    else:
        assert profile.stored is None
        assert load_span.work.bytes == dense_bytes
    assert found.load_s == pytest.approx(load_span.seconds)
    # The bytes and products of AGGREGATE, and UPDATE's products as Equation 12 counts them.
    passes = [span for span in epoch.spans if span.label.startswith(("aggregate", "update"))]
    seconds = sum(span.seconds for span in passes)
    twice = [s for s in passes if s.label == "update backward" and s.layer == 1]
    assert found.train_cpu_s == pytest.approx(seconds - sum(s.seconds for s in twice) / 2)


def train_small(platform, **placement):
    graph = datasets.load("sbm:vertices=2000,edges=16000,features=16,classes=4")
    workload = Workload("gcn", (16, 32, 4), 1, 128, (5, 3), 0, threads=1)
    options = {"placement": placement}
    request = Request(("hyscale",), graph, workload, platform, options=options, check=False)
    (result,) = compare(request, REGISTRY).runs
    assert result.status == "done", result.reason
    return result, [note for note in result.notes if note.startswith("an epoch predicted/achieved")]


def predicted_and_achieved(note):
    found = re.match(r"an epoch predicted/achieved: (\S+) (\S+)/(\S+) (\S+), ([+-]\d+)%, ", note)
    assert found is not None, note
    return found


def train_a_round(platform):
    """Return what is prepared for one round, its stage times in training, and the spans."""
    graph = datasets.load("sbm:vertices=600,edges=5000,features=24,classes=4")
    workload = Workload("gcn", (24, 16, 4), 1, len(graph.train_ids), (5, 3), 0, threads=1)
    options = {"placement_cpu_trainer": False, "placement_drm": False, "communication_stages": 0}
    trained = bundle_of("hyscale", **options)
    kept = keep_prepared(trained.placement)
    result = run_bundle(trained, setting_of(graph, platform, workload))
    (prepared,), (times,), (epoch,) = kept, result.times, result.trace.epochs
    return prepared, times, epoch.spans


def describe(prepared):
    accelerators = prepared.setting.platform.accelerators
    return add_described(prepared.prediction, prepared.setting, prepared.profiles, accelerators, 0)


def with_rates_of_steps(platform):
    """Give GPUs their plain rates as those of a whole step, which is one launch then."""

    def give(device):
        if device.kind != "gpu":
            return device
        aggregate, update = (
            RateCurve((1,), (rate,), (rate,))
            for rate in (device.hardware.memory_bandwidth_bytes_per_s, device.hardware.flops_per_s)
        )
        return replace_fields(device, aggregate=aggregate, update=update)

    return replace(platform, accelerators=tuple(map(give, platform.accelerators)))


@pytest.mark.parametrize("name", [FPGAS, GPUS])
def test_what_a_description_adds_is_what_training_records(name):
    """One accelerator has the whole round: the link's time exactly, and launches."""
    platform = with_rates_of_steps(with_accelerators(load_platform(name), 1))
    plan, times, _ = train_a_round(platform)
    found, plain = describe(plan), plan.prediction
    assert found.transfer_s > plain.transfer_s
    assert found.transfer_s == pytest.approx(times.transfer, rel=1e-12)
    (device,) = platform.accelerators
    assert device.hardware.launch_s > 0
    free = replace(platform, accelerators=(replace_fields(device, launch_s=0.0),))
    _, without, _ = train_a_round(free)
    launches_s = times.train_accelerator - without.train_accelerator
    assert launches_s > 0
    assert found.train_accelerator_s - plain.train_accelerator_s == pytest.approx(launches_s)
    assert (found.train_cpu_s, found.load_s) == (plain.train_cpu_s, plain.load_s)


@pytest.mark.parametrize("name", [FPGAS, GPUS])
def test_a_description_adds_the_latencies_of_the_synchronisers_links(name):
    """Gradients go to the host and come back, over as many links at once as there are."""
    platform = with_accelerators(load_platform(name), 2)
    plan, _, spans = train_a_round(platform)
    crossed = [
        max(span.seconds for span in spans if span.label == f"{way} gradients")
        for way in ("gather", "scatter")
    ]
    plain_s, found_s = plan.prediction.synchronise_s, describe(plan).synchronise_s
    assert sum(crossed) > plain_s > 0
    assert found_s == pytest.approx(sum(crossed), rel=1e-12)


def test_a_machine_of_ones_own_is_predicted_from_a_design_phase(monkeypatch):
    """It trains a model of its own on other mini-batches, and the run is what it is without."""
    monkeypatch.setattr(frame, "ENOUGH_SAMPLES", 1)
    rates = {"sampled_edges_per_s": 1e6, "virtual": False, "cores": 1}
    host = replace_fields(load_platform(GPUS).host, name="host", **rates)
    platform = Platform("local", "a host", host, (), ())
    plain, (probed,) = train_small(platform, design="false")
    designed, (measured,) = train_small(platform)
    assert designed.loss == plain.loss
    assert probed.endswith("rates of platform local, nothing besides the stages")
    assert measured.endswith("from a few rounds of other mini-batches before the run")
    assert predicted_and_achieved(measured)


def test_host_tasks_may_have_threads_of_their_own_before_prefetching():
    """Else stages that follow each other have all threads, and there are none to balance."""
    graph = datasets.load("sbm:vertices=300,edges=2400,features=40,classes=4")
    workload = Workload("gcn", (40, 32, 4), 1, 4096, FANOUTS, 0)
    task = setting_of(graph, load_platform(FPGAS), workload)
    profiles = [BatchProfile(4096, (300_000, 60_000, 4096), (600_000, 90_000))]
    devices, cores = task.platform.accelerators, task.platform.host.cores

    def plan(own_threads: bool) -> Split:
        return plan_split(
            task, profiles, devices, cpu_trainer=True, prefetch=0, own_threads=own_threads
        )

    assert plan(False).threads == HostThreads(cores, cores, cores)
    own = plan(True).threads
    assert own.sample + own.load + own.train == cores
    session = HyScaleSession(HyScalePlacement(own_threads=True), task, profiles, 0)
    session.split(4096)
    first = session.history[0]
    # Sampling takes ten times as long as all the rest: threads go there.
    session.observe(StageTimes(1e-1, 1e-2, 1e-3, train_cpu=1e-2, train_accelerator=1e-2))
    assert session.balancer.threads.sample > first.threads.sample


def test_figure_8_ends_with_the_mean_of_its_errors(registry):
    (table, *_) = registry.reproduction("hyscale-figure8")().run()
    rows = [row for row in table.rows if row.label.endswith("prediction error")]
    assert len(rows) == 2
    for row in rows:
        *errors, mean = (cell.value for cell in row.cells)
        assert mean == pytest.approx(fmean(errors))
