"""``gnnbench datasets``."""

import json

import pytest

from tests.commands import one_sentence, read_document


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The user's cache, empty and out of the way."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "gnnbench" / "datasets"


@pytest.fixture
def edges(tmp_path):
    file = tmp_path / "ring.txt"
    file.write_text("# a ring\n" + "".join(f"{i} {(i + 1) % 12}\n" for i in range(12)))
    return file


def test_list(run):
    result = run("datasets")
    assert result.exit_code == 0
    assert result.stdout == run("datasets", "list").stdout
    for name in ("cora", "rmat", "sbm", "ogbn-products:SCALE"):
        assert f"\n{name} " in result.stdout
    content = json.loads(run("datasets", "list", "--json", "-").stdout)
    cora = next(entry for entry in content["datasets"] if entry["name"] == "cora")
    assert (cora["vertices"], cora["undirected_edges"]) == (2708, 5278)


def test_info(run):
    result = run("datasets", "info", "cora", "--json", "-")
    facts = json.loads(result.stdout)
    assert (facts["num_vertices"], facts["num_edges"]) == (2708, 10556)
    assert "10,556" in result.stderr


def test_import_then_use_by_name(run, cache, edges):
    result = run("datasets", "import", edges)
    assert result.exit_code == 0, result.output
    assert (cache / "ring.npz").is_file()
    facts = json.loads(run("datasets", "info", "ring", "--json", "-").stdout)
    assert (facts["num_vertices"], facts["num_edges"]) == (12, 24)


def test_import_keeps_directions_and_weights_where_told(run, tmp_path):
    file = tmp_path / "pairs.txt"
    file.write_text("0 1 2.5\n2 1 0.5\n")
    for options, number, notes in (
        ((), 4, ["edge weights were ignored", "missing reverse edges added: 2"]),
        (("--directed",), 2, ["edge weights were ignored"]),
        (("--directed", "--weighted"), 2, []),
    ):
        out = tmp_path / f"{len(options)}.npz"
        facts = read_document(
            run("datasets", "import", file, "--out", out, *options, "--json", "-")
        )
        assert facts["num_edges"] == number
        said = [note for note in facts["notes"] if not note.startswith("made up")]
        assert [note.partition(": columns")[0] for note in said] == notes
        assert facts == {
            **json.loads(run("datasets", "info", out, "--json", "-").stdout),
            "file": str(out),
            "origin": facts["origin"],
            "name": facts["name"],
        }


def test_import_into_a_folder_and_use_it_by_name(run, cache, edges):
    (cache / "unused").mkdir(parents=True)
    result = run("datasets", "import", edges, "--out", cache / "kept", "--scale-features", "rows")
    assert result.exit_code == 0, result.output
    names = {path.name for path in (cache / "kept").iterdir()}
    assert {"manifest.json", "indptr.npy", "indices.npy", "x.npy", "y.npy"} <= names
    for name in ("kept", cache / "kept"):
        facts = json.loads(run("datasets", "info", name, "--json", "-").stdout)
        assert (facts["num_vertices"], facts["num_edges"]) == (12, 24)
        assert "features scaled: every row has length 2" in facts["notes"]
    assert "stays on disk" in run("datasets", "list").stdout
    assert "--scale-features none" in one_sentence(
        run("compare", "--plugins", "native", "--dataset", "kept", "--scale-features", "none")
    )


def test_a_folder_is_overwritten_only_where_it_is_a_dataset_and_none_that_is_read(
    run, edges, tmp_path
):
    out = tmp_path / "kept"
    assert run("datasets", "import", edges, "--out", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for words, said in (
        (("import", edges, "--out", out), "--overwrite"),
        (("import", edges, "--out", tmp_path, "--overwrite"), "is no dataset"),
        (("make", "sbm", "--out", tmp_path / "x.npz", "--scale-features", "rows"), "Leave it out"),
        (("make", out, "--out", out, "--overwrite"), "would be overwritten"),
        (("import", edges, "--features", out / "x.npy", "--out", out, "--overwrite"), "would be"),
        (("make", "sbm", "--out", out, "--overwrite", "--json", out / "x.npy"), "two outputs"),
        (("info", out, "--json", out / "x.npy"), "would be overwritten"),
        (("info", out, "--json", out / "manifest.json"), "would be overwritten"),
    ):
        assert said in one_sentence(run("datasets", *words))
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    spec = "sbm:vertices=60,edges=200,features=4,classes=3"
    assert run("datasets", "make", spec, "--out", out, "--overwrite").exit_code == 0
    assert json.loads(run("datasets", "info", out, "--json", "-").stdout)["num_vertices"] == 60


@pytest.mark.parametrize("out", ["x.txt", "none/x.npz", ".", "none/x"])
def test_a_bad_target_is_refused(run, edges, tmp_path, out):
    one_sentence(run("datasets", "import", edges, "--out", tmp_path / out))
