"""Samplers: which units make one epoch, and in which order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from gnnbench.machines.costs import Library
from gnnbench.parts.base import FULL_GRAPHS, MINI_BATCHES, Part, Setting
from gnnbench.parts.options import option_fields
from gnnbench.records import Block, FloatArray, IntArray, Loading, Mode, PartKind, Round, Workload

#: min(fan-out, degree) different in-neighbours of every destination, where each set of them is
#: equally likely: the law of GraphSAGE's neighbour sampling, ``MiniBatchSampler.law``.
UNIFORM = "uniform without replacement"
#: The suffix of a row's sampling law if its mini-batches repeat their seeds in every epoch.
UNSHUFFLED = "seeds not shuffled"


class Loader(NamedTuple):
    """The loader that draws a sampler's mini-batches on a described machine.

    Each trainer has ``workers`` processes that draw a mini-batch each. With 0 the host's threads
    draw as the placement divides them. Workers start in every epoch unless they are ``persistent``.
    ``prefetch`` is the number of stages that work ahead, as in ``HostLoading.prefetch``.
    With ``on_devices`` the accelerators that train draw. They hold a copy of the topology, unless
    they read it ``in_place`` in the host's memory.
    """

    workers: int = 0
    persistent: bool = False
    prefetch: Literal[0, 1, 2] = 0
    on_devices: bool = False
    in_place: bool = False


@dataclass
class MiniBatchSampler(Part):
    """A sampler of mini-batches: rounds of seeds, and the sampled blocks below them.

    After ``begin``, ``_setting`` is the run's setting.
    """

    kind: ClassVar[PartKind] = "sampler"
    modes: ClassVar[frozenset[Mode]] = MINI_BATCHES

    _setting: Setting = field(init=False, repr=False, compare=False)

    def begin(self, setting: Setting) -> None:
        """Keep the run's setting."""
        self._setting = setting

    def rounds(self, epoch: int) -> Sequence[IntArray]:
        """Return the seeds of every round of an epoch (int64, each training vertex once).

        By default these are the training vertices, shuffled by (seed, epoch), in pieces of the
        batch size.
        """
        return shuffle_seeds(self._setting, epoch)

    @abstractmethod
    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        """Return L blocks, input layer first.

        The last block's destinations are ``seeds`` in their order.

        The neighbours drawn for a vertex must depend on (seed, epoch, layer, vertex) alone. Then
        splitting a round over trainers does not change them. Otherwise ``split_invariant`` must be
        False; then the sampler works with one trainer only.
        """

    split_invariant: ClassVar[bool] = True
    #: The cost of drawing; the platform's rate applies where the library states none.
    library: ClassVar[Library] = Library()
    #: How this sampler's loader brings rows to accelerators: ``staged`` by its framework's
    #: ``index_select``, or otherwise.
    loading: ClassVar[Loading] = "blocks"
    #: Whether the draws depend on the workload's fan-outs.
    heeds_fanouts: ClassVar[bool] = True
    #: The distribution that it draws from: ``UNIFORM`` or another name. Rows are ranked only beside
    #: rows of an equal law. An empty law equals no other sampler's. ``gnnbench plugins check``
    #: tests a claim of ``UNIFORM`` against the draws; other names are not verified.
    law: ClassVar[str] = ""

    @property
    def scales_edges(self) -> bool:
        """Whether models multiply the sampled edges by ``edge_scales``."""
        return False

    def edge_scales(self, layer: int) -> FloatArray | None:
        """Return the factors of in-edges in AGGREGATE of a layer, from 0 at the input.

        The result is ``(E,)``, or None for a sampler that does not scale edges. Only called after
        ``begin``.

        A factor is one over the probability that an edge is drawn with its destination, so sums
        over neighbours estimate those of the whole graph. A mean is then the sum over the full
        graph's degree.
        """
        return None

    def loader(self) -> Loader:
        """Return the loader of a library, as the sampler's options describe it.

        It decides prices alone: it is refused where times are measured.
        """
        return Loader()

    def preparers(self, cores: int) -> int:
        """Return the number of host threads that prepare mini-batches for a trainer.

        Each thread then draws a whole mini-batch and gathers its rows, in parallel with later ones.
        ``cores`` is the number of host cores for each trainer.

        With 0, the default, all host threads share the work of each mini-batch.
        """
        return 0

    def sampling(self, workload: Workload) -> str:
        """Return the sampling law as a row states it, with the fan-outs if they matter.

        Rows are told apart by this text.
        """
        law = self.law or f"sampler {self.name}{self._chosen_options()}"
        if not self.heeds_fanouts:
            return law
        return f"{law}, fan-outs {', '.join(map(str, workload.fanouts))}"

    def _chosen_options(self) -> str:
        """Return the options that differ from their defaults."""
        chosen = [
            f"{name}={getattr(self, name)}"
            for name, declared in option_fields(type(self)).items()
            if getattr(self, name) != declared.default
        ]
        return f" ({', '.join(chosen)})" if chosen else ""


def shuffle_seeds(setting: Setting, epoch: int) -> list[IntArray]:
    """Return the training vertices, shuffled by (seed, epoch), in pieces of the batch size."""
    workload = setting.workload
    key = np.array([workload.seed, epoch], dtype=np.uint64)
    shuffled = setting.dataset.train_ids
    np.random.Generator(np.random.Philox(key=key)).shuffle(shuffled)
    return [
        shuffled[begin : begin + workload.batch_size]
        for begin in range(0, len(shuffled), workload.batch_size)
    ]


class DeviceCapacity(Protocol):
    """The capacity of the trainers' memories, provided by the engine, which does the accounting."""

    @property
    def device_bytes(self) -> int:
        """The capacity of the smallest trainer's memory."""

    def holds(self, rounds: Sequence[Round], owner: IntArray, pieces: int = 1) -> bool:
        """Return whether every trainer can process its units of ``rounds``.

        ``owner`` and ``pieces`` are those of ``Chunks``.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """A full graph cut for some devices.

    ``rounds`` are the rounds of one epoch. ``owner`` is the device index of each vertex, int64
    ``(V,)``.

    ``kept`` are, by device index, vertices of other devices, int64. The device holds their features
    from before the first epoch, so it does not read them in each; used by ``layered`` samplers.
    ``pieces`` is the number of consecutive rounds in which a device's units have equal
    destinations; used by samplers that cut ``in_pieces``.

    ``notes`` are sentences for the report.
    """

    rounds: tuple[Round, ...]
    owner: IntArray
    notes: tuple[str, ...] = ()
    kept: Mapping[int, IntArray] = field(default_factory=dict)
    pieces: int = 1

    def find_fault(self, num_vertices: int) -> str | None:
        """Return what is wrong if not every vertex is computed in exactly one unit, or None.

        The units that compute pieces of the same vertices' in-edges count as one.
        """
        given = [unit.output_ids for round_ in self.rounds[:: self.pieces] for unit in round_.units]
        seen, total = np.zeros(num_vertices, dtype=np.bool_), sum(map(len, given))
        for ids in given:
            seen[ids[(ids >= 0) & (ids < num_vertices)]] = True
        if total == num_vertices and seen.all():
            return None
        return find_coverage_fault(given, np.arange(num_vertices), "vertices")


def find_coverage_fault(given: Sequence[IntArray], expected: IntArray, what: str) -> str | None:
    """Check that ``given`` together hold each of ``expected`` (distinct ids) exactly once.

    Return what is wrong, or None. ``what`` names the expected vertices in it.
    """
    found, counts = np.unique(np.concatenate([expected[:0], *given]), return_counts=True)
    if len(missing := np.setdiff1d(expected, found, assume_unique=True)):
        return f"{len(missing)} {what} in no unit, the first is {missing.min()}"
    if len(strange := np.setdiff1d(found, expected, assume_unique=True)):
        return f"vertex {strange.min()} in a unit although it is none of the {what}"
    if len(repeated := np.flatnonzero(counts > 1)):
        first = repeated[0]
        return f"vertex {found[first]} in {counts[first]} units; each must be in one"
    return None


@dataclass(frozen=True)
class FullGraphSampler(Part):
    """A sampler of full graphs: rounds of chunks that together cover every vertex once.

    A sampler may set at most one of ``staged``, ``in_pieces`` and ``layered``.
    """

    kind: ClassVar[PartKind] = "sampler"
    modes: ClassVar[frozenset[Mode]] = FULL_GRAPHS
    #: Whether every round has one unit, which a placement by features shares out over devices:
    #: stages of a pipeline of sparse and dense operations.
    staged: ClassVar[bool] = False
    #: Whether the in-edges of a chunk of destinations come in pieces, by chunks of sources: a
    #: partition of the adjacency matrix by rows and columns. Every destination is in one block of
    #: each of ``Chunks.pieces`` consecutive rounds. Each of its in-edges is in one of these blocks,
    #: and its own row is a source of all. Sums over the pieces are added up, and UPDATE follows the
    #: last piece. A device has a unit in every round of a chunk or in none.
    in_pieces: ClassVar[bool] = False
    #: Whether units have a block for each layer, one unit a device. A block reads rows that the
    #: block below does not compute from the devices that own them, as in a halo exchange. For the
    #: first layer these are all rows that its device does not hold. The destinations of every block
    #: begin with the device's own vertices, ascending. If blocks hold all dependencies of their
    #: vertices, only features are read from other devices.
    layered: ClassVar[bool] = False

    @abstractmethod
    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Cut the graph; each unit has one block and its destinations are unique.

        ``capacity`` is the memory that chunks have to fit, or None if it is unknown.
        """


#: The units of one epoch, and their order.
Sampler = MiniBatchSampler | FullGraphSampler
