"""Every option of these strategies changes the plan over a dataset, or is refused; from sizes alone
those are refused that nothing counted depends on."""

import json
from functools import cache

import pytest
from click.testing import CliRunner

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
    ("hongtu", "communication.overlap"): ("true", GPUS, ()),
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
    ("hyscale", "memory.rows"): ("pageable", FPGAS, NO_CPU),
    ("hyscale", "kernel.regularisers"): ("2", GPUS, ()),
    ("hongtu", "kernel.regularisers"): ("2", GPUS, ()),
    ("hongtu-im", "kernel.regularisers"): ("2", GPUS, ()),
    ("mixgcn", "kernel.regularisers"): ("2", SPUS, ()),
    ("hpgnn", "placement.scope"): ("board", FPGAS, ()),
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
    ("mixgcn", "memory.device_bytes"): ("10kB", SPUS, ()),
    ("hongtu", "placement.numa_aware"): ("false", GPUS, ()),
    ("hongtu", "communication.buffers"): ("separate", GPUS, ()),
    ("hongtu", "communication.interleaved"): ("false", GPUS, ()),
    ("hyscale", "placement.drm"): ("false", FPGAS, ()),
    ("hyscale", "placement.guard"): ("none", FPGAS, ()),
    ("hyscale", "placement.own_threads"): ("true", FPGAS, ("communication.stages=0",)),
    ("hpgnn", "sampler.rmt"): ("false", FPGAS, ()),
    ("hpgnn", "sampler.rra"): ("false", FPGAS, ()),
    ("hpgnn", "kernel.clock"): ("equations", FPGAS, ()),
    ("mixgcn", "placement.row_groups"): ("2", SPUS, ()),
}

#: What changes nothing here: a value, the platform, and where it does.
ELSEWHERE = {
    ("hongtu", "memory.spill_dir"): (".", GPUS, "which files are written, not how many bytes"),
    ("hongtu-im", "placement.numa_aware"): ("false", GPUS, "rows that come from the host"),
    ("hyscale", "placement.rule"): ("proportional", FPGAS, "rounds enough for DRM to act"),
    ("hyscale", "placement.skew"): ("0.5", FPGAS, "a split that is not planned by the model"),
    ("hyscale", "placement.design"): ("false", FPGAS, "times that are measured"),
    ("hpgnn", "communication.overlap"): ("false", FPGAS, "several mini-batches an epoch"),
}

#: What is refused: by a part, as it has no meaning there; and from sizes alone.
REFUSED = {
    ("hyscale", "memory.replicated"): ("true", FPGAS),
    ("hpgnn", "kernel.n"): ("4", FPGAS),
    ("hpgnn", "kernel.m"): ("64", FPGAS),
    ("hpgnn", "kernel.datapath"): ("chip", FPGAS),
}
UNCOUNTED = {
    ("hongtu", "placement.numa_aware"): ("false", GPUS),
    ("hongtu", "communication.buffers"): ("separate", GPUS),
    ("hongtu", "memory.spill_dir"): (".", GPUS),
    ("hongtu-im", "placement.numa_aware"): ("false", GPUS),
    ("mixgcn", "placement.row_groups"): ("2", SPUS),
}


OVER = ("--dataset", GRAPH, "--hidden", "16")
SIZES = ("--vertices", "600", "--edges", "5k", "--dims", "24,16,4")


def plan(strategy, platform, settings, graph=OVER):
    words = ["plan", strategy, *graph, "--platform", platform]
    for setting in settings:
        words += ["--set", setting]
    return CliRunner().invoke(main, [*words, "--threads", "1", "--json", "-"])


def read(result):
    """The runs, and the tables without what counting took here."""
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    tables = [table for table in document["tables"] if table["name"] != "counting"]
    return document["runs"], tables


@cache
def read_plain(strategy, platform, besides=()):
    """The plan that an option is held against, once for all options of a strategy."""
    return read(plan(strategy, platform, besides))


def test_every_option_of_every_planner_and_of_hyscale_is_here(registry):
    options = set()
    for name in (*registry.planners, "hyscale"):
        strategy = registry.strategy(name)
        parts = strategy.bundles[strategy.default_mode]
        for kind in PART_KINDS:
            part = registry.part(kind, parts.named(kind))
            options |= {(name, f"{kind}.{option}") for option in option_fields(part)}
    assert options == CHANGES.keys() | ELSEWHERE.keys() | REFUSED.keys()
    assert len(options) == len(CHANGES) + len(ELSEWHERE) + len(REFUSED)


@pytest.mark.parametrize(("strategy", "option"), CHANGES)
def test_an_option_changes_the_plan(strategy, option, one_thread):
    value, platform, besides = CHANGES[strategy, option]
    if strategy == "hpgnn" and besides:  # both make a design, or none
        plain = read_plain(strategy, platform)
    else:
        plain = read_plain(strategy, platform, besides)
    assert read(plan(strategy, platform, (*besides, f"{option}={value}"))) != plain


@pytest.mark.parametrize(("strategy", "option"), ELSEWHERE)
def test_an_option_that_does_nothing_here_is_taken(strategy, option, one_thread):
    value, platform, _ = ELSEWHERE[strategy, option]
    (run,), _ = read(plan(strategy, platform, (f"{option}={value}",)))
    assert run["status"] == "done"


@pytest.mark.parametrize(
    ("strategy", "option", "graph"),
    [(*each, OVER) for each in REFUSED] + [(*each, SIZES) for each in UNCOUNTED],
)
def test_an_option_that_no_plan_depends_on_is_refused(strategy, option, graph, one_thread):
    value, platform = (REFUSED if graph == OVER else UNCOUNTED)[strategy, option]
    result = plan(strategy, platform, (f"{option}={value}",), graph)
    assert result.exit_code == 2, result.output
    (sentence,) = result.stderr.splitlines()
    assert option in sentence
    assert "leave" in sentence
    assert result.stdout == ""


def test_an_option_may_be_set_to_its_default():
    default = plan("hongtu", GPUS, ("communication.interleaved=true",))
    assert read(default) == read_plain("hongtu", GPUS)
