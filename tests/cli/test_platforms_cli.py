"""``gnnbench platforms``."""

from __future__ import annotations

import json

import pytest

from gnnbench.platforms import probe
from gnnbench.probing import kernels, samplers


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


def test_show_what_is_not_there_or_broken(run, tmp_path):
    assert run("platforms", "show", "nonsense").exit_code == 2
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\nspeed = 1\n')
    result = run("platforms", "show", file)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


@pytest.fixture
def soon_measured(monkeypatch):
    """Rates of so small arrays that they are wrong; which are measured stays."""
    for module, name, size in (
        (probe, "TRIAD_FLOATS", 2**16),
        (probe, "COPY_BYTES", 2**16),
        (probe, "GATHERED_WIDTHS", (16, 64)),
        (probe, "GATHERED_BYTES", 2**16),
        (probe, "AGGREGATED_WIDTHS", (16, 64)),
        (probe, "AGGREGATED_BYTES", 2**16),
        (probe, "GRAPH_VERTICES", 2**12),
        (probe, "NARROW_SIDES", (4, 16)),
        (probe, "UPDATED_ROWS", 2**8),
        (kernels, "WIDTHS", (4, 16)),
        (kernels, "NARROW_SIDES", (4, 16)),
        (kernels, "CACHED_BYTES", 2**10),
        (kernels, "ON_HOST", kernels.Amounts(2**12, 2**10, 2**14, 2**6, 2**5, 2**8)),
        (kernels, "WARMUPS", 1),
        (samplers, "VERTICES", 2**10),
    ):
        monkeypatch.setattr(module, name, size)


def test_probe_measures_and_keeps_what_it_is_told_to(run, tmp_path, soon_measured):
    out = tmp_path / "here.toml"
    result = run("platforms", "probe", "--seconds", "0.05", "--out", out, "--save", "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["name"] == "local"
    assert run("platforms", "show", out).exit_code == 0
    assert "as last probed" in run("platforms", "list").stdout


def test_probe_refuses_a_bad_target_before_it_measures(run, tmp_path):
    result = run("platforms", "probe", "--seconds", "100", "--out", tmp_path)
    assert result.exit_code == 2
    assert "is a folder" in result.stderr
