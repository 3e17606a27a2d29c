"""A graph that outgrows its devices and its host, from the command line to the table."""

from __future__ import annotations

import pytest

GRAPH = "rmat:vertices=1k,edges=16k,features=128"
HONGTU = (
    "compare", "--plugins", "hongtu", "--dataset", GRAPH, "--layers", "3", "--hidden", "128",
    "--epochs", "1", "--platform", "epyc7543x4-4xa100", "--threads", "1",
)  # fmt: skip


@pytest.mark.parametrize("chunks", [0, 6])
def test_the_table_says_what_was_spilled(run, chunks, tmp_path):
    """HongTu's claim at a four-thousandth of 4 M vertices and 64 M edges: a graph of which neither
    the devices nor the host can hold all trains as plain training does."""
    result = run(
        *HONGTU, "--set", "memory.device_bytes=2MB", "--set", "memory.host_bytes=3MB",
        "--set", f"memory.spill_dir={tmp_path}",
        "--set", f"sampler.chunks_per_partition={chunks}", "--no-plain", "--details",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "spilled to disk: " in said
    assert "cached aggregates of layer 1 (512 kB)" in said
    first = next(line for line in result.output.splitlines() if line.startswith(" hongtu "))
    assert first.endswith(" yes")
