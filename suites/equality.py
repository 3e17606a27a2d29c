"""How well the check of equality tells right rows from wrong ones, over graphs, models and faults.

``python -m suites.equality [--quick]`` trains right rows on graphs that are hard to round on, and
rows that are wrong in one way each (``suites.faults``), and holds all of them against plain
training. It prints how many there were, how near right rows came to what is allowed, and every
false alarm and every miss by name. Faults that change nothing that rounding would not change
(``suites.independent``) count as neither. It is no part of any test.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from gnnbench import datasets, plugins
from gnnbench.comparison import make_setting
from gnnbench.comparison.equality import FLOOR, Judgement, Reference
from gnnbench.comparison.plain import PlainTraining, Shared
from gnnbench.comparison.request import Request
from gnnbench.errors import GnnbenchError
from gnnbench.parts import Bundle, MiniBatchSampler, Setting
from gnnbench.platforms.describe import load_platform
from gnnbench.plugins import Registry, assemble, with_swap
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Dataset, Mode, Parts, Workload
from gnnbench.run import Evidence, Training
from gnnbench.run.evidence import Update
from suites import faults, faulty_sampling, independent

PLATFORM = "epyc7763x2-4xa5000"
MODELS = ("gcn", "sage", "gin", "gat", "commnet", "ggcn")
SCALES = (1.0, 100.0, 10_000.0)
HIDDEN = (16, 256)
DEPTHS = (2, 3)
#: Right rows: strategies in one of their modes.
ROWS: tuple[tuple[str, Mode], ...] = (
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
#: Rows that faults are put into: one device that keeps all, chunks from the host, shards with a
#: halo, and mini-batches over several devices.
HOSTS: tuple[tuple[str, Mode], ...] = (
    ("reference", "full-graph"),
    ("hongtu", "full-graph"),
    ("hongtu-im", "full-graph"),
    ("hyscale", "mini-batch"),
)


# --------------------------------------------------------------------------- graphs


def piece_of(name: str, count: int) -> Dataset:
    """The subgraph of the first ``count`` vertices that a walk outwards from vertex 0 reaches."""
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
    """2,000 vertices with 200,000 undirected edges by chance, whose labels nothing explains, and
    sparse binary features: a graph as dense and as heterophilous as squirrel."""
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
    """Features of very different sizes, all of one sign."""
    made = datasets.load("sbm:vertices=1500,edges=12000,features=32,classes=5")
    size = np.exp(np.linspace(-6, 6, 32)).astype(np.float32)
    return replace(made, features=np.abs(made.features) * size)


GRAPHS: Mapping[str, Callable[[], Dataset]] = {
    "dense": dense_with_sparse_features,
    "cora": lambda: datasets.load("cora"),
    "star": star,
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
#: Graphs that faults are looked for on: small enough for the models of ``suites.independent``.
FAULT_GRAPHS = ("sbm-3k", "star", "isolated", "rmat-4k", "uniform", "three-seeds", "cora")
#: Graphs of whose rows only some are run: they are large.
LARGE = ("amazon_photo", "dense", "citeseer", "flickr")


def scale(dataset: Dataset, factor: float) -> Dataset:
    if factor == 1:
        return dataset
    return replace(dataset, features=dataset.features * np.float32(factor))


# --------------------------------------------------------------------------- one row


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
    return make_setting(Request((), dataset, workload, load_platform(PLATFORM)))


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A row's run: its evidence, and the losses of its epochs' rounds."""

    bundle: Bundle
    evidence: Evidence
    losses: Sequence[Sequence[float]]


def train_row(
    registry: Registry,
    setting: Setting,
    parts: Parts,
    updates: int = 3,
    tamper: Callable[[Dataset], Dataset] | None = None,
) -> Trained | None:
    """Train, keeping updates, on what ``tamper`` makes of the data set; None where the parts do not
    fit together."""
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
    return Trained(bundle, evidence, [epoch.round_losses for epoch in epochs])


def hold_row(
    registry: Registry, setting: Setting, parts: Parts, trained: Trained, shared: Shared
) -> Iterator[Judgement]:
    """What is found of each update that was kept, as ``compare`` finds it."""
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
    for update in trained.evidence.updates:
        yield reference.judge(update, trained.losses[update.epoch][update.round])


# --------------------------------------------------------------------------- the two studies


@dataclass(slots=True)
class Count:
    """Rows of one kind: how many, the refused ones, and how near any came to what is allowed."""

    rows: int = 0
    named: list[str] = field(default_factory=list)
    worst: float = 0.0


def run_right_rows(registry: Registry, share: float, graphs: Sequence[str]) -> dict[str, Count]:
    """Right rows by model and scale; ``share`` of the grid is run, chosen by the rows' names."""
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
                if (zlib.crc32(name.encode()) % 10_000) >= 10_000 * part:
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
            # Where the floor holds, how far rounding goes has not been looked into.
            if each.allowed > FLOOR[torch.float32]:
                count.worst = max(count.worst, each.error / each.allowed)
        if judgement.fault:
            alarms.append(judgement.fault)
    if alarms:
        count.named.append(f"{name}: {alarms[0]}")
        print(f"FALSE ALARM {count.named[-1]}", flush=True)


@dataclass(slots=True)
class Search:
    """A fault's cases: how many change anything, how many of those are found, which are not, and
    how many change nothing and are refused all the same."""

    changed: int = 0
    found: int = 0
    unchanged: int = 0
    missed: list[str] = field(default_factory=list)


def list_hosts(fault: str) -> list[tuple[str, Mode]]:
    """The rows that a fault is put into."""
    kind = faults.FAULTS.get(fault)
    if kind == "sampler":
        chunks = fault in {part.name for part in faulty_sampling.CHUNKS}
        return [HOSTS[1], HOSTS[2]] if chunks else [("hyscale", "mini-batch")]
    if fault == "features-rounded":
        return [("distdgl", "mini-batch")]
    if fault == "halo-stale":
        return [("partition", "full-graph")]
    if fault in ("gradient-twice", "unweighted", "update-missed"):
        return [host for host in HOSTS if host[0] != "reference"]
    if fault == "rows-stale":
        return [("reference", "full-graph"), ("hongtu-im", "full-graph")]
    return list(HOSTS)


def shift_labels(dataset: Dataset) -> Dataset:
    """Every vertex has the label of the one before."""
    return replace(dataset, labels=np.roll(dataset.labels, 1))


#: Faults that no part can have.
TAMPERED: Mapping[str, Callable[[Dataset], Dataset]] = {"labels-shifted": shift_labels}


def run_faults(
    registry: Registry, share: float, graphs: Sequence[str], names: Sequence[str] = ()
) -> dict[str, Search]:
    """Every fault in rows of several graphs, models and scales."""
    found: dict[str, Search] = defaultdict(Search)
    for graph in graphs:
        dataset = GRAPHS[graph]()
        for factor, hidden, depth, model in itertools.product(SCALES, (16, 64), DEPTHS, MODELS):
            scaled = scale(dataset, factor)
            setting = make_row(scaled, model, hidden, depth)
            exact = make_row(scaled, model, hidden, depth, dtype="float64")
            shared = Shared()
            for fault in (*faults.FAULTS, *TAMPERED):
                for strategy, mode in list_hosts(fault):
                    name = (
                        f"{fault}: {graph} x{factor:g} {model} {hidden} {depth} {strategy} {mode}"
                    )
                    if names and fault not in names:
                        continue
                    if (zlib.crc32(name.encode()) % 10_000) >= 10_000 * share:
                        continue
                    run_fault(
                        registry,
                        (setting, exact),
                        fault,
                        strategy,
                        mode,
                        name,
                        shared,
                        found[fault],
                    )
    return found


def run_fault(
    registry: Registry,
    settings: tuple[Setting, Setting],
    fault: str,
    strategy: str,
    mode: Mode,
    name: str,
    shared: Shared,
    search: Search,
) -> None:
    setting, exact = settings
    parts = registry.strategy(strategy).bundles[mode]
    kind = faults.FAULTS.get(fault)
    if kind is not None:
        parts = with_swap(registry, parts, [(kind, fault)])
    tamper = TAMPERED.get(fault)
    try:
        trained = train_row(registry, setting, parts, tamper=tamper)
        if trained is None:
            return
        alarm = trained.evidence.fault or next(
            (
                each.fault
                for each in hold_row(registry, setting, parts, trained, shared)
                if each.fault
            ),
            "",
        )
        ratio = measure_change(registry, exact, parts, fault, tamper)
    except Exception as error:
        print(f"not run: {name}: {type(error).__name__}: {error}", flush=True)
        return
    if ratio <= independent.CHANGED:
        search.unchanged += 1
        if alarm and ratio < 1:
            print(f"refused, and changes nothing ({ratio:.1g}): {name}: {alarm}", flush=True)
        return
    search.changed += 1
    if alarm:
        search.found += 1
        return
    search.missed.append(f"{name} (changes {ratio:.3g} times what rounding does)")
    print(f"MISSED {search.missed[-1]}", flush=True)


def measure_change(
    registry: Registry,
    exact: Setting,
    parts: Parts,
    fault: str,
    tamper: Callable[[Dataset], Dataset] | None,
) -> float:
    """How much a fault changes, by a run in float64 beside models that share no code with it."""
    if fault in {part.name for part in faulty_sampling.SAMPLERS}:
        right = registry.strategy("reference").bundles["mini-batch"].sampler
        drawn = [draw_epochs(registry, exact, name) for name in (fault, right)]
        otherwise = any(one != other for one, other in itertools.zip_longest(*drawn))
        return np.inf if otherwise else 0.0
    trained = train_row(registry, exact, parts, tamper=tamper)
    if trained is None:
        return 0.0
    updates: Sequence[Update] = trained.evidence.updates
    return independent.change(exact, updates)


def draw_epochs(registry: Registry, setting: Setting, name: str) -> Iterator[list[list[int]]]:
    """What a sampler draws in a run, round by round, as lists of numbers."""
    sampler = registry.part("sampler", name)()
    if not isinstance(sampler, MiniBatchSampler):
        raise TypeError(f"sampler {name!r} draws no mini-batches")
    sampler.begin(setting)
    for epoch in range(setting.workload.epochs):
        rounds = sampler.rounds(epoch)
        yield [seeds.tolist() for seeds in rounds]
        for seeds in rounds:
            blocks = sampler.sample(seeds, epoch, 1)
            yield [
                array.tolist()
                for block in blocks
                for array in (block.src_ids, block.indptr, block.indices)
            ]


# --------------------------------------------------------------------------- the program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small part of the grid")
    parser.add_argument("--only", choices=("right", "faults"), help="one of the two studies")
    parser.add_argument("--share", type=float, help="the share of the grid that is run, 0 to 1")
    parser.add_argument("--graphs", help="graphs to run on, by name, with commas between")
    parser.add_argument("--faults", default="", help="faults to look for, by name")
    given = parser.parse_args()
    torch.set_num_threads(1)
    registry = plugins.load([str(Path(faults.__file__))])
    chosen = given.graphs.split(",") if given.graphs else None
    share = given.share or (0.02 if given.quick else 0.25)
    if given.only != "faults":
        counts = run_right_rows(registry, share, chosen or list(GRAPHS))
        print("\nright rows      rows  refused  worst error / allowed")
        for kind, count in sorted(counts.items()):
            print(f"{kind:15} {count.rows:5} {len(count.named):8}  {count.worst:.2f}")
        total = sum(count.rows for count in counts.values())
        print(f"{'all':15} {total:5} {sum(len(count.named) for count in counts.values()):8}")
    if given.only != "right":
        names = [name for name in given.faults.split(",") if name]
        searches = run_faults(registry, share / 5, chosen or FAULT_GRAPHS, names)
        print("\nfault                      change anything  found  missed  change nothing")
        for fault, search in searches.items():
            print(
                f"{fault:26} {search.changed:15} {search.found:6} {len(search.missed):7} "
                f"{search.unchanged:15}"
            )
        changed = sum(search.changed for search in searches.values())
        print(f"{'all':26} {changed:15} {sum(search.found for search in searches.values()):6}")


if __name__ == "__main__":
    main()
