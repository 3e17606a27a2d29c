"""What HP-GNN's designs take of a die, memory included, by hand and beside what is generated."""

import re

import pytest

from gnnbench.machines.tables import replace_fields
from gnnbench_plugins.hpgnn.boards import load_board
from gnnbench_plugins.hpgnn.design import Batch, explore
from gnnbench_plugins.hpgnn.program import GNN, Program, Sampler, generate_design
from gnnbench_plugins.hpgnn.resources import (
    Buffers,
    Design,
    Usage,
    budget_of,
    count_bram,
    count_uram,
    cut_weights,
    find_buffers,
    find_excess,
    usage_of,
)

U250 = load_board("u250")
#: The workloads of the authors' script: neighbour sampling, and subgraphs of 2,750 vertices.
NEIGHBOURS = Batch((102483, 9000, 1024), (137420, 8505), (128, 128, 128))
SUBGRAPH = Batch((2750, 2750, 2750), (54510, 54510), (128, 128, 128))
#: The widths that once made a design break its budget.
REDDIT = (602, 256, 41)


def fits(used: Usage, there: Usage) -> bool:
    pairs = zip(
        (used.dsp, used.lut, used.bram, used.uram),
        (there.dsp, there.lut, there.bram, there.uram),
        strict=True,
    )
    return all(taken <= most for taken, most in pairs)


def generate(model: str, widths: tuple[int, ...], scope: str = "die"):
    sampler = Sampler("NeighborSampler", L=2, budgets=[10, 25])
    return generate_design(Program(sampler, GNN(model, widths), scope=scope))


def test_buffers_by_hand():
    """SAGE 602-256-41: rows of 1,204 by W of 256 columns, filled up to whole words."""
    buffers = find_buffers(REDDIT, (1204.0, 512.0), vertices=(250_000, 10_000, 1024))
    assert buffers.inner == 1204
    # Forward 256 columns, backward those of what layer 2 multiplies.
    assert buffers.columns == 512
    assert buffers.weights == 1204 * 256
    assert buffers.row_words == 38
    assert buffers.gathered_words == 10_000 * 38
    # Layer 1 has no gradients of its rows: its 1,204 columns count nowhere.
    assert find_buffers((602, 16), (602.0,)).columns == 16


def test_block_ram_by_hand():
    """m = 4: an array of 2 x 2, eight groups of rows; n = 1: no network."""
    buffers = Buffers(inner=1000, columns=64, weights=16 * 1024, row_words=2)
    halves = 16 * 2  # 1,024 values a bank
    halves += 2 * 16  # 8 rows of 1,000 values in each of two banks: 8,000
    halves += 16 * 1  # 16 rows of 64 columns over 16 banks
    halves += 15  # words of 512 bits on their way to one scatter PE
    halves += 10  # a mark for each of 163,840 words that are kept
    assert count_bram(Design(1, 4), U250, buffers) == halves / 2
    # Two PEs: a stage of two switches of two branches, 582 bits each.
    more = count_bram(Design(2, 4), U250, buffers) - count_bram(Design(1, 4), U250, buffers)
    assert more == (2 * 2 * 17 + 15) / 2


@pytest.mark.parametrize(
    ("gathered", "n", "blocks"),
    [(4 * 4096, 1, 8), (4 * 4096 + 1, 1, 16), (4 * 4096, 4, 32), (10**9, 4, 320)],
)
def test_ultraram_keeps_the_largest_layer_as_far_as_it_goes(gathered, n, blocks):
    buffers = Buffers(1, 1, 1, 1, gathered_words=gathered)
    assert count_uram(n, U250, buffers) == blocks
    assert budget_of(U250, "die").uram == 320


def test_w_in_tiles_by_hand():
    """GCN 6,805-256-15: W^1 alone would take 6,805 x 256 values, 3,408 halves of a block RAM in 16
    banks, and a die has 1,344. Halved four times, a tile has 426 rows."""
    widths = (6805, 256, 15)
    buffers = find_buffers(widths, (6805.0, 256.0), vertices=(20_000, 5_000, 1024))
    assert buffers.weights == 6805 * 256
    assert buffers.cut(426).inner == 426
    assert buffers.cut(426).weights == 426 * 256
    assert buffers.cut(0) is buffers
    whole, tiled = Design(4, 256), Design(4, 256, 426)
    assert "block RAMs" in str(find_excess(whole, U250, "die", buffers))
    assert find_excess(tiled, U250, "die", buffers) is None
    assert cut_weights(whole, U250, "die", buffers) == tiled
    # Eight groups of 16 rows, in 16 banks: of each row 6,805 values, and of a tile 426.
    left = [16 * -(-128 * rows // 16 // 512) for rows in (6805, 426)]
    right = [16 * -(-rows * 256 // 16 // 512) for rows in (6805, 426)]
    saved = count_bram(whole, U250, buffers) - count_bram(tiled, U250, buffers)
    assert saved == (left[0] + right[0] - left[1] - right[1]) / 2


def test_wide_features_have_a_design_and_published_ones_keep_w_whole():
    batch = Batch((20_000.0, 5_000.0, 1024.0), (50_000.0, 25_000.0), (6805, 256, 15))
    sweep = explore(batch, U250)
    assert sweep.best.design == Design(4, 256, 426)
    assert all(fits(point.usage, budget_of(U250, "die")) for point in sweep.points)
    for published in (NEIGHBOURS, SUBGRAPH):
        assert {point.design.tile for point in explore(published, U250).points} == {0}


@pytest.mark.parametrize("model", ["GCN", "SAGE", "GIN"])
def test_a_generated_design_fits_its_die(model):
    best = generate(model, REDDIT).sweep.best
    assert fits(best.usage, budget_of(U250, "die"))


def test_block_ram_bounds_the_exploration():
    """By DSPs and LUTs four PEs would fit, and rows of 1,204 values leave no room for them."""
    generated = generate("SAGE", REDDIT)
    buffers = generated.abstraction.batch.buffers
    assert generated.sweep.best.design == Design(2, 256)
    assert find_excess(Design(4, 256), U250, "die") is None
    message = find_excess(Design(4, 256), U250, "die", buffers)
    assert message is not None
    assert re.search(r"takes \d+ block RAMs, and a die of u250 has 672 for it", message)
    roomy = replace_fields(U250, bram=2 * U250.resources.bram)
    assert explore(generated.abstraction.batch, roomy).best.design == Design(4, 256)


def test_what_is_counted_is_what_is_generated(tmp_path):
    generated = generate("SAGE", REDDIT)
    generated.write(tmp_path)
    buffers = generated.abstraction.batch.buffers
    types = (tmp_path / "types.h").read_text()
    constants = {name: int(value) for name, value in re.findall(r"int (\w+) = (\d+);", types)}
    assert constants["MAX_INNER"] == buffers.inner
    assert constants["MAX_COLUMNS"] == buffers.columns
    assert constants["WEIGHTS"] == buffers.weights
    assert constants["MAX_ROW_WORDS"] == buffers.row_words
    n = constants["N"]
    used = usage_of(generated.sweep.best.design, U250, buffers)
    assert n * 8 * -(-constants["GATHER_WORDS"] // 4096) == used.uram
    # One array of MACs, whichever way it multiplies.
    update = (tmp_path / "update.cpp").read_text()
    assert update.count("float sums[GROUPS][R][C]") == 1
    arrays = re.findall(r"static float (\w+)\[", update)
    assert arrays == ["weight_buffer", "left_buffer", "result_buffer", "bias_gradient"]


def test_a_design_may_be_the_whole_boards():
    """As published designs are counted: four times a die's resources, and one kernel."""
    die, board = generate("GCN", REDDIT), generate("GCN", REDDIT, "board")
    assert board.board.dies == 1
    assert board.sweep.best.design == Design(16, 1024)
    assert die.sweep.best.design == Design(4, 256)
    # One kernel of four times the MACs takes as long as four of one fourth of the rows.
    assert board.sweep.best.propagate_s == pytest.approx(die.sweep.best.propagate_s)
    assert fits(board.sweep.best.usage, budget_of(U250, "board"))


def test_a_batch_without_update_widths_multiplies_its_rows():
    batch = Batch((100.0, 10.0, 1.0), (100.0, 10.0), (32, 16, 8))
    assert batch.buffers.inner == 32
    assert batch.buffers.weights == 32 * 16
