"""Timelines in the Chrome trace event format, which Perfetto and chrome://tracing open.

A run is a process, and each of its resources a thread. Complete events ("X") carry microseconds,
rounded to nanoseconds at both ends so that neighbours never overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gnnbench.records import (
    AggregateWork,
    Comparison,
    Provenance,
    RunResult,
    SampleWork,
    Scheduled,
    count_moved,
)
from gnnbench.report.results.output import write_text

#: A JSON value as deep as an event needs.
Event = dict[str, str | int | float | dict[str, str | int | float]]


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
