"""The options that describe how a library's program draws, loads and computes on a machine.

They are priced on described machines. Nothing executes them, so they are refused where times are
measured.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gnnbench.constants import Bound
from gnnbench.machines.costs.passes import RELU, Passes
from gnnbench.parts import Bundle, Loader, Setting, option, refuse_priced

#: Tensors of a layer's output that dropout, or batch normalisation, reads and writes, forward and
#: backward: a mask has a byte a value.
REGULARISER: Bound[Passes] = ((1, 1.25), (1.25, 1))


@dataclass
class LoaderOptions:
    """The options of samplers that draw as a library's loader does."""

    workers: int = option(
        0, "worker processes of each device that draw ahead; 0 = all cores draw together"
    )
    persistent: bool = option(False, "workers stay from one epoch to the next")
    prefetch: Literal["auto", 0, 1, 2] = option(
        "auto",
        "stages that work ahead of training: 1 = sampling; 2 = loading too; auto = 1 with workers, "
        "else 0",
    )
    where: Literal["host", "devices", "uva"] = option(
        "host",
        "who draws: the host, the accelerators from their own copy of the topology, or the "
        "accelerators from the host's memory",
    )

    def loader(self) -> Loader:
        ahead = self.prefetch
        if ahead == "auto":
            ahead = 1 if self.workers else 0
        return Loader(
            self.workers, self.persistent, ahead, self.where != "host", self.where == "uva"
        )


@dataclass
class RegularisedModel:
    """The option of kernels that price modules between two layers of a program's model."""

    hidden_passes: ClassVar[Passes] = RELU

    regularisers: int = option(
        0, "modules between two layers besides ReLU, such as dropout, that are priced"
    )

    def list_hidden_passes(self) -> Passes:
        (read, written), (read_back, written_back) = self.hidden_passes
        forward, backward = REGULARISER
        count = self.regularisers
        return (
            (read + count * forward[0], written + count * forward[1]),
            (read_back + count * backward[0], written_back + count * backward[1]),
        )

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        if self.regularisers < 0:
            return f"kernel.regularisers is {self.regularisers}; give 0 modules or more."
        if not self.regularisers:
            return None
        trainers = bundle.placement.trainers(setting.platform)
        if all(device.kind not in ("cpu", "gpu") for device in trainers):
            return (
                f"kernel.regularisers is {self.regularisers}, and UPDATE of {trainers[0].model} is "
                f"priced by its products alone; leave it out."
            )
        return refuse_priced("kernel", bundle.kernel.name, "regularisers", setting.platform)
