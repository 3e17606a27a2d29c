"""Plans as JSON: their tables, and their runs as ``compare`` writes them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from gnnbench.records import RunResult, Table, Workload
from gnnbench.report.results.schema import describe_runs
from gnnbench.report.results.tables import make_document


def make_plan_document(
    command: Sequence[str],
    strategy: str,
    graph: str,
    workload: Workload,
    platform: str,
    runs: Sequence[RunResult],
    tables: Sequence[Table],
) -> dict[str, JsonValue]:
    """Return the whole plan as JSON; ``graph`` is its name for the graph."""
    return {
        "command": list(command),
        "strategy": strategy,
        "graph": graph,
        "workload": {
            "model": workload.model,
            "dims": list(workload.dims),
            "seed": workload.seed,
        },
        "platform": platform,
        "runs": list(describe_runs(runs)),
        **make_document(tables),
    }
