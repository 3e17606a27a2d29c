"""The base class of every part, and the records that all parts receive."""

from __future__ import annotations

import tempfile
from abc import ABC
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import nn

from gnnbench.errors import UsageError
from gnnbench.host.files import explain
from gnnbench.host.mapped import shelve
from gnnbench.machines.machine import Platform
from gnnbench.records import Dataset, Mode, PartKind, Workload

if TYPE_CHECKING:
    from gnnbench.parts.bundle import Bundle


BOTH_MODES: frozenset[Mode] = frozenset({"mini-batch", "full-graph"})


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The sizes of a layer: f^{l-1} in, f^l out, and ``aggregate_features``, the width of
    AGGREGATE's output. ``cacheable`` says that the backward pass needs no other intermediates.
    HongTu §4.2 caches aggregates of GCN, SAGE and GIN; attention has O(|E|) intermediates and is
    recomputed.

    ``edge_features`` is the number of further values, in the workload's dtype, that the backward
    pass needs for every edge of a block; 0 where ``cacheable``. They are what autograd saves of
    AGGREGATE's ``(E,)`` and ``(E, f)`` tensors. These tensors stay on the device from a chunk's
    forward pass to the end of its backward pass. Integer indices and tensors freed within a pass
    are not counted. ``loop_features`` is that number for the self-loop that AGGREGATE adds to every
    destination; 0 where it adds none. ``message_features`` is the width of the rows that AGGREGATE
    sums with trained weights. A kernel without a fused sum writes these rows for each edge; for
    other kernels :meth:`Kernel.shape_of` sets the width to 0.

    ``featurewise`` says that AGGREGATE treats features independently, so a range of columns can be
    aggregated without the others. Its output is then one or more matrices of the input's width,
    side by side. ``product_features`` is the width of the matrix product that UPDATE begins with,
    to which every column of the aggregate contributes; 0 where UPDATE begins otherwise.

    ``source_macs`` and ``destination_macs`` are the multiply-accumulates for each source and each
    destination of a layer that multiplies by W before it aggregates; 0 in other layers. In such a
    layer an edge reads ``products_read`` rows of products.

    ``hidden_features`` is the width between two products of UPDATE; 0 where there is one product.
    ``source_factors`` and ``destination_factors`` count AGGREGATE's constants for every source and
    every destination of a block, such as GCN's 1/sqrt(D(v)+1). ``edge_factors`` counts the
    constants of every edge: 1 where the graph's weights, or those of a sampler that scales edges,
    are used. ``takes_scales`` says that AGGREGATE is a sum or mean over neighbours that such a
    sampler may scale. ``takes_sparse`` says that AGGREGATE begins with W times its input rows,
    which may be sparse.
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
        """The number of values that an edge reads; they are products where the layer multiplies
        first."""
        if self.source_macs:
            return self.products_read * self.out_features
        return self.in_features

    @property
    def narrow_side(self) -> int:
        """The narrower side of the weights; rates of products are tabulated by it."""
        return min(self.in_features, self.out_features)


class LayerClass(Protocol):
    """A class of layers that a model is made of, called once for each layer (``gnnbench.models``).

    ``name`` is the value of ``--model``, ``title`` stands in the results. ``learning_rate`` is
    Adam's default, which the command line may override. ``activation`` is False for a model's last
    layer. Parameters are drawn from ``generator``.
    """

    name: str
    title: str
    learning_rate: float

    def __call__(
        self, in_features: int, out_features: int, *, activation: bool, generator: torch.Generator
    ) -> nn.Module:
        """Make a layer; ``generator`` draws its parameters."""


Kept = TypeVar("Kept")
#: Arrays of fewer bytes stay in memory.
SHELVED_BYTES = 1 << 16


def _shelve(made: Kept) -> Kept:
    """Return the object with its arrays on disk, including arrays inside records and tuples."""
    if isinstance(made, np.ndarray):
        # Copy a small array, since it may be a view into a large one.
        return cast(Kept, shelve(made) if made.nbytes >= SHELVED_BYTES else made.copy())
    if isinstance(made, tuple) and type(made) is tuple:
        return cast(Kept, tuple(map(_shelve, made)))
    if is_dataclass(made) and not isinstance(made, type):
        held = {each.name: getattr(made, each.name) for each in fields(made)}
        return cast(Kept, replace(made, **{name: _shelve(each) for name, each in held.items()}))
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The fixed facts of one run, passed to every part's ``begin``.

    ``model`` is the class of the model's layers; None selects the bundled model that
    ``workload.model`` names.
    """

    dataset: Dataset
    platform: Platform
    workload: Workload
    layers: tuple[LayerShape, ...]
    model: LayerClass | None = None

    @property
    def parameter_bytes(self) -> int:
        """The size of all weight matrices and biases together."""
        return sum(layer.parameters for layer in self.layers) * self.workload.itemsize

    def keep(self, made: Kept) -> Kept:
        """Return ``made``, an array or a record with arrays that is kept for a run and grows with
        the number of edges. Its arrays move to disk where the graph is on disk, else they stay in
        memory.

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
    """A part of a strategy: a name and a one-line summary; its fields are its options."""

    kind: ClassVar[PartKind]
    name: ClassVar[str]
    summary: ClassVar[str]

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        """Return one sentence on why this part cannot work with the others here; None when it
        can."""
        return None

    def settle(self, bundle: Bundle, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """Return this part with its open options decided, and sentences about the choices for the
        report.

        The other parts may influence the choice. The harness calls this once before ``begin``,
        after all parts accepted the run. Parts before this one in ``Bundle.all`` have settled.
        Options that the user set do not change.
        """
        return self, ()

    def begin(self, setting: Setting) -> None:  # noqa: B027 - an optional hook
        """Prepare a run and keep what later calls need; called once before the run."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the report about what was planned or chosen."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """Return, after a run, the ideas of this part that had no effect in it. Each names the idea
        and the figure that shows it, such as ``"the cache (no row was found in it)"``."""
        return ()


class OfMiniBatches(Part):
    """A kind of part that works on mini-batches."""


class OfFullGraphs(Part):
    """A kind of part that works on full graphs."""


def modes_of(part: type[Part]) -> frozenset[Mode]:
    """Return the modes that a part works in, by its kinds; both where its kinds do not restrict
    it."""
    of_kinds: dict[Mode, type[Part]] = {"mini-batch": OfMiniBatches, "full-graph": OfFullGraphs}
    return frozenset(m for m, kind in of_kinds.items() if issubclass(part, kind)) or BOTH_MODES


class Session:
    """The state that a part keeps for one run. Options of a part do not change; state that changes
    in a run is in the session that the part opens for it."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the report about what was planned or chosen."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """Return, after a run, the ideas of the part that had no effect in it. Each names the idea
        and the figure that shows it, such as ``"the cache (no row was found in it)"``."""
        return ()
