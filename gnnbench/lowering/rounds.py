"""HyScale-GNN's iteration: the stages of a round of mini-batches, and how rounds overlap.

A round is sampled, loaded, transferred and propagated (§III-A to §III-C, §IV-B, Figure 7). Each
stage is over when it has processed all of the round's mini-batches. Then the synchroniser averages
the gradients, and the placement receives the stage times.

The depth of feature prefetching decides how many stages work on different rounds at once. If n
rounds may be under way, round i enters when round i - n has been synchronised. Its split is decided
then, by the times of that round and of earlier ones alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gnnbench.lowering.feature_cache import Admission
from gnnbench.lowering.footprint import DEVICE_BUFFERS, ROUNDS_UNDER_WAY
from gnnbench.lowering.movement import SlotMovement
from gnnbench.program import Buffer, Take
from gnnbench.records import HostThreads, IndexArray, IntArray, Share, Unit

StageName = Literal["sample", "load", "transfer"]
#: An action on a round: it enters, passes its stages, and is observed.
Turn = Literal[
    "assign", "sample", "load", "transfer", "begin", "propagate", "synchronize", "observe"
]
#: By prefetch depth, the stages that work on different rounds at once, before propagation. With
#: one-stage prefetching, loading and transfer are one group; with two stages they are two.
PIPELINE: Mapping[int, tuple[tuple[StageName, ...], ...]] = {
    0: (("sample", "load", "transfer"),),
    1: (("sample",), ("load", "transfer")),
    2: (("sample",), ("load",), ("transfer",)),
}
#: By prefetch depth, how many rounds' rows may be on the host between loading and transfer.
STAGED: Mapping[int, int] = {0: 1, 1: 1, 2: ROUNDS_UNDER_WAY[2]}
#: The order of a round's sections in the trace; each also has a device index, or 0.
SAMPLE, LOAD, TRANSFER, EXCHANGE, PUSH, PROPAGATE, PUSH_BACK, SYNCHRONISE = range(8)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The overlap of different rounds.

    Each of ``groups`` runs its stages one round after the other, ``behind`` rounds after the first
    group. Propagation comes last, and at most ``under_way`` rounds are in progress. A device has
    ``device_buffers`` buffers for input rows. The host has ``staged`` buffers for a round's rows
    between loading and transfer.
    """

    groups: tuple[tuple[StageName, ...], ...]
    behind: tuple[int, ...]
    under_way: int
    staged: int
    device_buffers: int


def open_pipeline(prefetch: int, preparers: int = 0) -> Pipeline:
    """Return how rounds overlap with ``prefetch`` prefetch stages.

    With one stage, loading and transfer are one group; with two they are two. If each of
    ``preparers`` threads draws and loads a whole mini-batch, that number of rounds is prepared at
    once. Prefetching then transfers a round while the previous one is propagated.
    """
    buffers = DEVICE_BUFFERS[prefetch]
    if preparers:
        under_way = preparers + buffers
        groups: tuple[tuple[StageName, ...], ...] = (("sample", "load"), ("transfer",))
        return Pipeline(groups, (0, preparers), under_way, under_way, buffers)
    groups = PIPELINE[prefetch]
    under_way, staged = ROUNDS_UNDER_WAY[prefetch], STAGED[prefetch]
    return Pipeline(groups, tuple(range(len(groups))), under_way, staged, buffers)


def take_turns(
    num_rounds: int, pipeline: Pipeline, trainers: int
) -> Iterator[tuple[Turn, int, int]]:
    """Yield one action after the other, in the order of Figure 7.

    In a step of the figure the stages work on different rounds. An item is the action, the index of
    the round, and, for propagation, the device index of the trainer.
    """
    last = pipeline.under_way - 1
    for step in range(num_rounds + last):
        for behind, stages in zip(pipeline.behind, pipeline.groups, strict=True):
            index = step - behind
            if not 0 <= index < num_rounds:
                continue
            if not behind:
                yield "assign", index, 0
            for stage in stages:
                yield stage, index, 0
        trained = step - last
        if trained >= 0:
            yield "begin", trained, 0
            for slot in range(trainers):
                yield "propagate", trained, slot
            yield "synchronize", trained, 0
            yield "observe", trained, 0


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Input rows that the host gathers for the unit of ``slot``: the rows of the vertices ``ids``.

    ``transferred`` says that they go to an accelerator, packed.
    """

    slot: int
    ids: IntArray | IndexArray
    transferred: bool


@dataclass(slots=True, eq=False)
class RoundUnderWay:
    """A round and the results of its stages so far, by device index where trainers differ.

    ``drawn`` are written when a trainer's own mini-batch is drawn, if threads prepare it apart.
    ``cached`` has the positions of input rows in a trainer's cache, and ``admitted`` the rows that
    it admits. ``loaded`` are the input rows on the host until they are transferred. ``arrived`` are
    the buffers that a trainer reads first, and ``held`` what memories hold until it is done.
    ``stored`` counts the values of sparse input rows, and of the destinations among them. ``over``
    is written when every trainer has the new model. The other fields are seconds by stage;
    sampling's are by host name.
    """

    index: int
    num_seeds: int
    shares: dict[int, tuple[Share, IntArray]]
    threads: HostThreads
    over: Buffer
    sampled: Buffer = field(default_factory=lambda: Buffer("mini-batches"))
    drawn: dict[int, Buffer] = field(default_factory=dict)
    rows: Buffer = field(default_factory=lambda: Buffer("loaded rows"))
    gradients: Buffer = field(default_factory=lambda: Buffer("gradients of the weights"))
    units: list[Unit] = field(default_factory=list)
    moves: Mapping[int, SlotMovement] = field(default_factory=dict)
    stored: tuple[int, int] | None = None
    cached: dict[int, IndexArray | None] = field(default_factory=dict)
    admitted: dict[int, Admission] = field(default_factory=dict)
    loaded: dict[int, Take] = field(default_factory=dict)
    arrived: dict[int, Buffer] = field(default_factory=dict)
    held: dict[int, list[Take]] = field(default_factory=dict)
    sample_host_s: dict[str, float] = field(default_factory=dict)
    sample_accelerator_s: float = 0.0
    load_s: float = 0.0
    transfer_s: float = 0.0
    train_s: dict[int, float] = field(default_factory=dict)

    def list_times(self) -> list[float]:
        """Return the seconds of its stages, which a placement may use to rebalance."""
        own = (self.sample_accelerator_s, self.load_s, self.transfer_s)
        return [*own, *self.sample_host_s.values(), *self.train_s.values()]

    def set_times(self, times_s: Sequence[float]) -> None:
        """Set the seconds of its stages, in the order of ``list_times``."""
        self.sample_accelerator_s, self.load_s, self.transfer_s, *rest = times_s
        hosts = len(self.sample_host_s)
        self.sample_host_s = dict(zip(self.sample_host_s, rest[:hosts], strict=True))
        self.train_s = dict(zip(self.train_s, rest[hosts:], strict=True))

    def unit_of(self, slot: int) -> Unit | None:
        """Return the unit of a slot, or None."""
        for unit in self.units:
            if unit.slot == slot:
                return unit
        return None

    @property
    def topology(self) -> str:
        """The name in a device's memory of this round's blocks."""
        return f"mini-batch topology of round {self.index}"
