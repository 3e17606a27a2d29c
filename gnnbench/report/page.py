"""Pages made of the templates beside this file, with one style; every text in them is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from gnnbench.records import STAGES
from gnnbench.report.svg import NUM_SERIES

#: Ways that bytes go, by the metric that counts them; those reused go none.
WAYS = {
    "host_to_device_bytes": "host to device",
    "device_to_host_bytes": "device to host",
    "device_to_device_bytes": "device to device",
    "all_to_all_bytes": "all to all",
    "all_reduce_bytes": "all reduce",
    "reused_bytes": "reused (not moved)",
}
#: How the line of each series in a chart is dashed.
_DASHES = ("none", "7 4", "2 3", "10 3 2 3", "4 4", "1 5")[:NUM_SERIES]


def render_page(template: str, title: str, **content: object) -> str:
    """A template's page as text; it needs nothing else."""
    environment = Environment(
        loader=PackageLoader("gnnbench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(stages=STAGES, ways=WAYS, series=_DASHES)
    return environment.get_template(template).render(title=title, **content)
