"""Results as pandas frames: a row for each run, or for each sample.

Metrics keep their names and their unprefixed SI units (seconds, bytes, joules, edges a second).
``provenance`` holds for ``epoch_time``, for the stages, and for every other metric without a
``provenance_NAME`` column. A wall time, for example, is measured even if the epoch is modelled.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gnnbench.jobs.groups import Spread
from gnnbench.jobs.options import list_options
from gnnbench.records import PART_KINDS, Workload
from gnnbench.report.results.kept import Kept
from gnnbench.report.results.schema import ResultDocument, RunEntry

if TYPE_CHECKING:
    from pandas import DataFrame

#: A spreadsheet takes a text for a formula if it begins with one of these.
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
#: The value of a frame's cell; None is shown as missing.
Value = str | int | float | bool | None


def describe_run(run: RunEntry) -> dict[str, Value]:
    """Return a run as one line: its setting, its status, and its figures by name."""
    epoch = run.metrics.get("epoch_time")
    provenance = None if epoch is None else epoch.provenance
    line: dict[str, Value] = {
        "strategy": run.strategy,
        "label": run.label,
        "mode": run.mode,
        **{kind: None for kind in PART_KINDS},
        **({} if run.parts is None else asdict(run.parts)),
        "repeat": run.repeat,
        "status": run.status,
        "reason": run.reason,
        "loss": run.loss[-1] if run.loss else None,
        **{f"{name}_accuracy": run.accuracy.get(name) for name in ("train", "val", "test")},
        "equal": None if run.equivalence is None else run.equivalence.equal,
        "ranked": None if run.work is None else run.work.ranked,
        "why_not": "" if run.work is None else run.work.why_not,
        "devices": None if run.work is None else len(run.work.devices),
        "provenance": provenance,
    }
    for name, metric in run.metrics.items():
        line[name] = metric.value
        if metric.provenance != provenance:
            line[f"provenance_{name}"] = metric.provenance
    for stage, seconds in run.stages.items():
        line[f"stage_{stage}"] = seconds.value
        if seconds.provenance != provenance:
            line[f"provenance_stage_{stage}"] = seconds.provenance
    return line


def describe_setting(dataset: str, workload: Workload, platform: str) -> dict[str, Value]:
    """Return the setting that all runs of a comparison share, as the first columns of each."""
    return {
        "dataset": dataset,
        "model": workload.model,
        "dims": "-".join(map(str, workload.dims)),
        "epochs": workload.epochs,
        "seed": workload.seed,
        "platform": platform,
    }


def list_lines(document: ResultDocument) -> list[dict[str, Value]]:
    """Return a line for every run of a document, which begins with the shared setting."""
    setting = describe_setting(document.dataset.name, document.workload, document.platform.name)
    return [{**setting, **describe_run(run)} for run in document.runs]


def frame_kept(kept: Sequence[Kept]) -> DataFrame:
    """Return a row for every run of a store, and one for every configuration without a result.

    Nodes, processes and GPUs are columns if a sweep set them; missing ones are the default.
    """
    lines: list[dict[str, Value]] = []
    for each in kept:
        asked = each.header.configuration
        lead: dict[str, Value] = {"key": each.header.key, "machine": each.header.machine}
        lead |= {name: _as_value(asked[name]) for name in list_options(Spread) if name in asked}
        if each.document is not None:
            lines += [{**lead, **line} for line in list_lines(each.document)]
            continue
        names = ("dataset", "model", "epochs", "seed", "platform", "strategy")
        said: dict[str, Value] = {name: _as_value(asked.get(name)) for name in names}
        lines.append({**lead, **said, "status": each.header.status, "reason": each.header.reason})
    return to_frame(lines)


def _as_value(value: object) -> Value:
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


def make_samples(document: ResultDocument) -> DataFrame:
    """Return a row for every raw sample.

    Its columns are run, metric, sample number, value, unit, provenance, and ``warmup``: whether it
    is one of the first samples, which no summary counts.
    """
    return to_frame(list(_list_samples(document.runs)))


def _list_samples(runs: Sequence[RunEntry]) -> Iterator[dict[str, Value]]:
    for run in runs:
        for name, metric in run.metrics.items():
            for number, value in enumerate(metric.samples):
                yield {
                    "label": run.label,
                    "mode": run.mode,
                    "repeat": run.repeat,
                    "metric": name,
                    "sample": number,
                    "value": value,
                    "unit": metric.unit,
                    "provenance": metric.provenance,
                    "warmup": number < metric.warmup,
                }


def to_frame(lines: Sequence[Mapping[str, Value]]) -> DataFrame:
    """Return lines as a frame with columns in the order of their first occurrence.

    A character without UTF-8 bytes (half of a surrogate pair, from a file name) becomes its
    escape, because pandas keeps texts as UTF-8.
    """
    from pandas import DataFrame

    columns = dict.fromkeys(name for line in lines for name in line)
    return DataFrame(
        [{name: _as_utf8(value) for name, value in line.items()} for line in lines],
        columns=list(columns),
    )


def _as_utf8(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def to_csv(frame: DataFrame) -> str:
    """Return a frame as CSV in which no text is a formula, because a spreadsheet would run it.

    A quote precedes a text that begins like a formula; numbers stay unchanged.
    """

    def shield(value: Value) -> Value:
        formula = isinstance(value, str) and value.startswith(FORMULA_SIGNS)
        return f"'{value}" if formula else value

    return str(frame.apply(lambda column: column.map(shield)).to_csv(index=False))


def to_parquet(frame: DataFrame) -> bytes:
    """Return a frame as a Parquet file, in which numbers, texts and missing values keep types."""
    stream = io.BytesIO()
    frame.to_parquet(stream, index=False)
    return stream.getvalue()
