"""False alarms of the equality check on correct rows, over graphs and models.

``python -m suites.equality [--quick]`` trains correct rows on graphs with difficult rounding, and
checks them against plain training. It prints the number of rows, how near they came to the
tolerance, and every false alarm by name. ``suites.faults`` does this with wrong rows.
"""

import argparse
import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import scipy.sparse as sp
import torch

from gnnbench import datasets, plugins
from gnnbench.comparison import make_setting
from gnnbench.comparison.equality import FLOOR, Judgement, Reference
from gnnbench.comparison.plain import PlainTraining, Shared
from gnnbench.comparison.request import Request
from gnnbench.errors import GnnbenchError
from gnnbench.machines.describe import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.plugins import Registry, assemble
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Dataset, Mode, Parts, Workload
from gnnbench.run import Evidence, Training
from gnnbench.run.evidence import Update

PLATFORM = "epyc7763x2-4xa5000"
MODELS = ("gcn", "sage", "gin", "gat", "commnet", "ggcn")
SCALES = (1.0, 100.0, 10_000.0)
HIDDEN = (16, 256)
DEPTHS = (2, 3)
#: Correct rows: strategies in one of their modes.
ROWS: tuple[tuple[str, Mode], ...] = (
    ("reference", "full-graph"),
    ("reference", "mini-batch"),
    ("native", "full-graph"),
    ("native", "mini-batch"),
    ("hongtu", "full-graph"),
    ("mixgcn", "full-graph"),
    ("hyscale", "mini-batch"),
    ("cagnet", "full-graph"),
    ("hongtu-im", "full-graph"),
    ("dgl", "full-graph"),
    ("dgl", "mini-batch"),
    ("pyg", "full-graph"),
    ("pyg", "mini-batch"),
    ("p3", "mini-batch"),
    ("distdgl-full-graph", "full-graph"),
    ("hpgnn", "mini-batch"),
)


# --------------------------------------------------------------------------- graphs


def piece_of(name: str, count: int) -> Dataset:
    """Return the subgraph of the first ``count`` vertices in breadth-first order from vertex 0."""
    whole = datasets.load(name)
    graph = whole.graph
    adjacency = sp.csr_matrix(
        (np.ones(graph.num_edges, dtype=np.int8), graph.indices, graph.indptr),
        shape=(graph.num_vertices,) * 2,
    )
    hub = int(np.argmax(graph.degrees))
    ids = sp.csgraph.breadth_first_order(adjacency, hub, return_predecessors=False)[:count]
    ids = np.sort(ids)
    piece = adjacency[ids][:, ids].tocsr()
    piece.sort_indices()
    edges = (piece.indptr.astype(np.int64), piece.indices.astype(np.int32))
    masks = {n: getattr(whole, f"{n}_mask")[ids] for n in ("train", "val", "test")}
    made = datasets.build(
        f"{name} piece", edges, features=whole.features[ids], report_repairs=False
    )
    return replace(
        made,
        labels=whole.labels[ids],
        num_classes=whole.num_classes,
        **{f"{n}_mask": mask for n, mask in masks.items()},
    )


def random_graph(
    vertices: int, edges: int, classes: int, features: object, seed: int = 3
) -> Dataset:
    random = np.random.default_rng(seed)
    ends = random.integers(0, vertices, (2, edges))
    labels = random.integers(0, classes, vertices)
    return datasets.build(
        "random",
        ends,
        num_vertices=vertices,
        features=features,
        labels=labels,
        report_repairs=False,
    )


def dense_with_sparse_features() -> Dataset:
    """Return a random graph as dense and heterophilous as squirrel, with sparse binary features.

    It has 2,000 vertices, 200,000 undirected edges, and labels independent of both.
    """
    features = sp.random(2000, 800, 0.02, "csr", dtype=np.float32, random_state=5)
    features.data[:] = 1
    return random_graph(2000, 200_000, 5, features)


def star() -> Dataset:
    leaves = np.arange(1, 3000)
    random = np.random.default_rng(1)
    return datasets.build(
        "star",
        np.stack((np.zeros_like(leaves), leaves)),
        features=random.standard_normal((3000, 24)).astype(np.float32),
        labels=random.integers(0, 4, 3000),
        report_repairs=False,
    )


def with_isolated() -> Dataset:
    random = np.random.default_rng(2)
    ends = random.integers(0, 900, (2, 5000))
    features = random.standard_normal((1500, 20)).astype(np.float32)
    features[1200:] = 0
    labels = random.integers(0, 3, 1500)
    return datasets.build(
        "isolated", ends, num_vertices=1500, features=features, labels=labels, report_repairs=False
    )


def with_three_seeds() -> Dataset:
    made = datasets.load("sbm:vertices=1500,edges=12000,features=32,classes=5")
    train = np.zeros_like(made.train_mask)
    train[made.train_ids[:3]] = True
    return replace(made, train_mask=train)


def with_one_class() -> Dataset:
    made = datasets.load("sbm:vertices=1200,edges=9000,features=32,classes=4")
    return replace(made, labels=np.zeros_like(made.labels))


def with_large_values() -> Dataset:
    """Return features of very different sizes, all of one sign."""
    made = datasets.load("sbm:vertices=1500,edges=12000,features=32,classes=5")
    size = np.exp(np.linspace(-6, 6, 32)).astype(np.float32)
    return replace(made, features=np.abs(made.features) * size)


def complete(count: int) -> Dataset:
    """Return a complete graph: sums of centred features over neighbours are pure rounding error."""
    ends = np.stack(np.triu_indices(count, 1))
    random = np.random.default_rng(count)
    made = datasets.build(
        f"complete {count}",
        ends,
        features=random.random((count, 2)).astype(np.float32),
        labels=random.integers(0, 2, count),
        report_repairs=False,
    )
    return datasets.scale_features(made)


GRAPHS: Mapping[str, Callable[[], Dataset]] = {
    "dense": dense_with_sparse_features,
    "cora": lambda: datasets.load("cora"),
    "star": star,
    "complete-17": lambda: complete(17),
    "complete-50": lambda: complete(50),
    "isolated": with_isolated,
    "sbm-3k": lambda: datasets.load("sbm:vertices=3000,edges=30000,features=64,classes=8"),
    "sbm-2-classes": lambda: datasets.load("sbm:vertices=2000,edges=20000,features=16,classes=2"),
    "rmat-4k": lambda: datasets.load("rmat:vertices=4096,edges=40000,features=32,classes=6"),
    "three-seeds": with_three_seeds,
    "one-class": with_one_class,
    "large-values": with_large_values,
    "citeseer": lambda: datasets.load("citeseer"),
    "flickr": lambda: datasets.load("flickr:0.02"),
    "ogbn-products": lambda: datasets.load("ogbn-products:0.001"),
    "slashdot": lambda: piece_of("soc_slashdot0902", 2500),
    "twitter": lambda: piece_of("ego_twitter", 2500),
    "facebook-top8": lambda: piece_of("facebook_top8", 1500),
    "physics": lambda: piece_of("coauthor_physics", 1500),
    "musae": lambda: piece_of("musae_facebook", 2500),
    "photo-piece": lambda: piece_of("amazon_photo", 1500),
    "uniform": lambda: random_graph(
        2500, 15_000, 6, np.random.default_rng(4).random((2500, 40)).astype(np.float32)
    ),
    "amazon_photo": lambda: datasets.load("amazon_photo"),
}
#: Large graphs, on which only some rows are run.
LARGE = ("amazon_photo", "dense", "citeseer", "flickr")


def scale(dataset: Dataset, factor: float) -> Dataset:
    if factor == 1:
        return dataset
    return replace(dataset, features=dataset.features * np.float32(factor))


# --------------------------------------------------------------------------- one row


@cache
def read_platform() -> Platform:
    return load_platform(PLATFORM)


def make_row(
    dataset: Dataset,
    model: str,
    hidden: int,
    depth: int,
    *,
    epochs: int = 3,
    dtype: str = "float32",
) -> Setting:
    workload = Workload(
        model=model,
        dims=(dataset.num_features, *[hidden] * (depth - 1), dataset.num_classes),
        epochs=epochs,
        batch_size=400,
        fanouts=(8, 4, 3)[:depth],
        seed=1,
        dtype="float64" if dtype == "float64" else "float32",
    )
    return make_setting(Request((), dataset, workload, read_platform()))


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A row's run: its evidence, the inspected updates, and the losses of its epochs' rounds."""

    bundle: Bundle
    evidence: Evidence
    looked_at: Sequence[Update]
    losses: Sequence[Sequence[float]]


def train_row(
    registry: Registry,
    setting: Setting,
    parts: Parts,
    updates: int = 3,
    tamper: Callable[[Dataset], Dataset] | None = None,
) -> Trained | None:
    """Train on the dataset after ``tamper`` and keep updates; None if the parts do not fit."""
    bundle = assemble(registry, parts, {})
    if bundle.refusal(setting) is not None:
        return None
    evidence = Evidence(setting, updates)
    clock = ModelClock(setting.platform, bundle.kernel, bundle.sampler)
    trained_on = setting
    if tamper is not None:
        trained_on = replace(setting, dataset=tamper(setting.dataset))
    training = Training(bundle, trained_on, clock, evidence)
    epochs = [training.run_epoch(number) for number in range(setting.workload.epochs)]
    evidence.audit_draws()
    losses = [epoch.round_losses for epoch in epochs]
    return Trained(bundle, evidence, evidence.take_looked_at(), losses)


def hold_row(
    registry: Registry, setting: Setting, parts: Parts, trained: Trained, shared: Shared
) -> Iterator[Judgement]:
    """Yield the judgement of each kept or inspected update, as ``compare`` makes it."""
    mode = trained.bundle.mode
    plain = registry.strategy("reference").bundles[mode]
    if mode == "mini-batch":
        plain = replace(plain, sampler=parts.sampler)
    made = assemble(registry, plain, {})
    drawer = made.sampler if isinstance(made.sampler, MiniBatchSampler) else None
    if drawer is not None:
        drawer.begin(setting)
    training = PlainTraining(
        setting, made.kernel, drawer, drawn_by=f"{mode} {plain.sampler}", shared=shared
    )
    reference = Reference(setting, training)
    for hold, updates in (
        (reference.look, trained.looked_at),
        (reference.judge, trained.evidence.updates),
    ):
        for update in updates:
            yield hold(update, trained.losses[update.epoch][update.round])


# --------------------------------------------------------------------------- the study


@dataclass(slots=True)
class Count:
    """Rows of one kind: their number, the refused ones, and the nearest approach to tolerance."""

    rows: int = 0
    named: list[str] = field(default_factory=list)
    worst: float = 0.0


def is_chosen(name: str, share: float) -> bool:
    """Return whether a row, by its name, is in the share of the grid that is run."""
    return zlib.crc32(name.encode()) % 10_000 < 10_000 * share


def run_right_rows(registry: Registry, share: float, graphs: Sequence[str]) -> dict[str, Count]:
    """Run correct rows, by model and scale; ``share`` of the grid is chosen by the rows' names."""
    counts: dict[str, Count] = defaultdict(Count)
    for graph in graphs:
        try:
            dataset = GRAPHS[graph]()
        except GnnbenchError as error:
            print(f"left out: {graph}: {error}", flush=True)
            continue
        grid = itertools.product(SCALES, HIDDEN, DEPTHS, MODELS)
        for factor, hidden, depth, model in grid:
            shared = Shared()
            setting = make_row(scale(dataset, factor), model, hidden, depth)
            for strategy, mode in ROWS:
                name = f"{graph} x{factor:g} {model} {hidden} {depth} layers {strategy} {mode}"
                part = share / 4 if graph in LARGE else share
                if not is_chosen(name, part):
                    continue
                run_right_row(
                    registry, setting, strategy, mode, name, shared, counts[f"{model} x{factor:g}"]
                )
        rows = sum(count.rows for count in counts.values())
        print(f"{graph} is done: {rows} right rows so far", flush=True)
    return counts


def run_right_row(
    registry: Registry,
    setting: Setting,
    strategy: str,
    mode: Mode,
    name: str,
    shared: Shared,
    count: Count,
) -> None:
    parts = registry.strategy(strategy).bundles[mode]
    try:
        trained = train_row(registry, setting, parts)
    except GnnbenchError as error:
        print(f"not run: {name}: {error}", flush=True)
        return
    if trained is None:
        return
    count.rows += 1
    alarms = [trained.evidence.fault] if trained.evidence.fault else []
    for judgement in hold_row(registry, setting, parts, trained, shared):
        for each in judgement.deviations:
            # If the floor applies, the size of the rounding error was not measured.
            if each.allowed > FLOOR[torch.float32]:
                count.worst = max(count.worst, each.error / each.allowed)
        if judgement.fault:
            alarms.append(judgement.fault)
    if alarms:
        count.named.append(f"{name}: {alarms[0]}")
        print(f"FALSE ALARM {count.named[-1]}", flush=True)


# --------------------------------------------------------------------------- the program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small part of the grid")
    parser.add_argument("--share", type=float, help="the share of the grid that is run, 0 to 1")
    parser.add_argument("--graphs", help="graphs to run on, by name, with commas between")
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = given.graphs.split(",") if given.graphs else list(GRAPHS)
    share = given.share or (0.02 if given.quick else 0.25)
    counts = run_right_rows(plugins.load(), share, chosen)
    print("\nright rows      rows  refused  worst error / allowed")
    for kind, count in sorted(counts.items()):
        print(f"{kind:15} {count.rows:5} {len(count.named):8}  {count.worst:.2f}")
    total = sum(count.rows for count in counts.values())
    print(f"{'all':15} {total:5} {sum(len(count.named) for count in counts.values()):8}")


if __name__ == "__main__":
    main()
