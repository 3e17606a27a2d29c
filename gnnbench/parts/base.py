"""What every part has, and what all of them are handed."""

from __future__ import annotations

import tempfile
from abc import ABC
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import nn

from gnnbench.errors import UsageError
from gnnbench.files import explain
from gnnbench.mapped import shelve
from gnnbench.platforms.machine import Platform
from gnnbench.records import Dataset, Mode, PartKind, Workload

if TYPE_CHECKING:
    from gnnbench.parts.bundle import Bundle


BOTH_MODES: frozenset[Mode] = frozenset({"mini-batch", "full-graph"})


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A layer's sizes: f^{l-1} in, f^l out, the width of what aggregation yields, and whether that
    width is all the backward pass needs (HongTu §4.2: aggregates of GCN, SAGE and GIN can be
    cached; attention has O(|E|) intermediates and is recomputed).

    ``edge_features`` is how many values of the workload's dtype the backward pass needs for every
    edge of a block besides: what autograd saves of AGGREGATE's ``(E,)`` and ``(E, f)`` tensors,
    which lie on the device from the forward pass of a chunk to the end of its backward pass.
    Integer indices and what is freed within a pass are not in it. 0 where ``cacheable``.
    ``loop_features`` is the same for the edge that AGGREGATE adds from every destination to itself;
    0 where it adds none. ``message_features`` is the width of rows that AGGREGATE adds up by
    trained weights: those that a kernel without a fused sum writes for each edge, of which
    :meth:`Kernel.shape_of` leaves none for others.

    ``featurewise`` says that AGGREGATE treats every feature by itself, so that a range of columns
    can be aggregated without the others; its output is then one or more matrices of the input's
    width, side by side. ``product_features`` is the width of the matrix product that UPDATE begins
    with, to which every column of the aggregate adds its part; 0 where it begins otherwise.

    ``source_macs`` and ``destination_macs`` are the multiply-accumulates for each source and each
    destination of a layer that multiplies by W before it aggregates; 0 in others. Of such a layer
    an edge reads ``products_read`` rows of products.

    ``hidden_features`` is the width of what is between two products of UPDATE; 0 where there is
    one. ``source_factors`` and ``destination_factors`` are how many constants of a block's every
    source and destination AGGREGATE has, as GCN has 1/sqrt(D(v)+1), and ``edge_factors`` those of
    its every edge: 1 where the graph's weights are taken, or those of a sampler that scales edges.
    ``takes_scales`` says that AGGREGATE is a sum or mean over neighbours that such a one may scale.
    ``takes_sparse`` says that AGGREGATE begins with W times its input rows, which may be sparse.
    """

    in_features: int
    out_features: int
    aggregate_features: int
    parameters: int
    macs_per_row: int
    cacheable: bool
    edge_features: int = 0
    loop_features: int = 0
    message_features: int = 0
    featurewise: bool = False
    product_features: int = 0
    source_macs: int = 0
    destination_macs: int = 0
    products_read: int = 1
    hidden_features: int = 0
    source_factors: int = 0
    destination_factors: int = 0
    edge_factors: int = 0
    takes_scales: bool = False
    takes_sparse: bool = False

    @property
    def summed_features(self) -> int:
        """Values that an edge reads: of the products, where they come first."""
        if self.source_macs:
            return self.products_read * self.out_features
        return self.in_features

    @property
    def narrow_side(self) -> int:
        """The narrower side of the weights, by which products have rates."""
        return min(self.in_features, self.out_features)


class LayerClass(Protocol):
    """What a model is made of: a class of layers, called once for each (``gnnbench.models``).

    ``name`` stands in ``--model``, ``title`` in the results; ``learning_rate`` is Adam's unless the
    command line says another. ``activation`` is False for the last layer of a model; parameters are
    drawn from ``generator``.
    """

    name: str
    title: str
    learning_rate: float

    def __call__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> nn.Module: ...


Kept = TypeVar("Kept")
#: Smaller arrays stay in memory.
SHELVED_BYTES = 1 << 16


def _shelve(made: Kept) -> Kept:
    """The same with its arrays on disk, those of records and tuples in it too."""
    if isinstance(made, np.ndarray):
        # A small one is copied, since it may be a piece of a large one.
        return cast(Kept, shelve(made) if made.nbytes >= SHELVED_BYTES else made.copy())
    if isinstance(made, tuple) and type(made) is tuple:
        return cast(Kept, tuple(map(_shelve, made)))
    if is_dataclass(made) and not isinstance(made, type):
        held = {each.name: getattr(made, each.name) for each in fields(made)}
        return cast(Kept, replace(made, **{name: _shelve(each) for name, each in held.items()}))
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The fixed facts of one run, handed to every part's ``begin``.

    ``model`` is the class of the model's layers; None is the bundled one that
    ``workload.model`` names.
    """

    dataset: Dataset
    platform: Platform
    workload: Workload
    layers: tuple[LayerShape, ...]
    model: LayerClass | None = None

    @property
    def parameter_bytes(self) -> int:
        """Size of all weight matrices and biases together."""
        return sum(layer.parameters for layer in self.layers) * self.workload.itemsize

    def keep(self, made: Kept) -> Kept:
        """An array that is kept for a run and grows with the graph's edges, or a record with such
        arrays: on disk where the graph is, else as it is.

        Raises ``UsageError`` where the disk has no room.
        """
        if not self.dataset.folder:
            return made
        try:
            return _shelve(made)
        except OSError as error:
            raise UsageError(
                f"{tempfile.gettempdir()} takes no more of what is made of {self.dataset.folder}: "
                f"{explain(error)}; name another folder in the environment's TMPDIR."
            ) from error


class Part(ABC):
    """What every part has: a name and one line about it. Its fields are its options."""

    kind: ClassVar[PartKind]
    name: ClassVar[str]
    summary: ClassVar[str]

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        """Why this part cannot work with the others here, as a sentence; None when it can."""
        return None

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """This part with what its options leave open and the other parts have a say in, and
        sentences for the reader of the result about what was chosen.

        Called once before ``begin``, where nothing is refused; parts before this one in
        ``Bundle.all`` have settled. What an option says stays.
        """
        return self, ()

    def begin(self, setting: Setting) -> None:  # noqa: B027 - an optional hook
        """Called once before a run; keep what later calls need."""

    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result: what was planned or chosen."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """After a run, the ideas of this part that did nothing in it, each by name with the figure
        that shows it, such as ``"the cache (no row was found in it)"``."""
        return ()


class OfMiniBatches(Part):
    """A kind of part that works on mini-batches."""


class OfFullGraphs(Part):
    """A kind of part that works on full graphs."""


def modes_of(part: type[Part]) -> frozenset[Mode]:
    """The modes that a part works in, by its kinds; both where they leave it open."""
    of_kinds: dict[Mode, type[Part]] = {"mini-batch": OfMiniBatches, "full-graph": OfFullGraphs}
    return frozenset(m for m, kind in of_kinds.items() if issubclass(part, kind)) or BOTH_MODES


class Session:
    """What a part keeps of one run. A part has options, which stay as they are; what changes in a
    run is in the session that the part opens for it."""

    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader of the result: what was planned or chosen."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """After a run, the ideas of the part that did nothing in it, each by name with the figure
        that shows it, such as ``"the cache (no row was found in it)"``."""
        return ()
