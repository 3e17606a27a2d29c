"""A dry run of a bundle's training, step by step without computing: spans, bytes and memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from gnnbench.errors import IncompatiblePartsError
from gnnbench.lowering import Lowering, choose_lowering
from gnnbench.lowering.base import collect_idle, collect_notes, collect_predictions
from gnnbench.lowering.memory import masks_gradients, open_ledger
from gnnbench.models import build
from gnnbench.models.products import projected_layers
from gnnbench.parts import Bundle, Setting
from gnnbench.price.folds import Digest, digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.price.processes import hold_processes
from gnnbench.program import Ledger
from gnnbench.program.reader import take_items
from gnnbench.program.recorder import Recorder
from gnnbench.records import EpochTrace, Trace


class DryRun:
    """The training of :class:`gnnbench.run.Training`, by the sizes of its steps alone.

    Both read the same program. Partitions are made and mini-batches drawn, but no row is loaded and
    nothing is multiplied. Times are those of the model clock; there are no losses.

    Raises ``IncompatiblePartsError`` when the parts do not fit together, and
    ``DeviceOutOfMemoryError`` at the allocation that would exceed a capacity. ``lends`` has the
    meaning that it has in training.
    """

    def __init__(self, bundle: Bundle, setting: Setting, *, lends: bool = False) -> None:
        reason = bundle.refusal(setting)
        if reason is not None:
            raise IncompatiblePartsError(reason)
        bundle = bundle.begin(setting)
        projected = projected_layers(bundle, setting)
        model = build(
            setting.workload,
            projected,
            setting.model,
            masked=masks_gradients(bundle),
            scaled=bundle.scales_edges,
        )
        self._lowering = choose_lowering(bundle)(bundle, setting, model.stack)
        self._lowering.lends = lends
        self._ledger = open_ledger(bundle, setting.platform, self._lowering.trainers)
        self._recorder = Recorder(ModelClock(setting.platform, bundle.kernel, bundle.sampler))
        self._lowering.prepare(self._ledger)

    def run_epoch(self, epoch: int) -> EpochTrace:
        """Return the trace of one epoch; epochs follow each other from 0. Its loss is NaN."""
        return read_epoch(self._lowering, self._ledger, self._recorder, epoch)

    def run_epochs(self, count: int) -> Iterator[tuple[EpochTrace, Digest]]:
        """Yield the first ``count`` epochs, each with its timeline by the model clock.

        If all epochs are one program, the first stands for the others.
        """
        for number in range(count):
            if not (number and self._lowering.steady):
                epoch = self.run_epoch(number)
                found = digest(epoch, "modelled", self._lowering.platform)
            yield replace(epoch, epoch=number), found

    def predicted_epochs(self) -> Mapping[str, float]:
        """Return the seconds of an epoch that the placement predicts, by the basis of each."""
        return collect_predictions(self._lowering)

    def finish(self, epochs: Sequence[EpochTrace]) -> Trace:
        """Return everything recorded, with the ``epochs`` that the caller has kept."""
        return Trace(
            epochs=tuple(epochs),
            peak_bytes=dict(self._ledger.peak_bytes),
            parameters={},
            preprocessing_s=0.0,
            notes=collect_notes(self._lowering),
            idle=collect_idle(self._lowering),
        )


def read_epoch(
    lowering: Lowering, ledger: Ledger, recorder: Recorder, epoch: int = 0
) -> EpochTrace:
    """Return the trace of one epoch; ``ledger`` has the tensors that stay for the whole run."""
    recorder.start_epoch(epoch)
    for device in lowering.workers:
        recorder.count_work(device.name, 0.0)
    items = lowering.run_epoch(epoch)
    if lowering.frame.in_processes:
        items = hold_processes(items, lowering)
    with _without_collection():
        take_items(items, recorder, ledger, None)
    seeds = lowering.count_seeds()
    losses = [float("nan")] * len(seeds)
    return recorder.end_epoch(float("nan"), losses, sum(seeds))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the collection of garbage in the body, whose many records are in no cycle."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def price_epoch(lowering: Lowering, ledger: Ledger) -> tuple[EpochTrace, Digest]:
    """Return the first epoch, and its timeline by the model clock."""
    clock = ModelClock(lowering.platform, lowering.bundle.kernel, lowering.bundle.sampler)
    epoch = read_epoch(lowering, ledger, Recorder(clock))
    return epoch, digest(epoch, "modelled", lowering.platform)
