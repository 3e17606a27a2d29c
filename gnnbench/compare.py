"""The main job: train each strategy on the same data, hold it equal to the reference, compare."""

from __future__ import annotations

import math
import os
import platform as host_os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Protocol

import psutil
import torch

import gnnbench
from gnnbench.clock.model import ModelClock
from gnnbench.clock.wall import WallClock
from gnnbench.datasets import EDGE_CONVENTION
from gnnbench.design_phase import with_design_phase
from gnnbench.engine import Checkpoints, Clock, train
from gnnbench.engine.collectives import PeerLost, Processes
from gnnbench.engine.evaluate import Evaluator
from gnnbench.errors import (
    DeviceOutOfMemory,
    GnnbenchError,
    IncompatibleParts,
    MissingDependency,
    StageFailed,
    UsageError,
)
from gnnbench.kernels.pages import are_kept, keep_pages, trim_heap
from gnnbench.metrics import Digest, digest, summarise
from gnnbench.models import GNN, build
from gnnbench.models.products import projected_layers
from gnnbench.parts import Bundle, LayerClass, MiniBatchSampler, Setting, option_fields
from gnnbench.platforms.machine import Platform
from gnnbench.plugins import Registry, assemble, parse_option, with_swap
from gnnbench.records import (
    PART_KINDS,
    Comparison,
    Dataset,
    EpochTrace,
    Equivalence,
    Mode,
    PartKind,
    Parts,
    RunResult,
    Status,
    Strategy,
    Trace,
    Workload,
)
from gnnbench.units import format_si

#: Largest relative difference of losses that counts as the same maths, by dtype.
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}

Options = Mapping[PartKind, Mapping[str, str]]


class Progress(Protocol):
    """Told how far a comparison is. ``total`` counts epochs, those of the check included."""

    def begin(self, label: str, total: int) -> None: ...
    def advance(self, label: str) -> None: ...
    def end(self, label: str, status: str) -> None: ...


class SilentProgress:
    """Says nothing."""

    def begin(self, label: str, total: int) -> None: ...
    def advance(self, label: str) -> None: ...
    def end(self, label: str, status: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy with some of its parts swapped, which runs instead of the strategy itself."""

    strategy: str
    swaps: tuple[tuple[PartKind, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare. ``modes`` empty means: chosen from what the strategies have in common.

    ``strategies`` are names, or variants of what has one; ``swaps`` add a row beside each.

    ``rows``, where there are any, are what runs, instead of the strategies with and without swaps.
    """

    strategies: tuple[str | Variant, ...]
    dataset: Dataset
    workload: Workload
    platform: Platform
    swaps: tuple[tuple[PartKind, str], ...] = ()
    options: Options = field(default_factory=dict)
    repeats: int = 1
    target_accuracy: float | None = None
    check: bool = True
    modes: tuple[Mode, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the comparison before it has run.

    ``options`` (kind, option, text) are its own, and go before those of the request.
    """

    strategy: str
    label: str
    mode: Mode
    parts: Parts
    swapped: bool = False
    options: tuple[tuple[PartKind, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ReferenceLosses:
    """What plain training gave: the loss of each round, and after the last update."""

    rounds: tuple[tuple[float, ...], ...]
    final: float


def choose_modes(strategies: tuple[Strategy, ...]) -> tuple[Mode, ...]:
    """Modes to run, so that peers stand beside each other.

    Strategies with one mode decide; those with both run in every mode that was decided, or in
    their usual one when nobody decides.
    """
    decided = {s.default_mode for s in strategies if len(s.bundles) == 1}
    if not decided:
        decided = {s.default_mode for s in strategies}
    order: tuple[Mode, ...] = ("full-graph", "mini-batch")
    return tuple(mode for mode in order if mode in decided)


def plan_rows(request: Request, registry: Registry) -> tuple[Row, ...]:
    """The rows of a comparison: each strategy in its modes, and beside it with its part swapped;
    or those that the request has."""
    if request.rows:
        return request.rows
    variants = [Variant(each) if isinstance(each, str) else each for each in request.strategies]
    strategies = tuple(registry.strategy(variant.strategy) for variant in variants)
    modes = request.modes or choose_modes(strategies)
    rows: list[Row] = []
    for variant, strategy in zip(variants, strategies, strict=True):
        for mode in modes:
            if mode not in strategy.bundles:
                continue
            row = plan_row(variant, strategy, mode, registry)
            rows.append(row)
            swapped = with_swap(registry, row.parts, request.swaps)
            if swapped != row.parts:
                label = name_swaps(row.label, row.parts, request.swaps)
                rows.append(Row(strategy.name, label, mode, swapped, swapped=True))
    if not rows:
        raise UsageError(
            f"no chosen strategy trains {' or '.join(modes)}; see gnnbench plugins list."
        )
    return tuple(rows)


def plan_row(variant: Variant, strategy: Strategy, mode: Mode, registry: Registry) -> Row:
    """A strategy, or a variant of it, in one mode.

    Raises ``UsageError`` for a swap that changes nothing, since two rows would have one name.
    """
    parts = strategy.bundles[mode]
    for kind, name in variant.swaps:
        if parts.named(kind) == name:
            raise UsageError(
                f"strategy {strategy.name!r} has the {kind} {name!r} already; leave out "
                f"{kind}={name}."
            )
    swapped = with_swap(registry, parts, variant.swaps)
    return Row(strategy.name, name_swaps(strategy.name, parts, variant.swaps), mode, swapped)


def name_swaps(label: str, parts: Parts, swaps: tuple[tuple[PartKind, str], ...]) -> str:
    """A row's label, and after it the parts that it has instead of ``parts``."""
    return "·".join((label, *(name for kind, name in swaps if parts.named(kind) != name)))


def plan_ablation(request: Request, registry: Registry, *, each_part: bool) -> tuple[Row, ...]:
    """The rows that show what the parts of the request's one strategy earn, in its usual mode.

    The steps of its own ablation, or, where it has none or with ``each_part``, the whole strategy
    and then each part swapped for the reference's, one at a time. Raises ``UsageError`` when all
    five parts are the reference's.
    """
    (name,) = request.strategies
    if isinstance(name, Variant):
        raise UsageError("an ablation takes out parts of a whole strategy; swap parts by swaps.")
    strategy = registry.strategy(name)
    mode = strategy.default_mode
    whole = with_swap(registry, strategy.bundles[mode], request.swaps)
    if strategy.ablation and not each_part:
        return tuple(
            Row(
                name, step.label, mode, with_swap(registry, whole, step.swaps), options=step.options
            )
            for step in strategy.ablation
        )
    plain = registry.strategy("reference").bundles[mode]
    rows = [Row(name, name, mode, whole)]
    for kind in PART_KINDS:
        part = plain.named(kind)
        if part != whole.named(kind):
            parts = with_swap(registry, whole, [(kind, part)])
            rows.append(Row(name, f"{kind}={part}", mode, parts))
    if len(rows) == 1:
        raise UsageError(
            f"strategy {name!r} has the plain part of every kind, so there is nothing to take out; "
            f"choose another strategy."
        )
    return tuple(rows)


def options_for(row: Row, options: Options, registry: Registry) -> dict[PartKind, dict[str, str]]:
    """Those of ``options`` that a row's parts have, and the row's own."""
    chosen = {
        kind: {
            name: text
            for name, text in options.get(kind, {}).items()
            if name in option_fields(registry.part(kind, row.parts.named(kind)))
        }
        for kind in PART_KINDS
    }
    for kind, name, text in row.options:
        chosen[kind][name] = text
    return chosen


def check_options(rows: tuple[Row, ...], options: Options, registry: Registry) -> None:
    """Every option must be one that some row's part has, with a value it takes."""
    for kind, values in options.items():
        classes = {registry.part(kind, row.parts.named(kind)) for row in rows}
        for name, text in values.items():
            takers = [cls for cls in classes if name in option_fields(cls)]
            for cls in takers or sorted(classes, key=lambda cls: cls.name):
                parse_option(cls, name, text)


def make_setting(request: Request, model: LayerClass | None = None) -> Setting:
    """The setting of a request; ``model`` is the class that its workload names, if not bundled."""
    return Setting(
        dataset=request.dataset,
        platform=request.platform,
        workload=request.workload,
        layers=build(request.workload, model=model).shapes,
        model=model,
    )


def clock_for(bundle: Bundle, platform: Platform) -> Clock:
    """The wall clock where every device exists here, else the model clock."""
    return ModelClock(platform, bundle.kernel) if platform.virtual else WallClock()


def compare(
    request: Request,
    registry: Registry,
    progress: Progress | None = None,
    command: tuple[str, ...] = (),
    processes: Processes | None = None,
) -> Comparison:
    """Run every row and return them all; a row that fails says so and the others go on.

    Where there are ``processes``, this one is rank 0, which trains rows that shard by features with
    the others (:func:`serve`), and all else alone.

    Freed memory stays in the process from then on, for all rows alike (:func:`keep_pages`); none
    begins with what another has left.

    Raises ``UsageError`` for a request that cannot mean anything, ``PluginError`` for a model that
    cannot be trained, and ``IncompatibleParts`` when no row's parts fit together.
    """
    keep_pages()
    progress = progress or SilentProgress()
    rows = plan_rows(request, registry)
    check_options(rows, request.options, registry)
    model = registry.model(request.workload.model)
    setting = make_setting(request, model)
    refusals: dict[Row, str] = {}
    for row in rows:
        bundle = assemble(registry, row.parts, options_for(row, request.options, registry))
        reason = bundle.refusal(setting) or _refuse_processes(bundle, setting, processes)
        if reason is not None:
            refusals[row] = f"{row.label}: {reason}"
    swapped = [row for row in rows if row.swapped]
    for group in (list(rows), swapped):
        if group and all(row in refusals for row in group):
            raise IncompatibleParts(refusals[group[0]])

    comparer = _Comparer(request, registry, setting, progress, processes)
    results: list[RunResult] = []
    for row in rows:
        for repeat in range(request.repeats):
            if row in refusals:
                results.append(_empty(row, repeat, "skipped", refusals[row]))
            else:
                results.append(comparer.run(row, repeat))
    dataset = request.dataset
    return Comparison(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        gnnbench=gnnbench.__version__,
        command=command,
        machine=describe_machine(),
        dataset={
            "name": dataset.name,
            "num_vertices": dataset.graph.num_vertices,
            "num_edges": dataset.graph.num_edges,
            "edge_convention": EDGE_CONVENTION,
            "num_features": dataset.num_features,
            "num_classes": dataset.num_classes,
            "digest": dataset.digest(),
            "origin": dataset.origin,
            "notes": dataset.notes,
        },
        workload=request.workload,
        model_title=model.title,
        platform=request.platform.name,
        platform_description=request.platform.description,
        modelled=request.platform.virtual,
        runs=tuple(results),
    )


def serve(request: Request, registry: Registry, processes: Processes) -> None:
    """What a rank other than 0 does for a comparison: train its worker of the rows that shard by
    features, each when rank 0 gets there.

    Raises ``PeerLost`` when the others are gone.
    """
    keep_pages()
    rows = plan_rows(request, registry)
    setting = make_setting(request, registry.model(request.workload.model))
    for row in rows:
        for repeat in range(request.repeats):
            bundle = assemble(registry, row.parts, options_for(row, request.options, registry))
            reason = bundle.refusal(setting) or _refuse_processes(bundle, setting, processes)
            if reason is not None or not _needs_all(bundle):
                continue
            processes.meet(_meeting(row, repeat))
            try:
                train(bundle, setting, clock_for(bundle, setting.platform), collectives=processes)
            except PeerLost:
                raise
            except GnnbenchError:
                # Memories and parts are the same in every rank: rank 0 has met it too, and says so.
                continue


def _needs_all(bundle: Bundle) -> bool:
    """Whether every process has a part in training a bundle."""
    by_features = bundle.placement.aggregates_by == "features"
    return by_features and bundle.sampler.mode == "full-graph"


def _refuse_processes(bundle: Bundle, setting: Setting, processes: Processes | None) -> str | None:
    if processes is None or not _needs_all(bundle):
        return None
    return processes.refuses(len(bundle.placement.trainers(setting.platform)))


def _meeting(row: Row, repeat: int) -> str:
    return f"{row.mode} {row.label} {repeat}"


def describe_machine() -> dict[str, str | int | float | None]:
    """The machine that computed the numerics."""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=True) or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": gpu,
        "os": f"{host_os.system()} {host_os.release()}",
        "python": host_os.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "freed_pages": "kept" if are_kept() else "as the C library does",
    }


def _cpu_name() -> str:
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return host_os.processor() or host_os.machine()


def _empty(row: Row, repeat: int, status: Status, reason: str) -> RunResult:
    return RunResult(
        strategy=row.strategy,
        label=row.label,
        mode=row.mode,
        parts=row.parts,
        repeat=repeat,
        status=status,
        reason=reason,
    )


class _Comparer:
    """Runs rows; keeps the reference losses, which many rows share."""

    def __init__(
        self,
        request: Request,
        registry: Registry,
        setting: Setting,
        progress: Progress,
        processes: Processes | None = None,
    ) -> None:
        self._request = request
        self._registry = registry
        self._setting = setting
        self._progress = progress
        self._processes = processes
        self._references: dict[tuple[str, tuple[tuple[str, str], ...]], ReferenceLosses] = {}

    def run(self, row: Row, repeat: int) -> RunResult:
        checked = self._request.check and repeat == 0
        epochs = self._request.workload.epochs
        self._progress.begin(row.label, epochs * (2 if checked else 1))
        trim_heap()
        status: Status
        try:
            result = self._train(row, repeat, checked)
        except DeviceOutOfMemory as error:
            result = _empty(row, repeat, "out-of-memory", str(error))
        except MissingDependency as error:
            result = _empty(row, repeat, "skipped", str(error))
        except PeerLost:
            raise
        except StageFailed as error:
            if os.environ.get("GNNBENCH_DEBUG"):
                raise
            result = _empty(row, repeat, "error", str(error))
        except GnnbenchError as error:
            result = _empty(row, repeat, "error", str(error))
        except Exception as error:
            # The others wait for this rank, which cannot go on with the next row.
            if os.environ.get("GNNBENCH_DEBUG") or self._processes is not None:
                raise
            reason = f"{type(error).__name__}: {error}; run with --debug for the traceback."
            result = _empty(row, repeat, "error", reason)
        status = result.status
        self._progress.end(row.label, status)
        return result

    def _train(self, row: Row, repeat: int, checked: bool) -> RunResult:
        request, setting = self._request, self._setting
        options = options_for(row, request.options, self._registry)
        bundle = assemble(self._registry, row.parts, options)
        clock = clock_for(bundle, setting.platform)
        design_s = 0.0
        if bundle.wants_design_phase(setting.platform):
            began_s = time.perf_counter()
            setting = self._design(row, bundle, options)
            design_s = time.perf_counter() - began_s
        evaluator = Evaluator(setting, bundle.kernel, bundle.memory)
        digests: list[Digest] = []
        reached: list[float] = []
        last: list[GNN] = []

        def watch(epoch: EpochTrace, model: GNN) -> bool:
            digests.append(digest(epoch, clock.provenance))
            self._progress.advance(row.label)
            last[:] = [model]
            if request.target_accuracy is not None and not reached:
                accuracy = evaluator.evaluate(model)[1].get("val", 0.0)
                if accuracy >= request.target_accuracy:
                    reached.append(sum(item.epoch_s for item in digests))
            return False

        other_maths = bundle.other_maths(setting.platform)
        checkpoints = Checkpoints() if checked and not other_maths else None
        processes = self._processes if _needs_all(bundle) else None
        if processes is not None:
            processes.meet(_meeting(row, repeat))
        # Evaluation between the epochs takes no memory beside training's; alone it has its own.
        lend = None if request.target_accuracy is None else evaluator.borrow
        trace = train(bundle, setting, clock, watch, checkpoints, processes, lend)
        trace = replace(trace, preprocessing_s=trace.preprocessing_s + design_s)
        final_loss, accuracy = evaluator.evaluate(last[0])
        evaluator.give_back()
        metrics, stages = summarise(
            trace,
            digests,
            clock.provenance,
            setting.platform.host.name,
            reached[0] if reached else None,
            setting.platform.devices,
        )
        equivalence = None
        if checkpoints is not None:
            equivalence = self._compare_losses(row, bundle, options, checkpoints, trace, final_loss)
        notes = [*trace.notes, *note_predictions(bundle, metrics["epoch_time"].value)]
        if other_maths:
            notes.append(
                f"not held equal to the reference: the maths differ from {row.mode} training by "
                f"design ({other_maths}); compare its losses and accuracy"
            )
        if request.target_accuracy is not None and not reached:
            notes.append(
                f"validation accuracy {request.target_accuracy:g} was not reached in "
                f"{len(trace.epochs)} epochs"
            )
        return RunResult(
            strategy=row.strategy,
            label=row.label,
            mode=row.mode,
            parts=row.parts,
            repeat=repeat,
            status="done",
            loss=tuple(epoch.loss for epoch in trace.epochs),
            accuracy=accuracy,
            equivalence=equivalence,
            other_maths=other_maths,
            metrics=metrics,
            stages=stages,
            timeline=digests[-1].timeline,
            notes=tuple(notes),
        )

    def _design(
        self, row: Row, bundle: Bundle, options: Mapping[PartKind, Mapping[str, str]]
    ) -> Setting:
        """The setting with what a design phase of the row's parts measures, without prefetching."""
        setting, workload = self._setting, self._setting.workload
        unlike: dict[PartKind, dict[str, str]] = {k: dict(v) for k, v in options.items()}
        if "stages" in option_fields(type(bundle.communication)):
            unlike["communication"]["stages"] = "0"
        projected = projected_layers(bundle, setting)
        layers = build(workload, projected, setting.model).shapes

        def train_few(few: Setting) -> list[EpochTrace]:
            fresh = assemble(self._registry, row.parts, unlike)
            epochs: list[EpochTrace] = []

            def keep(epoch: EpochTrace, _: GNN) -> bool:
                epochs.append(epoch)
                return False

            train(fresh, few, WallClock(), keep)
            return epochs

        designed = with_design_phase(
            replace(setting, layers=layers),
            train_few,
            alone=bundle.prefetch_stages(setting.platform) > 0,
        )
        return replace(setting, platform=designed.platform)

    def _compare_losses(
        self,
        row: Row,
        bundle: Bundle,
        options: Mapping[PartKind, Mapping[str, str]],
        checkpoints: Checkpoints,
        trace: Trace,
        final_loss: float,
    ) -> Equivalence:
        """Hold a run against the reference; where they part, once more beside the run's states."""
        tolerance = TOLERANCE[self._setting.workload.dtype]
        error = loss_error(trace, final_loss, self._reference(row, bundle, options))
        if error > tolerance:
            followed = self._reference(row, bundle, options, checkpoints.followed())
            error = loss_error(trace, final_loss, followed)
        return Equivalence(row.mode, error, tolerance)

    def _reference(
        self,
        row: Row,
        bundle: Bundle,
        options: Mapping[PartKind, Mapping[str, str]],
        followed: Checkpoints | None = None,
    ) -> ReferenceLosses:
        """Plain single-device training on the same units, on the host, without a capacity.

        A sampler that draws the same neighbours however a round is split is followed through one
        large batch; one that does not is replayed on a single device. Full-graph strategies are
        held against the whole graph as one unit. One reference run serves all rows it fits; where
        losses part by more than the tolerance, it runs once more beside the row's own states, so
        that rounding that grew over many updates is told from different maths.
        """
        plain = self._registry.strategy("reference").bundles[row.mode]
        sampler_options: dict[str, str] = {}
        if isinstance(bundle.sampler, MiniBatchSampler):
            plain = replace(plain, sampler=row.parts.sampler)
            sampler_options = dict(options["sampler"])
        key = (plain.sampler, tuple(sorted(sampler_options.items())))
        if followed is not None or key not in self._references:
            host = replace(
                self._setting.platform.host, virtual=False, memory_bytes=2**62, torch_device="cpu"
            )
            platform = Platform("reference", "this machine's processor", host, (), ())
            setting = replace(self._setting, platform=platform)
            reference = assemble(self._registry, plain, {"sampler": sampler_options})
            models: list[GNN] = []

            def watch(epoch: EpochTrace, model: GNN) -> bool:
                models[:] = [model]
                self._progress.advance(row.label)
                return False

            trace = train(reference, setting, WallClock(), watch, followed)
            evaluator = Evaluator(setting, reference.kernel, reference.memory)
            final, _ = evaluator.evaluate(models[0])
            losses = ReferenceLosses(tuple(epoch.round_losses for epoch in trace.epochs), final)
            if followed is not None:
                return losses
            self._references[key] = losses
        else:
            for _ in range(self._request.workload.epochs):
                self._progress.advance(row.label)
        return self._references[key]


def note_predictions(bundle: Bundle, achieved_s: float) -> tuple[str, ...]:
    """A sentence for each epoch that the placement predicts, beside the achieved one, and on what
    it rests."""
    return tuple(
        f"an epoch predicted/achieved: {format_si(predicted_s, 's')}/{format_si(achieved_s, 's')}, "
        f"{predicted_s / achieved_s - 1.0:+.0%}, {rests_on}"
        for rests_on, predicted_s in bundle.placement.predicted_epochs().items()
    )


def loss_error(trace: Trace, final_loss: float, reference: ReferenceLosses) -> float:
    """The largest relative difference of round losses and of the loss after the last update.

    Infinite when a loss of either run is not a number, for then nothing was shown.
    """
    pairs = [(final_loss, reference.final)]
    for epoch, expected in zip(trace.epochs, reference.rounds, strict=True):
        pairs.extend(zip(epoch.round_losses, expected, strict=True))
    if not all(math.isfinite(loss) for pair in pairs for loss in pair):
        return math.inf
    return max(abs(ours - theirs) / max(abs(theirs), 1e-12) for ours, theirs in pairs)
