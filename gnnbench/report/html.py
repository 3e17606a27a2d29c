"""The comparison as one web page that needs nothing else: no script, font, style or picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from gnnbench.ranking import Group, Row, group_runs, list_devices
from gnnbench.records import STAGES, Comparison, Metric, Provenance
from gnnbench.report.chrome import time_provenance
from gnnbench.report.svg import (
    NUM_SERIES,
    Bar,
    Segment,
    draw_bars,
    draw_curves,
    draw_timeline,
    reduce_timeline,
)
from gnnbench.report.table import (
    BYTE_COLUMNS,
    clock_line,
    describe_equality,
    describe_mini_batches,
    format_range,
    graph_line,
    made_up_lines,
    provenance_line,
    provenances,
    run_notes,
    title_line,
)
from gnnbench.report.verdict import describe_noise, summarise
from gnnbench.results.output import write_text
from gnnbench.units import format_si

_MARKS: dict[Provenance, str] = {"measured": "●", "modelled": "◇", "quoted": "□"}
_MEANINGS: dict[Provenance, str] = {
    "measured": "timed or counted on this machine",
    "modelled": "what the described platform would take",
    "quoted": "taken from a paper",
}
_TRAFFIC = {
    "host_to_device_bytes": "host to device",
    "device_to_host_bytes": "device to host",
    "device_to_device_bytes": "device to device",
    "all_to_all_bytes": "all to all",
    "all_reduce_bytes": "all reduce",
    "reused_bytes": "reused (not moved)",
}
#: Columns of the main table after the epoch, and the metrics whose sum they show.
_FIGURES: Mapping[str, tuple[str, ...]] = {
    "edges/s": ("throughput_edges",),
    "time to accuracy": ("time_to_accuracy",),
    "energy": ("energy",),
    **{" ".join(lines).replace("- ", "-"): names for lines, names in BYTE_COLUMNS.items()},
}
#: Every metric in the order a reader asks for it; unknown ones follow.
_METRICS = {
    "epoch_time": "epoch",
    "time_to_accuracy": "time to accuracy",
    "throughput_edges": "edges per second",
    "throughput_vertices": "vertices per second",
    **_TRAFFIC,
    "peak_device_bytes": "peak, largest device",
    "peak_host_bytes": "peak, host",
    "imbalance": "imbalance",
    "energy": "energy",
    "preprocessing_time": "preprocessing, once",
    "wall_time": "this machine's epoch",
    "harness_overhead": "of which harness",
}
STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--soft:#5c656f;--rule:#d9dde2;--page:#fff;
--well:#f5f6f8;--win:#0a7a4b;--bad:#b42318;--c0:#4477aa;--c1:#66a5c8;--c2:#cc6677;--c3:#228833;--c4:#b8860b;
--c5:#7a4fa3;--c6:#e07b39;--c7:#6b7280}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa4af;--rule:#353b43;--page:#15181c;
--well:#1d2126;--win:#4cc38a;--bad:#ff7b6e;--c0:#6f9fd0;--c1:#8cc4e4;--c2:#e58c9a;--c3:#57b565;
--c4:#d9ab3a;--c5:#a783d0;--c6:#f0a06b;--c7:#949ca8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1000px;padding:40px 24px 80px;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:24px;line-height:1.25;margin:0 0 4px;font-weight:650}
h2{font-size:19px;margin:48px 0 10px;padding-top:14px;border-top:1px solid var(--rule)}
h3{font-size:14px;margin:28px 0 10px;color:var(--soft);font-weight:600}
p{margin:6px 0}.soft,figcaption{color:var(--soft);font-size:13px}
.answer{margin:22px 0;padding:14px 18px;background:var(--well);border-radius:8px;font-size:16px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:6px 12px 6px 0;text-align:right;border-bottom:1px solid var(--rule);
white-space:nowrap}
th{font-weight:600;font-size:13px;color:var(--soft)}tbody th{color:var(--ink);font-size:15px}
th:first-child,td.reason,.plain td{text-align:left}td.reason,.plain td{white-space:normal}
.win{color:var(--win);font-weight:650}.bad{color:var(--bad);font-weight:650}
figure{margin:0 0 8px;overflow-x:auto}figure svg{min-width:640px}
figcaption{margin-top:8px;position:sticky;left:0}
thead small{display:block;font-weight:400;font-size:12px}td small{color:var(--soft)}
.plain th{width:230px;vertical-align:top}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
svg .tick,svg .figure{fill:var(--soft)}svg .tick{font-size:11px}
.grid{stroke:var(--rule)}.curve{fill:none;stroke-width:2}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0;padding:0;list-style:none;
font-size:13px;color:var(--soft)}
.legend svg{display:inline-block;width:12px;height:12px;margin-right:6px;vertical-align:-1px}
details{margin:8px 0}summary{cursor:pointer;color:var(--soft)}
""" + "".join(
    [f".stage-{stage}{{fill:var(--c{i})}}" for i, stage in enumerate(STAGES)]
    + [f".bytes-{i}{{fill:var(--c{i})}}" for i in range(len(_TRAFFIC))]
    # What was reused did not move: an outline.
    + [f".bytes-{len(_TRAFFIC) - 1}{{fill:none;stroke:var(--c{len(_TRAFFIC) - 1})}}"]
    + [
        f".series-{i}{{fill:var(--c{i})}}.curve.series-{i}{{fill:none;stroke:var(--c{i});"
        f"stroke-dasharray:{['none', '7 4', '2 3', '10 3 2 3', '4 4', '1 5'][i]}}}"
        for i in range(NUM_SERIES)
    ]
)


def write_html(comparison: Comparison, path: Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, make_page(comparison))


def make_page(comparison: Comparison) -> str:
    """The page as text."""
    groups = group_runs(comparison)
    title = title_line(comparison)
    setting = [clock_line(comparison), graph_line(comparison), *made_up_lines(comparison)]
    warnings = [describe_noise(comparison, groups), comparison.interrupted]
    answers = [*summarise(groups), *(warning for warning in warnings if warning)]
    answer = "".join(f"<p>{escape(text)}</p>" for text in answers)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<div class="answer">{answer or "<p>No run finished.</p>"}</div>',
        *(f'<p class="soft">{escape(line)}</p>' for line in setting),
        f'<p class="soft">{escape(provenance_line(comparison))}</p>',
        _provenance_legend(comparison),
        *(_section(group) for group in groups),
        _notes(groups),
        _setting(comparison),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _section(group: Group) -> str:
    done = [row for row in group.rows if row.done]
    parts = [f"<h2>{escape(group.title.capitalize())}</h2>", _table(group)]
    for provenance in provenances(row.stage(stage) for row in done for stage in STAGES):
        parts.append(_stage_chart(group, done, provenance))
    for provenance in provenances(row.metric(name) for row in done for name in _TRAFFIC):
        parts.append(_traffic_chart(group, done, provenance))
    curves = {row.label: row.done[0].loss for row in done if row.done[0].loss}
    if curves:
        title = f"Loss, {group.title}"
        styles = [(f"series-{i % NUM_SERIES}", label) for i, label in enumerate(curves)]
        parts.append(f"<h3>Training loss</h3>{_figure(draw_curves(title, curves))}")
        parts.append(_legend(styles))
    timelines = [row for row in done if row.done[0].timeline]
    if timelines:
        parts.append("<h3>Timeline of the last epoch</h3>")
        parts += [_timeline(row) for row in timelines]
    parts.append(_all_metrics(done))
    return f"<section>{''.join(parts)}</section>"


# --------------------------------------------------------------------------- tables


def _table(group: Group) -> str:
    """One row a strategy; a run that did not finish says why across the columns of figures."""
    done = [row for row in group.rows if row.done]
    epochs = provenances(row.metric("epoch_time") for row in done)
    figures = [
        (title, provenance, metrics)
        for title, names in _FIGURES.items()
        for metrics in ({row.label: row.sum_metrics(*names) for row in done},)
        for provenance in provenances(metrics.values())
    ]
    heads = ["strategy", _head("loss", "computed"), _head("test accuracy", "computed")]
    for provenance in epochs:
        base = group.base(provenance)
        speed = f"{escape(base.label)} = 1" if base is not None else ""
        heads += [_head("epoch", provenance), _head("speed", speed)]
    heads += [_head(title, provenance) for title, provenance, _ in figures]
    heads += [_head("equal to reference", "checked here"), _head("trained on", "devices")]
    lines = []
    for row in group.rows:
        label = f'<th scope="row">{escape(row.label)}</th>'
        if row.done:
            cells = [
                _number(row.final_loss),
                _number(row.test_accuracy),
                *(cell for p in epochs for cell in _epoch_cells(group, row, p)),
                *(_cell(metrics[row.label], p) for _, p, metrics in figures),
                _equal_cell(row),
                f"<td>{escape(list_devices(row.trainers)) or '-'}</td>",
            ]
            lines.append(f"<tr>{label}{''.join(cells)}</tr>")
        for failure in row.failures:
            reason = f'<td class="reason" colspan="{len(heads) - 1}">{escape(failure)}</td>'
            lines.append(f"<tr>{label}{reason}</tr>")
    return _make_table(f"Results, {group.title}", heads, lines)


def _head(title: str, below: str) -> str:
    """The heading of a column, and below it where its numbers come from."""
    return f"{title}<small>{below}</small>"


def _make_table(caption: str, heads: Sequence[str], lines: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    return (
        f'<div class="scroll"><table aria-label="{escape(caption)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _epoch_cells(group: Group, row: Row, provenance: Provenance) -> tuple[str, str]:
    epoch = row.metric("epoch_time")
    if epoch is None or epoch.provenance != provenance:
        return "<td>-</td>", "<td></td>"
    style = ' class="win"' if row is next(iter(group.rank(provenance)), None) else ""
    ratio = group.ratio(row)
    speed = "" if ratio is None else f"{ratio.ratio:.2f}x"
    if text := format_range(ratio):
        speed += f" <small>({text})</small>"
    return f"<td{style}>{format_si(epoch.value, 's')}</td>", f"<td>{speed}</td>"


def _equal_cell(row: Row) -> str:
    bad = row.equivalence is not None and not row.equivalence.holds
    style = ' class="bad"' if bad else ""
    return f"<td{style}>{describe_equality(row)}</td>"


def _cell(metric: Metric | None, provenance: Provenance) -> str:
    if metric is None or metric.provenance != provenance:
        return "<td>-</td>"
    # A rate's unit stands in its heading.
    text = format_si(metric.value, "") if metric.unit.endswith("/s") else _format(metric)
    return f"<td>{escape(text)}</td>"


def _number(value: float | None) -> str:
    return f"<td>{'-' if value is None else f'{value:.4f}'}</td>"


def _format(metric: Metric) -> str:
    if metric.unit in ("", "1"):
        return f"{metric.value:.3g}"
    if metric.unit.endswith("/s"):
        return f"{format_si(metric.value, '')} {metric.unit}"
    return format_si(metric.value, metric.unit)


def _all_metrics(done: Sequence[Row]) -> str:
    """Every metric of every finished row, each figure with its mark, folded away."""
    named = dict.fromkeys([*_METRICS, *(name for row in done for name in row.done[0].metrics)])
    lines = []
    for name in named:
        metrics = [row.metric(name) for row in done]
        if not any(metrics):
            continue
        cells = "".join(
            f"<td>{escape(_format(m))} {_mark(m.provenance)}</td>" if m else "<td>-</td>"
            for m in metrics
        )
        title = _METRICS.get(name, name.replace("_", " "))
        lines.append(f'<tr><th scope="row">{escape(title)}</th>{cells}</tr>')
    if not lines:
        return ""
    table = _make_table("All metrics", ["metric", *(escape(row.label) for row in done)], lines)
    return f"<details><summary>All metrics, for each epoch unless said</summary>{table}</details>"


# --------------------------------------------------------------------------- charts


def _stage_chart(group: Group, done: Sequence[Row], provenance: Provenance) -> str:
    bars = []
    for row in done:
        times = [(s, m) for s in STAGES if (m := row.stage(s)) and m.provenance == provenance]
        segments = tuple(Segment(f"stage-{stage}", stage, m.value) for stage, m in times)
        if segments:
            longest = max(segments, key=lambda segment: segment.value)
            bars.append(Bar(row.label, segments, f"mostly {longest.name}"))
    used = {s.name for bar in bars for s in bar.segments if s.value > 0}
    legend = _legend([(f"stage-{stage}", stage) for stage in STAGES if stage in used])
    chart = draw_bars(f"Seconds by stage, {group.title} [{provenance}]", bars, "s")
    caption = "Busy seconds of each stage's busiest resource, per epoch; stages may overlap."
    return f"<h3>Stages [{provenance}]</h3>{_figure(chart, caption)}{legend}"


def _traffic_chart(group: Group, done: Sequence[Row], provenance: Provenance) -> str:
    bars, used = [], set()
    for row in done:
        segments = []
        for number, (name, title) in enumerate(_TRAFFIC.items()):
            metric = row.metric(name)
            if metric is not None and metric.provenance == provenance and metric.value > 0:
                segments.append(Segment(f"bytes-{number}", title, metric.value))
                used.add(number)
        moved = sum(s.value for s in segments if s.name != _TRAFFIC["reused_bytes"])
        bars.append(Bar(row.label, tuple(segments), f"{format_si(moved, 'B')} moved"))
    if not used:
        return ""
    legend = _legend([(f"bytes-{i}", t) for i, t in enumerate(_TRAFFIC.values()) if i in used])
    chart = draw_bars(f"Bytes by way, {group.title} [{provenance}]", bars, "B")
    return f"<h3>Bytes an epoch [{provenance}]</h3>{_figure(chart)}{legend}"


def _timeline(row: Row) -> str:
    run = row.done[0]
    reduced = reduce_timeline(run.timeline)
    provenance = time_provenance(run)
    chart = draw_timeline(f"Timeline of {row.label} [{provenance}]", reduced)
    stages = {piece.stage for _, pieces in reduced.lanes for piece in pieces}
    legend = _legend([(f"stage-{stage}", stage) for stage in STAGES if stage in stages])
    name = f"<p>{escape(row.label)} [{provenance}]</p>"
    return name + _figure(chart, f"{reduced.spans} spans. {reduced.describe()}") + legend


def _figure(chart: str, caption: str = "") -> str:
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{chart}{text}</figure>"


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = (
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{style}" width="12" '
        f'height="12" rx="2"/></svg>{escape(name)}</li>'
        for style, name in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _mark(provenance: Provenance) -> str:
    mark = _MARKS[provenance]
    return f'<span role="img" aria-label="{provenance}" title="{provenance}">{mark}</span>'


def _provenance_legend(comparison: Comparison) -> str:
    found = provenances(metric for run in comparison.runs for metric in run.metrics.values())
    items = [f"<li>{_MARKS[p]} {p}: {_MEANINGS[p]}</li>" for p in found]
    items.append("<li>computed: what training on this machine gave</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


# --------------------------------------------------------------------------- setting


def _notes(groups: Sequence[Group]) -> str:
    notes = run_notes(groups)
    if not notes:
        return ""
    items = "".join(f"<li>{escape(label)}: {escape(note)}</li>" for label, note in notes)
    return f"<section><h2>Notes</h2><ul>{items}</ul></section>"


def _setting(comparison: Comparison) -> str:
    workload = comparison.workload
    trained: Mapping[str, object] = {
        "model": workload.model,
        "dims": "-".join(map(str, workload.dims)),
        "epochs": workload.epochs,
        "mini_batches": describe_mini_batches(comparison) or "none",
        "seed": workload.seed,
        "learning_rate": workload.learning_rate,
        "weight_decay": workload.weight_decay,
        "dtype": workload.dtype,
        "threads": workload.threads,
    }
    platform = {
        "name": comparison.platform,
        "description": comparison.platform_description,
        "times": clock_line(comparison),
    }
    made = {
        "command": " ".join(comparison.command),
        "gnnbench": comparison.gnnbench,
        "created": comparison.created,
    }
    parts = {
        f"{run.label} ({run.mode})": (
            f"sampler {run.parts.sampler}, placement {run.parts.placement}, communication "
            f"{run.parts.communication}, memory {run.parts.memory}, kernel {run.parts.kernel}"
        )
        for run in comparison.runs
    }
    tables = {
        "Strategies": parts,
        "Workload": trained,
        "Dataset": comparison.dataset,
        "Platform": platform,
        "Machine": comparison.machine,
        "Made by": made,
    }
    body = "".join(_facts(title, facts) for title, facts in tables.items())
    return f"<section><h2>Setting</h2>{body}</section>"


def _facts(title: str, facts: Mapping[str, object]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(name).replace("_", " "))}</th>'
        f"<td>{escape(_fact(value))}</td></tr>"
        for name, value in facts.items()
    )
    return (
        f'<h3>{escape(title)}</h3><div class="scroll"><table class="plain" '
        f'aria-label="{escape(title)}"><tbody>{rows}</tbody></table></div>'
    )


def _fact(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, (tuple, list)):
        return "; ".join(map(str, value))
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
