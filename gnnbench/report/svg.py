"""Charts as inline SVG text: bars, a timeline and curves, styled by the page's own CSS.

Each has a title and a description for screen readers. Colours are CSS classes (``stage-transfer``,
``series-0``), so that a page's light and dark styles both apply.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from gnnbench.records import Scheduled, Stage
from gnnbench.report.chrome import lanes
from gnnbench.units import format_si

WIDTH = 880
_LABEL_WIDTH = 190
_FIGURE_WIDTH = 110
#: Most rectangles in one timeline; more are merged, then cut.
MAX_RECTANGLES = 400
#: Curves differ in colour or in dash pattern. The numbers have no common divisor: neighbours differ
#: in both, and the first pair drawn alike is as far apart as their product.
NUM_COLOURS, NUM_DASHES = 7, 4
NUM_SERIES = NUM_COLOURS * NUM_DASHES


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a stacked bar: the CSS class that colours it, its name, and its amount."""

    style: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar with its label in front and a text behind."""

    label: str
    segments: tuple[Segment, ...]
    figure: str


def draw_bars(title: str, bars: Sequence[Bar], unit: str) -> str:
    """Draw stacked horizontal bars on one scale that starts at zero, with round numbers below."""
    height, gap = 22, 10
    room = WIDTH - _LABEL_WIDTH - _FIGURE_WIDTH
    longest = max((sum(s.value for s in bar.segments) for bar in bars), default=0.0) or 1.0
    shapes, descriptions = [], []
    bottom = max(1, len(bars)) * (height + gap)
    step = _round_step(longest)
    for number in range(int(longest / step * (1 + 1e-9)) + 1):
        x = _LABEL_WIDTH + room * number * step / longest
        shapes.append(_line(x, 0, x, bottom))
        shapes.append(_text(x, bottom + 12, format_si(number * step, unit), "middle", "tick"))
    for number, bar in enumerate(bars):
        y = number * (height + gap) + gap / 2
        middle = y + height / 2
        shapes.append(_text(_LABEL_WIDTH - 10, middle, bar.label, "end"))
        x = float(_LABEL_WIDTH)
        parts = []
        for segment in bar.segments:
            width = room * segment.value / longest
            amount = f"{segment.name} {format_si(segment.value, unit)}"
            parts.append(amount)
            if width > 0:
                shapes.append(_rectangle(x, y, width, height, segment.style, amount))
            x += width
        shapes.append(_text(x + 8, middle, bar.figure, "start", "figure"))
        descriptions.append(f"{bar.label}: {', '.join(parts)}")
    return _svg(title, ". ".join(descriptions), bottom + 22, shapes)


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


def draw_timeline(title: str, reduced: Reduced) -> str:
    """Draw a lane for each resource, time from left to right."""
    height, gap = 16, 4
    room = WIDTH - _LABEL_WIDTH
    scale = room / reduced.end_s if reduced.end_s > 0 else 0.0
    bottom = max(1, len(reduced.lanes)) * (height + gap)
    shapes = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _LABEL_WIDTH + share * room
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        shapes.append(_line(x, 0, x, bottom))
        shapes.append(_text(x, bottom + 12, format_si(share * reduced.end_s, "s"), anchor, "tick"))
    for number, (lane, pieces) in enumerate(reduced.lanes):
        y = number * (height + gap)
        shapes.append(_text(_LABEL_WIDTH - 10, y + height / 2, lane, "end"))
        for piece in pieces:
            x = _LABEL_WIDTH + piece.start_s * scale
            width = max(0.4, (piece.end_s - piece.start_s) * scale)
            what = piece.label if piece.count == 1 else f"{piece.count} spans"
            tip = (
                f"{piece.stage}: {what}, {format_si(piece.start_s, 's')} to "
                f"{format_si(piece.end_s, 's')}"
            )
            shapes.append(_rectangle(x, y, width, height, f"stage-{piece.stage}", tip))
    description = f"{reduced.spans} spans on {len(reduced.lanes)} resources. {reduced.describe()}"
    return _svg(title, description.strip(), bottom + 22, shapes)


def draw_curves(title: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Draw loss by epoch, a line for each label; values that are not finite leave a gap."""
    height, left, bottom = 228, 60, 34
    finite = [v for values in curves.values() for v in values if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if high <= low:
        high = low + 1.0
    step = _round_step(high - low)
    low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    epochs = max((len(values) for values in curves.values()), default=1)
    room = WIDTH - left - 10

    def x_of(epoch: int) -> float:
        return left + room * (epoch / (epochs - 1) if epochs > 1 else 0.5)

    def y_of(value: float) -> float:
        return 8 + (height - bottom - 16) * (high - value) / (high - low)

    shapes = []
    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        shapes.append(_line(left, y_of(value), WIDTH - 10, y_of(value)))
        shapes.append(_text(left - 8, y_of(value), f"{value:.3g}", "end", "tick"))
    for epoch in sorted({0, (epochs - 1) // 2, epochs - 1}):
        shapes.append(_text(x_of(epoch), height - 24, str(epoch + 1), "middle", "tick"))
    shapes.append(_text(left + room / 2, height - 9, "epoch", "middle", "tick"))
    shapes.append(_text(0, (height - bottom) / 2, "loss", "start", "tick"))
    for number, (label, values) in enumerate(curves.items()):
        style = f"series-{number % NUM_SERIES}"
        points = [(x_of(i), y_of(v)) if math.isfinite(v) else None for i, v in enumerate(values)]
        path, pen_up = [], True
        for point in points:
            if point is not None:
                path.append(f"{'M' if pen_up else 'L'}{point[0]:.1f} {point[1]:.1f}")
            pen_up = point is None
        line = f'<path class="curve {style}" d="{" ".join(path)}">'
        shapes.append(f"{line}<title>{escape(label)}</title></path>")
        if epochs <= 30:
            shapes += [
                f'<circle class="{style}" cx="{p[0]:.1f}" cy="{p[1]:.1f}" r="2.5"/>'
                for p in points
                if p is not None
            ]
    ends = (f"{label} ends at {values[-1]:.4g}" for label, values in curves.items() if values)
    return _svg(title, "Loss by epoch: " + ", ".join(ends), height, shapes)


def draw_lines(
    title: str, axis: str, places: Sequence[float], curves: Mapping[str, Sequence[float]], unit: str
) -> str:
    """Draw curves over numbers along an axis, both from zero, each with its label at its end.

    A curve with fewer values ends before the axis does.
    """
    height, bottom, right = 380, 46, 190
    most = max((value for values in curves.values() for value in values), default=1.0)
    step = _round_step(most)
    top = step * math.ceil(most / step)
    heights = [format_si(number * step, unit) for number in range(round(top / step) + 1)]
    left = max(60, 12 + 6 * max(map(len, heights)))
    end = max(places)

    def x_of(place: float) -> float:
        return left + (WIDTH - left - right) * place / end

    def y_of(value: float) -> float:
        return 12 + (height - bottom - 12) * (1.0 - value / top)

    shapes = []
    for number, label in enumerate(heights):
        y = y_of(number * step)
        shapes.append(_line(left, y, WIDTH - right, y))
        shapes.append(_text(left - 8, y, label, "end", "tick"))
    for place in places:
        shapes.append(_text(x_of(place), height - bottom + 14, f"{place:g}", "middle", "tick"))
    shapes.append(_text((left + WIDTH - right) / 2, height - 10, axis, "middle", "tick"))
    ends = _spread([y_of(values[-1]) for values in curves.values()], 15.0)
    for number, ((label, values), end_y) in enumerate(zip(curves.items(), ends, strict=True)):
        style = f"series-{number % NUM_SERIES}"
        points = [(x_of(x), y_of(y)) for x, y in zip(places, values, strict=False)]
        path = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
        shapes.append(
            f'<path class="curve {style}" d="{path}"><title>{escape(label)}</title></path>'
        )
        for place, value, (x, y) in zip(places, values, points, strict=False):
            tip = f"{label}: {format_si(value, unit)} at {place:g}"
            shapes.append(
                f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                f"<title>{escape(tip)}</title></circle>"
            )
        shapes.append(_text(WIDTH - right + 12, end_y, label, "start"))
    told = (f"{label} ends at {values[-1]:.3g} {unit}" for label, values in curves.items())
    return _svg(title, f"By {axis}: {', '.join(told)}", height, shapes)


def _round_step(most: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten with at most six steps from 0 to ``most``."""
    power = 10.0 ** math.floor(math.log10(most / 6.0))
    return next(power * factor for factor in (1, 2, 5, 10) if most <= 6.0 * power * factor)


def _spread(places: Sequence[float], least: float) -> list[float]:
    """Move places down and up, in their order, until any two are ``least`` apart."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    shift = sum(moved) / len(moved) - sum(places) / len(places) if places else 0.0
    return [place - shift for place in moved]


# --------------------------------------------------------------------------- shapes


def _svg(title: str, description: str, height: float, shapes: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        f"{''.join(shapes)}</svg>"
    )


def _rectangle(x: float, y: float, width: float, height: float, style: str, tip: str) -> str:
    return (
        f'<rect class="{style}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:g}">'
        f"<title>{escape(tip)}</title></rect>"
    )


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return (
        f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'dominant-baseline="central">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
