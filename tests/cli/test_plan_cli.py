"""``gnnbench plan``."""

import psutil
import pytest

import gnnbench.datasets
from gnnbench.price.model_error import describe_errors, find_path
from tests.commands import one_sentence, read_document, read_runs
from tests.plugins.test_plugin_page import EXAMPLES

STREAM = ("--vertices", "4k", "--edges", "30k", "--dims", "16,8,4")
BATCHES = (
    *("--dims", "16,8,4", "--batch-vertices", "9,5,2"),
    *("--batch-edges", "8,4", "--train-vertices", "10"),
)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.npz"
    gnnbench.datasets.save_npz(
        gnnbench.datasets.load("rmat:vertices=600,edges=4000,features=12,classes=3"), path
    )
    return path


def cells_of(document, name):
    """A table's values by row label."""
    (table,) = [table for table in document["tables"] if table["name"] == name]
    return {row["label"]: [cell["value"] for cell in row["cells"]] for row in table["rows"]}


def test_the_last_round_of_mini_batches_counts_by_its_seeds(run):
    """The fifth round of 9 seeds has one seed, and the others have two."""

    def plan(train):
        given = [train if word == "10" else word for word in BATCHES]
        (found,) = read_runs(run("plan", "pyg", *given, "--json", "-"))
        return found["metrics"]["host_to_device_bytes"]["value"]

    assert plan("9") == pytest.approx(0.9 * plan("10"))


def test_a_graph_that_is_stored_nowhere(run):
    result = run("plan", "hongtu", *STREAM, "--set", "sampler.chunks_per_partition=8")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for text in (
        "R-MAT, 4,000 vertices, 30,000 undirected edges · GCN 2 layers, 16-8-4",
        "4 partitions of 8 chunks",
        "neighbour replication factor alpha",
        "V_+p2p",
        "fullest device",
        "one epoch on",
        "counting on this machine",
        "ranges of vertices with balanced edges",
    ):
        assert text in result.stdout
    assert "nan" not in result.stdout


def test_a_plan_in_memory_names_every_device_and_what_does_not_fit(run):
    words = ("plan", "hongtu-im", *STREAM, "--json", "-")
    document = read_document(run(*words))
    devices = cells_of(document, "devices")
    assert len(devices) == 4
    fullest = max(row[3] for row in devices.values())
    assert cells_of(document, "memory")["fullest device"][0] == fullest
    assert "gradients added, and the loss" in cells_of(document, "epoch")
    result = run(*words[:-2], "--set", "memory.device_bytes=10kB")
    assert result.exit_code == 0, result.output
    assert "does not fit" in result.stdout


def test_measured_and_modelled_are_told_apart(run):
    document = read_document(run("plan", "hongtu", *STREAM, "--json", "-"))
    provenance = {
        table["name"]: {
            cell["provenance"]
            for row in table["rows"]
            for cell in row["cells"]
            if cell["value"] is not None
        }
        for table in document["tables"]
    }
    counted = {name: {"measured"} for name in ("chunks", "replication", "volumes", "counting")}
    assert provenance == counted | {"memory": {"modelled"}, "epoch": {"modelled"}}
    *passes, whole = cells_of(document, "counting").values()
    assert passes
    assert all(rate == pytest.approx(edges / seconds) for seconds, edges, rate in passes)
    assert whole[0] >= sum(seconds for seconds, _, _ in passes)


@pytest.mark.parametrize(
    ("words", "kind", "kernel"),
    [
        (("hongtu",), "multi-gpu", "torch"),
        (("hongtu", "--set", "placement.accelerators=1"), "gpu", "torch"),
        (("hpgnn",), "fpga", "hpgnn"),
    ],
)
def test_modelled_seconds_of_sizes_say_how_far_they_may_be_off(run, words, kind, kernel):
    """In one note, of the table that has them. 30,000 undirected edges in two layers are few."""
    tables = read_document(run("plan", *words, *STREAM, "--json", "-"))["tables"]
    notes = [(table, note) for table in tables for note in table["notes"]]
    ((table, note),) = [each for each in notes if "held-out groups" in each[1]]
    path = find_path(kind, kernel, "full-graph", 2 * 30_000 * 2)
    assert note == f"{describe_errors([path])} (see gnnbench reproduce validation)"
    assert "up to 100 M edges per epoch" in note
    seconds = [cell for row in table["rows"] for cell in row["cells"] if cell["unit"] == "s"]
    assert seconds
    assert {cell["provenance"] for cell in seconds} == {"modelled"}


def test_json_says_what_was_planned(run):
    words = ("plan", "hongtu", *STREAM, "--model", "sage", "--seed", "3", "--json", "-")
    result = run(*words)
    document = read_document(result)
    assert document["schema"] == 1
    assert document["command"] == ["gnnbench", *words]
    assert document["strategy"] == "hongtu"
    assert document["workload"] == {"model": "sage", "dims": [16, 8, 4], "seed": 3}
    assert "one epoch on" in result.stderr
    assert cells_of(document, "chunks")["in-edges"][0] == 60_000
    volumes = cells_of(document, "volumes")
    assert volumes["V_ori"][0] > volumes["V_+p2p"][0] > volumes["V_+ru"][0] >= 4000
    assert volumes["V_ori"][1] == volumes["V_ori"][0] / 4000
    epoch = cells_of(document, "epoch")
    assert sum(seconds for seconds, _ in epoch.values()) == pytest.approx(2 * epoch["epoch"][0])


@pytest.mark.parametrize("stored", [False, True])
def test_threads_change_no_count(run, small, stored):
    work = ("--dataset", small) if stored else STREAM
    documents = [
        read_document(run("plan", "hongtu", *work, "--threads", threads, "--json", "-"))
        for threads in ("1", "3")
    ]
    for document in documents:
        document["tables"] = [t for t in document["tables"] if t["name"] != "counting"]
        del document["command"]
    assert documents[0] == documents[1]


def test_a_dataset_has_its_own_widths(run, small):
    words = ("plan", "hongtu", "--dataset", small, "--json", "-")
    assert read_document(run(*words))["workload"]["dims"] == [12, 256, 3]
    deep = read_document(run(*words, "--layers", "3", "--hidden", "20"))
    assert deep["workload"]["dims"] == [12, 20, 20, 3]
    assert read_document(run(*words, "--dims", "7,5"))["workload"]["dims"] == [7, 5]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("hongto STREAM", "there is no strategy 'hongto' (did you mean 'hongtu'"),
        ("distdgl STREAM", "strategy 'distdgl' trains on mini-batches, whose sizes do not follow"),
        ("neutronstar STREAM", "sampler 'neutronstar' cuts the graph in a way of its own"),
        ("pipegcn STREAM", "sizes do not say how many. Give --replication"),
        ("pyg STREAM --replication 2", "--replication has no effect: communication 'none' on 1"),
        ("pipegcn STREAM --replication 0.5", "a vertex has 1 copy or more"),
        ("pyg --dataset cora --share 0.5", "--share has no effect beside --dataset"),
        ("pyg BATCHES --batch-size 8", "--batch-size has no effect beside --batch-vertices"),
        ("pyg BATCHES --dataset cora", "give either --dataset, or both"),
        (
            "pyg --batch-vertices 9,5,2 --dims 16,8,4",
            "--batch-edges and --train-vertices; give all",
        ),
        (
            "pyg --dims 16,4 --batch-vertices 9,5,2 --batch-edges 8,4 --train-vertices 9",
            "1 layers have 2",
        ),
        (
            "pyg --dims 16,8,4 --batch-vertices 5,9,2 --batch-edges 8,4 --train-vertices 9",
            "numbers fall",
        ),
        ("pyg BATCHES --vertices 4 --edges 9", "9 vertices of a graph of 4; correct"),
        ("cagnet BATCHES", "give --vertices and --edges instead"),
        ("pagraph BATCHES", "memory 'pagraph' chooses the rows of its cache by the graph"),
        ("dgl BATCHES --set sampler.workers=-1", "sampler.workers is -1. Give 0 workers or more"),
        ("dgl BATCHES --set sampler.persistent=true", "there are no workers. Set sampler.workers"),
        (
            "dgl BATCHES --set sampler.workers=2 --set sampler.where=uva",
            "sampler.workers is 2, but the accelerators draw",
        ),
        (
            "dgl BATCHES --swap placement=host --set sampler.where=devices",
            "placement 'host' trains on the host. Draw on the host",
        ),
        (
            "dgl BATCHES --swap communication=hyscale --set sampler.workers=2",
            "works ahead, but communication 'hyscale' decides what",
        ),
        ("dgl BATCHES --set memory.replicated=true", "platform epyc7763x2-4xa5000 has one host"),
        (
            "dgl --dataset cora --platform local --set sampler.workers=2",
            "options of its loader set, which change modelled times only",
        ),
        ("cagnet --dataset cora --mode mini-batch", "does not train in mode mini-b"),
        ("pyg --dataset cora --fanouts 3", "fanouts are [3] for 2 layers"),
        ("hongtu", "give either --dataset, or both --vertices and --edges."),
        ("hongtu --vertices 9", "give either --dataset, or both --vertices and --edges."),
        ("hongtu --dataset cora STREAM", "give either --dataset, or both"),
        ("hongtu SIZES", "say how wide the layers are, such as --dims 256,128,64."),
        ("hongtu STREAM --layers 2", "give either --dims, or --layers and --hidden."),
        ("hongtu SIZES --dims 8,0", "'8,0' is not a list of 2 or more whole"),
        ("hongtu SIZES --dims 8", "'8' is not a list of 2 or more whole"),
        ("hongtu STREAM --edges 0", "--edges=0 is not a positive whole number"),
        ("hongtu STREAM --vertices x", "--vertices=x is not a positive whole"),
        ("hongtu STREAM --vertices 1", "vertices is 1; it must be from 2"),
        ("hongtu STREAM --edges 3G", "edges is 3000000000; it must be from 1"),
        ("hongtu STREAM --vertices 15", "15 vertices cannot fill 4 partitions of 4"),
        ("hongtu STREAM --model gnc", "there is no model 'gnc'"),
        ("hongtu STREAM --platform nowhere", "nowhere"),
        ("hongtu STREAM --set sampler.chunks=3", "has no option 'chunks'"),
        ("hongtu STREAM --set sampler.chunks_per_partition=-1", "give each partition at least 1"),
        ("hongtu STREAM --set sampler.partitioner=metis", "cannot be partitioned by metis"),
        (
            "hongtu STREAM --set placement.accelerators=9",
            "is 9, and platform epyc7543x4",
        ),
        (
            "hongtu STREAM --vertices 1M --set sampler.chunks_per_partition=20000",
            "4 partitions of 20000 chunks are more than a plan can count",
        ),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_sentence(run, words, message):
    words = words.replace("STREAM", " ".join(STREAM)).replace("SIZES", " ".join(STREAM[:4]))
    words = words.replace("BATCHES", " ".join(BATCHES))
    assert message in one_sentence(run("plan", *words.split()))


def test_counting_that_needs_more_memory_than_there_is(run, monkeypatch):
    free = psutil.virtual_memory()._replace(available=100_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert (
        "counting 4,000 vertices in 512 ranges takes 280 kB of memory and 100 kB are free"
        in one_sentence(run("plan", "hongtu", *STREAM))
    )


def test_chunks_as_few_as_fit(run):
    words = ("plan", "hongtu", *STREAM, "--set", "sampler.chunks_per_partition=0")
    roomy = run(*words)
    assert "4 partitions of 1 chunk\n" in roomy.stdout
    document = read_document(run(*words, "--set", "memory.device_bytes=300kB", "--json", "-"))
    needed, there_is, _ = cells_of(document, "memory")["fullest device"]
    assert there_is == 300_000
    assert needed <= there_is
    (table,) = [table for table in document["tables"] if table["name"] == "chunks"]
    assert "the least power of two that fits 300 kB a device" in " ".join(table["notes"])


@pytest.mark.parametrize(
    "words",
    [
        ("reference", "--swap", "placement=leader", "--batch-size", "48", "--fanouts", "4,3"),
        ("hyscale", "--swap", "memory=pagraph", "--batch-size", "64", "--seed", "2"),
        ("pyg", "--model", "gat"),
        ("cagnet", "--layers", "3", "--model", "sage"),
        ("pipegcn", "--set", "communication.staleness=2", "--epochs", "4"),
        ("bnsgcn", "--set", "communication.rate=0.4", "--epochs", "3", "--model", "sage"),
        ("neutronstar", "--layers", "3"),
        ("p3", "--hidden", "24"),
        ("salient", "--set", "sampler.workers=3", "--batch-size", "16"),
        ("hongtu", "--set", "communication.p2p=false", "--set", "communication.reuse=false"),
        ("mixgcn", "--set", "sampler.schedule=reordered"),
        ("hpgnn", "--platform", "epyc7763x2-4xu250"),
    ],
    ids=lambda words: words[0],
)
def test_a_plan_over_a_dataset_is_what_compare_finds(run, small, tmp_path, words):
    """Bytes, peaks, stages and epochs agree, also for the documentation's placement."""
    plugin = tmp_path / "theirs.py"
    (theirs,) = (each for each in EXAMPLES if "LeaderPlacement" in each)
    plugin.write_text(theirs, encoding="utf-8")
    name, *options = words
    shared = ("--dataset", small, "--plugin", plugin, "--threads", "1", "--json", "-")
    if "--platform" not in options:
        shared += ("--platform", "epyc7543x4-4xa100")
    if "--epochs" not in options:
        shared += ("--epochs", "2")
    (planned,) = read_runs(run("plan", name, *options, *shared))
    found = read_runs(run("compare", "--plugins", name, "--no-plain", *options, *shared))
    (trained,) = [each for each in found if ("·" in each["label"]) == ("--swap" in options)]
    assert trained["status"] == "done", trained["reason"]
    assert planned["parts"] == trained["parts"]
    for metric, value in planned["metrics"].items():
        assert value["provenance"] == "modelled"
        expected = trained["metrics"][metric]["value"]
        assert value["value"] == pytest.approx(expected, rel=1e-12, abs=0), metric
    assert {"epoch_time", "peak_device_bytes", "host_to_device_bytes"} <= planned["metrics"].keys()
    assert planned["stages"] == trained["stages"]
    for work in (planned["work"], trained["work"]):
        del work["ranked"], work["why_not"]
    assert planned["work"] == trained["work"]
    assert planned["loss"] == []
