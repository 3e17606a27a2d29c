"""Synthetic graphs in the shape of the papers' datasets, at a fraction of their size.

``ogbn-products:0.01`` has 1 % of the vertices of ogbn-products and its mean degree, degree skew,
feature width, class count and train share. It is never the real graph, and its notes say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from gnnbench.constants import Constant
from gnnbench.datasets.construct import build, make_random_labels, make_split
from gnnbench.datasets.synthetic import (
    SyntheticSize,
    check_fits,
    check_size,
    draw_blocks,
    make_class_features,
)
from gnnbench.datasets.topology import symmetrise
from gnnbench.errors import DatasetError
from gnnbench.records import Dataset, Graph, IntArray


@dataclass(frozen=True, slots=True)
class StandIn:
    """A real graph's statistics, as published.

    ``edges`` are undirected (half the entries of the symmetric graph); for directed graphs, the
    arcs with reciprocal ones merged where that count is published. ``degree_exponent`` is gamma of
    P(D) ~ D^-gamma. ``source`` says where the numbers come from and, where the papers disagree,
    which was kept.
    """

    name: str
    vertices: int
    edges: int
    features: int
    classes: int
    train_fraction: float
    degree_exponent: float
    source: str

    @property
    def mean_degree(self) -> float:
        """The mean degree, with each undirected edge counted at both ends."""
        return 2 * self.edges / self.vertices


#: The share of the edges drawn within a class, where the classes have room for it: more than in
#: ``sbm``, because there are more classes and most vertices have few neighbours.
HOMOPHILY: Annotated[float, Constant("", "assumed", "no paper states it")] = 0.5

USUAL_EXPONENT: Annotated[
    float, Constant("", "assumed", "the middle of the usual 2 to 3, Clauset et al. 2009")
] = 2.5
CITATION_EXPONENT: Annotated[float, Constant("", "quoted", "citation networks, Redner 1998")] = 3.0
WEB_EXPONENT: Annotated[float, Constant("", "quoted", "the web, Broder et al. 2000")] = 2.1
#: Where no split is published.
TRAIN_SHARE: Annotated[float, Constant("", "quoted", "HongTu, section 7.1: 25 %")] = 0.25

_ASSUMED = "exponent 2.5 assumed: the middle of the usual 2 to 3 (Clauset et al. 2009)"
_CITATION = "exponent 3 of citation networks (Redner 1998)"
_SAINT = "GraphSAINT (Zeng et al. 2020) Table 1, as HP-GNN uses them"

STAND_INS: tuple[StandIn, ...] = (
    StandIn(
        name="ogbn-products",
        vertices=2_449_029,
        edges=61_859_140,
        features=100,
        classes=47,
        train_fraction=196_615 / 2_449_029,
        degree_exponent=USUAL_EXPONENT,
        source=f"HyScale-GNN Table III, HongTu Table 4; split of OGB; {_ASSUMED}",
    ),
    StandIn(
        name="ogbn-papers100M",
        vertices=111_059_956,
        edges=1_615_685_872,
        features=128,
        classes=172,
        train_fraction=1_207_179 / 111_059_956,
        degree_exponent=CITATION_EXPONENT,
        source="HyScale-GNN Table III, MixGCN Table 2 (HongTu Table 4 pads the features to 200); "
        f"split of OGB; {_CITATION}; most real vertices are unlabelled, here all have a label",
    ),
    StandIn(
        name="mag240m",
        vertices=121_751_666,
        edges=1_297_748_926,
        features=756,
        classes=153,
        train_fraction=1_112_392 / 121_751_666,
        degree_exponent=CITATION_EXPONENT,
        source="HyScale-GNN Table III, MAG240M (homo), whose 756 features are kept (OGB-LSC has "
        f"768); split of OGB-LSC; {_CITATION}; most real vertices are unlabelled, here all have "
        "a label",
    ),
    StandIn(
        name="reddit",
        vertices=232_965,
        edges=57_307_946,
        features=602,
        classes=41,
        train_fraction=153_431 / 232_965,
        degree_exponent=USUAL_EXPONENT,
        source="HongTu Table 4 and MixGCN Table 2: 114,615,892 stored entries (HP-GNN uses "
        f"GraphSAINT's sparser one of 11,606,919 edges); split of GraphSAGE; {_ASSUMED}",
    ),
    StandIn(
        name="it-2004",
        vertices=41_291_594,
        edges=1_027_474_947,
        features=256,
        classes=64,
        train_fraction=TRAIN_SHARE,
        degree_exponent=WEB_EXPONENT,
        source="HongTu Table 4 (41M vertices, 1.2B arcs), exact counts of the Laboratory for Web "
        "Algorithmics, reciprocal arcs merged; random features, labels and split 25 % as in "
        "HongTu; exponent 2.1 of the web (Broder et al. 2000)",
    ),
    StandIn(
        name="friendster",
        vertices=65_608_366,
        edges=1_806_067_135,
        features=256,
        classes=64,
        train_fraction=TRAIN_SHARE,
        degree_exponent=USUAL_EXPONENT,
        source="edges of SNAP com-Friendster, as in MixGCN Table 2 (HongTu Table 4 says 2.5B); "
        f"256 features of HongTu (MixGCN 128); split 25 % as in HongTu; {_ASSUMED}",
    ),
    StandIn(
        name="orkut",
        vertices=3_072_441,
        edges=117_185_083,
        features=320,
        classes=20,
        train_fraction=TRAIN_SHARE,
        degree_exponent=USUAL_EXPONENT,
        source="MixGCN Table 2, exact counts of SNAP com-Orkut; no split published, 25 % as in "
        f"HongTu; {_ASSUMED}",
    ),
    StandIn(
        name="twitter",
        vertices=41_652_230,
        edges=1_202_513_046,
        features=52,
        classes=16,
        train_fraction=TRAIN_SHARE,
        degree_exponent=2.276,
        source="MixGCN Table 2 (1.47B arcs), reciprocal arcs merged; no split published, 25 % as "
        "in HongTu; exponent 2.276 (Kwak et al. 2010)",
    ),
    StandIn(
        name="flickr",
        vertices=89_250,
        edges=449_878,
        features=500,
        classes=7,
        train_fraction=0.5,
        degree_exponent=USUAL_EXPONENT,
        source=f"{_SAINT}: 899,756 stored entries; {_ASSUMED}",
    ),
    StandIn(
        name="yelp",
        vertices=716_847,
        edges=6_977_410,
        features=300,
        classes=100,
        train_fraction=0.75,
        degree_exponent=USUAL_EXPONENT,
        source=f"{_SAINT}; its vertices have several labels, here one; {_ASSUMED}",
    ),
    StandIn(
        name="amazonproducts",
        vertices=1_598_960,
        edges=132_169_734,
        features=200,
        classes=107,
        train_fraction=0.85,
        degree_exponent=USUAL_EXPONENT,
        source=f"{_SAINT} (the released files hold 1,569,960 vertices); its vertices have several "
        f"labels, here one; {_ASSUMED}",
    ),
)


def find_stand_in(name: str) -> StandIn | None:
    """Return the row of ``name`` in any case of letters, or None."""
    return next((row for row in STAND_INS if row.name.lower() == name.lower()), None)


def power_law_weights(vertices: int, mean: float, exponent: float) -> npt.NDArray[np.float64]:
    """Return expected degrees, descending, float64 ``(V,)``, with a power-law tail.

    Their mean is about ``mean``. w_i ~ (i + 1/2)^(-1/(gamma - 1)) gives P(D) ~ D^-gamma (Chung and
    Lu 2002). Weights are cut at sqrt(V x mean), beyond which their model would have to draw an edge
    twice.
    """
    weights = (np.arange(vertices) + 0.5) ** (-1.0 / (exponent - 1.0))
    cutoff = math.sqrt(vertices * mean)
    for _ in range(8):  # cutting lowers the mean, scaling restores it; converges quickly
        weights *= mean / weights.mean()
        np.minimum(weights, cutoff, out=weights)
    return np.asarray(weights, dtype=np.float64)


def make_stand_in(spec: str, seed: int = 0) -> Dataset:
    """Make the stand-in ``NAME:SCALE``, 0 < SCALE <= 1: a degree-corrected block model.

    Labels can be learnt as in ``sbm``. Where the classes are too small to hold half of the edges (a
    dense graph at a small scale), fewer are drawn within them. Two in three of the vertices that do
    not train validate. Raises :class:`DatasetError` for a scale outside (0, 1], too small for the
    mean degree and the classes, or too large for the memory.
    """
    real, size = _parse(spec)
    check_size(f"dataset {spec!r}", size)
    check_fits(f"dataset {spec!r}", size)
    labels = make_random_labels(size.vertices, real.classes, seed)
    homophily = _homophily(real, size)
    pairs = _draw_pairs(spec, real, size, labels, seed)
    rest = 1 - real.train_fraction
    text = spec.partition(":")[2]
    notes = [f"stand-in for {real.name} at {text} of its vertices: synthetic, not the real graph"]
    if homophily < HOMOPHILY:
        notes.append(
            f"only {homophily:.1%} of its edges were drawn within a class, which has no room for "
            f"more at this scale: labels are hard to learn"
        )
    return build(
        spec,
        pairs,
        num_vertices=size.vertices,
        features=make_class_features(labels, real.features, seed),
        labels=labels,
        masks=make_split(labels, seed, (real.train_fraction, 2 * rest / 3, rest / 3)),
        origin=f"synthetic power-law block model, exponent {real.degree_exponent}, seed {seed}",
        notes=notes,
        report_repairs=False,
    )


def draw_stand_in(spec: str, seed: int = 0) -> Graph:
    """Draw the topology of :func:`make_stand_in` alone, without features. Raises its errors."""
    real, size = _parse(spec)
    check_size(f"dataset {spec!r}", size)
    check_fits(f"dataset {spec!r}", replace(size, features=0))
    labels = make_random_labels(size.vertices, real.classes, seed)
    src, dst = _draw_pairs(spec, real, size, labels, seed)
    return symmetrise(src, dst, size.vertices)[0]


def _parse(spec: str) -> tuple[StandIn, SyntheticSize]:
    """Return the graph that is stood in for, and the size of the stand-in."""
    name, _, text = spec.partition(":")
    real = find_stand_in(name)
    if real is None:
        known = ", ".join(row.name for row in STAND_INS)
        raise DatasetError(f"there is no stand-in for {name!r}; choose among {known}.")
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale <= 1:
        raise DatasetError(
            f"dataset {spec!r}: {text!r} is not a share of the vertices above 0 and at most 1; "
            f"write {real.name}:0.01 for one per cent."
        )
    vertices = round(scale * real.vertices)
    least = max(math.ceil(4 * real.mean_degree), 2 * real.classes)
    if vertices < least:
        raise DatasetError(
            f"dataset {spec!r}: {vertices:,} vertices are too few for the mean degree "
            f"{real.mean_degree:.0f} and the {real.classes} classes of {real.name}; use at least "
            f"{real.name}:{_round_up(least / real.vertices)}."
        )
    edges = round(vertices * real.mean_degree / 2)
    return real, SyntheticSize(vertices, edges, real.features, real.classes)


def _homophily(real: StandIn, size: SyntheticSize) -> float:
    """Return the homophily, so that at most half of the pairs within a class become edges."""
    return min(HOMOPHILY, 0.5 * size.vertices / real.classes / real.mean_degree)


def _draw_pairs(
    spec: str, real: StandIn, size: SyntheticSize, labels: IntArray, seed: int
) -> IntArray:
    rng = np.random.default_rng((seed, 0))
    weights = power_law_weights(size.vertices, real.mean_degree, real.degree_exponent)
    return draw_blocks(
        f"dataset {spec!r}",
        labels,
        size.edges,
        rng,
        homophily=_homophily(real, size),
        weights=rng.permutation(weights),
    )


def _round_up(share: float) -> str:
    """Round ``share`` up to two significant digits, as text."""
    digits = 1 - math.floor(math.log10(share))
    return f"{math.ceil(share * 10**digits) / 10**digits:.{max(digits, 0)}f}"
