"""What every lowering has: the parts, the model's layers, the platform, and how a step is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from gnnbench.kernels.read_order import BlockOrder
from gnnbench.lowering.homes import Homes
from gnnbench.lowering.memory import ADAM_ARRAYS, compute_resource, describe_store
from gnnbench.lowering.units import size_backward
from gnnbench.models import Layer
from gnnbench.parts import (
    Bundle,
    Kernel,
    RowTransfer,
    SeedSession,
    Session,
    Setting,
    TrafficSession,
)
from gnnbench.platforms.machine import Device
from gnnbench.program import Buffer, Item, Ledger, Step
from gnnbench.records import Block, BlockSize, IntArray, PartKind, ReadOrder, Work


class Lowering(ABC):
    """A bundle's epochs in one setting as programs.

    ``layers`` are the model's. Whoever reads the programs may set ``deciding``, which makes a
    context for what parts decide along the way: it is no harness. ``lends`` says, before
    ``prepare``, that others borrow idle memory between epochs and need some of the host's beside
    it. ``cut_notes`` are sentences about how a full graph was cut.
    """

    deciding: Callable[[], AbstractContextManager[None]] = nullcontext
    lends: bool = False
    cut_notes: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, setting: Setting, layers: tuple[Layer, ...]) -> None:
        self.bundle = bundle
        self.setting = setting
        self.layers = layers
        self.platform = setting.platform
        self.trainers = bundle.placement.trainers(setting.platform)
        self.slots = {device.name: slot for slot, device in enumerate(self.trainers)}
        #: The host of each trainer, and that of each vertex, of which most lowerings do not care.
        self.hosts = tuple(setting.platform.host_of(device) for device in self.trainers)
        self.homes = Homes.spread(setting.platform, setting.dataset.graph.num_vertices)
        self._itemsize = setting.workload.itemsize
        self._expects = type(bundle.kernel).expect is not Kernel.expect
        self._orders: dict[int, BlockOrder] = {}

    def _open_traffic(self, owner: IntArray) -> TrafficSession:
        """What plans where the rows of every round come from."""
        communication = self.bundle.communication
        if not isinstance(communication, RowTransfer):
            raise TypeError(f"communication {communication.name!r} transfers no rows")
        return communication.open(owner)

    @abstractmethod
    def prepare(self, ledger: Ledger) -> None:
        """Plan, and put into ``ledger`` what stays in memory for the whole run.

        Raises ``DeviceOutOfMemory`` for what does not fit.
        """

    @abstractmethod
    def run_epoch(self, epoch: int) -> Iterator[Item]:
        """One epoch, item by item; epochs follow each other from 0."""

    @property
    def in_processes(self) -> bool:
        """Whether each trainer is a process on cores of this machine; a host that trains alone
        has its threads."""
        return all(device.pinned for device in self.trainers) and self.trainers != self.hosts

    @property
    def keeps_blocks(self) -> bool:
        """Whether every epoch goes over the same blocks."""
        return self.steady

    @property
    def steady(self) -> bool:
        """Whether every epoch is the same program, once prepared: it can be made once, and one dry
        run stands for all."""
        return False

    @property
    def workers(self) -> tuple[Device, ...]:
        """Devices that count for the imbalance also where they have nothing to do."""
        return ()

    @abstractmethod
    def count_seeds(self) -> tuple[int, ...]:
        """How many seeds each update of the last epoch had."""

    def count_topology(self, blocks: Iterable[Block]) -> int:
        """Bytes of blocks as they cross and as a device stores them, with the weights of their
        edges, float32, where the model takes them."""
        weighted = any(layer.weighted for layer in self.layers)
        return sum(block.topology_bytes + 4 * weighted * block.num_edges for block in blocks)

    def sessions(self) -> Mapping[PartKind, Session]:
        """What parts have opened for this run, once prepared."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result, of what was decided in lowering."""
        return describe_store(self.setting)

    # ------------------------------------------------------------------ a device's compute

    def _compute(
        self,
        op: str,
        device: Device,
        number: int,
        operands: tuple[object, ...],
        *,
        round_index: int,
        reads: tuple[Buffer, ...],
        writes: tuple[Buffer, ...] = (),
        adds: tuple[Buffer, ...] = (),
        block: Block | BlockSize,
        gemms: int = 1,
    ) -> Step:
        """AGGREGATE or UPDATE of a layer over a block, forward or backward, as ``op`` says.

        ``gemms`` is how many matrix products UPDATE takes.
        """
        layer = self.layers[number]
        aggregates = op.startswith("aggregate")
        if aggregates:
            work = self._size_products(number, layer.aggregate_work(block, self._itemsize))
            work = work._replace(order=self._find_order(block))
        else:
            work = layer.update_work(block.num_dst, self._itemsize, gemms)
        if op.endswith("backward"):
            work = size_backward(work, first=number == 0)
        step = Step(
            op,
            operands,
            "aggregate" if aggregates else "update",
            op,
            device.name,
            compute_resource(device, self.platform.host, "aggregate" if aggregates else "update"),
            work,
            number,
            round_index,
            reads,
            writes,
            adds,
            device=self.slots[device.name],
        )
        if aggregates and isinstance(block, Block):  # of sizes alone there is none to hear of
            self._announce(step, block)
        return step

    def _size_products(self, number: int, work: Work) -> Work:
        """AGGREGATE of a layer, of whose input fewer values may be multiplied than it has."""
        return work

    def _find_order(self, block: Block | BlockSize | None) -> ReadOrder | None:
        """In which order sums over a block read rows, where its edges are there, and stay."""
        if not (self.keeps_blocks and isinstance(block, Block) and block.lists_edges):
            return None
        if id(block) not in self._orders:
            self._orders[id(block)] = BlockOrder(block)
        return self._orders[id(block)]

    def _announce(self, step: Step, block: Block) -> None:
        """Let a kernel that wants to know hear which block a step aggregates over."""
        if self._expects:
            backward = step.op == "aggregate backward"
            step.index_work = partial(self._expect, block, backward)

    def _expect(self, block: Block, backward: bool, step: Step) -> None:
        self.bundle.kernel.expect(block, backward=backward)

    # ------------------------------------------------------------------ the update of the model

    def _synchronise(self, after: Buffer, round_index: int) -> Iterator[Step]:
        """All-reduce the gradients among the devices, and update every replica."""
        devices, platform = self.trainers, self.platform
        size = self.setting.parameter_bytes
        reduced = Buffer("averaged gradients")
        if len(devices) > 1:
            # A ring: every device sends 2 (m-1)/m of the model to its neighbour.
            ring = self._reduces_in_ring
            others = () if ring else [host for host in platform.hosts[1:] if host in self.hosts]
            # Where hosts add up, all that are not the first send their sum on to that one.
            gathered = Buffer("gradients of a node") if others else reduced
            for slot, device in enumerate(devices):
                peer = devices[(slot + 1) % len(devices)] if ring else self.hosts[slot]
                moved = self._reduced_bytes(size)
                yield self._reduce(device, peer, moved, round_index, after, gathered)
            for host in others:
                yield self._reduce(host, platform.host, 2 * size, round_index, gathered, reduced)
        yield Step(
            "step",
            (),
            "synchronize",
            "average and step",
            devices[0].name,
            (devices[0].name,),
            Work("copy", bytes=ADAM_ARRAYS * size),
            round=round_index,
            reads=(reduced,) if len(devices) > 1 else (after,),
        )

    @property
    def _reduces_in_ring(self) -> bool:
        """Whether gradients go round a ring of the devices, or to their hosts and back."""
        return self.bundle.communication.all_reduce == "ring"

    def _reduced_bytes(self, size_bytes: int) -> int:
        """What an all-reduce of so many bytes moves for a device: of m in a ring each sends
        2 (m-1)/m of it, others send it to their host and have it back."""
        m = len(self.trainers)
        return 2 * (m - 1) * size_bytes // m if self._reduces_in_ring else 2 * size_bytes

    def count_reduced(self, size_bytes: int, slots: Collection[int]) -> int:
        """What an all-reduce of a tensor of so many bytes moves for the devices ``slots``, and for
        hosts other than the first to whom the first of them belongs."""
        if len(self.trainers) == 1:
            return 0
        moved = self._reduced_bytes(size_bytes) * len(slots)
        if not self._reduces_in_ring:
            moved += 2 * size_bytes * len(self._first_abroad.intersection(slots))
        return moved

    @property
    def _first_abroad(self) -> set[int]:
        """The first slot of each host but the first."""
        others = [host for host in self.platform.hosts[1:] if host in self.hosts]
        return {self.hosts.index(host) for host in others}

    def _reduce(
        self, one: Device, other: Device, moved: int, index: int, after: Buffer, into: Buffer
    ) -> Step:
        """So many bytes of an all-reduce between two devices."""
        route, work = self.platform.route(one, other), Work("copy", bytes=moved)
        step = Step("", (), "synchronize", "all-reduce gradients", route.place, route.lanes, work)
        step.round, step.reads, step.adds = index, (after,), (into,)
        step.moves = (("all_reduce", moved),)
        return step


def collect_notes(lowering: Lowering) -> tuple[str, ...]:
    """What the parts of a run have to say of it, each of its choices first, and what the lowering
    has."""
    bundle, sessions = lowering.bundle, lowering.sessions()
    found: list[str] = []
    for part in bundle.all():
        found += [*bundle.chosen.get(part.kind, ()), *part.notes()]
        if part.kind == "sampler":
            found += lowering.cut_notes
        if part.kind in sessions:
            found += sessions[part.kind].notes()
    return (*found, *lowering.notes())


def collect_idle(lowering: Lowering) -> tuple[str, ...]:
    """The ideas of the parts that did nothing in a run."""
    sessions = lowering.sessions()
    opened = [sessions[part.kind] for part in lowering.bundle.all() if part.kind in sessions]
    clauses = [part.idle() for part in lowering.bundle.all()]
    return tuple(clause for each in (*clauses, *(one.idle() for one in opened)) for clause in each)


def collect_predictions(lowering: Lowering) -> Mapping[str, float]:
    """Seconds of an epoch that the placement of a run predicts, by what they rest on."""
    shares = lowering.sessions().get("placement")
    return shares.predicted_epochs() if isinstance(shares, SeedSession) else {}
