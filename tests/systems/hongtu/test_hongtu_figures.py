"""HongTu's Figure 10 and its headlines, by hand."""

import pytest

from gnnbench.records import Cell, Table, TableRow
from gnnbench.reproduce.agreement import measure_agreement
from gnnbench_plugins.studies.hongtu import figures
from gnnbench_plugins.studies.hongtu.headlines import judge_ratios, pair_systems
from gnnbench_plugins.studies.hongtu.quoted import LARGE, PARTITIONS, PaperGraph


def rows_of(table: Table) -> dict[str, list[float | None]]:
    return {row.label: [cell.value for cell in row.cells] for row in table.rows}


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Section 7.5: 51 to 65 % less memory, 1.5 to 2.2 times as long; here without a fit."""
    graph = LARGE[0]
    monkeypatch.setattr(figures, "LARGE", (graph,))
    tables = figures.Figure10().run()
    (staying,), (crossing,), (time,) = (list(rows_of(table).values()) for table in tables)
    assert time[0] < time[1] < time[2]
    (told,) = tables[-1].contradictions
    assert told.what == f"the growth of {graph.name}'s epoch"
    assert "rows that cross at four times the chunks" in told.sentence
    *sizes, less = staying
    assert crossing[-1] == pytest.approx(74, abs=1)
    for held, least, times in zip(sizes, crossing, figures.TIMES, strict=False):
        others = times * graph.chunks - 1
        assert held - least == pytest.approx(others * topology_bytes(graph, times), rel=1e-6)
    assert less == pytest.approx(100 * (1 - sizes[-1] / sizes[0]))
    assert less < 51
    # The paper has one number for both readings.
    counted = [measure_agreement(table.cells) for table in tables]
    assert [each.numbers for each in counted] == [1, 0, 1]


def test_a_headline_has_the_extremes_of_untouched_pairs_that_ran_in_both() -> None:
    full, touched = Cell(text="out of memory", quoted=9.0), Cell(60.0, quoted=3.0, fitted_on=("x",))
    rows = (
        TableRow("2 DGL", (Cell(1.0, quoted=2.0), Cell(4.0, quoted=4.0), full, touched)),
        TableRow(
            "2 HongTu", (Cell(3.0, quoted=3.0), Cell(2.0, quoted=5.0), *[Cell(6.0, quoted=6.0)] * 2)
        ),
    )
    least, most = judge_ratios("slower", pair_systems(rows, "HongTu", "DGL")).cells
    assert (least.value, most.value) == (0.5, 3.0)
    assert (least.quoted, most.quoted) == (1.25, 2.0)
    stated = judge_ratios("slower", pair_systems(rows, "HongTu", "DGL"), (1.3, 3.8)).cells
    assert [cell.quoted for cell in stated] == [1.3, 3.8]
    assert not least.fitted_on
    # If all pairs are touched, their extremes stand there and prove nothing.
    alone = judge_ratios("slower", [(Cell(6.0, quoted=6.0), touched)]).cells
    assert [(cell.value, cell.fitted_on) for cell in alone] == [(0.1, ("x",))] * 2
