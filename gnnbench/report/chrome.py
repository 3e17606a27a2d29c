"""Timelines in the Chrome trace event format, which Perfetto and chrome://tracing open.

A run is a process, and each of its resources a thread. Complete events ("X") carry microseconds,
rounded to nanoseconds at both ends so that neighbours never overlap. Traces of other programs are
read in the same format, such as traces of PyTorch's profiler.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gnnbench.errors import UsageError
from gnnbench.host.files import read_text
from gnnbench.records import (
    STAGES,
    AggregateWork,
    Comparison,
    Provenance,
    RunResult,
    SampleWork,
    Scheduled,
    Stage,
    count_moved,
)
from gnnbench.report.results.output import write_text

#: A JSON value as deep as an event needs.
Event = dict[str, str | int | float | dict[str, str | int | float]]
#: More than any trace of a few epochs has.
_LIMIT_BYTES = 1 << 30
#: What PyTorch's profiler calls the spans of its steps.
_STEP = "ProfilerStep#"


def write_chrome_trace(comparison: Comparison, path: Path) -> None:
    """Write the last epoch's timeline of every run, whole or not at all."""
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"gnnbench": comparison.gnnbench, "platform": comparison.platform},
        "traceEvents": trace_events(comparison),
    }
    write_text(path, json.dumps(document, allow_nan=False) + "\n")


def trace_events(comparison: Comparison) -> list[Event]:
    """Return all events: names and order of processes and threads, then the spans."""
    events: list[Event] = []
    for pid, run in enumerate((run for run in comparison.runs if run.timeline), start=1):
        name = run.label if run.repeat == 0 else f"{run.label} (repeat {run.repeat})"
        events.append(_name("process_name", pid, 0, f"{name} [{run.mode}]"))
        events.append(_order("process_sort_index", pid, 0, pid))
        for tid, (lane, spans) in enumerate(lanes(run.timeline), start=1):
            events.append(_name("thread_name", pid, tid, lane))
            events.append(_order("thread_sort_index", pid, tid, tid))
            events += [_complete(item, pid, tid, time_provenance(run)) for item in spans]
    return events


def read_stages(path: Path, label: str, mode: str) -> dict[Stage, float]:
    """Return the seconds of each stage in an epoch, by the busiest thread of a trace.

    A span belongs to the stage that it is named after, or that its ``args`` or its category names.
    If processes are named as gnnbench names runs, the run ``label`` in ``mode`` counts. Otherwise
    all processes count. The trace has as many epochs as its spans state, or as the profiler has
    steps, or one.

    Raises ``UsageError`` for a file that is no trace or has no span of a stage.
    """
    try:
        content = json.loads(read_text(path, _LIMIT_BYTES))
        events = content["traceEvents"] if isinstance(content, dict) else content
        events = [event for event in events if event["ph"] in ("X", "M")]
        names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
        runs = {pid for pid, name in names.items() if name == f"{label} [{mode}]"}
        spans = [e for e in events if e["ph"] == "X" and (not runs or e["pid"] in runs)]
        steps = {e["name"] for e in spans if e["name"].startswith(_STEP)}
        lanes: dict[tuple[Stage, object, object], float] = {}
        epochs = set()
        for event in spans:
            stage = _find_stage(event)
            if event.get("args", {}).get("provenance") == "modelled":
                raise UsageError(f"{path} has modelled times; give the trace of a measured run.")
            if stage is not None:
                lane = stage, event["pid"], event["tid"]
                lanes[lane] = lanes.get(lane, 0.0) + float(event["dur"]) / 1e6
                epochs.add(event.get("args", {}).get("epoch"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} is no Chrome trace ({type(error).__name__}: {error}); give one of gnnbench "
            f"compare --trace or of PyTorch's profiler."
        ) from error
    if not lanes:
        raise UsageError(
            f"{path} has no span of a stage; name spans {', '.join(STAGES)}, as record_function of "
            f"PyTorch does."
        )
    count = len(epochs) if None not in epochs else max(1, len(steps))
    return {
        stage: max(seconds for lane, seconds in lanes.items() if lane[0] == stage) / count
        for stage in STAGES
        if any(lane[0] == stage for lane in lanes)
    }


def _find_stage(event: dict[str, Any]) -> Stage | None:
    told = (event["name"], event.get("args", {}).get("stage"), event.get("cat"))
    return next((stage for text in told for stage in STAGES if stage == text), None)


def time_provenance(run: RunResult) -> Provenance:
    """Return the provenance of the run's timeline: its epoch time has the same."""
    return run.metrics["epoch_time"].provenance if "epoch_time" in run.metrics else "modelled"


def lanes(timeline: Iterable[Scheduled]) -> list[tuple[str, list[Scheduled]]]:
    """Return the timeline by resource, each lane in order of time.

    A span that holds several resources stands on each of them. A span that holds none stands on its
    place, which is not exclusive: overlapping spans get further lanes there.
    """
    by_lane: dict[str, list[Scheduled]] = {}
    for item in sorted(timeline, key=lambda item: (item.start_s, item.end_s, item.span.id)):
        for name in item.span.resources or (item.span.place,):
            lane, number = name, 1
            while lane in by_lane and by_lane[lane][-1].end_s > item.start_s:
                number += 1
                lane = f"{name} ({number})"
            by_lane.setdefault(lane, []).append(item)
    return sorted(by_lane.items())


def _complete(item: Scheduled, pid: int, tid: int, provenance: Provenance) -> Event:
    span, work = item.span, item.span.work
    start_us, end_us = round(item.start_s * 1e6, 3), round(item.end_s * 1e6, 3)
    return {
        "name": span.label or span.stage,
        "cat": span.stage,
        "ph": "X",
        "ts": start_us,
        "dur": round(end_us - start_us, 3),
        "pid": pid,
        "tid": tid,
        "args": {
            "stage": span.stage,
            "place": span.place,
            "epoch": span.epoch,
            "round": span.round,
            "layer": span.layer,
            "bytes": count_moved(work),
            "edges": work.edges if isinstance(work, SampleWork | AggregateWork) else 0,
            "provenance": provenance,
        },
    }


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _order(kind: str, pid: int, tid: int, index: int) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"sort_index": index}}
