"""The model's replicas: what is saved, what is gone back to, and who has the same weights."""

import torch

from gnnbench.check.graphs import make_dataset, make_platform, make_workload
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.run.replicas import Replicas


def make_replicas():
    workload = make_workload("gcn", 2)
    platform = make_platform(2)
    setting = Setting(make_dataset(), platform, workload, build(workload).shapes)
    return Replicas(setting, platform.accelerators, frozenset())


def gradients(replicas, value):
    return [
        torch.full_like(parameter, value)
        for layer in replicas.master.stack
        for parameter in layer.parameters()
    ]


def weights(replicas):
    return {name: value.clone() for name, value in replicas.master.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_going_back_repeats_what_followed():
    replicas = make_replicas()
    replicas.step(gradients(replicas, 1.0))
    before, state = weights(replicas), replicas.save()
    moments = [value.clone() for value in state.optimiser]
    replicas.step(gradients(replicas, -3.0))
    first = weights(replicas)
    assert_same(state.parameters, before)
    assert all(torch.equal(a, b) for a, b in zip(moments, state.optimiser, strict=True))
    assert any(not torch.equal(before[name], first[name]) for name in before)
    for _ in range(2):
        replicas.restore(state)
        assert_same(weights(replicas), dict(state.parameters))
        replicas.step(gradients(replicas, -3.0))
        assert_same(weights(replicas), first)


def test_steps_are_those_of_torchs_adam_to_the_bit():
    replicas = make_replicas()
    workload = make_workload()
    copies = [p.detach().clone().requires_grad_() for p in replicas.parameters]
    torchs = torch.optim.Adam(
        copies, lr=workload.learning_rate, weight_decay=workload.weight_decay, fused=True
    )
    for value in (1.0, -3.0, 0.01, 0.0):
        gradient = [value * torch.cos(p.detach()) for p in copies]
        for copied, given in zip(copies, gradient, strict=True):
            copied.grad = given.clone()
        torchs.step()
        replicas.step(gradient)
        for ours, theirs in zip(replicas.parameters, copies, strict=True):
            assert torch.equal(ours, theirs)
    assert workload.weight_decay > 0
    assert all(parameter.grad is None for parameter in replicas.parameters)


def test_devices_of_one_processor_share_a_replica():
    replicas = make_replicas()
    platform = make_platform(2)
    assert all(replicas.on(device) is replicas.master for device in platform.accelerators)
