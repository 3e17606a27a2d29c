"""The ledger of measurements made by others: what it quotes, what it predicts, and its sums."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from functools import cache
from typing import get_args

import pytest

from gnnbench.errors import UsageError
from gnnbench.model_error import estimate_errors, read_errors
from gnnbench.platforms import load_platform
from gnnbench.records import LedgerEntry, MachineKind
from gnnbench.report.tables import sum_up_agreement
from gnnbench.results.tables import describe_entries, make_document
from gnnbench_plugins.studies.validation import mini_batches
from gnnbench_plugins.studies.validation.ledger import Validation, sum_up, tabulate
from gnnbench_plugins.studies.validation.prediction import predict
from gnnbench_plugins.studies.validation.published import (
    FullGraphEpoch,
    MiniBatchEpoch,
    read_source,
    read_sources,
)
from tests.ledger import compare, load, write

#: The contract of ``reproduce validation --json``.
CONTRACT = {
    "id", "source", "machine", "kind", "what", "measured", "predicted", "unit", "fitted_on",
    "error",
}  # fmt: skip
#: The papers whose systems this project takes apart; what they say of their own proves nothing.
OWN_SYSTEMS = ("hongtu", "hyscale", "hp-gnn", "mixgcn")


@cache
def ledger():
    return Validation()


@cache
def cells():
    return {cell.id: cell for source in read_sources() for cell in source.cell}


def make_entry(name: str, measured: float, predicted: float, **others: object) -> LedgerEntry:
    entry = LedgerEntry(
        name,
        "a thread",
        "a library",
        "somewhere",
        "cpu",
        "an epoch",
        measured,
        predicted,
        "s",
        "2 s",
    )
    return replace(entry, **others)


# --------------------------------------------------------------------------- what is quoted


def test_every_measurement_has_its_source_its_words_and_its_machine():
    names = [cell.id for source in read_sources() for cell in source.cell]
    assert len(names) == len(set(names)) >= 60
    for source in read_sources():
        assert source.source.strip()
        for cell in source.cell:
            assert load_platform(cell.machine).virtual
            assert cell.quote.strip()
            assert cell.library.lower() not in OWN_SYSTEMS
            assert len(cell.what) > 20


def test_every_number_stands_in_its_quote():
    """As it is printed, before its unit's prefix was taken off."""
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
            assert (accelerators[0].kind == "gpu") == (cell.kind == "multi-gpu"), cell.id


def test_one_platform_has_several_measurements():
    machines = [cell.machine for cell in cells().values()]
    assert min(machines.count(machine) for machine in machines) >= 2


def test_a_file_that_says_something_else_is_refused_by_a_sentence(tmp_path):
    path = tmp_path / "wrong.toml"
    cell = 'id = "a"\nlibrary = "l"\nversion = "1"\nkernel = "dgl"\nmachine = "p3-2xlarge"\n'
    cell += 'kind = "gpu"\nwhat = "an epoch"\nmeasured = 1.0\nunit = "s"\nquote = "1.0"\n'
    path.write_text(f'source = "s"\n[[cell]]\n{cell}')
    with pytest.raises(UsageError, match="says 0 times what was computed"):
        read_source(path)
    path.write_text(f'source = "s"\n[[cell]]\n{cell}colour = "red"\n')
    with pytest.raises(UsageError, match=r"cell\.0\.colour"):
        read_source(path)


# --------------------------------------------------------------------------- what is predicted


def test_a_kernel_is_predicted_by_the_bytes_it_gathers():
    """reddit with self-loops at width 256 on one socket of eight channels of DDR4-3200: each edge
    reads a row, after a parallel region was opened; one operation an edge and feature."""
    edges, width = 114_848_857, 256
    seconds = 5e-6 + edges * width * 4 / (8 * 3.2e9 * 8)
    found = predict(cells()["dgl4048-copyu-reddit-256-sum-081"])
    assert found == pytest.approx(edges * width / seconds, rel=1e-12)


def test_a_layers_forward_pass_is_its_two_steps():
    """GCN from 32 to 32 on pubmed, on 24 cores: AGGREGATE, then UPDATE."""
    vertices, edges = 19_717, 88_651
    bandwidth, flops = 204.8e9 * 24 / 32, 24 * 2.9e9 * 64
    seconds = 2 * 5e-6 + edges * 32 * 4 / bandwidth + 2 * vertices * 32 * 32 / flops
    found = predict(cells()["dgl5124-graphconv-pubmed-32-gcn"])
    assert found == pytest.approx(seconds, rel=1e-12)


def test_an_epoch_over_a_whole_graph_is_its_steps_one_after_the_other():
    """GCN 100-256-47 on ogbn-products on one A100. The second layer is narrower than its input, so
    DGL multiplies before it sums; backward the first layer's input needs no gradient."""
    vertices, edges = 2_449_029, 2 * 61_859_140
    bandwidth, flops, launch = 2039e9, 19.5e12, 10e-6

    def gathered(width):
        return edges * width * 4 / bandwidth

    first, second = 2 * vertices * 100 * 256 / flops, 2 * vertices * 256 * 47 / flops
    forward = gathered(100) + first + gathered(47) + second
    backward = gathered(47) + second + first
    loss = 2 * vertices * 47 * 4 / bandwidth
    update = 3 * 4 * (100 * 256 + 256 + 256 * 47 + 47) / bandwidth
    # Either step of either layer, forward and backward, but for the first one's AGGREGATE.
    steps = 7 * launch
    found = predict(cells()["hongtu-t5-dgl-gcn-opt-2l"])
    assert found == pytest.approx(forward + backward + loss + update + steps, rel=1e-9)


def test_stages_of_mini_batches_are_those_of_so_many_rounds():
    """GraphSAGE on ogbn-products, 8,000 seeds a mini-batch, one V100 that samples for itself."""
    drawn = mini_batches.find_profile(mini_batches.Draw("ogbn-products", (10, 25), 8000))
    rounds = 196_615 / 8000
    found = predict(cells()["gnnlab-t5-gsg-pr-dgl-sample"])
    assert found == pytest.approx(rounds * sum(drawn.edges) / 200e6, rel=1e-9)
    row_bytes = drawn.vertices[0] * 100 * 4
    # What the GPU has sampled stays there: rows alone are gathered, and cross.
    seconds = row_bytes / 256e9 + 10e-6 + row_bytes / 16e9
    found = predict(cells()["gnnlab-t5-gsg-pr-dgl-extract"])
    assert found == pytest.approx(rounds * seconds, rel=1e-9)


def test_published_inputs_take_the_place_of_those_drawn():
    """|V^0| = 568,303 rows of 512 bytes, gathered and sent once."""
    seconds = 568_303 * 512 * (1 / 256e9 + 1 / 16e9) + 10e-6
    found = predict(cells()["gnnlab-f4a-gcn-pa-batch-copy0"])
    assert found == pytest.approx(seconds, rel=1e-9)


def test_a_share_of_a_graph_takes_as_large_a_share_of_the_time():
    cell = cells()["hongtu-t6-sancus-gcn-rdt-4l-4g"]
    task = cell.task
    assert isinstance(task, FullGraphEpoch)
    part = cell.model_copy(update={"full_graph": task.model_copy(update={"scale": 0.1})})
    # The model and its gradients are not smaller.
    assert predict(part) == pytest.approx(predict(cell), rel=2e-3)


def test_the_sizes_of_mini_batches_are_those_of_their_stand_ins():
    wanted = mini_batches.Draw("ogbn-papers100M", (10, 10), 1024)
    assert mini_batches.draw(wanted) == mini_batches.find_profile(wanted)
    used = {
        mini_batches.Draw(task.graph, task.fanouts, task.seeds)
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


# --------------------------------------------------------------------------- errors


def test_errors_of_a_made_up_measurement():
    above, below = make_entry("above", 2.0, 5.0), make_entry("below", 4.0, 1.0)
    assert (above.error, above.factor) == (1.5, 2.5)
    assert (below.error, below.factor) == (-0.75, 4.0)
    assert make_entry("right", 3.0, 3.0).factor == 1.0


def test_what_a_constant_was_fitted_on_is_counted_apart():
    entries = (
        make_entry("near", 2.0, 3.0),
        make_entry("far", 1.0, 10.0),
        make_entry("further", 1.0, 20.0, kind="gpu"),
        make_entry("fitted", 1.0, 1.0, fitted_on=("host.aggregate",)),
    )
    sentence = sum_up(entries)
    assert sentence.startswith("3 measurements made by others")
    assert "within a factor of 10.0 in the median, 33 % of them within 2x" in sentence
    assert "1 more have a constant fitted on them" in sentence
    assert "cpu 5.8x of 2, gpu 20.0x of 1" in sentence
    assert "none" in sum_up(entries[:1])
    assert "every one" in sum_up(entries[3:])


def test_the_worst_stand_first():
    entries = (
        make_entry("near", 2.0, 3.0),
        make_entry("slow", 1.0, 10.0),
        make_entry("fast", 30, 1),
    )
    summary, cpu = tabulate(entries)
    assert [row.label for row in summary.rows] == ["cpu", "all"]
    assert [row.label.split(" ")[0] for row in cpu.rows] == ["fast", "slow", "near"]
    (cell,) = cpu.rows[0].cells
    assert (cell.provenance, cell.value, cell.quoted) == ("modelled", 1, 30)
    assert "900 %" in sum_up_agreement(cpu)


# --------------------------------------------------------------------------- the ledger as a whole


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


def test_predictions_are_those_of_the_baseline():
    """``python -m tests.ledger --write`` makes it anew, after a change that was meant."""
    moved = compare(load(), ledger().entries())
    assert not moved, "\n".join(moved)


def test_errors_that_reports_print_are_those_of_the_ledger():
    """``python -m tests.ledger --write`` makes them anew too."""
    kept, found = read_errors(), estimate_errors(ledger().entries())
    assert kept.keys() == found.keys()
    for kind, error in found.items():
        assert astuple(kept[kind]) == pytest.approx(astuple(error), rel=2e-3), kind


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
