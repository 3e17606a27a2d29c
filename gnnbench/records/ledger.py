"""Measurements that others made, each beside this project's prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: What was measured on: CPUs, one accelerator or several, several machines.
MachineKind = Literal["cpu", "gpu", "multi-gpu", "multi-node", "fpga"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A published measurement and what is predicted for it, both in ``unit``, unprefixed.

    ``machine`` names the platform that describes where it was taken, and ``what`` says which
    quantity of which training it is. ``quote`` is how the ``source`` puts it, ``conditions`` how it
    was measured, ``doubts`` what is uncertain about it, and ``inferred`` which facts of it are not
    in the source. ``sizes`` says where the sizes come from that the prediction is made of, and
    ``kernel`` which part stands for the library's. A constant of the model that was fitted on this
    very measurement is named in ``fitted_on``; such an entry proves nothing.
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
        """By what the larger of the two numbers is the smaller one multiplied; 1 is no error."""
        return max(self.predicted / self.measured, self.measured / self.predicted)
