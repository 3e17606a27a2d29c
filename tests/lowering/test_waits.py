"""Who waits for whom: every wait that an engine writes down has a reason, and the other way.

A row of the tables (``waits_of_layers``, ``waits_of_batches``, ``waits_of_features``) says in a
sentence which steps of a run come after which others. Two things are
tested of a set of small runs. Every pair of steps that fits a row is ordered by the waits
themselves, however long each step takes: a wait that is dropped leaves a pair unordered. And every
wait that a span names fits a row: a wait too many has no reason. Where steps are kept apart by a
resource that they hold, in whatever order they come, ``Apart`` says so.

That waits and resources become start times is the scheduler's business (``test_schedule``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from tests.lowering.steps import Case, Step, Wait, ancestors, run
from tests.lowering.waits_of_batches import COMPUTED, P3, P3_WAITS, UNIT_MAJOR, UNIT_WAITS
from tests.lowering.waits_of_features import MIXED, MIXED_WAITS
from tests.lowering.waits_of_layers import DEVICE_RESIDENT, DEVICE_WAITS, HOST_RESIDENT, HOST_WAITS
from tests.lowering.waits_of_streams import STREAM_WAITS, STREAMED


@dataclass(frozen=True)
class Apart:
    """Two steps of an epoch that fit are never at work at once, in whatever order they come: both
    hold a resource."""

    reason: str
    fits: Callable[[Step, Step], bool]


def crosses(step: Step) -> bool:
    return step.source != step.target and "disk" not in (step.source, step.target)


def asks(step: Step) -> str:
    """The device whose buffer a pull or a push reads or adds to; none within a device."""
    if step.label not in ("pull", "push") or not crosses(step):
        return ""
    return step.source if step.label == "pull" else step.target


def computes(step: Step) -> bool:
    on_host = step.label == "loss" and step.source == "host"
    return step.label.split(",")[0] in COMPUTED.split("|") and not step.pipelined and not on_host


ON_A_LINK = Apart(
    "a link has one transfer in each direction",
    lambda one, other: crosses(one) and (one.source, one.target) == (other.source, other.target),
)
ON_A_DEVICE = Apart(
    "a device computes one thing at a time",
    lambda one, other: computes(one) and computes(other) and one.device == other.device,
)
AT_A_BUFFER = Apart(
    "one peer at a time reads or adds to a device's buffer",
    lambda one, other: bool(asks(one)) and asks(one) == asks(other),
)
PIPELINED = Apart(
    "a pipelined device has one unit for AGGREGATE and one for UPDATE",
    lambda one, other: (
        one.pipelined
        and other.pipelined
        and one.device == other.device
        and one.label.split()[0] == other.label.split()[0] != "loss"
    ),
)


def exchanged(step: Step) -> bool:
    return crosses(step) and step.label != "all-reduce gradients"


SENDS = Apart(
    "a device sends to one other at a time",
    lambda one, other: exchanged(one) and exchanged(other) and one.source == other.source,
)
RECEIVES = Apart(
    "a device receives from one other at a time",
    lambda one, other: exchanged(one) and exchanged(other) and one.target == other.target,
)
HOST_STAGES = tuple(
    Apart(
        f"the host has one {label!r} at a time",
        lambda one, other, label=label: (
            one.label == other.label == label
            and one.resources != frozenset()
            and not one.preparers
            and one.source == other.source == "host"
        ),
    )
    for label in ("sample", "load features", "average and step", "accumulate on host")
)
A_THREAD_EACH = Apart(
    "a thread prepares one mini-batch at a time, every so many rounds one for its device",
    lambda one, other: (
        {one.label, other.label} <= {"sample", "load features"}
        and bool(one.preparers)
        and one.device == other.device
        and (one.round - other.round) % one.preparers == 0
    ),
)


ENGINES = {
    "host-resident": (
        HOST_RESIDENT,
        HOST_WAITS,
        (ON_A_LINK, ON_A_DEVICE, AT_A_BUFFER, PIPELINED, HOST_STAGES[3]),
    ),
    "streamed": (STREAMED, STREAM_WAITS, (ON_A_LINK, ON_A_DEVICE, PIPELINED, HOST_STAGES[3])),
    "device-resident": (
        DEVICE_RESIDENT,
        DEVICE_WAITS,
        (ON_A_LINK, ON_A_DEVICE, AT_A_BUFFER, PIPELINED),
    ),
    "unit-major": (
        UNIT_MAJOR,
        UNIT_WAITS,
        (ON_A_LINK, ON_A_DEVICE, AT_A_BUFFER, PIPELINED, *HOST_STAGES[:3], A_THREAD_EACH),
    ),
    "feature-parallel": (P3, P3_WAITS, (ON_A_LINK, ON_A_DEVICE, PIPELINED)),
    "mixed": (MIXED, MIXED_WAITS, (ON_A_LINK, ON_A_DEVICE, SENDS, RECEIVES)),
}


def name_all(part):
    """Every engine with each of its cases, waits or resources that keep apart, as parameters."""
    return [
        pytest.param(engine, each, id=f"{engine}: {getattr(each, 'reason', each)}")
        for engine, parts in ENGINES.items()
        for each in parts[part]
    ]


CASES, WAITS, APART = range(3)


@cache
def steps_by_label(case: Case) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in run(case):
        found.setdefault(step.label, []).append(step)
    return found


def list_steps(case: Case, labels: str) -> list[Step]:
    names = steps_by_label(case) if labels == "*" else labels.split("|")
    return [step for name in names for step in steps_by_label(case).get(name, ())]


def pairs_of(wait: Wait, case: Case) -> list[tuple[Step, Step]]:
    """The pairs of a run that fit a row, the later one first."""
    earlier_steps = list_steps(case, wait.earlier)
    return [
        (later, earlier)
        for later in list_steps(case, wait.later)
        for earlier in earlier_steps
        if wait.fits(later, earlier)
    ]


def describe(step: Step) -> str:
    way = "backward" if step.backward else "forward"
    return f"{step.label!r} of layer {step.layer}, round {step.round}, {step.device}, {way}"


@pytest.mark.parametrize(("engine", "wait"), name_all(WAITS))
def test_a_wait_orders_all_its_pairs(engine, wait):
    """Whatever the steps take: the later one waits for the earlier one, itself or by others."""
    found = 0
    for case in ENGINES[engine][0]:
        before = ancestors(case)
        for later, earlier in pairs_of(wait, case):
            found += 1
            ordered = bool(before[later.index] >> earlier.index & 1)
            assert ordered, f"{case}: {describe(later)} does not wait for {describe(earlier)}"
    assert found, "no run has such steps"


@pytest.mark.parametrize(("engine", "case"), name_all(CASES))
def test_every_wait_has_a_reason(engine, case):
    steps, waits = run(case), ENGINES[engine][1]
    unexplained = sorted(
        f"{describe(later)} waits for {describe(steps[earlier])}"
        for later in steps
        for earlier in later.after
        if not any(wait.fits(later, steps[earlier]) for wait in waits)
    )
    assert not unexplained


@pytest.mark.parametrize(("engine", "apart"), name_all(APART))
def test_steps_are_kept_apart_by_what_they_hold(engine, apart):
    found = 0
    for case in ENGINES[engine][0]:
        steps = run(case)
        for one in steps:
            for other in steps[: one.index]:
                if not apart.fits(one, other):
                    continue
                found += 1
                assert one.resources & other.resources, (
                    f"{case}: {describe(one)}, {describe(other)}"
                )
    assert found, "no run has such steps"
