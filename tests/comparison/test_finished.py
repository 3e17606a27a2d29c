"""Finished runs of a comparison that was stopped are used again by the same comparison alone."""

from dataclasses import replace

import pytest

from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.comparison import Request, plan_rows
from gnnbench.comparison.finished import FinishedRuns
from gnnbench.host.resume import keeping
from tests.report.example_comparison import make_run

REQUEST = Request(("reference",), make_dataset(), make_workload(), make_platform())
OTHERS = {
    "data": ("other digest", REQUEST),
    "workload": ("digest", replace(REQUEST, workload=replace(REQUEST.workload, seed=99))),
    "platform": ("digest", replace(REQUEST, platform=replace(REQUEST.platform, name="other"))),
    "options": ("digest", replace(REQUEST, options={"memory": {"device_bytes": "1GB"}})),
    "trials": ("digest", replace(REQUEST, check=not REQUEST.check)),
}


@pytest.mark.parametrize("changed", OTHERS)
def test_a_run_of_another_request_is_not_used(registry, changed, tmp_path):
    rows = plan_rows(REQUEST, registry)[:1]
    digest, other = OTHERS[changed]
    with keeping(tmp_path / "job", again=False):
        FinishedRuns(REQUEST, "digest", rows).keep(rows[0], 0, make_run("reference"))
        assert list(FinishedRuns(REQUEST, "digest", rows).runs) == [(rows[0], 0)]
        assert not FinishedRuns(other, digest, rows).runs
