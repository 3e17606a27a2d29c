"""Plans as JSON: their tables, and their runs as ``compare`` writes them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from gnnbench.comparison.planning import PlannedJob
from gnnbench.records import RunResult, Table
from gnnbench.report.results.schema import describe_runs
from gnnbench.report.results.tables import make_document


def make_plan_document(
    command: Sequence[str], job: PlannedJob, runs: Sequence[RunResult], tables: Sequence[Table]
) -> dict[str, JsonValue]:
    """Return the whole plan as JSON."""
    workload = job.workload
    return {
        "command": list(command),
        "strategy": job.row.strategy,
        "graph": job.graph_name,
        "workload": {
            "model": workload.model,
            "dims": list(workload.dims),
            "seed": workload.seed,
        },
        "platform": job.machine.name,
        "runs": list(describe_runs(runs)),
        **make_document(tables),
    }
