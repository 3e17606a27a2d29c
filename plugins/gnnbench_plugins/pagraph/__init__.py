"""PaGraph (Lin et al., SoCC 2020): mini-batches on GPUs that keep the hottest feature rows.

``memory`` holds the cache. It works with any placement, and with any communication that transfers
rows from the host, such as HyScale-GNN's. In this strategy only the accelerators train.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.pagraph.memory import PaGraphMemory


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [PaGraphMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
