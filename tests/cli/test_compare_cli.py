"""``gnnbench compare`` from the command line to the files, on a real graph; and bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from gnnbench.cli import main
from gnnbench.datasets import find_shared_data
from gnnbench.results.schema import read_json

GRAPH = "sbm:vertices=120,edges=600,features=8,classes=3"
QUICK = ("--epochs", "2", "--hidden", "8", "--threads", "1")


@pytest.fixture
def triangle_arrays() -> dict[str, np.ndarray]:
    """Two triangles joined by an edge: 6 vertices, 7 edges, every class in every part."""
    pairs = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5)]
    matrix = np.zeros((6, 6), dtype=bool)
    for u, v in pairs:
        matrix[u, v] = matrix[v, u] = True
    masks = np.arange(6) % 3
    return {
        "indptr": np.concatenate(([0], matrix.sum(1).cumsum())).astype(np.int64),
        "indices": matrix.nonzero()[1].astype(np.int32),
        "x": np.eye(6, dtype=np.float32),
        "y": np.array([0, 0, 0, 1, 1, 1], dtype=np.int64),
        "train_mask": masks == 0,
        "val_mask": masks == 1,
        "test_mask": masks == 2,
    }


def save(path, arrays):
    np.savez(path, **arrays)
    return path


# --------------------------------------------------------------------------- the real thing


@pytest.fixture(scope="module")
def cora(tmp_path_factory):
    """What is printed of two systems on Cora, and the folder of the three outputs."""
    assert find_shared_data() is not None
    folder = tmp_path_factory.mktemp("cora")
    outputs = [
        word
        for kind in ("json", "trace", "html")
        for word in (f"--{kind}", str(folder / f"out.{kind}"))
    ]
    words = ["compare", "--plugins", "hyscale,hongtu", "--dataset", "cora", *QUICK, *outputs]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.stdout, folder


def test_two_systems_on_cora(cora):
    """Each system is beside its plain counterpart."""
    printed, folder = cora
    document = read_json(folder / "out.json")
    assert [(r.label, r.mode, r.status) for r in document.runs] == [
        ("hyscale", "mini-batch", "done"),
        ("data-parallel", "mini-batch", "done"),
        ("hongtu", "full-graph", "done"),
        ("hongtu·vanilla", "full-graph", "done"),
    ]
    for entry in document.runs:
        assert len(entry.loss) == 2
        assert entry.equivalence is not None
        assert (entry.equivalence.equal, entry.equivalence.fault) == (True, "")
        assert entry.work.ranked
        assert entry.work.updates >= 1
        assert entry.metrics["epoch_time"].value > 0
        assert entry.metrics["wall_time"].provenance == "measured"
        assert entry.stages
    assert document.platform.modelled == (
        document.runs[0].metrics["epoch_time"].provenance == "modelled"
    )
    events = json.loads((folder / "out.trace").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        f"{each.label} [{each.mode}]" for each in document.runs
    }
    assert "<svg" in (folder / "out.html").read_text(encoding="utf-8")
    lines = printed.splitlines()
    title = "gnnbench compare · cora · GCN 2 layers, 1433-8-7 · 2 epochs, seed 0 · "
    assert lines[0].startswith(title)
    answer = next(i for i, line in enumerate(lines) if line.startswith(" Full graph: "))
    table = next(i for i, line in enumerate(lines) if line.startswith(" full graph "))
    assert answer < table < lines.index(" mini-batch")


def test_another_run_finds_the_same_and_details_print_every_figure(run, cora):
    document = read_json(cora[1] / "out.json")
    (first,) = [each for each in document.runs if each.label == "hongtu"]
    words = ("--plugins", "hongtu", "--dataset", "cora", "--platform", document.platform.name)
    result = run("compare", *words, *QUICK, "--no-plain", "--details", "--json", "-")
    (again,) = json.loads(result.stdout)["runs"]
    assert again["loss"] == list(first.loss)
    epoch = again["metrics"]["epoch_time"]
    if epoch["provenance"] == "modelled":
        assert epoch["value"] == first.metrics["epoch_time"].value
    for heading, always in (("stages [", False), ("edges/s", True), ("this machine", False)):
        assert heading in result.stderr
        assert (heading in cora[0]) == always


def test_no_check_checks_nothing_and_target_accuracy_is_timed(run):
    words = ("compare", "--plugins", "reference", "--dataset", GRAPH, *QUICK, "--no-check")
    result = run(*words, "--target-accuracy", "0.01", "--json", "-")
    (row,) = json.loads(result.stdout)["runs"]
    assert row["equivalence"] is None
    assert "not checked" in result.stderr
    assert row["metrics"]["time_to_accuracy"]["unit"] == "s"
    assert "accuracy [" in result.stderr


def test_a_swap_adds_a_row_and_repeats_are_kept_apart(run):
    words = ("--swap", "communication=vanilla", "--repeats", "2", "--no-check", "--json", "-")
    result = run("compare", "--plugins", "hongtu", "--dataset", GRAPH, *QUICK, *words)
    assert result.exit_code == 0, result.output
    runs = json.loads(result.stdout)["runs"]
    assert [(r["label"], r["repeat"], r["parts"]["communication"]) for r in runs] == [
        ("hongtu", 0, "hongtu"),
        ("hongtu", 1, "hongtu"),
        ("hongtu·vanilla", 0, "vanilla"),
        ("hongtu·vanilla", 1, "vanilla"),
    ]


def test_out_of_memory_stays_in_the_table(run):
    words = ("compare", "--dataset", "cora", *QUICK, "--no-plain", "--no-check")
    result = run(
        *words, "--plugins", "reference,hongtu", "--set", "memory.device_bytes=5MB",
        "--set", "sampler.chunks_per_partition=16", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = {r["strategy"]: r for r in json.loads(result.stdout)["runs"]}
    assert runs["hongtu"]["status"] == "done"
    assert runs["reference"]["status"] == "out-of-memory"
    assert "bytes" in runs["reference"]["reason"]
    assert "out-of-memory" in result.stderr
    result = run(*words, "--plugins", "reference", "--set", "memory.device_bytes=1kB")
    assert result.exit_code == 4  # nothing fits
    assert "out-of-memory" in result.stdout


def test_a_hand_made_file_and_platform_are_used(run, tmp_path, triangle_arrays):
    data = save(tmp_path / "tiny.npz", triangle_arrays)
    result = run(
        "compare", "--plugins", "reference,hongtu,hyscale", "--dataset", data, *QUICK,
        "--batch-size", "2", "--platform", "epyc7763x2-4xu250", "--json", "-",
    )  # fmt: skip
    document = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert document["dataset"]["num_edges"] == 14
    assert document["platform"]["name"] == "epyc7763x2-4xu250"
    assert "modelled on epyc7763x2-4xu250" in result.stderr


# --------------------------------------------------------------------------- bad input


def refuse(result, *says: str) -> None:
    """One sentence on standard error, exit status 2, and nothing else."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("gnnbench: error: ")
    for words in says:
        assert words in lines[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--plugins", "hongto"), "hongtu"),
        (("--dataset", "coraa"), "cora"),
        (("--dataset", "none.npz"), "none.npz"),
        (("--platform", "abacus"), "abacus"),
        (("--platform", "none.toml"), "none.toml"),
        (("--swap", "communication=telepathy"), "telepathy"),
        (("--swap", "communication=none"), "communication 'none'"),
        (("--set", "memory.device_bytes=lots"), "size in bytes"),
        (("--set", "memory.colour=red"), "colour"),
        (("--plugin", "no_such_module"), "no_such_module"),
        (("--plugin", "none.py"), "none.py"),
    ],
)
def test_unknown_names_and_parts_that_do_not_fit(run, tmp_path, words, says):
    out = tmp_path / "result.json"
    out.write_text("precious")
    defaults = ("--plugins", "hongtu", "--dataset", "cora")
    refuse(run("compare", *defaults, *words, *QUICK, "--json", out), says)
    assert out.read_text() == "precious"


def test_a_plugin_file_that_raises(run, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("x = 1\nraise RuntimeError('no luck')\n")
    words = ("compare", "--plugins", "reference", "--dataset", "cora", "--plugin", file)
    refuse(run(*words), "broken.py", "line 2", "RuntimeError: no luck")


def test_a_platform_that_contradicts_itself(run, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\n')
    refuse(run("compare", "--plugins", "reference", "--platform", file), "bad.toml")


def drop_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [drop_half, lambda path: path.write_bytes(b"not a zip")])
def test_a_damaged_file(run, tmp_path, triangle_arrays, damage):
    path = save(tmp_path / "bad.npz", triangle_arrays)
    damage(path)
    refuse(run("compare", "--plugins", "reference", "--dataset", path, *QUICK), "bad.npz")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x", np.full((6, 6), np.nan, np.float32), "finite"),
        ("y", np.zeros(4, np.int64), "y has shape"),
        ("y", np.full(6, -1), "label"),
        ("indices", np.full(14, 99, np.int32), "99"),
    ],
)
def test_a_graph_that_cannot_be_used_as_it_is(run, tmp_path, triangle_arrays, name, content, says):
    path = save(tmp_path / "bad.npz", triangle_arrays | {name: content})
    refuse(run("compare", "--plugins", "reference", "--dataset", path, *QUICK), "bad.npz", says)
