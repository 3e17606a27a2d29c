"""Runs of the bundled strategies on the conformance graph, each made once.

No two accelerators and no two links of the platforms are alike, so that a sum, a mean, the first
and the slowest device all have different numbers.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from gnnbench import datasets, plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.comparison import Request, compare
from gnnbench.lowering.device_resident import DeviceResidentLowering
from gnnbench.lowering.memory import Ledger, open_ledger
from gnnbench.machines import load_platform
from gnnbench.machines.machine import Platform
from gnnbench.models import build
from gnnbench.parts import Bundle, Setting
from gnnbench.plugins import Registry
from gnnbench.price.folds import digest
from gnnbench.price.model_clock import ModelClock
from gnnbench.records import Comparison, Dataset, Parts, Span, Trace, Workload
from gnnbench.run import train
from tests.uneven import make_uneven

PLAIN = Parts("full-graph", "single", "none", "resident", "torch")
Swaps = Iterable[tuple[str, str]]
Options = Mapping[str, object]


@cache
def registry() -> Registry:
    return plugins.load()


def make_setting(
    dataset: Dataset, platform: Platform, model: str, num_layers: int, epochs: int, **workload: Any
) -> Setting:
    """Return a setting of the conformance workload with the dataset's first and last widths."""
    made = dataclasses.replace(make_workload(model, num_layers, epochs), **workload)
    dims = workload.get("dims") or (dataset.num_features, *made.dims[1:-1], dataset.num_classes)
    made = dataclasses.replace(made, dims=dims)
    return Setting(dataset, platform, made, build(made).shapes)


@cache
def setting_for(
    model: str = "gcn",
    devices: int = 3,
    num_layers: int = 3,
    epochs: int = 2,
    *,
    dims: tuple[int, ...] | None = None,
    dtype: str = "float64",
) -> Setting:
    """Return a setting on the conformance graph and an uneven platform."""
    fields: dict[str, Any] = {"dtype": dtype, **({"dims": dims} if dims else {})}
    return make_setting(make_dataset(), make_uneven(devices), model, num_layers, epochs, **fields)


def bundle_of(strategy: str | Parts, swaps: Swaps = (), **options: Options) -> Bundle:
    """Return a strategy's full-graph bundle; options are by kind of part, with any values."""
    if isinstance(strategy, Parts):
        parts = strategy
    elif strategy == "reference":
        parts = PLAIN
    else:
        parts = registry().strategy(strategy).bundles["full-graph"]
    parts = dataclasses.replace(parts, **dict(swaps))
    texts = {
        kind: {name: _as_text(value) for name, value in given.items()}
        for kind, given in options.items()
    }
    return plugins.assemble(registry(), parts, texts)  # type: ignore[arg-type]


def run(setting: Setting, strategy: str | Parts, swaps: Swaps = (), **options: Options) -> Trace:
    """Train, and return the trace; equal calls share one run."""
    given = tuple(
        (kind, tuple(sorted((name, _as_text(value)) for name, value in values.items())))
        for kind, values in sorted(options.items())
    )
    return _run(setting, strategy, tuple(sorted(swaps)), given)


@lru_cache(maxsize=96)
def _run(setting: Setting, strategy: str | Parts, swaps: Any, given: Any) -> Trace:
    options = {kind: dict(values) for kind, values in given}
    bundle = bundle_of(strategy, swaps, **options)
    return train(bundle, setting, ModelClock(setting.platform, bundle.kernel))


def run_ablation(setting: Setting, strategy: str, **options: Options) -> dict[str, Trace]:
    """Return the traces of a strategy's ablation by the labels of its steps."""
    traces = {}
    for step in registry().strategy(strategy).ablation:
        given = {kind: dict(values) for kind, values in options.items()}
        for kind, name, text in step.options:
            given.setdefault(kind, {})[name] = text
        traces[step.label] = run(setting, strategy, step.swaps, **given)
    return traces


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def losses(trace: Trace) -> list[float]:
    return [epoch.loss for epoch in trace.epochs]


def sent(trace: Trace) -> list[int]:
    """Return the bytes between devices in each epoch."""
    return [epoch.bytes["device_to_device"] for epoch in trace.epochs]


def epoch_s(trace: Trace) -> list[float]:
    """Return the modelled seconds of each epoch."""
    return [digest(epoch, "modelled").epoch_s for epoch in trace.epochs]


def list_before(span: Span, spans: Iterable[Span]) -> set[int]:
    """Return the ids of all spans that must end before ``span`` begins."""
    by_id, waiting, found = {each.id: each for each in spans}, [*span.after], set()
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += by_id[number].after
    return found


def prepare(setting: Setting, bundle: Bundle) -> tuple[DeviceResidentLowering, Ledger]:
    """Return the maker of a program, ready for its first epoch, and the ledger of memories."""
    bundle = bundle.begin(setting)
    lowering = DeviceResidentLowering(bundle, setting, build(setting.workload).stack)
    ledger = open_ledger(bundle, setting.platform, lowering.trainers)
    lowering.prepare(ledger)
    return lowering, ledger


def compare_on(setting: Setting, strategies: tuple[str, ...], **fields: Any) -> Comparison:
    """Compare strategies on a setting's dataset, workload and platform."""
    request = Request(
        strategies=strategies,
        dataset=setting.dataset,
        workload=setting.workload,
        platform=setting.platform,
        **fields,
    )
    return compare(request, registry())


@cache
def load_dense(name: str) -> Dataset:
    """Return a dataset whose features are stored dense."""
    dataset = datasets.load(name)
    if isinstance(dataset.features, np.ndarray):
        return dataset
    features = np.ascontiguousarray(dataset.features.toarray())
    return dataclasses.replace(dataset, features=features)


@cache
def cora_setting(platform: str, dims: tuple[int, ...] = (32,), **fields: Any) -> Setting:
    """Return a GCN of hidden widths ``dims`` on Cora and a described platform."""
    dataset = datasets.load("cora")
    widths = (dataset.num_features, *dims, dataset.num_classes)
    given = {"epochs": 20, "batch_size": 1024, "fanouts": (25,) * (len(dims) + 1), **fields}
    workload = Workload("gcn", widths, seed=0, **given)
    return Setting(dataset, load_platform(platform), workload, build(workload).shapes)


def assert_same_training(ours: Trace, theirs: Trace, rtol: float = 1e-9) -> None:
    """Hold losses and final parameters equal; with ``rtol`` 0, to the bit."""
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=rtol, atol=0)
    assert ours.parameters.keys() == theirs.parameters.keys()
    for name, expected in theirs.parameters.items():
        atol = rtol * np.abs(expected).max()
        np.testing.assert_allclose(
            ours.parameters[name], expected, rtol=rtol, atol=atol, err_msg=name
        )
