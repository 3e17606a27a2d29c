"""Predictions of the ledger beside the plans of the commands that it prints."""

import json
import re
import shlex
from functools import cache

import pytest
from click.testing import CliRunner

from gnnbench.cli import main
from gnnbench_plugins.studies.validation.ledger import make_entries, tabulate
from gnnbench_plugins.studies.validation.prediction import NO_PLAN, predict, read_plan
from gnnbench_plugins.studies.validation.published import read_sources


@cache
def cells():
    return {cell.id: cell for source in read_sources() for cell in source.cell}


def choose_kinds():
    """The smallest cell of each strategy with each set of options."""
    kinds = {}
    for name, cell in cells().items():
        kind = tuple(re.findall("plan [^ ]+|--(?:swap|set) [^=]+|--share", read_plan(cell).command))
        size = getattr(cell.task, "vertices", 0) * getattr(cell.task, "scale", 1)
        kinds.setdefault(kind, []).append((size, name))
    kinds.pop((), None)
    return [min(each)[1] for each in kinds.values()]


@cache
def run_plan(command):
    """The run of a printed command, in this process."""
    name, *words = shlex.split(command)
    assert name == "gnnbench"
    result = CliRunner().invoke(main, [*words, "--json", "-"])
    assert result.exit_code == 0, (command, result.output)
    (run,) = json.loads(result.stdout)["runs"]
    return run


def read_seconds(plan):
    run = run_plan(plan.command)
    if plan.stages:
        return sum(run["stages"].get(stage, {"value": 0.0})["value"] for stage in plan.stages)
    return plan.times * run["metrics"]["epoch_time"]["value"]


@pytest.mark.parametrize("name", choose_kinds())
def test_a_printed_command_of_each_kind_gives_the_prediction_to_the_digit(name, one_thread):
    assert read_seconds(read_plan(cells()[name])) == predict(cells()[name])


@pytest.mark.long
def test_every_printed_command_gives_the_prediction_to_the_digit(one_thread):
    planned = {name: read_plan(cell) for name, cell in cells().items()}
    found = {name: read_seconds(plan) for name, plan in planned.items() if plan.command}
    assert found == {name: predict(cells()[name]) for name in found}


def test_cells_without_a_command_are_counted_with_the_reason():
    """A kernel by itself is no epoch."""
    entries = make_entries(dict.fromkeys(cells(), 1.0))
    assert len([entry for entry in entries if entry.plan.reason == NO_PLAN]) == 21
    assert all(bool(entry.plan.command) != bool(entry.plan.reason) for entry in entries)
    note = next(note for note in tabulate(entries, ())[0].notes if "command" in note)
    assert note.startswith("181 of 202 predictions are those of a `gnnbench plan` command")
    assert note.endswith(f"21 have no command: {NO_PLAN}")


def test_pyg_and_dgl_by_their_workers_are_in_the_published_order(one_thread):
    """torch-quiver#86: one machine, both libraries at 4, 8 and 12 workers. PyG's stay."""
    ratios = []
    for workers in (4, 8, 12):
        pyg, dgl = (cells()[f"quiver86-products-{each}-{workers}w"] for each in ("pyg", "dgl"))
        commands = [read_plan(each).command for each in (pyg, dgl)]
        alike = commands[0].replace("plan pyg", "plan dgl")
        assert commands[1] == alike.replace(" --set sampler.persistent=true", "")
        planned = read_seconds(read_plan(pyg)) / read_seconds(read_plan(dgl))
        assert planned > 1.5
        ratios.append(planned / (pyg.measured / dgl.measured))
    assert 1 / 1.5 < min(ratios) < max(ratios) < 1.5
