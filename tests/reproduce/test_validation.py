"""The ledger of measurements made by others: what it quotes, what it predicts, and its sums."""

import json
import math
from dataclasses import astuple, replace
from functools import cache
from statistics import median
from typing import get_args

import pytest

from gnnbench.errors import UsageError
from gnnbench.machines import load_platform
from gnnbench.machines.costs.library import DEVICES, read_devices
from gnnbench.price.held_out import find_group_factors, list_held_out
from gnnbench.price.model_error import estimate_errors, read_errors
from gnnbench.records import LedgerEntry, MachineKind, Origin, PathKind, Subject
from gnnbench.report.results.tables import describe_entries, make_document
from gnnbench.report.tables import sum_up_agreement
from gnnbench.reproduce.agreement import count_outcome
from gnnbench_plugins.studies import list_constants
from gnnbench_plugins.studies.validation import mini_batches
from gnnbench_plugins.studies.validation.groups import join_groups
from gnnbench_plugins.studies.validation.leave_out import read_left_out
from gnnbench_plugins.studies.validation.ledger import (
    Validation,
    make_entries,
    sum_up,
    tabulate,
)
from gnnbench_plugins.studies.validation.prediction import predict, profile_of
from gnnbench_plugins.studies.validation.published import (
    FullGraphEpoch,
    MiniBatchEpoch,
    read_source,
    read_sources,
)
from tests.ledger import compare, load, write
from tests.ledger.leave_out import leave_out, list_fitted, overridden

#: The contract of ``reproduce validation --json``.
CONTRACT = {
    "id", "source", "machine", "kind", "what", "measured", "predicted", "unit", "fitted_on",
    "group", "error",
}  # fmt: skip
#: The papers whose systems this project takes apart; what they say of their own proves nothing.
OWN_SYSTEMS = ("hongtu", "hyscale", "hp-gnn", "mixgcn")


@cache
def ledger():
    return Validation()


def find_draw(task: MiniBatchEpoch) -> mini_batches.Draw:
    return mini_batches.Draw(task.graph, task.batches.fanouts, task.batches.seeds)


@cache
def cells():
    return {cell.id: cell for source in read_sources() for cell in source.cell}


def make_entry(name: str, measured: float, predicted: float, **others: object) -> LedgerEntry:
    given = {"group": name, "kind": "cpu", "source": "a thread", **others}
    path = PathKind(given.pop("kind"), "dgl", "sampled", "small")
    origin = Origin(given.pop("source"), "2 s")
    words = (name, given.pop("group"), "somewhere", "an epoch", measured, predicted, "s")
    return replace(LedgerEntry(*words, path, Subject("a library", "dgl"), origin), **given)


def test_every_measurement_has_its_source_its_words_and_its_machine():
    names = [cell.id for source in read_sources() for cell in source.cell]
    assert len(names) == len(set(names)) >= 60
    machines = [cell.machine for cell in cells().values()]
    assert min(machines.count(machine) for machine in machines) >= 2
    for source in read_sources():
        assert source.source.strip()
        for cell in source.cell:
            assert load_platform(cell.machine).virtual
            assert cell.quote.strip()
            assert cell.stack.library.lower() not in OWN_SYSTEMS
            assert len(cell.what) > 20


def test_every_number_stands_in_its_quote():
    for cell in cells().values():
        printed = {cell.measured, cell.measured / 1e9, 1e3 * cell.measured}
        texts = {
            form.format(number) for number in printed for form in ("{:.10g}", "{:.2f}", "{:.3f}")
        }
        assert any(text in cell.quote for text in texts), (cell.id, cell.measured, cell.quote)


def test_the_kind_is_that_of_what_the_machine_is_used_for():
    for cell in cells().values():
        devices = getattr(cell.task, "devices", None)
        accelerators = load_platform(cell.machine).accelerators
        if cell.kind == "cpu":
            assert not accelerators, cell.id
        elif cell.kind == "gpu":
            assert accelerators[0].kind == "gpu", cell.id
            assert devices in (None, 1), cell.id
        else:
            assert devices > 1, cell.id
            nodes = accelerators[0].kind == "cpu" or bool(load_platform(cell.machine).other_hosts)
            assert nodes == (cell.kind == "multi-node"), cell.id


def test_a_file_that_says_something_else_is_refused_by_a_sentence(tmp_path):
    path = tmp_path / "wrong.toml"
    cell = 'id = "a"\ngroup = "a"\nmachine = "p3-2xlarge"\nkind = "gpu"\nwhat = "an epoch"\n'
    cell += 'measured = 1.0\nunit = "s"\nquote = "1.0"\n'
    cell += 'stack = { library = "l", version = "1", kernel = "dgl" }\n'
    path.write_text(f'source = "s"\n[[cell]]\n{cell}')
    with pytest.raises(UsageError, match=r"cell\.0\.task"):
        read_source(path)
    task = 'task = { of = "aggregation", graph = "g", rows = 1, edges = 1, width = 1 }\n'
    path.write_text(f'source = "s"\n[[cell]]\n{cell}{task}colour = "red"\n')
    with pytest.raises(UsageError, match=r"cell\.0\.colour"):
        read_source(path)


def test_a_kernel_is_predicted_by_the_bytes_that_it_moves():
    """reddit with self-loops at width 256 on one socket of eight channels of DDR4-3200 with 94 MB
    of caches: 238 MB of rows, most of which the cache keeps less of than hubs' are picked; ends of
    edges and sums in order; and new pages for 238 MB of sums."""
    rates = read_devices()["cpu"]
    rows, edges, row_bytes = 232_965, 114_848_857, 256 * 4
    bandwidth = 8 * 3.2e9 * 8
    in_order = (edges * 8 + 8 * rows + rows * row_bytes) / (bandwidth * rates.reached.stream)
    lost = rows + (edges - rows) * (1 - math.sqrt(94e6 / (rows * row_bytes)))
    picked = (
        row_bytes
        / bandwidth
        * (lost / rates.reached.gather + (edges - lost) / rates.cache.cache_times)
    )
    # Pages of 238 MB of sums are mapped and cleared while they are written.
    mapped = rows * row_bytes / rates.pages.fresh_bytes_per_s
    seconds = 5e-6 + 400e-6 + max(in_order, mapped) + picked
    found = predict(cells()["dgl4048-copyu-reddit-256-sum-081"])
    assert found == pytest.approx(edges * 256 / seconds, rel=1e-9)


def test_a_layers_forward_pass_is_its_two_steps():
    """GCN from 32 to 32 on pubmed, on 24 cores: 2.5 MB of rows in the cache, scaled before and
    after the sum, to which own rows are added, then a product and its bias; and one core counts
    degrees."""
    rates = read_devices()["cpu"]
    vertices, edges, row_bytes = 19_717, 88_651, 32 * 4
    bandwidth, flops = 204.8e9 * 24 / 32, 24 * 2.9e9 * 64
    size = vertices * row_bytes
    in_order = edges * 8 + 8 * vertices + size + 2 * size + (2 + 3) * size + 2 * size
    picked = max(
        edges * row_bytes / (bandwidth * rates.cache.cache_times), edges * rates.cache.line_s / 24
    )
    reached = rates.reached.product * 32 / (32 + rates.reached.half_width)
    product = max(
        2 * vertices * 32 * 32 / (flops * reached), 2 * size / (bandwidth * rates.reached.stream)
    )
    seconds = 400e-6 + in_order / (bandwidth * rates.reached.stream) + picked + product
    counted = vertices / 0.6e9 + 5e-6
    # The sum, one pass over sources' rows and two over its own, the product, its bias.
    found = predict(cells()["dgl5124-graphconv-pubmed-32-gcn"])
    assert found == pytest.approx(seconds + 6 * 5e-6 + counted, rel=1e-9)


def test_stages_of_mini_batches_are_those_of_so_many_rounds():
    """GraphSAGE on ogbn-products, 8,000 seeds a mini-batch, one V100 that samples for itself."""
    drawn = mini_batches.find_profile(mini_batches.Draw("ogbn-products", (10, 25), 8000))
    rounds = 196_615 / 8000
    found = predict(cells()["gnnlab-t5-gsg-pr-dgl-sample"])
    assert found == pytest.approx(rounds * (2 * 1.2e-3 + sum(drawn.edges) / 250e6), rel=1e-9)
    row_bytes = drawn.vertices[0] * 100 * 4
    # What the GPU has sampled stays there: rows alone are gathered, into new memory, and cross as
    # fast as the driver copies pageable memory.
    seconds = row_bytes / 8e9 + 10e-6 + row_bytes / 6e9
    found = predict(cells()["gnnlab-t5-gsg-pr-dgl-extract"])
    assert found == pytest.approx(rounds * seconds, rel=1e-9)


def test_published_inputs_take_the_place_of_those_drawn():
    """|V^0| = 568,303 rows of 512 bytes, gathered into pinned memory and sent once. Inner sets are
    smaller by the same share at every hop."""
    rates, size = read_devices()["cpu"], 568_303 * 512
    waited = 568_303 * rates.cache.row_s / 48
    gathered = size / (256e9 * rates.reached.gather)
    read = 568_303 * 8 / (256e9 * rates.reached.stream)
    seconds = (
        read + max(waited, gathered) + size / (256e9 * rates.reached.stream) + size / 12.3e9 + 10e-6
    )
    cell = cells()["gnnlab-f4a-gcn-pa-batch-copy0"]
    assert predict(cell) == pytest.approx(seconds, rel=1e-9)
    task = cell.task
    assert isinstance(task, MiniBatchEpoch)
    drawn = mini_batches.find_profile(find_draw(task))
    found = profile_of(task)
    share = (568_303 / drawn.vertices[0]) ** (1 / 3)
    assert found.vertices == (
        568_303,
        round(share**2 * drawn.vertices[1]),
        round(share * drawn.vertices[2]),
        8000,
    )
    assert found.edges[2] == drawn.edges[2]
    per_row = [edges / rows for edges, rows in zip(found.edges, found.vertices[1:], strict=True)]
    before = [edges / rows for edges, rows in zip(drawn.edges, drawn.vertices[1:], strict=True)]
    assert per_row == pytest.approx(before, rel=1e-4)


def test_regularisers_are_passes_over_hidden_layers():
    cell = cells()["gnnlab-t5-gsg-pr-dgl-train"]
    task = cell.task.model_copy(update={"regularisers": 0})
    without = cell.model_copy(update={"task": task})
    rates = read_devices()["gpu"]
    hidden = 79_954 * 256 * 4
    passes = (1 + 1.25 + 1.25 + 1) * hidden / (900e9 * rates.reached.stream)
    assert predict(cell) - predict(without) == pytest.approx(196_615 / 8000 * passes, rel=1e-3)


def test_a_share_of_a_graph_takes_as_large_a_share_of_the_time():
    cell = cells()["hongtu-t6-sancus-gcn-rdt-4l-4g"]
    task = cell.task
    assert isinstance(task, FullGraphEpoch)
    part = cell.model_copy(update={"task": task.model_copy(update={"scale": 0.1})})
    # The model and its gradients are not smaller.
    assert predict(part) == pytest.approx(predict(cell), rel=2e-3)


def test_the_sizes_of_mini_batches_are_those_of_their_stand_ins():
    wanted = mini_batches.Draw("ogbn-papers100M", (10, 10), 1024)
    assert mini_batches.draw(wanted) == mini_batches.find_profile(wanted)
    used = {
        find_draw(task)
        for task in (cell.task for cell in cells().values())
        if isinstance(task, MiniBatchEpoch)
    }
    assert used == set(mini_batches.DRAWS) == set(mini_batches.read_profiles())


def test_cutting_lists_of_neighbours_changes_no_sizes(monkeypatch):
    wanted = mini_batches.Draw("ogbn-products", (15, 10), 512)
    short = mini_batches.draw(wanted)
    monkeypatch.setattr(mini_batches, "LONGEST_LIST", 1 << 30)
    whole = mini_batches.draw(wanted)
    assert short.vertices == pytest.approx(whole.vertices, rel=0.02)
    assert short.edges == pytest.approx(whole.edges, rel=0.02)


@pytest.mark.parametrize(
    ("measured", "predicted", "error", "factor"),
    [(2.0, 5.0, 1.5, 2.5), (4.0, 1.0, -0.75, 4.0), (3.0, 3.0, 0.0, 1.0)],
)
def test_errors_of_a_made_up_measurement(measured, predicted, error, factor):
    entry = make_entry("made up", measured, predicted)
    assert (entry.error, entry.factor) == (error, factor)


def test_groups_count_once_and_only_if_nothing_was_fitted_on_them():
    """The middle error of a group of three counts. A sum of a fitted measurement proves
    nothing."""
    entries = (
        make_entry("near", 2.0, 3.0),
        make_entry("1 layer", 1.0, 10.0, group="layers"),
        make_entry("2 layers", 4.0, 1.0, group="layers"),
        make_entry("4 layers", 1.0, 1.0, group="layers"),
        make_entry("further", 1.0, 20.0, kind="gpu", source="another"),
        make_entry("part", 1.0, 1.0, fitted_on=("host.aggregate",), group="epoch"),
        make_entry("sum", 1.0, 1.1, group="epoch"),
    )
    sentence = sum_up(entries)
    assert sentence.startswith("7 measurements of 2 sources form 4 independent groups; 3 groups")
    assert "The median error of their predictions is 4x, and 33 % are within 2x." in sentence
    assert "cpu 2.8x (2 groups), gpu 20x (1 group)" in sentence
    assert "none of which is held out" in sum_up(entries[-2:])
    summary = tabulate(entries, ())[0]
    assert count_outcome(tabulate(entries, ())[2:]).numbers == 5
    cells = [cell.value for cell in summary.rows[-1].cells]
    assert cells == [7, 4, 3, pytest.approx(4.0), pytest.approx(100 / 3)]


def test_a_planted_duplicate_of_a_table_row_changes_no_median():
    """A row that another table repeats, under another name and group, is the same measurement."""
    sources, predicted = read_sources(), load()
    before = make_entries(predicted, sources)
    row = cells()["hongtu-t5-dgl-gat-rdt-2l"]
    again = row.model_copy(update={"id": "again", "group": "of its own"})
    planted = sources[0].model_copy(update={"source": "a reprint", "cell": (again,)})
    after = make_entries({**predicted, "again": predicted[row.id]}, (*sources, planted))
    assert after[-1].group == next(entry.group for entry in before if entry.id == row.id)
    kinds = slice(sum_up(before).index("independent groups"), None)
    assert sum_up(after)[sum_up(after).index("independent groups") :] == sum_up(before)[kinds]
    assert find_group_factors(list_held_out(after)) == find_group_factors(list_held_out(before))
    # With another number it is another measurement.
    other = again.model_copy(update={"measured": 1.5 * row.measured})
    planted = planted.model_copy(update={"cell": (other,)})
    groups = join_groups((*sources, planted))
    assert groups["again"] == "of its own"


def test_cells_that_a_constant_was_fitted_on_together_are_one_group():
    groups = join_groups(read_sources())
    fitted: dict[str, set[str]] = {}
    for entry in ledger().entries():
        for name in entry.fitted_on:
            if not name.startswith("reading:"):
                fitted.setdefault(name, set()).add(entry.group)
    assert {len(each) for each in fitted.values()} == {1}
    # Sums and multiples of fitted cells are touched with them.
    held_out = {entry.id for entry in list_held_out(ledger().entries())}
    assert groups["gnnlab-f14b-gcn-tw-dgl-1g"] == groups["gnnlab-t5-gcn-tw-dgl-extract"]
    assert not held_out & {"gnnlab-f14b-gcn-tw-dgl-1g", "hongtu-t7-distgnn-gcn-fds-4l-16n"}
    # A reading that was chosen in view of a measurement is named as a fit is.
    chosen = [cell.id for cell in cells().values() if cell.reading.chosen]
    assert chosen
    assert not held_out & set(chosen)


def test_the_worst_stand_first():
    sizes = {"near": (2.0, 3.0), "slow": (1.0, 10.0), "fast": (30, 1)}
    entries = tuple(make_entry(name, *both) for name, both in sizes.items())
    summary, _, cpu = tabulate(entries, ())
    assert [row.label for row in summary.rows] == ["cpu", "all"]
    assert [row.label.split(" ")[0] for row in cpu.rows] == ["fast", "slow", "near"]
    cell, group = cpu.rows[0].cells
    assert group.text == "fast"
    assert (cell.provenance, cell.value, cell.quoted) == ("modelled", 1, 30)
    assert "900 %" in sum_up_agreement(cpu)


def test_the_document_is_as_the_contract_has_it():
    document = make_document(ledger().run())
    document["cells"] = describe_entries(ledger().entries())
    found = json.loads(json.dumps(document, allow_nan=False))["cells"]
    assert len(found) == len(cells())
    for each in found:
        assert set(each) >= CONTRACT
        assert each["kind"] in get_args(MachineKind)
        assert each["predicted"] > 0
        error = (each["predicted"] - each["measured"]) / each["measured"]
        assert each["error"] == pytest.approx(error)
        assert isinstance(each["fitted_on"], list)
    assert {each["kind"] for each in found} == {"cpu", "gpu", "multi-gpu", "multi-node"}


def test_fitted_constants_name_cells_that_exist():
    ids = cells().keys()
    named = {where for number in list_constants() for where in number.fitted_on}
    assert {where for where in named if "(" not in where} <= ids
    assert {entry.id for entry in ledger().entries() if entry.fitted_on} >= named & ids
    assert len(named & ids) <= len(ids) / 3


def test_every_fitted_constant_can_be_left_out_and_comes_back():
    before = dict(read_devices())
    of_devices = [each for each in list_fitted() if each.path == DEVICES]
    assert {each.name for each in of_devices} >= {"cpu.side_by_side", "gpu.in_place"}
    for constant in of_devices:
        with overridden({constant: constant.plausible[0]}):
            assert read_devices() != before, constant.name
        assert read_devices() == before, constant.name


def test_a_source_left_out_is_predicted_by_constants_found_without_it():
    """dgl.call_s was fitted on pubmed at width 4 alone. Two groups of another source move with it,
    and have it longer."""
    (source,) = (each for each in read_sources() if "#5124" in each.source)
    others = [each for each in read_sources() if "#3924" in each.source or each is source]
    found = leave_out(source, others)
    constant = next(each for each in list_fitted() if each.label == "dgl.call_s")
    value = float(found.how.split()[1])
    assert found.how.startswith("dgl.call_s ")
    assert "on 2 other groups" in found.how
    entry = next(e for e in ledger().entries() if e.id == "dgl5124-graphconv-pubmed-4-gcn")
    with overridden({constant: value}):
        moved = predict(cells()[entry.id])
    # One update_all a pass.
    assert moved - entry.predicted == pytest.approx(value - constant.value, rel=1e-2)
    assert predict(cells()[entry.id]) == entry.predicted
    group = find_group_factors(make_entries({entry.id: moved}))
    assert group.keys() <= found.factors.keys()


def test_what_was_found_without_each_source_is_in_the_table():
    kept = read_left_out()
    assert [each.source for each in kept] == [each.source for each in read_sources()]
    groups = {source.source: {cell.id for cell in source.cell} for source in read_sources()}
    touched = {e.source for e in ledger().entries() if e.fitted_on}
    factors = find_group_factors
    for each in kept:
        assert bool(each.how) == (each.source in touched), each.source
        if not each.how:
            entries = [e for e in ledger().entries() if e.id in groups[each.source]]
            assert each.factors == pytest.approx(factors(entries), rel=2e-3)
    by_source = tabulate(ledger().entries(), read_sources(), kept)[1]
    every = [factor for each in kept for factor in each.factors.values()]
    assert by_source.rows[-1].cells[-2].value == pytest.approx(median(every))
    assert len(by_source.notes) == 2 + len([each for each in kept if each.how])


def test_predictions_are_those_of_the_baseline():
    """``python -m tests.ledger --write`` makes it anew, after a change that was meant."""
    moved = compare(load(), ledger().entries())
    assert not moved, "\n".join(moved)


def test_errors_that_reports_print_are_those_of_the_ledger():
    """``python -m tests.ledger --write`` makes them anew too."""
    kept, found = read_errors(), estimate_errors(ledger().entries())
    assert kept.keys() == found.keys()
    for path, error in found.items():
        assert astuple(kept[path]) == pytest.approx(astuple(error), rel=2e-3), path


def test_the_baseline_names_what_has_moved_and_got_worse(tmp_path):
    before = (make_entry("a", 10.0, 5.0), make_entry("b", 10.0, 5.0), make_entry("gone", 1.0, 1.0))
    path = tmp_path / "baseline.toml"
    write(before, path)
    after = (make_entry("a", 10.0, 2.0), make_entry("b", 10.0, 8.0), make_entry("new", 1.0, 1.0))
    gone, new, worse, better = compare(load(path), after)
    assert gone.startswith("gone: in baseline.toml, and not in the ledger")
    assert new == "new: not in baseline.toml"
    assert worse.startswith("a: off by 2x before, 5x now, WORSE (5 to 2 s, measured 10)")
    assert better.startswith("b: off by 2x before, 1.25x now, better")
    assert not compare(load(path), before)
