"""What is pinned: a combination of a strategy, a machine, a graph, a model and options, as a line.

``combinations.txt`` lists them, a line each::

    hongtu:communication=vanilla/full-graph  a100  cora  model=gat  layers=3  memory.topology=host

First the strategy, as ``--plugins`` takes it, with the mode behind a slash where it has two; then
the platform and the data set by the names below, or as ``--platform`` and ``--dataset`` take them.
After them come, in any order, what is trained, as ``compare`` calls it, and options of parts as
``--set`` takes them. Lines that begin with ``#`` are remarks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from gnnbench.jobs.words import parse_settings, parse_strategies
from gnnbench.records import PART_KINDS, Mode, PartKind

HERE = Path(__file__).resolve().parent
LIST = HERE / "combinations.txt"

PLATFORMS: Mapping[str, str] = {
    "a100": "epyc7543x4-4xa100",
    "a5000": "epyc7763x2-4xa5000",
    "u250": "epyc7763x2-4xu250",
    "ryzen": "ryzen3990x-a100-u250",
    "cluster": "ecs-r5x16",
    "nodes": "epyc7763x4-8xa5000",
    "spu": "xeon8462-8xh100-8xspu",
    "h100": "xeon8462x4-32xh100",
    # What no bundled machine has.
    "alone": str(HERE / "alone.toml"),
    "uneven": str(HERE / "uneven.toml"),
}
DATASETS: Mapping[str, str] = {
    "sbm": "sbm:vertices=400,edges=3k,features=24,classes=4",
    "rmat": "rmat:vertices=500,edges=4k,features=20,classes=3",
    "products": "ogbn-products:0.0005",
    "photo": "amazon_photo",
}


@dataclass(frozen=True)
class Combination:
    """One run that is pinned.

    ``line`` is its name, as it stands in the list with single spaces. ``strategy`` is as
    ``--plugins`` takes it, and ``mode`` empty where it is the strategy's usual one. ``settings``
    are as ``--set`` takes them. ``lends`` says that the model is evaluated between epochs, as with
    ``--target-accuracy``, for which idle memory is lent.
    """

    line: str
    strategy: str
    mode: Mode | Literal[""]
    platform: str
    dataset: str
    settings: tuple[str, ...] = ()
    model: str = "gcn"
    layers: int = 2
    hidden: int = 16
    epochs: int = 2
    batch_size: int = 48
    fanouts: str = ""
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float64"
    lends: bool = False

    def __str__(self) -> str:
        return self.line

    @property
    def swaps(self) -> tuple[tuple[PartKind, str], ...]:
        return parse_strategies(self.strategy)[0][1]

    @property
    def name(self) -> str:
        """The strategy's name alone."""
        return self.strategy.split(":")[0]

    @property
    def options(self) -> dict[PartKind, dict[str, str]]:
        return parse_settings(self.settings)

    @property
    def counts(self) -> tuple[int, ...]:
        """The fan-outs, from the seeds outwards: 5, 4, 3, ... unless the line says others."""
        few = ",".join(str(max(1, 5 - depth)) for depth in range(self.layers))
        return tuple(map(int, (self.fanouts or few).split(",")))


#: What of a combination a word ``name=value`` may say.
_WORKLOAD = ("model", "layers", "hidden", "epochs", "batch_size", "fanouts", "seed", "dtype")


def parse_line(line: str) -> Combination:
    """The combination of a line of the list; ``ValueError`` for one that says nothing clear."""
    words = line.split()
    if len(words) < 3:
        raise ValueError(f"{line!r} lacks a strategy, a platform or a data set")
    strategy, _, mode = words[0].partition("/")
    if mode not in ("", "mini-batch", "full-graph"):
        raise ValueError(f"{line!r}: there is no mode {mode!r}")
    kinds = {field.name: type(field.default) for field in fields(Combination)}
    said: dict[str, object] = {}
    settings = []
    for word in words[3:]:
        key, equals, value = word.partition("=")
        if key.partition(".")[0] in PART_KINDS and equals:
            settings.append(word)
        elif word == "lends":
            said["lends"] = True
        elif key in _WORKLOAD and value and key not in said:
            said[key] = kinds[key](value)
        else:
            raise ValueError(f"{line!r}: what is {word!r}?")
    return Combination(
        " ".join(words),
        strategy,
        mode,  # type: ignore[arg-type]
        PLATFORMS.get(words[1], words[1]),
        DATASETS.get(words[2], words[2]),
        tuple(settings),
        **said,  # type: ignore[arg-type]
    )


def read_list(path: Path = LIST) -> tuple[Combination, ...]:
    """Every combination of a list, in its order; ``ValueError`` for one that is there twice."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = tuple(parse_line(line) for line in lines if line.strip() and line[0] != "#")
    seen: set[tuple[str, ...]] = set()
    for each in found:
        words = each.line.split()
        # The same in another order of words is the same.
        key = (*words[:3], *sorted(words[3:]))
        if key in seen:
            raise ValueError(f"{each.line!r} is in the list twice")
        seen.add(key)
    return found
