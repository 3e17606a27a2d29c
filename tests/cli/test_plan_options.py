"""Every option of a strategy that ``plan`` takes changes the plan, or is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gnnbench import plugins
from gnnbench.cli import main
from gnnbench.parts import option_fields
from gnnbench.records import PART_KINDS

GRAPH = "sbm:vertices=600,edges=5k,features=24,classes=4"
FPGAS, GPUS, SPUS = "epyc7763x2-4xu250", "epyc7543x4-4xa100", "xeon8462-8xh100-8xspu"
NO_CPU = ("placement.cpu_trainer=false",)

#: By strategy and option: a value that means something else than the default, the platform, and
#: what is set besides, for both plans, so that the option has something to decide.
CHANGES = {
    ("hongtu", "sampler.chunks_per_partition"): ("6", GPUS, ()),
    ("hongtu", "sampler.search"): ("none", GPUS, ()),
    ("hongtu", "sampler.partitioner"): ("range", GPUS, ()),
    ("hongtu", "placement.accelerators"): ("2", GPUS, ()),
    ("hongtu", "communication.p2p"): ("false", GPUS, ()),
    ("hongtu", "communication.reuse"): ("false", GPUS, ()),
    ("hongtu", "communication.neighbour_reuse"): ("false", GPUS, ()),
    ("hongtu", "memory.device_bytes"): ("100kB", GPUS, ()),
    ("hongtu", "memory.host_bytes"): ("100kB", GPUS, ()),
    ("hongtu", "memory.topology"): ("host", GPUS, ()),
    ("hongtu-im", "sampler.chunks_per_partition"): ("2", GPUS, ()),
    ("hongtu-im", "sampler.search"): ("none", GPUS, ("sampler.chunks_per_partition=3",)),
    ("hongtu-im", "sampler.partitioner"): ("range", GPUS, ()),
    ("hongtu-im", "placement.accelerators"): ("2", GPUS, ()),
    ("hongtu-im", "memory.device_bytes"): ("100kB", GPUS, ()),
    ("hyscale", "placement.cpu_trainer"): ("false", GPUS, ()),
    ("hyscale", "placement.accelerators"): ("2", FPGAS, ()),
    ("hyscale", "placement.accelerator_sampling"): ("true", FPGAS, NO_CPU),
    ("hyscale", "communication.stages"): ("0", FPGAS, NO_CPU),
    ("hyscale", "communication.precision"): ("int8", FPGAS, NO_CPU),
    ("hyscale", "memory.device_bytes"): ("100kB", FPGAS, ()),
    ("hpgnn", "placement.board"): ("u200", FPGAS, ()),
    ("hpgnn", "placement.macs"): ("power", FPGAS, ()),
    ("hpgnn", "placement.n"): ("4", FPGAS, ("placement.m=64",)),
    ("hpgnn", "placement.m"): ("64", FPGAS, ("placement.n=4",)),
    ("hpgnn", "memory.device_bytes"): ("10kB", FPGAS, ()),
    ("mixgcn", "sampler.schedule"): ("reordered", SPUS, ()),
    ("mixgcn", "sampler.stages"): ("2", SPUS, ()),
    ("mixgcn", "placement.accelerators"): ("2", SPUS, ()),
    ("mixgcn", "placement.sparse"): ("host", SPUS, ()),
    ("mixgcn", "placement.sparse_devices"): ("2", SPUS, ()),
    ("mixgcn", "memory.device_bytes"): ("100kB", SPUS, ()),
}

#: The same of those that no plan depends on: a value that is not the default.
REFUSED = {
    ("hongtu", "placement.numa_aware"): ("false", GPUS),
    ("hongtu", "communication.buffers"): ("separate", GPUS),
    ("hongtu", "communication.interleaved"): ("false", GPUS),
    ("hongtu", "memory.spill_dir"): (".", GPUS),
    ("hongtu-im", "placement.numa_aware"): ("false", GPUS),
    ("hyscale", "placement.drm"): ("false", FPGAS),
    ("hyscale", "placement.rule"): ("proportional", FPGAS),
    ("hyscale", "placement.skew"): ("0.5", FPGAS),
    ("hyscale", "placement.design"): ("false", FPGAS),
    ("hpgnn", "sampler.rmt"): ("false", FPGAS),
    ("hpgnn", "sampler.rra"): ("false", FPGAS),
    ("hpgnn", "communication.overlap"): ("false", FPGAS),
    ("hpgnn", "kernel.clock"): ("equations", FPGAS),
    ("hpgnn", "kernel.n"): ("4", FPGAS),
    ("hpgnn", "kernel.m"): ("64", FPGAS),
    ("mixgcn", "placement.row_groups"): ("2", SPUS),
}


def plan(strategy, platform, settings):
    words = ["plan", strategy, "--dataset", GRAPH, "--hidden", "16", "--platform", platform]
    for setting in settings:
        words += ["--set", setting]
    return CliRunner().invoke(main, [*words, "--threads", "1", "--json", "-"])


def read(result):
    """The tables without what counting took here."""
    assert result.exit_code == 0, result.output
    tables = json.loads(result.stdout)["tables"]
    return [table for table in tables if table["name"] != "counting"]


def test_every_option_of_every_planner_is_here():
    registry = plugins.load()
    options = set()
    for name in registry.planners:
        strategy = registry.strategy(name)
        parts = strategy.bundles[strategy.default_mode]
        for kind in PART_KINDS:
            part = registry.part(kind, parts.named(kind))
            options |= {(name, f"{kind}.{option}") for option in option_fields(part)}
    assert options == CHANGES.keys() | REFUSED.keys()
    assert not CHANGES.keys() & REFUSED.keys()


@pytest.mark.parametrize(("strategy", "option"), CHANGES)
def test_an_option_changes_the_plan(strategy, option, one_thread):
    value, platform, besides = CHANGES[strategy, option]
    if strategy == "hpgnn" and besides:  # both make a design, or none
        plain = read(plan(strategy, platform, ()))
    else:
        plain = read(plan(strategy, platform, besides))
    assert read(plan(strategy, platform, (*besides, f"{option}={value}"))) != plain


@pytest.mark.parametrize(("strategy", "option"), REFUSED)
def test_an_option_that_no_plan_depends_on_is_refused(strategy, option, one_thread):
    value, platform = REFUSED[strategy, option]
    result = plan(strategy, platform, (f"{option}={value}",))
    assert result.exit_code == 2, result.output
    (sentence,) = result.stderr.splitlines()
    assert option in sentence
    assert "leave" in sentence
    assert result.stdout == ""


def test_an_option_may_be_set_to_its_default():
    default = plan("hongtu", GPUS, ("communication.interleaved=true",))
    assert read(default) == read(plan("hongtu", GPUS, ()))
