"""``gnnbench platforms``."""

import json
from dataclasses import replace

import pytest

from gnnbench import probing
from gnnbench.machines import load_platform, probe
from gnnbench.machines.describe import local_path
from gnnbench.machines.local import describe_unmeasured
from gnnbench.machines.machine import CallTimes, LibraryRates
from gnnbench.probing import Probed, Unmeasured
from tests.commands import one_sentence


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The user's cache, empty and out of the way."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_list(run):
    result = run("platforms")
    assert result.exit_code == 0
    assert result.stdout == run("platforms", "list").stdout
    names = [p["name"] for p in json.loads(run("platforms", "--json", "-").stdout)["platforms"]]
    assert {"local", "epyc7763x2-4xa5000", "epyc7763x2-4xu250", "epyc7543x4-4xa100"} <= set(names)


def test_show_gives_every_number_with_its_source(run):
    result = run("platforms", "show", "epyc7763x2-4xa5000", "--json", "-")
    content = json.loads(result.stdout)
    assert [device["name"] for device in content["devices"]] == [
        "host", "gpu0", "gpu1", "gpu2", "gpu3",
    ]  # fmt: skip
    assert content["devices"][0]["memory_bandwidth_bytes_per_s"] > 1e11
    assert content["sources"]
    assert "HyScale-GNN" in result.stderr


def test_show_writes_a_file_that_describes_the_same_machine(run, tmp_path):
    """A reader edits the file, so that its name and a number differ."""
    file = tmp_path / "planned.toml"
    shown = run("platforms", "show", "epyc7763x2-4xa5000", "--out", str(file)).stdout
    text = file.read_text(encoding="utf-8")
    again = run("platforms", "show", str(file)).stdout
    assert again == shown
    file.write_text(text.replace("410", "205"), encoding="utf-8")
    assert run("platforms", "show", str(file)).stdout != shown


def test_show_what_is_not_there_or_broken(run, tmp_path):
    assert run("platforms", "show", "nonsense").exit_code == 2
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\nspeed = 1\n')
    one_sentence(run("platforms", "show", file))


@pytest.fixture
def measured(monkeypatch):
    """The seconds that were asked for. Nothing is measured, and one part does not run here."""
    asked = []

    def measure(seconds):
        asked.append(seconds)
        return describe_unmeasured()

    def measure_libraries(platform, registry, seconds):
        asked.append(seconds)
        assert registry.strategy("reference")
        host = replace(
            platform.host, libraries={"torch": LibraryRates(calls=CallTimes(call_s=3e-6))}
        )
        left_out = Unmeasured("kernel spu", "host", "it needs sparse accelerators.")
        sources = {**platform.sources, "host.libraries.torch.call": "a test"}
        return Probed(replace(platform, host=host, sources=sources), (left_out,))

    monkeypatch.setattr(probe, "probe", measure)
    monkeypatch.setattr(probing, "probe_libraries", measure_libraries)
    return asked


def test_probe_measures_and_keeps_what_it_is_told_to(run, tmp_path, measured):
    out = tmp_path / "here.toml"
    words = ("platforms", "probe", "--seconds", "0.05")
    result = run(*words, "--out", out, "--save", "--json", "-")
    assert result.exit_code == 0, result.output
    assert measured == [0.05, 0.05]
    document = json.loads(result.stdout)
    assert document["name"] == "local"
    assert document["devices"][0]["libraries"]["torch"]["call_s"] == 3e-6
    said = " ".join(result.stderr.split())
    assert "not measured on host: kernel spu: it needs sparse accelerators." in said
    kept = local_path()
    assert said.endswith(f"wrote {out} wrote {kept}")
    for path in (out, kept):
        assert load_platform(str(path)).host.libraries["torch"].calls.call_s == 3e-6
    assert "as last probed" in run("platforms", "list").stdout
    kept.unlink()
    assert "nothing was kept; use --save, or --out FILE.toml" in run(*words).stdout
    assert not kept.exists()


def test_probe_refuses_a_bad_target_before_it_measures(run, tmp_path):
    assert "is a folder" in one_sentence(
        run("platforms", "probe", "--seconds", "100", "--out", tmp_path)
    )
