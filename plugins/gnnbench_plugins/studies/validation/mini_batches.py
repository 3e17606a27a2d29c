"""|V^l| and |E^l| of the mini-batches that others trained on, drawn from stand-ins of full size.

Drawing them takes minutes, since the graphs have up to 1.8 billion edges, so it is done once:
``mini_batches.toml`` has the counts. This module, as ``python -m``, draws them again and rewrites
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gnnbench.constants import Bound
from gnnbench.datasets.standins import USUAL_EXPONENT, find_stand_in
from gnnbench.host.toml import read_toml
from gnnbench.records import BatchProfile, IntArray
from gnnbench_plugins.studies.hyscale.neighbourhoods import (
    FloatingArray,
    PowerLaw,
    profile_stand_in,
)
from gnnbench_plugins.studies.hyscale.tables import PAPERS, PRODUCTS

FILE = Path(__file__).with_name("mini_batches.toml")
#: Entries that a vertex's list of neighbours has at most here. Those of a hub are drawn one like
#: the other, so that a few of them stand for all, if no fan-out is near to that many.
LONGEST_LIST: Bound[int] = 64


@dataclass(frozen=True, slots=True)
class ShortLists(PowerLaw):
    """A law that meets vertices as often as before, with at most ``LONGEST_LIST`` neighbours each.

    The lists of hubs then take no time to draw.
    """

    def degrees(self, ranks: IntArray) -> FloatingArray:
        return np.minimum(PowerLaw.degrees(self, ranks), LONGEST_LIST)


def _symmetric(name: str) -> PowerLaw:
    """Return the law of a bundled stand-in with edges in both directions."""
    row = find_stand_in(name)
    if row is None:
        raise ValueError(f"there is no stand-in for {name}")
    return PowerLaw(row.vertices, row.mean_degree, row.degree_exponent)


#: By graph. Citations go one way as OGB stores those of ogbn-papers100M; all others go both ways.
LAWS: Mapping[str, PowerLaw] = {
    "ogbn-arxiv": PowerLaw(169_343, 2 * 1_157_799 / 169_343, 3.0),
    "ogbn-products": PRODUCTS.law,
    "ogbn-papers100M": PAPERS.law,
    "ogbn-papers100M both ways": PowerLaw(
        111_059_956, 2 * 1_615_685_872 / 111_059_956, PAPERS.law.exponent
    ),
    "reddit": _symmetric("reddit"),
    "twitter": _symmetric("twitter"),
    "it-2004": _symmetric("it-2004"),
    "friendster": _symmetric("friendster"),
    "uk-2006-05": PowerLaw(77_741_046, 2_965_197_340 / 77_741_046, USUAL_EXPONENT),
}


@dataclass(frozen=True, slots=True)
class Draw:
    """The origin of a mini-batch: a graph of ``LAWS``, fan-outs from the seeds outwards, seeds."""

    graph: str
    fanouts: tuple[int, ...]
    seeds: int


DRAWS = (
    Draw("ogbn-products", (15, 10, 5), 8000),
    Draw("ogbn-products", (10, 25), 8000),
    Draw("ogbn-papers100M", (15, 10, 5), 8000),
    Draw("ogbn-papers100M", (10, 25), 8000),
    Draw("ogbn-arxiv", (15, 10, 5), 1024),
    Draw("ogbn-products", (15, 10, 5), 1024),
    Draw("reddit", (10, 25), 1000),
    Draw("reddit", (10, 10), 1024),
    Draw("ogbn-products", (10, 10), 1024),
    Draw("it-2004", (10, 10), 1024),
    Draw("ogbn-papers100M", (10, 10), 1024),
    Draw("friendster", (10, 10), 1024),
    Draw("reddit", (10, 10, 10, 10), 1024),
    Draw("ogbn-products", (10, 10, 10, 10), 1024),
    Draw("it-2004", (10, 10, 10), 1024),
    Draw("ogbn-papers100M", (10, 10, 10), 1024),
    Draw("friendster", (10, 10, 10), 1024),
    Draw("twitter", (15, 10, 5), 8000),
    Draw("twitter", (10, 25), 8000),
    Draw("ogbn-papers100M both ways", (15, 10, 5), 1024),
    Draw("ogbn-products", (15, 10, 5), 1000),
    Draw("ogbn-products", (25, 10), 1000),
    Draw("ogbn-papers100M", (25, 10), 1000),
    Draw("uk-2006-05", (10, 25), 8000),
)


def draw(wanted: Draw) -> BatchProfile:
    """Draw one mini-batch of the wanted number of seeds."""
    law = LAWS[wanted.graph]
    short = ShortLists(law.vertices, law.mean_degree, law.exponent, law.directed, law.without)
    return profile_stand_in(short, wanted.fanouts, (wanted.seeds,))[0]


@cache
def read_profiles() -> Mapping[Draw, BatchProfile]:
    """Read all entries of ``mini_batches.toml``."""
    entries = read_toml(FILE)["mini_batch"]
    if not isinstance(entries, list):
        raise TypeError(f"{FILE}: mini_batch is a list of tables")
    return {
        Draw(entry["graph"], tuple(entry["fanouts"]), entry["seeds"]): BatchProfile(
            entry["seeds"], tuple(entry["vertices"]), tuple(entry["edges"])
        )
        for entry in entries
    }


def find_profile(wanted: Draw) -> BatchProfile:
    """Return the profile of a draw. Raises ``KeyError`` for one that is not in the file."""
    return read_profiles()[wanted]


def write(profiles: Iterable[tuple[Draw, BatchProfile]], path: Path) -> None:
    """Write the counts in the format of ``mini_batches.toml``."""
    lines = [
        "# |V^0| .. |V^L| and |E^1| .. |E^L| of a mini-batch each, drawn from full-size stand-ins.",
        f"# python -m {__package__}.mini_batches rewrites it.",
    ]
    for wanted, profile in profiles:
        lines += [
            "",
            "[[mini_batch]]",
            f'graph = "{wanted.graph}"',
            f"fanouts = {list(wanted.fanouts)}",
            f"seeds = {wanted.seeds}",
            f"vertices = {list(profile.vertices)}",
            f"edges = {list(profile.edges)}",
        ]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Draw all of ``DRAWS`` again."""
    profiles = []
    for wanted in DRAWS:
        profiles.append((wanted, draw(wanted)))
        print(wanted, profiles[-1][1].vertices, flush=True)
    write(profiles, FILE)


if __name__ == "__main__":
    main()
