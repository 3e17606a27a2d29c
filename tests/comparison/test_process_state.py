"""What a row leaves behind in the process is restored, named, and no part of any other row."""

import gc
import logging
import os
import random
import signal
import sys

import numpy as np
import torch

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.comparison import Request, compare
from gnnbench.comparison.process_state import SETTINGS, ProcessState, RandomStreams
from gnnbench.comparison.ranking import group_runs
from gnnbench.host.progress import shown_by
from gnnbench.report.verdict import summarise
from gnnbench_plugins.reference.kernel import TorchKernel
from suites.faults.fault import make_part, offer

#: By the setting that it changes, a statement that leaves it changed.
CHANGES = {
    "torch's gradients": "torch._C._set_grad_enabled(False)",
    "torch's anomaly detection": "torch.autograd.set_detect_anomaly(True)",
    "torch's default type": "torch.set_default_dtype(torch.float64)",
    "torch's threads": "THREADS(3)",
    "torch's deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "torch's precision of products": "torch.set_float32_matmul_precision('medium')",
    "torch's autocast": "torch.set_autocast_enabled('cpu', True)",
    "NumPy's floating-point errors": "np.seterr(all='raise')",
    "the current folder": "os.chdir('/')",
    "the environment": "os.environ['HOME'] = '/nowhere'",
    "the handlers of signals": "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    "logging": "logging.disable(logging.CRITICAL)",
    "garbage collection": "gc.disable()",
    "the trace function": "sys.settrace(lambda *given: None)",
    "the profile function": "sys.setprofile(lambda *given: None)",
    "the recursion limit": "sys.setrecursionlimit(sys.getrecursionlimit() + 1)",
    "the switch interval": "sys.setswitchinterval(0.5)",
}
MODULES = {
    "gc": gc, "logging": logging, "np": np, "os": os, "random": random, "signal": signal,
    "sys": sys, "torch": torch, "THREADS": torch.set_num_threads,
}  # fmt: skip


def leave_changed(self, block, dtype, device):
    found = TorchKernel.adjacency(self, block, dtype, device)
    torch.autograd.set_detect_anomaly(True)
    os.chdir("/")
    torch.rand(3)
    return found


CARELESS = make_part(TorchKernel, "careless", "leaves state behind", adjacency=leave_changed)


def test_every_setting_is_restored_and_named():
    assert set(CHANGES) == {"the environment", *(setting.name for setting in SETTINGS)}
    before = [setting.read() for setting in SETTINGS], os.environ["HOME"]
    for name, statement in CHANGES.items():
        state = ProcessState()
        exec(statement, MODULES)
        assert state.restore() == (name,), name
        assert ([setting.read() for setting in SETTINGS], os.environ["HOME"]) == before, name
        assert state.restore() == ()


def test_a_careless_row_is_named_and_no_other_row_runs_with_its_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    registry = plugins.load(objects=[CARELESS, offer(CARELESS, "full-graph")])
    anomalies = []

    class Watched:
        def begin(self, name, epochs): ...
        def advance(self, name, steps):
            anomalies.append((torch.is_anomaly_enabled(), os.getcwd()))

        def end(self, name, status): ...

    request = Request(
        strategies=("careless", "reference"),
        dataset=make_dataset(),
        platform=make_platform(),
        workload=make_workload("gcn", epochs=3),
        plain=False,
    )
    with shown_by(Watched()):
        comparison = compare(request, registry)
    careless, *others = comparison.runs
    assert careless.status == "done"
    assert careless.left == ("torch's anomaly detection", "the current folder")
    assert all(run.left == () for run in others)
    assert set(anomalies) == {(False, str(tmp_path))}
    assert summarise(group_runs(comparison))[-1] == (
        "careless changed torch's anomaly detection, the current folder; this was restored after "
        "each of its turns, and no other row ran with it."
    )


def test_each_row_has_random_streams_of_its_own():
    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    def seed():
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    alone = [draw() for _ in range(3)]
    seed()
    streams = RandomStreams()
    found = []
    for number in range(3):
        with streams.at_turn():
            found.append(draw())
        if not number:
            outside = draw()
    assert found == alone
    assert outside == alone[0]
