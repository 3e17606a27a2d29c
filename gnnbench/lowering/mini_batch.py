"""Mini-batch training: all layers of a unit, then the next unit, round after round.

A round goes through HyScale-GNN's four stages: sampling, feature loading, data transfer and
propagation. Then the synchroniser averages gradients weighted by seeds, so that any split of a
round over trainers equals one large batch on one device. The reader of the steps draws the
mini-batches, as their sizes follow from nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gnnbench.lowering.base import Lowering
from gnnbench.lowering.frame import RoundFrame, open_traffic
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.memory import allocate_host_graph, allocate_model
from gnnbench.lowering.rounds import RoundBuffers, RoundUnderWay, open_pipeline, take_turns
from gnnbench.lowering.stages.averaging import Averaging, Reduction
from gnnbench.lowering.stages.columns import Columns
from gnnbench.lowering.stages.loading import Loading
from gnnbench.lowering.stages.propagation import Propagation, plan_layers
from gnnbench.lowering.stages.sampling import Sampling
from gnnbench.lowering.stages.transfer import RowTransfers
from gnnbench.machines.machine import Device
from gnnbench.models import Layer
from gnnbench.parts import Bundle, Handed, SeedSession, Session, Setting
from gnnbench.program import Buffer, Item, Ledger
from gnnbench.records import IntArray, PartKind, StageTimes


class MiniBatchLowering(Lowering):
    """Rounds of mini-batches.

    ``run_epoch`` yields an epoch in the order in which one process takes it. Several threads ask
    for the steps of their stages instead, in the order of rounds. ``assign`` lets a round in.
    ``sample``, ``load``, ``transfer``, ``begin``, ``propagate`` for every trainer, and
    ``synchronise`` yield its steps. ``observe`` tells the placement the seconds of the stages.

    ``columns`` shares the first layer out by features, and is None where each trainer computes it.
    """

    frame: RoundFrame
    frames = RoundFrame

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        super().__init__(bundle, setting, layers)
        frame = self.frame
        self.reduction = Reduction(frame, ring=bundle.communication.batch_all_reduce == "ring")
        self.sampling = Sampling(frame)
        self.loading = Loading(frame)
        self._transfers = RowTransfers(frame, self.loading)
        self.columns = Columns(frame) if bundle.by_features else None
        plans = tuple(plan_layers(frame, device) for device in self.trainers)
        averaged = stepped = setting.parameter_bytes
        if self.columns is not None:
            plans = tuple(map(self.columns.plan_layers, plans))
            averaged -= self.columns.weight_bytes
            stepped -= self.columns.weight_bytes - self.columns.own_weight_bytes
        self._propagation = Propagation(frame, plans, self.columns)
        self._averaging = Averaging(frame, self.reduction, averaged, stepped)

    def prepare(self, ledger: Ledger) -> None:
        """Place what stays for the whole run, and let the placement plan its first split."""
        frame, setting, graph = self.frame, self.setting, self.setting.dataset.graph
        if frame.platform.other_hosts:
            sockets = frame.placement.sockets(setting, self.loading.owner)
            frame.homes = Homes.at_sockets(frame.platform, sockets)
        packed = graph.num_vertices * frame.packed_bytes if frame.keeps_packed else None
        allocate_host_graph(ledger, setting, frame.homes, packed, replicated=frame.replicated)
        for device in self.trainers:
            allocate_model(ledger, setting, device)
        for device in self._list_samplers():
            size = graph.indptr.nbytes + graph.indices.nbytes
            ledger.allocate(device.name, "graph topology", size)
        if not frame.resident:
            self.loading.traffic = open_traffic(self.bundle, self.loading.owner)
        elif self.columns is not None:
            self.columns.place_features(ledger)
        else:
            for device in self.trainers:
                size = graph.num_vertices * frame.row_bytes
                ledger.allocate(device.name, "vertex features on the device", size)
        sampled = self.sampling.profile()
        self.loading.fill_cache(ledger, sampled[-1][0])
        self._shares = frame.placement.open(
            replace(setting, layers=tuple(layer.shape for layer in self.layers)),
            [self.loading.count_fetched(profile, ids) for profile, ids in sampled],
            frame.prefetch,
        )
        frame.preparers = self._count_preparers()
        frame.pipeline = open_pipeline(frame.prefetch, frame.preparers)

    def _list_samplers(self) -> tuple[Device, ...]:
        """Return the accelerators that hold the topology, to draw from it."""
        loader = self.frame.loader
        if loader.on_devices:
            return () if loader.in_place else self.trainers
        return self.frame.placement.samplers(self.frame.platform)

    def _count_preparers(self) -> int:
        """Return how many threads of its host prepare whole mini-batches for a trainer.

        It is 0 if the host trains itself, or if the placement divides the host's threads between
        tasks. It is 0 also if all devices begin with the blocks of all units.
        """
        frame = self.frame
        divided = type(self._shares).host_threads is not SeedSession.host_threads
        trains = len(frame.accelerator_slots) < len(self.trainers)
        if divided or trains or self.columns is not None:
            return 0
        cores = min(host.cores // self.hosts.count(host) for host in self.hosts)
        return frame.sampler.preparers(max(1, cores))

    # ------------------------------------------------------------------ the epoch

    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """Yield one pass over the training vertices, every stage taking its turn."""
        stages = {
            "sample": self.sample,
            "load": self.load,
            "transfer": self.transfer,
            "begin": self.begin,
            "synchronize": self.synchronise,
        }
        rounds: dict[int, RoundUnderWay] = {}
        num_rounds, pipeline = len(self.start_epoch(epoch)), self.frame.pipeline
        for turn, index, slot in take_turns(num_rounds, pipeline, len(self.trainers)):
            if turn == "assign":
                rounds[index] = self.assign(index)
            elif turn == "propagate":
                yield from self.propagate(rounds[index], slot)
            elif turn == "observe":
                self.observe(rounds.pop(index))
            else:
                yield from stages[turn](rounds[index])

    def start_epoch(self, epoch: int) -> Sequence[IntArray]:
        """Return the seeds of every round of an epoch, int64 each."""
        self._epoch = epoch
        self.frame.ends = []
        self.loading.start_epoch()
        self._transfers.start_epoch()
        with self.frame.deciding():
            self._seeds = self.frame.draws.rounds(epoch)
        return self._seeds

    def assign(self, index: int) -> RoundUnderWay:
        """Return a round and its split, from what the placement has observed so far."""
        seeds, ends = self._seeds[index], self.frame.ends
        with self.frame.deciding():
            handed = self._shares.share_out(seeds)
            threads = self._shares.host_threads()
        self._check_shares(handed, seeds)
        shares = {share.slot: (share, part) for share, part in handed if share.seeds}
        loader = self.frame.loader
        if loader.on_devices:
            shares = {
                slot: (share._replace(samples=True), part) for slot, (share, part) in shares.items()
            }
        if loader.workers:
            trainers = max(map(self.hosts.count, self.hosts))
            threads = threads._replace(sample=loader.workers * trainers)
        ends.append(Buffer("model of every trainer"))
        return RoundUnderWay(index, len(seeds), shares, threads, RoundBuffers(ends[-1]))

    def sample(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the steps that draw one mini-batch for each share."""
        return self.sampling.sample(round_, self._epoch)

    def load(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the steps that gather input rows on the hosts."""
        return self.loading.load(round_)

    def transfer(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the transfers of topology and input rows to the trainers."""
        stage = self._transfers if self.columns is None else self.columns
        return stage.transfer(round_)

    def begin(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield what follows the last round's update and precedes the trainers' propagation."""
        return iter(()) if self.columns is None else self.columns.push(round_)

    def propagate(self, round_: RoundUnderWay, slot: int) -> Iterator[Item]:
        """Yield one trainer's forward and backward pass."""
        return self._propagation.propagate(round_, slot)

    def synchronise(self, round_: RoundUnderWay) -> Iterator[Item]:
        """Yield the averaging of the gradients and the update of every trainer's model."""
        if self.columns is not None:
            yield from self.columns.push_back(round_)
        yield from self._averaging.synchronise(round_)

    def observe(self, round_: RoundUnderWay) -> None:
        """Tell the placement how long the stages of a round took."""
        # A trainer without seeds was done at once; a trainer that does not exist has no time.
        accelerators, took = self.frame.accelerator_slots, round_.seconds
        on_host = [seconds for slot, seconds in took.train.items() if slot not in accelerators]
        elsewhere = [seconds for slot, seconds in took.train.items() if slot in accelerators]
        samplers = self.frame.loader.on_devices or self.frame.placement.samplers(self.platform)
        times = StageTimes(
            sample_cpu=max(took.sample_host.values(), default=0.0),
            sample_accelerator=took.sample_accelerator if samplers else None,
            load=took.load,
            transfer=took.transfer,
            train_cpu=sum(on_host, 0.0) if len(self.trainers) > len(accelerators) else None,
            train_accelerator=max(elsewhere, default=0.0) if accelerators else None,
        )
        with self.frame.deciding():
            self._shares.observe(times)

    def _check_shares(self, handed: Handed, seeds: IntArray) -> None:
        """Raise ``ValueError`` unless each seed is in one share, and shares count their own."""
        if len(handed) == 1 and handed[0][1] is seeds and handed[0][0].seeds == len(seeds):
            return
        fits = all(share.seeds == len(part) for share, part in handed)
        in_order = b"".join([part.tobytes() for _, part in handed]) == seeds.tobytes()
        if fits and in_order:
            return
        name = self.frame.placement.name
        less = next((share for share, _ in handed if share.seeds < 0), None)
        if less is not None:
            raise ValueError(
                f"placement {name!r} gave slot {less.slot} {less.seeds} seeds; a share has none or "
                f"more"
            )
        given = np.concatenate([seeds[:0], *(part for _, part in handed)])
        if not fits or not np.array_equal(np.sort(given), np.sort(seeds)):
            count = sum(share.seeds for share, _ in handed)
            raise ValueError(
                f"placement {name!r} gave out {count} of {len(seeds)} seeds; each must be in one "
                f"share, and a share must count its own"
            )

    # ------------------------------------------------------------------ what readers ask

    def count_seeds(self) -> tuple[int, ...]:
        """Return how many seeds each update of the last epoch had."""
        return tuple([len(seeds) for seeds in self._seeds])

    def count_reduced(self, size_bytes: int, slots: Collection[int]) -> int:
        """Return the bytes that averaging a tensor moves for the devices ``slots``."""
        return self._averaging.count_reduced(size_bytes, slots)

    def sessions(self) -> Mapping[PartKind, Session]:
        """Return what parts have opened for this run."""
        opened: dict[PartKind, Session] = {"placement": self._shares}
        if not self.frame.resident:
            opened["communication"] = self.loading.traffic
        if self.loading.cache.session is not None:
            opened["memory"] = self.loading.cache.session
        return opened

    def notes(self) -> tuple[str, ...]:
        """Return how well a cache served, and what stays on disk."""
        names = {slot: device.name for slot, device in enumerate(self.trainers)}
        return (*super().notes(), *self._describe_preparers(), *self.loading.cache.notes(names))

    def _describe_preparers(self) -> tuple[str, ...]:
        sampler = self.frame.sampler
        if self.frame.preparers or not sampler.preparers(1):
            return ()
        return (
            f"all threads share each mini-batch; threads of sampler {sampler.name!r} prepare "
            f"whole ones if only accelerators train and nothing else divides the host's threads",
        )
