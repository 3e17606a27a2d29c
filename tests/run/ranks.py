"""Trains strategies in several processes, forked from one that imports once; rank 0 of each group
prints what came out, a line a group."""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch

from gnnbench.check.graphs import fit_workload, make_dataset, make_platform, with_memory
from gnnbench.datasets import load
from gnnbench.datasets.sharing import share
from gnnbench.errors import DeviceOutOfMemoryError, IncompatiblePartsError
from gnnbench.host.rank import PATIENCE_S, read_place
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting, base
from gnnbench.plugins import Registry, assemble, with_swap
from gnnbench.plugins import load as load_registry
from gnnbench.price.folds import digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Trace
from gnnbench.run import train
from gnnbench.run.collectives import Processes
from gnnbench.run.joining import join
from gnnbench.run.shared_memory import MemoryProcesses
from tests.networks import make_network
from tests.uneven import make_uneven, split_host

#: By the number of devices, what runs out of memory in the midst of an epoch on the small graph.
TOO_LARGE = {
    2: "partition memory.device_bytes=20000",
    3: "partition memory.device_bytes=15000",
    4: "partition memory.device_bytes=12000",
}
#: What crosses rests on values, so that no plan knows it.
ADAPTIVE = "sancus communication.metric=embeddings communication.change=0.2"
#: Every strategy that uses several devices, and variants whose rows go other ways: parts of other
#: strategies by ``kind=name``, options by ``kind.name=value``, and two hosts by ``hosts=2``.
STRATEGIES = (
    "partition", "roc", "cagnet", "bnsgcn", "neutronstar", "pipegcn", "sancus", "distgnn", "mixgcn",
    "pyg-multi-gpu", "salient", "distdgl", "distdgl-v2", "pagraph", "hyscale", "p3", "hongtu",
    "hongtu-im", "neugraph",
)  # fmt: skip
VARIANTS = (
    "hongtu communication=vanilla", "hongtu communication.p2p=false",
    "hongtu communication.overlap=true sampler.chunks_per_partition=3",
    "hyscale communication=hongtu", "salient sampler.workers=2 communication.precision=half",
    "bnsgcn communication.rate=0.6", "roc memory.swap=all",
    "neutronstar sampler.split=cached sampler.features=crossing",
    "neutronstar sampler.split=communicated", "sancus communication.stale_gradients=true", ADAPTIVE,
    "pipegcn communication.smoothing=both",
    "neugraph memory=hongtu communication=vanilla sampler.chunks_per_device=2",
    "hongtu communication=neugraph memory=neugraph",
    "salient hosts=2", "distdgl hosts=2", "pagraph hosts=2", "hyscale hosts=2", "p3 hosts=2",
    "hongtu hosts=2", "neugraph hosts=2",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A strategy on a data set, in words."""

    strategy: str
    dataset: str
    model: str

    def find(self, devices: int) -> tuple[Bundle, Setting]:
        """Its parts, and the setting on so many devices that are described."""
        name, *changes = self.strategy.split()
        registry = find_registry()
        (parts,) = registry.strategy(name).bundles.values()
        options: dict[str, dict[str, str]] = {}
        described = make_uneven(devices, "cpu" if name == "distgnn" else "gpu")
        for change in changes:
            what, value = change.split("=")
            kind, dot, option = what.partition(".")
            if what == "hosts":
                described = split_host(described)
            elif dot:
                options.setdefault(kind, {})[option] = value
            else:
                parts = with_swap(registry, parts, ((kind, value),))
        dataset = make_dataset() if self.dataset == "small" else load(self.dataset)
        workload = fit_workload(dataset, self.model)
        names = frozenset(device.name for device in described.accelerators)
        platform = with_memory(described, names, 10**10)
        return (
            assemble(registry, parts, options),
            Setting(dataset, platform, workload, build(workload).shapes),
        )


_registries: list[Registry] = []


def find_registry() -> Registry:
    if not _registries:
        _registries.append(load_registry(()))
    return _registries[0]


def train_case(case: Case, devices: int, processes: Processes | None = None) -> Trace:
    bundle, setting = case.find(devices)
    if processes is not None:
        # Ranks map the data set of files, and keep in files what they have planned for all.
        base.SHELVED_BYTES = 0
        place = read_place()
        assert place is not None
        mapped = share(lambda: setting.dataset, case.dataset, case.strategy, place, PATIENCE_S)
        assert mapped.mapped
        setting = replace(setting, dataset=mapped)
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel), processes=processes)


def sum_up(trace: Trace) -> dict[str, object]:
    """What has to be the same however many processes train."""
    return {
        "loss": [epoch.loss for epoch in trace.epochs],
        "round losses": [loss for epoch in trace.epochs for loss in epoch.round_losses],
        "bytes": [{kind: n for kind, n in epoch.bytes.items() if n} for epoch in trace.epochs],
        "peak bytes": dict(trace.peak_bytes),
        "epoch_s": [digest(epoch, "modelled").epoch_s for epoch in trace.epochs],
        "parameters": {name: each.ravel().tolist() for name, each in trace.parameters.items()},
    }


def main() -> None:
    """``DATASET MODEL GROUP GROUP..``: groups of ranks, one after the other. Each group is
    ``SIZE:PORT:HOW:STRATEGY:STRATEGY..``; its ranks share memory if ``HOW`` is ``shared``, and are
    on several nodes if it is ``2 nodes``."""
    torch.set_num_threads(1)
    dataset, model, *groups = sys.argv[1:]
    for group in groups:
        size, os.environ["MASTER_PORT"], how, *strategies = group.split(":")
        os.environ["WORLD_SIZE"] = size
        count, _, nodes = how.partition(" ")
        with make_network(int(count)) if nodes else nullcontext(None) as network:
            ranks = []
            for rank in range(int(size)):
                child = os.fork()
                if not child:
                    if network is not None:
                        network.enter(rank, int(size))
                    cases = [Case(strategy, dataset, model) for strategy in strategies]
                    os._exit(run_forked(rank, cases, shared=how == "shared"))
                ranks.append(child)
            if any([os.waitpid(child, 0)[1] for child in ranks]):
                sys.exit(1)


def run_forked(rank: int, cases: list[Case], *, shared: bool) -> int:
    os.environ["RANK"] = str(rank)
    try:
        platform = make_platform(2)
        place = read_place()
        assert place is not None
        processes = join(place, make=partial(MemoryProcesses, platform) if shared else None)
        found = dict(run_cases(cases, processes))
        processes.leave()
    except BaseException:
        traceback.print_exc()
        return 1
    if not rank:
        print(json.dumps(found), flush=True)
    return 0


def run_cases(cases: list[Case], processes: Processes) -> Iterator[tuple[str, object]]:
    for case in cases:
        try:
            trace = train_case(case, processes.size, processes)
            unsent = [note for note in trace.notes if "and not sent" in note]
            yield case.strategy, {**sum_up(trace), "unsent": unsent}
        except (IncompatiblePartsError, DeviceOutOfMemoryError) as refusal:
            yield case.strategy, str(refusal)


if __name__ == "__main__":
    main()
