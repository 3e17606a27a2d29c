"""What others have published: measurements of training and of kernels, a file a source.

A file of ``cells/`` says where its measurements were taken from, and has a table ``[[cell]]`` for
each: the number as the source quotes it, in an unprefixed unit; the platform that describes the
machine; and, in one further table, what was computed, which is all that a prediction is made from.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gnnbench.errors import UsageError
from gnnbench.host.toml import read_toml
from gnnbench.records import MachineKind, Stage

FOLDER = Path(__file__).with_name("cells")

Text = Annotated[str, Field(min_length=1)]
Size = Annotated[int, Field(gt=0)]
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Aggregation(_Table):
    """AGGREGATE by itself: rows of ``width`` values summed over ``edges`` into ``rows``.

    ``operations`` is how many the source counts for it, where it has a rate of those, and
    ``weighted`` says that an edge has a value.
    """

    graph: Text
    rows: Size
    edges: Size
    width: Size
    weighted: bool = False
    operations: Annotated[int, Field(ge=0)] = 0


class LayerForward(_Table):
    """A layer's forward pass over a whole graph, of the widths ``dims``.

    ``degrees`` says that it counts the degrees of its vertices, where ``model`` does not.
    """

    graph: Text
    model: Text
    vertices: Size
    edges: Size
    dims: Annotated[tuple[Size, ...], Field(min_length=2, max_length=2)]
    degrees: bool = False


class FullGraphEpoch(_Table):
    """An epoch over a whole graph of the widths f^0 .. f^L.

    A ``system`` partitions it over ``devices``, each of which reads the rows of others: all of them
    where it broadcasts, or as many as the ``replication`` factor alpha says, which counts the
    copies of a vertex and the vertex. ``scale`` is the share of the graph that is gone through, on
    as large a share of the machine's memories, and the time is divided by it.
    """

    graph: Text
    model: Text
    dims: Annotated[tuple[Size, ...], Field(min_length=2)]
    vertices: Size
    edges: Size
    system: Literal["library", "sancus", "distgnn"] = "library"
    devices: Size = 1
    replication: Annotated[float, Field(ge=1)] = 1.0
    scale: Annotated[float, Field(gt=0, le=1)] = 1.0


class MiniBatchEpoch(_Table):
    """An epoch of mini-batches of ``seeds`` training vertices for each of the ``devices``.

    0 devices are the host. ``fanouts`` go from the seeds outwards. ``inputs`` is |V^0| where it is
    published, and else 0. Rows come by the ``library``'s ``loader``, or by a program's own loader.
    That one picks them into ``pinned`` memory, or accelerators read them ``in-place``. Its workers
    start in every epoch or are ``persistent``. ``workers`` of the host's threads sample, 0 meaning
    all, or the ``devices`` do. ``prefetch`` is the number of stages that work ahead, as in
    ``Communication.prefetch``. ``batches`` is the number of measured mini-batches, and 0 for an
    epoch.

    If ``system`` is salient, each device has ``workers`` threads that prepare a whole mini-batch
    each. If nodes are alike, the platform has ``described`` of the devices, and a round is computed
    for these alone; 0 is all devices.
    """

    graph: Text
    model: Text
    dims: Annotated[tuple[Size, ...], Field(min_length=2)]
    fanouts: Sizes
    seeds: Size
    train: Size
    devices: Annotated[int, Field(ge=0)] = 1
    workers: Annotated[int, Field(ge=0)] = 0
    sampled_by: Literal["host", "devices"] = "host"
    prefetch: Literal[0, 1, 2] = 0
    inputs: Annotated[int, Field(ge=0)] = 0
    loader: Literal["library", "pinned", "persistent", "in-place"] = "library"
    batches: Annotated[int, Field(ge=0)] = 0
    system: Literal["library", "salient"] = "library"
    described: Annotated[int, Field(ge=0)] = 0


Task = Aggregation | LayerForward | FullGraphEpoch | MiniBatchEpoch


class PublishedCell(_Table):
    """A measurement, and what it is of; see ``LedgerEntry`` for the fields that both have.

    ``kernel`` is the part that stands for the library's aggregation. ``stages`` are those that the
    number is the sum of; none is all of an epoch. ``regularisers`` is how many modules there are
    between two layers besides ReLU: dropout, batch normalisation.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    library: Text
    version: Text
    kernel: Literal["torch", "pyg", "pyg-messages", "dgl", "native"]
    machine: Text
    kind: MachineKind
    what: Text
    measured: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: Literal["s", "B", "edges/s", "FLOP/s"]
    quote: Text
    doubts: str = ""
    inferred: tuple[Text, ...] = ()
    fitted_on: tuple[Text, ...] = ()
    stages: tuple[Stage, ...] = ()
    regularisers: Annotated[int, Field(ge=0)] = 0
    aggregation: Aggregation | None = None
    layer: LayerForward | None = None
    full_graph: FullGraphEpoch | None = None
    mini_batch: MiniBatchEpoch | None = None

    @model_validator(mode="after")
    def _check(self) -> PublishedCell:
        tasks = (self.aggregation, self.layer, self.full_graph, self.mini_batch)
        given = [task for task in tasks if task is not None]
        if len(given) != 1:
            raise ValueError(
                f"cell {self.id} says {len(given)} times what was computed; give it one of "
                f"aggregation, layer, full_graph and mini_batch"
            )
        if self.stages and self.mini_batch is None:
            raise ValueError(f"cell {self.id} is of stages, which mini-batches alone have")
        counted = self.aggregation is not None and self.aggregation.operations > 0
        if (self.unit == "FLOP/s") != counted or self.unit not in ("s", "FLOP/s"):
            raise ValueError(
                f"cell {self.id} is in {self.unit}; a prediction is in seconds, or of an "
                f"aggregation whose operations are counted in FLOP/s"
            )
        return self

    @property
    def task(self) -> Task:
        """What was computed."""
        task = self.aggregation or self.layer or self.full_graph or self.mini_batch
        if task is None:
            raise ValueError(f"cell {self.id} does not say what was computed")
        return task


class PublishedSource(_Table):
    """A file of cells; ``about`` says what holds for all of them."""

    source: Text
    about: str = ""
    cell: Annotated[tuple[PublishedCell, ...], Field(min_length=1)]


def read_source(path: Path) -> PublishedSource:
    """Read the measurements of one file. Raises ``UsageError`` for any other document."""
    try:
        return PublishedSource.model_validate(read_toml(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {place}: {first['msg']}.") from error


@cache
def read_sources() -> tuple[PublishedSource, ...]:
    """Read all files, by their names."""
    return tuple(read_source(path) for path in sorted(FOLDER.glob("*.toml")))
