"""The checks of whole strategies: promises that each keeps, tried in small awkward worlds.

A check takes a subject and returns a sentence on its findings. It raises ``NonConformingError``
with the broken promise, ``NotReachedError`` with the state it could not bring about, or
``NotApplicableError`` with the reason. A subject is tried in every mode that it has a bundle for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnnbench import models
from gnnbench.check import faults
from gnnbench.check.outcome import NonConformingError, NotApplicableError
from gnnbench.check.subject import (
    Subject,
    World,
    describe_place,
    make_setting,
    require_done,
)
from gnnbench.errors import IncompatiblePartsError, PluginError, UsageError
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import (
    UNIFORM,
    MiniBatchSampler,
    describe_option,
    find_coverage_fault,
    option_fields,
    parse_option,
)
from gnnbench.records import IntArray, Mode, RunResult

#: Largest relative difference from the reference's losses in float64.
TOLERANCE = 1e-9
NUM_LAYERS = (2, 3)
#: Epochs of the first case, in which late or rare faults show, and of the other cases.
MANY_EPOCHS, FEW_EPOCHS = 16, 2


def check_described(subject: Subject) -> str:
    """Check that the strategy and its parts describe themselves in a line, with their modes."""
    said = []
    if subject.part is None:
        strategy = subject.registry.strategy(subject.name)
        for what, text in (("summary", strategy.summary), ("source", strategy.source)):
            if not text.strip() or "\n" in text:
                raise NonConformingError(
                    f"the strategy's {what} is {text!r}; give one line of text"
                )
        said.append(f"{strategy.summary} ({strategy.source})")
    classes = subject.part_classes()
    for kind, part in classes:
        if "\n" in part.summary or len(part.summary) > 100:
            raise NonConformingError(
                f"the summary of {kind} {part.name!r} does not fit a line of 100 characters"
            )
        if not (part.__doc__ or "").strip():
            raise NonConformingError(f"{kind} {part.name!r} ({part.__name__}) has no docstring")
        if subject.part is not None:
            said.append(part.summary)
    return ", ".join([*said, f"{len(classes)} parts"])


def check_options_documented(subject: Subject) -> str:
    """Check that every option has a line of help and a default that ``--set`` accepts."""
    documented = []
    for kind, part in subject.part_classes():
        for option, field in option_fields(part).items():
            what = f"option {option!r} of {kind} {part.name!r}"
            if not str(field.metadata.get("help", "")).strip():
                raise NonConformingError(
                    f"{what} has no help; declare it with gnnbench.parts.option(default, help)"
                )
            try:
                again = parse_option(part, option, str(field.default))
            except (PluginError, UsageError) as error:
                raise NonConformingError(f"{what} cannot be set to its default: {error}") from error
            if again != field.default:
                raise NonConformingError(f"{what} is {field.default!r} but reads as {again!r}")
            documented.append(describe_option(part, option))
    if not documented:
        raise NotApplicableError("none of its parts has an option")
    return f"{len(documented)} options: {'; '.join(documented)}"


def check_every_vertex_once(subject: Subject) -> str:
    """Check that each training vertex, or each vertex of a full graph, is computed exactly once."""
    counts = []
    for case, world in subject.worlds():
        dataset, sampler = world.setting.dataset, world.bundle.sampler
        if isinstance(sampler, MiniBatchSampler):
            due, what = dataset.train_ids, "training vertices"
        else:
            due, what = np.arange(dataset.graph.num_vertices), "vertices"
        rounds = world.rounds()
        owner, units = world.owner(), faults.join_pieces(rounds, world.pieces())
        fault = find_coverage_fault([unit.output_ids for unit in units], due, what)
        if fault is not None:
            raise NonConformingError(f"{case}: {fault}")
        for unit in units:
            fanouts: tuple[int, ...] | None = (0,) * len(unit.blocks)
            drawn_once, elsewhere = False, np.flatnonzero(owner != unit.slot).tolist()
            if isinstance(sampler, MiniBatchSampler):
                fanouts = world.setting.workload.fanouts if sampler.heeds_fanouts else None
                drawn_once, elsewhere = sampler.law != UNIFORM, []
            fault = faults.find_unit_fault(
                unit, dataset.graph, fanouts, drawn_once=drawn_once, elsewhere=elsewhere
            )
            if fault is not None:
                raise NonConformingError(f"{case}, unit on slot {unit.slot}: {fault}")
        if dataset.graph.num_edges and not any(sum(unit.edges) for unit in units):
            raise NonConformingError(
                f"{case}: no unit of the epoch has an edge, so nothing is aggregated"
            )
        _require_homes(case, world, owner)
        counts.append(f"{case}: {len(due)} {what} in {len(units)} units of {len(rounds)} rounds")
    return "; ".join(counts)


def _require_homes(case: str, world: World, owner: IntArray) -> None:
    """Check that each vertex has one trainer, or one holder of its row, and one host socket."""
    platform = world.setting.platform
    two_sockets = replace(
        platform, host=replace_fields(platform.host, sockets=2, socket_bandwidth_bytes_per_s=1e10)
    )
    placement = world.bundle.placement
    there = replace(world.setting, platform=two_sockets)
    named = (
        ("owner", owner, len(placement.trainers(platform))),
        ("sockets", placement.sockets(there, owner), two_sockets.host.memory.sockets),
    )
    for what, places, count in named:
        if places.shape != (world.setting.dataset.graph.num_vertices,) or places.dtype != np.int64:
            raise NonConformingError(
                f"{case}: {what}() gives {places.dtype} {places.shape}, and an int64 for each of "
                f"{world.setting.dataset.graph.num_vertices} vertices is due"
            )
        if not (places.min() >= 0 and places.max() < count):
            raise NonConformingError(
                f"{case}: {what}() gives {places.min()} to {places.max()}, and there are {count}"
            )


def check_same_maths(subject: Subject) -> str:
    """Check losses against plain single-device training, for all models and 2 and 3 layers."""
    largest, trained = 0.0, set()
    lasted: set[Mode] = set()
    #: By model, why the first run was not compared.
    apart: dict[str, str] = {}
    for place in subject.places():
        mode, dataset, platform = place
        small = place == subject.small(mode)
        for model in models.MODELS:
            for num_layers in NUM_LAYERS if small else NUM_LAYERS[:1]:
                case = f"{describe_place(place)} {model} with {num_layers} layers"
                epochs = FEW_EPOCHS if mode in lasted else MANY_EPOCHS
                setting = make_setting(dataset, platform, model, num_layers, epochs)
                try:
                    run = subject.train(mode, setting, check=True)
                except IncompatiblePartsError as refusal:
                    apart.setdefault(model, f"{case}: {refusal}")
                    continue
                lasted.add(mode)
                if run.other_maths:
                    require_done(run, case)
                    apart.setdefault(
                        model, f"{case}: its maths differ by design ({run.other_maths})"
                    )
                    continue
                largest = max(largest, require_equal(run, case))
                trained.add(model)
    if not trained:
        raise NotApplicableError(f"no model can be held equal; {next(iter(apart.values()))}")
    said = f"{', '.join(sorted(trained))}: losses within {largest:.1e} of the reference's"
    if left_out := sorted(apart.keys() - trained):
        said += f". Not compared: {', '.join(left_out)}; {apart[left_out[0]]}"
    return said


def require_equal(run: RunResult, case: str) -> float:
    """Return the error of a finished run's losses; ``NonConformingError`` beyond the tolerance."""
    require_done(run, case)
    error = math.inf
    if run.equivalence is not None:
        error = run.equivalence.max_relative_loss_error
        if not math.isfinite(error) and run.equivalence.fault:
            raise NonConformingError(f"{case}: {run.equivalence.fault}")
    # Negated on purpose: a loss that is not a number must not pass.
    if not (error <= TOLERANCE and all(map(math.isfinite, run.loss))):
        raise NonConformingError(
            f"{case}: losses {_numbers(run.loss[:4])} are off from the reference's by "
            f"{error:.1e} relative, and {TOLERANCE:.0e} is allowed"
        )
    if run.equivalence is not None and not run.equivalence.holds:
        raise NonConformingError(f"{case}: {run.equivalence.fault}")
    return error


def check_legal_timeline(subject: Subject) -> str:
    """Check that exclusive resources run one span at a time, and spans wait for their inputs."""
    counts = []
    for case, world in subject.worlds():
        run = world.run()
        if not run.timeline:
            raise NonConformingError(f"{case}: the run recorded no span at all")
        fault = faults.find_timeline_fault(run.timeline)
        if fault is not None:
            raise NonConformingError(f"{case}: {fault}")
        counts.append(f"{case}: {len(run.timeline)} spans")
    return "; ".join(counts)


def check_deterministic(subject: Subject) -> str:
    """Check that one seed gives the same losses, bytes and modelled times twice, to the bit."""
    seen = []
    for case, world in subject.worlds(wide=False):
        one, other = (world.run() for _ in range(2))
        if one.loss != other.loss:
            raise NonConformingError(
                f"{case}: two runs of one seed gave losses {_numbers(one.loss)} and "
                f"{_numbers(other.loss)}"
            )
        for metric, first in one.metrics.items():
            second = other.metrics[metric]
            if first.provenance == "modelled" and first != second:
                raise NonConformingError(
                    f"{case}: {metric} was {first.value!r} {first.unit}, then {second.value!r}"
                )
        times = [
            [(entry.span.label, entry.start_s, entry.end_s) for entry in run.timeline]
            for run in (one, other)
        ]
        if times[0] != times[1]:
            raise NonConformingError(f"{case}: two runs of one seed gave different timelines")
        seen.append(case)
    return f"two runs agree to the bit ({', '.join(seen)})"


def check_capacity(subject: Subject) -> str:
    """Check that a device too small ends in ``out-of-memory``, and that none is ever exceeded."""
    said = []
    for case, world in subject.worlds(wide=False):
        peak_bytes = int(world.run().metrics["peak_device_bytes"].value)
        if peak_bytes <= 0:
            raise NonConformingError(f"{case}: the run held nothing in any device's memory")
        # One byte less than it used: a strategy that adapts may still fit, but must not exceed it.
        tight = world.run(capacity_bytes=peak_bytes - 1)
        if tight.status == "done":
            held_bytes = int(tight.metrics["peak_device_bytes"].value)
            if held_bytes >= peak_bytes:
                raise NonConformingError(
                    f"{case}: devices of {peak_bytes - 1:,} bytes held {held_bytes:,}"
                )
        else:
            _require_out_of_memory(tight, case, peak_bytes - 1)
        # Less than one parameter: no training fits in that.
        none = world.run(capacity_bytes=1)
        _require_out_of_memory(none, case, 1)
        said.append(f"{case}: needs {peak_bytes:,} bytes; with 1, {none.reason}")
    return "; ".join(said)


def _require_out_of_memory(run: RunResult, place: str, capacity_bytes: int) -> None:
    case = f"{place}: on devices of {capacity_bytes:,} bytes the run"
    if run.status != "out-of-memory":
        raise NonConformingError(f"{case} ended with {run.status!r} {run.reason}".rstrip())
    if not re.search(r"out of memory: [\d,]+ bytes are needed for \S", run.reason):
        raise NonConformingError(f"{case} does not name the tensor and its bytes: {run.reason!r}")


def check_dataset_untouched(subject: Subject) -> str:
    """Check that all arrays of the handed-out datasets stay unchanged, to the bit."""
    try:
        for place in subject.places():
            world = subject.begin(place)
            # Checked after each step, since a second write may restore the first value.
            _require_untouched(subject)
            world.rounds()
            _require_untouched(subject)
            world.run()
            _require_untouched(subject)
    finally:
        # A write to the dataset may be the cause of any other failure.
        _require_untouched(subject)
    return f"all arrays are as they were, of {len(subject.handed_out)} datasets handed out"


def _require_untouched(subject: Subject) -> None:
    for dataset, before in subject.handed_out:
        after = faults.digest_arrays(dataset)
        changed = [name for name, digest in after.items() if before.get(name) != digest]
        if changed:
            raise NonConformingError(
                f"a part wrote into the dataset it was handed ({dataset.name}): "
                f"{', '.join(changed)} changed; parts must copy what they alter"
            )


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
