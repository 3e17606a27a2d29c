"""Rounds of HongTu that overlap: who waits for whom, what devices hold, and the same training."""

import dataclasses

import numpy as np
import pytest

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.lowering import footprint
from gnnbench.lowering.capacity import plan_rounds
from gnnbench.lowering.movement import largest_buffers
from gnnbench.lowering.working_sets import OverlappedSets
from gnnbench.models import build
from gnnbench.parts import Setting
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import count_moved
from gnnbench.run import train
from gnnbench_plugins.reference.kernel import TorchKernel
from tests.lowering.steps import Case, ancestors, run
from tests.pins.recording import load_registry
from tests.uneven import make_uneven

CHUNKS, DEVICES = 3, 2
OVERLAP = {"communication": {"overlap": "true"}}


def setting_of(model="gcn", epochs=1):
    workload = make_workload(model, 3, epochs)
    return Setting(make_dataset(), make_uneven(DEVICES), workload, build(workload).shapes)


def bundle_of(swaps=(), chunks=CHUNKS, **options):
    parts = load_registry().strategy("hongtu").bundles["full-graph"]
    parts = dataclasses.replace(parts, **dict(swaps))
    if parts.sampler == "hongtu":
        options["sampler"] = {"chunks_per_partition": str(chunks), "search": "none"}
    return plugins.assemble(load_registry(), parts, options)


def train_with(setting, *arguments, **options):
    bundle = bundle_of(*arguments, **options)
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


@pytest.mark.parametrize(
    ("model", "memory", "topology", "in_place"),
    [
        *((m, "hongtu", "device", True) for m in ("gcn", "sage", "gin", "gat")),
        *((m, "hongtu", "host", False) for m in ("gcn", "gat")),
        *((m, "hongtu-recompute", "host", True) for m in ("gcn", "sage", "gat")),
        *((m, "hongtu-recompute", "device", False) for m in ("gin", "gat")),
        *((m, "hongtu-cache", "host", True) for m in ("gcn", "sage", "gat")),
        ("gat", "hongtu-cache", "device", False),
    ],
)
def test_overlapping_rounds_train_as_rounds_in_turn_and_hold_what_their_plan_says(
    model, memory, topology, in_place, monkeypatch
):
    monkeypatch.setattr(TorchKernel, "adds_in_place", in_place)
    setting, options = setting_of(model, epochs=2), {"memory": {"topology": topology}}
    plain = train_with(setting, {"memory": memory}, **options)
    beside = train_with(setting, {"memory": memory}, **options, **OVERLAP)
    for ours, theirs in zip(beside.epochs, plain.epochs, strict=True):
        assert ours.loss == theirs.loss
        assert ours.bytes == theirs.bytes
        assert sum(count_moved(span.work) for span in ours.spans) == sum(
            count_moved(span.work) for span in theirs.spans
        )
    for name, parameter in plain.parameters.items():
        np.testing.assert_array_equal(beside.parameters[name], parameter, err_msg=name)

    bundle = bundle_of({"memory": memory}, **options, **OVERLAP).begin(setting)
    cut, itemsize = bundle.sampler.chunks(setting, DEVICES), setting.workload.itemsize
    rows = largest_buffers(plan_rounds(bundle.communication.open(cut.owner), cut.rounds))
    sets = OverlappedSets(bundle, setting.layers, itemsize)
    # Beside the chunk that takes most there is one more's own rows at most, and one more at
    # least in the middle of a pass.
    own_features = max(
        layer.out_features
        + (layer.aggregate_features if bundle.memory.intermediates(layer) == "cache" else 0)
        for layer in setting.layers
    )
    for slot in range(DEVICES):
        units = [unit for each in cut.rounds for unit in each.units if unit.slot == slot]
        chunks = [footprint.size_of(unit.blocks[0], rows[slot]) for unit in units]
        held, least = beside.peak_bytes[f"gpu{slot}"], plain.peak_bytes[f"gpu{slot}"]
        assert held == sets.device_bytes(chunks)
        most_rows = max(len(unit.output_ids) for unit in units)
        assert least <= held <= least + most_rows * own_features * itemsize


def case_of(model, overlap, memory="hongtu"):
    options = (f"sampler.chunks_per_partition={CHUNKS}", f"communication.overlap={overlap}")
    swaps = (f"memory={memory}",)
    return Case("hongtu", options, swaps, model=model, layers=3, accelerators=DEVICES)


def pairs(case, later, earlier, behind, *, backward, same_device=True):
    """Return whether each later step waits for the earlier one, ``behind`` rounds apart."""
    steps, before = run(case), ancestors(case)
    found = [
        bool(before[one.index] >> other.index & 1)
        for one in steps
        for other in steps
        if one.label in later.split("|")
        and other.label in earlier.split("|")
        and (one.layer, one.backward, other.backward) == (other.layer, backward, backward)
        and one.round - other.round == behind
        and (one.device == other.device or not same_device)
    ]
    assert found
    return found


STORED = "outputs to host|aggregates to host"


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_rows_of_a_round_come_while_outputs_of_the_last_leave(model):
    for overlap in ("true", "false"):
        case = case_of(model, overlap)
        waits = overlap == "false"
        for steps in ("host to device", "pull"):
            found = pairs(case, steps, STORED, 1, backward=False, same_device=False)
            assert set(found) == {waits}
        # What a device works on takes the memory of what has left, and rows that of rows.
        assert all(pairs(case, "aggregate forward", STORED, 1, backward=False))
        computed = "aggregate forward|update forward"
        assert all(pairs(case, "host to device", computed, 1, backward=False, same_device=False))


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_a_layer_begins_when_all_outputs_of_the_one_below_have_left(model):
    case = case_of(model, "true")
    steps, before = run(case), ancestors(case)
    for one in steps:
        if one.label not in ("host to device", "loss") or one.backward:
            continue
        below = one.layer - 1 if one.label != "loss" else 2
        left = [
            other
            for other in steps
            if other.label in STORED.split("|") and other.layer == below and not other.backward
        ]
        assert below < 0 or len(left) >= CHUNKS * DEVICES
        assert all(before[one.index] >> other.index & 1 for other in left)


FETCHED = "gradients to device|aggregates to device"


@pytest.mark.parametrize(
    ("model", "memory"), [("gcn", "hongtu"), ("gat", "hongtu"), ("gat", "hongtu-cache")]
)
def test_what_a_round_goes_back_from_comes_while_the_last_is_worked_on(model, memory):
    for overlap in ("true", "false"):
        case = case_of(model, overlap, memory)
        waits, work = overlap == "false", "update forward|update backward"
        found = pairs(case, FETCHED, work, 1, backward=True, same_device=False)
        assert set(found) == {waits}
        # No more than two rounds have it on a device.
        assert all(pairs(case, FETCHED, work, 2, backward=True, same_device=False))
        assert all(pairs(case, "update backward", FETCHED, 0, backward=True))


def test_chunks_are_cut_for_what_is_held():
    """A memory that has room for rounds in turn, and not for those that overlap, is cut smaller."""
    setting, needed, rounds = setting_of(), {}, {}
    for overlap in ("true", "false"):
        trace = train_with(setting, chunks=2, communication={"overlap": overlap})
        needed[overlap] = max(trace.peak_bytes[f"gpu{slot}"] for slot in range(DEVICES))
    assert needed["false"] < needed["true"]
    limits = {"memory": {"device_bytes": str(needed["false"]), "topology": "device"}}
    for overlap in ("true", "false"):
        trace = train_with(setting, chunks=0, communication={"overlap": overlap}, **limits)
        rounds[overlap] = 1 + max(span.round for span in trace.epochs[0].spans)
    assert rounds["true"] > rounds["false"] == 2
