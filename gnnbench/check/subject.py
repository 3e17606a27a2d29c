"""The subject of the checks: a strategy, or a part put into one, and the worlds it is tried in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gnnbench import models
from gnnbench.check import faults, graphs
from gnnbench.check.outcome import NonConformingError, NotReachedError
from gnnbench.check.recording import Reached, record
from gnnbench.comparison import Options, PlannedRow, Request, compare
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.jobs.limits import LARGEST
from gnnbench.machines import list_platforms, load_platform
from gnnbench.machines.machine import Platform
from gnnbench.parts import (
    Bundle,
    FullGraphSampler,
    MiniBatchSampler,
    Part,
    SeedSession,
    Setting,
    option_fields,
    parse_option,
)
from gnnbench.plugins import Registry, assemble, with_swap
from gnnbench.records import (
    PART_KINDS,
    BatchProfile,
    Dataset,
    IntArray,
    Mode,
    PartKind,
    Parts,
    Round,
    RunResult,
    Unit,
)

#: A mode of a strategy with the dataset and platform it is tried on.
Place = tuple[Mode, Dataset, Platform]


@dataclass(eq=False)
class Subject:
    """A strategy by its bundles and options, or one ``part`` of them, which is then checked.

    ``registry`` has the bundles' parts such that ``reached`` records which of their methods were
    called. ``dataset`` is tried besides the small ones. ``handed_out`` holds every dataset that
    parts were given, with the digests from before.
    """

    registry: Registry
    name: str
    bundles: Mapping[Mode, Parts]
    options: Options
    part: tuple[PartKind, str] | None = None
    dataset: Dataset | None = None
    reached: Reached = field(default_factory=Reached)
    ran: set[str] = field(default_factory=set)
    handed_out: list[tuple[Dataset, Mapping[str, str]]] = field(default_factory=list)
    _small: dict[Mode, Place] = field(default_factory=dict)
    _refused: set[Mode] = field(default_factory=set)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that the subject trains in."""
        return tuple(self.bundles)

    def part_classes(self) -> list[tuple[PartKind, type[Part]]]:
        """Return the classes of the parts that are checked, each once, by kind."""
        return [
            (kind, self.registry.part(kind, name))
            for kind in PART_KINDS
            for name in sorted({bundle.named(kind) for bundle in self.bundles.values()})
            if self.part in (None, (kind, name))
        ]

    def covers(self, kind: PartKind) -> bool:
        """Return whether parts of this kind are checked."""
        return self.part is None or self.part[0] == kind

    def assemble(self, mode: Mode, options: Options | None = None) -> Bundle:
        """Return a fresh bundle of a mode with the options that its parts have."""
        parts, chosen = self.bundles[mode], options or self.options
        return assemble(self.registry, parts, _fitting(self.registry, parts, chosen))

    def hand_out(self, dataset: Dataset) -> Dataset:
        """Return the dataset, and keep digests of its arrays for a later comparison."""
        if not any(earlier is dataset for earlier, _ in self.handed_out):
            self.handed_out.append((dataset, faults.digest_arrays(dataset)))
        return dataset

    def places(self, *, wide: bool = True) -> Iterator[Place]:
        """Yield the places where each mode is tried.

        They are a small graph that it does not refuse, wide rows beside a slow host if ``wide``,
        and the dataset that was asked for.
        """
        for mode in self.modes:
            yield self.small(mode)
            if wide:
                slow = self._find(mode, [graphs.make_wide_dataset()], _machines(slow_host=True))
                if slow is not None:
                    yield slow
            if self.dataset is not None:
                asked = self._find(mode, [self.dataset], _machines())
                if asked is None:
                    raise NonConformingError(
                        f"{mode}: it refuses dataset {self.dataset.name}; "
                        f"{self._refusal(mode, self.dataset, self.small(mode)[2])}"
                    )
                yield asked

    def small(self, mode: Mode) -> Place:
        """Return the first small graph and the machine with most trainers that the mode accepts.

        It accepts them with at least one model. Raises ``NonConformingError`` if the mode refuses
        them all, and ``NotReachedError`` once that was reported.
        """
        if mode in self._refused:
            raise NotReachedError(f"{mode}: it refuses every graph and machine, as was said above")
        if mode not in self._small:
            candidates = [graphs.make_dataset(), graphs.make_wide_dataset()]
            candidates.append(graphs.make_sparse_dataset())
            found = self._find(mode, candidates, _machines())
            found = found or self._find(mode, candidates, _bundled_machines())
            if found is None:
                self._refused.add(mode)
                raise NonConformingError(
                    f"{mode}: it refuses every model on every graph and machine that it was tried "
                    f"on, so that nothing could be checked; on the first, "
                    f"{self._refusal(mode, candidates[0], graphs.make_platform())}"
                )
            self._small[mode] = found
        return self._small[mode]

    def _find(
        self, mode: Mode, datasets: Sequence[Dataset], platforms: Sequence[Platform]
    ) -> Place | None:
        for dataset in datasets:
            fitting = [
                platform
                for platform in platforms
                if any(
                    self._refuses(mode, dataset, platform, model) is None for model in models.MODELS
                )
            ]
            if fitting:
                trainers = self.assemble(mode).placement.trainers
                return mode, dataset, max(fitting, key=lambda each: len(trainers(each)))
        return None

    def _refusal(self, mode: Mode, dataset: Dataset, platform: Platform) -> str:
        model = next(iter(models.MODELS))
        return self._refuses(mode, dataset, platform, model) or "nothing is refused"

    def _refuses(self, mode: Mode, dataset: Dataset, platform: Platform, model: str) -> str | None:
        return self.assemble(mode).refusal(make_setting(dataset, platform, model))

    def worlds(self, *, wide: bool = True) -> Iterator[tuple[str, World]]:
        """Yield each place's name, and a bundle begun there with a model that it takes."""
        for place in self.places(wide=wide):
            yield describe_place(place), self.begin(place)

    def begin(self, place: Place, options: Options | None = None) -> World:
        """Return a bundle begun in a place with the first model that it does not refuse there.

        Raises ``IncompatiblePartsError`` if it refuses them all.
        """
        mode, dataset, platform = place
        refusal = ""
        for model in models.MODELS:
            setting = make_setting(self.hand_out(dataset), platform, model)
            bundle = self.assemble(mode, options)
            reason = bundle.refusal(setting)
            if reason is None:
                begun = bundle.begin(setting)
                return World(self, mode, begun, setting, options or self.options)
            refusal = refusal or reason
        raise IncompatiblePartsError(refusal)

    def train(
        self,
        mode: Mode,
        setting: Setting,
        *,
        check: bool = False,
        options: Options | None = None,
        registry: Registry | None = None,
    ) -> RunResult:
        """Return the run of this subject's row.

        Raises ``NotReachedError`` for a missing library, and ``IncompatiblePartsError`` for a
        refused setting.
        """
        registry = registry or self.registry
        parts = self.bundles[mode]
        texts = tuple(
            (kind, option, text)
            for kind, values in _fitting(registry, parts, options or self.options).items()
            for option, text in values.items()
        )
        request = Request(
            strategies=(),
            dataset=self.hand_out(setting.dataset),
            workload=setting.workload,
            platform=setting.platform,
            check=check,
            checked_updates=LARGEST,
            rows=(PlannedRow(self.name, self.name, mode, parts, options=texts),),
        )
        (run,) = compare(request, registry).runs
        if run.status == "skipped":
            raise NotReachedError(f"{mode}: {run.reason}")
        return run


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A subject's bundle of one mode, begun somewhere."""

    subject: Subject
    mode: Mode
    bundle: Bundle
    setting: Setting
    options: Options

    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds of the first epoch as an engine would cut them."""
        sampler, placement = self.bundle.sampler, self.bundle.placement
        trainers = placement.trainers(self.setting.platform)
        if isinstance(sampler, FullGraphSampler):
            return sampler.chunks(self.setting, len(trainers)).rounds
        seeds_by_round = sampler.rounds(0)
        first = Unit(0, sampler.sample(seeds_by_round[0], 0, 0))
        profile = BatchProfile(len(seeds_by_round[0]), first.vertices, first.edges)
        prefetch = self.bundle.prefetch_stages(self.setting.platform)
        shares = placement.open(self.setting, [profile], prefetch)
        return tuple(
            Round(index, self._units(sampler, shares, seeds, len(trainers)))
            for index, seeds in enumerate(seeds_by_round)
        )

    def pieces(self) -> int:
        """Return the number of consecutive rounds over which a unit's in-edges come."""
        sampler = self.bundle.sampler
        if not (isinstance(sampler, FullGraphSampler) and sampler.in_pieces):
            return 1
        trainers = self.bundle.placement.trainers(self.setting.platform)
        return sampler.chunks(self.setting, len(trainers)).pieces

    def _units(
        self, sampler: MiniBatchSampler, session: SeedSession, seeds: IntArray, num_slots: int
    ) -> tuple[Unit, ...]:
        handed = session.share_out(seeds)
        shares = [(share.slot, share.seeds) for share, _ in handed]
        fault = faults.find_split_fault(shares, len(seeds), num_slots)
        if fault is not None:
            raise NonConformingError(f"placement {self.bundle.placement.name!r} gave {fault}")
        return tuple(
            Unit(share.slot, sampler.sample(part, 0, 0)) for share, part in handed if len(part)
        )

    def visiting(self, rounds: Sequence[Round]) -> tuple[Round, ...]:
        """Return the rounds without the host's own units, since their rows cross no link."""
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
        """Return the slot that loads each row if trainers share rows.

        It is the slot of the row's partition, or one of the accelerators' in turn.
        """
        sampler = self.bundle.sampler
        if isinstance(sampler, FullGraphSampler):
            trainers = self.bundle.placement.trainers(self.setting.platform)
            return sampler.chunks(self.setting, len(trainers)).owner
        host = self.setting.platform.host.name
        trainers = self.bundle.placement.trainers(self.setting.platform)
        slots = [slot for slot, device in enumerate(trainers) if device.name != host] or [0]
        vertices = np.arange(self.setting.dataset.graph.num_vertices, dtype=np.int64)
        return np.asarray(slots, dtype=np.int64)[vertices % len(slots)]

    def run(self, capacity_bytes: int | None = None, registry: Registry | None = None) -> RunResult:
        """Train through the engine; with a capacity, on devices that have no more memory."""
        setting, platform = self.setting, self.setting.platform
        if capacity_bytes is not None:
            trainers = {d.name for d in self.bundle.placement.trainers(platform)}
            # A host that trains beside accelerators keeps its memory, which holds the data.
            small = trainers - {platform.host.name} or trainers
            platform = graphs.with_memory(platform, frozenset(small), capacity_bytes)
        run = self.subject.train(
            self.mode,
            replace(setting, platform=platform),
            options=self.options,
            registry=registry,
        )
        if capacity_bytes is None:
            require_done(run, self.mode)
        return run


def require_done(run: RunResult, case: str) -> None:
    """Raise :class:`NonConformingError` unless the run is done."""
    if run.status != "done":
        raise NonConformingError(f"{case}: the run ended with {run.status}: {run.reason}")


def make_setting(
    dataset: Dataset,
    platform: Platform,
    model: str = "gcn",
    num_layers: int = 2,
    epochs: int = 2,
) -> Setting:
    """Return the setting of a dataset on a machine, with a workload that fits it."""
    workload = replace(graphs.fit_workload(dataset, model, num_layers), epochs=epochs)
    return Setting(dataset, platform, workload, models.build(workload).shapes)


def describe_place(place: Place) -> str:
    """Return the mode, and the graph if it is not the usual small one."""
    mode, dataset, _ = place
    return mode if dataset.name == "conformance" else f"{mode} on {dataset.name}"


def _machines(*, slow_host: bool = False) -> tuple[Platform, ...]:
    return graphs.make_platforms(slow_host=slow_host)


def _bundled_machines() -> tuple[Platform, ...]:
    """Return the machine descriptions bundled with the harness."""
    return tuple(
        platform for entry in list_platforms() if (platform := load_platform(entry.name)).virtual
    )


def _fitting(registry: Registry, parts: Parts, options: Options) -> dict[PartKind, dict[str, str]]:
    """Return the ``options`` that the parts have."""
    return {
        kind: {
            option: text
            for option, text in values.items()
            if option in option_fields(registry.part(kind, parts.named(kind)))
        }
        for kind, values in options.items()
    }


# --------------------------------------------------------------------------- making one


def find_subject(
    registry: Registry,
    name: str,
    options: Options | None = None,
    dataset: Dataset | None = None,
) -> Subject:
    """Return the strategy called ``name``, or the part such as ``kernel=native`` in a strategy.

    The strategy is one that takes the part: from its own plugin first, then the reference, then any
    other.
    Raises ``PluginError`` for an unknown name, ``UsageError`` for an option that no part has.
    """
    kind, equals, part_name = name.partition("=")
    if not equals:
        bundles = dict(registry.strategy(name).bundles)
        part = None
    else:
        part_class = registry.part(kind, part_name)  # type: ignore[arg-type]
        part = (part_class.kind, part_name)
        bundles = {}
        for mode in sorted(part_class.modes, reverse=True):
            found = _put_into_strategy(registry, part_class, mode)
            if found is not None:
                bundles[mode] = found
    chosen = {kind: dict(values) for kind, values in (options or {}).items()}
    _check_options(registry, name, bundles, chosen)
    reached = Reached()
    return Subject(
        record(registry, bundles.values(), reached), name, bundles, chosen, part, dataset, reached
    )


def _put_into_strategy(registry: Registry, part: type[Part], mode: Mode) -> Parts | None:
    """Return the first bundle of a mode that takes the part somewhere.

    For a communication it is the first on several devices, since one device moves little. If no
    bundle takes the part, it is the first that has it, or the reference's, so that the refusal can
    be reported.
    """
    plugin = registry.origin(part).plugin
    ordered = sorted(
        (strategy for strategy in registry.strategies if mode in strategy.bundles),
        key=lambda strategy: (
            strategy.bundles[mode].named(part.kind) != part.name,
            registry.origin(strategy).plugin != plugin,
            strategy.name != "reference",
        ),
    )
    candidates = [
        with_swap(registry, strategy.bundles[mode], [(part.kind, part.name)])
        for strategy in ordered
    ]
    alone = None
    for parts in candidates:
        trial = Subject(registry, part.name, {mode: parts}, {})
        try:
            _, _, platform = trial.small(mode)
            several = len(trial.assemble(mode).placement.trainers(platform)) > 1
        except KeyboardInterrupt:
            raise
        except BaseException:  # the checks say what is wrong, in the first bundle
            continue
        if several or part.kind != "communication":
            return parts
        alone = alone or parts
    return alone or (candidates[0] if candidates else None)


def _check_options(
    registry: Registry, name: str, bundles: Mapping[Mode, Parts], options: Options
) -> None:
    """Check that a part of some bundle has each option, and that it accepts the value."""
    for kind, values in options.items():
        classes = {registry.part(kind, parts.named(kind)) for parts in bundles.values()}
        for option, text in values.items():
            takers = [part for part in classes if option in option_fields(part)]
            for part in takers or sorted(classes, key=lambda part: part.name):
                parse_option(part, option, text)
            if not takers:
                raise UsageError(f"{name!r} has no {kind} with an option {option!r}.")
