"""Every prediction of the ledger beside the plan of the command that it prints."""

from __future__ import annotations

import json
import shlex

from click.testing import CliRunner

from gnnbench.cli import main
from gnnbench_plugins.studies.validation.ledger import Validation
from gnnbench_plugins.studies.validation.prediction import NO_PLAN


def run_plan(command):
    """The run of a printed command, in this process."""
    name, *words = shlex.split(command)
    assert name == "gnnbench"
    result = CliRunner().invoke(main, [*words, "--json", "-"])
    assert result.exit_code == 0, (command, result.output)
    (run,) = json.loads(result.stdout)["runs"]
    return run


def read_seconds(run, plan):
    if plan.stages:
        return sum(run["stages"].get(stage, {"value": 0.0})["value"] for stage in plan.stages)
    return plan.times * run["metrics"]["epoch_time"]["value"]


def test_every_printed_command_gives_the_prediction_to_the_digit(one_thread):
    entries = Validation().entries()
    planned = [entry for entry in entries if entry.plan.command]
    runs = {command: run_plan(command) for command in {each.plan.command for each in planned}}
    wrong = [
        (entry.id, read_seconds(runs[entry.plan.command], entry.plan), entry.predicted)
        for entry in planned
        if read_seconds(runs[entry.plan.command], entry.plan) != entry.predicted
    ]
    assert not wrong
    # A kernel by itself is no epoch.
    assert {entry.plan.reason for entry in entries if not entry.plan.command} == {NO_PLAN}
    assert len(entries) - len(planned) == 21
