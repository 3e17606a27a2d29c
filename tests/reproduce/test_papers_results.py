"""Every figure and table of the four papers is reproduced, or the list says what it is instead."""

import re
from collections.abc import Mapping

import pytest

from gnnbench import plugins

#: What each figure and table shows, as the papers number them from 1 on; counted by hand. Those
#: with ``*`` are results, which experiments or designs gave.
CONTENTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "HongTu": {
        "figure": (
            "a machine of several GPUs", "partitions of a toy graph", "the system",
            "recomputation and caching", "two-level partitions", "duplicated neighbours",
            "communication between host and GPU", "* accuracy over 100 epochs",
            "* what P2P and RU save", "* time and memory by chunks", "* one to four GPUs",
        ),
        "table": (
            "* memory of three graphs", "other systems", "* replication factors by partitions",
            "data sets", "* beside DGL and DistGNN, one GPU", "* beside systems of several GPUs",
            "* beside DistGNN on 16 nodes", "* duplicated rows", "* cost of deduplication",
        ),
    },
    "HyScale-GNN": {
        "figure": (
            "mini-batch training", "the architecture", "the system", "mapping of tasks",
            "the protocol", "kernels", "prefetching in two stages", "* predicted beside actual",
            "* scalability", "* beside a multi-GPU baseline", "* impact of optimisations",
        ),
        "table": (
            "notation", "platforms", "data sets", "* resources of the design",
            "set-ups of other systems", "* epochs beside other systems",
            "* epochs times the platform's peak",
        ),
    },
    "HP-GNN": {
        "figure": (
            "a layer", "the framework", "mapping to a platform", "layout of data", "aggregation",
            "update", "the accelerator",
        ),
        "table": (
            "interface", "sizes of mini-batches by sampler", "platforms", "data sets",
            "* resources of designs", "* optimisations of the layout", "* beside CPU and GPU",
            "* beside GraphACT and Rubik",
        ),
    },
    "MixGCN": {
        "figure": (
            "partition parallelism", "mixture of parallelism", "S-SpMM", "the accelerator",
            "pipelines", "reordering", "* throughput beside its peers", "* breakdown of time",
            "* memory", "* communication volume", "* balance", "* the accelerator's speed-up",
        ),
        "table": (
            "contributions", "data sets", "* energy", "* reordering", "* preprocessing",
        ),
    },
}  # fmt: skip
PREFIXES = {"HongTu": "hongtu", "HyScale-GNN": "hyscale", "HP-GNN": "hpgnn", "MixGCN": "mixgcn"}


def list_results(paper: str) -> tuple[set[str], set[str]]:
    results, others = set(), set()
    for kind, contents in CONTENTS[paper].items():
        for number, content in enumerate(contents, 1):
            (results if content.startswith("*") else others).add(f"{kind}{number}")
    return results, others


def read_left_out(prefix: str) -> set[str]:
    """Return the names that one reproduction of a paper lists, ranges one by one."""
    (listed,) = {
        each.left_out
        for each in plugins.load().reproductions.values()
        if each.left_out and each.name.startswith(f"{prefix}-")
    }
    names = []
    for name, shows, reason in listed:
        assert shows
        assert reason
        kind, first, last = re.fullmatch(rf"{prefix}-(\D+)(\d+)(?: to (\d+))?", name).groups()
        names += [f"{kind}{number}" for number in range(int(first), int(last or first) + 1)]
    assert len(set(names)) == len(names)
    return set(names)


@pytest.mark.parametrize("paper", CONTENTS)
def test_every_result_is_reproduced_or_left_out_with_a_reason(paper: str) -> None:
    offered = plugins.load().reproductions
    results, others = list_results(paper)
    left_out = read_left_out(PREFIXES[paper])
    there = {each for each in results | others if f"{PREFIXES[paper]}-{each}" in offered}
    assert there | left_out == results | others
    assert not there & left_out
    assert others <= left_out


def test_no_reproduction_has_a_number_that_its_paper_has_not() -> None:
    for name in plugins.load().reproductions:
        found = re.fullmatch(r"(\w+)-((?:figure|table)\d+)", name)
        if found:
            paper = next(each for each, prefix in PREFIXES.items() if prefix == found[1])
            assert found[2] in list_results(paper)[0], name
