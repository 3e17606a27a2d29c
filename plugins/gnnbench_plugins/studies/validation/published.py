"""Published measurements of training and of kernels, a file for each source.

A file of ``cells/`` names its source and has a table ``[[cell]]`` for each measurement. The table
``defaults`` holds for every cell of the file that does not say otherwise. A cell has the number in
an unprefixed unit, its quote, the platform that describes the machine, and what was computed. A
prediction is made from the last alone.
"""

from __future__ import annotations

from collections.abc import Mapping
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
Count = Annotated[int, Field(ge=0)]
Widths = Annotated[tuple[Size, ...], Field(min_length=2)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# --------------------------------------------------------------------------- what was computed


class Aggregation(_Table):
    """AGGREGATE by itself: rows of ``width`` values summed over ``edges`` into ``rows``.

    ``operations`` is how many the source counts for it, where it has a rate of those, and
    ``weighted`` says that an edge has a value.
    """

    of: Literal["aggregation"]
    graph: Text
    rows: Size
    edges: Size
    width: Size
    weighted: bool = False
    operations: Count = 0


class LayerForward(_Table):
    """A layer's forward pass over a whole graph, of the widths ``dims``.

    ``degrees`` says that it counts those of its vertices, where ``model`` does not.
    """

    of: Literal["layer"]
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
    as large a share of the machine's memories, and the time is divided by it. ``regularisers``
    counts the modules between two layers besides ReLU: dropout, batch normalisation. The number is
    of ``epochs`` of them.
    """

    of: Literal["full-graph"] = "full-graph"
    graph: Text
    model: Text
    dims: Widths
    vertices: Size
    edges: Size
    system: Literal["library", "sancus", "distgnn"] = "library"
    devices: Size = 1
    replication: Annotated[float, Field(ge=1)] = 1.0
    scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    regularisers: Count = 0
    epochs: Size = 1


class MiniBatches(_Table):
    """Mini-batches of ``seeds`` of the ``train`` training vertices for each device.

    ``fanouts`` go from the seeds outwards. ``inputs`` is |V^0| where that is published, and else 0.
    ``count`` is how many mini-batches the number is of, and 0 an epoch.
    """

    fanouts: Sizes
    seeds: Size
    train: Size
    inputs: Count = 0
    count: Count = 0


class Loader(_Table):
    """How mini-batches reach a device.

    Rows come by the ``library``'s loader or by a program's own. A program picks them into
    ``pinned`` memory. Accelerators may read them ``in-place``, or hold all of them (``device``).
    ``workers`` of each device sample, 0 meaning all of the host's threads, or the devices do.
    Workers start in every epoch unless they are ``persistent``. ``prefetch`` is how many stages
    work ahead, as in ``Communication.prefetch``.
    """

    rows: Literal["library", "pinned", "in-place", "device"] = "library"
    workers: Count = 0
    persistent: bool = False
    sampled_by: Literal["host", "devices"] = "host"
    prefetch: Literal[0, 1, 2] = 0


class MiniBatchEpoch(_Table):
    """An epoch of mini-batches on ``devices`` accelerators; 0 of them is the host.

    ``stages`` are those that the number is the sum of; none is all of an epoch. ``regularisers`` is
    as in :class:`FullGraphEpoch`. A loader of the ``system`` salient has threads that prepare a
    whole mini-batch each, and distdgl trains the seeds of its partitions. Where nodes are alike,
    ``described`` is how many of the devices the platform has, which stand for all with their share
    of the training vertices; 0 is all of them.
    """

    of: Literal["mini-batch"] = "mini-batch"
    graph: Text
    model: Text
    dims: Widths
    batches: MiniBatches
    loader: Loader = Loader()
    devices: Count = 1
    system: Literal["library", "salient", "distdgl"] = "library"
    described: Count = 0
    stages: tuple[Stage, ...] = ()
    regularisers: Count = 0


Task = Annotated[
    Aggregation | LayerForward | FullGraphEpoch | MiniBatchEpoch, Field(discriminator="of")
]

# --------------------------------------------------------------------------- cells


class Stack(_Table):
    """The software that was measured; ``kernel`` is the part that stands for its aggregation.

    ``dgl-sums-first`` is DGL before 0.7, whose SAGEConv always aggregates before it multiplies.
    """

    library: Text
    version: Text
    kernel: Literal["torch", "pyg", "pyg-messages", "dgl", "dgl-sums-first"]


class Reading(_Table):
    """The parts of a measurement that its source leaves open.

    ``doubts`` are uncertainties, and ``inferred`` the facts that are not in the source. ``chosen``
    are readings that were chosen with the measurement in view, or may have been. Such a cell proves
    as little as a fitted one.
    """

    doubts: str = ""
    inferred: tuple[Text, ...] = ()
    chosen: tuple[Text, ...] = ()


class PublishedCell(_Table):
    """A measurement, and what it is of.

    Cells of one ``group`` are not independent: multiples, sums or neighbours of each other, or the
    same quantity measured again.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    group: Text
    machine: Text
    kind: MachineKind
    what: Text
    measured: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: Literal["s", "FLOP/s"]
    quote: Text
    stack: Stack
    reading: Reading = Reading()
    task: Task

    @model_validator(mode="after")
    def _check(self) -> PublishedCell:
        counted = isinstance(self.task, Aggregation) and self.task.operations > 0
        if (self.unit == "FLOP/s") != counted:
            raise ValueError(
                f"cell {self.id} is in {self.unit}; a prediction is in seconds, or of an "
                f"aggregation whose operations are counted in FLOP/s"
            )
        return self


class PublishedSource(_Table):
    """A file of cells; ``about`` holds for all of them.

    ``omitted`` says which rows of a used table are not here, and why.
    """

    source: Text
    about: str = ""
    omitted: tuple[Text, ...] = ()
    cell: Annotated[tuple[PublishedCell, ...], Field(min_length=1)]


def merge(defaults: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return ``given`` with what it lacks from ``defaults``, table by table."""
    merged = dict(defaults)
    for key, value in given.items():
        base = merged.get(key)
        both = isinstance(base, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(base, value) if both else value  # type: ignore[arg-type]
    return merged


def read_source(path: Path) -> PublishedSource:
    """Return the measurements of one file; raise ``UsageError`` where it says something else."""
    table = dict(read_toml(path))
    defaults, cells = table.pop("defaults", {}), table.get("cell", ())
    if isinstance(defaults, Mapping) and isinstance(cells, list):
        table["cell"] = [merge(defaults, cell) for cell in cells if isinstance(cell, Mapping)]
    try:
        return PublishedSource.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {place}: {first['msg']}.") from error


@cache
def read_sources() -> tuple[PublishedSource, ...]:
    """Return all files, by their names."""
    return tuple(read_source(path) for path in sorted(FOLDER.glob("*.toml")))
