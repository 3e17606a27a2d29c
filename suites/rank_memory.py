"""The memory of each rank, beside that of one process with the same devices.

``python -m suites.rank_memory --dataset facebook_top8 --ranks 2,4`` trains each strategy for two
epochs and prints the peak of each process (PSS), less the peak on a tiny graph: the interpreter's.
One process counts from the moment when it has loaded the data set, and ranks count from their
start. A rank is expected to hold its share of one process, and what its algorithm needs whole: the
kernel's graph for feature shards, which aggregate some columns of all vertices.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import torch

from gnnbench import datasets
from gnnbench.check.graphs import make_platform, with_memory
from gnnbench.datasets.partitioning import keep_partitions
from gnnbench.datasets.sharing import share
from gnnbench.host.rank import PATIENCE_S, read_place
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.plugins import Registry, assemble, load
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import BlockSize, Dataset, Workload
from gnnbench.run import train
from gnnbench.run.collectives import Processes
from gnnbench.run.joining import join

STRATEGIES = ("partition", "mixgcn", "hongtu", "hyscale")
#: A graph beside which the interpreter takes nearly all memory.
TINY = "sbm:vertices=600,edges=3000,features=16,classes=4"
#: The width of the hidden layer, seeds of a mini-batch, fan-outs, and epochs.
HIDDEN, BATCH, FANOUTS, EPOCHS = 64, 4096, (10, 5), 2
#: Seconds between two looks at the processes, and their patience.
LOOK_S, WAIT_S = 0.25, 10 * PATIENCE_S


def read_mb(process: int) -> float:
    """Return the PSS of a process [MB]; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:")), 0.0)


def measure(
    registry: Registry, spec: str, strategy: str, devices: int, ranks: int
) -> tuple[list[float], float]:
    """Return the peak of each of ``ranks`` processes, and what each rank needs whole [MB]."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    os.environ.update(MASTER_PORT=str(port), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        loaded = Path(folder, "loaded")
        children = []
        for rank in range(ranks):
            child = os.fork()
            if not child:
                os._exit(run(registry, spec, strategy, devices, rank, loaded))
            children.append(child)
        peaks, waiting = [0.0] * ranks, dict.fromkeys(children)
        while waiting:
            for child in list(waiting):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    del waiting[child]
                    if status:
                        raise SystemExit(f"{strategy}: a process of {ranks} has failed")
            if ranks > 1 or loaded.exists():
                peaks = list(map(max, peaks, map(read_mb, children)))
            time.sleep(LOOK_S)
        return peaks, int(loaded.read_text(encoding="ascii")) / 1e6


def run(registry: Registry, spec: str, strategy: str, devices: int, rank: int, loaded: Path) -> int:
    """Train a strategy in this process, as one rank or alone; return an exit status.

    A process that is alone creates the file ``loaded`` once it has the data set. At the end, the
    file has the bytes that each rank needs whole.
    """
    os.environ["RANK"] = str(rank)
    torch.set_num_threads(1)
    try:
        place = read_place()
        alone = place is None or place.size == 1

        def make() -> Dataset:
            return datasets.scale_features(datasets.load(spec))

        if place is None or alone:
            dataset = make()
            loaded.touch()
            loaded.write_text(str(train_strategy(registry, dataset, strategy, devices)))
            return 0
        dataset = share(make, spec, None, place, WAIT_S)
        with keep_partitions(dataset, WAIT_S):
            size = train_strategy(registry, dataset, strategy, devices, join(place, WAIT_S))
        loaded.write_text(str(size))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def train_strategy(
    registry: Registry,
    dataset: Dataset,
    strategy: str,
    devices: int,
    processes: Processes | None = None,
) -> int:
    """Train on described devices, all here or one a rank; return what each rank needs whole [B]."""
    described = make_platform(devices)
    names = frozenset(device.name for device in described.devices)
    platform = with_memory(described, names, 10**12)
    dims = (dataset.num_features, HIDDEN, dataset.num_classes)
    workload = Workload("gcn", dims, EPOCHS, BATCH, FANOUTS, seed=0, threads=1)
    (parts,) = registry.strategy(strategy).bundles.values()
    setting = Setting(dataset, platform, workload, build(workload).shapes)
    bundle = assemble(registry, parts, {})
    train(bundle, setting, ModelClock(platform, bundle.kernel), processes=processes)
    return whole_bytes(bundle, setting)


def whole_bytes(bundle: Bundle, setting: Setting) -> int:
    """Return the bytes that each rank needs whole: the kernel's graph, if features are divided."""
    if not bundle.by_features:
        return 0
    graph, itemsize = setting.dataset.graph, setting.workload.itemsize
    size = BlockSize(graph.num_vertices, graph.num_vertices, graph.num_edges)
    return max(bundle.kernel.adjacency_bytes(size, shape, itemsize) for shape in setting.layers)


def print_peaks(spec: str, strategies: Sequence[str], counts: Sequence[int]) -> None:
    """Print the peaks of each strategy, with one process and with several."""
    registry = load(())
    print(f"{spec}: peak PSS less the interpreter's [MB]; load {os.getloadavg()[0]:.1f}")
    for count in counts:
        floors = {n: mean(measure(registry, TINY, STRATEGIES[0], count, n)[0]) for n in (1, count)}
        for strategy in strategies:
            (peak,), needed = measure(registry, spec, strategy, count, 1)
            peaks, _ = measure(registry, spec, strategy, count, count)
            one, each = peak - floors[1], [peak - floors[count] for peak in peaks]
            listed, share = ", ".join(f"{peak:,.0f}" for peak in each), one / count
            print(
                f"{strategy:10} {count} devices: one process {one:,.0f}, ranks {listed}; the "
                f"largest is {max(each) / (share + needed):.2f}x of an even share and the "
                f"{needed:,.0f} that it needs whole, {max(each) / share:.2f}x of an even share, "
                f"and all together are {sum(each) / one:.2f}x",
                flush=True,
            )


def main() -> None:
    """Read the command line, and print."""
    line = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    line.add_argument("--dataset", default="facebook_top8")
    line.add_argument("--strategies", default=",".join(STRATEGIES))
    line.add_argument("--ranks", default="2,4")
    asked = line.parse_args()
    counts = [int(count) for count in asked.ranks.split(",")]
    print_peaks(asked.dataset, asked.strategies.split(","), counts)


if __name__ == "__main__":
    main()
