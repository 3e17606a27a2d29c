"""The base class of every part, and the records that all parts receive."""

from __future__ import annotations

import tempfile
from abc import ABC
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import nn

from gnnbench.errors import UsageError
from gnnbench.host.files import explain
from gnnbench.host.mapped import shelve
from gnnbench.machines.machine import Platform
from gnnbench.parts.layer_shape import LayerShape
from gnnbench.records import Dataset, Mode, PartKind, Sizes, Workload

MINI_BATCHES: frozenset[Mode] = frozenset({"mini-batch"})
FULL_GRAPHS: frozenset[Mode] = frozenset({"full-graph"})
BOTH_MODES: frozenset[Mode] = MINI_BATCHES | FULL_GRAPHS


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
    ``workload.model`` names. If there are ``sizes``, they stand for what the sampler would draw or
    cut, and the data set has no topology.
    """

    dataset: Dataset
    platform: Platform
    workload: Workload
    layers: tuple[LayerShape, ...]
    model: LayerClass | None = None
    sizes: Sizes | None = None

    @property
    def parameter_bytes(self) -> int:
        """The size of all weight matrices and biases together."""
        return sum(layer.parameters for layer in self.layers) * self.workload.itemsize

    def keep(self, made: Kept) -> Kept:
        """Return ``made``, which is kept for a run and grows with the number of edges.

        It is an array or a record with arrays. Its arrays move to disk where the graph is mapped
        from files, because it is large or several ranks share it. Else they stay in memory.

        Raises ``UsageError`` where the disk has no room.
        """
        if not self.dataset.mapped:
            return made
        try:
            return _shelve(made)
        except OSError as error:
            raise UsageError(
                f"{tempfile.gettempdir()} takes no more of what is made of {self.dataset.name}: "
                f"{explain(error)}; name another folder in the environment's TMPDIR."
            ) from error


class Part(ABC):
    """A part of a strategy: a name and a one-line summary; its fields are its options.

    ``modes`` are the training modes that it works in. The ``bundle`` that ``refuses`` and
    ``settle`` get is a ``gnnbench.parts.Bundle``, which is made of parts and so not known here.
    """

    kind: ClassVar[PartKind]
    name: ClassVar[str]
    summary: ClassVar[str]
    modes: ClassVar[frozenset[Mode]] = BOTH_MODES

    def refuses(self, bundle: Any, setting: Setting) -> str | None:
        """Return a sentence on why this part cannot work with the others; None if it can."""
        return None

    def settle(self, bundle: Any, setting: Setting) -> tuple[Part, tuple[str, ...]]:
        """Return this part with its open options decided, and sentences for the report.

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
        """Return, after a run, the ideas of this part that had no effect in it.

        Each names the idea and the figure that shows it, such as ``"the cache (no row was found in
        it)"``.
        """
        return ()


class Session:
    """The state that a part keeps for one run.

    Options of a part do not change; state that changes in a run is in the session that the part
    opens for it.
    """

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the report about what was planned or chosen."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """Return, after a run, the ideas of the part that had no effect in it.

        Each names the idea and the figure that shows it, such as ``"the cache (no row was found in
        it)"``.
        """
        return ()
