"""NeuGraph (Ma et al., USENIX ATC 2019): full-graph training on a grid of chunks.

Vertex data is streamed from the host, and intermediates stay on the devices.

``sampler`` cuts the grid, ``communication`` streams its pieces, and ``memory`` keeps what UPDATE's
backward pass needs.
"""

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Strategy, read_strategies
from gnnbench_plugins.neugraph.communication import NeuGraphCommunication
from gnnbench_plugins.neugraph.memory import NeuGraphMemory
from gnnbench_plugins.neugraph.sampler import NeuGraphSampler


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [NeuGraphSampler, NeuGraphCommunication, NeuGraphMemory]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return read_strategies(__file__)
