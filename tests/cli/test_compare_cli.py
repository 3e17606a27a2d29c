"""``gnnbench compare`` from the command line to the files, on a real graph; and bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnnbench.datasets import find_shared_data
from gnnbench.results.schema import read_json

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


def test_two_systems_on_cora(run, tmp_path):
    assert find_shared_data() is not None
    json_file, trace, html = (tmp_path / f"out.{kind}" for kind in ("json", "trace", "html"))
    result = run(
        "compare", "--plugins", "hyscale,hongtu", "--dataset", "cora", *QUICK, "--json", json_file,
        "--trace", trace, "--html", html,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = read_json(json_file)
    # Each beside its plain counterpart.
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
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        f"{each.label} [{each.mode}]" for each in document.runs
    }
    assert "<svg" in html.read_text(encoding="utf-8")
    lines = result.stdout.splitlines()
    title = "gnnbench compare · cora · GCN 2 layers, 1433-8-7 · 2 epochs, seed 0 · "
    assert lines[0].startswith(title)
    answer = next(i for i, line in enumerate(lines) if line.startswith(" Full graph: "))
    table = next(i for i, line in enumerate(lines) if line.startswith(" full graph "))
    assert answer < table < lines.index(" mini-batch")
    assert not any(line.startswith(" stages [") for line in lines)


def test_details_print_every_figure(run):
    words = ("compare", "--plugins", "hongtu", "--dataset", "cora", *QUICK)
    brief, full = run(*words).stdout, run(*words, "--details").stdout
    for heading in ("stages [", "edges/s", "this machine"):
        assert heading in full
        assert heading not in brief


def test_it_is_deterministic(run):
    words = ("compare", "--plugins", "hongtu", "--dataset", "cora", *QUICK, "--json", "-")
    first, second = (json.loads(run(*words).stdout)["runs"][0] for _ in range(2))
    assert first["loss"] == second["loss"]
    if first["metrics"]["epoch_time"]["provenance"] == "modelled":
        assert first["metrics"]["epoch_time"] == second["metrics"]["epoch_time"]


def test_no_check_checks_nothing(run):
    words = ("compare", "--plugins", "reference", "--dataset", "cora", *QUICK, "--no-check")
    result = run(*words, "--json", "-")
    assert [r["equivalence"] for r in json.loads(result.stdout)["runs"]] == [None]
    assert "not checked" in result.stderr


def test_a_swap_adds_a_row_and_repeats_are_kept_apart(run):
    result = run(
        "compare", "--plugins", "hongtu", "--dataset", "cora", *QUICK, "--swap",
        "communication=vanilla", "--repeats", "2", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = json.loads(result.stdout)["runs"]
    assert [(r["label"], r["repeat"]) for r in runs] == [
        ("hongtu", 0), ("hongtu", 1), ("hongtu·vanilla", 0), ("hongtu·vanilla", 1),
    ]  # fmt: skip
    assert runs[2]["parts"]["communication"] == "vanilla"


def test_target_accuracy_is_timed(run):
    result = run(
        "compare", "--plugins", "reference", "--dataset", "cora", *QUICK, "--target-accuracy",
        "0.01", "--json", "-",
    )  # fmt: skip
    metric = json.loads(result.stdout)["runs"][0]["metrics"]["time_to_accuracy"]
    assert metric["unit"] == "s"
    assert "accuracy [" in result.stderr


def test_out_of_memory_stays_in_the_table(run):
    result = run(
        "compare", "--plugins", "reference,hongtu", "--dataset", "cora", *QUICK, "--set",
        "memory.device_bytes=5MB", "--set", "sampler.chunks_per_partition=16", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = {r["strategy"]: r for r in json.loads(result.stdout)["runs"]}
    assert runs["hongtu"]["status"] == "done"
    assert runs["reference"]["status"] == "out-of-memory"
    assert "bytes" in runs["reference"]["reason"]
    assert "out-of-memory" in result.stderr


def test_nothing_that_fits_is_4(run):
    result = run(
        "compare", "--plugins", "reference", "--dataset", "cora", *QUICK, "--set",
        "memory.device_bytes=1kB",
    )  # fmt: skip
    assert result.exit_code == 4
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


def out_of_range(arrays):
    arrays["indices"] = arrays["indices"].copy()
    arrays["indices"][0] = 99


def no_labels(arrays):
    arrays["y"] = np.full(6, -1, dtype=np.int64)


def nan_features(arrays):
    arrays["x"] = arrays["x"].copy()
    arrays["x"][2, 2] = np.nan


def directed(arrays):
    arrays["indptr"] = np.array([0, 1, 2, 3, 4, 5, 5], dtype=np.int64)
    arrays["indices"] = np.array([1, 2, 3, 4, 5], dtype=np.int32)


def unsorted(arrays):
    arrays["indices"] = arrays["indices"].copy()
    arrays["indices"][:2] = arrays["indices"][:2][::-1]


def wrong_lengths(arrays):
    arrays["y"] = arrays["y"][:4]


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (out_of_range, "99"),
        (no_labels, "label"),
        (nan_features, "finite"),
        (directed, "direct"),
        (unsorted, "sort"),
        (wrong_lengths, "y has shape"),
    ],
)
def test_a_graph_that_cannot_be_used_as_it_is(run, tmp_path, triangle_arrays, break_it, says):
    break_it(triangle_arrays)
    path = save(tmp_path / "bad.npz", triangle_arrays)
    refuse(run("compare", "--plugins", "reference", "--dataset", path, *QUICK), "bad.npz", says)


@pytest.mark.parametrize(
    "words",
    [
        ("--epochs", "0"),
        ("--batch-size", "-1"),
        ("--hidden", "0"),
        ("--fanouts", "10"),
        ("--model", "transformer"),
    ],
)
def test_sizes_and_choices_that_make_no_sense(run, words):
    refuse(run("compare", "--plugins", "reference", "--dataset", "cora", *words), words[0])
