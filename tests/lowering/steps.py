"""The steps of small runs, and what a wait says of two of them; ``test_waits`` has the tests."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.machines.tables import replace_fields
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Span
from gnnbench.run import train
from tests.systems.training import registry


@dataclass(frozen=True)
class Case:
    """A strategy on the machine of the conformance checks; its last epoch is looked at.

    ``options`` are written ``part.option=value``, ``swaps`` ``part=name``. ``late`` says that rows
    between devices are read in a later epoch, so that nothing waits for them.
    """

    strategy: str
    options: tuple[str, ...] = ()
    swaps: tuple[str, ...] = ()
    model: str = "gcn"
    layers: int = 2
    accelerators: int = 3
    kind: str = "gpu"
    epochs: int = 1
    mode: str | None = None
    batch_size: int = 8
    pipelined: bool = False
    late: bool = False

    def __str__(self) -> str:
        words = (self.strategy, self.model, self.kind, self.mode or "", *self.swaps, *self.options)
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Step:
    """A span, and what its wait depends on.

    A device asks for rows of another (``pull``) or adds gradients to its (``push``); within one
    device's memory they are called the same. ``source`` and ``target`` are the ends of a transfer,
    ``device`` whose unit it is; for work on the host, that of the step listed before. ``turn``
    counts the rounds of layers from the epoch's begin, and is the round of mini-batches.
    ``ordinal`` counts the steps of the same label before it, ``sums`` those of P3's partial
    products, and ``previous`` is the label before it. ``shares`` says whether devices of this run
    read mini-batches' rows out of each other's buffers, ``ring`` how many of them average, and
    ``preparers`` how many threads prepare a whole mini-batch each for a device. Full graphs come in
    so many ``pieces`` a chunk, and rows that are streamed have so many ``places``; ``arrived`` are
    the labels of what crosses to the device for the unit of one layer and way.
    """

    index: int
    label: str
    layer: int
    round: int
    backward: bool
    turn: int
    device: str
    source: str
    target: str
    pipelined: bool
    delayed: bool
    late: bool
    prefetch: int
    ordinal: int
    previous: str
    sums: int
    shares: bool
    ring: int
    preparers: int
    pieces: int
    places: int
    resources: frozenset[str]
    after: tuple[int, ...]
    arrived: frozenset[str] = frozenset()


def find_ends(span: Span, device: str) -> tuple[str, str, str]:
    """Source, target and device of a span that is listed after one of ``device``."""
    lanes = [lane.split(">") for lane in span.resources if ">" in lane]
    source, target = (lanes[0][0], lanes[-1][1]) if lanes else (span.place, span.place)
    ends = [end for end in (source, target) if end not in ("host", "disk")]
    for name in span.resources:
        if ".prepare " in name:  # of one device's mini-batch
            ends = ["gpu" + name.split()[1].partition(".")[0]]
    if "host.train" in span.resources:
        ends = ["host"]
    buffers = [name.removesuffix(".buffer") for name in span.resources if name.endswith(".buffer")]
    if span.label == "add stale gradients":
        return source, target, device
    asking = [end for end in ends if end not in buffers]
    return source, target, (asking or ends or [device])[0]


def read_steps(
    case: Case,
    spans: Sequence[Span],
    *,
    prefetch: int | None,
    shares_rows: bool,
    pieces: int = 1,
    places: int = 1,
) -> tuple[Step, ...]:
    """``prefetch`` is None for a full graph."""
    steps: list[Step] = []
    turn, key, device = 0, None, ""
    lost: set[tuple[int, str]] = set()
    ring = {span.resources for span in spans if span.label == "all-reduce gradients"}
    threads = {name for span in spans for name in span.resources if ".prepare " in name}
    preparers = len({name.rpartition(".")[2] for name in threads})
    for index, span in enumerate(spans):
        label = span.label
        source, target, device = find_ends(span, device)
        backward = label != "loss" and (
            bool(lost) if prefetch is None else (span.round, device) in lost
        )
        if label == "loss":
            lost.add((span.round, device))
        if (span.layer, span.round, backward) != key:
            key = (span.layer, span.round, backward)
            turn += 1
        if prefetch is not None:
            turn = span.round
        if label in ("device to device", "copy between buffers"):
            returned = any(
                step.turn == turn and step.device == device and step.label == "aggregate backward"
                for step in steps
            )
            label = "push" if returned else "pull"
        steps.append(
            Step(
                index=index,
                label=label,
                layer=span.layer,
                round=span.round,
                backward=backward,
                turn=turn,
                device=device,
                source=source,
                target=target,
                pipelined=any(r.endswith((".aggregate", ".update")) for r in span.resources),
                delayed=case.late,
                late=case.late and span.label == "device to device",
                prefetch=prefetch or 0,
                ordinal=sum(step.label == label for step in steps),
                previous=steps[-1].label if steps else "",
                sums=sum(step.label == "sum of partial products" for step in steps),
                shares=shares_rows,
                ring=len(ring),
                preparers=preparers,
                pieces=pieces,
                places=places,
                resources=frozenset(span.resources),
                after=span.after,
            )
        )
    arrived: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for step in steps:
        if step.label.endswith("to device"):
            arrived[unit_of(step)].add(step.label)
    return tuple(
        dataclasses.replace(step, arrived=frozenset(arrived[unit_of(step)])) for step in steps
    )


def unit_of(step: Step) -> tuple[object, ...]:
    return (step.layer, step.backward, step.round, step.device)


def split_options(words: Sequence[str]) -> dict[str, dict[str, str]]:
    options: dict[str, dict[str, str]] = {}
    for word in words:
        name, value = word.split("=", 1)
        part, option = name.split(".", 1)
        options.setdefault(part, {})[option] = value
    return options


@cache
def run(case: Case) -> tuple[Step, ...]:
    strategy = registry().strategy(case.strategy)
    parts = strategy.bundles[case.mode or strategy.default_mode]
    parts = dataclasses.replace(parts, **dict(word.split("=", 1) for word in case.swaps))
    workload = make_workload(case.model, case.layers, case.epochs)
    workload = dataclasses.replace(workload, batch_size=case.batch_size)
    platform = make_platform(case.accelerators, case.kind)
    accelerators = tuple(
        replace_fields(
            device, pipelined=case.pipelined or device.hardware.pipelined, sampled_edges_per_s=1e9
        )
        for device in platform.accelerators
    )
    host = replace_fields(platform.host, disk_bandwidth_bytes_per_s=1e9)
    platform = dataclasses.replace(platform, host=host, accelerators=accelerators)
    setting = Setting(
        dataset=make_dataset(), platform=platform, workload=workload, layers=build(workload).shapes
    )
    options = split_options(case.options)
    bundle = plugins.assemble(registry(), parts, options)
    trace = train(bundle, setting, ModelClock(platform, bundle.kernel))
    mini_batch = bundle.mode == "mini-batch"
    pieces = 1
    if bundle.in_pieces:
        pieces = bundle.sampler.chunks(setting, case.accelerators).pieces
    return read_steps(
        case,
        trace.epochs[-1].spans,
        prefetch=bundle.prefetch_stages(platform) if mini_batch else None,
        shares_rows=bundle.shares_rows,
        pieces=pieces,
        places=1 + (bundle.ahead or 0),
    )


@cache
def ancestors(case: Case) -> tuple[int, ...]:
    """By step, a bit for each step that is over before it begins, by the waits alone."""
    before: list[int] = []
    for step in run(case):
        bits = 0
        for earlier in step.after:
            bits |= before[earlier] | 1 << earlier
        before.append(bits)
    return tuple(before)


Relation = Callable[[Step, Step], bool]


def in_round(later: Step, earlier: Step) -> bool:
    """Both belong to one round of one layer and pass."""
    return later.turn == earlier.turn


def in_unit(later: Step, earlier: Step) -> bool:
    """And to one device."""
    return in_round(later, earlier) and later.device == earlier.device


def in_unit_listed(later: Step, earlier: Step) -> bool:
    """And they are listed in this order."""
    return in_unit(later, earlier) and earlier.index < later.index


def round_before(later: Step, earlier: Step) -> bool:
    """The earlier one belongs to the round, or to the layer's only step, just before."""
    return earlier.turn == later.turn - 1 and not earlier.late


def next_listed(later: Step, earlier: Step) -> bool:
    return earlier.index == later.index - 1


def at_layer(later: Step, earlier: Step) -> bool:
    return later.layer == earlier.layer and earlier.backward == later.backward


def always(later: Step, earlier: Step) -> bool:
    return True


def plain(relation: Relation) -> Relation:
    """Where AGGREGATE and UPDATE of the device are not pipelined."""

    def holds(later: Step, earlier: Step) -> bool:
        return relation(later, earlier) and not later.pipelined

    return holds


def in_unit_now(later: Step, earlier: Step) -> bool:
    """One listed after the other, of a unit whose rows and gradients are not those of an earlier
    epoch."""
    return in_unit_listed(later, earlier) and not later.delayed


def as_late(later: Step, earlier: Step) -> bool:
    """One listed after the other, both read in this epoch or both in a later one."""
    return in_unit_listed(later, earlier) and later.late == earlier.late


@dataclass(frozen=True)
class Wait:
    """Steps ``later`` begin when those ``earlier`` are over that they have the relation to; labels
    are joined by bars, and a star is any. Nothing waits for what is read in a later epoch, but
    where ``of_late`` says so."""

    reason: str
    later: str
    earlier: str
    relation: Relation
    of_late: bool = False

    def fits(self, later: Step, earlier: Step) -> bool:
        return (
            later.index != earlier.index
            and later.label in self.later.split("|")
            and (self.earlier == "*" or earlier.label in self.earlier.split("|"))
            and (self.of_late or not earlier.late)
            and self.relation(later, earlier)
        )
