"""HongTu's Tables 3 and 8 and Figure 10: graphs at hand are counted as they are trained on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gnnbench.conformance.graphs import make_dataset
from gnnbench.datasets import catalogue
from gnnbench.errors import DatasetError
from gnnbench.partitioning import cut_ranges, partition
from gnnbench.records import IntArray, Table
from gnnbench_plugins.hongtu.memory import HongTuMemory
from gnnbench_plugins.studies.hongtu import figures, replication
from gnnbench_plugins.studies.hongtu.figures import Duplication, Figure10, explain_outside
from gnnbench_plugins.studies.hongtu.quoted import LARGE, PARTITIONS, PaperGraph
from tests.systems.training import epoch_s, run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, figures.Job]]:
    """One small graph, and one that is not there."""

    def load_dataset(name: str) -> object:
        if name == "small":
            return make_dataset()
        raise DatasetError(f"there is no {name}.")

    monkeypatch.setattr(figures, "DATASETS", ("small", "missing"))
    monkeypatch.setattr(catalogue, "load", load_dataset)
    figures.load_jobs.cache_clear()
    figures.count_job.cache_clear()
    yield figures.load_jobs()[0]
    figures.load_jobs.cache_clear()
    figures.count_job.cache_clear()


def rows_of(table: Table) -> dict[str, list[float | None]]:
    return {row.label: [cell.value for cell in row.cells] for row in table.rows}


def test_the_papers_graphs_lose_what_section_7_3_says() -> None:
    theirs = [Duplication.of_paper(graph) for graph in LARGE]
    assert [round(found.gone_percent) for found in theirs] == [26, 57, 71]
    assert [found.chunks for found in theirs] == [32, 128, 128]
    assert all(found.is_inside for found in theirs)


@pytest.mark.parametrize("chunks", [2, 8])
def test_counts_are_those_of_training(jobs: dict[str, figures.Job], chunks: int) -> None:
    setting = jobs["small"].setting
    trace = run(setting, "hongtu", sampler={"chunks_per_partition": chunks})
    counts = figures.count_job("small", chunks)
    found = Duplication.of_counts(counts)
    (volumes,) = (note for note in trace.notes if "V_ori" in note)
    for name, value in (
        ("V_ori", found.original),
        ("V_+p2p", found.with_p2p),
        ("V_+ru", found.with_reuse),
    ):
        assert f"{name} {value * setting.dataset.graph.num_vertices:,.0f} " in volumes
    strain = figures.Strain.of_counts(counts, setting, HongTuMemory(topology="device"))
    devices = [device.name for device in setting.platform.accelerators]
    assert strain.device_bytes == max(trace.peak_bytes[name] for name in devices)
    assert strain.epoch_s == pytest.approx(epoch_s(trace)[0], rel=1e-12)


def test_graphs_outside_the_range_are_named_with_what_sets_them_apart() -> None:
    local, random = Duplication(32, 4.0, 3.9, 1.0), Duplication(128, 4.0, 3.0, 2.5)
    theirs = [Duplication.of_paper(graph) for graph in LARGE]
    (note,) = explain_outside([("local", local), ("random", random)], theirs)
    assert "local in 32 chunks. " in note
    assert "random" not in note
    assert note.endswith("12 % there, 3.1 % of the others, 5 to 8.4 % of the paper's graphs")
    assert explain_outside([("random", random)], theirs) == ()


def test_table_3_counts_who_reads_a_vertex(
    jobs: dict[str, figures.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of a partition and a vertex that it has or that one of its own has an edge from."""
    monkeypatch.setattr(replication, "CUT_INTO", (2, 4, 8))
    graph = jobs["small"].setting.dataset.graph
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))

    def count(owner: IntArray) -> float:
        read = {*zip(owner[targets].tolist(), graph.indices.tolist(), strict=True)}
        return len(read | {*zip(owner.tolist(), range(len(owner)), strict=True)}) / len(owner)

    by_metis = {parts: partition(graph, parts, "metis", figures.SEED) for parts in (2, 4, 8)}
    halves = by_metis[4].copy()
    for part in range(4):
        for number, ids in enumerate(cut_ranges(graph, np.flatnonzero(by_metis[4] == part), 2)):
            halves[ids] = 2 * part + number
    *_, ranges, alone = replication.Table3().run()
    assert rows_of(ranges)["small"][:3] == [count(by_metis[2]), count(by_metis[4]), count(halves)]
    assert rows_of(alone)["small"][:3] == [count(owner) for owner in by_metis.values()]
    assert count(halves) != count(by_metis[8])
    monkeypatch.setattr(replication, "STAND_INS", ("small",))
    *_, ranges, alone = replication.Table3().run()
    read = count(by_metis[4])
    assert f"already 4 partitions read {read:.2f} to {read:.2f} times |V|" in ranges.notes[1]
    assert alone.rows == ()


def test_table_3_by_the_formula_of_section_4_2() -> None:
    """Twice as many partitions that read as much each as before halve nothing of what is read."""
    assert replication.shrink_percent([1.0, 1.0, 1.0]) == 50
    assert replication.shrink_percent([1.0, 3.0]) == 0
    assert replication.shrink_percent([1.0, 1.0, 3.0]) == 25


def topology_bytes(graph: PaperGraph, times: int) -> float:
    """By hand, of a chunk among so many ``times`` Table 8's: kernel 'torch' has two positions, a
    number and a value for each edge. Sources are a place in the transpose and a GCN's constant,
    destinations a place in the CSR and one in the buffer, an in-degree and two constants.

    The buffer has the chunk's rows, of which those of peers follow from Table 3's alpha, and the
    transition rows that its own are among.
    """
    alphas = figures.list_alphas(graph)
    chunks = PARTITIONS * graph.chunks * times
    rows = graph.vertices / chunks * alphas[figures.TIMES.index(times)] / alphas[0]
    read, shared = rows * graph.original, rows * graph.between
    own = read / graph.replication(PARTITIONS)
    assert read - own > shared  # or it would be the peers' rows
    sources = read + (read - shared) - own
    return (16 * graph.edges + 20 * graph.vertices) / chunks + 8 * sources


def test_four_times_the_chunks_take_less_memory_and_longer(
    jobs: dict[str, figures.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 7.5: 51 to 65 % less memory, 1.5 to 2.2 times as long; here without a fit."""
    graph = LARGE[0]
    monkeypatch.setattr(figures, "LARGE", (graph,))
    tables = Figure10().run()
    waiting, staying, time = (list(rows_of(table).values()) for table in tables)
    assert len(waiting) == len(staying) == len(time) == 2
    for row in (waiting[0], staying[0]):
        assert row[0] > row[1] > row[2]
    for row in time:
        assert row[0] < row[1] < row[2]
    (told,) = tables[-1].contradictions
    assert told.what == f"the growth of {graph.name}'s epoch"
    assert "rows that cross at four times the chunks" in told.sentence
    *sizes, less = staying[0]
    assert waiting[0][-1] == pytest.approx(74, abs=1)
    for held, least, times in zip(sizes, waiting[0], figures.TIMES, strict=False):
        others = times * graph.chunks - 1
        assert held - least == pytest.approx(others * topology_bytes(graph, times), rel=1e-6)
    assert less == pytest.approx(100 * (1 - sizes[-1] / sizes[0]))
    assert less < 51
