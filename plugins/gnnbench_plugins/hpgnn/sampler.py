"""Samplers that lay out mini-batches for the board."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gnnbench.parts import UNIFORM, Bundle, DeviceMemory, MiniBatchSampler, Setting, option
from gnnbench.records import Block, IntArray
from gnnbench_plugins.hpgnn.layout import LaidOutBlock, lay_out
from gnnbench_plugins.reference.sampler import draw_neighbours
from gnnbench_plugins.reference.subgraph import LayerwiseDraws, SaintDraws


@dataclass
class LaidOut:
    """The options of the layout for the board, with edges in the order of section 4.1."""

    rmt: bool = option(True, "sort edges by source, so that a row is loaded once (RMT)")
    rra: bool = option(True, "rename hidden vertices in the order they are stored (RRA)")

    _resident: bool = field(default=True, init=False, repr=False, compare=False)

    def find_rows(self, bundle: Bundle) -> None:
        """Note whether feature rows lie on the board."""
        self._resident = isinstance(bundle.memory, DeviceMemory)

    def lay_out(self, blocks: Sequence[Block]) -> tuple[LaidOutBlock, ...]:
        """Return a mini-batch's blocks as the board reads them."""
        rows = tuple(block.num_dst for block in blocks)
        return tuple(
            lay_out(block, layer, rows, rmt=self.rmt, rra=self.rra, resident=self._resident)
            for layer, block in enumerate(blocks)
        )


@dataclass
class HpgnnSampler(LaidOut, MiniBatchSampler):
    """The neighbour sampler's own draws, laid out."""

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = (
        "neighbour sampling, edges sorted by source (RMT), vertices renamed (RRA)"
    )
    law: ClassVar[str] = UNIFORM

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        self.find_rows(bundle)
        return None

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[LaidOutBlock, ...]:
        return self.lay_out(draw_neighbours(self._setting, seeds, epoch, threads))


@dataclass
class HpgnnSaintSampler(LaidOut, SaintDraws, MiniBatchSampler):
    """GraphSAINT's subgraphs, which the paper's experiments sample besides neighbours, laid out."""

    name: ClassVar[str] = "hpgnn-saint"
    summary: ClassVar[str] = "GraphSAINT's subgraphs, with RMT and RRA"

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        self.find_rows(bundle)
        return super().refuses(bundle, setting)

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[LaidOutBlock, ...]:
        return self.lay_out(super().sample(seeds, epoch, threads))


@dataclass
class HpgnnLayerwiseSampler(LaidOut, LayerwiseDraws, MiniBatchSampler):
    """Layer-wise sampling, the third family of Table 2, laid out."""

    name: ClassVar[str] = "hpgnn-layerwise"
    summary: ClassVar[str] = "layer-wise sampling, with RMT and RRA"

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        self.find_rows(bundle)
        return super().refuses(bundle, setting)

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[LaidOutBlock, ...]:
        return self.lay_out(super().sample(seeds, epoch, threads))
