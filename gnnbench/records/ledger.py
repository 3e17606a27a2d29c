"""Published measurements, each beside this project's prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Kinds of machines: CPUs, one accelerator or several, several hosts.
MachineKind = Literal["cpu", "gpu", "multi-gpu", "multi-node", "fpga"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A published measurement and this project's prediction, both in ``unit``, unprefixed.

    ``machine`` names the platform that describes the measured machine. ``what`` names the quantity
    and the training. ``quote`` is the wording of the ``source``, ``conditions`` how it was
    measured, ``doubts`` the uncertainties, and ``inferred`` the facts that are not in the source.
    ``sizes`` is the origin of the sizes behind the prediction, and ``kernel`` the part that models
    the library. ``fitted_on`` names the model's constants fitted on this very measurement; such an
    entry proves nothing.
    """

    id: str
    source: str
    library: str
    machine: str
    kind: MachineKind
    what: str
    measured: float
    predicted: float
    unit: str
    quote: str
    conditions: str = ""
    doubts: str = ""
    inferred: tuple[str, ...] = ()
    sizes: str = ""
    graph: str = ""
    model: str = ""
    kernel: str = ""
    fitted_on: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return (self.predicted - self.measured) / self.measured

    @property
    def factor(self) -> float:
        """The larger of the two numbers divided by the smaller one; 1 is no error."""
        return max(self.predicted / self.measured, self.measured / self.predicted)
