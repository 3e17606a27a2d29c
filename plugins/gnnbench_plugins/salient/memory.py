"""Features in the memory of every node."""

from dataclasses import dataclass
from typing import ClassVar

from gnnbench.parts import LoadingMemory


@dataclass(frozen=True)
class SalientMemory(LoadingMemory):
    """All features in the host memory of each node.

    A mini-batch is prepared without the network. On a machine with one host it equals the plain
    memory ``host``.
    """

    name: ClassVar[str] = "salient"
    summary: ClassVar[str] = "features on the host, all of them on that of each node"

    @property
    def replicated(self) -> bool:
        return True
