"""Reads an epoch's program by its sizes alone: what it takes on a platform, moves and holds."""

from __future__ import annotations

from dataclasses import dataclass

from gnnbench.clock.model import ModelClock
from gnnbench.engine.execute import take_items
from gnnbench.engine.recorder import Recorder
from gnnbench.lowering.base import Lowering
from gnnbench.metrics import lay_out
from gnnbench.program import Ledger
from gnnbench.records import EpochTrace, Scheduled


@dataclass(frozen=True, slots=True, eq=False)
class DryRun:
    """An epoch that nobody trained, as the model of the platform has it: its steps and bytes, and
    when each step runs."""

    epoch: EpochTrace
    timeline: tuple[Scheduled, ...]

    @property
    def epoch_s(self) -> float:
        return max((each.end_s for each in self.timeline), default=0.0)


def run_dry(lowering: Lowering, ledger: Ledger) -> DryRun:
    """The first epoch of a lowering that has placed its tensors in ``ledger``, which has the peaks
    afterwards."""
    recorder = Recorder(ModelClock(lowering.platform, lowering.bundle.kernel))
    recorder.start_epoch(0)
    take_items(lowering.run_epoch(0), recorder, ledger, None)
    epoch = recorder.end_epoch(0.0, (), 0)
    return DryRun(epoch, lay_out(epoch, "modelled"))
