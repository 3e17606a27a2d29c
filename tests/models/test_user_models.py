"""A model of one's own, from a plugin: offered by name, trained as the bundled ones, or refused."""

import dataclasses
import json
import re
import textwrap
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from gnnbench import plugins
from gnnbench.check.graphs import make_dataset, make_workload
from gnnbench.cli import main
from gnnbench.comparison import Request, compare
from gnnbench.errors import PluginError, UsageError
from gnnbench.models import MODELS, BoundBlock, Degrees, TorchLayer, build, glorot
from gnnbench.records import Block
from gnnbench_plugins.reference.kernel import TorchKernel
from tests.uneven import make_uneven

HEADER = """
import torch
from torch import Tensor, nn

from gnnbench.hookspecs import hookimpl
from gnnbench.models import GNN, Layer, TorchLayer, glorot
"""

#: Kipf and Welling's layer as a user would write it, with what every block offers.
GCN = """
class MyGCN(TorchLayer):
    name, title = "mygcn", "GCN of my own"

    def __init__(self, in_features, out_features, *, activation, generator):
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(in_features, out_features, generator)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, block, h):
        norm = (block.degrees + 1).rsqrt().unsqueeze(1)
        scaled = norm * h
        total = block.adjacency.sum(scaled) + block.own_rows(scaled)
        out = block.own_rows(norm) * total @ self.weight + self.bias
        return torch.relu(out) if self.activation else out
"""

#: No operation of the block's but the edges themselves, and a module with torch's own parameters.
EDGES = """
class OnEdges(TorchLayer):
    name, title = "on-edges", "attention of my own"

    def __init__(self, in_features, out_features, *, activation, generator):
        super().__init__(in_features, out_features, activation=activation)
        self.project = nn.Linear(in_features, out_features)
        self.score = nn.Linear(2 * out_features, 1)

    def forward(self, block, h):
        edges, z = block.adjacency, self.project(h)
        src, dst = z[edges.edge_src], block.own_rows(z)[edges.edge_dst]
        weights = edges.edge_softmax(self.score(torch.cat((src, dst), 1)).squeeze(1))
        out = block.own_rows(z) + edges.sum_edges(weights.unsqueeze(1) * src)
        return torch.relu(out) if self.activation else out
"""

OFFER = """
@hookimpl
def gnnbench_model():
    return [{}]
"""


pytestmark = pytest.mark.usefixtures("one_thread")


def write(folder, stem, body, *offered):
    path = folder / f"{stem}.py"
    text = HEADER + textwrap.dedent(body) + OFFER.format(", ".join(offered))
    path.write_text(text, encoding="utf-8")
    return str(path)


@cache
def bundled():
    return plugins.load()


def train(registry, model, strategies, num_layers=2, accelerators=3):
    request = Request(
        strategies=strategies,
        dataset=make_dataset(),
        workload=make_workload(model, num_layers),
        platform=make_uneven(accelerators),
        modes=("full-graph", "mini-batch"),
    )
    return compare(request, registry)


def test_a_users_gcn_trains_as_the_bundled_one(tmp_path):
    registry = plugins.load([write(tmp_path, "mine", GCN, "MyGCN")])
    strategies = ("reference", "hongtu", "hyscale")
    ours = train(registry, "mygcn", strategies, 3)
    theirs = train(bundled(), "gcn", strategies, 3)
    assert [(run.label, run.mode) for run in ours.runs] == [
        ("reference", "full-graph"),
        ("reference", "mini-batch"),
        ("hongtu", "full-graph"),
        ("hyscale", "mini-batch"),
    ]
    for one, other in zip(ours.runs, theirs.runs, strict=True):
        assert one.status == other.status == "done", one.reason
        assert one.loss == pytest.approx(other.loss, rel=1e-9, abs=0)
        assert one.accuracy == other.accuracy
        assert one.equivalence.max_relative_loss_error <= 1e-9
    assert ours.model_title == "GCN of my own"
    assert ours.workload.model == "mygcn"


def test_the_pages_example_runs_as_it_stands(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    path = tmp_path / "mean.py"
    path.write_text(example, encoding="utf-8")
    for result in train(plugins.load([str(path)]), "mean", ("hyscale", "hongtu")).runs:
        assert result.status == "done", result.reason
        assert result.equivalence.holds


def test_a_users_attention_trains_alike_everywhere(tmp_path):
    registry = plugins.load([write(tmp_path, "mine", EDGES, "OnEdges")])
    strategies = ("reference", "hongtu", "hyscale", "native", "pyg", "dgl")
    for result in train(registry, "on-edges", strategies).runs:
        assert result.status == "done", result.reason
        assert result.equivalence.max_relative_loss_error <= 1e-9, result.label


def test_torchs_own_initialisers_are_seeded_and_leave_its_generator_alone(tmp_path):
    registry = plugins.load([write(tmp_path, "mine", EDGES, "OnEdges")])
    workload, model = make_workload("on-edges"), registry.model("on-edges")
    torch.manual_seed(1)
    one = build(workload, model=model)
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    other = build(workload, model=model)
    another = build(dataclasses.replace(workload, seed=6), model=model)
    torch.manual_seed(1)
    assert torch.equal(state, torch.random.get_rng_state())
    for a, b, c in zip(one.parameters(), other.parameters(), another.parameters(), strict=True):
        assert a.dtype == torch.float64
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_what_is_counted_of_a_users_layer(tmp_path):
    registry = plugins.load([write(tmp_path, "mine", GCN, "MyGCN")])
    (layer, _) = build(make_workload("mygcn"), model=registry.model("mygcn")).stack
    assert (layer.shape.cacheable, layer.shape.on_edges.kept) == (False, 0)
    assert layer.shape.aggregate_features == layer.out_features
    block = Block(np.arange(5), 2, np.array([0, 2, 3]), np.array([2, 3, 4], dtype=np.int32))
    work = layer.aggregate_work(block, 8)
    assert (work.edges, work.rows, work.features) == (3, 2, layer.in_features)
    assert work.macs == 5 * (layer.in_features * layer.out_features + layer.out_features)
    with pytest.raises(TypeError, match="AGGREGATE of MyGCN is recomputed"):
        layer.aggregate_backward(block, torch.zeros(2, layer.out_features))


def test_a_plugin_adds_models_and_says_where_they_come_from(tmp_path):
    path = write(tmp_path, "mine", GCN + EDGES, "MyGCN", "OnEdges")
    registry = plugins.load([path])
    assert list(registry.models)[len(MODELS) :] == ["mygcn", "on-edges"]
    assert registry.model("mygcn").title == "GCN of my own"
    assert str(registry.model_origin("mygcn")) == f"{path} (not installed)"
    assert "mygcn" not in bundled().models
    with pytest.raises(PluginError, match=r"no model 'mygnc' \(did you mean 'mygcn'"):
        registry.model("mygnc")


def test_a_name_offered_twice_names_both(tmp_path):
    bundled_name = GCN.replace('"mygcn"', '"gat"')
    with pytest.raises(PluginError, match=r"model 'gat' .*gnnbench \(gnnbench .*mine\.py"):
        plugins.load([write(tmp_path, "mine", bundled_name, "MyGCN")])
    one = write(tmp_path, "one", GCN, "MyGCN")
    other = write(tmp_path, "other", GCN, "MyGCN")
    with pytest.raises(PluginError, match=r"model 'mygcn' .*one\.py.*other\.py"):
        plugins.load([one, other])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("MyGCN = 3", "offers 3 as a model, which is not a subclass of Layer"),
        ("class MyGCN(nn.Module): name, title = 'm', 't'", "not a subclass of Layer"),
        ("class MyGCN(TorchLayer):\n    def forward(self, block, h): ...", "class variable name"),
        ("class MyGCN(TorchLayer): name, title = 'm', 't'", "MyGCN must define forward"),
        ("class MyGCN(TorchLayer):\n    name = 'm'\n    def forward(self, block, h): ...",
         "model 'm' .* needs a class variable title"),
        ("class MyGCN(TorchLayer):\n    name, title = 'm', 't'\n"
         "    def forward(self, block, h): ...",
         r"unexpected keyword argument 'generator'.*__init__ of MyGCN must take \(self, in_f"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_be_a_model_is_refused(tmp_path, body, says):
    with pytest.raises(PluginError, match=says):
        plugins.load([write(tmp_path, "mine", body, "MyGCN")])


def test_a_name_without_a_class_is_refused():
    with pytest.raises(UsageError, match="no bundled model 'mygcn'; there is gcn, sage"):
        build(make_workload("mygcn"))


class Mean(TorchLayer):
    """A layer with one matrix, for the tests to spoil."""

    name, title = "mean", "mean"

    def __init__(self, in_features, out_features, *, activation, generator):
        super().__init__(in_features, out_features, activation=activation)
        self.weight = glorot(in_features, out_features, generator)

    def forward(self, block, h):
        return (block.own_rows(h) + block.adjacency.mean(h)) @ self.weight


class KeepsATensor(Mean):
    def __init__(self, *sizes, **rest):
        super().__init__(*sizes, **rest)
        self.scale = torch.ones(3)


class Freezes(Mean):
    def __init__(self, *sizes, **rest):
        super().__init__(*sizes, **rest)
        self.weight.requires_grad_(False)


class LearnsNothing(Mean):
    def __init__(self, in_features, out_features, *, activation, generator):
        TorchLayer.__init__(self, in_features, out_features, activation=activation)


class SwapsSizes(Mean):
    def __init__(self, in_features, out_features, **rest):
        super().__init__(out_features, in_features, **rest)


class DividesByZero(Mean):
    def __init__(self, in_features, out_features, *, activation, generator):
        raise ZeroDivisionError(in_features // 0)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (
            KeepsATensor,
            r"model 'mean' keeps 'scale' as a plain tensor \(torch.float32\).*Parameter",
        ),
        (Freezes, "parameter 'weight' without a gradient.*register_buffer"),
        (LearnsNothing, "a layer of model 'mean' has no parameters"),
        (SwapsSizes, "for 7 to 6 features says that it is for 6 to 7"),
        (DividesByZero, "cannot be made with in_features=7, out_features=6.*ZeroDivisionError"),
    ],
)
def test_a_layer_that_would_not_be_trained_is_refused(layer, says):
    with pytest.raises(PluginError, match=says) as caught:
        build(make_workload("mean"), model=layer)
    assert str(caught.value).endswith(".")


def test_a_module_that_is_no_layer_is_refused():
    class Bare(torch.nn.Module):
        name, title = "bare", "bare"

        def __init__(self, in_features, out_features, *, activation, generator):
            super().__init__()

    with pytest.raises(PluginError, match=r"makes Bare\(\), which is not a gnnbench.models.Layer"):
        build(make_workload("bare"), model=Bare)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda rows: rows[:-1], r"shape \(4, 6\) for a block of 9 sources and 5 destinations"),
        (lambda rows: rows[:, :2], r"shape \(5, 2\) .* one row per destination, \(5, 6\)"),
        (lambda rows: rows.sum(), r"shape \(\)"),
        (lambda rows: rows.float(), "returns torch.float32 on cpu for rows of torch.float64"),
        (lambda rows: rows.detach(), "rows without a gradient.*without detach or no_grad"),
        (lambda rows: None, "returns None; it must return a tensor"),
        (lambda rows: (rows, rows), "must return a tensor"),
    ],
)
def test_a_forward_of_the_wrong_kind_says_what_it_returned(spoil, says):
    class Spoilt(Mean):
        def forward(self, block, h):
            return spoil(super().forward(block, h))

    (layer, _) = build(make_workload("mean"), model=Spoilt).stack
    block = Block(np.arange(9), 5, np.arange(6), np.array([5, 6, 7, 8, 1], dtype=np.int32))
    bound = BoundBlock(
        block,
        TorchKernel(),
        Degrees(np.ones(9, dtype=np.int64)),
        torch.float64,
        torch.device("cpu"),
    )
    with pytest.raises(PluginError, match=says) as caught:
        layer.aggregate(bound, torch.ones(9, 7, dtype=torch.float64))
    assert "forward of model 'mean' (Spoilt)" in str(caught.value)


def command(*words):
    return CliRunner().invoke(main, words)


def test_compare_takes_a_model_of_a_plugin_file(tmp_path):
    path = write(tmp_path, "mine", GCN, "MyGCN")
    words = ("--plugins", "hongtu", "--model", "mygcn", "--epochs", "2", "--threads", "1")
    dataset = "sbm:vertices=200,edges=1000,features=8,classes=3"
    result = command("compare", *words, "--plugin", path, "--dataset", dataset, "--json", "-")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["workload"]["model"] == "mygcn"
    assert "GCN of my own 2 layers" in result.stderr
