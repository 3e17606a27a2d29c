"""Plans of training in the devices' memories: ``gnnbench plan hongtu-im``.

Chunks are counted as for HongTu (``planner``), by default one a partition. Storage differs: a
device holds all tensors of its partition. The host holds the data set and the optimiser's state.
"""

from collections.abc import Mapping
from typing import ClassVar

from gnnbench.errors import IncompatiblePartsError
from gnnbench.parts import Bundle
from gnnbench.records import Cell, Dataset, PartKind, Table, TableRow
from gnnbench.reproduce.studies import Planner, PlanRequest
from gnnbench_plugins.hongtu.counts import ChunkCounts
from gnnbench_plugins.hongtu.memory import InMemory
from gnnbench_plugins.hongtu.outlook import Outlook
from gnnbench_plugins.hongtu.placement import HongTuPlacement
from gnnbench_plugins.hongtu.planner import (
    Prospect,
    count,
    tabulate_chunks,
    tabulate_replicas,
)
from gnnbench_plugins.reference.communication import HaloCommunication


class InMemoryPlanner(Planner):
    """A planner that counts the partitions' neighbour sets, and checks that they fit on devices."""

    name: ClassVar[str] = "hongtu-im"
    summary: ClassVar[str] = "memory of every device, halo rows and epoch time, nothing offloaded"
    # No rows lie at the host's sockets.
    unplanned: ClassVar[Mapping[PartKind, tuple[str, ...]]] = {"placement": ("numa_aware",)}

    def plan(self, bundle: Bundle, request: PlanRequest) -> tuple[Table, ...]:
        prospect = InMemoryProspect(bundle, request)
        counted = count(prospect)
        outlook = prospect.foresee(counted)
        tables = (
            tabulate_chunks(counted),
            *tabulate_replicas(counted),
            prospect.tabulate_devices(counted.chunks, outlook),
        )
        if isinstance(request.graph, Dataset):
            return tables
        return (*tables, prospect.tabulate_memory(outlook), prospect.tabulate_epoch(outlook))


class InMemoryProspect(Prospect):
    """A request for HongTu-IM: nothing is offloaded, and the halo crosses at every layer."""

    def _check_communication(self, placement: HongTuPlacement) -> None:
        bundle = self.bundle
        if not (
            isinstance(bundle.communication, HaloCommunication)
            and isinstance(bundle.memory, InMemory)
        ):
            raise IncompatiblePartsError(
                "a plan for hongtu-im needs communication 'halo' and memory 'hongtu-im'."
            )

    def holds(self, chunks: ChunkCounts) -> bool:
        """Return True: more chunks leave as much on the devices, so training never cuts more."""
        return True

    def tabulate_devices(self, chunks: ChunkCounts, outlook: Outlook) -> Table:
        """Return a row for every device: its partition, its halo, and whether that fits."""
        own = chunks.neighbours.diagonal(axis1=1, axis2=2).sum(axis=0)
        halo = chunks.neighbours.sum(axis=(0, 2)) - own
        rows = []
        for i, device in enumerate(self.devices):
            size = outlook.peak_bytes[device.name]
            limit = self.bundle.memory.capacity_bytes(device)
            rows.append(
                TableRow(
                    device.name,
                    (
                        Cell(int(chunks.vertices[:, i].sum()), "", "measured"),
                        Cell(int(chunks.edges[:, i].sum()), "", "measured"),
                        Cell(int(halo[i]), "rows", "measured"),
                        Cell(size, "B"),
                        Cell(limit, "B"),
                        Cell(text="fits" if size <= limit else "does not fit"),
                    ),
                )
            )
        edges = chunks.edges.sum(axis=0)
        return Table(
            name="devices",
            title="what every device holds",
            columns=("vertices", "in-edges", "halo", "needed", "there is", ""),
            rows=tuple(rows),
            notes=(
                f"the largest partition has {edges.max() / max(edges.mean(), 1.0):.2f} times the "
                f"average number of in-edges; a device reads the halo from its peers in each "
                f"layer, and returns as many gradients",
            ),
        )
