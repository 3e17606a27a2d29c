"""Intermediates of layers that wait on the host for their backward pass.

Vertex data stays on the devices. A device may lack room for the intermediates of all layers. It
then sends some to its host when a layer's forward pass is over, and fetches them before the layer's
backward pass begins. All devices wait for each other, as at the end of a layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gnnbench.lowering.frame import Frame
from gnnbench.lowering.shards import Progress
from gnnbench.lowering.stages.shard_memory import ShardMemory, name_kept
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import DeviceMemory
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Step
from gnnbench.records import BlockSize, Work


def _name_rows(number: int) -> str:
    return f"rows of layer {number + 1}"


class Swapping:
    """The transfers of intermediates to the host and back.

    ``swaps`` are the bytes that cross in one direction, by device index and layer, from 0.
    """

    def __init__(self, frame: Frame, now: Progress, memory: ShardMemory) -> None:
        self._frame, self._now, self._memory = frame, now, memory
        self.swaps: dict[int, dict[int, int]] = {}

    def plan_swaps(self, ledger: Ledger) -> None:
        """Choose the layers of each device, once all else is placed; its host has room for them."""
        frame, memory, placed = self._frame, self._frame.bundle.memory, dict[str, int]()
        if not (isinstance(memory, DeviceMemory) and memory.swaps):
            return
        saved = SavedSizes(
            self._frame.layers, self._frame.bundle.kernel, self._frame.setting.workload
        )
        for slot, device in enumerate(frame.trainers):
            depth, host = range(len(frame.layers)), frame.hosts[slot]
            if device == host:
                continue
            chosen = memory.choose_swapped(
                [self._memory.count_kept(slot, number) for number in depth],
                [self._memory.count_working(slot, number) for number in depth],
                [self._memory.count_output_bytes(slot, number) for number in depth],
                ledger.free_bytes(device.name),
            )
            self._check_chosen(chosen)
            self.swaps[slot] = {number: self._count_saved(saved, slot, number) for number in chosen}
            placed[host.name] = placed.get(host.name, 0) + sum(self.swaps[slot].values())
        for name, size in placed.items():
            ledger.allocate(name, "intermediates of devices", size)

    def _check_chosen(self, chosen: Collection[int]) -> None:
        last = len(self._frame.layers) - 1
        wrong = [number for number in chosen if not 0 <= number < last]
        if wrong:
            name = self._frame.bundle.memory.name
            raise ValueError(
                f"memory {name!r} chose layer {wrong[0]} to be swapped, of "
                f"those from 0 to {last - 1} that can be: the last one's backward pass follows"
            )

    def _count_saved(self, saved: SavedSizes, slot: int, number: int) -> int:
        """Return the bytes that autograd saves of a layer on a device."""
        device = self._frame.trainers[slot].torch_device
        blocks = [unit.block_at(number) for unit in self._now.shards.units if unit.slot == slot]
        sizes = [BlockSize(each.num_src, each.num_dst, each.num_edges) for each in blocks]
        return sum(saved.size_bytes(number, size, device) for size in sizes)

    # ------------------------------------------------------------------ one epoch

    def _list_swapped(self, number: int) -> list[tuple[int, int]]:
        """Return the devices that swap a layer, with the bytes that cross for each."""
        return [(slot, sizes[number]) for slot, sizes in self.swaps.items() if number in sizes]

    def hold_kept(self, number: int) -> Iterator[Item]:
        """Yield the holds of a layer's intermediates on devices that swap them."""
        for slot, _ in self._list_swapped(number):
            name = self._frame.trainers[slot].name
            yield Hold(name, name_kept(number), self._memory.count_kept(slot, number))

    def free_kept(self, number: int) -> Iterator[Item]:
        """Yield items that free a layer's kept data on each trainer that swaps it."""
        for slot, _ in self._list_swapped(number):
            yield Free(self._frame.trainers[slot].name, name_kept(number))

    def swap_out(self, number: int) -> Iterator[Item]:
        """Yield the transfers to the host after a layer's forward pass.

        The layer's output rows stay until the next layer has read them.
        """
        after = Buffer("intermediates are on the host")
        for slot, size in self._list_swapped(number):
            step = self._swap(number, slot, size, out=True)
            step.reads, step.adds = (self._now.meeting,), (after,)
            yield step
        yield from self.free_kept(number)
        for slot, _ in self._list_swapped(number):
            size = self._memory.count_output_bytes(slot, number)
            yield Hold(self._frame.trainers[slot].name, _name_rows(number + 1), size)
        if self._list_swapped(number):
            self._now.meeting = after

    def let_rows_go(self, number: int) -> Iterator[Item]:
        """Yield the release of a layer's input rows once the layer has read them.

        They were held since the swap of the layer before.
        """
        for slot, _ in self._list_swapped(number - 1):
            yield Free(self._frame.trainers[slot].name, _name_rows(number))

    def swap_in(self, number: int) -> Iterator[Item]:
        """Yield the transfers from the host before a layer's backward pass."""
        yield from self.hold_kept(number)
        after = Buffer("intermediates are back")
        for slot, size in self._list_swapped(number):
            step = self._swap(number, slot, size, out=False)
            step.reads, step.adds = (self._now.meeting,), (after,)
            yield step
        if self._list_swapped(number):
            self._now.meeting = after

    def _swap(self, number: int, slot: int, size: int, *, out: bool) -> Step:
        device, host = self._frame.trainers[slot], self._frame.hosts[slot]
        route = self._frame.platform.route(*((device, host) if out else (host, device)))
        return Step(
            "swap out" if out else "swap in",
            (number, slot),
            "offload" if out else "transfer",
            "intermediates to host" if out else "intermediates to device",
            route.place,
            route.lanes,
            Work("copy", bytes=size),
            number,
            self._now.round,
            moves=(("device_to_host" if out else "host_to_device", size),),
            device=slot,
        )
