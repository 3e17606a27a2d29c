"""Parts, options, models and machines put together at random: refused in a sentence, or right.

``GNNBENCH_PROGRAMS=1000 pytest tests/lowering/test_random_programs.py`` tries as many, others each
time, and makes a failing one simpler; without it the same fifty are tried.
"""

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from gnnbench.check.faults import find_timeline_fault
from gnnbench.comparison import compare, make_setting, options_for
from gnnbench.comparison.planned import plan_run
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.errors import GnnbenchError, IncompatiblePartsError
from gnnbench.machines.describe import load_platform
from gnnbench.models import MODELS
from gnnbench.parts import option_fields
from gnnbench.plugins import assemble, with_swap
from gnnbench.records import PART_KINDS, Workload
from tests import pins
from tests.pins.combinations import DATASETS, PLATFORMS
from tests.pins.recording import load_dataset, load_registry, plan

PROGRAMS = int(os.environ.get("GNNBENCH_PROGRAMS", 0))
#: Draws with compiled routines that are not installed everywhere.
LEFT_OUT = {("sampler", "pyg")}
#: Whose price is that of the masks that training computes.
MASKED = ("kernel", "masked", "true")


@cache
def list_values():
    registry, found = load_registry(), {}
    for each in pins.read_list():
        parts = plan(each).parts
        for kind, given_options in each.options.items():
            part = parts.named(kind)
            for name, text in given_options.items():
                if name in option_fields(registry.part(kind, part)):
                    found.setdefault((kind, part, name), set()).add(text)
    return {key: sorted(texts) for key, texts in sorted(found.items())}


@st.composite
def combinations(draw):
    """A strategy in one of its modes, up to two of its parts swapped, and up to three options."""
    registry = load_registry()
    strategy = draw(st.sampled_from(sorted(registry.strategies, key=lambda each: each.name)))
    mode = draw(st.sampled_from(sorted(strategy.bundles)))
    kinds = draw(st.lists(st.sampled_from(PART_KINDS), unique=True, max_size=2))
    swaps = []
    for kind in kinds:
        names = sorted({name for k, name in registry.parts if k == kind} - {n for _, n in LEFT_OUT})
        swaps.append((kind, draw(st.sampled_from(names))))
    parts = with_swap(registry, strategy.bundles[mode], swaps)
    texts = list_values()
    keys = [key for key in texts if parts.named(key[0]) == key[1]]
    chosen = draw(st.lists(st.sampled_from(keys), unique=True, max_size=3)) if keys else []
    options = tuple(
        (kind, name, draw(st.sampled_from(texts[kind, p, name]))) for kind, p, name in chosen
    )
    row = PlannedRow(strategy.name, strategy.name, mode, parts, options=options)
    data = load_dataset(DATASETS[draw(st.sampled_from(("sbm", "rmat")))], 0)
    layers = draw(st.integers(1, 3))
    workload = Workload(
        model=draw(st.sampled_from(sorted(MODELS))),
        dims=(data.num_features, *[16] * (layers - 1), data.num_classes),
        epochs=draw(st.integers(1, 3)),
        batch_size=draw(st.sampled_from((24, 48, 1024))),
        fanouts=(5, 4, 3)[:layers],
        seed=draw(st.integers(0, 3)),
        threads=1,
    )
    machine = load_platform(PLATFORMS[draw(st.sampled_from(sorted(PLATFORMS)))])
    return Request((strategy.name,), data, workload, machine, rows=(row,))


def is_sentence(text):
    return "\n" not in text and text.rstrip().endswith((".", ")")) and "Traceback" not in text


@settings(
    max_examples=PROGRAMS or 50,
    derandomize=not PROGRAMS,
    phases=(Phase.generate, Phase.shrink) if PROGRAMS else (Phase.generate,),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(combinations())
def test_any_combination_is_refused_in_a_sentence_or_trains_right_and_as_planned(request):
    registry, (row,) = load_registry(), request.rows
    note(f"{row}\n{request.workload}\n{request.platform.name}, {request.dataset.name}")
    refusal, comparison = try_to(compare, request, registry)
    if comparison is None:
        assert is_sentence(str(refusal))
        assert type(try_to(plan_alone, request, registry)[0]) is type(refusal)
        return
    (run,) = comparison.runs
    assert run.status != "error", run.reason
    if run.reason:
        assert is_sentence(run.reason)
    planned = plan_alone(request, registry)
    # Training says in which stage it was besides.
    assert planned.status == run.status
    assert planned.reason.split(" bytes")[0] == run.reason.split(" bytes")[0]
    if run.status != "done":
        return
    if not run.other_maths:
        assert run.equivalence is not None
        assert run.equivalence.holds, run.equivalence
    assert find_timeline_fault(run.timeline, request.platform.shared_lanes) is None
    if MASKED in row.options:
        return
    for name, metric in planned.metrics.items():
        assert metric.value == pytest.approx(run.metrics[name].value, rel=1e-12, abs=0), name
    assert set(planned.stages) == set(run.stages)
    for name, metric in planned.stages.items():
        assert metric.value == pytest.approx(run.stages[name].value, rel=1e-12, abs=0), name
    moved = [span for span in run.timeline if span.span.stage == "transfer"]
    assert all(span.span.work.bytes >= 0 for span in moved)


def try_to(call, *arguments):
    try:
        return None, call(*arguments)
    except GnnbenchError as error:
        return error, None


def plan_alone(request, registry):
    setting = make_setting(request, registry.model(request.workload.model))
    bundle = assemble(
        registry, request.rows[0].parts, options_for(request.rows[0], request.options, registry)
    )
    reason = bundle.placement.refuse_counts(setting.platform)
    if reason is not None:
        raise IncompatiblePartsError(reason)
    return plan_run(request, request.rows[0], setting, registry)
