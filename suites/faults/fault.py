"""A wrong part, the rows that host it, and the checks that must find it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gnnbench.parts import Part
from gnnbench.records import Mode, Parts, Strategy

P = TypeVar("P", bound=Part)
#: A strategy in one of its modes.
Row = tuple[str, Mode]

#: Shards with a halo, chunks from the host, mini-batches over several devices, and one device that
#: keeps everything.
SHARDS: Row = ("hongtu-im", "full-graph")
CHUNKS: Row = ("hongtu", "full-graph")
BATCHES: Row = ("hyscale", "mini-batch")
ALONE: Row = ("reference", "full-graph")
EVERYWHERE = (SHARDS, CHUNKS, BATCHES, ALONE)
#: Correct parts, by mode.
PLAIN: Mapping[Mode, Parts] = {
    "mini-batch": Parts("neighbour", "single", "vanilla", "host", "torch"),
    "full-graph": Parts("full-graph", "single", "none", "resident", "torch"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A part with one fault, and the checks that find it.

    ``compare`` finds it in the rows ``hosts``, with a sentence that has ``says`` in it; tests try
    the first row, with ``model``. The conformance checks ``checks`` find it, each with a sentence
    that its pattern matches. ``late`` faults are absent at first, or most of the time. Rows with
    ``refused`` faults are not trained at all. Faults that ``write`` change parameters or the
    optimiser between correct computations.
    """

    part: type[Part]
    hosts: tuple[Row, ...] = ()
    says: str = ""
    model: str = "gcn"
    checks: Mapping[str, str] = field(default_factory=dict)
    late: bool = False
    refused: bool = False
    write: bool = False


def make_part(base: type[P], name: str, summary: str, **members: Any) -> type[P]:
    """Return a part that differs from ``base`` by its members alone."""
    named = {"name": name, "summary": summary, "__doc__": summary, "__module__": __name__}
    metaclass: Any = type(base)
    made: type[P] = metaclass(name, (base,), {**named, **members})
    frozen: bool = base.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return dataclass(frozen=frozen)(made)


def offer(part: type[Part], mode: Mode = "mini-batch") -> Strategy:
    """Return a strategy with the part's name and plain parts otherwise."""
    parts = replace(PLAIN[mode], **{part.kind: part.name})
    return Strategy(part.name, part.summary, "gnnbench", {mode: parts})
