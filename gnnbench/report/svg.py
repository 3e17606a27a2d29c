"""Charts as SVG: bars, ranges, timelines, curves and points, styled by the page's CSS.

Places from left to right are shares of the width, and heights are pixels. So a chart fills a phone
as well as a desk, and its text keeps its size. Each has a title and a description for screen
readers. Colours are CSS classes (``stage-transfer``, ``series-0``), so that a page's light and dark
styles both apply. No plotting library is used: Observable Plot with D3 would add 490 kB of script
to each page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Literal, NamedTuple, TypeAlias

from gnnbench.records import Scheduled, Stage
from gnnbench.report.axes import Axis, scale_by_ratio, scale_from_zero
from gnnbench.report.chrome import lanes
from gnnbench.units import format_si

#: Most rectangles in one timeline; more are merged, then cut.
MAX_RECTANGLES = 600
#: Series differ in colour, or in dash pattern and shape. The numbers have no common divisor:
#: neighbours differ in both, and the first pair drawn alike is as far apart as their product.
NUM_COLOURS, NUM_DASHES = 8, 3
NUM_SERIES = NUM_COLOURS * NUM_DASHES
#: Letters of a label in one line above a bar, and of a label beside an axis. With the figure beside
#: it, the first fits on a screen of 390 pixels.
_LABEL_LETTERS, _MARGIN_LETTERS = 30, 20
_LETTER, _LINE = 6.6, 16
#: The width of a chart on such a screen.
_NARROW = 300
Anchor = Literal["start", "middle", "end"]
#: The style and the name of each thing that is drawn.
Legend: TypeAlias = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart: SVG shapes, its height, and the margins beside it that labels reach into.

    All lengths are in pixels.
    """

    title: str
    description: str
    height: float
    shapes: Sequence[str]
    left: float = 0.0
    right: float = 0.0

    def embed(self) -> str:
        """Return the element for a page, as wide as its place there."""
        return (
            f'<svg class="chart" role="img" style="height:{self.height:g}px;'
            f'--left:{self.left:g}px;--right:{self.right:g}px"><title>{escape(self.title)}</title>'
            f"<desc>{escape(self.description)}</desc>{''.join(self.shapes)}</svg>"
        )


# --------------------------------------------------------------------------- bars and ranges


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a stacked bar: the CSS class that colours it, its name, and its amount."""

    style: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar with its label and a figure above it; without both it follows closely."""

    label: str
    segments: tuple[Segment, ...]
    figure: str


class Range(NamedTuple):
    """A value with the interval around it, a label and a figure above it.

    A ``striped`` one is modelled. A ``winner`` is printed in bold.
    """

    label: str
    value: float
    low: float
    high: float
    style: str
    striped: bool
    figure: str
    winner: bool = False


def draw_bars(title: str, bars: Sequence[Bar], unit: str) -> Drawing:
    """Draw stacked horizontal bars on one scale that starts at zero, with round numbers below."""
    thick = 14
    axis = scale_from_zero(max((sum(s.value for s in bar.segments) for bar in bars), default=0.0))
    shapes, descriptions, y = [], [], 0.0
    for bar in bars:
        above, y = _head(bar.label, bar.figure, y)
        shapes += above
        so_far, parts = 0.0, []
        for segment in bar.segments:
            amount = f"{segment.name} {format_si(segment.value, unit)}"
            parts.append(amount)
            width = axis.share(segment.value)
            if width > 0:
                shapes.append(_rectangle(so_far, y, width, thick, segment.style, amount))
            so_far += width
        y += thick + 8
        descriptions.append(f"{bar.label}: {', '.join(parts)}")
    below = [*_ticks_below(axis, y, unit), *shapes]
    return Drawing(title, ". ".join(descriptions), y + 22, below)


def draw_ranges(title: str, ranges: Sequence[Range], unit: str) -> Drawing:
    """Draw a dot and its interval for each value, on one logarithmic scale."""
    axis = scale_by_ratio(end for each in ranges for end in (each.low, each.value, each.high))
    shapes, descriptions, y = [], [], 0.0
    for each in ranges:
        above, y = _head(each.label, each.figure, y, "winner" if each.winner else "")
        shapes += above
        low, value, high = map(axis.share, (each.low, each.value, each.high))
        ends = f"{format_si(each.low, unit)} to {format_si(each.high, unit)}"
        tip = f"{each.label}: {format_si(each.value, unit)}, {ends}"
        middle, stripes = y + 7, "striped " if each.striped else ""
        if high > low:
            shapes.append(_line(low, middle, high, middle, f"band {stripes}{each.style}", tip))
        mark = f"dot {'hollow ' if each.striped else ''}{each.style}"
        shapes.append(_circle(value, middle, 6, mark, tip))
        y += 14 + 8
        descriptions.append(tip)
    below = [*_ticks_below(axis, y, unit), *shapes]
    return Drawing(title, ". ".join(descriptions), y + 22, below)


def _head(label: str, figure: str, y: float, style: str = "") -> tuple[list[str], float]:
    """Return the line above a bar, or several, and the height at which the bar begins."""
    if not label and not figure:
        return [], y - 4
    lines = wrap(label, _LABEL_LETTERS) or [""]
    shapes = [
        _text(0, y + 8 + _LINE * number, line, "start", style) for number, line in enumerate(lines)
    ]
    shapes.append(_text(1, y + 8, figure, "end", f"figure {style}".strip()))
    return shapes, y + _LINE * len(lines) + 2


def _ticks_below(axis: Axis, bottom: float, unit: str) -> list[str]:
    """Return a line at each round value, and its text below."""
    lines = [_line(axis.share(value), 0, axis.share(value), bottom) for value in axis.ticks]
    return [*lines, *_texts_below(axis, bottom + 12, unit)]


def _texts_below(axis: Axis, y: float, unit: str) -> list[str]:
    """Return the texts of an axis, as many as have room beside each other on a phone."""
    shapes, free = [], -1.0
    for value in axis.ticks:
        x, told = axis.share(value), _tell(value, unit)
        width = _LETTER * len(told) / _NARROW
        anchor: Anchor = "start" if x < width / 2 else "end" if x > 1 - width / 2 else "middle"
        begin = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        if begin > free:
            shapes.append(_text(x, y, told, anchor, "tick"))
            free = begin + width
    return shapes


# --------------------------------------------------------------------------- timelines


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of a timeline: one span, or ``count`` neighbours of one stage drawn as one."""

    stage: Stage
    start_s: float
    end_s: float
    count: int
    label: str


@dataclass(frozen=True, slots=True)
class Reduced:
    """The drawn part of a timeline: pieces by lane up to ``end_s``, of ``spans`` spans in all."""

    lanes: tuple[tuple[str, tuple[Piece, ...]], ...]
    end_s: float
    total_s: float
    spans: int

    @property
    def drawn(self) -> int:
        """The number of drawn pieces."""
        return sum(len(pieces) for _, pieces in self.lanes)

    def describe(self) -> str:
        """Return a sentence on what was left out; empty if nothing was."""
        sentences = []
        if any(piece.count > 1 for _, pieces in self.lanes for piece in pieces):
            sentences.append("Neighbouring spans of one stage are drawn as one.")
        if self.end_s < self.total_s:
            shown, whole = format_si(self.end_s, "s"), format_si(self.total_s, "s")
            sentences.append(f"Only the first {shown} of {whole} are drawn.")
        return " ".join(sentences)


def reduce_timeline(timeline: Sequence[Scheduled], limit: int = MAX_RECTANGLES) -> Reduced:
    """Return at most ``limit`` rectangles: near neighbours are merged, then the end is cut.

    Only spans of one stage that follow each other on one lane merge, so no other stage is covered.
    """
    total_s = max((item.end_s for item in timeline), default=0.0)
    by_lane = [(name, _pieces(items)) for name, items in lanes(timeline)]
    # From a third of a pixel to gaps of about ten pixels.
    for share in (0.0, 0.0005, 0.002, 0.01):
        if sum(len(pieces) for _, pieces in by_lane) <= limit:
            break
        by_lane = [(name, _merge(pieces, share * total_s)) for name, pieces in by_lane]
    end_s = total_s
    starts = sorted(piece.start_s for _, pieces in by_lane for piece in pieces)
    if len(starts) > limit:
        end_s = starts[limit]
        by_lane = [(name, _cut(pieces, end_s)) for name, pieces in by_lane]
    return Reduced(
        tuple((name, tuple(pieces)) for name, pieces in by_lane), end_s, total_s, len(timeline)
    )


def _pieces(items: Iterable[Scheduled]) -> list[Piece]:
    return [
        Piece(item.span.stage, item.start_s, item.end_s, 1, item.span.label or item.span.stage)
        for item in items
        if item.end_s > item.start_s
    ]


def _merge(pieces: Sequence[Piece], gap_s: float) -> list[Piece]:
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last and last.stage == piece.stage and piece.start_s - last.end_s <= gap_s:
            count = last.count + piece.count
            merged[-1] = Piece(last.stage, last.start_s, piece.end_s, count, last.label)
        else:
            merged.append(piece)
    return merged


def _cut(pieces: Sequence[Piece], end_s: float) -> list[Piece]:
    return [
        Piece(piece.stage, piece.start_s, min(piece.end_s, end_s), piece.count, piece.label)
        for piece in pieces
        if piece.start_s < end_s
    ]


def draw_timeline(title: str, reduced: Reduced, end_s: float) -> Drawing:
    """Draw a lane for each resource, time from left to right up to ``end_s``."""
    thick, gap = 14, 5
    axis = scale_from_zero(end_s)
    shapes: list[str] = []
    bottom = max(1, len(reduced.lanes)) * (thick + gap)
    for number, (lane, pieces) in enumerate(reduced.lanes):
        y = number * (thick + gap)
        shapes.append(_beside(y + thick / 2, lane))
        for piece in pieces:
            begin = axis.share(piece.start_s)
            width = max(0.0005, axis.share(piece.end_s) - begin)
            what = piece.label if piece.count == 1 else f"{piece.count} spans"
            tip = (
                f"{piece.stage}: {what}, {format_si(piece.start_s, 's')} to "
                f"{format_si(piece.end_s, 's')}"
            )
            shapes.append(_rectangle(begin, y, width, thick, f"stage-{piece.stage}", tip))
    told = f"{reduced.spans} spans on {len(reduced.lanes)} resources. {reduced.describe()}"
    left = _room([lane for lane, _ in reduced.lanes])
    below = [*_ticks_below(axis, bottom, "s"), *shapes]
    return Drawing(title, told.strip(), bottom + 22, below, left)


# --------------------------------------------------------------------------- curves and points


class Across(NamedTuple):
    """The quantity from left to right of a chart with two axes; ``ticks`` are written below."""

    title: str
    axis: Axis
    unit: str = ""


class Point(NamedTuple):
    """A point of a scatter: ``row`` is the id of its row in a table, ``number`` its series'."""

    x: float
    y: float
    number: int
    striped: bool
    tip: str
    row: str = ""


def draw_lines(
    title: str,
    across: Across,
    places: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    up: Across,
) -> Drawing:
    """Draw a curve for each label over ``places``; values that are not finite leave a gap."""
    height = 200.0
    shapes, names = _frame(across, up, height)
    middles = [
        height * (1 - up.axis.share(next((v for v in reversed(values) if math.isfinite(v)), 0.0)))
        for values in curves.values()
    ]
    for number, ((label, values), y_end) in enumerate(
        zip(curves.items(), _spread(middles, 15.0), strict=True)
    ):
        style = f"series-{number % NUM_SERIES}"
        points = [
            (across.axis.share(x), height * (1 - up.axis.share(value)), x, value)
            if math.isfinite(value)
            else None
            for x, value in zip(places, values, strict=False)
        ]
        shapes.append(_path(points, height, style, label))
        for point in points if len(points) <= 30 else ():
            if point is not None:
                x, y, place, value = point
                tip = f"{label}: {_tell(value, up.unit)} at {place:g}"
                shapes.append(_circle(x, y, 3, style, tip))
        shapes.append(_text(1, y_end, _shorten(label), "start", "curve-end", shift=10))
    ends = {label: _tell(values[-1], up.unit) for label, values in curves.items() if values}
    told = ", ".join(f"{label} ends at {end}" for label, end in ends.items())
    told = f"By {across.title}: {told}"
    return Drawing(title, told, height + 44, shapes, _room(names), _room(list(curves)))


def name_series(names: Iterable[str], kind: str = "") -> Legend:
    """Return the legend of series; ``"curve "`` is the ``kind`` that is drawn as a line."""
    return [(f"{kind}series-{number % NUM_SERIES}", name) for number, name in enumerate(names)]


def draw_points(title: str, across: Across, up: Across, points: Sequence[Point]) -> Drawing:
    """Draw a mark for each point; a hollow one is modelled."""
    height = 260.0
    shapes, names = _frame(across, up, height)
    for point in points:
        x, y = across.axis.share(point.x), height * (1 - up.axis.share(point.y))
        mark = f"dot {'hollow ' if point.striped else ''}series-{point.number % NUM_SERIES}"
        shapes.append(_circle(x, y, 6, mark, point.tip, point.row))
    told = ". ".join(point.tip for point in points)
    return Drawing(title, told, height + 44, shapes, _room(names), 8)


def _frame(across: Across, up: Across, height: float) -> tuple[list[str], list[str]]:
    """Return the grid and the texts of both axes, and the texts at the left."""
    shapes, names = [], []
    for value in up.axis.ticks:
        y = height * (1 - up.axis.share(value))
        names.append(_tell(value, up.unit))
        shapes += [_line(0, y, 1, y), _beside(y, names[-1], "tick")]
    shapes += _texts_below(across.axis, height + 14, across.unit)
    shapes.append(_text(0.5, height + 32, across.title, "middle", "tick"))
    return shapes, names


def _tell(value: float, unit: str) -> str:
    """Return a value with its unit; numbers without one have four digits at most."""
    return format_si(value, unit) if unit else f"{value:.4g}"


def _room(names: Sequence[str]) -> float:
    """Return the pixels that the longest of the texts beside a chart needs."""
    return 12 + _LETTER * min(_MARGIN_LETTERS, max(map(len, names), default=0))


def _spread(places: Sequence[float], least: float) -> list[float]:
    """Move places down and up, in their order, until any two are ``least`` apart."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    shift = sum(moved) / len(moved) - sum(places) / len(places) if places else 0.0
    return [place - shift for place in moved]


# --------------------------------------------------------------------------- shapes


def _rectangle(x: float, y: float, width: float, height: float, style: str, tip: str) -> str:
    return (
        f'<rect class="{style}" x="{100 * x:.2f}%" y="{y:g}" width="{100 * width:.2f}%" '
        f'height="{height:g}"><title>{escape(tip)}</title></rect>'
    )


def _circle(x: float, y: float, radius: float, style: str, tip: str, row: str = "") -> str:
    named = f' data-row="{escape(row)}"' if row else ""
    return (
        f'<circle class="{style}"{named} cx="{100 * x:.2f}%" cy="{y:.1f}" r="{radius:g}">'
        f"<title>{escape(tip)}</title></circle>"
    )


def _path(
    points: Sequence[tuple[float, float, float, float] | None], height: float, style: str, tip: str
) -> str:
    """Return a curve in its own box, since a path's coordinates cannot be shares of a width."""
    steps, pen_up = [], True
    for point in points:
        if point is not None:
            steps.append(f"{'M' if pen_up else 'L'}{100 * point[0]:.2f} {point[1]:.1f}")
        pen_up = point is None
    return (
        f'<svg viewBox="0 0 100 {height:g}" preserveAspectRatio="none" width="100%" '
        f'height="{height:g}" overflow="visible"><path class="curve {style}" '
        f'vector-effect="non-scaling-stroke" d="{" ".join(steps)}">'
        f"<title>{escape(tip)}</title></path></svg>"
    )


def _text(
    x: float, y: float, text: str, anchor: Anchor, style: str = "", *, shift: float = 0.0
) -> str:
    named = f' class="{style}"' if style else ""
    moved = f' dx="{shift:g}"' if shift else ""
    return (
        f'<text{named} x="{100 * x:.2f}%" y="{y:.1f}"{moved} text-anchor="{anchor}" '
        f'dominant-baseline="central">{escape(text)}</text>'
    )


def _beside(y: float, text: str, style: str = "") -> str:
    """Return a text in the left margin."""
    return _text(0, y, _shorten(text), "end", style, shift=-8)


def _shorten(text: str) -> str:
    """Return a text without its middle if it has no room in a margin."""
    half = _MARGIN_LETTERS // 2 - 1
    return text if len(text) <= _MARGIN_LETTERS else f"{text[:half]}…{text[-half:]}"


def _line(x1: float, y1: float, x2: float, y2: float, style: str = "grid", tip: str = "") -> str:
    told = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<line class="{style}" x1="{100 * x1:.2f}%" y1="{y1:.1f}" x2="{100 * x2:.2f}%" '
        f'y2="{y2:.1f}">{told}</line>'
    )
