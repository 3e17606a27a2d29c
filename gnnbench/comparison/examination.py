"""Checks a run against plain training: a little after every epoch, the rest when the run ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import psutil

from gnnbench.comparison.equality import Judgement, Reference
from gnnbench.comparison.plain import PlainTraining, Shared
from gnnbench.comparison.process_state import RandomStreams
from gnnbench.comparison.request import PlannedRow
from gnnbench.host.progress import doing
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.records import EpochTrace, Equivalence, PartKind
from gnnbench.run import Evidence
from gnnbench.run.processors import host_threads
from gnnbench.units import format_si


class Plain(NamedTuple):
    """The reference for updates, and why it cannot compute whole ones; empty if it can."""

    reference: Reference
    too_large: str


class Examination:
    """The checks of one run against plain training.

    ``options`` are the options of the row's parts. ``partial`` says that other ranks train a share
    of the run. ``updates`` of the run are computed again; none if the maths differ by design.
    """

    def __init__(
        self,
        registry: Registry,
        row: PlannedRow,
        bundle: Bundle,
        setting: Setting,
        options: Mapping[PartKind, Mapping[str, str]],
        shared: Shared,
        updates: int,
        *,
        partial: bool,
    ) -> None:
        self._registry, self._row, self._shared = registry, row, shared
        self._bundle, self._setting, self._options = bundle, setting, options
        self._updates, self._partial = updates, partial
        self._plain: Plain | None = None
        self._streams = RandomStreams()
        self.evidence = Evidence(setting, updates)
        self._unchecked = ""

    @property
    def notes(self) -> list[str]:
        """Sentences on why the run was not checked, and on the share that was not looked at."""
        looked_at, rounds = self.evidence.looked_at, self.evidence.rounds
        found = [self._unchecked] if self._unchecked else []
        if looked_at < rounds:
            found.append(f"{looked_at:,} of its {rounds:,} updates were looked at, by chance")
        return found

    def look(self, epoch: EpochTrace) -> None:
        """Check the evidence of the epoch that has just ended, outside everything timed."""
        for update in self.evidence.take_looked_at():
            if self.evidence.fault is not None:
                return
            with self._streams.at_turn():
                plain = self._open_plain()
                with host_threads(1):  # too little work to share among threads
                    found = plain.reference.look(update, epoch.round_losses[update.round])
            self.evidence.fault = found.fault or None

    def conclude(self, epochs: Sequence[EpochTrace], sampling: str) -> Equivalence | None:
        """Check whole updates too, and return the findings; ``epochs`` are all trained epochs.

        Return None if the maths differ by design and nothing else is wrong, or if memory is too
        small to compute whole updates.
        """
        evidence, row = self.evidence, self._row
        evidence.audit_draws()
        looked_at = evidence.looked_at, evidence.rounds
        if evidence.fault is not None:
            return Equivalence(
                row.mode, float("inf"), evidence.fault, sampling, looked_at=looked_at
            )
        if not self._updates:
            return None
        plain = self._open_plain()
        if plain.too_large:
            self._unchecked = plain.too_large
            return None
        found: list[Judgement] = []
        with doing("computing updates again", len(evidence.updates)) as checking:
            for update in evidence.updates:
                loss = epochs[update.epoch].round_losses[update.round]
                found.append(plain.reference.judge(update, loss))
                checking.advance()
                if found[-1].fault:
                    break
        return Equivalence(
            row.mode,
            max((each.loss_error for each in found), default=0.0),
            next((each.fault for each in found if each.fault), ""),
            sampling,
            len(found),
            looked_at,
        )

    def _open_plain(self) -> Plain:
        """Return plain training with the run's sampler, opened at its first use."""
        if self._plain is not None:
            return self._plain
        row, setting = self._row, self._setting
        plain = self._registry.strategy("reference").bundles[row.mode]
        options: dict[PartKind, Mapping[str, str]] = {}
        if isinstance(self._bundle.sampler, MiniBatchSampler):
            plain = replace(plain, sampler=row.parts.sampler)
            options["sampler"] = self._options["sampler"]
        parts = assemble(self._registry, plain, options)
        drawer = parts.sampler if isinstance(parts.sampler, MiniBatchSampler) else None
        if drawer is not None:
            drawer.begin(setting)
        drawn_by = f"{row.mode} {plain.sampler} {options} {setting.workload.seed}"
        training = PlainTraining(
            setting, parts.kernel, drawer, drawn_by=drawn_by, shared=self._shared
        )
        free_bytes, too_large = psutil.virtual_memory().available, ""
        if row.mode == "full-graph" and drawer is None and training.held_bytes > free_bytes:
            too_large = (
                f"not held equal to the reference: plain training in float64 needs about "
                f"{format_si(training.held_bytes, 'B')}, and {format_si(free_bytes, 'B')} are free"
            )
        reference = Reference(setting, training, partial=self._partial)
        self._plain = Plain(reference, too_large)
        return self._plain
