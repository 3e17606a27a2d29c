"""A clock whose seconds are known beforehand."""

from __future__ import annotations


class CountingClock:
    """A second for every edge."""

    provenance = "modelled"

    def seconds(self, work, place, wall_s):
        return float(work.edges)
