"""A row's run from a dry run: the report that ``compare`` would give, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gnnbench.comparison.frame import empty_result
from gnnbench.comparison.request import PlannedRow, Request
from gnnbench.comparison.rows import options_for
from gnnbench.comparison.run import name_stated, note_predictions, state_work
from gnnbench.errors import DeviceOutOfMemoryError
from gnnbench.parts import Bundle, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.price.dry_run import DryRun
from gnnbench.price.folds import Digest
from gnnbench.price.metrics import summarise, with_error
from gnnbench.price.model_error import find_work_path
from gnnbench.price.sized import price_sizes
from gnnbench.records import EpochTrace, RunResult, Trace


def plan_run(request: Request, row: PlannedRow, setting: Setting, registry: Registry) -> RunResult:
    """Return the run of a row by the platform's model, over all epochs.

    A run that does not fit says which memory is full. Raises ``IncompatiblePartsError`` when its
    parts do not fit together.
    """
    bundle = assemble(registry, row.parts, options_for(row, request.options, registry))
    try:
        trace, digests, expected = _go_through(bundle, setting)
    except DeviceOutOfMemoryError as error:
        return empty_result(row, 0, "out-of-memory", str(error))
    metrics, stages = summarise(
        trace, digests, "modelled", [host.name for host in setting.platform.hosts], None
    )
    work = state_work(bundle, setting, trace, modelled=True)
    path = find_work_path(work, row.parts.kernel, row.mode)
    predicted = note_predictions(expected, metrics["epoch_time"].value)
    return RunResult(
        strategy=row.strategy,
        label=row.label,
        mode=row.mode,
        parts=row.parts,
        repeat=0,
        status="done",
        other_maths=bundle.other_maths(setting.platform),
        work=work,
        metrics={
            name: metric
            for name, metric in with_error(metrics, path).items()
            if metric.provenance == "modelled"
        },
        stages=stages,
        timeline=digests[-1].timeline,
        notes=(*trace.notes, *predicted),
        idle=trace.idle,
        stated=name_stated(bundle),
    )


def _go_through(
    bundle: Bundle, setting: Setting
) -> tuple[Trace, Sequence[Digest], Mapping[str, float]]:
    """Return the trace and the times of all epochs, and epochs that the placement predicts."""
    if setting.sizes is not None:
        found = price_sizes(bundle, setting)
        return found.trace, found.digests, {}
    epochs: list[EpochTrace] = []
    digests: list[Digest] = []
    dry = DryRun(bundle, setting)
    for epoch, each in dry.run_epochs(setting.workload.epochs):
        digests.append(each)
        epochs.append(replace(epoch, spans=()))
    return dry.finish(epochs), digests, dry.predicted_epochs()
