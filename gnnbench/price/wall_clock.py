"""The wall clock: what this machine took for a span."""

from __future__ import annotations

from gnnbench.records import Provenance, Work


class WallClock:
    """For platforms whose devices all exist here."""

    provenance: Provenance = "measured"

    def seconds(self, work: Work, place: str, wall_s: float) -> float:
        """The measured duration, whatever the work."""
        return wall_s
