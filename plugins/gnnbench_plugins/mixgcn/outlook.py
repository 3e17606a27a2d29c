"""What training on shards of features would take, by the program that it executes and from counts
alone: a stored graph and a stream of edges both have them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnbench.lowering.feature_shards import FeatureShardsLowering
from gnnbench.lowering.shardings import Piece, Shardings
from gnnbench.price.dry_run import price_epoch
from gnnbench.program import Ledger
from gnnbench.records import Dataset, EpochTrace, Graph


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """An epoch's program, read by its sizes, and by device the bytes that are held: all the time,
    and at most."""

    epoch: EpochTrace
    epoch_s: float
    always_bytes: dict[str, int]
    peak_bytes: dict[str, int]


def foresee(lowering: FeatureShardsLowering, rounds: Sequence[Piece]) -> Outlook:
    """An epoch of ``rounds``, whether or not it fits."""
    names = [lowering.platform.host.name, *(device.name for device in lowering.trainers)]
    ledger = Ledger(dict.fromkeys(names, sys.maxsize))
    lowering.lay_out(ledger, Shardings(rounds, lowering.placement, lowering.platform))
    always_bytes = dict(ledger.in_use_bytes)
    return Outlook(*price_epoch(lowering, ledger), always_bytes, ledger.peak_bytes)


def describe_counted(dims: Sequence[int]) -> Dataset:
    """A data set of which nothing is read but its widths and classes: the rest is counted."""
    graph = Graph(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))
    none, features = np.zeros(0, dtype=np.bool_), np.empty((0, dims[0]), dtype=np.float32)
    labels = np.empty(0, dtype=np.int64)
    return Dataset("counts alone", graph, features, labels, dims[-1], none, none, none)
