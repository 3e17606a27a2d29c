"""Types of the compiled module that ``cython_ext/movement.pyx`` builds to."""

from gnnbench.kernels.reference.movement import SlotPositions
from gnnbench.records import BufferRows, Fetch, Unit

class RoundPositions:
    def __init__(self, num_vertices: int, threads: int) -> None: ...
    def follow(
        self,
        units: tuple[Unit, ...],
        fetches: tuple[Fetch, ...],
        following: tuple[Fetch, ...],
        rows: dict[int, BufferRows],
        merged: bool,
    ) -> list[SlotPositions]: ...
