"""The checks: promises that every strategy makes, each tried on a small awkward graph.

A check takes a registry and a strategy's name. It returns what it established, raises
``NonConforming`` with the broken promise, or ``NotApplicable`` with the reason why it has nothing
to say. A strategy is tried in every mode it has a bundle for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnbench import models
from gnnbench.compare import Request, compare
from gnnbench.conformance import faults, graphs
from gnnbench.conformance.outcome import NonConforming, NotApplicable
from gnnbench.errors import IncompatibleParts, PluginError, UsageError
from gnnbench.parts import (
    BOTH_MODES,
    Bundle,
    Communication,
    FullGraphSampler,
    MiniBatchSampler,
    Part,
    Setting,
    option_fields,
)
from gnnbench.platforms.machine import Platform
from gnnbench.plugins import Registry, assemble, describe_option, parse_option
from gnnbench.records import (
    PART_KINDS,
    BatchProfile,
    Dataset,
    IntArray,
    Mode,
    PartKind,
    Round,
    RoundTraffic,
    RunResult,
    Unit,
    Workload,
)

#: Largest relative difference from the reference's losses in float64.
TOLERANCE = 1e-9
NUM_LAYERS = (2, 3)


# --------------------------------------------------------------------------- checks


def check_same_maths(registry: Registry, name: str) -> str:
    """Losses equal plain single-device training, for all models it takes and 2 and 3 layers."""
    dataset = graphs.make_dataset()
    largest, trained = 0.0, set()
    refusals: list[str] = []
    for mode in _modes(registry, name):
        platform = _find_platform(registry, name, mode)
        for model in models.MODELS:
            for num_layers in NUM_LAYERS:
                case = f"{mode} {model} with {num_layers} layers"
                workload = graphs.make_workload(model, num_layers)
                try:
                    run = _run(registry, name, mode, dataset, workload, platform, check=True)
                except IncompatibleParts as refusal:
                    refusals.append(f"{case}: {refusal}")
                    continue
                _require_done(run, case)
                if run.other_maths:
                    refusals.append(f"{case}: its maths differ by design ({run.other_maths})")
                    continue
                error = math.inf
                if run.equivalence is not None:
                    error = run.equivalence.max_relative_loss_error
                # Not the other way round: a loss that is not a number must not pass.
                if not (error <= TOLERANCE and all(map(math.isfinite, run.loss))):
                    raise NonConforming(
                        f"{case}: losses {_numbers(run.loss)} are off from the reference's by "
                        f"{error:.1e} relative, and {TOLERANCE:.0e} is allowed"
                    )
                largest = max(largest, error)
                trained.add(model)
    if not trained:
        raise NotApplicable(f"no model can be held equal; {refusals[0]}")
    return f"{', '.join(sorted(trained))}: losses within {largest:.1e} of the reference's"


def check_every_vertex_once(registry: Registry, name: str) -> str:
    """Each training vertex (each vertex, of a full graph) is computed once, on true blocks."""
    counts = []
    for mode, world in _worlds(registry, name):
        dataset = world.setting.dataset
        if isinstance(world.bundle.sampler, MiniBatchSampler):
            due, what = dataset.train_ids, "training vertices"
        else:
            due, what = np.arange(dataset.graph.num_vertices), "vertices"
        rounds = world.rounds()
        units = [unit for round_ in rounds for unit in round_.units]
        fault = faults.find_coverage_fault([unit.output_ids for unit in units], due, what)
        if fault is not None:
            raise NonConforming(f"{mode}: {fault}")
        fanouts = None
        if isinstance(world.bundle.sampler, MiniBatchSampler):
            heeded = world.bundle.sampler.heeds_fanouts
            fanouts = tuple(n if heeded else 0 for n in world.setting.workload.fanouts)
        for unit in units:
            fault = faults.find_unit_fault(unit, dataset.graph, fanouts)
            if fault is not None:
                raise NonConforming(f"{mode}, unit on slot {unit.slot}: {fault}")
        counts.append(f"{mode}: {len(due)} {what} in {len(units)} units of {len(rounds)} rounds")
    return "; ".join(counts)


def check_bytes_add_up(registry: Registry, name: str) -> str:
    """Rows needed = rows transferred + rows reused; bytes counted = bytes that crossed links."""
    established, unmoved = [], []
    for mode, world in _worlds(registry, name):
        communication = world.bundle.communication
        if not communication.moves_rows:
            unmoved.append(f"{mode}: communication {communication.name!r} moves nothing")
            continue
        if communication.exchanges:
            _check_counted_bytes(registry, name, mode, world)
            established.append(f"{mode}: what is counted crossed between shards")
            continue
        rows = dict.fromkeys(("needed", "from host", "reused", "from peers", "kept"), 0)
        previous = None
        rounds = world.visiting(world.rounds())
        owner = world.owner()
        for round_ in rounds:
            traffic = communication.plan(round_, previous, owner)
            # Rows of a device's own partition are there in every round.
            before = traffic if world.bundle.memory.vertex_data == "device" else previous
            fault = faults.find_traffic_fault(
                round_, traffic, before, shares_rows=communication.shares_rows
            )
            if fault is not None:
                raise NonConforming(
                    f"{mode}, round {round_.index}, communication {communication.name!r}, {fault}"
                )
            for fetch in traffic.fetches:
                rows["needed"] += len(fetch.needed)
                rows["from host"] += len(fetch.from_host)
                rows["reused"] += len(fetch.reused)
                rows["from peers"] += sum(len(peer.ids) for peer in fetch.from_peers)
                rows["kept"] += sum(len(peer.kept) for peer in fetch.from_peers)
            previous = traffic
        _check_counted_bytes(registry, name, mode, world)
        established.append(f"{mode}: " + ", ".join(f"{rows[key]} rows {key}" for key in rows))
        if mode == "mini-batch" and world.bundle.memory.vertex_data == "host":
            established.append(_check_moved_rows(registry, name, world))
    if not established:
        raise NotApplicable("; ".join(unmoved))
    return "; ".join([*established, *unmoved])


def check_legal_timeline(registry: Registry, name: str) -> str:
    """No exclusive resource runs two spans at once; no span starts before what it waits for."""
    counts = []
    for mode, world in _worlds(registry, name):
        run = world.run(registry, name, mode)
        if not run.timeline:
            raise NonConforming(f"{mode}: the run recorded no span at all")
        fault = faults.find_timeline_fault(run.timeline)
        if fault is not None:
            raise NonConforming(f"{mode}: {fault}")
        counts.append(f"{mode}: {len(run.timeline)} spans")
    return "; ".join(counts)


def check_deterministic(registry: Registry, name: str) -> str:
    """The same seed gives the same losses, bytes and modelled times, to the bit."""
    seen = []
    for mode, world in _worlds(registry, name):
        one, other = (world.run(registry, name, mode) for _ in range(2))
        if one.loss != other.loss:
            raise NonConforming(
                f"{mode}: two runs of one seed gave losses {_numbers(one.loss)} and "
                f"{_numbers(other.loss)}"
            )
        for metric, first in one.metrics.items():
            second = other.metrics[metric]
            if first.provenance == "modelled" and first != second:
                raise NonConforming(
                    f"{mode}: {metric} was {first.value!r} {first.unit}, then {second.value!r}"
                )
        times = [
            [(entry.span.label, entry.start_s, entry.end_s) for entry in run.timeline]
            for run in (one, other)
        ]
        if times[0] != times[1]:
            raise NonConforming(f"{mode}: two runs of one seed gave different timelines")
        seen.append(mode)
    return f"two runs agree to the bit ({', '.join(seen)})"


def check_capacity(registry: Registry, name: str) -> str:
    """A device too small ends in ``out-of-memory`` with tensor and bytes; none is ever exceeded."""
    said = []
    for mode, world in _worlds(registry, name):
        peak_bytes = int(world.run(registry, name, mode).metrics["peak_device_bytes"].value)
        if peak_bytes <= 0:
            raise NonConforming(f"{mode}: the run held nothing in any device's memory")
        # One byte less than it used: a strategy that adapts may still fit, but must not exceed it.
        tight = world.run(registry, name, mode, capacity_bytes=peak_bytes - 1)
        if tight.status == "done":
            held_bytes = int(tight.metrics["peak_device_bytes"].value)
            if held_bytes >= peak_bytes:
                raise NonConforming(
                    f"{mode}: devices of {peak_bytes - 1:,} bytes held {held_bytes:,}"
                )
        else:
            _require_out_of_memory(tight, mode, peak_bytes - 1)
        # Less than one parameter: nothing can train in that.
        none = world.run(registry, name, mode, capacity_bytes=1)
        _require_out_of_memory(none, mode, 1)
        said.append(f"{mode}: needs {peak_bytes:,} bytes; with 1, {none.reason}")
    return "; ".join(said)


def check_options_documented(registry: Registry, name: str) -> str:
    """Every option has a line of help and a default that ``--set`` can give again."""
    documented = []
    for kind, part in _part_classes(registry, name):
        for option, field in option_fields(part).items():
            what = f"option {option!r} of {kind} {part.name!r}"
            if not str(field.metadata.get("help", "")).strip():
                raise NonConforming(
                    f"{what} has no help; declare it with gnnbench.parts.option(default, help)"
                )
            try:
                again = parse_option(part, option, str(field.default))
            except (PluginError, UsageError) as error:
                raise NonConforming(f"{what} cannot be set to its default: {error}") from error
            if again != field.default:
                raise NonConforming(f"{what} is {field.default!r} but reads as {again!r}")
            documented.append(describe_option(part, option))
    if not documented:
        raise NotApplicable("none of its parts has an option")
    return f"{len(documented)} options: {'; '.join(documented)}"


def check_described(registry: Registry, name: str) -> str:
    """The strategy and its parts say in a line what they are, and in which modes they work."""
    strategy = registry.strategy(name)
    for what, text in (("summary", strategy.summary), ("source", strategy.source)):
        if not text.strip() or "\n" in text:
            raise NonConforming(f"the strategy's {what} is {text!r}; give one line of text")
    described = 0
    for kind, part in _part_classes(registry, name):
        if "\n" in part.summary or len(part.summary) > 100:
            raise NonConforming(
                f"the summary of {kind} {part.name!r} does not fit a line of 100 characters"
            )
        if not part.modes <= BOTH_MODES or not (part.__doc__ or "").strip():
            raise NonConforming(f"{kind} {part.name!r} ({part.__name__}) has no docstring")
        described += 1
    return f"{strategy.summary} ({strategy.source}), {described} parts"


# --------------------------------------------------------------------------- what they stand on


@dataclass(frozen=True, slots=True, eq=False)
class _World:
    """A strategy's bundle of one mode, begun on the small graph."""

    bundle: Bundle
    setting: Setting

    def rounds(self) -> tuple[Round, ...]:
        """The rounds of the first epoch as an engine would cut them."""
        sampler, placement = self.bundle.sampler, self.bundle.placement
        trainers = placement.trainers(self.setting.platform)
        if isinstance(sampler, FullGraphSampler):
            return sampler.chunks(self.setting, len(trainers))
        seeds_by_round = sampler.rounds(0)
        first = Unit(0, sampler.sample(seeds_by_round[0], 0, 0))
        profile = BatchProfile(len(seeds_by_round[0]), first.vertices, first.edges)
        placement.prepare(self.setting, [profile])
        return tuple(
            Round(index, self._units(sampler, seeds, len(trainers)))
            for index, seeds in enumerate(seeds_by_round)
        )

    def _units(
        self, sampler: MiniBatchSampler, seeds: IntArray, num_slots: int
    ) -> tuple[Unit, ...]:
        placement = self.bundle.placement
        handed = placement.share_out(seeds)
        shares = [(share.slot, share.seeds) for share, _ in handed]
        fault = faults.find_split_fault(shares, len(seeds), num_slots)
        if fault is not None:
            raise NonConforming(f"placement {placement.name!r} gave {fault}")
        return tuple(
            Unit(share.slot, sampler.sample(part, 0, 0)) for share, part in handed if len(part)
        )

    def visiting(self, rounds: Sequence[Round]) -> tuple[Round, ...]:
        """The rounds without the host's own units, whose rows cross no link."""
        host = self.setting.platform.host.name
        trainers = self.bundle.placement.trainers(self.setting.platform)
        return tuple(
            Round(
                round_.index,
                tuple(unit for unit in round_.units if trainers[unit.slot].name != host),
            )
            for round_ in rounds
        )

    def owner(self) -> IntArray:
        """Who brings a row in where trainers share: its partition's slot, or accelerators in turn.

        Valid after ``rounds``.
        """
        sampler = self.bundle.sampler
        if isinstance(sampler, FullGraphSampler):
            return sampler.owner()
        host = self.setting.platform.host.name
        trainers = self.bundle.placement.trainers(self.setting.platform)
        slots = [slot for slot, device in enumerate(trainers) if device.name != host] or [0]
        vertices = np.arange(self.setting.dataset.graph.num_vertices, dtype=np.int64)
        return np.asarray(slots, dtype=np.int64)[vertices % len(slots)]

    def run(
        self, registry: Registry, name: str, mode: Mode, capacity_bytes: int | None = None
    ) -> RunResult:
        """Train through the engine; with a capacity, on devices that have no more memory."""
        platform = self.setting.platform
        if capacity_bytes is not None:
            trainers = {d.name for d in self.bundle.placement.trainers(platform)}
            # A host that trains beside accelerators keeps its memory: the data lies there.
            small = trainers - {platform.host.name} or trainers
            platform = graphs.with_memory(platform, frozenset(small), capacity_bytes)
        run = _run(
            registry, name, mode, self.setting.dataset, self.setting.workload, platform, check=False
        )
        if capacity_bytes is None:
            _require_done(run, mode)
        return run


def _worlds(registry: Registry, name: str) -> Iterator[tuple[Mode, _World]]:
    """The bundles of a strategy, each begun with a model that it does not refuse."""
    for mode in _modes(registry, name):
        refusal = ""
        platform = _find_platform(registry, name, mode)
        for model in models.MODELS:
            setting = _set(model, platform)
            bundle = assemble(registry, registry.strategy(name).bundles[mode], {})
            reason = bundle.refusal(setting)
            if reason is None:
                break
            refusal = refusal or reason
        else:
            raise NotApplicable(f"{mode}: it refuses every model; {refusal}")
        bundle.begin(setting)
        yield mode, _World(bundle, setting)


def _set(model: str, platform: Platform) -> Setting:
    workload = graphs.make_workload(model)
    return Setting(graphs.make_dataset(), platform, workload, models.build(workload).shapes)


def _find_platform(registry: Registry, name: str, mode: Mode) -> Platform:
    """The first machine on which the strategy does not refuse every model, or the first of all."""
    platforms = graphs.make_platforms()
    for platform in platforms:
        for model in models.MODELS:
            bundle = assemble(registry, registry.strategy(name).bundles[mode], {})
            if bundle.refusal(_set(model, platform)) is None:
                return platform
    return platforms[0]


def _modes(registry: Registry, name: str) -> tuple[Mode, ...]:
    return tuple(registry.strategy(name).bundles)


def _part_classes(registry: Registry, name: str) -> list[tuple[PartKind, type[Part]]]:
    """The classes of a strategy's parts, each once, by kind."""
    bundles = registry.strategy(name).bundles.values()
    return [
        (kind, registry.part(kind, part))
        for kind in PART_KINDS
        for part in sorted({bundle.named(kind) for bundle in bundles})
    ]


def _run(
    registry: Registry,
    name: str,
    mode: Mode,
    dataset: Dataset,
    workload: Workload,
    platform: Platform,
    *,
    check: bool,
) -> RunResult:
    """The strategy's one row; ``NotApplicable`` where a library that it needs is missing."""
    request = Request(
        strategies=(name,),
        dataset=dataset,
        workload=workload,
        platform=platform,
        check=check,
        modes=(mode,),
    )
    (run,) = compare(request, registry).runs
    if run.status == "skipped":
        raise NotApplicable(f"{mode}: {run.reason}")
    return run


def _require_done(run: RunResult, case: str) -> None:
    if run.status != "done":
        raise NonConforming(f"{case}: the run ended with {run.status}: {run.reason}")


def _require_out_of_memory(run: RunResult, mode: Mode, capacity_bytes: int) -> None:
    case = f"{mode}: on devices of {capacity_bytes:,} bytes the run"
    if run.status != "out-of-memory":
        raise NonConforming(f"{case} ended with {run.status!r} {run.reason}".rstrip())
    if not re.search(r"out of memory: \S.* needs [\d,]+ bytes", run.reason):
        raise NonConforming(f"{case} does not name the tensor and its bytes: {run.reason!r}")


def _check_counted_bytes(registry: Registry, name: str, mode: Mode, world: _World) -> None:
    """What the run's metrics count must be what its spans carried over links."""
    links = {link.name for link in world.setting.platform.links}
    run = world.run(registry, name, mode)
    crossed = sum(entry.span.work.bytes for entry in run.timeline if entry.span.place in links)
    kinds = ("host_to_device", "device_to_host", "device_to_device", "all_to_all", "all_reduce")
    # The timeline is the last epoch's, and so is the last sample.
    counted = sum(run.metrics[f"{kind}_bytes"].samples[-1] for kind in kinds)
    if crossed != counted:
        raise NonConforming(
            f"{mode}: {crossed:,.0f} bytes crossed links in spans, {counted:,.0f} were counted"
        )


def _check_moved_rows(registry: Registry, name: str, world: _World) -> str:
    """Of mini-batches: the rows that crossed in a run and those that were reused must be what was
    planned, whatever a memory part keeps on the devices besides."""
    mode: Mode = "mini-batch"
    recording, planned = _record_plans(registry, world.bundle.communication)
    run = world.run(recording, name, mode)
    epoch = planned[-1 - max(entry.span.round for entry in run.timeline) :]
    fetches = [fetch for traffic in epoch for fetch in traffic.fetches]
    from_host = sum(len(fetch.from_host) for fetch in fetches)
    kept = sum(len(peer.kept) for fetch in fetches for peer in fetch.from_peers)
    due = from_host + kept + sum(len(fetch.reused) for fetch in fetches)
    crossed = sum(
        entry.span.work.rows for entry in run.timeline if entry.span.label == "host to device"
    )
    setting = world.setting
    row_bytes = setting.dataset.num_features * setting.workload.itemsize
    reused = run.metrics["reused_bytes"].samples[-1] / row_bytes
    if crossed + reused != due or crossed > from_host:
        raise NonConforming(
            f"{mode}: of {due} rows that were to cross or to be reused {crossed} crossed and "
            f"{reused:g} were reused"
        )
    return f"in a run {crossed} rows crossed and {reused:g} were reused"


def _record_plans(registry: Registry, part: Communication) -> tuple[Registry, list[RoundTraffic]]:
    """A registry whose part of this name does the same, and the plans it will have made."""
    planned: list[RoundTraffic] = []

    class Recording(type(part)):  # type: ignore[misc]
        def plan(
            self, round_: Round, previous: RoundTraffic | None, owner: IntArray
        ) -> RoundTraffic:
            traffic: RoundTraffic = super().plan(round_, previous, owner)
            planned.append(traffic)
            return traffic

    parts = {**registry.parts, (part.kind, part.name): Recording}
    return replace(registry, parts=parts), planned


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
