"""HP-GNN's Table 6: what its layouts earn, and what that rests on."""

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.machines.tables import flatten, replace_fields
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.studies.hpgnn.optimisations import STEPS, Draw, list_assumptions


def test_all_layouts_have_the_same_mini_batch_and_each_earns_something():
    draw = Draw.of_dataset("small", datasets.load("amazonproducts:0.002"))
    plain, *others = (draw.blocks[step] for step in STEPS)
    for blocks in others:
        for one, other in zip(plain, blocks, strict=True):
            assert (one.num_src, one.num_dst, one.num_edges) == (
                other.num_src, other.num_dst, other.num_edges,
            )  # fmt: skip
            assert np.array_equal(np.diff(one.indptr), np.diff(other.indptr))
    board = load_board("u250")
    neither, rmt, both = (draw.count_throughput(step, board) for step in STEPS)
    assert neither < rmt < both
    assert draw.gain_percent(board) == pytest.approx(100 * (both / neither - 1))
    # Where memory takes next to no time, fewer and shorter reads earn less.
    free = replace_fields(board, bandwidth_bytes_per_s=1e14, page_miss_s=0.0)
    assert draw.gain_percent(free) < 0.8 * draw.gain_percent(board)


def test_an_assumption_scales_one_number_of_the_board():
    board = load_board("u250")
    for assumption in list_assumptions(board):
        changed = assumption.scale(board, 2.0)
        before, after = flatten(board), flatten(changed)
        moved = [name for name in before if before[name] != after[name]]
        assert len(moved) == 1
        assert after[moved[0]] == 2 * assumption.stated
