"""Samplers: which units make one epoch, in which order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from gnnbench.costs import Library
from gnnbench.parts.base import OfFullGraphs, OfMiniBatches, Part, Setting
from gnnbench.parts.options import option_fields
from gnnbench.records import Block, FloatArray, IntArray, Loading, PartKind, Round, Workload

#: min(fan-out, degree) different in-neighbours of every destination, each set of them as likely as
#: any other: the law of GraphSAGE's neighbour sampling, ``MiniBatchSampler.law``.
UNIFORM = "uniform without replacement"
#: What a row's sampling has behind its law where its mini-batches have the same seeds again.
UNSHUFFLED = "seeds not shuffled"


class Sampler(Part):
    """Which units make one epoch, in which order. Subclass one of the two kinds below."""

    kind: ClassVar[PartKind] = "sampler"


@dataclass
class MiniBatchSampler(OfMiniBatches, Sampler):
    """Rounds of seeds, and the sampled blocks below them."""

    @abstractmethod
    def rounds(self, epoch: int) -> Sequence[IntArray]:
        """The seeds of every round of an epoch (int64, each training vertex once)."""

    @abstractmethod
    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[Block, ...]:
        """L blocks, input layer first, whose last destinations are ``seeds`` in their order.

        The neighbours drawn for a vertex must depend on (seed, epoch, layer, vertex) alone, so
        that splitting a round over trainers does not change them, or else ``split_invariant``
        must be False; then the sampler works with one trainer only.
        """

    split_invariant: ClassVar[bool] = True
    #: What drawing costs; the platform's rate where its library says nothing.
    library: ClassVar[Library] = Library()
    #: How the loader that belongs to it brings rows to accelerators: ``staged`` by its framework's
    #: ``index_select``, or otherwise.
    loading: ClassVar[Loading] = "blocks"
    #: False for a sampler that has no use for the workload's fan-outs; what it draws is then the
    #: same with any.
    heeds_fanouts: ClassVar[bool] = True
    #: The distribution that it draws from, ``UNIFORM`` or a name of its own: rows are ranked only
    #: beside rows of the same law. Empty is a law that no other sampler has. ``UNIFORM`` is held
    #: against what is drawn (``gnnbench plugins check``); a name of its own is taken at its word.
    law: ClassVar[str] = ""

    @property
    def scales_edges(self) -> bool:
        """Whether models multiply the edges that it draws by its ``edge_scales``."""
        return False

    def edge_scales(self, layer: int) -> FloatArray | None:
        """By what AGGREGATE of a layer, from 0 at the input, multiplies the graph's in-edges where
        they are in a block, ``(E,)``; None of a sampler that does not scale edges. It has begun.

        One over how likely an edge comes with its destination, so that sums over neighbours are on
        average those of the whole graph. A mean is the sum over the full graph's degree then.
        """
        return None

    def preparers(self, cores: int) -> int:
        """How many threads of the host prepare mini-batches for a trainer, where each draws a whole
        one and picks its rows, while others do so for later rounds; ``cores`` is how many the host
        has for each of its trainers.

        0, the default, has all of the host's threads share the work of each mini-batch.
        """
        return 0

    def sampling(self, workload: Workload) -> str:
        """What is drawn, as a row states it and as rows are told apart by: the law, and the
        fan-outs where it heeds them."""
        law = self.law or f"sampler {self.name}{self._chosen_options()}"
        if not self.heeds_fanouts:
            return law
        return f"{law}, fan-outs {', '.join(map(str, workload.fanouts))}"

    def _chosen_options(self) -> str:
        """The options that are not at their defaults, since a law of its own may rest on them."""
        chosen = [
            f"{name}={getattr(self, name)}"
            for name, declared in option_fields(type(self)).items()
            if getattr(self, name) != declared.default
        ]
        return f" ({', '.join(chosen)})" if chosen else ""


class DeviceCapacity(Protocol):
    """What the trainers' memories can take, told by the engine, which does the accounting."""

    @property
    def device_bytes(self) -> int:
        """The capacity of the smallest."""

    def holds(self, rounds: Sequence[Round], owner: IntArray, pieces: int = 1) -> bool:
        """Whether every trainer can work through its units of ``rounds``; ``owner`` and ``pieces``
        are those of ``Chunks``."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """A full graph as it is cut for some devices: the ``rounds`` of one epoch, and ``owner``, the
    slot that each vertex belongs to, int64 ``(V,)``.

    ``kept`` are by slot vertices of others, int64, whose features its device has from before the
    first epoch, so that it does not read them in each; of a :class:`LayeredSampler`. ``pieces`` are
    of how many rounds, one after the other, the units of a slot have the same destinations; of a
    :class:`GridSampler`.

    ``notes`` are sentences for the reader of the result.
    """

    rounds: tuple[Round, ...]
    owner: IntArray
    notes: tuple[str, ...] = ()
    kept: Mapping[int, IntArray] = field(default_factory=dict)
    pieces: int = 1


@dataclass(frozen=True)
class FullGraphSampler(OfFullGraphs, Sampler):
    """Rounds of chunks that together cover every vertex once."""

    @abstractmethod
    def chunks(
        self, setting: Setting, num_slots: int, capacity: DeviceCapacity | None = None
    ) -> Chunks:
        """Cut the graph; each unit has one block and its destinations are unique.

        ``capacity`` is what chunks have to fit in, None where that is not known.
        """


class StagedSampler(FullGraphSampler):
    """Rounds of one unit each, which a placement that shards by features shares out over devices:
    stages of a pipeline of sparse and dense operations."""


@dataclass(frozen=True)
class GridSampler(FullGraphSampler):
    """Chunks of destinations whose in-edges come in pieces, by chunks of sources: a partition of
    the adjacency matrix by rows and columns.

    Every destination is in one block of each of ``Chunks.pieces`` rounds, which follow each other:
    each of its in-edges is in one of them, and its own row is a source of all. Sums over the pieces
    are added up, and UPDATE follows the last. A slot has a unit in every round or in none of the
    rounds of a chunk.
    """


@dataclass(frozen=True)
class LayeredSampler(FullGraphSampler):
    """Units with a block for each layer, one a device.

    What a block reads and the one below it does not compute is read of the devices that own it, as
    halos are; of the first layer's rows, all that its device does not have. The destinations of
    every block begin with the vertices of the device, ascending. Where blocks have all that their
    vertices depend on, nothing but features is read of others."""
