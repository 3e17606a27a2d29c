"""The wall clock: the time that this machine took for a span."""

from __future__ import annotations

from gnnbench.records import Provenance, Stage, Work


class WallClock:
    """The clock for platforms with only real devices, on this machine."""

    provenance: Provenance = "measured"

    def seconds(self, work: Work, place: str, wall_s: float, stage: Stage | None = None) -> float:
        """Return the measured duration, whatever the work."""
        return wall_s
