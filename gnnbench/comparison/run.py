"""The steps of a row of parts: opened, trained one epoch at a time, checked and summarised."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Literal

from gnnbench.comparison.ahead import refuse_work_ahead
from gnnbench.comparison.examination import Examination
from gnnbench.comparison.frame import SKIPS, RunState, Scene, empty_result
from gnnbench.comparison.machine import Throttled
from gnnbench.comparison.orders import Order, tell_faults
from gnnbench.comparison.request import PlannedRow
from gnnbench.comparison.rows import options_for
from gnnbench.errors import PluginError
from gnnbench.jobs.groups import CHECKED_UPDATES
from gnnbench.machines.machine import Platform
from gnnbench.models import GNN, build
from gnnbench.models.products import projected_layers
from gnnbench.parts import (
    UNIFORM,
    UNSHUFFLED,
    Bundle,
    MiniBatchSampler,
    Part,
    Setting,
    option_fields,
)
from gnnbench.plugins import assemble
from gnnbench.price.clocks import clock_for
from gnnbench.price.design_phase import with_design_phase
from gnnbench.price.folds import Digest, digest
from gnnbench.price.metrics import summarise, with_error
from gnnbench.price.model_error import find_kind, find_work_path
from gnnbench.price.wall_clock import WallClock
from gnnbench.records import (
    EpochTrace,
    EpochWork,
    PartKind,
    RunResult,
    Status,
    Trace,
)
from gnnbench.run import Evidence, Training, train
from gnnbench.run.collectives import Processes
from gnnbench.run.evaluate import Evaluator
from gnnbench.statistics import count_warmup
from gnnbench.units import format_si

#: How much longer than the others a first epoch must be for a note: in the first row of a process,
#: a third of it is one-time work of the libraries.
LONG_FIRST_S = 1.0
#: The name of a full graph's sampling.
EVERY_NEIGHBOUR = "every neighbour"
#: The package of the bundled parts.
BUNDLED = "gnnbench_plugins"


def needs_all(bundle: Bundle, setting: Setting) -> bool:
    """Return whether all processes take part in training; one trainer needs only rank 0."""
    return len(bundle.placement.trainers(setting.platform)) > 1


class PartsSteps:
    """The steps of a row of parts; see :class:`gnnbench.comparison.frame.RowSteps`."""

    skips = SKIPS

    def __init__(self, state: RunState, row: PlannedRow) -> None:
        self._state, self._row, self._repeat = state, row, state.repeat
        self._scene = state.scene
        #: The ranks that train a share of it, while they do.
        self._led: Processes | None = None
        self._digests: list[Digest] = []
        self._epochs: list[EpochTrace] = []

    @property
    def measured(self) -> bool:
        """Whether its times are measured."""
        return self._clock.provenance == "measured"

    @property
    def alive(self) -> bool:
        """Whether it is open."""
        return "_training" in self.__dict__

    @property
    def held_bytes(self) -> int:
        """The bytes that it holds of this machine's memory, modelled devices included."""
        return self._training.held_bytes

    def interrupt(self) -> None:
        """Do nothing: what was trained before stays valid."""

    def make_result(self, status: Status, reason: str) -> RunResult:
        """Return the result of a run that is not done."""
        return empty_result(self._row, self._repeat, status, reason)

    def _lead(
        self, do: Literal["open", "train", "finish", "leave"], platform: Platform | None = None
    ) -> None:
        """Have the other ranks do what this one is about to do, if they take part in the row."""
        if self._led is not None:
            self._led.tell(Order(do, self._row, self._repeat, platform))

    # ------------------------------------------------------------------ the three steps

    def open(self) -> None:
        """Assemble the parts and place the tensors that stay for the whole run."""
        scene, row, state = self._scene, self._row, self._state
        request, setting = scene.request, state.setting
        self._options = options_for(row, request.options, scene.registry)
        self._bundle = assemble(scene.registry, row.parts, self._options)
        self._clock = clock_for(self._bundle, setting)
        if self._bundle.wants_design_phase(setting.platform):
            began_s = time.perf_counter()
            setting = state.setting = run_design_phase(scene, row, self._bundle, setting)
            state.left_work.outside_s += time.perf_counter() - began_s
        self._other_maths = self._bundle.other_maths(setting.platform)
        processes = scene.processes if needs_all(self._bundle, setting) else None
        self._examination: Examination | None = None
        if request.check:
            held = 0 if self._other_maths else request.checked_updates or CHECKED_UPDATES
            self._examination = Examination(
                scene.registry,
                row,
                self._bundle,
                setting,
                self._options,
                scene.shared,
                held,
                partial=processes is not None,
            )
        # One kernel computes all rows' accuracies, and no row supplies it.
        plain = scene.registry.strategy("reference").bundles[row.mode]
        kernel = assemble(scene.registry, plain, {}).kernel
        self._evaluator = Evaluator(setting, kernel, self._bundle.memory)
        # Evaluation between epochs borrows training's memory; evaluation afterwards has its own.
        lends = request.target_accuracy is not None
        self._led = processes
        self._lead("open", setting.platform)
        evidence = None if self._examination is None else self._examination.evidence
        self._training = Training(
            self._bundle, setting, self._clock, evidence, processes, lends=lends
        )
        idle = self._training.idle_memory()
        if lends and idle is not None:
            self._evaluator.borrow(idle)

    def train(self, number: int) -> float:
        """Train an epoch, and return its seconds."""
        epoch, found = self._train(number)
        if number:
            self._digests[-1] = replace(self._digests[-1], timeline=())
        self._digests.append(found)
        self._epochs.append(epoch)
        return found.epoch_s

    def look(self) -> None:
        """Check the updates of the epoch that has just ended."""
        epoch = self._epochs[-1]
        if self._examination is not None:
            self._examination.look(epoch)
        # Spans are in the digest's timeline, of which the last one is kept.
        self._epochs[-1] = replace(epoch, spans=())

    def evaluate(self, *, last: bool) -> Mapping[str, float]:
        """Return the accuracies of the model now; after the last epoch give the memory back."""
        accuracy = self._evaluator.evaluate(self._training.model)[1]
        if last:
            self._evaluator.give_back()
        return accuracy

    def close(self) -> RunResult:
        """Check the results, and summarise them."""
        row, state, setting = self._row, self._state, self._state.setting
        measured = self.measured
        warmup = count_warmup([item.epoch_s for item in self._digests]) if measured else 0
        before_s = self._training.preprocessing_s + state.left_work.outside_s
        if measured and (fault := state.left_work.fault):
            raise PluginError(f"{row.label}: {fault}")
        checked = [*self._epochs, *self._look_again()]
        if measured and self._led is None and row.mode == "mini-batch":
            ahead_s = before_s + state.left_work.beside_s
            refuse_work_ahead(row.label, self._digests, warmup, ahead_s, self._train_unseen)
        self._lead("finish")
        trace = self._training.finish(self._epochs)
        if self._led is not None and self._examination is not None:
            tell_faults(self._examination.evidence, self._led)
        self._led = None
        trace = replace(trace, preprocessing_s=before_s)
        metrics, stages = summarise(
            trace,
            self._digests,
            self._clock.provenance,
            [host.name for host in setting.platform.hosts],
            state.reached,
            warmup,
        )
        evidence = None if self._examination is None else self._examination.evidence
        work = state_work(self._bundle, setting, trace, evidence, modelled=not measured)
        path = find_work_path(work, row.parts.kernel, row.mode)
        return replace(
            self.make_result("done", ""),
            loss=tuple(epoch.loss for epoch in trace.epochs[: setting.workload.epochs]),
            accuracy=state.accuracy,
            equivalence=None
            if self._examination is None
            else self._examination.conclude(checked, work.sampling),
            other_maths=self._other_maths,
            work=work,
            metrics=state.paces.state(with_error(metrics, path), warmup),
            stages=stages,
            timeline=self._digests[-1].timeline,
            notes=tuple(self._note(trace, metrics["epoch_time"].value)),
            idle=trace.idle,
            stated=() if measured else name_stated(self._bundle),
            target_accuracy=self._scene.request.target_accuracy,
        )

    # ------------------------------------------------------------------ what is found out

    def _look_again(self) -> Sequence[EpochTrace]:
        """Train one more epoch that counts nowhere, and keep one of its updates.

        This is done if epochs were timed after the workload's own. A part that did less work in
        those does less in this one too.
        """
        number = len(self._epochs)
        if self._examination is None or number <= self._state.epochs:
            return ()
        self._examination.evidence.keep_later(number)
        return (self._train_unseen(number)[0],)

    def _train(self, number: int) -> tuple[EpochTrace, Digest]:
        """Train the epoch with this number, in all ranks."""
        self._lead("train")
        epoch = self._training.run_epoch(number)
        self._state.restore()
        return epoch, digest(epoch, self._clock.provenance, self._state.setting.platform)

    def _train_unseen(self, number: int) -> tuple[EpochTrace, Digest]:
        """Train an epoch that counts nowhere, and look at its updates."""
        epoch, found = self._train(number)
        if self._examination is not None:
            self._examination.look(epoch)
        return epoch, found

    def _note(self, trace: Trace, epoch_s: float) -> list[str]:
        notes = [*trace.notes, *note_predictions(self._training.predicted_epochs(), epoch_s)]
        if self._other_maths:
            notes.append(
                f"not held equal to the reference: the maths differ from {self._row.mode} training "
                f"by design ({self._other_maths}); compare its losses and accuracy"
            )
        if self._examination is not None:
            notes += self._examination.notes
        if self.measured:
            notes += note_measured(self._digests[0].epoch_s - epoch_s, self._state.throttled)
        return [*notes, *self._state.note_target()]

    def release(self) -> None:
        """Release everything that was opened, in all ranks."""
        self._lead("leave")
        self._led = None
        for name in ("_training", "_evaluator", "_examination", "_bundle"):
            self.__dict__.pop(name, None)
        self._digests, self._epochs = [], []


def run_design_phase(scene: Scene, row: PlannedRow, bundle: Bundle, setting: Setting) -> Setting:
    """Return the setting with the results of a design phase of the row, without prefetching."""
    options = options_for(row, scene.request.options, scene.registry)
    unlike: dict[PartKind, dict[str, str]] = {kind: dict(own) for kind, own in options.items()}
    if "stages" in option_fields(type(bundle.communication)):
        unlike["communication"]["stages"] = "0"
    projected = projected_layers(bundle, setting)
    scaled = bundle.scales_edges
    layers = build(setting.workload, projected, setting.model, scaled=scaled).shapes

    def train_few(few: Setting) -> list[EpochTrace]:
        fresh = assemble(scene.registry, row.parts, unlike)
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


def name_sampling(bundle: Bundle, setting: Setting) -> str:
    """Name the sampling law of a bundle in a setting.

    If a law cannot be checked against the samples, the sampler's name is added, so that no other
    row shares the law by words alone. Bundled samplers of one law are taken at their word.
    """
    sampler = bundle.sampler
    if not isinstance(sampler, MiniBatchSampler):
        return EVERY_NEIGHBOUR
    law = sampler.sampling(setting.workload)
    known = UNIFORM in law or is_bundled(sampler)
    return law if known else f"{law}, as sampler {sampler.name!r} states"


def name_stated(bundle: Bundle) -> tuple[str, ...]:
    """Return the parts that state their own modelled costs, not measured here.

    They are kernels and samplers that are not bundled.
    """
    kernel, sampler = bundle.kernel, bundle.sampler
    found = [] if is_bundled(kernel) else [f"kernel {kernel.name}"]
    if isinstance(sampler, MiniBatchSampler) and not is_bundled(sampler):
        found.append(f"sampler {sampler.name}")
    return tuple(found)


def is_bundled(part: Part) -> bool:
    """Return whether a part is bundled with gnnbench."""
    return type(part).__module__.partition(".")[0] == BUNDLED


def state_work(
    bundle: Bundle,
    setting: Setting,
    trace: Trace,
    evidence: Evidence | None = None,
    *,
    modelled: bool,
) -> EpochWork:
    """Return the work of a run's epochs: updates, seeds, edges, and the devices that worked.

    A ``modelled`` run also has the error by epochs measured on its platform.
    """
    sampling = name_sampling(bundle, setting)
    if evidence is not None and evidence.shuffling.missing:
        sampling = f"{sampling}, {UNSHUFFLED}"
    epochs = trace.epochs
    worked = {name for e in epochs for name, done in e.work_by_device.items() if done}
    counts = [(len(epoch.round_losses), epoch.seeds) for epoch in epochs]
    different = tuple(sorted(set(counts)))
    # The number of epochs that are only timed depends on the time, so they are left out.
    updates, seeds = zip(*counts[: setting.workload.epochs], strict=True)
    measured = setting.platform.calibrated(bundle.kernel.name, bundle.mode)
    return EpochWork(
        updates=round(mean(updates)),
        seeds=round(mean(seeds)),
        edges=round(sum(epoch.edges for epoch in epochs) / len(epochs)),
        devices=tuple(d.name for d in setting.platform.devices if d.name in worked),
        sampling=sampling,
        kind=find_kind(setting.platform, worked),
        different=different if len(different) > 1 else (),
        own_error=measured.own_error if modelled else None,
    )


def note_measured(first_s: float, throttled: Throttled) -> list[str]:
    """Return the notes on measured epochs.

    They concern a first epoch that took ``first_s`` longer, and turns throttled by a CPU quota.
    """
    notes = [throttled.note()] if throttled.note() else []
    if first_s > LONG_FIRST_S:
        notes.append(
            f"its first epoch took {format_si(first_s, 's')} more than the others, which no "
            f"figure has; what is prepared once belongs before it, where it is timed"
        )
    return notes


def note_predictions(predicted: Mapping[str, float], achieved_s: float) -> tuple[str, ...]:
    """Return a sentence for each predicted epoch: prediction, achieved time, and its basis."""
    return tuple(
        f"an epoch predicted/achieved: {format_si(predicted_s, 's')}/{format_si(achieved_s, 's')}, "
        f"{predicted_s / achieved_s - 1.0:+.0%}, {rests_on}"
        for rests_on, predicted_s in predicted.items()
    )
