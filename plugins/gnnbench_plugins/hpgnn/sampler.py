"""Samplers that lay out mini-batches for the board."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gnnbench.parts import Bundle, DeviceMemory, Setting, option
from gnnbench.records import IntArray
from gnnbench_plugins.hpgnn.layout import LaidOutBlock, lay_out
from gnnbench_plugins.reference.sampler import NeighbourSampler
from gnnbench_plugins.reference.subgraph import LayerwiseSampler, SaintSampler


@dataclass
class HpgnnSampler(NeighbourSampler):
    """The neighbour sampler's own draws, with edges in the order of section 4.1."""

    name: ClassVar[str] = "hpgnn"
    summary: ClassVar[str] = (
        "neighbour sampling, edges sorted by source (RMT), vertices renamed (RRA)"
    )

    rmt: bool = option(True, "sort edges by source, so that a row is loaded once (RMT)")
    rra: bool = option(True, "rename hidden vertices in the order they are stored (RRA)")

    _resident: bool = field(default=True, init=False, repr=False, compare=False)

    def refuses(self, bundle: Bundle, setting: Setting) -> str | None:
        self._resident = isinstance(bundle.memory, DeviceMemory)
        return super().refuses(bundle, setting)

    def sample(self, seeds: IntArray, epoch: int, threads: int) -> tuple[LaidOutBlock, ...]:
        blocks = super().sample(seeds, epoch, threads)
        rows = tuple(block.num_dst for block in blocks)
        return tuple(
            lay_out(block, layer, rows, rmt=self.rmt, rra=self.rra, resident=self._resident)
            for layer, block in enumerate(blocks)
        )


@dataclass
class HpgnnSaintSampler(HpgnnSampler, SaintSampler):
    """GraphSAINT's subgraphs, which the paper's experiments sample besides neighbours, laid out."""

    name: ClassVar[str] = "hpgnn-saint"
    summary: ClassVar[str] = "GraphSAINT's subgraphs, with RMT and RRA"


@dataclass
class HpgnnLayerwiseSampler(HpgnnSampler, LayerwiseSampler):
    """Layer-wise sampling, the third family of Table 2, laid out."""

    name: ClassVar[str] = "hpgnn-layerwise"
    summary: ClassVar[str] = "layer-wise sampling, with RMT and RRA"
