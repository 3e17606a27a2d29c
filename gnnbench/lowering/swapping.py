"""What layers keep for their backward pass, on the host meanwhile: vertex data stays on devices.

A device that has no room for what all layers keep sends that of some to its host when a layer's
forward pass is over, and has it back before the layer's backward pass begins. All devices wait for
each other's, as at the end of a layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping

from gnnbench.footprint import ChunkSize, kept_bytes
from gnnbench.lowering.peer_rows import PeerRows
from gnnbench.lowering.shards import ShardUnit
from gnnbench.models.saved import SavedSizes
from gnnbench.parts import SwappingMemory
from gnnbench.program import Buffer, Free, Hold, Item, Ledger, Step
from gnnbench.records import BlockSize, Work


def name_kept(number: int) -> str:
    """What a ledger calls what a layer keeps from forward to backward."""
    return f"kept intermediates of layer {number + 1}"


def _name_rows(number: int) -> str:
    return f"rows of layer {number + 1}"


class Swapping(PeerRows):
    """Sends intermediates to the host and back; see the module's docstring.

    ``swaps`` are by slot and layer, from 0, the bytes that cross, one way.
    """

    swaps: Mapping[int, Mapping[int, int]]

    @abstractmethod
    def _chunks_of(self, slot: int, number: int) -> list[ChunkSize]:
        """The sizes of a device's blocks in one layer."""

    @abstractmethod
    def _hold_unit(self, number: int, unit: ShardUnit, *, backward: bool) -> tuple[Hold, ...]:
        """What one unit of one layer takes on its device while it is worked on."""

    def _plan_swaps(self, ledger: Ledger) -> None:
        """Choose the layers of each device, once all else is placed; its host has room for them."""
        memory, swaps, placed = self.bundle.memory, dict[int, dict[int, int]](), dict[str, int]()
        self.swaps = swaps
        if not isinstance(memory, SwappingMemory):
            return
        saved = SavedSizes(self.layers, self.bundle.kernel, self.setting.workload)
        for slot, device in enumerate(self.trainers):
            depth, host = range(len(self.layers)), self.hosts[slot]
            if device == host:
                continue
            chosen = memory.choose_swapped(
                [self._count_kept(slot, number) for number in depth],
                [self._count_working(slot, number) for number in depth],
                [self._count_output_bytes(slot, number) for number in depth],
                ledger.free_bytes(device.name),
            )
            self._check_chosen(chosen)
            swaps[slot] = {number: self._count_saved(saved, slot, number) for number in chosen}
            placed[host.name] = placed.get(host.name, 0) + sum(swaps[slot].values())
        for name, size in placed.items():
            ledger.allocate(name, "intermediates of devices", size)

    def _check_chosen(self, chosen: Collection[int]) -> None:
        last = len(self.layers) - 1
        wrong = [number for number in chosen if not 0 <= number < last]
        if wrong:
            raise ValueError(
                f"memory {self.bundle.memory.name!r} chose layer {wrong[0]} to be swapped, of "
                f"those from 0 to {last - 1} that can be: the last one's backward pass follows"
            )

    def _count_kept(self, slot: int, number: int) -> int:
        """Bytes that a device keeps of a layer from forward to backward."""
        chunks, copied = self._chunks_of(slot, number), self.shards.crosses(number)
        return kept_bytes(self._shapes[number], chunks, self._itemsize, copied=copied)

    def _count_working(self, slot: int, number: int) -> int:
        """The most that a device holds besides while it works on a layer."""
        units = [unit for unit in self.shards.units if unit.slot == slot]
        held = [
            sum(hold.size_bytes for hold in self._hold_unit(number, unit, backward=backward))
            for unit in units
            for backward in (False, True)
        ]
        return max(held, default=0)

    def _count_output_bytes(self, slot: int, number: int) -> int:
        """Bytes of what a device has of a layer's output."""
        rows = self.shards.count_rows(slot, number + 1)
        return rows * self._shapes[number].out_features * self._itemsize

    def _count_saved(self, saved: SavedSizes, slot: int, number: int) -> int:
        """Bytes of what autograd saves of a layer on a device."""
        device = self.trainers[slot].torch_device
        blocks = [unit.block_at(number) for unit in self.shards.units if unit.slot == slot]
        sizes = [BlockSize(each.num_src, each.num_dst, each.num_edges) for each in blocks]
        return sum(saved.size_bytes(number, size, device) for size in sizes)

    # ------------------------------------------------------------------ one epoch

    def _list_swapped(self, number: int) -> list[tuple[int, int]]:
        """The slots whose layer is swapped, with the bytes that cross for each."""
        return [(slot, sizes[number]) for slot, sizes in self.swaps.items() if number in sizes]

    def _hold_kept(self, number: int) -> Iterator[Item]:
        """Room for what a layer keeps, of devices that do not have it all the time."""
        for slot, _ in self._list_swapped(number):
            name = self.trainers[slot].name
            yield Hold(name, name_kept(number), self._count_kept(slot, number))

    def _free_kept(self, number: int) -> Iterator[Item]:
        for slot, _ in self._list_swapped(number):
            yield Free(self.trainers[slot].name, name_kept(number))

    def _swap_out(self, number: int) -> Iterator[Item]:
        """After a layer's forward pass; its output rows stay until the next layer has read them."""
        after = Buffer("intermediates are on the host")
        for slot, size in self._list_swapped(number):
            step = self._swap(number, slot, size, out=True)
            step.reads, step.adds = (self._meeting,), (after,)
            yield step
        yield from self._free_kept(number)
        for slot, _ in self._list_swapped(number):
            size = self._count_output_bytes(slot, number)
            yield Hold(self.trainers[slot].name, _name_rows(number + 1), size)
        if self._list_swapped(number):
            self._meeting = after

    def _let_rows_go(self, number: int) -> Iterator[Item]:
        """A layer has read its input rows, which were held beside what had gone to the host."""
        for slot, _ in self._list_swapped(number - 1):
            yield Free(self.trainers[slot].name, _name_rows(number))

    def _swap_in(self, number: int) -> Iterator[Item]:
        """Before a layer's backward pass."""
        yield from self._hold_kept(number)
        after = Buffer("intermediates are back")
        for slot, size in self._list_swapped(number):
            step = self._swap(number, slot, size, out=False)
            step.reads, step.adds = (self._meeting,), (after,)
            yield step
        if self._list_swapped(number):
            self._meeting = after

    def _swap(self, number: int, slot: int, size: int, *, out: bool) -> Step:
        device, host = self.trainers[slot], self.hosts[slot]
        route = self.platform.route(*((device, host) if out else (host, device)))
        return Step(
            "swap out" if out else "swap in",
            (number, slot),
            "offload" if out else "transfer",
            "intermediates to host" if out else "intermediates to device",
            route.place,
            route.lanes,
            Work("copy", bytes=size),
            number,
            self._round,
            moves=(("device_to_host" if out else "host_to_device", size),),
            device=slot,
        )
