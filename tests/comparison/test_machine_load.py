"""What is said of other processes: their share of the processor, without this process's own."""

import pytest

from gnnbench.comparison.machine import MachineLoad


@pytest.mark.parametrize(
    ("own", "busy", "stolen", "said"),
    [
        (80.0, 85.0, 0.0, ""),
        (50.0, 80.0, 0.0, "other processes took 30% of the processor's time meanwhile"),
        (90.0, 92.0, 3.0, "the virtual machine's host took 3% of it away meanwhile"),
    ],
)
def test_own_work_is_nobody_else_s(own, busy, stolen, said, monkeypatch):
    """In seconds, of 100 that all cores had; all clocks had gone for a while before."""
    readings = iter([(7.0, 9.0, 1.0, 20.0), (7.0 + own, 9.0 + busy, 1.0 + stolen, 120.0)])
    monkeypatch.setattr(MachineLoad, "_read", staticmethod(lambda: next(readings)))
    assert MachineLoad().describe() == said
