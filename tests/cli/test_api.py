"""gnnbench from Python: the same as the command line, with objects, and as frames."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

import gnnbench
from gnnbench.datasets import load
from gnnbench.errors import IncompatiblePartsError, PluginError, UsageError
from gnnbench.machines import load_platform
from gnnbench.records import Parts, Strategy
from gnnbench_plugins.reference.kernel import TorchKernel
from tests.commands import run_python

GRAPH = "sbm:vertices=120,edges=600,features=8,classes=3"
SMALL = {"epochs": 2, "hidden": 8, "threads": 1}


@dataclasses.dataclass
class OwnKernel(TorchKernel):
    """A part of one's own, written in a notebook."""

    name: ClassVar[str] = "own"
    summary: ClassVar[str] = "torch's under another name"


OWN = Strategy(
    name="own",
    summary="the reference with a kernel of its own",
    source="a notebook",
    bundles={"mini-batch": Parts("neighbour", "single", "vanilla", "host", "own")},
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def found():
    return gnnbench.compare(["hongtu", "reference"], dataset=GRAPH, **SMALL)


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, gnnbench; gnnbench.__version__; dir(gnnbench)\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'gnnbench.api') if m in sys.modules])\n"
        "gnnbench.compare; print('gnnbench.api' in sys.modules, 'torch' in sys.modules)"
    )
    done = run_python("-c", code, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]
    assert set(gnnbench.__all__) <= set(dir(gnnbench))
    with pytest.raises(AttributeError, match="no attribute 'compair'"):
        gnnbench.compair  # noqa: B018


def test_it_is_what_the_command_line_finds(found, run):
    words = ("compare", "--plugins", "hongtu,reference", "--dataset", GRAPH, "--epochs", 2)
    printed = run(*words, "--hidden", 8, "--threads", 1, "--json", "-")
    document = json.loads(printed.stdout)
    frame = found.frame()
    assert len(frame) == len(document["runs"]) == 3
    for (_, row), entry in zip(frame.iterrows(), document["runs"], strict=True):
        assert (row["label"], row["mode"]) == (entry["label"], entry["mode"])
        assert row["epoch_time"] == entry["metrics"]["epoch_time"]["value"]
        assert row["provenance"] == "modelled"
        assert row["provenance_wall_time"] == "measured"
        assert row["host_to_device_bytes"] == entry["metrics"]["host_to_device_bytes"]["value"]
        assert row["stage_update"] == entry["stages"]["update"]["value"]
        assert row["loss"] == entry["loss"][-1]
        assert row["test_accuracy"] == entry["accuracy"]["test"]
        assert row["kernel"] == entry["parts"]["kernel"]
    for text in (printed.stderr, str(found)):
        assert " ".join(found.answer[0].split()) in " ".join(text.split())
    assert found.answer
    assert " ".join(found.answer[0].split()[:4]) in str(found)


def test_samples_have_a_row_for_every_epoch(found):
    samples = found.samples()
    epochs = samples[(samples["metric"] == "epoch_time") & (samples["label"] == "hongtu")]
    assert len(epochs) == 2
    assert set(epochs["unit"]) == {"s"}
    mean = found.frame().set_index("label")["epoch_time"]["hongtu"]
    assert epochs["value"].mean() == pytest.approx(mean)


def test_a_saved_csv_has_no_formula(found, tmp_path, monkeypatch):
    monkeypatch.setattr(type(found), "frame", lambda _: pd.DataFrame({"label": ["=1+1"]}))
    assert found.save(tmp_path / "a.csv").read_text() == "label\n'=1+1\n"


def test_it_is_shown_in_a_notebook_and_saved(found, tmp_path):
    shown = found._repr_html_()
    assert "<table" in shown
    assert found.answer[0].split(",")[0] in shown
    assert "<script" not in shown
    assert found.save(tmp_path / "a.json") == tmp_path / "a.json"
    assert json.loads((tmp_path / "a.json").read_text())["runs"][0]["label"] == "hongtu"
    found.save(str(tmp_path / "a.html"))
    assert "<!DOCTYPE html>" in (tmp_path / "a.html").read_text()
    found.save(tmp_path / "a.csv")
    read = pd.read_csv(tmp_path / "a.csv")
    assert read["epoch_time"].tolist() == pytest.approx(found.frame()["epoch_time"].tolist())
    with pytest.raises(UsageError, match=r"ends? in .json or .html or .csv"):
        found.save(tmp_path / "a.txt")


def test_objects_stand_for_names(found):
    rows = found.frame().set_index(["label", "mode"])["epoch_time"]
    machine = load_platform("epyc7543x4-4xa100")
    data = load(GRAPH)
    one = gnnbench.compare("hongtu", dataset=data, platform=machine, plain=False, **SMALL)
    assert one.comparison.platform == "epyc7543x4-4xa100"
    assert one.frame()["epoch_time"][0] == rows["hongtu", "full-graph"]


def test_plugin_objects_are_used_as_they_are():
    found = gnnbench.compare(
        [OWN, "reference"], dataset=GRAPH, plugins=[OwnKernel], plain=False, **SMALL
    )
    rows = found.frame().set_index("label")
    assert rows["kernel"]["own"] == "own"
    assert set(rows["status"]) == {"done"}
    # One that is known already is no second offer of the same name.
    known = gnnbench.plugins.load().strategy("reference")
    again = gnnbench.compare([known], dataset=GRAPH, plain=False, **SMALL)
    assert again.frame()["label"][0] == "reference"
    with pytest.raises(PluginError, match="no part, layer or program"):
        gnnbench.compare("reference", plugins=[dict])


def test_swaps_and_options_are_values(found):
    swapped = gnnbench.compare(
        "hongtu:kernel=pyg",
        dataset=GRAPH,
        swap={"communication": "vanilla"},
        options={"placement.accelerators": 2},
        plain=False,
        **SMALL,
    )
    rows = swapped.frame()
    assert list(rows["label"]) == ["hongtu·pyg", "hongtu·pyg·vanilla"]
    assert list(rows["devices"]) == [2, 2]
    text = gnnbench.compare(
        "hyscale", dataset=GRAPH, options={"placement.drm": False}, plain=False, **SMALL
    )
    assert text.frame()["status"][0] == "done"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategies": []}, "no strategies are named"),
        ({"strategies": "hongto"}, "there is no strategy 'hongto'"),
        ({"strategies": "mine.py"}, "there is no strategy 'mine.py'; load the file with --plugin"),
        ({"epochs": 0}, "epochs is 0; give a whole number"),
        ({"hidden": 1.5}, "hidden is 1.5"),
        ({"fanouts": [3]}, r"fanouts are \[3\] for 2 layers"),
        ({"options": {"drm": False}}, "'drm' is not PART.option"),
        ({"options": {"placement.drn": False}}, "drn"),
        ({"fanouts": [3, -1]}, r"fanouts is \[3, -1\]; give a list of whole numbers from 0"),
        ({"strategies": True}, "strategies is True; give names"),
        ({"strategies": ["hongtu", None]}, r"strategies is \['hongtu', None\]; give names"),
        ({"dataset": 5}, "dataset is 5; give a name, a path or a data set"),
        ({"platform": b"x"}, "platform is b'x'; give a name, a path or a platform"),
        ({"model": 5}, "model is 5; give a name or a class of layers"),
        ({"model": dict}, "model is <class 'dict'>; give a name or a class of layers"),
        ({"seed": "x"}, "seed is 'x'; give a whole number from 0"),
        ({"epochs": True}, "epochs is True; give a whole number"),
        ({"epochs": 2**62}, "what is recorded of epochs 4611686018427387904 with repeats 1 takes"),
        ({"layers": 2**40}, "a model with layers 1099511627776 and hidden 256 takes"),
        ({"threads": 0}, "threads is 0; give a whole number from 1 to 1,024"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; give a number above 0"),
        ({"target_accuracy": "high"}, "target_accuracy is 'high'; give a number above 0"),
        ({"scaling": "row"}, "scaling is 'row'; give one of auto, rows, columns, none"),
        ({"mode": 3}, "mode is 3; give one of full-graph, mini-batch"),
        ({"check": 1}, "check is 1; give one of True, False"),
        ({"swap": [None]}, r"swap is \[None\]; give a dict, such as {'kernel': 'native'}"),
        ({"swap": {"kernel": 5}}, "swap is {'kernel': 5}; give a dict"),
        ({"options": [1]}, r"options is \[1\]; give a dict, such as {'placement.drm': False}"),
        ({"plugins": "x.py"}, "plugins is 'x.py'; give a list of modules or objects"),
        ({"progress": 5}, "progress is 5; give an object with begin, advance, end"),
        ({"dataset": "coro"}, "there is no dataset 'coro'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(given, words):
    call = {"strategies": "hyscale", "dataset": GRAPH, **given}
    with pytest.raises(UsageError, match=words):
        gnnbench.compare(call.pop("strategies"), **call)


def test_parts_that_do_not_fit_raise():
    with pytest.raises(IncompatiblePartsError):
        gnnbench.compare("hongtu", dataset=GRAPH, swap={"sampler": "neighbour"}, **SMALL)


def test_threads_are_as_before(found):
    torch.set_num_threads(1)
    gnnbench.compare("reference", dataset=GRAPH, plain=False, **{**SMALL, "threads": 2})
    assert torch.get_num_threads() == 1


def test_a_plan_is_what_compare_models(found):
    planned = gnnbench.plan("hongtu", dataset=GRAPH, **SMALL)
    assert "one epoch on" in str(planned)
    rows = found.frame().set_index(["label", "mode"])
    (line,) = planned.frame().to_dict("records")
    for name in ("epoch_time", "peak_device_bytes", "host_to_device_bytes", "stage_update"):
        assert line[name] == rows[name]["hongtu", "full-graph"]
    assert line["platform"] == found.comparison.platform
    assert pd.isna(line["loss"])


def test_a_plan_of_sizes_has_tables(tmp_path):
    planned = gnnbench.plan("hongtu", vertices=400, edges="2k", dims=[16, 8, 4])
    with pytest.raises(UsageError, match="its counts are in tables"):
        planned.frame()
    names = [table.name for table in planned.tables]
    assert "chunks" in names
    assert "400 vertices" in str(planned)
    assert "<table" in planned._repr_html_()
    planned.save(tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    assert [table["name"] for table in document["tables"]] == names
    for wrong in ({"dataset": GRAPH, "vertices": 4}, {"vertices": 4}, {}):
        with pytest.raises(UsageError, match="give either dataset"):
            gnnbench.plan("hongtu", **wrong)
    with pytest.raises(UsageError, match="how wide the layers are"):
        gnnbench.plan("hongtu", vertices=4, edges=4)


def test_a_data_set_of_arrays_is_compared():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 60, (2, 200))
    labels = rng.integers(0, 3, 60)
    data = gnnbench.datasets.from_arrays(
        edges, rng.standard_normal((60, 5)).astype(np.float32), labels, name="mine"
    )
    found = gnnbench.compare("reference", dataset=data, plain=False, **SMALL)
    assert set(found.frame()["dataset"]) == {"mine"}
    assert found.comparison.dataset["digest"] == dataclasses.replace(data).digest()


ASKED = {"hidden": 8, "mode": "full-graph", "device_memory": "24GB", "threads": 1}
OF = ["hongtu", "partition"]


def test_advice_is_what_the_command_line_finds(run, tmp_path):
    words = ("advise", "--dataset", GRAPH, "--plugins", ",".join(OF), "--hidden", 8, "--threads", 1)
    on = ("--platform", "epyc7543x4-4xa100", "--device-memory", "24GB", "--mode", "full-graph")
    options = ("--set", "placement.numa_aware=false", "--train", 1)
    settings = {"placement.numa_aware": False}
    document = json.loads(run(*words, *on, *options, "--json", "-").stdout)
    found = gnnbench.advise(
        GRAPH, strategies=OF, platform="epyc7543x4-4xa100", options=settings, train=1, **ASKED
    )
    found.save(tmp_path / "advice.json")
    assert json.loads((tmp_path / "advice.json").read_text()) == document
    rows = found.frame()
    assert len(rows) == len(document["choices"]) > 1
    for (_, row), choice in zip(rows.iterrows(), document["choices"], strict=True):
        assert (row["label"], row["kernel"]) == (choice["label"], choice["parts"]["kernel"])
        assert row["why"] == choice["reason"]
        if choice["fits"]:
            assert row["epoch_time"] == choice["epoch_time"]
            assert row["link_bytes"] == choice["link_bytes"]
            assert [row["epoch_time_low"], row["epoch_time_high"]] == choice["interval"]
    assert rows["place"][0] == 1
    assert rows["trained"][0] == "done"
    assert rows["trained_epoch_time"][0] == document["choices"][0]["trained"]["epoch_time"]
    for text in (str(found), found._repr_html_()):
        assert " ".join(found.answer[0].split()[:5]) in " ".join(text.split())
        assert document["choices"][-1]["label"] in text
    assert "<table" in found._repr_html_()
    found.save(tmp_path / "advice.csv")
    assert len(pd.read_csv(tmp_path / "advice.csv")) == len(rows)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device_memory": "much"}, "'much' is not a size above 0"),
        ({"device_memory": 0}, "0 is not a size above 0"),
        ({"strategies": "hongtu:kernel=native"}, "advice is of whole strategies"),
        ({"strategies": "hongto"}, "there is no strategy 'hongto'"),
        ({"mode": "both"}, "mode is 'both'; give one of full-graph, mini-batch"),
        ({"changes": "no"}, "changes is 'no'; give one of True, False"),
        ({"device_memory": object}, "<class 'object'> is not a size above 0"),
        ({"target": "speed"}, "target is 'speed'; give one of time, memory, traffic"),
        ({"train": -1}, "train is -1"),
        ({"epochs": 0}, "epochs is 0; give a whole number"),
    ],
)
def test_what_cannot_be_advised_is_refused_in_a_sentence(given, words):
    call = {"strategies": OF, "platform": "epyc7543x4-4xa100", **ASKED, **given}
    with pytest.raises(UsageError, match=words):
        gnnbench.advise(GRAPH, **call)
