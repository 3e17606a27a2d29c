"""Runs of a comparison that were finished before it was stopped, and are not run again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from gnnbench.comparison.request import PlannedRow, Request, Row
from gnnbench.host import resume
from gnnbench.jobs.groups import Trials
from gnnbench.records import RunResult


class FinishedRuns:
    """The finished runs of a request over a data set of ``digest``, by row and repeat.

    ``lots`` is the number of lots of rows in turns that they were in.
    """

    def __init__(self, request: Request, digest: str, rows: Sequence[Row]) -> None:
        trials = [getattr(request, each.name) for each in fields(Trials)]
        decides = (digest, request.workload, request.platform, request.options, trials)
        self._key = hashlib.sha256(repr(decides).encode()).hexdigest()
        self._measured = not request.platform.virtual
        self.runs: dict[tuple[Row, int], RunResult] = {
            (row, repeat): found
            for row in rows
            for repeat in range(request.repeats)
            if (found := resume.recall(self._key, _identify(row), str(repeat))) is not None
        }
        self.lots = max((run.lot for run in self.runs.values()), default=0)

    def keep(self, row: Row, repeat: int, run: RunResult) -> None:
        """Keep a run that has come to its end; one that failed is run again."""
        if run.status != "error":
            resume.keep(run, self._key, _identify(row), str(repeat))

    def note_turns(
        self, results: Mapping[tuple[Row, int], RunResult]
    ) -> dict[tuple[Row, int], RunResult]:
        """Return the measured runs with a note if other runs of their repeat took no turns."""
        if not self._measured:
            return {}
        noted = {}
        for (row, repeat), run in results.items():
            before = (row, repeat) in self.runs
            apart = [
                other.label
                for (other, number), its in results.items()
                if number == repeat and ((other, number) in self.runs) != before
                if its.status == "done"
            ]
            if apart and run.status == "done":
                note = (
                    f"measured {'before' if before else 'after'} the comparison was stopped and "
                    f"resumed, so not in turns with {', '.join(apart)}"
                )
                noted[row, repeat] = replace(run, notes=(*run.notes, note))
        return noted


def _identify(row: Row) -> str:
    return repr(row) if isinstance(row, PlannedRow) else row.identify()
