"""The options of a library's loader, in plans from the sizes of mini-batches, counted by hand."""

import pytest

from gnnbench.jobs.sized import price_plan
from gnnbench.machines.costs.library import read_devices
from gnnbench_plugins.dgl.sampler import DGLSampler
from gnnbench_plugins.pyg.sampler import PyGLoader, PyGSampler

VERTICES, EDGES, ROUNDS, WIDTH = (40_000, 9_000, 1_000), (60_000, 10_000), 20, 100
DRAWN = sum(EDGES)
GPUS, NODES = "xeon8163x2-8xv100", "g5-24xlarge-2n"


def plan(strategy, *options, platform=GPUS, devices=1, **others):
    swap = ("sampler=dgl-loader", "placement=data-parallel") if strategy == "dgl" else ()
    options = (*options, *([f"placement.accelerators={devices}"] if devices > 1 else []))
    given = {
        "strategy": strategy if devices == 1 or strategy == "dgl" else f"{strategy}-multi-gpu",
        "model": "sage",
        "platform": platform,
        "dims": (WIDTH, 16, 8),
        "batch_vertices": VERTICES,
        "batch_edges": EDGES,
        "train_vertices": ROUNDS * devices * VERTICES[-1],
        "swap": swap if devices > 1 else (),
        "options": options,
        **others,
    }
    return price_plan(tuple(given.items()))


def stages_of(*words, **others):
    (digest,) = plan(*words, **others).digests
    return digest.stages


@pytest.mark.parametrize("devices", [1, 2])
def test_workers_of_each_device_draw_and_start_in_each_epoch(devices):
    """Three workers of each device draw the mini-batches of all devices; those of one device start
    one after the other. Six workers contend, and do not draw twice as fast as three."""
    library = PyGLoader.library
    each_s = 2 * library.sampling_call_s + DRAWN / library.sampled_edges_per_s
    drawn_s = ROUNDS * devices * each_s / (3 * devices) ** read_devices()["cpu"].workers_gain
    found = stages_of("pyg", "sampler.workers=3", devices=devices)["sample"]
    assert found == pytest.approx(drawn_s + 3 * library.worker_start_s, rel=1e-9)
    words = ("sampler.workers=3", "sampler.persistent=true")
    assert stages_of("pyg", *words, devices=devices)["sample"] == pytest.approx(drawn_s, rel=1e-9)


def test_workers_sample_ahead_unless_told_otherwise():
    """Sampling takes longest, and everything else hides behind it."""
    words = ("sampler.workers=1", "sampler.persistent=true")
    ahead, turns = plan("pyg", *words), plan("pyg", *words, "sampler.prefetch=0")
    assert ahead.epoch_s == pytest.approx(ahead.digests[0].stages["sample"], rel=0.02)
    assert turns.epoch_s > ahead.epoch_s * 1.005
    assert plan("pyg", *words, "sampler.prefetch=1").epoch_s == ahead.epoch_s


def test_accelerators_draw_from_their_copy_of_the_topology_or_from_the_hosts():
    library, graph = DGLSampler.library, {"vertices": 1_000_000, "edges": 5_000_000}
    peaks = {}
    for where in ("devices", "uva"):
        found = plan("dgl", f"sampler.where={where}", **graph)
        drawn_s = 2 * library.sampling_call_s + DRAWN / library.device_sampled_edges_per_s
        sampled = found.digests[0].stages["sample"]
        assert sampled == pytest.approx(ROUNDS * drawn_s, rel=1e-9)
        peaks[where] = found.trace.peak_bytes["gpu0"]
    # In-edges of 32 bits, both ways, and where each vertex's begin.
    assert peaks["devices"] - peaks["uva"] == 2 * 5_000_000 * 4 + 1_000_001 * 8


def test_rows_cross_as_their_memory_lets_them():
    """Pageable rows go through the driver at 6 GB/s, pinned ones at the link's 12.3, and what is
    read in place is not gathered."""
    sent = VERTICES[0] * WIDTH * 4
    pageable, pinned, in_place = (
        stages_of("dgl", "sampler.where=devices", f"memory.rows={rows}")
        for rows in ("pageable", "pinned", "in-place")
    )
    assert pageable["transfer"] == pytest.approx(ROUNDS * (sent / 6e9 + 10e-6), rel=1e-6)
    assert pinned["transfer"] == pytest.approx(ROUNDS * (sent / 12.3e9 + 10e-6), rel=1e-6)
    assert in_place["transfer"] > pinned["transfer"]
    assert pageable["load"] > pinned["load"] > in_place["load"] == 0.0
    assert stages_of("dgl", "sampler.where=devices") == pageable


def test_nodes_read_the_rows_of_others_unless_each_has_all():
    shared, copied = (
        plan("pyg", *words, platform=NODES, devices=4).trace.epochs[0].bytes["host_to_host"]
        for words in ((), ("memory.replicated=true",))
    )
    # Half of the rows of each mini-batch are at home on the other node.
    assert shared == pytest.approx(ROUNDS * 4 * VERTICES[0] / 2 * WIDTH * 4, rel=0.01)
    assert copied == 0


def test_an_absent_sampler_has_the_prices_of_its_library():
    assert PyGLoader.library is PyGSampler.library
    swapped = plan("pyg", "sampler.workers=2", swap=("sampler=pyg",))
    assert swapped.epoch_s == plan("pyg", "sampler.workers=2").epoch_s
