"""Every benchmark of ``suites/`` runs, once, and measures what its name says."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gnnbench import datasets, plugins
from tests.commands import run_python

ROOT = Path(__file__).resolve().parents[2]


#: Of the strategies that asv follows: the libraries, one system a mode, and one that needs an FPGA.
FEW = ("reference", "dgl", "hongtu", "hyscale", "hpgnn")


@pytest.fixture(scope="module")
def suites(import_suite):
    return {name: import_suite(name) for name in ("epochs", "kernels")}


@pytest.fixture(scope="module", autouse=True)
def few_strategies(suites):
    """Every strategy takes minutes, and so do kernels on large graphs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FULL_GRAPH", "MINI_BATCH"):
            followed = getattr(suites["epochs"], name)
            patch.setattr(suites["epochs"], name, [each for each in followed if each in FEW])
        for name in ("FullGraphEpoch", "MiniBatchEpoch"):
            benchmark = getattr(suites["epochs"], name)
            strategies, *others = benchmark.params
            few = [each for each in strategies if each in FEW]
            patch.setattr(benchmark, "params", [few, *others])
        patch.setattr(suites["kernels"], "GRAPH", "rmat:vertices=4096,edges=60000,features=1")
        yield


def test_every_strategy_is_followed(import_suite):
    suite, registry = import_suite("epochs"), plugins.load()
    followed = {*suite.list_strategies("full-graph"), *suite.list_strategies("mini-batch")}
    assert followed == {strategy.name for strategy in registry.strategies}


#: Strategies for machines of several devices, or with an FPGA, which this one is not.
ELSEWHERE = ("hpgnn",)
KERNELS = (
    "Sampling",
    "Aggregation",
    "Backward",
    "Gather",
    "MaskedAggregation",
    "Ordering",
    "SharedIds",
    "Movement",
    "Update",
)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("epochs", "FullGraphEpoch"),
        ("epochs", "MiniBatchEpoch"),
        *(("kernels", name) for name in KERNELS),
    ],
)
def test_timed_benchmarks_run(suites, module, name):
    benchmark = getattr(suites[module], name)()
    timed = [attribute for attribute in dir(benchmark) if attribute.startswith("time_")]
    assert len(timed) == 1
    cache = benchmark.setup_cache()
    for values in itertools.product(*benchmark.params):
        try:
            benchmark.setup(cache, *values)
        except NotImplementedError:  # how asv is told what is not to be had on this machine
            assert values == ("torch-sparse",) or values[0] in ELSEWHERE
            continue
        getattr(benchmark, timed[0])(cache, *values)


def test_whole_programs_are_followed(suites, monkeypatch):
    """Each program is started once, however often asv sets its benchmark up."""
    suite = suites["epochs"]
    assert list(suite.FullGraphPrograms.params[0]) == ["dgl-loop", "pyg-loop"]
    assert set(suite.MiniBatchPrograms.params[0]) >= {"dgl-ddp", "dgl-loop", "pyg-ddp", "pyg-loop"}
    monkeypatch.setattr(suite, "DATASET", "sbm:vertices=120,edges=500,features=8,classes=3")
    benchmark = suite.FullGraphPrograms()
    for _ in range(2):
        benchmark.setup("pyg-loop", suite.DATASET)
        benchmark.time_epoch("pyg-loop", suite.DATASET)
    assert suite.open_program.cache_info().misses == 1
    suite.open_program.cache_clear()


@pytest.mark.long
def test_asv_takes_the_suites(tmp_path):
    """With nobody to answer a prompt, and results that go elsewhere than the checkout's."""
    config = ROOT.joinpath("asv.conf.json").read_text(encoding="utf-8")
    for path in (".", "suites", "results/asv", "build/asv"):
        assert f'"{path}"' in config
    # The tree as it stands, not a commit of it.
    config = config.replace('"checkout"', '"existing"')
    config = config.replace('"."', f'"{ROOT}"').replace('"suites"', f'"{ROOT / "suites"}"')
    tmp_path.joinpath("asv.conf.json").write_text(config, encoding="utf-8")
    # asv takes PYTHONPATH away from benchmarks unless it is called this.
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": paths,
        "ASV_PYTHONPATH": paths,
    }
    for words in (
        ["machine", "--yes"],
        ["check"],
        ["run", "--quick", "--bench", "kernels.Sampling"],
    ):
        done = run_python(
            "-m", "asv", *words, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "kernels.Sampling.time_call" in done.stdout
    assert "failed" not in done.stdout


def test_imports_are_timed_on_the_edges_that_are_said(import_suite, tmp_path, monkeypatch):
    suite = import_suite("imports")
    monkeypatch.setattr(suite, "EDGES_AT_A_TIME", 700)
    file = tmp_path / "edges.csv"
    suite.write_edges(file, 3000, 50)
    ends = np.loadtxt(file, delimiter=",", dtype=np.int64)
    assert ends.shape == (3000, 2)
    assert (ends.min(), ends.max()) == (0, 49)
    assert all(work(file, 50) > 0 for work in suite.WORK)
    assert os.listdir(tmp_path) == ["edges.csv"]


def test_only_ranks_that_divide_features_need_the_whole_graph(import_suite):
    suite, registry = import_suite("rank_memory"), plugins.load()
    dataset = datasets.load("sbm:vertices=60,edges=200,features=4,classes=2")
    needed = {
        name: suite.train_strategy(registry, dataset, name, 2) for name in ("partition", "mixgcn")
    }
    vertices, edges = dataset.graph.num_vertices, dataset.graph.num_edges
    # In torch: row pointers, columns and values of a CSR and its transpose, and in-degrees.
    matrix = (vertices + 1) + edges + edges
    assert needed == {"partition": 0, "mixgcn": 4 * (2 * matrix + vertices)}
