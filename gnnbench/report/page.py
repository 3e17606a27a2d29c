"""Pages made of the templates beside this file, with one style; every text in them is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from gnnbench.records import STAGES
from gnnbench.report.cells import MARKS
from gnnbench.report.svg import NUM_COLOURS, NUM_DASHES, NUM_SERIES

#: Ways of bytes, by the metric that counts them; reused bytes go no way.
WAYS = {
    "host_to_device_bytes": "host to device",
    "device_to_host_bytes": "device to host",
    "device_to_device_bytes": "device to device",
    "host_to_host_bytes": "host to host",
    "all_to_all_bytes": "all to all",
    "all_reduce_bytes": "all reduce",
    "reused_bytes": "reused (not moved)",
}
#: What a critical path has where no step runs.
WAITING = "waiting"
#: Dash patterns of series.
_DASHES = ("none", "9 4", "2 3")[:NUM_DASHES]
#: Colours of stages, in their order, and of series and ways, on a light and on a dark page. Every
#: two differ by at least 25 (CIE 1976 L*a*b*), also as seen without one of the three cones (Machado
#: et al., 2009). Each has a contrast of at least 3 with its page, as WCAG 2.1 asks of graphics.
LIGHT = ("#803040", "#603070", "#a01010", "#1040b0", "#6090f0", "#b09010", "#e07070", "#9090b0")
DARK = ("#f090f0", "#709010", "#d03090", "#5070f0", "#50f0d0", "#d0d030", "#a0e080", "#907050")


def list_series() -> list[tuple[int, str]]:
    """Return the colour number and the dash pattern of each series; the first is blue."""
    return [
        ((3 + 3 * number) % NUM_COLOURS, _DASHES[number % NUM_DASHES])
        for number in range(NUM_SERIES)
    ]


def render_page(template: str, title: str, **content: object) -> str:
    """Return a template's page as self-contained text; ``charts.css`` is one too."""
    environment = Environment(
        loader=PackageLoader("gnnbench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        stages=STAGES,
        waiting=WAITING,
        ways=WAYS,
        series=list_series(),
        light=LIGHT,
        dark=DARK,
        marks=MARKS,
    )
    return environment.get_template(template).render(title=title, **content)
